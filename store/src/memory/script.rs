//! Faults at a given place, for directed schedules. What is scripted is used up in order; without a
//! script the probabilities decide.

use std::collections::{BTreeMap, VecDeque};

use schema::ShardKey;

use super::{Memory, cells::Table};

/// Which of the last commits a quorum read of a ledger sees: 0 is the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerView {
    /// The head is as of this many commits ago.
    pub head: usize,
    /// The rows are as of this many commits ago.
    pub rows: usize,
}

/// What becomes of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFate {
    /// It is compared and applied as usual, but the answer is lost.
    UnknownDone,
    /// It never arrives, and the answer is lost.
    UnknownLost,
}

/// Which replicas a cell reaches; the others never get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteFate {
    /// None, and the answer says that the store will never take it.
    Refused,
    /// None.
    Lost,
    /// Exactly this one.
    Only(usize),
    /// All but this one.
    AllBut(usize),
}

#[derive(Default)]
pub(super) struct Script {
    pub reads: BTreeMap<ShardKey, VecDeque<LedgerView>>,
    pub commits: BTreeMap<ShardKey, VecDeque<CommitFate>>,
    pub writes: BTreeMap<Table, VecDeque<WriteFate>>,
    pub quorums: VecDeque<[usize; 2]>,
}

impl Memory {
    /// The next quorum read of this leaf's ledger sees that.
    pub fn script_read(&self, leaf: &ShardKey, view: LedgerView) {
        self.lock().script.reads.entry(leaf.clone()).or_default().push_back(view);
    }

    /// The next commit to this leaf ends like that.
    pub fn script_commit(&self, leaf: &ShardKey, fate: CommitFate) {
        self.lock().script.commits.entry(leaf.clone()).or_default().push_back(fate);
    }

    /// The next cell that is written to this table goes there.
    pub fn script_write(&self, table: Table, fate: WriteFate) {
        self.lock().script.writes.entry(table).or_default().push_back(fate);
    }

    /// The next quorum read of a plain table asks these two replicas.
    pub fn script_quorum(&self, replicas: [usize; 2]) {
        self.lock().script.quorums.push_back(replicas);
    }

    /// Takes back what is scripted and not used up.
    pub fn clear_script(&self) {
        self.lock().script = Script::default();
    }
}
