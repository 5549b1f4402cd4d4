//! Forgetting runs that ended long ago, with the logs that only an undo of them reads.
//!
//! Never forgotten: a run that waits or is under way, one that such a run undoes, and the run of a
//! suspension that is in force, since activating takes back exactly what it hid.

use std::time::Duration;

use schema::Micros;
use store::StoreResult;

use crate::{
    Operator, Refused,
    record::{INDEX, Run, What, record_key},
};

/// Runs that one step looks at.
const STEP: usize = 100;
/// Pause between two steps of one pass, and between two passes.
const STEP_PAUSE: Duration = Duration::from_millis(100);
const PASS_PAUSE: Duration = Duration::from_secs(600);
/// The largest id of a run that was forgotten.
const FORGOTTEN: &str = "hide-runs-forgotten";

impl Operator {
    /// Forgets runs as they get old; does not end. Dropping it is safe at any moment.
    pub async fn retain(&self) {
        loop {
            match self.forget_old().await {
                Ok(0) => {}
                Ok(runs) => tracing::info!(runs, "hide runs that ended long ago are forgotten"),
                Err(error) => tracing::warn!(%error, "old hide runs stay stored for now"),
            }
            self.0.protocol.clock().sleep(PASS_PAUSE).await;
        }
    }

    /// One pass: forgets every run that ended longer ago than the retention; how many. It goes in
    /// steps with pauses between, and may be cut off anywhere: the next pass goes on.
    pub async fn forget_old(&self) -> StoreResult<u64> {
        let kept = Micros::try_from(self.0.settings.retention.as_micros()).unwrap_or(Micros::MAX);
        if kept == 0 {
            return Ok(0);
        }
        let (mut forgotten, mut place) = (0, None);
        loop {
            let oldest_kept = self.0.protocol.clock().now().saturating_sub(kept);
            let (found, end) = self.0.protocol.engine().page_log(INDEX, false, place, STEP).await?;
            for entry in &found {
                // Ordered later, so ended later: nothing behind it is old enough either.
                if entry.at >= oldest_kept {
                    return Ok(forgotten);
                }
                forgotten += u64::from(self.forget(entry.at, oldest_kept).await?);
            }
            place = found.last().map(|entry| (entry.at, entry.id));
            if end {
                return Ok(forgotten);
            }
            self.0.protocol.clock().sleep(STEP_PAUSE).await;
        }
    }

    /// Forgets one run, if it may be forgotten. The index entry goes last: without it nothing would
    /// find the rest.
    async fn forget(&self, at: Micros, oldest_kept: Micros) -> StoreResult<bool> {
        // Nobody may order an undo, or activate a user, between the look and the removal.
        let _turn = self.0.ordering.lock().await;
        let id = at.cast_unsigned();
        if self.live().contains_key(&id) || self.is_read(id) {
            return Ok(false);
        }
        let run = self.load(id).await?;
        if let Some(run) = &run
            && (run.ended.is_none_or(|ended| ended >= oldest_kept) || self.is_suspension(run).await?)
        {
            return Ok(false);
        }
        let engine = self.0.protocol.engine();
        if run.is_some() && self.forgotten().await? < id {
            engine.put_meta(FORGOTTEN, id.to_string().as_bytes()).await?;
        }
        engine.drop_log(&Run::chunks_log(id)).await?;
        engine.drop_log(&Run::members_log_of(id)).await?;
        engine.drop_meta(&record_key(id)).await?;
        engine.drop_log_entry(INDEX, at, 0).await?;
        Ok(run.is_some())
    }

    /// Whether a run that has not ended undoes run `id`, and reads its chunks for that.
    fn is_read(&self, id: u64) -> bool {
        self.live().values().any(|live| matches!(live.what, What::Undo { run, .. } if run == id))
    }

    /// Why there is no run `id`.
    pub(crate) async fn missing(&self, id: u64) -> StoreResult<Refused> {
        let kept = self.0.settings.retention;
        Ok(if id <= self.forgotten().await? { Refused::Forgotten { id, kept } } else { Refused::NoRun(id) })
    }

    async fn forgotten(&self) -> StoreResult<u64> {
        let stored = self.0.protocol.engine().get_meta(FORGOTTEN).await?;
        Ok(stored.and_then(|bytes| std::str::from_utf8(&bytes).ok()?.parse().ok()).unwrap_or(0))
    }
}
