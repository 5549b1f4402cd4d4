//! Arguments of `backup`, `restore` and `export`.

use std::path::PathBuf;

use clap::Args;

/// `tally backup`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally backup /var/backups/tally/monday\n  tally backup ./copy --data ./data\n\n\
A consistent copy of every row, taken while the server runs: everything answered before it began is in it. One at a time; a server \
gives up a caller that takes nothing for a minute. The directory is made, for its owner only, and holds parts of 64 MiB, \
manifest.json and SHA256SUMS (`sha256sum -c SHA256SUMS` checks it, too). With --data the store is opened here, so no server may run on it.")]
pub struct BackupArgs {
    /// New or empty directory for the backup
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Address of the server [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub url: Option<String>,
    /// Data directory to open, with no server running
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print the manifest as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally export --namespace video > video.ndjson\n  \
tally export likes.ndjson.gz --namespace video --kind like\n  \
tally export all.ndjson.gz --namespace video --all-registers --data ./data\n  \
tally import all.ndjson.gz --format tally --namespace video\n\n\
A line for each fact that is counted, ordered by target, kind and member; `at` is when the choice last changed, so an import gives \
the same counts and lists. With --all-registers also what is withdrawn and what hides; without it, hidden facts are left out. Not in \
an export: versions later than `at`, statuses, audit log (`tally backup` has everything). Facts are as of when each is \
read. A file gets its name once it is whole; .gz is compressed. Pages of 5,000 lines; a page that fails is asked for again for --patience, \
and --cursor goes on where an export ended.")]
pub struct ExportArgs {
    /// File to write; `-` is standard output
    #[arg(value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// Namespace of the targets
    #[arg(long)]
    pub namespace: String,
    /// One kind [default: all]
    #[arg(long)]
    pub kind: Option<String>,
    /// Withdrawn facts and registers that hide, too
    #[arg(long)]
    pub all_registers: bool,
    /// Go on where an earlier export said that it ended
    #[arg(long)]
    pub cursor: Option<String>,
    /// Seconds for which a server that cannot be reached is asked again
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub patience: u64,
    /// Address of the server [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub url: Option<String>,
    /// Data directory to open, with no server running
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// `tally restore`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally restore /var/backups/tally/monday ./data && tally serve --data ./data\n\n\
Every checksum is compared before anything is written; a damaged backup is refused by the name of its file. The rows are written \
into DIR.restoring, the journal of the copy is counted and everything is verified; then it becomes DIR. Cut off anywhere, run it again: \
what was left there is cleared away. \
Exit code 0: clean; 1: damaged, or something differs; `tally rebuild` repairs differences.")]
pub struct RestoreArgs {
    /// Directory of a backup
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,
    /// New or empty directory for the data
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print the result as JSON, with the report of the verify
    #[arg(long)]
    pub json: bool,
}
