//! One whole Tally in this process.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use hdrhistogram::Histogram;
use ingest::{Ingest, http::Api};
use prometheus::Registry;
use schema::FactKey;
use store::clock::Stopwatch;
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    clients::{Ask, Door, Driven, Plan, drive, histogram, micros},
    load::Load,
    sizes::Sizes,
};
use crate::{
    cli::BenchWay,
    config::Config,
    failure::Failure,
    serve::{ACCESS, Limits, Node, Opening, OpsApi, Parts, ingest_settings, listen},
};

/// Tasks that ask whether a like is counted.
const SAMPLERS: u64 = 4;
/// Pause between two questions.
const POLL: Duration = Duration::from_micros(500);
/// How long the queues may take to run empty.
const DRAINED: Duration = Duration::from_secs(60);

/// A running Tally.
pub struct World {
    parts: Parts,
    registry: Registry,
    listener: Option<Listener>,
}

/// What one round of likes came to.
pub struct Round {
    /// Of the clients.
    pub driven: Driven,
    /// Batch sizes.
    pub sizes: Sizes,
    /// Members that waited to be counted at the end.
    pub backlog: u64,
}

impl World {
    /// A Tally as configured, listening on a free port if `way` is HTTP.
    pub async fn start(config: &Config, way: BenchWay) -> Result<Self, Failure> {
        let node = Node::open(config, Opening::Serve).await?;
        let registry = Registry::new();
        let parts = Parts::start(config, node, &registry).await?;
        let listener = match way {
            BenchWay::InProcess => None,
            BenchWay::Http => {
                let api = Api::new(registry.clone(), ingest_settings(config)).expect("metric names are constants that differ");
                let api = api.access(ACCESS);
                let router = ingest::http::router(api.clone(), OpsApi::default().router());
                api.open(parts.ingest().clone());
                Some(Listener::start(router, config).await?)
            }
        };
        Ok(Self { parts, registry, listener })
    }

    /// How clients reach it.
    pub fn door(&self) -> Door {
        match &self.listener {
            Some(listener) => listener.door(),
            None => Door::InProcess(Box::new(self.parts.ingest().clone())),
        }
    }

    /// `clients` like as fast as they are answered, for `time`.
    pub async fn closed_loop(&self, load: &Load, clients: u32, time: Duration) -> Result<Round, Failure> {
        self.round(load, Plan { ask: Ask::Like, clients, time, rate: None, offers: None }).await
    }

    /// The same at `rate` likes per second altogether; also from answer to counted, sampled.
    pub async fn paced(&self, load: &Load, clients: u32, time: Duration, rate: f64) -> Result<(Round, Histogram<u64>), Failure> {
        let (offers, offered) = mpsc::channel(1);
        let offered = Arc::new(tokio::sync::Mutex::new(offered));
        let mut samplers = tokio::task::JoinSet::new();
        for _ in 0..SAMPLERS {
            samplers.spawn(sample(self.parts.ingest().clone(), offered.clone()));
        }
        let plan = Plan { ask: Ask::Like, clients, time, rate: Some(rate), offers: Some(offers) };
        let round = self.round(load, plan).await?;
        let mut all = histogram();
        while let Some(samples) = samplers.join_next().await {
            all.add(samples.expect("a panic has ended the process before")).expect("the same bounds");
        }
        Ok((round, all))
    }

    async fn round(&self, load: &Load, plan: Plan) -> Result<Round, Failure> {
        let before = self.totals();
        let mut backlog = 0;
        let driven = drive(&self.door(), load, plan, || backlog = self.parts.bus().backlog() as u64).await?;
        let (micro, groups) = self.totals();
        let sizes = Sizes::of(driven.good, micro - before.0, groups - before.1);
        Ok(Round { driven, sizes, backlog })
    }

    /// The way in.
    pub fn ingest(&self) -> &Ingest {
        self.parts.ingest()
    }

    /// The protocol below.
    pub fn protocol(&self) -> &store::Protocol {
        self.parts.protocol()
    }

    /// (micro-batches, durable commits) so far.
    fn totals(&self) -> (u64, u64) {
        let families = self.registry.gather();
        let batches = families.iter().find(|f| f.name() == "tally_ingest_batch_requests");
        let batches = batches.and_then(|f| f.get_metric().first()).map_or(0, |m| m.get_histogram().get_sample_count());
        (batches, self.parts.engine().stats().durable_groups)
    }

    /// Waits until nothing is queued for counting.
    pub async fn drain(&self) -> Result<(), Failure> {
        let watch = Stopwatch::start();
        while !self.parts.idle() {
            if watch.elapsed() > DRAINED {
                return Err(Failure::negative(format!("the queues are not empty after {DRAINED:?}")));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Stops everything.
    pub async fn stop(self) {
        if let Some(listener) = self.listener {
            listener.stop().await;
        }
        self.parts.stop(Duration::from_secs(30)).await;
    }
}

/// An HTTP server on a free port of loopback.
pub struct Listener {
    address: SocketAddr,
    closing: CancellationToken,
    task: JoinHandle<()>,
}

impl Listener {
    /// Serves `router` as `tally serve` would.
    pub async fn start(router: Router, config: &Config) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::unreachable(format!("cannot listen on loopback: {e}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let closing = CancellationToken::new();
        let limits = Limits { connections: 4096, header_timeout: config.header_timeout, drain: config.drain_timeout };
        let task = tokio::spawn(listen::serve(listener, None, router, limits, closing.clone()));
        Ok(Self { address, closing, task })
    }

    /// How clients reach it.
    pub fn door(&self) -> Door {
        Door::Http(self.address)
    }

    /// Stops it.
    pub async fn stop(self) {
        self.closing.cancel();
        self.task.await.expect("a panic has ended the process before");
    }
}

/// From answer to counted, of the likes that are offered.
async fn sample(ingest: Ingest, offered: Arc<tokio::sync::Mutex<mpsc::Receiver<(FactKey, Stopwatch)>>>) -> Histogram<u64> {
    let mut samples = histogram();
    loop {
        let next = offered.lock().await.recv().await;
        let Some((key, watch)) = next else { return samples };
        while watch.elapsed() < DRAINED {
            if ingest.protocol().state(&key).await.is_ok_and(|state| state.counted) {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        samples.saturating_record(micros(watch.elapsed()));
    }
}
