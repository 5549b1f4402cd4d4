//! The command line.

mod bench;
mod copy;
mod explain;
mod import;
mod key;
mod look;
mod operate;
mod repair;
mod serve;
mod tools;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use bench::{BenchArgs, BenchLoad, BenchWay, BenchWhat};
pub use copy::{BackupArgs, ExportArgs, RestoreArgs};
pub use explain::ExplainArgs;
pub use import::{ImportArgs, RowFormat, TimeUnit};
pub use key::{KeyAction, KeyCommand, KeyNewArgs};
pub use look::{GetArgs, TopArgs};
pub use operate::{AuditArgs, HideArgs, ModeArgs, PartArg, RunsArgs, StatusArgs, UndoArgs, WhyArgs};
pub use repair::{RebuildArgs, ReportsArgs, ScopeArgs, VerifyArgs};
pub use serve::ServeArgs;
pub use tools::{CompletionShell, CompletionsArgs, ConfigAction, ConfigCommand, ManArgs};

const CODES: &str = "Exit codes: 0 as asked; 1 the answer is no (drift found, rows refused under --strict); 2 command line, \
configuration or request at fault; 3 a server, file or data directory cannot be reached or used; 4 a bug in Tally.";

/// Likes, reactions and comments, counted exactly.
#[derive(Debug, Parser)]
#[command(name = "tally", version, after_help = CODES, max_term_width = 110, arg_required_else_help = true)]
#[command(about = "Likes, reactions and comments, counted exactly: the server and its tools")]
#[command(long_about = "Likes, reactions and comments, counted exactly: the server and its tools.\n\n\
Start a server with `tally serve`, fill it with `tally import` or over HTTP, look with `tally get` and `tally top`, \
and prove the numbers with `tally verify`. Each command's --help has examples.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub access: AccessArgs,
}

/// How a command proves to a server who asks, and knows the server.
#[derive(Debug, Args, Default)]
pub struct AccessArgs {
    /// File with the key to send to the server; or the key itself in TALLY_KEY
    #[arg(long, global = true, value_name = "FILE", help_heading = "Access")]
    pub key_file: Option<PathBuf>,
    /// Certificates in PEM that are trusted for an https:// address [env: TALLY_CA]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Access")]
    pub ca: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the server: HTTP API, counting and repair in one process, on one data directory
    Serve(ServeArgs),
    /// Sends the rows of a file to a server as likes, at the times given in it
    Import(ImportArgs),
    /// Shows the targets with the largest totals, exactly
    Top(TopArgs),
    /// Recomputes everything from the facts and reports every difference; repairs nothing
    Verify(VerifyArgs),
    /// Recounts from the facts and repairs what differs, while traffic goes on
    Rebuild(RebuildArgs),
    /// Shows what earlier runs of verify and rebuild found
    Reports(ReportsArgs),
    /// Shows the counts of targets
    Get(GetArgs),
    /// Hides members of a target, or all facts of a user, for one reason
    Hide(HideArgs),
    /// Shows again what is hidden for one reason
    Show(HideArgs),
    /// Takes back what one hide run changed, and nothing else
    Undo(UndoArgs),
    /// Lists hide runs, shows one, or ends one
    Runs(RunsArgs),
    /// Shows or sets the status of a target or user
    Status(StatusArgs),
    /// Lists who did what and why
    Audit(AuditArgs),
    /// Shows or sets what the server lets in, and pauses its loops
    Mode(ModeArgs),
    /// Measures likes per second, answer times and freshness, beside the bare storage engine
    Bench(BenchArgs),
    /// Says in words what is stored about one fact, whether it is counted, and what is pending
    Explain(ExplainArgs),
    /// Writes facts as lines of JSON that `import` takes back
    Export(ExportArgs),
    /// Copies every row of a running server, consistently, into a directory
    Backup(BackupArgs),
    /// Makes a data directory of a backup, checks it, and verifies the counts
    Restore(RestoreArgs),
    /// Shows the settings in force with the source of each, or checks a configuration file
    Config(ConfigCommand),
    /// Makes, lists and revokes the keys of callers
    Key(KeyCommand),
    /// Writes a completion script for a shell to standard output
    Completions(CompletionsArgs),
    /// Writes man pages, one for each command
    Man(ManArgs),
}

/// Where settings come from besides the environment.
#[derive(Debug, Args, Default)]
pub struct ConfigArgs {
    /// Configuration file [default: ./tally.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set any setting, as slot=1s; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Which server.
#[derive(Debug, Args)]
pub struct UrlArgs {
    /// Address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent_and_every_command_has_examples() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands_mut() {
            assert!(sub.render_long_help().to_string().contains("Examples:"), "{}", sub.get_name());
        }
    }

    #[test]
    fn the_documented_commands_parse() {
        for line in [
            "tally serve --data ./data --listen 127.0.0.1:8080",
            "tally top --url http://127.0.0.1:8080 --namespace higgs --kind like -n 10 --json",
            "tally verify --url http://127.0.0.1:8080",
            "tally verify --data ./data",
            "tally rebuild --url http://127.0.0.1:8080 --all",
            "tally hide --namespace video --target p1 --reason fraud --why bought u1 u2",
            "tally show --namespace video --user u1 --reason moderation --why sorry",
            "tally undo 17 --why wrong",
            "tally runs 17 --cancel --why wrong",
            "tally status --namespace video --target p1 --set gone --why deleted",
            "tally audit --export",
            "tally mode read-only --why move",
            "tally get --url http://127.0.0.1:8080 --namespace higgs 88",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        let import = "tally|import|higgs-activity_time.txt.gz|--url|http://127.0.0.1:8080|--namespace|higgs|--kind|like|--columns|\
                      user,target,at,type|--delimiter| |--time-unit|s|--where|type=RT";
        assert!(Cli::try_parse_from(import.split('|')).is_ok());
        assert!(Cli::try_parse_from(["tally", "rebuild"]).is_err());
        assert!(Cli::try_parse_from(["tally", "rebuild", "--all", "--target", "x"]).is_err());
    }
}
