//! The aggregator's loop: collect while a round runs, one reconcile in flight for each shard.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, join_all},
    stream::{self, FuturesUnordered},
};
use prometheus::Registry;
use schema::{Member, Micros, ShardKey, TRACE_LOG, TargetKey};
use store::{Protocol, StoreError, StoreResult, clock::Stopwatch, protocol::Reconciled, switch::Switch};
use tokio_util::sync::CancellationToken;

use crate::{
    AggregatorSettings, MemoryBus, Notice,
    gauges::{BusMetrics, Drain},
    metrics::AggregatorMetrics,
};

/// Members that may wait for a shard in flight; further ones are left to the sweep.
const MAX_WAITING: usize = 50_000;
/// Roots that are counted in one go: enough that a write of counters costs each of them little.
const TOGETHER: usize = 64;

/// Called with each target whose counter was written, so that caches forget it.
pub type OnCounted = Arc<dyn Fn(&TargetKey) + Send + Sync>;

/// What one call of [`Aggregator::run_once`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    /// Shards reconciled.
    pub shards: u64,
    /// Shards that failed; their notices are queued again.
    pub failed: u64,
    /// Sums over the shards.
    pub done: Reconciled,
}

/// Reconciles what the bus names.
#[derive(Clone)]
pub struct Aggregator {
    protocol: Protocol,
    bus: Arc<MemoryBus>,
    on_counted: OnCounted,
    settings: AggregatorSettings,
    metrics: AggregatorMetrics,
    drain: Arc<Drain>,
    pause: Switch,
    /// Notices taken from the bus and not done with.
    taken: Arc<AtomicUsize>,
}

/// A notice on its way, with how often it has failed.
struct Work {
    notice: Notice,
    failures: u32,
}

/// Work that was done, with its result; `None`: it has to be done by itself.
type Done = Vec<(Work, Option<StoreResult<Reconciled>>)>;
type InFlight = FuturesUnordered<BoxFuture<'static, Done>>;

impl Aggregator {
    /// Counts what `bus` names, by `protocol`.
    pub fn new(protocol: Protocol, bus: Arc<MemoryBus>, settings: AggregatorSettings) -> Self {
        Self {
            protocol,
            bus,
            on_counted: Arc::new(|_| {}),
            settings,
            metrics: AggregatorMetrics::default(),
            drain: Arc::default(),
            pause: Switch::default(),
            taken: Arc::default(),
        }
    }

    /// Calls `hook` after each counter that was written.
    #[must_use]
    pub fn on_counted(mut self, hook: OnCounted) -> Self {
        self.on_counted = hook;
        self
    }

    /// Nothing is taken from the queues while `pause` is on; what does not fit into them meanwhile is
    /// counted by the sweep.
    #[must_use]
    pub fn paused_by(mut self, pause: Switch) -> Self {
        self.pause = pause;
        self
    }

    /// Adds this aggregator's metrics, and those of its queues, to a registry.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        let queues = BusMetrics::new(self.bus.clone(), self.protocol.clock().clone(), self.drain.clone());
        registry.register(Box::new(queues))?;
        self.metrics.register(registry)
    }

    /// Whether everything that was published before this call, and not dropped, is counted.
    pub fn idle(&self) -> bool {
        self.bus.backlog() == 0 && self.taken.load(Ordering::SeqCst) == 0
    }

    /// Takes notices so that at no moment they are neither in the bus nor in `taken`.
    fn take(&self, bucket: usize, limit: usize) -> Vec<Notice> {
        self.taken.fetch_add(1, Ordering::SeqCst);
        let notices = self.bus.take(bucket, limit);
        self.taken.fetch_add(notices.len(), Ordering::SeqCst);
        self.taken.fetch_sub(1, Ordering::SeqCst);
        notices
    }

    /// Takes everything that is queued now, reconciles each shard once, and queues failures again.
    /// Needs no runtime of its own, so that simulations drive it.
    pub async fn run_once(&self) -> Round {
        let mut round = Round::default();
        let notices: Vec<Notice> = (0..self.bus.buckets()).flat_map(|bucket| self.take(bucket, usize::MAX)).collect();
        let work = notices.into_iter().map(|notice| Work { notice, failures: 0 }).collect();
        let (together, alone) = self.split(work);
        let mut results: Vec<_> = stream::iter(together).buffer_unordered(self.settings.parallel.max(1)).concat().await;
        let left = results.extract_if(.., |(_, result)| result.is_none()).map(|(work, _)| work);
        let left: Vec<Work> = left.chain(alone).collect();
        let alone = stream::iter(left.into_iter().map(|work| self.reconcile(work)));
        results.extend(alone.buffer_unordered(self.settings.parallel.max(1)).concat().await);
        for (work, result) in results {
            match result.unwrap_or_else(|| Err(StoreError::Unavailable("left undone".into()))) {
                Ok(done) => {
                    round.shards += 1;
                    round.done += done;
                }
                Err(_) => {
                    round.failed += 1;
                    self.requeue(work.notice);
                }
            }
            // Only now: at no moment is a notice neither queued nor taken.
            self.taken.fetch_sub(1, Ordering::SeqCst);
        }
        round
    }

    /// Runs until `stop`; then goes on with what is queued for at most [`AggregatorSettings::drain`].
    pub async fn run(&self, stop: CancellationToken) {
        let workers = self.settings.workers.clamp(1, self.bus.buckets());
        let tasks = (0..workers).map(|first| {
            let (this, stop) = (self.clone(), stop.clone());
            tokio::spawn(async move { this.work(first, workers, stop).await })
        });
        for task in join_all(tasks).await {
            if let Err(panic) = task {
                std::panic::resume_unwind(panic.into_panic());
            }
        }
    }

    /// One worker: buckets `first`, `first + step`, …
    async fn work(&self, first: usize, step: usize, stop: CancellationToken) {
        let buckets: Vec<usize> = (first..self.bus.buckets()).step_by(step).collect();
        let mut waiting: HashMap<ShardKey, Notice> = HashMap::new();
        let mut busy: HashSet<ShardKey> = HashSet::new();
        let mut in_flight = InFlight::new();
        let mut outage: u32 = 0;
        let mut last_call = None;
        let mut next = 0;
        let listener = self.bus.listen(&buckets);
        loop {
            // A shard in flight is looked at again afterwards: what came meanwhile waits for it.
            let paused = self.pause.is_on();
            let free = if paused { 0 } else { self.settings.parallel.max(1).saturating_sub(busy.len()) };
            let picked = self.pick(&buckets, &mut next, free, &mut waiting, &mut busy);
            self.begin(picked, &in_flight);
            if stop.is_cancelled() {
                let until =
                    *last_call.get_or_insert_with(|| self.protocol.clock().now().saturating_add(micros(self.settings.drain)));
                if in_flight.is_empty() || self.protocol.clock().now() >= until {
                    return; // What is left is found by the sweep of the next process.
                }
            }
            if in_flight.is_empty() {
                tokio::select! {
                    () = listener.notified(), if !paused => {}
                    () = self.pause.off(), if paused => {}
                    () = stop.cancelled() => {}
                }
                continue;
            }
            let room = busy.len() < self.settings.parallel.max(1);
            tokio::select! {
                Some(mut done) = in_flight.next() => {
                    // One commit of the store ends many of them: all are booked before more is picked.
                    while let Some(Some(more)) = in_flight.next().now_or_never() {
                        done.extend(more);
                    }
                    for (work, result) in done {
                        outage = self.settle(work, result, outage, &in_flight, &mut busy);
                    }
                }
                () = listener.notified(), if room => {}
            }
        }
    }

    /// Work for up to `free` shards, busy from now on: those that waited for their turn first.
    fn pick(
        &self,
        buckets: &[usize],
        next: &mut usize,
        free: usize,
        waiting: &mut HashMap<ShardKey, Notice>,
        busy: &mut HashSet<ShardKey>,
    ) -> Vec<Work> {
        let ready: Vec<ShardKey> = waiting.keys().filter(|s| !busy.contains(*s)).take(free).cloned().collect();
        busy.extend(ready.iter().cloned());
        let mut out: Vec<Work> =
            ready.iter().filter_map(|s| waiting.remove(s)).map(|notice| Work { notice, failures: 0 }).collect();
        for _ in 0..buckets.len() {
            if out.len() >= free {
                break;
            }
            let bucket = buckets[*next % buckets.len()];
            *next = next.wrapping_add(1);
            for notice in self.take(bucket, free - out.len()) {
                if busy.contains(&notice.shard) {
                    match waiting.get_mut(&notice.shard) {
                        Some(waits) => {
                            if waits.members.len() < MAX_WAITING {
                                waits.merge(notice);
                            } else {
                                self.metrics.given_up.inc(); // The sweep counts them.
                            }
                            self.taken.fetch_sub(1, Ordering::SeqCst);
                        }
                        None => drop(waiting.insert(notice.shard.clone(), notice)),
                    }
                } else {
                    busy.insert(notice.shard.clone());
                    out.push(Work { notice, failures: 0 });
                }
            }
        }
        out
    }

    /// Roots that were not tried before go together; leaves, which take several steps each, alone.
    fn split(&self, work: Vec<Work>) -> (Vec<BoxFuture<'static, Done>>, Vec<Work>) {
        let (mut roots, alone): (Vec<Work>, Vec<Work>) =
            work.into_iter().partition(|w| w.failures == 0 && w.notice.shard.shard.is_root());
        let mut together = Vec::new();
        while !roots.is_empty() {
            let rest = roots.split_off(roots.len().min(TOGETHER));
            let (this, some) = (self.clone(), std::mem::replace(&mut roots, rest));
            together.push(async move { this.reconcile_together(some).await }.boxed());
        }
        (together, alone)
    }

    fn begin(&self, work: Vec<Work>, in_flight: &InFlight) {
        let (together, alone) = self.split(work);
        together.into_iter().for_each(|future| in_flight.push(future));
        for work in alone {
            let this = self.clone();
            in_flight.push(async move { this.reconcile(work).await }.boxed());
        }
    }

    /// Books one result; returns how many failures in a row the store has shown.
    fn settle(
        &self,
        mut work: Work,
        result: Option<StoreResult<Reconciled>>,
        outage: u32,
        in_flight: &InFlight,
        busy: &mut HashSet<ShardKey>,
    ) -> u32 {
        let Some(result) = result else {
            // It stays busy.
            let this = self.clone();
            in_flight.push(async move { this.reconcile(work).await }.boxed());
            return outage;
        };
        busy.remove(&work.notice.shard);
        let error = match result {
            Ok(_) => {
                self.taken.fetch_sub(1, Ordering::SeqCst);
                return 0;
            }
            Err(error) => error,
        };
        let away = matches!(error, StoreError::Unavailable(_) | StoreError::Stopped(_));
        // While the store is away nothing ages: it is not the shard's fault.
        work.failures += u32::from(!away);
        if work.failures >= self.settings.attempts || (away && outage >= self.settings.attempts.saturating_mul(8)) {
            self.taken.fetch_sub(1, Ordering::SeqCst);
            self.metrics.given_up.inc();
            tracing::warn!(%error, shard = ?work.notice.shard, "left to the sweep after repeated failures");
            for id in &work.notice.traces {
                tracing::debug!(target: TRACE_LOG, trace_id = %id, "left to the sweep");
            }
            return if away { outage } else { 0 };
        }
        let pause = pause(&self.settings, work.failures.max(outage));
        let this = self.clone();
        busy.insert(work.notice.shard.clone());
        in_flight.push(
            async move {
                this.protocol.clock().sleep(pause).await;
                this.reconcile(work).await
            }
            .boxed(),
        );
        if away { outage.saturating_add(1) } else { 0 }
    }

    async fn reconcile_together(&self, work: Vec<Work>) -> Done {
        let roots: Vec<ShardKey> = work.iter().map(|w| w.notice.shard.clone()).collect();
        let watch = Stopwatch::start();
        let results = self.protocol.reconcile_small(&roots).await;
        self.metrics.reconcile.observe(watch.elapsed().as_secs_f64());
        let done: Done =
            work.into_iter().zip(results.into_iter().map(|r| r.map(|r| r.map(|()| Reconciled::default())))).collect();
        for (work, result) in &done {
            if let Some(result) = result {
                self.book(work, result);
            }
        }
        done
    }

    async fn reconcile(&self, work: Work) -> Done {
        let members: Vec<Member> = work.notice.members.iter().cloned().collect();
        let watch = Stopwatch::start();
        let result = self.protocol.reconcile(&work.notice.shard, &members).await;
        self.metrics.reconcile.observe(watch.elapsed().as_secs_f64());
        self.book(&work, &result);
        vec![(work, Some(result))]
    }

    /// Metrics of one result, and word to whoever keeps counts in memory.
    fn book(&self, work: &Work, result: &StoreResult<Reconciled>) {
        let m = &self.metrics;
        match result {
            Ok(done) => {
                (self.on_counted)(&work.notice.shard.target);
                m.shards.inc();
                m.members.inc_by(work.notice.members.len() as u64);
                m.commits.inc_by(u64::from(done.commits));
                m.conflicts.inc_by(u64::from(done.conflicts));
                m.unknowns.inc_by(u64::from(done.unknowns));
                m.promotions.inc_by(u64::from(done.promoted));
                if done.commits > 0 {
                    m.members_per_commit.observe(f64::from(done.members) / f64::from(done.commits));
                }
                let now = self.protocol.clock().now();
                self.drain.add(now, work.notice.members.len() as u64);
                let waited = now.saturating_sub(work.notice.at);
                m.freshness.observe(Duration::from_micros(u64::try_from(waited).unwrap_or(0)).as_secs_f64());
                let ShardKey { target, kind, shard } = &work.notice.shard;
                for id in &work.notice.traces {
                    let shard = shard.0;
                    tracing::debug!(target: TRACE_LOG, trace_id = %id, %target, %kind, shard, waited_us = waited, "counted");
                }
            }
            Err(error) => {
                m.failures.inc();
                tracing::debug!(%error, shard = ?work.notice.shard, "reconcile failed");
            }
        }
    }

    fn requeue(&self, notice: Notice) {
        let Notice { shard, members, at, traces } = notice;
        self.bus.push(schema::ChangeEvent { shard, members: members.into_iter().collect(), at, traces });
    }
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}

fn pause(settings: &AggregatorSettings, failures: u32) -> Duration {
    settings.first_pause.saturating_mul(1 << failures.min(16)).min(settings.max_pause)
}
