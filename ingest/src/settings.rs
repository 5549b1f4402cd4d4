//! Settings of ingest.

use std::time::Duration;

use crate::http::Rates;

/// How ingest works; the defaults suit one process on a small machine.
#[derive(Debug, Clone)]
pub struct IngestSettings {
    /// Requests that may wait, at least 1; a further one is told that there is no capacity now.
    pub queue: usize,
    /// Most requests of one micro-batch, at least 1.
    pub batch: usize,
    /// Micro-batches on their way at one time, at least 1.
    pub batches: usize,
    /// How often this process tells the sweep that it lives.
    pub touch: Duration,
    /// How long a count may be answered from memory.
    pub cache_ttl: Duration,
    /// Most targets whose counts are kept in memory.
    pub cache_targets: u64,
    /// HTTP requests handled side by side; a further one is told that there is no capacity now.
    pub requests: usize,
    /// How often keys, users and targets may come.
    pub rates: Rates,
    /// Time one HTTP request may take, above the protocol's own deadline.
    pub request_timeout: Duration,
    /// HTTP requests that take at least so long are logged; zero: none.
    pub slow_request: Duration,
}

impl Default for IngestSettings {
    fn default() -> Self {
        Self {
            queue: 16_384,
            batch: 128,
            batches: 8,
            touch: Duration::from_secs(10),
            cache_ttl: Duration::from_secs(1),
            cache_targets: 100_000,
            requests: 4096,
            rates: Rates::default(),
            request_timeout: Duration::from_secs(10),
            slow_request: Duration::from_secs(1),
        }
    }
}
