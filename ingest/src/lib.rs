//! Accepts likes and answers questions about them, in process ([`Ingest`]) and over HTTP ([`http`]).
//!
//! Never counts: it writes facts and says where something changed. An answer `applied`, `unchanged`
//! or `accepted` is never lost and never undone by an older request (invariant I3).

mod admission;
mod batcher;
mod cache;
pub mod http;
mod metrics;
mod mode;
mod settings;

use std::sync::Arc;

use prometheus::Registry;
use schema::{Micros, StatusKey, TargetKey, TraceId};
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

use admission::Admission;
pub use admission::Bar;
use batcher::{Answer, Batcher, Job, Writing};
use cache::CountCache;
pub use cache::Counted;
use metrics::IngestMetrics;
pub use mode::{Gate, Mode, Refused};
pub use settings::IngestSettings;

/// Why a request was not taken; nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no room for another request now.
    #[error("no capacity now: too many requests wait; try again later")]
    NoCapacity,
    /// The status of the target or of the user does not allow it.
    #[error(transparent)]
    Barred(#[from] Bar),
}

/// The ingest role; cheap to clone.
#[derive(Clone)]
pub struct Ingest {
    protocol: Protocol,
    queue: mpsc::Sender<Job>,
    cache: CountCache,
    admission: Admission,
    gate: Gate,
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
        let (admission, gate) = (Admission::new(protocol.clone()), Gate::default());
        let ingest = Self {
            admission: admission.clone(),
            gate: gate.clone(),
            cache: CountCache::new(protocol.clone(), &settings, metrics.clone()),
            protocol: protocol.clone(),
            queue,
            stop: closing.clone(),
            metrics: metrics.clone(),
            settings: settings.clone(),
        };
        let lane = Arc::new(lane);
        let batcher = Batcher::new(
            Writing { protocol: protocol.clone(), lane: lane.clone(), sink, admission, gate },
            settings.clone(),
            metrics,
        );
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
    pub async fn write(&self, request: WriteRequest) -> Result<Written, Refusal> {
        self.write_traced(request, None).await
    }

    /// The same, followed to its commit under this trace id.
    pub async fn write_traced(&self, request: WriteRequest, trace: Option<TraceId>) -> Result<Written, Refusal> {
        let (reply, answer) = oneshot::channel();
        if self.queue.try_send(Job { request, trace, reply }).is_err() {
            self.metrics.no_capacity.inc();
            return Err(Refusal::NoCapacity);
        }
        self.answer(answer).await
    }

    /// Writes many; one answer for each, in order. Requests of one fact are done in their order.
    pub async fn write_many(&self, requests: Vec<WriteRequest>) -> Vec<Result<Written, Refusal>> {
        self.write_many_traced(requests, None).await
    }

    /// The same, followed to their commits under this trace id.
    pub async fn write_many_traced(&self, requests: Vec<WriteRequest>, trace: Option<TraceId>) -> Vec<Result<Written, Refusal>> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let (reply, answer) = oneshot::channel();
            // Waits for room: a whole body was admitted, so its second half is not refused.
            let sent =
                tokio::time::timeout(self.protocol.settings().deadline, self.queue.send(Job { request, trace, reply })).await;
            answers.push(sent.is_ok_and(|s| s.is_ok()).then_some(answer));
        }
        let mut out = Vec::with_capacity(answers.len());
        for answer in answers {
            out.push(match answer {
                Some(answer) => self.answer(answer).await,
                None => {
                    self.metrics.no_capacity.inc();
                    Err(Refusal::NoCapacity)
                }
            });
        }
        out
    }

    /// A request that was taken in may have been carried out, whatever became of its answer.
    async fn answer(&self, answer: oneshot::Receiver<Answer>) -> Result<Written, Refusal> {
        let lost = || Written::failed(Outcome::Unknown("the answer was lost".into()));
        let answered = answer.await.unwrap_or_else(|_| Ok(lost()));
        let word = answered.as_ref().map_or("rejected", |written| http::outcome_word(&written.outcome));
        self.metrics.outcome(word);
        if let Err(bar) = answered {
            self.metrics.barred.with_label_values(&[bar.name()]).inc();
        }
        Ok(answered?)
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

    /// Which of `targets` readers are told are gone, in order; as of at most a second ago.
    pub async fn gone(&self, targets: &[TargetKey]) -> StoreResult<Vec<bool>> {
        self.admission.gone(targets).await
    }

    /// A status was changed through this process: it counts from now on.
    pub fn status_changed(&self, key: &StatusKey) {
        self.admission.forget(key);
        if let StatusKey::Target(target) = key {
            self.cache.forget(target);
        }
    }

    /// What is let in; an operator's to change.
    pub fn gate(&self) -> &Gate {
        &self.gate
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
