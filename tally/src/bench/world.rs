//! One whole Tally in this process, and clients that like as fast as they are answered.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::Router;
use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Empty};
use hyper::{Method, Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use ingest::{Ingest, http::Api};
use prometheus::Registry;
use schema::{FactKey, KindName, Member, Namespace, Register, TargetKey};
use store::{
    clock::Stopwatch,
    protocol::{Outcome, WriteRequest},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;

use super::{
    load::{Load, Stream},
    sizes::Sizes,
};
use crate::{
    cli::BenchWay,
    config::Config,
    failure::Failure,
    serve::{Limits, Node, Opening, OpsApi, Parts, ingest_settings, listen},
};

/// Longest time that a histogram tells apart, in microseconds.
const LONGEST: u64 = 60_000_000;
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
    address: Option<SocketAddr>,
    closing: CancellationToken,
    listening: Option<JoinHandle<()>>,
}

/// What one round of likes came to.
pub struct Round {
    /// Answered `applied` per second.
    pub rate: f64,
    /// Time to answer, microseconds.
    pub times: Histogram<u64>,
    /// Answers that were not `applied`.
    pub failed: u64,
    /// Batch sizes.
    pub sizes: Sizes,
    /// Members that waited to be counted at the end.
    pub backlog: u64,
}

/// An empty histogram of microseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("constant bounds are valid")
}

/// How one client sends its likes.
enum Sender {
    InProcess(Box<Ingest>),
    Http(http1::SendRequest<Empty<Bytes>>),
}

impl World {
    /// A Tally as configured, listening on a free port if `way` is HTTP.
    pub async fn start(config: &Config, way: BenchWay) -> Result<Self, Failure> {
        let node = Node::open(config, Opening::Serve).await?;
        let registry = Registry::new();
        let parts = Parts::start(config, node, &registry).await?;
        let closing = CancellationToken::new();
        let (mut address, mut listening) = (None, None);
        if way == BenchWay::Http {
            let failed = |e: std::io::Error| Failure::unreachable(format!("cannot listen on loopback: {e}"));
            let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
            address = Some(listener.local_addr().map_err(failed)?);
            let api = Api::new(registry.clone(), ingest_settings(config)).expect("metric names are constants that differ");
            let router = ingest::http::router(api.clone(), Router::new()).merge(OpsApi::default().router());
            api.open(parts.ingest().clone());
            let limits = Limits { connections: 4096, header_timeout: config.header_timeout, drain: config.drain_timeout };
            listening = Some(tokio::spawn(listen::serve(listener, router, limits, closing.clone())));
        }
        Ok(Self { parts, registry, address, closing, listening })
    }

    /// `clients` like as fast as they are answered, for `time`.
    pub async fn closed_loop(&self, load: &Load, clients: u32, time: Duration) -> Result<Round, Failure> {
        self.round(load, clients, time, None, None).await
    }

    /// The same at `rate` likes per second altogether; also from answer to counted, sampled.
    pub async fn paced(&self, load: &Load, clients: u32, time: Duration, rate: f64) -> Result<(Round, Histogram<u64>), Failure> {
        let (offers, offered) = mpsc::channel(1);
        let offered = Arc::new(tokio::sync::Mutex::new(offered));
        let mut samplers = tokio::task::JoinSet::new();
        for _ in 0..SAMPLERS {
            samplers.spawn(sample(self.parts.ingest().clone(), offered.clone()));
        }
        let round = self.round(load, clients, time, Some(rate), Some(offers)).await?;
        let mut all = histogram();
        while let Some(samples) = samplers.join_next().await {
            all.add(samples.expect("a panic has ended the process before")).expect("the same bounds");
        }
        Ok((round, all))
    }

    async fn round(
        &self,
        load: &Load,
        clients: u32,
        time: Duration,
        rate: Option<f64>,
        offers: Option<mpsc::Sender<(FactKey, Stopwatch)>>,
    ) -> Result<Round, Failure> {
        let before = self.totals();
        let stop = Arc::new(AtomicBool::new(false));
        let failed = Arc::new(AtomicU64::new(0));
        let pause = rate.map(|rate| Duration::from_secs_f64(f64::from(clients) / rate.max(1.0)));
        let mut running = tokio::task::JoinSet::new();
        for client in 0..clients {
            let task = Client {
                sender: self.sender().await?,
                stream: load.stream(u64::from(client)),
                stop: stop.clone(),
                failed: failed.clone(),
                offers: offers.clone(),
                // Clients begin spread over one pause, not all at once.
                pause: pause.map(|p| (p.mul_f64(f64::from(client) / f64::from(clients)), p)),
            };
            running.spawn(task.run());
        }
        drop(offers);
        let watch = Stopwatch::start();
        tokio::time::sleep(time).await;
        stop.store(true, Ordering::Relaxed);
        let backlog = self.parts.bus().backlog() as u64;
        let mut times = histogram();
        while let Some(done) = running.join_next().await {
            times.add(done.expect("a panic has ended the process before")).expect("the same bounds");
        }
        let seconds = watch.elapsed().as_secs_f64();
        let (micro, groups) = self.totals();
        let likes = times.len();
        let sizes = Sizes::of(likes, micro - before.0, groups - before.1);
        Ok(Round { rate: likes as f64 / seconds, times, failed: failed.load(Ordering::Relaxed), sizes, backlog })
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

    async fn sender(&self) -> Result<Sender, Failure> {
        let Some(address) = self.address else { return Ok(Sender::InProcess(Box::new(self.parts.ingest().clone()))) };
        let failed = |e: String| Failure::unreachable(format!("cannot connect to {address}: {e}"));
        let stream = TcpStream::connect(address).await.map_err(|e| failed(e.to_string()))?;
        stream.set_nodelay(true).map_err(|e| failed(e.to_string()))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(e.to_string()))?;
        tokio::spawn(connection);
        Ok(Sender::Http(sender))
    }

    /// Stops everything.
    pub async fn stop(self) {
        self.closing.cancel();
        if let Some(listening) = self.listening {
            listening.await.expect("a panic has ended the process before");
        }
        self.parts.stop(Duration::from_secs(30)).await;
    }
}

struct Client {
    sender: Sender,
    stream: Stream,
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    offers: Option<mpsc::Sender<(FactKey, Stopwatch)>>,
    /// First pause, then the pause from like to like.
    pause: Option<(Duration, Duration)>,
}

impl Client {
    /// Times of the likes that were applied.
    async fn run(mut self) -> Histogram<u64> {
        let mut times = histogram();
        let mut ticks = self.pause.map(|(first, pause)| {
            let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + first, pause);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            ticks
        });
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            let (target, user) = self.stream.next();
            let watch = Stopwatch::start();
            if !self.sender.like(&target, &user).await {
                self.failed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            times.saturating_record(u64::try_from(watch.elapsed().as_micros()).unwrap_or(u64::MAX));
            if let Some(place) = self.offers.as_ref().and_then(|offers| offers.try_reserve().ok()) {
                place.send((key(&target, &user), Stopwatch::start()));
            }
        }
        times
    }
}

fn key(target: &str, user: &str) -> FactKey {
    let namespace = Namespace::parse("bench").expect("a valid namespace");
    FactKey {
        target: TargetKey::new(&namespace, target).expect("made of letters and digits"),
        kind: KindName::parse("like").expect("a valid kind"),
        member: Member::parse(user).expect("made of letters and digits"),
    }
}

impl Sender {
    /// Whether the like was answered `applied`.
    async fn like(&mut self, target: &str, user: &str) -> bool {
        match self {
            Self::InProcess(ingest) => {
                let request = WriteRequest { key: key(target, user), register: Register::Choice, value: 1, at: None };
                ingest.write(request).await.is_ok_and(|w| w.outcome == Outcome::Applied)
            }
            Self::Http(sender) => {
                let request = Request::builder()
                    .method(Method::PUT)
                    .uri(format!("/v1/bench/targets/{target}/like/{user}"))
                    .header("host", "localhost")
                    .body(Empty::new())
                    .expect("made of letters and digits");
                let Ok(answer) = sender.send_request(request).await else { return false };
                let good = answer.status().is_success();
                answer.into_body().collect().await.is_ok() && good
            }
        }
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
        samples.saturating_record(u64::try_from(watch.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
}
