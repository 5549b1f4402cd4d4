//! An engine that notes what is asked of the one below it: which tables are written, how, how often;
//! and that may ask twice, or answer "not applied", as drivers and servers do.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use schema::{
    IndexRow, JournalEntry, KindName, LaneId, Level, Member, Micros, RootHead, ShardKey, Slot, StatusKey, StatusRow, TargetKey,
    UserKey,
};
use store::{
    Engine, StoreResult,
    engine::{
        CommitOutcome, CounterPut, CounterTable, FactPage, FactRead, FactRows, FactTable, FactWrite, FusedLanding, IndexEntry,
        IndexRows, IndexTable, IndexTimeRow, JournalTable, LaneState, LedgerCommit, LedgerPage, LedgerRead, LedgerRows,
        LedgerTable, LogEntry, LogTable, MetaTable, ScanTable, Slice, SlicePage, StatusTable, TargetCounters, TimeRow,
    },
};

/// How a statement treats its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// A read.
    Read,
    /// A write by its own version or order: may be repeated.
    Plain,
    /// A write that compares first.
    Conditional,
    /// A removal of rows.
    Removal,
}

/// The engine in front of another.
pub struct Spy {
    below: Arc<dyn Engine>,
    seen: Mutex<BTreeMap<(String, How), u64>>,
    /// Whether each write is sent twice.
    twice: AtomicBool,
    /// Commits that are answered "not applied", without being looked at.
    refuse: AtomicUsize,
}

impl Spy {
    /// Looks on, changes nothing.
    pub fn new(below: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self { below, seen: Mutex::default(), twice: AtomicBool::new(false), refuse: AtomicUsize::new(0) })
    }

    /// From now on each write is sent twice, as a driver that retries would.
    pub fn send_twice(&self) {
        self.twice.store(true, Ordering::SeqCst);
    }

    /// The next `n` commits are answered "not applied".
    pub fn refuse_commits(&self, n: usize) {
        self.refuse.store(n, Ordering::SeqCst);
    }

    /// How often which table (or row, of `meta`) was asked, in which way.
    pub fn seen(&self) -> BTreeMap<(String, How), u64> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often one table was asked in one way.
    pub fn count(&self, table: &str, how: How) -> u64 {
        self.seen().get(&(table.to_owned(), how)).copied().unwrap_or(0)
    }

    fn note(&self, table: impl Into<String>, how: How) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner).entry((table.into(), how)).or_default() += 1;
    }

    /// Notes a write; whether it is to be sent once more.
    fn written(&self, table: impl Into<String>, how: How) -> bool {
        self.note(table, how);
        self.twice.load(Ordering::SeqCst)
    }
}

/// `meta` holds rows of many sorts, so each is looked at by itself.
fn meta_row(key: &str) -> String {
    format!("meta {key}")
}

/// Notes a statement, sends a write twice where that is wanted, and hands the answer on.
macro_rules! hand_on {
    ($self:ident, $table:expr, Read, $call:expr) => {{
        $self.note($table, How::Read);
        $call.await
    }};
    ($self:ident, $table:expr, $how:ident, $call:expr) => {{
        if $self.written($table, How::$how) {
            // What became of the first is not looked at.
            drop($call.await);
        }
        $call.await
    }};
}

#[async_trait]
impl FactTable for Spy {
    async fn read_facts(&self, shard: &ShardKey, members: &[Member]) -> StoreResult<FactRead> {
        hand_on!(self, "facts", Read, self.below.read_facts(shard, members))
    }
    async fn read_facts_at_all(&self, shard: &ShardKey, members: &[Member]) -> StoreResult<FactRead> {
        hand_on!(self, "facts", Read, self.below.read_facts_at_all(shard, members))
    }
    async fn page_facts(&self, shard: &ShardKey, after: Option<&Member>, limit: usize) -> StoreResult<FactPage> {
        hand_on!(self, "facts", Read, self.below.page_facts(shard, after, limit))
    }
    async fn write_facts(&self, writes: &[FactWrite]) -> Vec<StoreResult<()>> {
        if writes.iter().any(|w| w.index.is_some()) {
            self.note("by_user", How::Plain);
        }
        hand_on!(self, "facts", Plain, self.below.write_facts(writes))
    }
    async fn raise_root_head(&self, root: &ShardKey, head: RootHead) -> StoreResult<()> {
        hand_on!(self, "facts", Plain, self.below.raise_root_head(root, head))
    }
}

#[async_trait]
impl LedgerTable for Spy {
    async fn read_ledger(&self, leaf: &ShardKey, members: &[Member]) -> StoreResult<LedgerRead> {
        hand_on!(self, "ledger", Read, self.below.read_ledger(leaf, members))
    }
    async fn page_ledger(&self, leaf: &ShardKey, after: Option<&Member>, limit: usize) -> StoreResult<LedgerPage> {
        hand_on!(self, "ledger", Read, self.below.page_ledger(leaf, after, limit))
    }
    async fn page_times(
        &self,
        leaf: &ShardKey,
        after: Option<&(Micros, Member)>,
        limit: usize,
    ) -> StoreResult<(Vec<TimeRow>, bool)> {
        hand_on!(self, "ledger", Read, self.below.page_times(leaf, after, limit))
    }
    async fn commit(&self, leaf: &ShardKey, commit: &LedgerCommit) -> StoreResult<CommitOutcome> {
        let refused = self.refuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        if refused {
            self.note("ledger", How::Conditional);
            return Ok(CommitOutcome::Conflict);
        }
        hand_on!(self, "ledger", Conditional, self.below.commit(leaf, commit))
    }
    async fn drop_ledger(&self, leaf: &ShardKey) -> StoreResult<()> {
        hand_on!(self, "ledger", Removal, self.below.drop_ledger(leaf))
    }
}

#[async_trait]
impl CounterTable for Spy {
    async fn read_counters(&self, target: &TargetKey) -> StoreResult<TargetCounters> {
        hand_on!(self, "counters", Read, self.below.read_counters(target))
    }
    async fn put_counters(&self, puts: &[CounterPut]) -> Vec<StoreResult<()>> {
        hand_on!(self, "counters", Plain, self.below.put_counters(puts))
    }
    async fn raise_shown(&self, root: &ShardKey, level: Level) -> StoreResult<()> {
        hand_on!(self, "counters", Plain, self.below.raise_shown(root, level))
    }
    async fn drop_counter(&self, shard: &ShardKey) -> StoreResult<()> {
        hand_on!(self, "counters", Removal, self.below.drop_counter(shard))
    }
}

#[async_trait]
impl IndexTable for Spy {
    async fn read_index(&self, user: &UserKey, kind: &KindName, targets: &[TargetKey]) -> StoreResult<Vec<Option<IndexRow>>> {
        hand_on!(self, "by_user", Read, self.below.read_index(user, kind, targets))
    }
    async fn page_index_times(
        &self,
        user: &UserKey,
        kind: &KindName,
        after: Option<&(Micros, TargetKey)>,
        limit: usize,
    ) -> StoreResult<(Vec<IndexTimeRow>, bool)> {
        hand_on!(self, "by_user", Read, self.below.page_index_times(user, kind, after, limit))
    }
    async fn put_index(&self, entries: &[IndexEntry]) -> Vec<StoreResult<()>> {
        hand_on!(self, "by_user", Plain, self.below.put_index(entries))
    }
    async fn drop_index_time(&self, user: &UserKey, kind: &KindName, row: &IndexTimeRow) -> StoreResult<()> {
        hand_on!(self, "by_user", Removal, self.below.drop_index_time(user, kind, row))
    }
    async fn drop_index(&self, user: &UserKey, kind: &KindName, target: &TargetKey) -> StoreResult<()> {
        hand_on!(self, "by_user", Removal, self.below.drop_index(user, kind, target))
    }
}

#[async_trait]
impl JournalTable for Spy {
    async fn append(&self, lane: LaneId, slot: Slot, entry: &JournalEntry) -> StoreResult<()> {
        hand_on!(self, "journal", Plain, self.below.append(lane, slot, entry))
    }
    async fn closed_through(&self, lane: LaneId) -> StoreResult<Option<Slot>> {
        hand_on!(self, "lanes", Read, self.below.closed_through(lane))
    }
    async fn close(&self, lane: LaneId, slot: Slot) -> StoreResult<()> {
        hand_on!(self, "lanes", Plain, self.below.close(lane, slot))
    }
    async fn read_slot(
        &self,
        lane: LaneId,
        slot: Slot,
        after: Option<u64>,
        limit: usize,
    ) -> StoreResult<(Vec<JournalEntry>, bool)> {
        hand_on!(self, "journal", Read, self.below.read_slot(lane, slot, after, limit))
    }
    async fn next_slot(&self, lane: LaneId, from: Slot, to: Slot) -> StoreResult<Option<Slot>> {
        hand_on!(self, "journal", Read, self.below.next_slot(lane, from, to))
    }
    async fn drop_slots(&self, lane: LaneId, before: Slot) -> StoreResult<()> {
        hand_on!(self, "journal", Removal, self.below.drop_slots(lane, before))
    }
    async fn register_lane(&self, lane: LaneId, first: Slot, now: Micros) -> StoreResult<()> {
        hand_on!(self, "lanes", Plain, self.below.register_lane(lane, first, now))
    }
    async fn lanes(&self) -> StoreResult<Vec<LaneState>> {
        hand_on!(self, "lanes", Read, self.below.lanes())
    }
    async fn touch_lane(&self, lane: LaneId, now: Micros) -> StoreResult<()> {
        hand_on!(self, "lanes", Plain, self.below.touch_lane(lane, now))
    }
    async fn set_swept(&self, lane: LaneId, slot: Slot) -> StoreResult<()> {
        hand_on!(self, "lanes", Plain, self.below.set_swept(lane, slot))
    }
    async fn retire_lane(&self, lane: LaneId) -> StoreResult<()> {
        hand_on!(self, "lanes", Plain, self.below.retire_lane(lane))
    }
    async fn forget_lane(&self, lane: LaneId) -> StoreResult<()> {
        hand_on!(self, "lanes", Removal, self.below.forget_lane(lane))
    }
}

#[async_trait]
impl ScanTable for Spy {
    async fn scan_facts(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<ShardKey>> {
        hand_on!(self, "facts", Read, self.below.scan_facts(slice, from, limit))
    }
    async fn scan_counters(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<TargetKey>> {
        hand_on!(self, "counters", Read, self.below.scan_counters(slice, from, limit))
    }
    async fn scan_ledgers(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<ShardKey>> {
        hand_on!(self, "ledger", Read, self.below.scan_ledgers(slice, from, limit))
    }
    async fn scan_index(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<(UserKey, KindName)>> {
        hand_on!(self, "by_user", Read, self.below.scan_index(slice, from, limit))
    }
    async fn fact_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<FactRows>> {
        hand_on!(self, "facts", Read, self.below.fact_rows(slice, from, limit))
    }
    async fn ledger_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<LedgerRows>> {
        hand_on!(self, "ledger", Read, self.below.ledger_rows(slice, from, limit))
    }
    async fn counter_rows(
        &self,
        slice: Slice,
        from: Option<&[u8]>,
        limit: usize,
    ) -> StoreResult<SlicePage<(TargetKey, TargetCounters)>> {
        hand_on!(self, "counters", Read, self.below.counter_rows(slice, from, limit))
    }
    async fn index_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<IndexRows>> {
        hand_on!(self, "by_user", Read, self.below.index_rows(slice, from, limit))
    }
    async fn page_index(
        &self,
        user: &UserKey,
        kind: &KindName,
        after: Option<&TargetKey>,
        limit: usize,
    ) -> StoreResult<(Vec<(TargetKey, IndexRow)>, bool)> {
        hand_on!(self, "by_user", Read, self.below.page_index(user, kind, after, limit))
    }
}

#[async_trait]
impl MetaTable for Spy {
    async fn get_meta(&self, key: &str) -> StoreResult<Option<Vec<u8>>> {
        hand_on!(self, meta_row(key), Read, self.below.get_meta(key))
    }
    async fn put_meta(&self, key: &str, value: &[u8]) -> StoreResult<()> {
        hand_on!(self, meta_row(key), Plain, self.below.put_meta(key, value))
    }
    async fn swap_meta(&self, key: &str, expected: Option<&[u8]>, new: &[u8]) -> StoreResult<bool> {
        // As with the ledger: nobody between the caller and the store repeats it.
        self.note(meta_row(key), How::Conditional);
        self.below.swap_meta(key, expected, new).await
    }
    async fn drop_meta(&self, key: &str) -> StoreResult<()> {
        hand_on!(self, meta_row(key), Removal, self.below.drop_meta(key))
    }
    async fn list_meta(&self, prefix: &str, limit: usize) -> StoreResult<Vec<(String, Vec<u8>)>> {
        hand_on!(self, meta_row(prefix), Read, self.below.list_meta(prefix, limit))
    }
}

#[async_trait]
impl StatusTable for Spy {
    async fn read_status(&self, keys: &[StatusKey]) -> StoreResult<Vec<Option<StatusRow>>> {
        hand_on!(self, "statuses", Read, self.below.read_status(keys))
    }
    async fn put_status(&self, key: &StatusKey, row: StatusRow) -> StoreResult<()> {
        hand_on!(self, "statuses", Plain, self.below.put_status(key, row))
    }
    async fn any_status(&self) -> StoreResult<bool> {
        hand_on!(self, "statuses", Read, self.below.any_status())
    }
}

#[async_trait]
impl LogTable for Spy {
    async fn append_log(&self, log: &str, at: Micros, id: u64, value: &[u8]) -> StoreResult<()> {
        hand_on!(self, "logs", Plain, self.below.append_log(log, at, id, value))
    }
    async fn page_log(
        &self,
        log: &str,
        newest_first: bool,
        after: Option<(Micros, u64)>,
        limit: usize,
    ) -> StoreResult<(Vec<LogEntry>, bool)> {
        hand_on!(self, "logs", Read, self.below.page_log(log, newest_first, after, limit))
    }
    async fn drop_log_entry(&self, log: &str, at: Micros, id: u64) -> StoreResult<()> {
        hand_on!(self, "logs", Removal, self.below.drop_log_entry(log, at, id))
    }
    async fn drop_log(&self, log: &str) -> StoreResult<()> {
        hand_on!(self, "logs", Removal, self.below.drop_log(log))
    }
}

impl Engine for Spy {
    /// Everything goes the way of engines with many writers, so that each statement is seen.
    fn fused(&self) -> Option<&dyn FusedLanding> {
        None
    }
}
