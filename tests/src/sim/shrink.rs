//! Delta debugging: the shortest op list, under the same schedule seed, that still breaks.

use super::{ops::Case, run::run, world::Fault};

/// Runs that a shrinking may take.
const MAX_RUNS: usize = 1_500;

/// Removes ops, in ever smaller chunks, as long as some invariant is still broken.
pub fn shrink(case: &Case, fault: Fault) -> Case {
    let mut best = case.clone();
    let mut runs = 0;
    let mut chunk = (best.ops.len() / 2).max(1);
    loop {
        let mut at = 0;
        let mut removed = false;
        while at < best.ops.len() && runs < MAX_RUNS {
            let mut ops = best.ops.clone();
            ops.drain(at..(at + chunk).min(best.ops.len()));
            let candidate = Case { seed: best.seed, ops };
            runs += 1;
            if run(&candidate, fault, false).broken.is_some() {
                best = candidate;
                removed = true;
            } else {
                at += chunk;
            }
        }
        if runs >= MAX_RUNS || (chunk == 1 && !removed) {
            return best;
        }
        chunk = (chunk / 2).max(1);
    }
}
