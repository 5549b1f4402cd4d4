//! A single-threaded executor whose every decision comes from a seed, and the virtual time that
//! goes with it. Also driven by hand: directed schedules poll one task a given number of times,
//! hold it, run others, and drop it at an await of their choice.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures::future::BoxFuture;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use schema::Micros;
use store::clock::Clock;

/// Where virtual time begins: a plausible store time, so that versions look like real ones.
pub const START: Micros = 1_700_000_000_000_000;

/// Virtual time, shared by all clocks of a simulation.
#[derive(Default)]
pub struct VirtualTime {
    now: AtomicI64,
    timers: Mutex<BTreeMap<(Micros, u64), Waker>>,
    next_timer: AtomicI64,
}

impl VirtualTime {
    /// Starts at [`START`].
    pub fn new() -> Arc<Self> {
        Arc::new(Self { now: AtomicI64::new(START), ..Self::default() })
    }

    /// Microseconds, without any process's clock error.
    pub fn now(&self) -> Micros {
        self.now.load(Ordering::Relaxed)
    }

    /// Moves on and wakes whoever has slept long enough.
    pub fn advance(&self, by: Micros) {
        let now = self.now.fetch_add(by, Ordering::Relaxed) + by;
        let mut timers = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        let later = timers.split_off(&(now + 1, 0));
        for waker in std::mem::replace(&mut *timers, later).into_values() {
            waker.wake();
        }
    }

    /// When the next sleeper is due.
    pub fn next_timer(&self) -> Option<Micros> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner).first_key_value().map(|(&(at, _), _)| at)
    }

    fn register(&self, at: Micros, waker: &Waker) {
        let id = u64::try_from(self.next_timer.fetch_add(1, Ordering::Relaxed)).expect("counts up from 0");
        self.timers.lock().unwrap_or_else(PoisonError::into_inner).insert((at, id), waker.clone());
    }
}

/// One process's view of virtual time: off by a constant, and coarse if so wished.
pub struct SimClock {
    time: Arc<VirtualTime>,
    offset: Micros,
    tick: Micros,
    last: AtomicI64,
}

impl SimClock {
    /// A clock that is `offset` ahead and counts in steps of `tick` microseconds (at least 1).
    pub fn new(time: Arc<VirtualTime>, offset: Micros, tick: Micros) -> Self {
        Self { time, offset, tick: tick.max(1), last: AtomicI64::new(0) }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Micros {
        let now = (self.time.now() + self.offset).div_euclid(self.tick) * self.tick;
        self.last.fetch_max(now, Ordering::Relaxed).max(now)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let time = self.time.clone();
        let until = time.now().saturating_add(Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX));
        Box::pin(std::future::poll_fn(move |context| {
            if time.now() >= until {
                return Poll::Ready(());
            }
            time.register(until, context.waker());
            Poll::Pending
        }))
    }
}

/// Set when a task can go on.
struct Ready(AtomicBool);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Names a task for as long as the executor lives.
pub type TaskId = u64;

/// Whose task it is: it dies with its process.
pub type Owner = usize;

struct Task {
    id: TaskId,
    owner: Owner,
    label: String,
    future: Pin<Box<dyn Future<Output = ()>>>,
    ready: Arc<Ready>,
    paused_until: Micros,
}

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A task was polled and waits again.
    Ran(TaskId),
    /// A task came to its end.
    Finished(TaskId),
    /// Nobody could run; time has moved to the next timer or end of a pause.
    Waited,
    /// There are no tasks, or none will ever be woken.
    Idle,
}

/// Runs tasks one poll at a time.
pub struct Executor {
    time: Arc<VirtualTime>,
    tasks: Vec<Task>,
    next: TaskId,
    /// Digest of all decisions: equal for equal runs.
    digest: u64,
    /// Every decision in words, if wanted.
    trace: Option<Vec<String>>,
}

impl Executor {
    /// An executor over `time`; keeps a trace in words if `tracing`.
    pub fn new(time: Arc<VirtualTime>, tracing: bool) -> Self {
        Self { time, tasks: Vec::new(), next: 1, digest: 0xcbf2_9ce4_8422_2325, trace: tracing.then(Vec::new) }
    }

    /// Adds a task; it runs when its turn comes.
    pub fn spawn(&mut self, owner: Owner, label: impl Into<String>, future: impl Future<Output = ()> + 'static) -> TaskId {
        let id = self.next;
        self.next += 1;
        let label = label.into();
        self.note(|| format!("spawn {id} {label}"), id);
        let ready = Arc::new(Ready(AtomicBool::new(true)));
        self.tasks.push(Task { id, owner, label, future: Box::pin(future), ready, paused_until: 0 });
        id
    }

    /// Whether the task has not come to its end.
    pub fn alive(&self, id: TaskId) -> bool {
        self.tasks.iter().any(|t| t.id == id)
    }

    /// Those that have not come to their end, in the order in which they began.
    pub fn ids(&self) -> Vec<TaskId> {
        self.tasks.iter().map(|t| t.id).collect()
    }

    /// Tasks that have not come to their end.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Labels of the tasks that have not come to their end.
    pub fn labels(&self) -> Vec<String> {
        self.tasks.iter().map(|t| t.label.clone()).collect()
    }

    /// Drops a task at the await where it is: death.
    pub fn kill(&mut self, id: TaskId) {
        self.note(|| format!("kill {id}"), id);
        self.tasks.retain(|t| t.id != id);
    }

    /// Drops all tasks of a process.
    pub fn kill_owner(&mut self, owner: Owner) {
        self.note(|| format!("kill all of {owner}"), owner as u64);
        self.tasks.retain(|t| t.owner != owner);
    }

    /// Polls one task drawn from `rng`, or pauses it instead (one time in `1/pause`), for up to
    /// `longest` microseconds. Time moves on by `tick`.
    pub fn step(&mut self, rng: &mut ChaCha8Rng, pause: f64, longest: Micros, tick: Micros) -> Step {
        self.time.advance(tick);
        let now = self.time.now();
        let able = |t: &Task| t.paused_until <= now && t.ready.0.load(Ordering::Relaxed);
        let awake: Vec<usize> = (0..self.tasks.len()).filter(|&i| able(&self.tasks[i])).collect();
        if awake.is_empty() {
            return self.wait();
        }
        let at = awake[rng.random_range(0..awake.len())];
        if pause > 0.0 && rng.random_bool(pause) {
            let until = now + rng.random_range(1..=longest.max(1));
            self.tasks[at].paused_until = until;
            let id = self.tasks[at].id;
            self.note(|| format!("pause {id} until +{}", until - START), id);
            return Step::Ran(id);
        }
        self.poll_at(at)
    }

    /// Polls one task once, whether or not it was woken. Whether it is still alive.
    pub fn poll(&mut self, id: TaskId) -> bool {
        match self.tasks.iter().position(|t| t.id == id) {
            Some(at) => matches!(self.poll_at(at), Step::Ran(_)),
            None => false,
        }
    }

    /// Polls one task `times` times; it must still be alive then.
    ///
    /// # Panics
    /// When the task ends earlier: the schedule is not the one that its author had in mind.
    pub fn poll_times(&mut self, id: TaskId, times: usize) {
        for n in 0..times {
            assert!(self.poll(id), "task {id} ended at poll {} of {times}", n + 1);
        }
    }

    /// Runs one task alone to its end, moving time where it sleeps.
    ///
    /// # Panics
    /// When it does not end within 100,000 polls.
    pub fn run(&mut self, id: TaskId) {
        for _ in 0..100_000 {
            let Some(at) = self.tasks.iter().position(|t| t.id == id) else { return };
            if self.tasks[at].ready.0.load(Ordering::Relaxed) {
                self.poll_at(at);
            } else {
                let due = self.time.next_timer().map_or(1, |at| (at - self.time.now()).max(1));
                self.time.advance(due);
            }
        }
        panic!("task {id} does not come to an end");
    }

    /// Digest of everything decided so far.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// What was decided, in words; empty without tracing.
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Adds to the trace.
    pub fn note(&mut self, text: impl FnOnce() -> String, value: u64) {
        self.digest = (self.digest ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(5);
        let at = self.time.now() - START;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{at:>8} {}", text()));
        }
    }

    fn poll_at(&mut self, at: usize) -> Step {
        let (id, waker) = (self.tasks[at].id, Waker::from(self.tasks[at].ready.clone()));
        self.note(|| format!("poll {id}"), id ^ (self.time.now() as u64).rotate_left(32));
        let task = &mut self.tasks[at];
        task.ready.0.store(false, Ordering::Relaxed);
        match task.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => Step::Ran(id),
            Poll::Ready(()) => {
                let task = self.tasks.remove(at);
                self.note(|| format!("done {id} {}", task.label), id);
                Step::Finished(id)
            }
        }
    }

    fn wait(&mut self) -> Step {
        let now = self.time.now();
        let paused = self.tasks.iter().filter(|t| t.paused_until > now).map(|t| t.paused_until).min();
        let Some(due) = self.time.next_timer().into_iter().chain(paused).min() else { return Step::Idle };
        if self.tasks.is_empty() {
            return Step::Idle;
        }
        self.time.advance((due - now).max(0));
        Step::Waited
    }
}
