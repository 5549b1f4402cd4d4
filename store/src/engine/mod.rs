//! What an engine must do: a few small traits over rows. The protocol above them is written once.
//!
//! Rules for all methods:
//!
//! - *Durable* means: it survives the death of any process and, where the deployment promises it,
//!   of a machine. Rows of derived tables need only survive together with, or not outlive, what
//!   was written before them.
//! - An error says what the caller knows afterwards ([`StoreError`]); every write here except
//!   [`LedgerTable::commit`] may be repeated as it is, any number of times, in any order.
//! - Plain rows are last-writer-wins by what the row says of itself (a register's version, a
//!   counter's order), never by arrival.
//! - Reads are quorum reads unless the method says otherwise: they see every write that was
//!   answered `Ok` before they began.
//! - A page that is not the last is never empty (an engine whose server sends empty pages asks on).

mod error;
mod operate;
mod scan;
mod tables;

pub use error::{StoreError, StoreResult};
pub(crate) use operate::check_log;
pub use operate::{LogEntry, LogTable, MAX_LOG_VALUE, StatusTable};
pub use scan::{FactRows, IndexRows, LedgerRows, Place, ScanTable, Slice, SlicePage};
pub use tables::{
    CommitOutcome, CounterPut, CounterTable, Engine, FactPage, FactRead, FactTable, FactWrite, FusedLanding, IndexEntry,
    IndexTable, IndexTimeRow, JournalTable, Landing, LaneState, LedgerCommit, LedgerPage, LedgerRead, LedgerTable, MetaTable,
    RowChange, Seen, TargetCounters, TimeRow,
};

/// Most members in one ledger read or commit: 100 is ScyllaDB's `IN` limit, and the head is one of
/// them (design, section 6).
pub const MAX_COMMIT_MEMBERS: usize = 99;
