//! What a run found.

use std::sync::atomic::{AtomicU64, Ordering};

use schema::Micros;
use serde::{Deserialize, Serialize};

/// Most drifted places that a report lists; all are counted.
pub const MAX_LISTED: usize = 1000;

/// In what way a projection differed from the facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A fact that nobody has counted.
    Uncounted,
    /// Something is counted that the facts do not hold.
    Overcounted,
    /// A ledger head's counts are not its counted rows.
    Count,
    /// A counter row is not what its shard was counted to be.
    Counter,
    /// A per-user index row is missing, wrong, or without a fact.
    Index,
    /// A leaf's list by time is not its counted rows.
    Listing,
    /// The ledger knows a newer state than the facts: a fact was lost.
    FactLost,
}

/// One place where a projection differed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// `namespace/id` of the target.
    pub target: String,
    /// The kind.
    pub kind: String,
    /// 1: the root; 16 and more: a leaf.
    pub shard: u16,
    /// The member concerned, where it is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub member: Option<String>,
    /// In what way it differed.
    pub cause: Cause,
    /// What the projection said.
    pub before: String,
    /// What the facts say.
    pub after: String,
    /// Whether a repair was made and a further look found nothing.
    pub repaired: bool,
}

/// The result of `verify` or `rebuild`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// `verify`, `rebuild` or `rebuild --dry-run`.
    pub what: String,
    /// Store time at the start, microseconds.
    pub started: Micros,
    /// Store time at the end, microseconds.
    pub finished: Micros,
    /// Slice at which a run that had been cut off was taken up again; 0: from the beginning.
    pub resumed_at_slice: u32,
    /// Partitions of facts that were checked.
    pub partitions: u64,
    /// (target, kind)s that were checked.
    pub targets: u64,
    /// Fact rows that were checked.
    pub facts: u64,
    /// Per-user index rows that were checked.
    pub index_rows: u64,
    /// Left-over rows in users' lists by time: skipped by readers, removed by a rebuild.
    pub left_over: u64,
    /// Leaves that kept changing, so that head and rows could not be compared at one moment
    /// (`rebuild` compares them all the same, by its audit cursor).
    pub busy_leaves: u64,
    /// Places where a projection differed.
    pub drifted: u64,
    /// Places that were repaired.
    pub repaired: u64,
    /// The first [`MAX_LISTED`] of them.
    pub drift: Vec<Drift>,
}

impl Report {
    /// Whether nothing differed.
    pub fn clean(&self) -> bool {
        self.drifted == 0
    }

    pub(crate) fn add(&mut self, drift: Drift) {
        self.drifted += 1;
        self.repaired += u64::from(drift.repaired);
        if self.drift.len() < MAX_LISTED {
            self.drift.push(drift);
        }
    }
}

/// How far a run has come; read by whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Slices finished.
    pub slices_done: AtomicU64,
    /// Slices in all; 0: not known yet.
    pub slices: AtomicU64,
    /// Facts checked so far.
    pub facts: AtomicU64,
    /// Drift found so far.
    pub drifted: AtomicU64,
}

impl Progress {
    pub(crate) fn publish(&self, report: &Report) {
        self.facts.store(report.facts, Ordering::Relaxed);
        self.drifted.store(report.drifted, Ordering::Relaxed);
    }
}
