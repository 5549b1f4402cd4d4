//! Accepts likes and answers questions about them, in process ([`Ingest`]) and over HTTP ([`http`]).
//!
//! Never counts: it writes facts and says where something changed. An answer `applied`, `unchanged`
//! or `accepted` is never lost and never undone by an older request (invariant I3).

mod batcher;
mod cache;
pub mod http;
mod metrics;
mod settings;

use std::sync::Arc;

use prometheus::Registry;
use schema::{Fact, Micros, Shard, TargetKey};
use store::{
    Protocol, StoreResult,
    bus::EventSink,
    protocol::{Lane, Outcome, WriteRequest, Written},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use batcher::{Batcher, Job};
use cache::CountCache;
pub use cache::Counted;
use metrics::IngestMetrics;
pub use settings::IngestSettings;

/// There is no room for another request now; nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no capacity now: too many requests wait; try again later")]
pub struct NoCapacity;

/// The ingest role; cheap to clone.
#[derive(Clone)]
pub struct Ingest {
    protocol: Protocol,
    queue: mpsc::Sender<Job>,
    cache: CountCache,
    stop: CancellationToken,
    metrics: IngestMetrics,
    settings: IngestSettings,
}

impl Ingest {
    /// Starts the batcher and the lane's sign of life on the current tokio runtime. The handle ends
    /// after [`Self::stop`], once everything that was taken in is answered.
    pub fn start(protocol: Protocol, lane: Lane, sink: Arc<dyn EventSink>, settings: IngestSettings) -> (Self, JoinHandle<()>) {
        let metrics = IngestMetrics::default();
        let (queue, receiver) = mpsc::channel(settings.queue.max(1));
        let closing = CancellationToken::new();
        let ingest = Self {
            cache: CountCache::new(protocol.clone(), &settings, metrics.clone()),
            protocol: protocol.clone(),
            queue,
            stop: closing.clone(),
            metrics: metrics.clone(),
            settings: settings.clone(),
        };
        let lane = Arc::new(lane);
        let batcher = Batcher::new(protocol.clone(), lane.clone(), sink, settings.clone(), metrics);
        let handle = tokio::spawn(async move {
            let run = batcher.run(receiver, closing.clone());
            let touch = async {
                while !closing.is_cancelled() {
                    if let Err(error) = protocol.touch_lane(&lane).await {
                        tracing::warn!(%error, "the lane's sign of life could not be written");
                    }
                    tokio::select! {
                        () = tokio::time::sleep(settings.touch) => {}
                        () = closing.cancelled() => {}
                    }
                }
            };
            tokio::join!(run, touch);
        });
        (ingest, handle)
    }

    /// Takes no further requests; those taken in are answered.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Adds ingest's metrics to a registry.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        self.metrics.register(registry)
    }

    /// Writes one register. When the caller goes away the write goes on.
    pub async fn write(&self, request: WriteRequest) -> Result<Written, NoCapacity> {
        let (reply, answer) = oneshot::channel();
        if self.queue.try_send(Job { request, reply }).is_err() {
            self.metrics.no_capacity.inc();
            return Err(NoCapacity);
        }
        Ok(self.answer(answer).await)
    }

    /// Writes many; one answer for each, in order. Requests of one fact are done in their order.
    pub async fn write_many(&self, requests: Vec<WriteRequest>) -> Vec<Result<Written, NoCapacity>> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let (reply, answer) = oneshot::channel();
            // Waits for room: a whole body was admitted, so its second half is not refused.
            let sent = tokio::time::timeout(self.protocol.settings().deadline, self.queue.send(Job { request, reply })).await;
            answers.push(sent.is_ok_and(|s| s.is_ok()).then_some(answer));
        }
        let mut out = Vec::with_capacity(answers.len());
        for answer in answers {
            out.push(match answer {
                Some(answer) => Ok(self.answer(answer).await),
                None => {
                    self.metrics.no_capacity.inc();
                    Err(NoCapacity)
                }
            });
        }
        out
    }

    /// A request that was taken in may have been carried out, whatever became of its answer.
    async fn answer(&self, answer: oneshot::Receiver<Written>) -> Written {
        let lost = || Written {
            outcome: Outcome::Unknown("the answer was lost".into()),
            version: 0,
            fact: Fact::default(),
            shard: Shard::ROOT,
        };
        let written = answer.await.unwrap_or_else(|_| lost());
        self.metrics.outcomes.with_label_values(&[http::outcome_word(&written.outcome)]).inc();
        written
    }

    /// Counts of every configured kind of a target, at most about a second old.
    pub async fn counts(&self, target: &TargetKey) -> StoreResult<Arc<Counted>> {
        self.cache.get(target).await
    }

    /// Every change answered before this store time is counted.
    pub async fn complete_until(&self) -> StoreResult<Micros> {
        self.cache.complete_until().await
    }

    /// The target was counted just now: what is in memory is not used again.
    pub fn forget(&self, target: &TargetKey) {
        self.cache.forget(target);
    }

    /// The protocol below.
    pub fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// The settings.
    pub fn settings(&self) -> &IngestSettings {
        &self.settings
    }
}
