//! Several processes, as the protocol knows them, over one engine in this process.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use aggregator::{Aggregator, AggregatorSettings, MemoryBus, Sweep};
use ingest::{Ingest, IngestSettings};
use schema::{FactKey, Micros, Register, ShardKey};
use store::{
    Engine, Protocol, Settings,
    clock::{Clock, ManualClock},
    embedded::{Embedded, EmbeddedSettings},
    memory::{Faults, Memory},
    protocol::{WriteRequest, Written},
};
use tokio::task::JoinHandle;

use super::{
    book::Book,
    fact,
    oracles::{self, Facts},
    spy::Spy,
    tap::Tap,
};

/// Store time at which every scenario begins.
const BEGIN: Micros = 1_000_000_000_000_000;
/// Rounds of counting after which a bus that is not empty never will be.
const MANY: usize = 10_000;

/// What a world is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Processes.
    pub processes: usize,
    /// Their clocks' errors, microseconds; 0 for those that are not named.
    pub skew: Vec<Micros>,
    /// Settings of the protocol.
    pub settings: Settings,
    /// What goes wrong in the engine in memory.
    pub faults: Faults,
    /// Seed of those faults.
    pub seed: u64,
    /// Settings of ingest.
    pub ingest: IngestSettings,
    /// Members that a queue of events holds.
    pub queue: usize,
}

impl Default for Setup {
    /// Two processes, nothing goes wrong, targets become large early, no lane is taken for dead.
    fn default() -> Self {
        let settings = Settings { small_limit: 8, level: 2, lane_timeout: Duration::from_secs(1 << 30), ..Settings::default() };
        Self {
            processes: 2,
            skew: Vec::new(),
            settings,
            faults: Faults::none(),
            seed: 1,
            ingest: IngestSettings::default(),
            queue: 100_000,
        }
    }
}

/// Gives way once, whatever drives the task.
pub async fn turn() {
    let mut waited = false;
    futures::future::poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// A clock that is wrong by a fixed time.
pub struct Skewed {
    /// The right time.
    pub clock: Arc<ManualClock>,
    /// What is added to it, microseconds.
    pub by: Micros,
}

impl Clock for Skewed {
    fn now(&self) -> Micros {
        self.clock.now() + self.by
    }

    /// Takes a turn for each millisecond, at most a thousand: others do their work meanwhile.
    fn sleep(&self, duration: Duration) -> futures::future::BoxFuture<'static, ()> {
        let clock = self.clock.clone();
        Box::pin(async move {
            let turns = u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).clamp(1, 1_000);
            for _ in 0..turns {
                clock.sleep(duration / turns).await;
                turn().await;
            }
        })
    }
}

/// One process: ingest, its queues, its aggregator, its sweep.
pub struct Process {
    /// The protocol as it runs it.
    pub protocol: Protocol,
    /// Its ingest role.
    pub ingest: Ingest,
    /// What stands between ingest and the queues.
    pub tap: Arc<Tap>,
    /// Its queues.
    pub bus: Arc<MemoryBus>,
    /// Its aggregator; counts only when it is told to.
    pub aggregator: Aggregator,
    handle: Mutex<Option<JoinHandle<()>>>,
    book: Arc<Book>,
}

impl Process {
    /// Writes one register, and books the answer.
    ///
    /// # Panics
    /// Where there is no room for it.
    pub async fn write(&self, request: WriteRequest) -> Written {
        let ticket = self.book.begin(&request);
        let written = self.ingest.write(request).await.expect("room for a request");
        self.book.end(ticket, &written);
        written
    }

    /// Sets a member's choice of any kind; 0 withdraws.
    pub async fn choose(&self, key: FactKey, choice: u8) -> Written {
        self.write(WriteRequest { key, register: Register::Choice, value: choice, at: None }).await
    }

    /// Many at once, in one request; all booked.
    ///
    /// # Panics
    /// Where there is no room for one.
    pub async fn write_many(&self, requests: Vec<WriteRequest>) -> Vec<Written> {
        let tickets: Vec<_> = requests.iter().map(|r| self.book.begin(r)).collect();
        let written: Vec<Written> =
            self.ingest.write_many(requests).await.into_iter().map(|w| w.expect("room for a request")).collect();
        tickets.into_iter().zip(&written).for_each(|(ticket, written)| self.book.end(ticket, written));
        written
    }

    /// `who` likes `target`.
    pub async fn like(&self, target: &str, who: &str) -> Written {
        self.choose(fact(target, "like", who), 1).await
    }

    /// `who` likes `target` no more.
    pub async fn unlike(&self, target: &str, who: &str) -> Written {
        self.choose(fact(target, "like", who), 0).await
    }

    /// Counts what is queued, until nothing is.
    ///
    /// # Panics
    /// Where there is no end to it.
    pub async fn count(&self) {
        for _ in 0..MANY {
            if self.aggregator.idle() {
                return;
            }
            self.aggregator.run_once().await;
        }
        panic!("the queues never become empty");
    }

    /// Counts what is queued until it is told to stop, beside traffic.
    pub fn keep_counting(&self) -> Counting {
        let (aggregator, stop) = (self.aggregator.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::SeqCst) {
                aggregator.run_once().await;
                tokio::task::yield_now().await;
            }
        });
        Counting { stop, task }
    }

    /// What readers are told in total; `None`: it cannot be told.
    ///
    /// # Panics
    /// Where the store does not answer.
    pub async fn total(&self, root: &ShardKey) -> Option<i64> {
        let told = self.protocol.counts(&root.target, std::slice::from_ref(&root.kind)).await.expect("counts");
        told[0].counts.as_ref().map(schema::Counts::total)
    }

    /// Stops as a server does: what was taken in is carried out and answered.
    ///
    /// # Panics
    /// Where it has failed.
    pub async fn stop(&self) {
        self.ingest.stop();
        self.handle().await.expect("ingest ends well");
    }

    /// Dies: nothing of what it was doing goes on, and its queues are gone.
    ///
    /// # Panics
    /// Where it was dead already.
    pub async fn kill(&self) {
        let handle = self.handle();
        handle.abort();
        assert!(handle.await.is_err_and(|e| e.is_cancelled()), "it was alive");
        self.bus.lose_all();
    }

    fn handle(&self) -> JoinHandle<()> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).take().expect("a process ends once")
    }
}

/// An aggregator at work.
pub struct Counting {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Counting {
    /// Ends its round and stops.
    ///
    /// # Panics
    /// Where it has failed.
    pub async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.expect("it counts");
    }

    /// Ends wherever it is, with whatever it holds.
    pub async fn kill(self) {
        self.task.abort();
        drop(self.task.await); // Cancelled, or just ended.
    }
}

/// An engine and the processes over it.
pub struct World {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// The same, where it is the one in memory.
    pub memory: Option<Arc<Memory>>,
    /// Time, for all.
    pub clock: Arc<ManualClock>,
    /// The processes.
    pub processes: Vec<Process>,
    /// What was answered.
    pub book: Arc<Book>,
    setup: Setup,
    lanes: Arc<AtomicU64>,
    _dir: Option<tempfile::TempDir>,
}

impl World {
    /// Over three replicas in memory.
    pub async fn new(setup: Setup) -> Self {
        let memory = Arc::new(Memory::new(setup.seed, false, setup.faults));
        Self::over(memory.clone(), Some(memory), None, setup).await
    }

    /// Over three replicas in memory, with somebody who looks on.
    pub async fn spied(setup: Setup) -> (Self, Arc<Spy>) {
        let memory = Arc::new(Memory::new(setup.seed, false, setup.faults));
        let spy = Spy::new(memory.clone());
        (Self::over(spy.clone(), Some(memory), None, setup).await, spy)
    }

    /// Over the embedded engine, in a directory of its own.
    ///
    /// # Panics
    /// Where there is no room for it.
    pub async fn embedded(setup: Setup) -> Self {
        let dir = tempfile::tempdir().expect("a place for data");
        let engine = Embedded::open(dir.path(), &EmbeddedSettings::default()).expect("an empty directory opens");
        Self::over(Arc::new(engine), None, Some(dir), setup).await
    }

    async fn over(engine: Arc<dyn Engine>, memory: Option<Arc<Memory>>, dir: Option<tempfile::TempDir>, setup: Setup) -> Self {
        let clock = Arc::new(ManualClock::starting_at(BEGIN));
        let (book, lanes) = (Arc::new(Book::default()), Arc::new(AtomicU64::new(1)));
        let mut world = Self { engine, memory, clock, processes: Vec::new(), book, setup, lanes, _dir: dir };
        for _ in 0..world.setup.processes {
            let process = world.start().await;
            world.processes.push(process);
        }
        world
    }

    /// Starts one more process, and does not keep it.
    ///
    /// # Panics
    /// Where no lane can be registered, whatever is tried.
    pub async fn start(&self) -> Process {
        let by = self.setup.skew.get(self.processes.len()).copied().unwrap_or(0);
        let clock = Arc::new(Skewed { clock: self.clock.clone(), by });
        let protocol = Protocol::new(self.engine.clone(), clock, self.setup.settings.clone());
        let lane = loop {
            let lanes = self.lanes.clone();
            // The store may be in trouble just now.
            if let Ok(lane) = protocol.open_lane(Box::new(move || lanes.fetch_add(1, Ordering::Relaxed))).await {
                break lane;
            }
        };
        let bus = MemoryBus::new(8, self.setup.queue);
        let tap = Tap::new(bus.clone());
        let (ingest, handle) = Ingest::start(protocol.clone(), lane, tap.clone(), self.setup.ingest.clone());
        let forget = ingest.clone();
        let aggregator = Aggregator::new(protocol.clone(), bus.clone(), AggregatorSettings::default())
            .on_counted(Arc::new(move |target| forget.forget(target)));
        let handle = Mutex::new(Some(handle));
        Process { protocol, ingest, tap, bus, aggregator, handle, book: self.book.clone() }
    }

    /// Starts a process and keeps it.
    pub async fn join(&mut self) -> &Process {
        let process = self.start().await;
        self.processes.push(process);
        self.processes.last().expect("just added")
    }

    /// The engine in memory.
    ///
    /// # Panics
    /// Where the engine is another.
    pub fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("a world over the engine in memory")
    }

    /// Time goes by.
    pub fn wait(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Lets everything come to rest: no more faults, queues emptied, the journal swept.
    ///
    /// # Panics
    /// Where it does not.
    pub async fn drain(&self) {
        if let Some(memory) = &self.memory {
            memory.set_faults(Faults::none());
            memory.clear_script();
        }
        // What was late arrives; a first sweep may write.
        for _ in 0..2 {
            if let Some(memory) = &self.memory {
                memory.deliver_all();
            }
            for process in &self.processes {
                process.count().await;
            }
            self.wait(Duration::from_secs(60));
            self.sweep().await;
        }
    }

    /// One pass of the sweep, by the first process.
    ///
    /// # Panics
    /// Where the store is away.
    pub async fn sweep(&self) {
        let sweep = Sweep::new(self.processes[0].protocol.clone(), Duration::from_secs(1));
        sweep.run_once().await.expect("the store is there");
    }

    /// Drains, then checks the oracles (but O2); the facts, for what the scenario expects besides.
    pub async fn rest(&self) -> Facts {
        self.rest_with(0).await
    }

    /// The same where so many dead letters are expected.
    pub async fn rest_with(&self, dead_letters: usize) -> Facts {
        self.drain().await;
        for process in &self.processes {
            assert!(process.aggregator.idle() && process.bus.backlog() == 0, "O5: something is queued");
        }
        oracles::check(&self.processes[0].protocol, &self.book, dead_letters).await
    }
}
