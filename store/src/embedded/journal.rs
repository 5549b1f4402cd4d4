//! Journal and lanes.

use std::ops::Bound;

use async_trait::async_trait;
use schema::{JournalEntry, LaneId, Micros, Slot, codec};

use super::{
    Embedded, cells, keys,
    rows::{Table, damaged},
    txn::Txn,
};
use crate::engine::{JournalTable, LaneState, StoreError, StoreResult};

const LANE_WEIGHT: usize = 128;
/// Entries removed in one job.
const DROP_CHUNK: usize = 2048;

/// Room that the decoder's limit sets aside for an intent before it reads it, rounded up, in bytes.
const INTENT_ROOM: usize = 96;

/// The entry's bytes. One that could not be read back would stop its lane for ever, so it is refused
/// here.
pub(super) fn encode(entry: &JournalEntry) -> StoreResult<Vec<u8>> {
    let bytes = codec::encode_journal(entry);
    if bytes.len() + entry.intents.len() * INTENT_ROOM > codec::MAX_ENTRY_BYTES {
        let n = entry.intents.len();
        return Err(StoreError::Refused(format!("a journal entry of {n} intents is too large; write fewer at once")));
    }
    Ok(bytes)
}

impl Embedded {
    /// Changes a known lane; an unknown one is left unknown, as it may have been forgotten.
    async fn change_lane<F>(&self, lane: LaneId, durable: bool, change: F) -> StoreResult<()>
    where
        F: FnOnce(&mut LaneState) + Send + 'static,
    {
        self.writer.call(durable, LANE_WEIGHT, move |txn: &mut Txn<'_>| txn.lane(lane, change).map(|_| ())).await
    }

    fn dropped_before(&self, lane: LaneId) -> Slot {
        self.dropped.lock().ok().and_then(|dropped| dropped.get(&lane).copied()).unwrap_or(Slot::MIN)
    }
}

#[async_trait]
impl JournalTable for Embedded {
    async fn append(&self, lane: LaneId, slot: Slot, entry: &JournalEntry) -> StoreResult<()> {
        let (key, value) = (keys::entry(lane, slot, entry.id), encode(entry)?);
        let work = |txn: &mut Txn<'_>| {
            txn.put(Table::Journal, key, value);
            Ok(())
        };
        self.writer.call(true, LANE_WEIGHT + entry.intents.len() * 96, work).await
    }

    async fn closed_through(&self, lane: LaneId) -> StoreResult<Option<Slot>> {
        self.rows.stop.check()?;
        let key = keys::lane(lane);
        let Some(bytes) = self.rows.get(Table::Small, &key)? else { return Ok(None) };
        let state = cells::decode_lane(lane, &bytes).ok_or_else(|| damaged(Table::Small, &key))?;
        Ok((!state.retired).then_some(state.closed_through))
    }

    async fn close(&self, lane: LaneId, slot: Slot) -> StoreResult<()> {
        self.change_lane(lane, true, move |state| state.closed_through = state.closed_through.max(slot)).await
    }

    async fn read_slot(
        &self,
        lane: LaneId,
        slot: Slot,
        after: Option<u64>,
        limit: usize,
    ) -> StoreResult<(Vec<JournalEntry>, bool)> {
        let view = self.rows.view()?;
        let prefix = keys::slot(lane, slot);
        let from = match after {
            Some(id) => Bound::Excluded(keys::entry(lane, slot, id)),
            None => Bound::Included(prefix.clone()),
        };
        let mut found = Vec::new();
        for row in view.range(Table::Journal, from, keys::behind(&prefix)) {
            if found.len() == limit.max(1) {
                return Ok((found, false));
            }
            let (key, value) = row?;
            // The reason is kept: an entry of a newer version stops its lane until this process is upgraded.
            let decoded = codec::decode_journal(&value);
            found.push(decoded.map_err(|e| StoreError::Damaged(format!("journal {}: {e}", key.escape_ascii())))?);
        }
        Ok((found, true))
    }

    async fn next_slot(&self, lane: LaneId, from: Slot, to: Slot) -> StoreResult<Option<Slot>> {
        let view = self.rows.view()?;
        let end = keys::behind(&keys::slot(lane, to));
        let first = view.range(Table::Journal, Bound::Included(keys::slot(lane, from)), end).next().transpose()?;
        let slot = first.map(|(key, _)| keys::parse_slot(&key).ok_or_else(|| damaged(Table::Journal, &key)));
        slot.transpose()
    }

    /// In chunks. Remembers how far it came, as walking over what was dropped is not free before
    /// that is compacted.
    async fn drop_slots(&self, lane: LaneId, before: Slot) -> StoreResult<()> {
        let mut from = self.dropped_before(lane);
        loop {
            let mut found = Vec::new();
            let (start, end) = (keys::slot(lane, from), keys::slot(lane, before));
            for row in self.rows.view()?.range(Table::Journal, Bound::Included(start), Bound::Excluded(end)).take(DROP_CHUNK) {
                found.push(row?.0);
            }
            let Some(last) = found.last().and_then(|key| keys::parse_slot(key)) else { break };
            let whole = found.len() < DROP_CHUNK;
            let work = move |txn: &mut Txn<'_>| {
                for key in found {
                    txn.delete(Table::Journal, key);
                }
                Ok(())
            };
            self.writer.call(false, DROP_CHUNK * 64, work).await?;
            if whole {
                break;
            }
            from = last;
        }
        if let Ok(mut dropped) = self.dropped.lock() {
            let known = dropped.entry(lane).or_insert(before);
            *known = before.max(*known);
        }
        Ok(())
    }

    async fn register_lane(&self, lane: LaneId, first: Slot, now: Micros) -> StoreResult<()> {
        let work = move |txn: &mut Txn<'_>| {
            // A repeated call must not open slots that were closed in between.
            if txn.lane(lane, |state| state.seen = state.seen.max(now))?.is_none() {
                let closed = first.saturating_sub(1);
                let state = LaneState { lane, first, closed_through: closed, swept_through: closed, retired: false, seen: now };
                txn.put(Table::Small, keys::lane(lane), cells::encode_lane(&state));
            }
            Ok(())
        };
        self.writer.call(true, LANE_WEIGHT, work).await
    }

    async fn lanes(&self) -> StoreResult<Vec<LaneState>> {
        let view = self.rows.view()?;
        let lane = |row: StoreResult<(fjall::UserKey, fjall::UserValue)>| {
            let (key, value) = row?;
            let state = keys::parse_lane(&key).and_then(|lane| cells::decode_lane(lane, &value));
            state.ok_or_else(|| damaged(Table::Small, &key))
        };
        view.prefix(Table::Small, keys::LANES).map(lane).collect()
    }

    async fn touch_lane(&self, lane: LaneId, now: Micros) -> StoreResult<()> {
        self.change_lane(lane, false, move |state| state.seen = state.seen.max(now)).await
    }

    async fn set_swept(&self, lane: LaneId, slot: Slot) -> StoreResult<()> {
        self.change_lane(lane, true, move |state| state.swept_through = state.swept_through.max(slot)).await
    }

    async fn retire_lane(&self, lane: LaneId) -> StoreResult<()> {
        self.change_lane(lane, true, |state| state.retired = true).await
    }

    async fn forget_lane(&self, lane: LaneId) -> StoreResult<()> {
        let work = move |txn: &mut Txn<'_>| match txn.lane(lane, |_| ())? {
            Some(state) if !state.retired => Err(StoreError::Refused(format!("lane {lane} is not retired"))),
            Some(_) => {
                txn.delete(Table::Small, keys::lane(lane));
                Ok(())
            }
            None => Ok(()),
        };
        self.writer.call(true, LANE_WEIGHT, work).await?;
        if let Ok(mut dropped) = self.dropped.lock() {
            dropped.remove(&lane);
        }
        Ok(())
    }
}
