//! Arguments of `tally bench`.

use std::path::PathBuf;

use clap::Args;

/// `tally bench`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally bench\n  tally bench --seconds 10 --clients 256 --json\n  \
tally bench --only in-process --load hot\n  tally bench reads\n  tally bench rebuild --facts 1000000\n  tally bench sweep --load zipf --json\n  \
tally bench --url http://127.0.0.1:8080 --load hot --seconds 10\n\n\
Closed loop: each client sends its next like when the last is answered. Rounds of Tally and of a baseline alternate, so that their \
ratio holds on a noisy machine: in process the bare engine (same rows, same batch sizes, same durability), over HTTP a handler that \
only parses and answers. Data goes to a temporary directory; with --url likes by users of no meaning go to that server, into \
namespace `bench`.")]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum, default_value = "likes")]
    pub what: BenchWhat,
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
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub http_clients: u32,
    /// Only this way in
    #[arg(long, value_enum)]
    pub only: Option<BenchWay>,
    /// Only this load
    #[arg(long, value_enum)]
    pub load: Option<BenchLoad>,
    /// Leave out the last part, at half of the rate
    #[arg(long)]
    pub peak_only: bool,
    /// Like on a server that runs already, instead of one of its own
    #[arg(long, value_name = "URL", conflicts_with_all = ["only", "dir", "set"])]
    pub url: Option<String>,
    /// Likes that `rebuild` fills the store with
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub facts: u64,
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

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchWhat {
    /// Durable likes, each load and way in, beside their baselines.
    Likes,
    /// Counts from memory over HTTP, beside a handler that only parses and answers.
    Reads,
    /// Verify beside the bare engine that only reads, and likes beside a throttled rebuild.
    Rebuild,
    /// Throughput and answer times at 10 % to 110 % of the peak.
    Sweep,
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
