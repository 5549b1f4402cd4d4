//! A lane: one ingest process's part of the journal.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use schema::{LaneId, Slot};

use super::Protocol;
use crate::StoreResult;

/// Gives a random 64-bit number; injected, so that tests own randomness.
pub type IdSource = Box<dyn Fn() -> u64 + Send + Sync>;

/// The lane of this process, and the next entry's number. When the sweep has retired it (the
/// process was taken for dead), a new one is registered.
pub struct Lane {
    id: Mutex<LaneId>,
    ids: IdSource,
    entries: AtomicU64,
}

impl Lane {
    /// The lane in use now.
    pub fn id(&self) -> LaneId {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_entry(&self) -> u64 {
        self.entries.fetch_add(1, Ordering::Relaxed)
    }
}

impl Protocol {
    /// Registers a new lane for this process.
    pub async fn open_lane(&self, ids: IdSource) -> StoreResult<Lane> {
        let id = LaneId(ids());
        self.register(id).await?;
        Ok(Lane { id: Mutex::new(id), ids, entries: AtomicU64::new(1) })
    }

    /// Replaces a lane that was retired. Two callers may both do so; the later one's lane is used.
    pub(super) async fn renew_lane(&self, lane: &Lane, retired: LaneId) -> StoreResult<()> {
        if lane.id() != retired {
            return Ok(());
        }
        let id = LaneId((lane.ids)());
        self.register(id).await?;
        *lane.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
        Ok(())
    }

    async fn register(&self, id: LaneId) -> StoreResult<()> {
        let now = self.clock.now();
        self.engine.register_lane(id, self.settings.slot_of(now), now).await
    }

    /// Tells the sweep that this process lives. Call it several times in
    /// [`super::Settings::lane_timeout`].
    pub async fn touch_lane(&self, lane: &Lane) -> StoreResult<()> {
        self.engine.touch_lane(lane.id(), self.clock.now()).await
    }

    /// The slot to journal in: the current one, or the first open one where that is closed.
    pub(super) fn open_slot(&self, closed_through: Option<Slot>) -> Slot {
        let now = self.settings.slot_of(self.clock.now());
        closed_through.map_or(now, |closed| now.max(closed.saturating_add(1)))
    }
}
