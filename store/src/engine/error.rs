//! Errors of an engine, named for what the caller does next.

/// Result of an engine call.
pub type StoreResult<T> = Result<T, StoreError>;

/// What a caller knows after a failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Certainly not done; a later try may succeed.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// Done or not, now or later: time-out, cut connection. Read again, or repeat what is safe to
    /// repeat.
    #[error("store outcome unknown: {0}")]
    Unknown(String),
    /// Not done, and will not be however often it is tried: the row itself is at fault.
    #[error("store refused the row: {0}")]
    Refused(String),
    /// Stored bytes could not be read; says where.
    #[error("stored data damaged: {0}")]
    Damaged(String),
    /// Nothing more will work until the store is opened again (an I/O error poisoned it).
    #[error("store stopped: {0}; free space or mend the disk, then restart")]
    Stopped(String),
}

impl StoreError {
    /// Whether the same call may succeed later without anybody changing anything about the row.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Unknown(_))
    }
}
