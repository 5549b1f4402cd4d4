//! Store, protocol and lane of one process: opened, checked, and taken over from the last process.

use std::{path::PathBuf, sync::Arc};

use schema::{LaneId, Micros};
use store::{
    Engine, Protocol, Settings,
    clock::{Clock, SystemClock},
    embedded::{Embedded, EmbeddedSettings},
    engine::JournalTable,
};

use super::record::Recorded;
use crate::{config::Config, failure::Failure};

/// An opened data directory with the protocol above it.
pub struct Node {
    /// The engine.
    pub engine: Arc<Embedded>,
    /// The protocol.
    pub protocol: Protocol,
    /// Lanes of earlier processes: none of those can live, since the directory was not locked.
    pub left: Vec<LaneId>,
}

/// What an opened store may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Serving: the configuration must fit what is recorded, and is recorded.
    Serve,
    /// Checking: what is recorded counts, whatever is configured; the directory must exist.
    Check,
}

impl Node {
    /// Opens `config.data`. Blocks in a thread of its own while journals are replayed.
    pub async fn open(config: &Config, opening: Opening) -> Result<Self, Failure> {
        let engine = open_engine(config, opening).await?;
        let configured = Recorded::of(config);
        let stored = Recorded::load(&*engine).await?;
        if let Some(Err(why)) = stored.as_ref().map(Recorded::readable) {
            return Err(Failure::unreachable(format!("cannot use {}: {why}", config.data.display())));
        }
        let mut settings = settings(config);
        match (&stored, opening) {
            (None, Opening::Serve) => {}
            (None, Opening::Check) => {
                return Err(Failure::unreachable(format!(
                    "{} holds no data yet; start `tally serve` on it",
                    config.data.display()
                )));
            }
            (Some(stored), Opening::Serve) => configured.may_follow(stored).map_err(|why| {
                Failure::usage(format!("the configuration does not fit the data in {}: {why}", config.data.display()))
            })?,
            (Some(stored), Opening::Check) => {
                settings.kinds = Arc::new(stored.kinds()?);
                (settings.small_limit, settings.level, settings.slot) = (stored.small_limit, stored.level, stored.slot());
            }
        }
        let failed = |e: store::StoreError| Failure::unreachable(e.to_string());
        let lanes = engine.lanes().await.map_err(failed)?;
        // Lanes are numbered by the slot length of their time.
        let before = Settings { slot: stored.as_ref().map_or(config.slot, Recorded::slot), ..settings.clone() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::starting_at(floor(&lanes, &before)));
        let dynamic: Arc<dyn Engine> = engine.clone();
        let mut left: Vec<LaneId> = lanes.iter().filter(|l| !l.retired).map(|l| l.lane).collect();
        if before.slot != settings.slot && !left.is_empty() {
            tracing::info!("the slot length has changed; counting what the old journal holds first");
            let old = Protocol::new(dynamic.clone(), clock.clone(), before);
            for lane in left.drain(..) {
                old.retire(lane).await.map_err(failed)?;
            }
        }
        if opening == Opening::Serve && stored.as_ref() != Some(&configured) {
            configured.save(&*engine).await.map_err(failed)?;
        }
        Ok(Self { engine, protocol: Protocol::new(dynamic, clock, settings), left })
    }

    /// Counts all that earlier processes journalled, and retires their lanes.
    pub async fn take_over(&self) -> store::StoreResult<()> {
        take_over(&self.protocol, &self.left).await
    }
}

/// Counts all that `lanes` hold and retires them; may be repeated.
pub async fn take_over(protocol: &Protocol, lanes: &[LaneId]) -> store::StoreResult<()> {
    for &lane in lanes {
        let report = protocol.retire(lane).await?;
        tracing::info!(%lane, intents = report.intents, rewritten = report.rewritten, "the journal of an earlier process is counted");
    }
    Ok(())
}

async fn open_engine(config: &Config, opening: Opening) -> Result<Arc<Embedded>, Failure> {
    let path: PathBuf = config.data.clone();
    if opening == Opening::Check && !path.is_dir() {
        return Err(Failure::unreachable(format!("there is no data directory {}", path.display())));
    }
    let settings = EmbeddedSettings {
        cache_bytes: config.store_cache.0,
        queue_bytes: usize::try_from(config.store_queue.0).unwrap_or(usize::MAX),
        replay_bytes: config.store_replay.0,
        ..EmbeddedSettings::default()
    };
    let opened = tokio::task::spawn_blocking(move || Embedded::open(path, &settings)).await;
    let opened = opened.expect("a panic has ended the process before");
    Ok(Arc::new(opened.map_err(|e| Failure::unreachable(e.to_string()))?))
}

/// The protocol's settings.
pub fn settings(config: &Config) -> Settings {
    Settings {
        kinds: Arc::new(config.kinds.clone()),
        small_limit: config.small_limit,
        level: config.level,
        slot: config.slot,
        sweep_delay: config.sweep_delay,
        deadline: config.write_timeout,
        journal_retention: config.journal_retention,
        parallel: config.aggregator_parallel,
        ..Settings::default()
    }
}

/// Latest store time that an earlier process is known to have used: versions must not fall behind.
fn floor(lanes: &[store::engine::LaneState], settings: &Settings) -> Micros {
    let known = lanes.iter().flat_map(|lane| {
        let begun = settings.slot_end(lane.first.saturating_sub(1));
        // A lane that is closed to its end says nothing of time.
        let closed = (lane.closed_through < Micros::MAX).then(|| settings.slot_end(lane.closed_through));
        [Some(lane.seen), Some(begun), closed].into_iter().flatten()
    });
    known.fold(0, Micros::max)
}
