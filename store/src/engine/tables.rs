//! The row-level traits, one for each table of the design's section 14.

use async_trait::async_trait;
use schema::{
    Choice, CounterRow, Fact, IndexRow, JournalEntry, KindName, LaneId, LedgerHead, LedgerRow, Level, Member, Micros, RootHead,
    Shard, ShardKey, Slot, TargetKey, UserKey,
};

use super::{LogTable, ScanTable, StatusTable, StoreResult};

/// Rows of one facts partition, read in one query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FactRead {
    /// Row '' (roots only).
    pub head: Option<RootHead>,
    /// One for each member asked for, in that order; `None` where there is no row.
    pub facts: Vec<Option<Fact>>,
    /// Which of the engine's commits the rows are as of, for [`Seen`]; 0 where it does not tell.
    pub as_of: u64,
}

/// A row as it was read before it is written: an engine that can tell that nobody has written it since
/// need not read it again to join with it. Never more than a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// What was read.
    pub fact: Option<Fact>,
    /// [`FactRead::as_of`] of that read.
    pub as_of: u64,
    /// No other shard of the target held the fact either, so it has no index rows.
    pub nowhere: bool,
}

/// Part of a facts partition, in byte order of the member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FactPage {
    /// Row '' (roots only), read in the same query as the rows and not after them.
    pub head: Option<RootHead>,
    /// Rows, ascending.
    pub rows: Vec<(Member, Fact)>,
    /// Whether the partition ends here.
    pub end: bool,
}

/// Registers to write; those with version 0 are left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactWrite {
    /// The partition.
    pub shard: ShardKey,
    /// The member.
    pub member: Member,
    /// The registers.
    pub fact: Fact,
    /// Whose index rows to write with the choice register (both sections; the time row where the
    /// choice is not 0); `None`: no index rows.
    pub index: Option<UserKey>,
    /// The row as the writer read it, if it did.
    pub seen: Option<Seen>,
}

/// `facts`: authoritative; plain; never deleted from.
#[async_trait]
pub trait FactTable: Send + Sync {
    /// Reads the head and the rows of at most [`super::MAX_COMMIT_MEMBERS`] members.
    async fn read_facts(&self, shard: &ShardKey, members: &[Member]) -> StoreResult<FactRead>;

    /// Reads up to `limit` rows behind `after` (from the beginning where `None`).
    async fn page_facts(&self, shard: &ShardKey, after: Option<&Member>, limit: usize) -> StoreResult<FactPage>;

    /// The same from *every* copy, joined: what is on a single replica is seen. An engine with one
    /// copy has no other to ask.
    async fn read_facts_at_all(&self, shard: &ShardKey, members: &[Member]) -> StoreResult<FactRead> {
        self.read_facts(shard, members).await
    }

    /// Joins each write into its row; one result for each, in order. `Ok` means durable, index
    /// rows included. Not atomic across writes.
    async fn write_facts(&self, writes: &[FactWrite]) -> Vec<StoreResult<()>>;

    /// Joins `head` into row '' of a root. Durable when `Ok`.
    async fn raise_root_head(&self, root: &ShardKey, head: RootHead) -> StoreResult<()>;
}

/// One row of a conditional commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// The member.
    pub member: Member,
    /// Registers that the row must hold for the commit to apply; `None`: there must be no row.
    pub expect: Option<Fact>,
    /// Registers that it holds afterwards.
    pub fact: Fact,
}

impl RowChange {
    /// Key of the time row that the old registers had.
    pub fn old_time(&self) -> Option<Micros> {
        self.expect.filter(|f| f.counted() != 0).map(|f| f.choice.since)
    }

    /// Key and choice of the time row that the new registers have.
    pub fn new_time(&self) -> Option<(Micros, Choice)> {
        (self.fact.counted() != 0).then(|| (self.fact.choice.since, self.fact.counted()))
    }
}

/// A conditional write to one leaf's ledger: all of it or nothing.
///
/// Applies if the head's revision is `expect_revision` (`None`: there is no head) and every row is
/// what its change expects. Then: the head is replaced, each row gets its registers and the head's
/// new revision, [`RowChange::old_time`] rows are deleted and [`RowChange::new_time`] rows written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerCommit {
    /// Revision that the head must have.
    pub expect_revision: Option<Micros>,
    /// The head afterwards; its revision is larger.
    pub head: LedgerHead,
    /// At most [`super::MAX_COMMIT_MEMBERS`] rows.
    pub rows: Vec<RowChange>,
    /// Time rows to delete besides (repair).
    pub drop_times: Vec<(Micros, Member)>,
    /// Time rows to write besides (repair).
    pub put_times: Vec<TimeRow>,
    /// Rows that are to vanish (repair of rows without a fact): the registers expected there.
    pub drop_rows: Vec<(Member, Fact)>,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// All of it is stored.
    Applied,
    /// Nothing is stored: head or rows were not as expected.
    Conflict,
}

/// Head and rows of a leaf's ledger, as a quorum read finds them: each row may be as of another
/// commit, so a commit must be conditional on each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerRead {
    /// The head, if there is one.
    pub head: Option<LedgerHead>,
    /// One for each member asked for, in order.
    pub rows: Vec<Option<LedgerRow>>,
}

/// Part of a leaf's ledger, in byte order of the member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerPage {
    /// The head as it was *before* the rows were read.
    pub head: Option<LedgerHead>,
    /// Rows, ascending.
    pub rows: Vec<(Member, LedgerRow)>,
    /// Whether the ledger ends here.
    pub end: bool,
}

/// A counted member in a leaf's list by time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeRow {
    /// The fact's `since`.
    pub at: Micros,
    /// Who.
    pub member: Member,
    /// Counted choice, never 0.
    pub choice: Choice,
}

/// `ledger`: derived; conditional commits only.
#[async_trait]
pub trait LedgerTable: Send + Sync {
    /// Head and rows of at most [`super::MAX_COMMIT_MEMBERS`] members in one query.
    async fn read_ledger(&self, leaf: &ShardKey, members: &[Member]) -> StoreResult<LedgerRead>;

    /// The head, then up to `limit` rows behind `after`, both *serial*: they see every commit that
    /// was decided before they began.
    async fn page_ledger(&self, leaf: &ShardKey, after: Option<&Member>, limit: usize) -> StoreResult<LedgerPage>;

    /// Time rows behind `after` in list order (later first, larger member id first at one time), at
    /// most `limit`; and whether the list ends here.
    async fn page_times(
        &self,
        leaf: &ShardKey,
        after: Option<&(Micros, Member)>,
        limit: usize,
    ) -> StoreResult<(Vec<TimeRow>, bool)>;

    /// Applies a commit or nothing. `Unknown` may have been applied or be applied later; the engine
    /// and its driver never repeat it themselves.
    async fn commit(&self, leaf: &ShardKey, commit: &LedgerCommit) -> StoreResult<CommitOutcome>;

    /// Removes head, rows and time rows of a leaf. For tests and for building a new generation.
    async fn drop_ledger(&self, leaf: &ShardKey) -> StoreResult<()>;
}

/// One counter row to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterPut {
    /// Which shard's.
    pub shard: ShardKey,
    /// The row; wins if its (order, blob) is larger than the stored one's.
    pub row: CounterRow,
}

/// All counter rows of one target, read in one query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetCounters {
    /// Counter rows by kind and shard.
    pub rows: Vec<(KindName, Shard, CounterRow)>,
    /// Kinds whose leaves are to be shown, and at which level.
    pub shown: Vec<(KindName, Level)>,
}

impl TargetCounters {
    /// The row of one shard.
    pub fn row(&self, kind: &KindName, shard: Shard) -> Option<&CounterRow> {
        self.rows.iter().find(|(k, s, _)| k == kind && *s == shard).map(|(_, _, row)| row)
    }

    /// The level that readers use for `kind`.
    pub fn shown(&self, kind: &KindName) -> Option<Level> {
        self.shown.iter().find(|(k, _)| k == kind).map(|&(_, level)| level)
    }
}

/// `counters`: derived; plain.
#[async_trait]
pub trait CounterTable: Send + Sync {
    /// Every counter row of a target, in one read.
    async fn read_counters(&self, target: &TargetKey) -> StoreResult<TargetCounters>;

    /// Writes counter rows, last-writer-wins by (order, blob). One result for each, in order.
    async fn put_counters(&self, puts: &[CounterPut]) -> Vec<StoreResult<()>>;

    /// Lets readers sum the leaves of `root`'s (target, kind); the larger level wins.
    async fn raise_shown(&self, root: &ShardKey, level: Level) -> StoreResult<()>;

    /// Removes a counter row. For tests, and for rows without any fact.
    async fn drop_counter(&self, shard: &ShardKey) -> StoreResult<()>;
}

/// One member's index rows (both sections).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Whose list.
    pub user: UserKey,
    /// Which kind.
    pub kind: KindName,
    /// What is liked; same namespace as the user.
    pub target: TargetKey,
    /// The choice register's copy.
    pub row: IndexRow,
}

/// A row of the per-user list by time. Valid only where section 1 has the same `since` and a choice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexTimeRow {
    /// `since` of the fact when the row was written.
    pub at: Micros,
    /// What was liked.
    pub target: TargetKey,
}

/// `by_user`: derived; plain.
#[async_trait]
pub trait IndexTable: Send + Sync {
    /// Section 1 rows of at most 200 targets, in order.
    async fn read_index(&self, user: &UserKey, kind: &KindName, targets: &[TargetKey]) -> StoreResult<Vec<Option<IndexRow>>>;

    /// Section 2 rows behind `after` in list order (later first, larger target first at one time),
    /// at most `limit`; and whether the list ends here. Left-over rows are among them.
    async fn page_index_times(
        &self,
        user: &UserKey,
        kind: &KindName,
        after: Option<&(Micros, TargetKey)>,
        limit: usize,
    ) -> StoreResult<(Vec<IndexTimeRow>, bool)>;

    /// Writes section 1 rows (last-writer-wins by version), and the time row that goes with what is
    /// stored afterwards, even where section 1 did not change: the time row may be what was lost.
    async fn put_index(&self, entries: &[IndexEntry]) -> Vec<StoreResult<()>>;

    /// Removes one section 2 row.
    async fn drop_index_time(&self, user: &UserKey, kind: &KindName, row: &IndexTimeRow) -> StoreResult<()>;

    /// Removes both sections of one (user, kind, target). For tests and for erasure.
    async fn drop_index(&self, user: &UserKey, kind: &KindName, target: &TargetKey) -> StoreResult<()>;
}

/// What is known of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneState {
    /// Which lane.
    pub lane: LaneId,
    /// First slot that the lane may have used.
    pub first: Slot,
    /// No entry may be added to this slot or an earlier one: those who find it closed journal again.
    pub closed_through: Slot,
    /// Every entry of this slot and earlier ones is counted.
    pub swept_through: Slot,
    /// The process is gone, all slots are closed and swept.
    pub retired: bool,
    /// Store time of the lane's last sign of life.
    pub seen: Micros,
}

/// `journal` and `lanes`.
#[async_trait]
pub trait JournalTable: Send + Sync {
    /// Adds an entry to a slot. Durable when `Ok`. Does *not* check that the slot is open: the
    /// caller reads [`Self::closed_through`] after it.
    async fn append(&self, lane: LaneId, slot: Slot, entry: &JournalEntry) -> StoreResult<()>;

    /// The lane's `closed_through`; `None`: the lane is retired or was never registered, so that a
    /// process must register a new one and journal again.
    async fn closed_through(&self, lane: LaneId) -> StoreResult<Option<Slot>>;

    /// Raises `closed_through`; never lowers it. Durable at a quorum when `Ok`.
    async fn close(&self, lane: LaneId, slot: Slot) -> StoreResult<()>;

    /// Entries of a slot with ids above `after`, ascending, at most `limit`, and whether it ends here.
    async fn read_slot(
        &self,
        lane: LaneId,
        slot: Slot,
        after: Option<u64>,
        limit: usize,
    ) -> StoreResult<(Vec<JournalEntry>, bool)>;

    /// The first slot in `from..=to` that may hold entries; `None`: there is none. An engine that
    /// cannot list slots answers `Some(from)`.
    async fn next_slot(&self, lane: LaneId, from: Slot, to: Slot) -> StoreResult<Option<Slot>>;

    /// Forgets slots before `slot` (swept, and past retention).
    async fn drop_slots(&self, lane: LaneId, before: Slot) -> StoreResult<()>;

    /// Adds a lane whose first slot is `first`: closed and swept through `first - 1`.
    async fn register_lane(&self, lane: LaneId, first: Slot, now: Micros) -> StoreResult<()>;

    /// All lanes that are not forgotten, retired ones included.
    async fn lanes(&self) -> StoreResult<Vec<LaneState>>;

    /// Renews `seen`.
    async fn touch_lane(&self, lane: LaneId, now: Micros) -> StoreResult<()>;

    /// Raises `swept_through`; everything written before this call survives with it.
    async fn set_swept(&self, lane: LaneId, slot: Slot) -> StoreResult<()>;

    /// Marks a lane whose process is gone, after it is closed and swept to the end.
    async fn retire_lane(&self, lane: LaneId) -> StoreResult<()>;

    /// Forgets a retired lane whose slots are gone.
    async fn forget_lane(&self, lane: LaneId) -> StoreResult<()>;
}

/// How a fused landing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// Journal entry, facts and index rows are durable.
    Landed,
    /// Nothing was written: the slot is closed through this one. Journal in a later slot.
    SlotClosed(Slot),
    /// Nothing was written: the lane is retired or unknown.
    LaneGone,
}

/// Engines with one writer can journal and land in one atomic step, which saves a round.
#[async_trait]
pub trait FusedLanding: Send + Sync {
    /// Checks that `slot` is open, then writes entry, facts and index rows atomically and durably.
    async fn land(&self, lane: LaneId, slot: Slot, entry: JournalEntry, writes: Vec<FactWrite>) -> StoreResult<Landing>;

    /// Commits as [`LedgerTable::commit`] does and, if it is applied, writes the leaf's counter row with it.
    /// `None`: this engine does not, and nothing was written.
    async fn commit_counted(
        &self,
        _leaf: &ShardKey,
        _commit: &LedgerCommit,
        _counter: &CounterRow,
    ) -> StoreResult<Option<CommitOutcome>> {
        Ok(None)
    }
}

/// Small operational rows: settings recorded at first start, progress of rebuilds.
#[async_trait]
pub trait MetaTable: Send + Sync {
    /// The value under `key`.
    async fn get_meta(&self, key: &str) -> StoreResult<Option<Vec<u8>>>;
    /// Replaces the value under `key`. Durable when `Ok`.
    async fn put_meta(&self, key: &str, value: &[u8]) -> StoreResult<()>;
    /// Replaces the value under `key` by `new` if it is `expected` (`None`: if there is none), and says
    /// whether it did; of several callers with one expectation at most one is told `true`. Durable
    /// when `Ok`. After [`StoreError::Unknown`](super::StoreError::Unknown) read again.
    async fn swap_meta(&self, key: &str, expected: Option<&[u8]>, new: &[u8]) -> StoreResult<bool>;
    /// Removes `key`.
    async fn drop_meta(&self, key: &str) -> StoreResult<()>;
    /// Keys that begin with `prefix`, with values, in byte order, the first `limit`.
    async fn list_meta(&self, prefix: &str, limit: usize) -> StoreResult<Vec<(String, Vec<u8>)>>;
}

/// Everything the protocol needs.
pub trait Engine:
    FactTable
    + LedgerTable
    + CounterTable
    + IndexTable
    + JournalTable
    + ScanTable
    + MetaTable
    + StatusTable
    + LogTable
    + Send
    + Sync
    + 'static
{
    /// The fused landing, where the engine has it.
    fn fused(&self) -> Option<&dyn FusedLanding>;
}
