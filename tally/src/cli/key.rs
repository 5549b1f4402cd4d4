//! Arguments of `tally key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `tally key`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  tally key new --keys keys.toml --name frontend --roles read,write --namespaces video\n  \
tally key new --keys keys.toml --name root --roles read,write,moderate,operate --days 90 > root.key\n  \
tally key list --keys keys.toml\n  tally key revoke --keys keys.toml frontend\n\n\
A server with the setting `keys` reads the file again within a second of a change. To rotate a key: make one under another name, \
hand it out, revoke the old one."
)]
pub struct KeyCommand {
    /// What to do.
    #[command(subcommand)]
    pub action: KeyAction,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Makes a key and prints its token, once
    New(KeyNewArgs),
    /// Shows the keys, without anything secret
    List(KeyListArgs),
    /// Refuses a key from now on
    Revoke(KeyRevokeArgs),
}

/// `tally key new`.
#[derive(Debug, Args)]
pub struct KeyNewArgs {
    /// Keys file; made where there is none
    #[arg(long, value_name = "FILE", default_value = "keys.toml")]
    pub keys: PathBuf,
    /// Who will have it, for logs and the audit log
    #[arg(long)]
    pub name: String,
    /// What it may do: read, write, moderate, operate
    #[arg(long, value_delimiter = ',', required = true)]
    pub roles: Vec<String>,
    /// In which namespaces
    #[arg(long, value_delimiter = ',', default_value = "*")]
    pub namespaces: Vec<String>,
    /// Days until it is refused [default: never]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally key list`.
#[derive(Debug, Args)]
pub struct KeyListArgs {
    /// Keys file
    #[arg(long, value_name = "FILE", default_value = "keys.toml")]
    pub keys: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally key revoke`.
#[derive(Debug, Args)]
pub struct KeyRevokeArgs {
    /// Keys file
    #[arg(long, value_name = "FILE", default_value = "keys.toml")]
    pub keys: PathBuf,
    /// Name or id of the key
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Remove it from the file instead of keeping it as revoked
    #[arg(long)]
    pub delete: bool,
}
