//! Many kills (SIGKILL) of the real binary at random moments, and what must hold afterwards.
//!
//! The kills are dealt out to *worlds*: a data directory with traffic, readers at 50 Hz and a book of
//! what was answered. Each kill has an *aim*: what is under way when it falls. All decisions come from
//! the seed; what the process does in the meantime does not, so a seed repeats the kill points, not
//! the state that they meet.

mod aim;
mod audit;
pub mod bulk;
mod hide;
mod reader;
mod world;

use std::{collections::BTreeMap, thread, time::Duration};

pub use aim::Aim;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::clock::Stopwatch;

/// Most kills in one world, so that its data stay small and each has its share of first starts.
const WORLD_KILLS: u64 = 50;

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Kills in all.
    pub kills: u64,
    /// Decides everything.
    pub seed: u64,
    /// Worlds side by side, at least 1.
    pub jobs: usize,
    /// Prints each kill as it falls.
    pub verbose: bool,
}

/// What was done and found. Whatever breaks a promise panics instead.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Kills by aim.
    pub kills: BTreeMap<Aim, u64>,
    /// Changes that were answered.
    pub answered: u64,
    /// Facts of imports and bulk writes that were compared with the lists.
    pub bulk: u64,
    /// Runs that hide or undo which were under way still when the server was there again.
    pub cut: u64,
    /// Entries of the operators' audit log that were looked for, in every world at its end.
    pub audited: u64,
    /// Counts that readers saw, each held against its bounds.
    pub samples: u64,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    fn add(&mut self, other: &Self) {
        for (&aim, n) in &other.kills {
            *self.kills.entry(aim).or_insert(0) += n;
        }
        self.answered += other.answered;
        self.bulk += other.bulk;
        self.cut += other.cut;
        self.audited += other.audited;
        self.samples += other.samples;
    }

    /// Kills in all.
    pub fn total(&self) -> u64 {
        self.kills.values().sum()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let aims: Vec<String> = self.kills.iter().map(|(aim, n)| format!("{aim:?} {n}")).collect();
        writeln!(f, "{} kills in {:.1} s: {}", self.total(), self.took.as_secs_f64(), aims.join(", "))?;
        writeln!(f, "{} hide runs were cut off in the middle and ended by themselves", self.cut)?;
        write!(
            f,
            "{} answered changes, {} bulk facts, {} audit entries and {} sampled counts: none lost, none undone, none wrong",
            self.answered, self.bulk, self.audited, self.samples
        )
    }
}

/// Runs all kills. Panics with the kill points of the world in which a promise was broken.
pub fn run(settings: &Settings) -> Report {
    let watch = Stopwatch::start();
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let mut worlds = Vec::new();
    let mut left = settings.kills;
    while left > 0 {
        let kills = left.min(WORLD_KILLS);
        worlds.push((worlds.len(), kills, rng.random::<u64>()));
        left -= kills;
    }
    let mut report = Report::default();
    for some in worlds.chunks(settings.jobs.max(1)) {
        thread::scope(|scope| {
            let running: Vec<_> = some
                .iter()
                .map(|&(number, kills, seed)| scope.spawn(move || world::run(number, kills, seed, settings.verbose)))
                .collect();
            for world in running {
                report.add(&world.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
    }
    report.took = watch.elapsed();
    report
}
