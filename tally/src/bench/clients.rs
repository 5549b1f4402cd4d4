//! Clients that like, or ask for counts, as fast as they are answered or at a given rate.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Empty};
use hyper::{Method, Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use ingest::Ingest;
use schema::{FactKey, KindName, Member, Namespace, Register, TargetKey};
use store::{
    clock::Stopwatch,
    protocol::{Outcome, WriteRequest},
};
use tokio::{net::TcpStream, sync::mpsc, time::MissedTickBehavior};

use super::load::{Load, Stream};
use crate::failure::Failure;

/// Longest time that a histogram tells apart, in microseconds.
const LONGEST: u64 = 60_000_000;

/// An empty histogram of microseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("constant bounds are valid")
}

/// Microseconds, for a histogram.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The fact of a like.
pub fn key(target: &str, user: &str) -> FactKey {
    let namespace = Namespace::parse("bench").expect("a valid namespace");
    FactKey {
        target: TargetKey::new(&namespace, target).expect("made of letters and digits"),
        kind: KindName::parse("like").expect("a valid kind"),
        member: Member::parse(user).expect("made of letters and digits"),
    }
}

/// The way in.
#[derive(Clone)]
pub enum Door {
    /// Calls within the process.
    InProcess(Box<Ingest>),
    /// HTTP/1.1, one connection for each client.
    Http(SocketAddr),
}

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// `PUT` of a like.
    Like,
    /// `GET` of a target's counts; over HTTP only.
    Counts,
}

/// How many, how long, how fast.
pub struct Plan {
    /// What they do.
    pub ask: Ask,
    /// Clients, each of which waits for its answer.
    pub clients: u32,
    /// How long.
    pub time: Duration,
    /// Requests per second altogether; `None`: as fast as they are answered.
    pub rate: Option<f64>,
    /// Takes some of the likes right after their answer.
    pub offers: Option<mpsc::Sender<(FactKey, Stopwatch)>>,
}

/// What came of a plan.
pub struct Driven {
    /// Good answers.
    pub good: u64,
    /// Good answers per second.
    pub rate: f64,
    /// Microseconds to the answer: from sending, or with a rate from when it was due.
    pub times: Histogram<u64>,
    /// Other answers.
    pub failed: u64,
}

/// Carries out `plan`; `at_end` is called when the time is over, while clients still wait for their
/// last answers.
pub async fn drive(door: &Door, load: &Load, plan: Plan, at_end: impl FnOnce() + Send) -> Result<Driven, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed = Arc::new(AtomicU64::new(0));
    let pause = plan.rate.map(|rate| Duration::from_secs_f64(f64::from(plan.clients) / rate.max(1.0)));
    let mut ready = Vec::new();
    for client in 0..plan.clients {
        ready.push(Client {
            sender: door.sender().await?,
            ask: plan.ask,
            stream: load.stream(u64::from(client)),
            stop: stop.clone(),
            failed: failed.clone(),
            offers: plan.offers.clone(),
            // Clients begin spread over one pause, not all at once.
            pause: pause.map(|p| (p.mul_f64(f64::from(client) / f64::from(plan.clients)), p)),
        });
    }
    drop(plan.offers);
    let watch = Stopwatch::start();
    let mut running: tokio::task::JoinSet<_> = ready.into_iter().map(Client::run).collect();
    tokio::time::sleep(plan.time).await;
    stop.store(true, Ordering::Relaxed);
    at_end();
    let mut times = histogram();
    while let Some(done) = running.join_next().await {
        times.add(done.expect("a panic has ended the process before")).expect("the same bounds");
    }
    let (good, seconds) = (times.len(), watch.elapsed().as_secs_f64());
    Ok(Driven { good, rate: good as f64 / seconds, times, failed: failed.load(Ordering::Relaxed) })
}

impl Door {
    async fn sender(&self) -> Result<Sender, Failure> {
        let address = match self {
            Self::InProcess(ingest) => return Ok(Sender::InProcess(ingest.clone())),
            Self::Http(address) => address,
        };
        let failed = |e: String| Failure::unreachable(format!("cannot connect to {address}: {e}"));
        let stream = TcpStream::connect(address).await.map_err(|e| failed(e.to_string()))?;
        stream.set_nodelay(true).map_err(|e| failed(e.to_string()))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(e.to_string()))?;
        tokio::spawn(connection);
        Ok(Sender::Http(sender))
    }
}

/// How one client sends its requests.
enum Sender {
    InProcess(Box<Ingest>),
    Http(http1::SendRequest<Empty<Bytes>>),
}

struct Client {
    sender: Sender,
    ask: Ask,
    stream: Stream,
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    offers: Option<mpsc::Sender<(FactKey, Stopwatch)>>,
    /// First pause, then the pause from request to request.
    pause: Option<(Duration, Duration)>,
}

impl Client {
    /// Times of the good answers.
    async fn run(mut self) -> Histogram<u64> {
        let mut times = histogram();
        let mut ticks = self.pause.map(|(first, pause)| {
            let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + first, pause);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            ticks
        });
        while !self.stop.load(Ordering::Relaxed) {
            let due = match &mut ticks {
                Some(ticks) => Some(ticks.tick().await),
                None => None,
            };
            let (target, user) = self.stream.next();
            let watch = Stopwatch::start();
            if !self.sender.send(self.ask, &target, &user).await {
                self.failed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            // A client that is late has made its users wait: their time counts from when it was due.
            times.saturating_record(micros(due.map_or_else(|| watch.elapsed(), |due| due.elapsed())));
            if let Some(place) = self.offers.as_ref().and_then(|offers| offers.try_reserve().ok()) {
                place.send((key(&target, &user), Stopwatch::start()));
            }
        }
        times
    }
}

impl Sender {
    /// Whether the answer was a good one: `applied`, or 2xx.
    async fn send(&mut self, ask: Ask, target: &str, user: &str) -> bool {
        match self {
            Self::InProcess(ingest) => {
                let request = WriteRequest { key: key(target, user), register: Register::Choice, value: 1, at: None };
                ingest.write(request).await.is_ok_and(|w| w.outcome == Outcome::Applied)
            }
            Self::Http(sender) => {
                let (method, uri) = match ask {
                    Ask::Like => (Method::PUT, format!("/v1/bench/targets/{target}/like/{user}")),
                    Ask::Counts => (Method::GET, format!("/v1/bench/targets/{target}")),
                };
                let request = Request::builder().method(method).uri(uri).header("host", "localhost");
                let request = request.body(Empty::new()).expect("made of letters and digits");
                let Ok(answer) = sender.send_request(request).await else { return false };
                let good = answer.status().is_success();
                answer.into_body().collect().await.is_ok() && good
            }
        }
    }
}
