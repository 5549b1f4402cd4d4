//! The plain tables.

use std::{cmp::Reverse, collections::BTreeSet, ops::Bound};

use async_trait::async_trait;
use schema::{
    Fact, IndexRow, JournalEntry, KindName, LaneId, Level, Member, Micros, RootHead, Shard, ShardKey, Slot, TargetKey, UserKey,
};

use super::{
    Memory, State,
    cells::{Cell, Key},
};
use crate::{
    StoreError, StoreResult,
    engine::{
        CounterPut, CounterTable, FactPage, FactRead, FactTable, FactWrite, FusedLanding, IndexEntry, IndexTable, IndexTimeRow,
        JournalTable, Landing, LaneState, MetaTable, TargetCounters,
    },
};

fn fact_of(cell: Option<Cell>) -> Option<Fact> {
    match cell {
        Some(Cell::Fact(fact)) => Some(fact),
        _ => None,
    }
}

fn root_of(cell: Option<Cell>) -> Option<RootHead> {
    match cell {
        Some(Cell::Root(head)) => Some(head),
        _ => None,
    }
}

fn index_of(cell: Option<Cell>) -> Option<IndexRow> {
    match cell {
        Some(Cell::Index(row)) => Some(row),
        _ => None,
    }
}

fn lane_of(cell: Option<Cell>) -> Option<LaneState> {
    match cell {
        Some(Cell::Lane(state)) => Some(state),
        _ => None,
    }
}

/// Both sections of one index row.
fn index_cells(user: &UserKey, kind: &KindName, target: &TargetKey, row: IndexRow) -> Vec<(Key, Cell)> {
    let mut cells = vec![(Key::Index(user.clone(), kind.clone(), target.clone()), Cell::Index(row))];
    if row.choice != 0 {
        cells.push((Key::IndexTime(user.clone(), kind.clone(), Reverse((row.since, target.clone()))), Cell::IndexTime));
    }
    cells
}

fn fact_cells(write: &FactWrite) -> Vec<(Key, Cell)> {
    let mut cells = vec![(Key::Fact(write.shard.clone(), write.member.clone()), Cell::Fact(write.fact))];
    if let Some(user) = write.index.as_ref().filter(|_| write.fact.choice.version > 0) {
        cells.extend(index_cells(user, &write.shard.kind, &write.shard.target, write.fact.choice.into()));
    }
    cells
}

#[async_trait]
impl FactTable for Memory {
    async fn read_facts(&self, shard: &ShardKey, members: &[Member]) -> StoreResult<FactRead> {
        self.step(|state| {
            let head = Key::Root(shard.clone());
            let keys: Vec<Key> =
                std::iter::once(head).chain(members.iter().map(|m| Key::Fact(shard.clone(), m.clone()))).collect();
            let mut cells = state.read(&keys).into_iter();
            let head = root_of(cells.next().flatten()).filter(|_| shard.shard.is_root());
            Ok(FactRead { head, facts: cells.map(fact_of).collect(), as_of: 0 })
        })
        .await
    }

    async fn read_facts_at_all(&self, shard: &ShardKey, members: &[Member]) -> StoreResult<FactRead> {
        self.step(|state| {
            let head = root_of(state.read_all(&Key::Root(shard.clone()))).filter(|_| shard.shard.is_root());
            let facts = members.iter().map(|m| fact_of(state.read_all(&Key::Fact(shard.clone(), m.clone())))).collect();
            Ok(FactRead { head, facts, as_of: 0 })
        })
        .await
    }

    async fn page_facts(&self, shard: &ShardKey, after: Option<&Member>, limit: usize) -> StoreResult<FactPage> {
        self.step(|state| {
            let head = root_of(state.read(&[Key::Root(shard.clone())]).pop().flatten()).filter(|_| shard.shard.is_root());
            let from = match after {
                Some(member) => Bound::Excluded(Key::Fact(shard.clone(), member.clone())),
                None => Bound::Included(Key::Fact(shard.clone(), first_member())),
            };
            let belongs = |key: &Key| matches!(key, Key::Fact(s, _) if s == shard);
            let mut rows = Vec::new();
            for (key, cell) in state.read_while(from, belongs, limit.max(1) + 1) {
                if let (Key::Fact(_, member), Some(fact)) = (key, fact_of(Some(cell))) {
                    rows.push((member, fact));
                }
            }
            let end = rows.len() <= limit.max(1);
            rows.truncate(limit.max(1));
            Ok(FactPage { head, rows, end })
        })
        .await
    }

    async fn write_facts(&self, writes: &[FactWrite]) -> Vec<StoreResult<()>> {
        self.step(|state| writes.iter().map(|w| state.write(fact_cells(w))).collect()).await
    }

    async fn raise_root_head(&self, root: &ShardKey, head: RootHead) -> StoreResult<()> {
        self.step(|state| state.write(vec![(Key::Root(root.clone()), Cell::Root(head))])).await
    }
}

/// The smallest kind: `-` comes before all other characters of a kind's name.
fn first_kind() -> KindName {
    KindName::parse("-").expect("a name")
}

/// The smallest id: control characters are not allowed, and it is a prefix of all that begin so.
fn first_member() -> Member {
    Member::parse(" ").expect("a space is an id")
}

#[async_trait]
impl CounterTable for Memory {
    async fn read_counters(&self, target: &TargetKey) -> StoreResult<TargetCounters> {
        self.step(|state| Ok(state.counters_of(target))).await
    }

    async fn put_counters(&self, puts: &[CounterPut]) -> Vec<StoreResult<()>> {
        let put = |state: &mut State, put: &CounterPut| {
            state.write(vec![(Key::Counter(put.shard.clone()), Cell::Counter(put.row.clone()))])
        };
        self.step(|state| puts.iter().map(|p| put(state, p)).collect()).await
    }

    async fn raise_shown(&self, root: &ShardKey, level: Level) -> StoreResult<()> {
        self.step(|state| state.write(vec![(Key::Shown(root.with_shard(Shard::ROOT)), Cell::Shown(level))])).await
    }

    async fn drop_counter(&self, shard: &ShardKey) -> StoreResult<()> {
        self.step(|state| {
            state.remove(|key| matches!(key, Key::Counter(s) if s == shard));
            Ok(())
        })
        .await
    }
}

impl State {
    pub(super) fn counters_of(&mut self, target: &TargetKey) -> TargetCounters {
        let of = |key: &Key| matches!(key, Key::Counter(s) | Key::Shown(s) if s.target == *target);
        let first = ShardKey { target: target.clone(), kind: first_kind(), shard: Shard(0) };
        let mut keys: BTreeSet<&Key> = BTreeSet::new();
        for replica in &self.replicas {
            for from in [Key::Counter(first.clone()), Key::Shown(first.clone())] {
                keys.extend(replica.range(from..).map(|(key, _)| key).take_while(|key| of(key)));
            }
        }
        let keys: Vec<Key> = keys.into_iter().cloned().collect();
        let mut out = TargetCounters::default();
        for (key, cell) in keys.iter().zip(self.read(&keys)) {
            match (key, cell) {
                (Key::Counter(s), Some(Cell::Counter(row))) => out.rows.push((s.kind.clone(), s.shard, row)),
                (Key::Shown(s), Some(Cell::Shown(level))) => out.shown.push((s.kind.clone(), level)),
                _ => {}
            }
        }
        out
    }
}

#[async_trait]
impl IndexTable for Memory {
    async fn read_index(&self, user: &UserKey, kind: &KindName, targets: &[TargetKey]) -> StoreResult<Vec<Option<IndexRow>>> {
        let keys: Vec<Key> = targets.iter().map(|t| Key::Index(user.clone(), kind.clone(), t.clone())).collect();
        self.step(|state| Ok(state.read(&keys).into_iter().map(index_of).collect())).await
    }

    async fn page_index_times(
        &self,
        user: &UserKey,
        kind: &KindName,
        after: Option<&(Micros, TargetKey)>,
        limit: usize,
    ) -> StoreResult<(Vec<IndexTimeRow>, bool)> {
        self.step(|state| {
            let belongs = |key: &Key| matches!(key, Key::IndexTime(u, k, _) if u == user && k == kind);
            let from = match after {
                Some(place) => Bound::Excluded(Key::IndexTime(user.clone(), kind.clone(), Reverse(place.clone()))),
                // The last target there can be, at the last time: before it in list order there is nothing.
                None => Bound::Included(Key::IndexTime(user.clone(), kind.clone(), Reverse((Micros::MAX, last_target())))),
            };
            let found = state.read_while(from, belongs, limit.max(1) + 1);
            let mut rows: Vec<IndexTimeRow> = found
                .into_iter()
                .filter_map(|(key, _)| match key {
                    Key::IndexTime(_, _, Reverse((at, target))) => Some(IndexTimeRow { at, target }),
                    _ => None,
                })
                .collect();
            let end = rows.len() <= limit.max(1);
            rows.truncate(limit.max(1));
            Ok((rows, end))
        })
        .await
    }

    async fn put_index(&self, entries: &[IndexEntry]) -> Vec<StoreResult<()>> {
        let put = |state: &mut State, e: &IndexEntry| state.write(index_cells(&e.user, &e.kind, &e.target, e.row));
        self.step(|state| entries.iter().map(|e| put(state, e)).collect()).await
    }

    async fn drop_index_time(&self, user: &UserKey, kind: &KindName, row: &IndexTimeRow) -> StoreResult<()> {
        let gone = Key::IndexTime(user.clone(), kind.clone(), Reverse((row.at, row.target.clone())));
        self.step(|state| {
            state.remove(|key| *key == gone);
            Ok(())
        })
        .await
    }

    async fn drop_index(&self, user: &UserKey, kind: &KindName, target: &TargetKey) -> StoreResult<()> {
        self.step(|state| {
            state.remove(|key| match key {
                Key::Index(u, k, t) | Key::IndexTime(u, k, Reverse((_, t))) => u == user && k == kind && t == target,
                _ => false,
            });
            Ok(())
        })
        .await
    }
}

/// A key behind every other: namespaces end at `z`.
pub(super) fn last_target() -> TargetKey {
    TargetKey::parse(&format!("{}/{}", "z".repeat(32), "\u{10FFFF}".repeat(32))).expect("32 and 128 bytes")
}

impl State {
    fn lane(&mut self, lane: LaneId) -> Option<LaneState> {
        lane_of(self.read(&[Key::Lane(lane)]).pop().flatten())
    }

    /// Raises fields of a lane that is known to anybody. Each field is a register of its own: the
    /// others are written as they were at first, so that one write never carries what another lost.
    fn change_lane(&mut self, lane: LaneId, change: impl FnOnce(&mut LaneState)) -> StoreResult<()> {
        let Some(known) = lane_of(self.joined(&Key::Lane(lane))) else { return Ok(()) };
        let mut raised = new_lane(lane, known.first, 0);
        change(&mut raised);
        self.write(vec![(Key::Lane(lane), Cell::Lane(raised))])
    }
}

fn new_lane(lane: LaneId, first: Slot, seen: Micros) -> LaneState {
    let closed = first.saturating_sub(1);
    LaneState { lane, first, closed_through: closed, swept_through: closed, retired: false, seen }
}

#[async_trait]
impl JournalTable for Memory {
    async fn append(&self, lane: LaneId, slot: Slot, entry: &JournalEntry) -> StoreResult<()> {
        self.step(|state| state.write(vec![(Key::Journal(lane, slot, entry.id), Cell::Journal(entry.clone()))])).await
    }

    async fn closed_through(&self, lane: LaneId) -> StoreResult<Option<Slot>> {
        self.step(|state| Ok(state.lane(lane).filter(|l| !l.retired).map(|l| l.closed_through))).await
    }

    async fn close(&self, lane: LaneId, slot: Slot) -> StoreResult<()> {
        self.step(|state| state.change_lane(lane, |l| l.closed_through = l.closed_through.max(slot))).await
    }

    async fn read_slot(
        &self,
        lane: LaneId,
        slot: Slot,
        after: Option<u64>,
        limit: usize,
    ) -> StoreResult<(Vec<JournalEntry>, bool)> {
        self.step(|state| {
            let belongs = |key: &Key| matches!(key, Key::Journal(l, s, _) if *l == lane && *s == slot);
            let from = match after {
                Some(id) => Bound::Excluded(Key::Journal(lane, slot, id)),
                None => Bound::Included(Key::Journal(lane, slot, 0)),
            };
            let found = state.read_while(from, belongs, limit.max(1) + 1);
            let mut entries: Vec<JournalEntry> = found
                .into_iter()
                .filter_map(|(_, cell)| match cell {
                    Cell::Journal(entry) => Some(entry),
                    _ => None,
                })
                .collect();
            let end = entries.len() <= limit.max(1);
            entries.truncate(limit.max(1));
            Ok((entries, end))
        })
        .await
    }

    async fn next_slot(&self, lane: LaneId, from: Slot, to: Slot) -> StoreResult<Option<Slot>> {
        self.step(|state| {
            let used = state.keys().into_iter().filter_map(|key| match key {
                Key::Journal(l, slot, _) if *l == lane && (from..=to).contains(slot) => Some(*slot),
                _ => None,
            });
            Ok(used.min())
        })
        .await
    }

    async fn drop_slots(&self, lane: LaneId, before: Slot) -> StoreResult<()> {
        self.step(|state| {
            state.remove(|key| matches!(key, Key::Journal(l, s, _) if *l == lane && *s < before));
            Ok(())
        })
        .await
    }

    async fn register_lane(&self, lane: LaneId, first: Slot, now: Micros) -> StoreResult<()> {
        let new = new_lane(lane, first, now);
        self.step(|state| match lane_of(state.joined(&Key::Lane(lane))) {
            Some(_) => state.change_lane(lane, |l| l.seen = l.seen.max(now)),
            None => state.write(vec![(Key::Lane(lane), Cell::Lane(new))]),
        })
        .await
    }

    async fn lanes(&self) -> StoreResult<Vec<LaneState>> {
        self.step(|state| {
            let found = state.read_while(Bound::Included(Key::Lane(LaneId(0))), |key| matches!(key, Key::Lane(_)), usize::MAX);
            Ok(found.into_iter().filter_map(|(_, cell)| lane_of(Some(cell))).collect())
        })
        .await
    }

    async fn touch_lane(&self, lane: LaneId, now: Micros) -> StoreResult<()> {
        self.step(|state| state.change_lane(lane, |l| l.seen = l.seen.max(now))).await
    }

    async fn set_swept(&self, lane: LaneId, slot: Slot) -> StoreResult<()> {
        self.step(|state| state.change_lane(lane, |l| l.swept_through = l.swept_through.max(slot))).await
    }

    async fn retire_lane(&self, lane: LaneId) -> StoreResult<()> {
        self.step(|state| state.change_lane(lane, |l| l.retired = true)).await
    }

    async fn forget_lane(&self, lane: LaneId) -> StoreResult<()> {
        self.step(|state| match lane_of(state.joined(&Key::Lane(lane))) {
            Some(known) if !known.retired => Err(StoreError::Refused(format!("lane {lane} is not retired"))),
            _ => {
                state.remove(|key| *key == Key::Lane(lane));
                Ok(())
            }
        })
        .await
    }
}

#[async_trait]
impl FusedLanding for Memory {
    async fn land(&self, lane: LaneId, slot: Slot, entry: JournalEntry, writes: Vec<FactWrite>) -> StoreResult<Landing> {
        self.step(|state| {
            let Some(known) = lane_of(state.joined(&Key::Lane(lane))).filter(|l| !l.retired) else {
                return Ok(Landing::LaneGone);
            };
            if slot <= known.closed_through {
                return Ok(Landing::SlotClosed(known.closed_through));
            }
            let mut cells = vec![(Key::Journal(lane, slot, entry.id), Cell::Journal(entry))];
            cells.extend(writes.iter().flat_map(fact_cells));
            state.write(cells).map(|()| Landing::Landed)
        })
        .await
    }
}

#[async_trait]
impl MetaTable for Memory {
    async fn get_meta(&self, key: &str) -> StoreResult<Option<Vec<u8>>> {
        self.step(|state| Ok(state.meta.get(key).cloned())).await
    }

    async fn put_meta(&self, key: &str, value: &[u8]) -> StoreResult<()> {
        self.step(|state| {
            state.meta.insert(key.to_owned(), value.to_owned());
            Ok(())
        })
        .await
    }

    async fn swap_meta(&self, key: &str, expected: Option<&[u8]>, new: &[u8]) -> StoreResult<bool> {
        self.step(|state| {
            let fits = state.meta.get(key).map(Vec::as_slice) == expected;
            if fits {
                state.meta.insert(key.to_owned(), new.to_owned());
            }
            Ok(fits)
        })
        .await
    }

    async fn drop_meta(&self, key: &str) -> StoreResult<()> {
        self.step(|state| {
            state.meta.remove(key);
            Ok(())
        })
        .await
    }

    async fn list_meta(&self, prefix: &str, limit: usize) -> StoreResult<Vec<(String, Vec<u8>)>> {
        self.step(|state| {
            let from = state.meta.range(prefix.to_owned()..);
            Ok(from.take_while(|(k, _)| k.starts_with(prefix)).take(limit).map(|(k, v)| (k.clone(), v.clone())).collect())
        })
        .await
    }
}
