//! What is about to be written (journal), and where to look (change events).

use crate::{FactKey, Member, Micros, Register, ShardKey, TraceId};

/// One ingest process, for its lifetime. Random, so that a restarted process is a new lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u64);

impl std::fmt::Display for LaneId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Number of a stretch of store time: `store time / slot length`.
pub type Slot = i64;

/// A register that is about to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Which fact.
    pub key: FactKey,
    /// Which of its registers.
    pub register: Register,
    /// The version that it gets.
    pub version: Micros,
    /// The choice, or 1/0 for hidden or not.
    pub value: u8,
}

/// One row of a journal slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalEntry {
    /// Unique in its (lane, slot).
    pub id: u64,
    /// What is about to be written; empty for a completion row.
    pub intents: Vec<Intent>,
    /// Entries of this slot (this one included) whose facts and index rows are known to have
    /// landed whole, so that the sweep need not write index rows again.
    pub landed: Vec<u64>,
}

/// A notice that members of a shard changed. It carries no truth, only where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEvent {
    /// Where.
    pub shard: ShardKey,
    /// Who; at least one.
    pub members: Vec<Member>,
    /// When the change was answered, for the freshness figure; no decision rests on it.
    pub at: Micros,
    /// Traces that are followed to the commit, at most [`crate::MAX_TRACES`]; in memory only.
    pub traces: Vec<TraceId>,
}
