//! Many seeds on several threads.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use super::{ops::Case, run::run, world::Fault};

/// What many runs found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Many {
    /// Seeds that broke an invariant, with what broke, ascending.
    pub broken: Vec<(u64, String)>,
    /// Requests begun in all runs.
    pub requests: u64,
    /// Of these answered.
    pub answered: u64,
}

/// Runs the seeds `from..from + count` on `jobs` threads (at least 1).
pub fn many(from: u64, count: u64, jobs: usize, fault: Fault) -> Many {
    let next = AtomicU64::new(0);
    let found = Mutex::new(Many::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    let seed = from + n;
                    let result = run(&Case::of(seed), fault, false);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.requests += result.requests as u64;
                    found.answered += result.answered as u64;
                    if let Some(text) = result.broken {
                        found.broken.push((seed, text));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.broken.sort();
    found
}
