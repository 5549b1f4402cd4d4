//! The roles of one process, started in order and stopped in the reverse one.

use std::{sync::Arc, time::Duration};

use aggregator::{Aggregator, AggregatorSettings, MemoryBus, Sweep};
use ingest::{Ingest, IngestSettings, http::Rates};
use operator::{Operator, OperatorSettings};
use prometheus::Registry;
use rebuilder::{Rebuilder, RebuilderSettings};
use store::{Protocol, embedded::Embedded, switch::Switch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    control::Control,
    metrics::StoreMetrics,
    node::{Node, take_over},
    ops::Ops,
    writer::ByIngest,
};
use crate::{config::Config, failure::Failure, seed};

/// How often the lane's sign of life is written: it also tells the next process what time it was.
const TOUCH: Duration = Duration::from_secs(1);
/// How long a stopping process goes on counting what is queued; the sweep counts the rest later.
const DRAIN: Duration = Duration::from_secs(1);
/// How long requests that were taken in may take to be answered at the end.
const ANSWER: Duration = Duration::from_secs(1);
/// Pause before another try at counting what earlier processes left.
const RETRY: Duration = Duration::from_secs(1);

/// Ingest, aggregator, sweep and rebuilder over one store.
pub struct Parts {
    engine: Arc<Embedded>,
    protocol: Protocol,
    left: Vec<schema::LaneId>,
    rebuilder: Rebuilder,
    aggregator: Aggregator,
    bus: Arc<MemoryBus>,
    ingest: Ingest,
    operator: Operator,
    control: Arc<Control>,
    answering: JoinHandle<()>,
    stop: CancellationToken,
    loops: Vec<JoinHandle<()>>,
}

/// Settings of ingest.
pub fn ingest_settings(config: &Config) -> IngestSettings {
    IngestSettings {
        touch: TOUCH,
        requests: config.max_requests,
        rates: Rates { key: config.limit_key, user: config.limit_user, target: config.limit_target },
        slow_request: config.slow_request,
        cache_ttl: config.cache_age,
        cache_targets: config.cache_targets as u64,
        ..IngestSettings::default()
    }
}

/// Settings of the rebuilder.
pub fn rebuilder_settings(config: &Config) -> RebuilderSettings {
    RebuilderSettings {
        parallel: config.rebuild_parallel,
        rate: u64::from(config.rebuild_rate),
        freeze_percent: f64::from(config.rebuild_freeze_percent),
        freeze_targets: u64::from(config.rebuild_freeze_targets),
        freeze_size: u64::from(config.rebuild_freeze_size),
        ..RebuilderSettings::default()
    }
}

impl Parts {
    /// Starts everything over `node`; what earlier processes left is counted in the background.
    pub async fn start(config: &Config, node: Node, registry: &Registry) -> Result<Self, Failure> {
        let Node { engine, protocol, left } = node;
        let lane = protocol.open_lane(Box::new(seed::random_id)).await;
        let lane = lane.map_err(|e| Failure::unreachable(format!("cannot write to {}: {e}", config.data.display())))?;
        let bus = MemoryBus::new(config.buckets, config.event_queue);
        let (ingest, answering) = Ingest::start(protocol.clone(), lane, bus.clone(), ingest_settings(config));
        let settings = AggregatorSettings {
            workers: config.aggregator_workers,
            parallel: config.aggregator_parallel,
            drain: DRAIN,
            ..AggregatorSettings::default()
        };
        let [counting, sweeping, rebuilding]: [Switch; 3] = Default::default();
        let failed = |e: store::StoreError| Failure::unreachable(e.to_string());
        let switches = [counting.clone(), sweeping.clone(), rebuilding.clone()];
        let control = Control::load(protocol.clone(), ingest.gate().clone(), switches).await.map_err(failed)?;
        let runs = OperatorSettings { retention: config.run_retention, ..OperatorSettings::default() };
        let operator = Operator::new(protocol.clone(), Arc::new(ByIngest(ingest.clone())), runs);
        operator.recover().await.map_err(failed)?;
        let cache = ingest.clone();
        let aggregator = Aggregator::new(protocol.clone(), bus.clone(), settings)
            .on_counted(Arc::new(move |t| cache.forget(t)))
            .paused_by(counting);
        let sweep = Sweep::new(protocol.clone(), config.slot / 2).paused_by(sweeping);
        let rebuilder = Rebuilder::new(protocol.clone(), rebuilder_settings(config)).paused_by(rebuilding);
        let loaded = rebuilder.load().await;
        loaded.map_err(|e| Failure::unreachable(format!("cannot read what earlier rebuilds left: {e}")))?;
        let registered = [
            ingest.register(registry),
            aggregator.register(registry),
            sweep.register(registry),
            rebuilder.register(registry),
            operator.register(registry),
            control.register(registry),
            registry.register(Box::new(StoreMetrics::new(engine.clone()))),
        ];
        registered.into_iter().collect::<Result<Vec<_>, _>>().expect("metric names are constants that differ");
        let stop = CancellationToken::new();
        let loops = vec![
            tokio::spawn({
                let (aggregator, stop) = (aggregator.clone(), stop.clone());
                async move { aggregator.run(stop).await }
            }),
            tokio::spawn({
                let stop = stop.clone();
                async move { sweep.run(stop).await }
            }),
            tokio::spawn({
                let (operator, stop) = (operator.clone(), stop.clone());
                async move {
                    // A run may be cut off at any await: the next process goes on with it.
                    tokio::select! {
                        () = operator.run() => {}
                        () = operator.retain() => {}
                        () = stop.cancelled() => {}
                    }
                }
            }),
            tokio::spawn(take_over_until(protocol.clone(), left.clone(), stop.clone())),
        ];
        Ok(Self { engine, protocol, left, rebuilder, aggregator, bus, ingest, operator, control, answering, stop, loops })
    }

    /// The way in.
    pub fn ingest(&self) -> &Ingest {
        &self.ingest
    }

    /// What operators do.
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// The protocol below.
    pub fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// The queues of change events.
    pub fn bus(&self) -> &MemoryBus {
        &self.bus
    }

    /// Whether everything that was published is counted.
    pub fn idle(&self) -> bool {
        self.aggregator.idle()
    }

    /// The engine.
    pub fn engine(&self) -> &Embedded {
        &self.engine
    }

    /// What the routes of `/v1/ops` work with.
    pub fn ops(&self) -> Ops {
        let (operator, control) = (self.operator.clone(), self.control.clone());
        let (aggregator, engine) = (self.aggregator.clone(), self.engine.clone());
        Ops::new(self.protocol.clone(), self.rebuilder.clone(), aggregator, engine, operator, control, &self.left)
    }

    /// Answers what was taken in, counts what is queued, writes out what the store holds in at most
    /// `close`. Whatever is cut off by a limit here is found again by the next process.
    pub async fn stop(self, close: Duration) {
        self.ingest.stop();
        if tokio::time::timeout(ANSWER, self.answering).await.is_err() {
            tracing::warn!("some requests are left unanswered; the journal has what was promised");
        }
        self.stop.cancel();
        for task in self.loops {
            if tokio::time::timeout(DRAIN + Duration::from_millis(500), task).await.is_err() {
                tracing::warn!("counting is cut off; the next start goes on");
            }
        }
        match tokio::time::timeout(close, self.engine.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the store did not close cleanly"),
            Err(_) => tracing::warn!("the store did not close in time; the next start recovers it"),
        }
    }
}

/// Counts what earlier processes left, however long the store is away.
async fn take_over_until(protocol: Protocol, left: Vec<schema::LaneId>, stop: CancellationToken) {
    loop {
        let tried = tokio::select! {
            tried = take_over(&protocol, &left) => tried,
            () = stop.cancelled() => return,
        };
        let Err(error) = tried else { return };
        tracing::warn!(%error, "the journal of an earlier process is not counted yet; trying again");
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = stop.cancelled() => return,
        }
    }
}
