//! Kills the real binary many times at random moments and checks every promise afterwards.

use clap::Parser;
use tally_tests::kills::{Settings, run};

/// Needs the release build, or the binary that TEST_BINARY names. Ends with a panic, the seed and the
/// kill points where a promise is broken.
#[derive(Parser)]
#[command(name = "kills")]
struct Args {
    /// How many kills.
    #[arg(long, default_value_t = 1000)]
    kills: u64,
    /// Decides what is killed when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Data directories that are worked on side by side.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Prints each kill as it falls.
    #[arg(long)]
    verbose: bool,
}

fn main() {
    let Args { kills, seed, jobs, verbose } = Args::parse();
    println!("--kills {kills} --seed {seed} --jobs {jobs}");
    println!("{}", run(&Settings { kills, seed, jobs, verbose }));
}
