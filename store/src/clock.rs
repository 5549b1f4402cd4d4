//! Store time: the only source of versions, slots and `as_of` (design, section 9).
#![allow(clippy::disallowed_methods, reason = "the one place that reads the system's clocks")]

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures::future::BoxFuture;
use schema::Micros;

/// Store time and waiting; injected, so that tests own time.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since 1970; never less than an earlier answer of the same clock.
    fn now(&self) -> Micros;
    /// Waits.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The system clock of a single-process deployment, never behind what it already gave out.
#[derive(Debug, Default)]
pub struct SystemClock {
    last: AtomicI64,
}

impl SystemClock {
    /// A clock that starts at `floor` or at the system's time, whichever is later. The floor is
    /// what an earlier process of this store gave out.
    pub fn starting_at(floor: Micros) -> Self {
        Self { last: AtomicI64::new(floor) }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let system = Micros::try_from(since_1970.as_micros()).unwrap_or(Micros::MAX);
        self.last.fetch_max(system, Ordering::Relaxed).max(system)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Measures a duration on the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock that moves only when told to, or when somebody sleeps on it: for tests.
#[derive(Debug)]
pub struct ManualClock(std::sync::Arc<AtomicI64>);

impl ManualClock {
    /// Starts at `now`.
    pub fn starting_at(now: Micros) -> Self {
        Self(std::sync::Arc::new(AtomicI64::new(now)))
    }

    /// Moves on.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(Micros::try_from(by.as_micros()).unwrap_or(Micros::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let now = self.0.clone();
        Box::pin(async move {
            now.fetch_add(Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX), Ordering::SeqCst);
        })
    }
}
