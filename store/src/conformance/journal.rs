//! Properties of [`JournalTable`](crate::engine::JournalTable) and, where an engine has it, of
//! [`FusedLanding`](crate::engine::FusedLanding).

use schema::{FactKey, Intent, JournalEntry, LaneId, Reason, Register};

use super::{Subject, names::*};
use crate::engine::{FactWrite, Landing, LaneState};

fn entry(id: u64) -> JournalEntry {
    let key = |n: u64| FactKey { target: target("t"), kind: kind("like"), member: member(&format!("m{n}")) };
    let intent = |n, register| Intent { key: key(n), register, version: 5 + (n % 90) as i64, value: 1 };
    JournalEntry {
        id,
        intents: vec![intent(id, Register::Choice), intent(id + 1, Register::Hide(Reason::Fraud))],
        landed: if id.is_multiple_of(2) { vec![id] } else { vec![] },
    }
}

async fn state(engine: &Subject, lane: LaneId) -> Option<LaneState> {
    let mut found: Vec<_> = engine.lanes().await.expect("lanes").into_iter().filter(|s| s.lane == lane).collect();
    assert!(found.len() <= 1, "{found:?}");
    found.pop()
}

/// Registered, and registered again after a slot was closed.
pub async fn a_lane_starts_closed_and_swept_before_its_first_slot(engine: Subject) {
    let lane = lane();
    assert_eq!((engine.closed_through(lane).await, state(&engine, lane).await), (Ok(None), None));
    engine.register_lane(lane, 100, 1000).await.expect("register");
    let fresh = LaneState { lane, first: 100, closed_through: 99, swept_through: 99, retired: false, seen: 1000 };
    assert_eq!((engine.closed_through(lane).await, state(&engine, lane).await), (Ok(Some(99)), Some(fresh)));
    engine.close(lane, 105).await.expect("close");
    engine.register_lane(lane, 100, 1000).await.expect("register");
    assert_eq!(engine.closed_through(lane).await, Ok(Some(105)));
}

/// Each of the three, raised and then given something lower.
pub async fn watermarks_of_a_lane_only_rise(engine: Subject) {
    let lane = lane();
    engine.register_lane(lane, 10, 1000).await.expect("register");
    for n in [12, 11, 12, 9] {
        engine.close(lane, n).await.expect("close");
        assert_eq!(engine.closed_through(lane).await, Ok(Some(12)));
    }
    for n in [11, 10] {
        engine.set_swept(lane, n).await.expect("swept");
    }
    for now in [2000, 1500] {
        engine.touch_lane(lane, now).await.expect("touch");
    }
    let want = LaneState { lane, first: 10, closed_through: 12, swept_through: 11, retired: false, seen: 2000 };
    assert_eq!(state(&engine, lane).await, Some(want));
}

/// Retired, then forgotten.
pub async fn a_retired_lane_is_listed_but_not_open(engine: Subject) {
    let lane = lane();
    engine.register_lane(lane, 10, 1000).await.expect("register");
    for _ in 0..2 {
        engine.retire_lane(lane).await.expect("retire");
        assert_eq!(engine.closed_through(lane).await, Ok(None));
        assert!(state(&engine, lane).await.is_some_and(|s| s.retired));
    }
    for _ in 0..2 {
        engine.forget_lane(lane).await.expect("forget");
        assert_eq!((engine.closed_through(lane).await, state(&engine, lane).await), (Ok(None), None));
    }
}

/// A process that was paused until its lane was forgotten must not bring it back.
pub async fn an_unknown_lane_stays_unknown(engine: Subject) {
    let lane = lane();
    engine.touch_lane(lane, 1000).await.expect("touch");
    engine.close(lane, 5).await.expect("close");
    engine.set_swept(lane, 5).await.expect("swept");
    assert_eq!((engine.closed_through(lane).await, state(&engine, lane).await), (Ok(None), None));
}

/// Ids over the whole range, written in another order and twice; pages of each size; slots apart.
pub async fn journal_entries_are_read_in_order_of_id(engine: Subject) {
    let lane = lane();
    engine.register_lane(lane, 5, 1000).await.expect("register");
    let all: Vec<_> = [0, 1, 2, 255, 256, 1 << 40, i64::MAX as u64 - 1].map(entry).into();
    for e in all.iter().rev().chain(&all[..2]) {
        engine.append(lane, 7, e).await.expect("append");
    }
    engine.append(lane, 8, &entry(3)).await.expect("append");
    for size in [1, 2, 6, 7, 8] {
        let mut got: Vec<JournalEntry> = Vec::new();
        loop {
            let (rows, end) = engine.read_slot(lane, 7, got.last().map(|e| e.id), size).await.expect("read");
            assert!(rows.len() <= size && (end || !rows.is_empty()));
            got.extend(rows);
            if end {
                break;
            }
        }
        assert_eq!(got, all, "pages of {size}");
    }
    assert_eq!(engine.read_slot(lane, 6, None, 10).await, Ok((vec![], true)));
}

/// Never behind the first one that holds entries; exact or `from`.
pub async fn the_next_slot_is_at_or_before_the_first_that_holds_entries(engine: Subject) {
    let lane = lane();
    engine.register_lane(lane, 0, 1000).await.expect("register");
    for slot in [3, 300] {
        engine.append(lane, slot, &entry(1)).await.expect("append");
    }
    for (from, to, exact) in [(0, 1000, Some(3)), (3, 3, Some(3)), (4, 1000, Some(300)), (4, 299, None), (301, 1000, None)] {
        let next = engine.next_slot(lane, from, to).await.expect("next");
        assert!(next == exact || next == Some(from), "{from}..={to}: {next:?}");
    }
}

/// Many entries before the limit, one at it, and another lane's.
pub async fn dropped_slots_are_empty_and_later_ones_stay(engine: Subject) {
    let (one, other) = (lane(), lane());
    for lane in [one, other] {
        engine.register_lane(lane, 0, 1000).await.expect("register");
        for slot in [0, 1, 1, 2, 3] {
            engine.append(lane, slot, &entry(slot as u64)).await.expect("append");
        }
    }
    for before in [0, 2, 2, 3, 1] {
        engine.drop_slots(one, before).await.expect("drop");
        let dropped = if before == 1 { 3 } else { before };
        for slot in 0..=3 {
            let (rows, end) = engine.read_slot(one, slot, None, 10).await.expect("read");
            assert_eq!((rows.len(), end), (usize::from(slot >= dropped), true), "slot {slot} after {before}");
        }
    }
    let (rows, _) = engine.read_slot(other, 0, None, 10).await.expect("read");
    assert_eq!(rows.len(), 1);
}

struct Fused {
    lane: LaneId,
    shard: schema::ShardKey,
    user: schema::UserKey,
    entry: JournalEntry,
}

impl Fused {
    async fn new(engine: &Subject) -> Option<Self> {
        engine.fused()?;
        let made = Self { lane: lane(), shard: root("land"), user: user("land"), entry: entry(4) };
        engine.register_lane(made.lane, 10, 1000).await.expect("register");
        Some(made)
    }

    async fn land(&self, engine: &Subject, slot: i64, version: i64) -> Landing {
        let member = self.user.member();
        let write = FactWrite { index: Some(self.user.clone()), ..write(&self.shard, &member, chosen(version, 1, version)) };
        let fused = engine.fused().expect("checked when this was made");
        fused.land(self.lane, slot, self.entry.clone(), vec![write]).await.expect("land")
    }

    /// Version of the fact, version of the index row, entries in the slot.
    async fn found(&self, engine: &Subject, slot: i64) -> (Option<i64>, Option<i64>, usize) {
        let facts = engine.read_facts(&self.shard, &[self.user.member()]).await.expect("read").facts;
        let target = std::slice::from_ref(&self.shard.target);
        let index = engine.read_index(&self.user, &kind("like"), target).await.expect("read");
        let (entries, _) = engine.read_slot(self.lane, slot, None, 10).await.expect("read");
        assert!(entries.iter().all(|e| *e == self.entry));
        (facts[0].map(|f| f.choice.version), index[0].map(|r| r.version), entries.len())
    }
}

/// Once, repeated, and with an older version. An engine without it has nothing to show.
pub async fn a_fused_landing_writes_entry_facts_and_index(engine: Subject) {
    let Some(fused) = Fused::new(&engine).await else { return };
    for version in [5, 5, 3] {
        assert_eq!(fused.land(&engine, 10, version).await, Landing::Landed);
        assert_eq!(fused.found(&engine, 10).await, (Some(5), Some(5), 1));
    }
    let (times, _) = engine.page_index_times(&fused.user, &kind("like"), None, 10).await.expect("page");
    assert_eq!(times.first().map(|t| t.at), Some(5));
}

/// At and before the closed slot; the next is open.
pub async fn a_fused_landing_on_a_closed_slot_writes_nothing(engine: Subject) {
    let Some(fused) = Fused::new(&engine).await else { return };
    engine.close(fused.lane, 12).await.expect("close");
    for slot in [9, 11, 12] {
        assert_eq!(fused.land(&engine, slot, 5).await, Landing::SlotClosed(12));
        assert_eq!(fused.found(&engine, slot).await, (None, None, 0));
    }
    assert_eq!(fused.land(&engine, 13, 5).await, Landing::Landed);
    assert_eq!(fused.found(&engine, 13).await, (Some(5), Some(5), 1));
}

/// Retired, forgotten, and never registered.
pub async fn a_fused_landing_on_a_gone_lane_writes_nothing(engine: Subject) {
    let Some(mut fused) = Fused::new(&engine).await else { return };
    engine.retire_lane(fused.lane).await.expect("retire");
    assert_eq!((fused.land(&engine, 20, 5).await, fused.found(&engine, 20).await), (Landing::LaneGone, (None, None, 0)));
    engine.forget_lane(fused.lane).await.expect("forget");
    assert_eq!((fused.land(&engine, 20, 5).await, fused.found(&engine, 20).await), (Landing::LaneGone, (None, None, 0)));
    fused.lane = lane();
    assert_eq!((fused.land(&engine, 20, 5).await, fused.found(&engine, 20).await), (Landing::LaneGone, (None, None, 0)));
}
