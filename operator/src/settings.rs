//! Settings of the operators' work.

use std::time::Duration;

/// How runs are carried out.
#[derive(Debug, Clone)]
pub struct OperatorSettings {
    /// Registers that are decided, recorded and written at a time, 1 to 500.
    pub chunk: usize,
    /// A run pauses after each chunk for this many times as long as the chunk took, so that other
    /// writers have the store to themselves meanwhile.
    pub rest: u32,
    /// Most runs that may wait.
    pub queue: usize,
    /// First pause before what the store did not take is sent again; doubles.
    pub first_pause: Duration,
    /// Longest such pause.
    pub max_pause: Duration,
    /// How long a process may go on admitting by a status that was changed elsewhere.
    pub status_age: Duration,
    /// How long a run is kept after its end, with what an undo of it needs; zero: for ever.
    pub retention: Duration,
}

impl Default for OperatorSettings {
    fn default() -> Self {
        Self {
            chunk: 500,
            rest: 1,
            queue: 32,
            first_pause: Duration::from_millis(20),
            max_pause: Duration::from_secs(2),
            status_age: Duration::from_secs(1),
            retention: Duration::from_secs(90 * 86_400),
        }
    }
}
