//! Counts in memory for about a second: one load in flight for each target, forgotten as soon as
//! this process counts the target again, and the last known value where the store is away.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::future::Cache;
use schema::{KindName, Micros, Status, StatusKey, TargetKey};
use store::{Protocol, StoreError, StoreResult, protocol::KindCount};

use crate::{metrics::IngestMetrics, settings::IngestSettings};

/// Counts of every configured kind of one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// By kind, in the order of the configuration.
    pub kinds: Vec<(KindName, KindCount)>,
    /// Every change answered before this store time is in them: the watermark from *before* they
    /// were read, since a later one may cover changes that this reading missed.
    pub complete_until: Micros,
    /// Whether an operator has said that the target is gone: then nobody is shown the counts.
    pub gone: bool,
    /// Store time when they were read.
    pub read_at: Micros,
    /// Whether they are older than usual, because the store does not answer.
    pub stale: bool,
}

/// Stripes of the "something was counted" marks, 512 KiB in all: so many that at some ten thousand
/// counted targets a second most others keep their value for its second.
const STRIPES: usize = 65_536;
/// How long `complete_until` is answered from memory.
const WATERMARK_TTL: Duration = Duration::from_millis(200);

/// The cache.
#[derive(Clone)]
pub(crate) struct CountCache {
    protocol: Protocol,
    fresh: Cache<TargetKey, (u64, Arc<Counted>)>,
    last: Cache<TargetKey, Arc<Counted>>,
    watermark: Cache<(), Micros>,
    /// Raised by [`Self::forget`]: a value that was read before its stripe moved is not used.
    marks: Arc<Vec<AtomicU64>>,
    hasher: RandomState,
    metrics: IngestMetrics,
}

impl CountCache {
    pub fn new(protocol: Protocol, settings: &IngestSettings, metrics: IngestMetrics) -> Self {
        Self {
            protocol,
            fresh: Cache::builder().max_capacity(settings.cache_targets).time_to_live(settings.cache_ttl).build(),
            last: Cache::builder().max_capacity(settings.cache_targets).build(),
            watermark: Cache::builder().max_capacity(1).time_to_live(WATERMARK_TTL).build(),
            marks: Arc::new((0..STRIPES).map(|_| AtomicU64::new(0)).collect()),
            hasher: RandomState::new(),
            metrics,
        }
    }

    /// Counts of every configured kind.
    pub async fn get(&self, target: &TargetKey) -> StoreResult<Arc<Counted>> {
        let mark = self.mark(target).load(Ordering::Acquire);
        if let Some((read_under, counted)) = self.fresh.get(target).await {
            if read_under == mark {
                self.metrics.cache_hits.inc();
                return Ok(counted);
            }
            self.fresh.invalidate(target).await;
        }
        let loaded = self.fresh.try_get_with_by_ref(target, self.load(target)).await;
        match loaded {
            Ok((_, counted)) => {
                if !counted.stale {
                    self.last.insert(target.clone(), counted.clone()).await;
                }
                Ok(counted)
            }
            Err(error) => match self.last.get(target).await {
                Some(last) => {
                    self.metrics.stale_answers.inc();
                    Ok(Arc::new(Counted { stale: true, ..Counted::clone(&last) }))
                }
                None => Err(StoreError::clone(&error)),
            },
        }
    }

    async fn load(&self, target: &TargetKey) -> StoreResult<(u64, Arc<Counted>)> {
        self.metrics.cache_loads.inc();
        // The mark first: what is counted while this reads makes the value one that is not used again.
        let mark = self.mark(target).load(Ordering::Acquire);
        let names: Vec<KindName> = self.protocol.settings().kinds.iter().map(|k| k.name.clone()).collect();
        let complete_until = self.complete_until().await?;
        let read_at = self.protocol.clock().now();
        let gone = self.protocol.engine().any_status().await? && {
            let status = self.protocol.status_row(&StatusKey::Target(target.clone())).await?;
            status.is_some_and(|row| row.status == Status::Gone)
        };
        let counts = if gone { Vec::new() } else { self.protocol.counts(target, &names).await? };
        let stale = counts.iter().any(|c| c.counts.is_none());
        Ok((mark, Arc::new(Counted { kinds: names.into_iter().zip(counts).collect(), complete_until, gone, read_at, stale })))
    }

    /// The target was counted just now.
    pub fn forget(&self, target: &TargetKey) {
        self.mark(target).fetch_add(1, Ordering::Release);
    }

    /// The sweep's watermark, read at most every 200 ms.
    pub async fn complete_until(&self) -> StoreResult<Micros> {
        self.watermark.try_get_with((), self.protocol.complete_until()).await.map_err(|e| StoreError::clone(&e))
    }

    fn mark(&self, target: &TargetKey) -> &AtomicU64 {
        let stripe = self.hasher.hash_one(target) % STRIPES as u64;
        &self.marks[usize::try_from(stripe).expect("below STRIPES")]
    }
}
