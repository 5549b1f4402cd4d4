//! Arguments of `verify` and `rebuild`.

use std::path::PathBuf;

use clap::Args;

use super::{ConfigArgs, UrlArgs};

/// What to cover.
#[derive(Debug, Args)]
pub struct ScopeArgs {
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
    /// What was written since: as long ago as 2h, or a store time in microseconds; as far back as the journal reaches
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// One of 30 parts of the key space, 0 to 29, or `next`: the one verified longest ago
    #[arg(long, value_name = "N|next")]
    pub part: Option<String>,
    /// Rows read per second, instead of the server's setting; 0: as fast as it goes
    #[arg(long, value_name = "ROWS")]
    pub rate: Option<u64>,
    /// Who orders it, for the record
    #[arg(long, value_name = "NAME")]
    pub operator: Option<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `tally verify`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("scope").args(["all", "target", "since", "part"]))]
#[command(
    after_help = "Examples:\n  tally verify\n  tally verify --url http://127.0.0.1:9000 --json\n  tally verify --part next\n  \
tally verify --data ./data\n\n\
Exit code 0: clean; 1: something differs. Without a scope everything is verified. With --data the store is opened here, so no \
server may run on it; what its last process left in the journal is counted first."
)]
pub struct VerifyArgs {
    /// Address of the server [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub url: Option<String>,
    /// Data directory to open, with no server running
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub scope: ScopeArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally rebuild`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("scope").required(true).args(["all", "target", "since", "part"]))]
#[command(after_help = "Examples:\n  tally rebuild --all\n  tally rebuild --all --dry-run\n  tally rebuild --since 2h\n  \
tally rebuild --part next --rate 20000\n  tally rebuild --namespace video --target p1 --kind like\n  \
tally rebuild --all --confirm --reason 'restored the backup of Monday'\n\n\
Exit code 0: nothing differs any more; 1: something does (always so where --dry-run finds drift, or where so much differs that \
repair waits for --confirm). An interrupted rebuild goes on where it stopped.")]
pub struct RebuildArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Report only
    #[arg(long)]
    pub dry_run: bool,
    /// Repair however much differs
    #[arg(long, requires = "reason")]
    pub confirm: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
