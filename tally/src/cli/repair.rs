//! Arguments of `verify` and `rebuild`.

use std::path::PathBuf;

use clap::Args;

use super::{ConfigArgs, UrlArgs};

/// `tally verify`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tally verify\n  tally verify --url http://127.0.0.1:9000 --json\n  tally verify --data ./data\n\n\
Exit code 0: clean; 1: something differs. With --data the store is opened here, so no server may run on it; what its last \
process left in the journal is counted first."
)]
pub struct VerifyArgs {
    /// Address of the server [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub url: Option<String>,
    /// Data directory to open, with no server running
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally rebuild`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("scope").required(true).args(["all", "target"]))]
#[command(after_help = "Examples:\n  tally rebuild --all\n  tally rebuild --all --dry-run\n  \
tally rebuild --namespace video --target p1 --kind like\n\n\
Exit code 0: nothing differs any more; 1: something does (always so where --dry-run finds drift). An interrupted --all goes on \
where it stopped.")]
pub struct RebuildArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// Everything
    #[arg(long)]
    pub all: bool,
    /// One target: its id with --namespace, or `namespace/id`
    #[arg(long, value_name = "ID")]
    pub target: Option<String>,
    /// The target's namespace
    #[arg(long, requires = "target")]
    pub namespace: Option<String>,
    /// One kind of it [default: all]
    #[arg(long, requires = "target")]
    pub kind: Option<String>,
    /// Report only
    #[arg(long)]
    pub dry_run: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
