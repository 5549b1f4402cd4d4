//! Rows that cannot be used: the first few are shown, all are counted.

use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;

use crate::failure::Failure;

/// Bad rows that are shown.
const SHOWN: u64 = 20;

/// Bad rows of one import.
pub struct BadRows {
    count: AtomicU64,
    strict: bool,
    bar: ProgressBar,
}

impl BadRows {
    /// `strict`: the first bad row is a failure. Lines are shown above `bar`.
    pub fn new(strict: bool, bar: ProgressBar) -> Self {
        Self { count: AtomicU64::new(0), strict, bar }
    }

    /// Reports one row.
    pub fn report(&self, line: u64, why: &str) -> Result<(), Failure> {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if self.strict {
            return Err(Failure::negative(format!("line {line}: {why}; stopped, since --strict was given")));
        }
        if before < SHOWN {
            self.say(&format!("line {line}: {why}"));
        } else if before == SHOWN {
            self.say("further bad rows are counted, not shown");
        }
        Ok(())
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }
}
