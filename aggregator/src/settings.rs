//! Settings of the aggregator.

use std::time::Duration;

/// How the aggregator works; the defaults suit one process on a small machine.
#[derive(Debug, Clone)]
pub struct AggregatorSettings {
    /// Tasks that share the buckets, at least 1.
    pub workers: usize,
    /// Shards that one worker reconciles side by side, at least 1.
    pub parallel: usize,
    /// Attempts at one shard before its members are left to the sweep.
    pub attempts: u32,
    /// Pause after a first failure; doubles with each further one.
    pub first_pause: Duration,
    /// Longest pause after failures.
    pub max_pause: Duration,
    /// How long a stopping aggregator goes on with what is queued.
    pub drain: Duration,
}

impl Default for AggregatorSettings {
    fn default() -> Self {
        Self {
            workers: 2,
            parallel: 32,
            attempts: 6,
            first_pause: Duration::from_millis(20),
            max_pause: Duration::from_secs(1),
            drain: Duration::from_secs(2),
        }
    }
}
