//! Settings of the rebuilder.

use std::time::Duration;

/// How the rebuilder works.
#[derive(Debug, Clone)]
pub struct RebuilderSettings {
    /// Slices of the key space; progress is kept after each. At least 1.
    pub slices: u32,
    /// Slices, or partitions, checked side by side, at least 1.
    pub parallel: usize,
    /// How often a suspicion is looked at again before it is called drift, at least 1.
    pub looks: u32,
    /// Pause before each further look: time for work under way to settle.
    pub settle: Duration,
    /// Rows read per second, all tasks of a run together; 0: as fast as it goes.
    pub rate: u64,
    /// Most rows that one task reads at a time, at least 1.
    pub page: usize,
    /// Classes of users in which facts and index are compared: 16 bytes each while everything is
    /// checked. The more there are, the less has to be looked at twice beside traffic.
    pub classes: usize,
    /// How long a slice belongs to the run that works on it without another sign of life.
    pub lease: Duration,
    /// How long a rebuild of everything that was cut off may be taken up again.
    pub resume: Duration,
    /// Above this share of the checked targets, in percent, repair stops until somebody confirms.
    pub freeze_percent: f64,
    /// It takes at least so many drifted targets.
    pub freeze_targets: u64,
    /// A single target that is wrong by more than this many also stops repair; 0: never.
    pub freeze_size: u64,
}

impl Default for RebuilderSettings {
    fn default() -> Self {
        Self {
            slices: 64,
            parallel: 8,
            looks: 10,
            settle: Duration::from_millis(100),
            rate: 0,
            page: 1024,
            classes: 1 << 20,
            lease: Duration::from_secs(60),
            resume: Duration::from_secs(24 * 3600),
            freeze_percent: 1.0,
            freeze_targets: 20,
            freeze_size: 100_000,
        }
    }
}
