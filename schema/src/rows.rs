//! Rows of the derived tables, and the root's head.

use crate::{Choice, ChoiceRegister, Counts, Fact, Level, Member, Micros};

/// Row '' of a root partition of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RootHead {
    /// 0: small. Set once, never lowered.
    pub level: Level,
    /// When the level was set.
    pub level_at: Micros,
    /// Raised to let a repaired counter row of a small target win over a wrong one.
    pub epoch: Micros,
}

impl RootHead {
    /// Field by field the larger; the time goes with the level.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let (level, level_at) = (self.level, self.level_at).max((other.level, other.level_at));
        Self { level, level_at, epoch: self.epoch.max(other.epoch) }
    }

    /// The level, once there is one.
    pub fn level(&self) -> Option<Level> {
        (self.level > 0).then_some(self.level)
    }
}

/// The readable copy of one shard's counts. Last writer wins by (`order`, encoded blob); the blob
/// starts with `rank`, big-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterRow {
    /// A small target: the newest version in its page or its epoch; a leaf: the head's revision.
    /// It is the row's write timestamp, so it may not be negative.
    pub order: Micros,
    /// Breaks ties of `order`: sum of the ranks of a small target's facts; 0 for a leaf.
    pub rank: u128,
    /// Members counted, by choice.
    pub counts: Counts,
    /// Newest version of the facts that were counted; 0: none.
    pub as_of: Micros,
}

/// Progress of a recount beside traffic (design, section 8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Members up to and including this one are in `sum`; `None`: nothing yet.
    pub pos: Option<Member>,
    /// What is counted among them, kept up to date by every commit.
    pub sum: Counts,
}

/// Head row of a leaf's ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerHead {
    /// Fences commits; strictly grows with each; comes from data, never from a clock.
    pub revision: Micros,
    /// Members counted in this leaf, by choice: I1 says that they are its counted rows.
    pub counts: Counts,
    /// Whether the ledger was built from all facts of the leaf; only then is its counter written.
    pub complete: bool,
    /// Newest version of the facts that were counted; 0: none.
    pub as_of: Micros,
    /// A recount under way.
    pub audit: Option<Audit>,
}

/// A fact as the ledger has counted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerRow {
    /// The registers that were counted.
    pub fact: Fact,
    /// Revision of the commit that wrote this row last; 0: no row.
    pub revision: Micros,
}

/// Row of the per-user index: a copy of the fact's choice register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexRow {
    /// Version of the member's choice.
    pub version: Micros,
    /// The choice; 0: withdrawn.
    pub choice: Choice,
    /// When it last changed; the row's place in the list.
    pub since: Micros,
}

impl From<ChoiceRegister> for IndexRow {
    fn from(r: ChoiceRegister) -> Self {
        Self { version: r.version, choice: r.choice, since: r.since }
    }
}

impl IndexRow {
    /// The newer of two copies, by the rule of the choice register.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let register = |r: Self| ChoiceRegister { version: r.version, choice: r.choice, since: r.since };
        register(self).join(register(other)).into()
    }
}
