//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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
    /// Shows the counts of targets
    Get(GetArgs),
    /// Measures likes per second, answer times and freshness, beside the bare storage engine
    Bench(BenchArgs),
}

/// `tally serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally serve\n  tally serve --data /var/lib/tally --listen 127.0.0.1:9000\n  \
tally serve --config /etc/tally.toml --log-format json\n  tally serve --set slot=1s --set sweep_delay=3s\n  \
TALLY_DATA=/srv/tally tally serve\n\nSettings come from defaults, then the file, then TALLY_… variables (TALLY_SWEEP_DELAY=3s), \
then flags. Kinds are configured in the file:\n  [kinds.reaction]\n  choices = [\"like\", \"love\"]\n  by_user = true\n\n\
SIGTERM or Ctrl-C: stops accepting, finishes what is open, exits 0 within 10 seconds.")]
pub struct ServeArgs {
    /// Directory of the data [default: ./data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Shape of log lines: human or json [default: human]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// List every setting with its default and meaning, and exit
    #[arg(long)]
    pub settings: bool,
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

/// `tally import`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tally import likes.csv --namespace video --kind like --columns user,target,at --time-unit ms\n  \
tally import activity.txt.gz --namespace higgs --columns user,target,at,type --delimiter ' ' --time-unit s --where type=RT\n  \
zcat votes.ndjson.gz | tally import - --format ndjson --namespace video --kind reaction\n  \
tally import big.csv.gz --namespace video --columns user,target,at --resume big.state\n\n\
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

/// `tally top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tally top --namespace higgs --kind like -n 10\n  tally top --namespace video --kind reaction -n 3 --json\n\n\
Every target is looked at, so the answer is exact and takes a moment. Equal totals are ordered by id."
)]
pub struct TopArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// Namespace of the targets
    #[arg(long)]
    pub namespace: String,
    /// What is counted
    #[arg(long, default_value = "like")]
    pub kind: String,
    /// How many targets
    #[arg(short, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub n: u32,
    /// Print JSON: [{"target":…,"total":…},…]
    #[arg(long)]
    pub json: bool,
}

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

/// `tally get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally get --namespace higgs 88\n  tally get --namespace video p1 p2 p3 --json")]
pub struct GetArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// Namespace of the targets
    #[arg(long)]
    pub namespace: String,
    /// Targets
    #[arg(required = true, value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tally bench\n  tally bench --seconds 10 --clients 256 --json\n  tally bench --only in-process --load hot\n\n\
Closed loop: each client sends its next like when the last is answered. Rounds of Tally and of the bare engine (same rows, same \
batch sizes, same durability) alternate, so that their ratio holds on a noisy machine. Data goes to a temporary directory."
)]
pub struct BenchArgs {
    /// Seconds of each round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Rounds of Tally and baseline each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Clients that each wait for their answer
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: u32,
    /// Connections of the clients over HTTP
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub http_clients: u32,
    /// Only this way in
    #[arg(long, value_enum)]
    pub only: Option<BenchWay>,
    /// Only this load
    #[arg(long, value_enum)]
    pub load: Option<BenchLoad>,
    /// Seed of the choice of users and targets
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory for the data [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Set any setting of the server that is measured, as aggregator_parallel=64; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// How likes reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchWay {
    /// Calls within the process.
    InProcess,
    /// HTTP over loopback.
    Http,
}

/// Whom the likes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchLoad {
    /// A new target each.
    Uniform,
    /// Zipf 1.1 over 100,000 targets.
    Zipf,
    /// One target.
    Hot,
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
