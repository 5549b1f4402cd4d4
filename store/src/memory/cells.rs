//! Cells of the plain tables, and how two copies of one are joined.

use std::cmp::Reverse;

use schema::{
    CounterRow, Fact, IndexRow, JournalEntry, KindName, LaneId, Level, Member, Micros, RootHead, ShardKey, Slot, StatusKey,
    StatusRow, TargetKey, UserKey, codec,
};

use crate::engine::LaneState;

/// The plain tables, for faults that are aimed at one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Facts of members.
    Fact,
    /// Heads of roots.
    Root,
    /// Counter rows.
    Counter,
    /// Shown levels.
    Shown,
    /// Index rows of both sections.
    Index,
    /// Journal entries.
    Journal,
    /// Lanes.
    Lane,
    /// Statuses of targets and users.
    Status,
}

/// Where a cell is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A member's fact.
    Fact(ShardKey, Member),
    /// Row '' of a root.
    Root(ShardKey),
    /// A shard's counter.
    Counter(ShardKey),
    /// The level that readers use.
    Shown(ShardKey),
    /// Section 1 of the index.
    Index(UserKey, KindName, TargetKey),
    /// Section 2, in list order.
    IndexTime(UserKey, KindName, Reverse<(Micros, TargetKey)>),
    /// A journal entry.
    Journal(LaneId, Slot, u64),
    /// A lane.
    Lane(LaneId),
    /// A status.
    Status(StatusKey),
}

impl Key {
    /// Which table the cell is of.
    pub fn table(&self) -> Table {
        match self {
            Self::Fact(..) => Table::Fact,
            Self::Root(_) => Table::Root,
            Self::Counter(_) => Table::Counter,
            Self::Shown(_) => Table::Shown,
            Self::Index(..) | Self::IndexTime(..) => Table::Index,
            Self::Journal(..) => Table::Journal,
            Self::Lane(_) => Table::Lane,
            Self::Status(_) => Table::Status,
        }
    }
}

/// What a cell holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// Registers.
    Fact(Fact),
    /// A root's head.
    Root(RootHead),
    /// A counter row.
    Counter(CounterRow),
    /// A shown level.
    Shown(Level),
    /// An index row.
    Index(IndexRow),
    /// A time row; its key says all.
    IndexTime,
    /// A journal entry.
    Journal(JournalEntry),
    /// A lane's state.
    Lane(LaneState),
    /// A status.
    Status(StatusRow),
}

impl Cell {
    /// Last writer wins, by what the cells say of themselves.
    pub fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fact(a), Self::Fact(b)) => Self::Fact(a.join(b)),
            (Self::Root(a), Self::Root(b)) => Self::Root(a.join(b)),
            (Self::Counter(a), Self::Counter(b)) => {
                let order = |row: &CounterRow| (row.order, codec::encode_counter(row));
                Self::Counter(if order(&b) > order(&a) { b } else { a })
            }
            (Self::Shown(a), Self::Shown(b)) => Self::Shown(a.max(b)),
            (Self::Status(a), Self::Status(b)) => Self::Status(a.join(b)),
            (Self::Index(a), Self::Index(b)) => Self::Index(a.join(b)),
            (Self::Lane(a), Self::Lane(b)) => Self::Lane(LaneState {
                lane: a.lane,
                first: a.first.min(b.first),
                closed_through: a.closed_through.max(b.closed_through),
                swept_through: a.swept_through.max(b.swept_through),
                retired: a.retired || b.retired,
                seen: a.seen.max(b.seen),
            }),
            (kept, _) => kept, // Written once and never changed.
        }
    }
}
