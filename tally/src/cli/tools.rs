//! Arguments of `config`, `completions` and `man`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ConfigArgs;

/// `tally config`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tally config print\n  TALLY_SLOT=1s tally config print --config /etc/tally.toml --set level=5\n  \
tally config check /etc/tally.toml"
)]
pub struct ConfigCommand {
    /// What to do.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Shows every setting that `serve` would run with, and where it comes from
    Print(ConfigPrintArgs),
    /// Reads a file as `serve` would, and says what is wrong with it
    Check(ConfigCheckArgs),
}

/// `tally config print`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally config print\n  tally config print --config /etc/tally.toml --json\n\n\
The output is a configuration file that gives the same settings. Values that are secrets are shown as (hidden).")]
pub struct ConfigPrintArgs {
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print JSON: [{\"name\":…,\"value\":…,\"source\":…},…]
    #[arg(long)]
    pub json: bool,
}

/// `tally config check`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally config check /etc/tally.toml\n\n\
Only the file is read, at most 1 MiB, neither the environment nor flags. Exit code 0: it can be used; 2: it cannot, and why.")]
pub struct ConfigCheckArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `tally completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally completions bash > /etc/bash_completion.d/tally\n  \
tally completions zsh > ~/.zfunc/_tally\n  tally completions fish > ~/.config/fish/completions/tally.fish")]
pub struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    pub shell: CompletionShell,
}

/// Shells that can be completed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CompletionShell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// `tally man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally man ./man && man ./man/tally-serve.1\n  tally man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Directory for the pages, one for each command; made where there is none
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
