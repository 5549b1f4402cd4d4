//! Arguments of `verify` and `rebuild`.

use std::path::PathBuf;

use clap::Args;

use super::{ConfigArgs, UrlArgs};
use crate::report::Format;

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
    /// Write the report to a file as well: .json, .csv (what differed), or .html (a page for people); may be repeated
    #[arg(long = "report", value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// `tally reports`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally reports\n  tally reports 00065f3a1b2c3d4e --format html > report.html\n  \
tally reports 00065f3a1b2c3d4e --format csv\n\n\
Without an id: the last runs of verify and rebuild, newest first; at most 200 are kept, each with the first 1,000 places that \
differed. In CSV a cell that a spreadsheet would take for a formula gets an apostrophe; JSON is exact.")]
pub struct ReportsArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// One run
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// How to print one run [default: in words]
    #[arg(long, value_enum, requires = "id")]
    pub format: Option<Format>,
    /// How many runs to list
    #[arg(short, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    pub n: u16,
    /// Print the list as JSON
    #[arg(long, conflicts_with = "id")]
    pub json: bool,
}

/// `tally verify`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("scope").args(["all", "target", "since", "part"]))]
#[command(
    after_help = "Examples:\n  tally verify\n  tally verify --url http://127.0.0.1:9000 --json\n  tally verify --part next\n  \
tally verify --report report.html --report drift.csv\n  \
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
