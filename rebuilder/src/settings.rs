//! Settings of the rebuilder.

use std::time::Duration;

/// How the rebuilder works.
#[derive(Debug, Clone)]
pub struct RebuilderSettings {
    /// Slices of the key space; progress is kept after each. At least 1.
    pub slices: u32,
    /// Partitions checked side by side, at least 1.
    pub parallel: usize,
    /// How often a suspicion is looked at again before it is called drift, at least 1.
    pub looks: u32,
    /// Pause before each further look: time for work under way to settle.
    pub settle: Duration,
}

impl Default for RebuilderSettings {
    fn default() -> Self {
        Self { slices: 64, parallel: 8, looks: 10, settle: Duration::from_millis(100) }
    }
}
