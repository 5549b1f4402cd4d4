//! Arguments of `tally import`.

use std::path::PathBuf;

use clap::Args;

use super::UrlArgs;

/// `tally import`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tally import likes.csv --namespace video --kind like --columns user,target,at --time-unit ms\n  \
tally import activity.txt.gz --namespace higgs --columns user,target,at,type --delimiter ' ' --time-unit s --where type=RT\n  \
zcat votes.ndjson.gz | tally import - --format ndjson --namespace video --kind reaction\n  \
tally import big.csv.gz --namespace video --columns user,target,at --resume big.state\n  \
tally import all.ndjson.gz --format tally --namespace video\n\n\
Columns are named user, target, at, type, choice, kind; `-` or `_` skips one. In NDJSON these are the keys; \
`user=actor` reads another. Without a choice column the choice is --choice; an empty choice withdraws. \
Repeating an import changes nothing. A file is read as gzip by its first bytes, whatever its name."
)]
pub struct ImportArgs {
    /// File to read; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub server: UrlArgs,
    /// Namespace of the targets and users
    #[arg(long)]
    pub namespace: String,
    /// Kind of every row, unless there is a kind column
    #[arg(long, default_value = "like")]
    pub kind: String,
    /// Choice of every row, unless there is a choice column [default: the kind's name]
    #[arg(long)]
    pub choice: Option<String>,
    /// What the columns are, in order [default: user,target]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', allow_hyphen_values = true)]
    pub columns: Vec<String>,
    /// One character, or `tab`, `space` [default: by the file's name, else a comma]
    #[arg(long, value_name = "CHAR")]
    pub delimiter: Option<String>,
    /// How the rows are written [default: ndjson for .ndjson and .jsonl, else delimited]
    #[arg(long, value_enum)]
    pub format: Option<RowFormat>,
    /// Skip the first line
    #[arg(long)]
    pub header: bool,
    /// Unit of the `at` column, since 1970
    #[arg(long, value_enum, default_value = "us")]
    pub time_unit: TimeUnit,
    /// Take only rows whose column has this value; may be repeated
    #[arg(long = "where", value_name = "COLUMN=VALUE")]
    pub filters: Vec<String>,
    /// Keep the place in this file, and go on there when run again
    #[arg(long, value_name = "STATE")]
    pub resume: Option<PathBuf>,
    /// Stop at the first bad row
    #[arg(long)]
    pub strict: bool,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub parallel: u16,
    /// Give up after the server was away this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub patience: u64,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RowFormat {
    /// Fields between delimiters: CSV, TSV, spaces.
    Delimited,
    /// One JSON object a line.
    Ndjson,
    /// Lines that `tally export` wrote.
    Tally,
}

/// Unit of the times in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TimeUnit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
}
