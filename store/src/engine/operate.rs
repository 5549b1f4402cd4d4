//! What operators have said and done: statuses and logs.

use async_trait::async_trait;
use schema::{Micros, StatusKey, StatusRow};

use super::StoreResult;

/// `targets` and `users`: authoritative; plain; last-writer-wins by (version, status, run).
#[async_trait]
pub trait StatusTable: Send + Sync {
    /// One for each key, in order; `None`: nothing was ever said of it.
    async fn read_status(&self, keys: &[StatusKey]) -> StoreResult<Vec<Option<StatusRow>>>;

    /// Joins the row into what is stored. Durable when `Ok`.
    async fn put_status(&self, key: &StatusKey, row: StatusRow) -> StoreResult<()>;

    /// Whether anything was ever said of any target or user. Where nothing was, a writer need not
    /// ask about each.
    async fn any_status(&self) -> StoreResult<bool>;
}

/// An entry of a log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogEntry {
    /// When, in store time; entries are ordered by it.
    pub at: Micros,
    /// Tells entries of one moment apart, and orders them.
    pub id: u64,
    /// What; at most [`MAX_LOG_VALUE`] bytes.
    pub value: Vec<u8>,
}

/// Largest value of a log entry, in bytes.
pub const MAX_LOG_VALUE: usize = 1 << 20;

/// Append-only logs, each under a name without control characters: operational.
#[async_trait]
pub trait LogTable: Send + Sync {
    /// Adds an entry, or replaces that of the same (at, id). Durable when `Ok`. `Refused`: the name
    /// has a control character, or the value is too long.
    async fn append_log(&self, log: &str, at: Micros, id: u64, value: &[u8]) -> StoreResult<()>;

    /// Entries behind `after` (at, id) in the order asked for, at most `limit`; and whether the log
    /// ends here.
    async fn page_log(
        &self,
        log: &str,
        newest_first: bool,
        after: Option<(Micros, u64)>,
        limit: usize,
    ) -> StoreResult<(Vec<LogEntry>, bool)>;

    /// Removes one entry; where there is none, nothing. May be repeated.
    async fn drop_log_entry(&self, log: &str, at: Micros, id: u64) -> StoreResult<()>;

    /// Removes every entry of a log. May be repeated.
    async fn drop_log(&self, log: &str) -> StoreResult<()>;
}

/// Why an entry cannot be taken, if it cannot.
pub(crate) fn check_log(log: &str, value: &[u8]) -> StoreResult<()> {
    if log.is_empty() || log.chars().any(char::is_control) {
        return Err(super::StoreError::Refused("the name of a log is not empty and has no control characters".into()));
    }
    if value.len() > MAX_LOG_VALUE {
        return Err(super::StoreError::Refused(format!("an entry of a log has at most {MAX_LOG_VALUE} bytes")));
    }
    Ok(())
}
