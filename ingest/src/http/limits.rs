//! How often a key may ask, a user may write, and a target may be written to: GCRA, by `governor`.
//!
//! "You send too fast" (429 `limited`) is not "we have no room" (503 `no-capacity`). Withdrawing is
//! never limited by user or target (design, section 5), and neither are imports.

use std::{
    hash::Hash,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use governor::{
    NotUntil, Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::NoOpMiddleware,
    state::keyed::DashMapStateStore,
};
use prometheus::IntCounter;
use schema::{TargetKey, UserKey};

use super::Problem;
use crate::metrics::HttpMetrics;

/// Most keys, users or targets of one layer that are remembered. Those that were quiet for a while
/// are forgotten first; above it new ones are let in unlimited, so that memory stays bounded.
const MAX_REMEMBERED: usize = 200_000;
/// Checks between two looks at how many are remembered.
const CHECKS_A_LOOK: u32 = 4096;

/// A rate with a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second that are always let in.
    pub per_second: NonZeroU32,
    /// Requests that may come at once.
    pub burst: NonZeroU32,
}

/// The limits of all layers; `None`: no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    /// Requests of one key, items of a batch counted each.
    pub key: Option<Rate>,
    /// Likes of one user.
    pub user: Option<Rate>,
    /// Likes of one target.
    pub target: Option<Rate>,
}

/// One layer.
struct Layer<K: Hash + Eq + Clone, C: Clock> {
    name: &'static str,
    rate: Rate,
    limiter: RateLimiter<K, DashMapStateStore<K>, C, NoOpMiddleware<C::Instant>>,
    clock: C,
    hits: IntCounter,
    checks: AtomicU32,
}

impl<K: Hash + Eq + Clone, C: Clock + Clone> Layer<K, C> {
    fn new(name: &'static str, rate: Rate, clock: C, metrics: &HttpMetrics) -> Self {
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        let limiter = RateLimiter::dashmap_with_clock(quota, clock.clone());
        Self { name, rate, limiter, clock, hits: metrics.limited.with_label_values(&[name]), checks: AtomicU32::new(0) }
    }

    fn check(&self, key: &K, n: NonZeroU32) -> Result<(), Problem> {
        if self.checks.fetch_add(1, Ordering::Relaxed) % CHECKS_A_LOOK == CHECKS_A_LOOK - 1
            && self.limiter.len() > MAX_REMEMBERED / 2
        {
            self.limiter.retain_recent();
        }
        if self.limiter.len() > MAX_REMEMBERED {
            return Ok(());
        }
        match self.limiter.check_key_n(key, n) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(not_until)) => Err(self.hit(self.wait(&not_until))),
            // More at once than the burst will ever be.
            Err(_) => Err(self.hit(Duration::from_secs(1))),
        }
    }

    fn wait(&self, until: &NotUntil<C::Instant>) -> Duration {
        until.wait_time_from(self.clock.now())
    }

    fn hit(&self, wait: Duration) -> Problem {
        self.hits.inc();
        Problem::limited(self.name, self.rate.burst.get(), self.rate.per_second.get(), wait)
    }
}

/// All layers.
pub(super) struct Limits<C: Clock = DefaultClock> {
    key: Option<Layer<Arc<str>, C>>,
    user: Option<Layer<UserKey, C>>,
    target: Option<Layer<TargetKey, C>>,
}

impl<C: Clock + Clone> Limits<C> {
    pub(super) fn new(rates: Rates, clock: C, metrics: &HttpMetrics) -> Self {
        Self {
            key: rates.key.map(|rate| Layer::new("key", rate, clock.clone(), metrics)),
            user: rates.user.map(|rate| Layer::new("user", rate, clock.clone(), metrics)),
            target: rates.target.map(|rate| Layer::new("target", rate, clock, metrics)),
        }
    }

    /// `n` requests of a key; 0 is free.
    pub(super) fn key(&self, name: &Arc<str>, n: usize) -> Result<(), Problem> {
        let n = NonZeroU32::new(u32::try_from(n).unwrap_or(u32::MAX));
        match (&self.key, n) {
            (Some(layer), Some(n)) => layer.check(name, n),
            _ => Ok(()),
        }
    }

    /// One like.
    pub(super) fn like(&self, key: &schema::FactKey) -> Result<(), Problem> {
        if let Some(layer) = &self.user {
            layer.check(&UserKey::of(&key.target, &key.member), NonZeroU32::MIN)?;
        }
        match &self.target {
            Some(layer) => layer.check(&key.target, NonZeroU32::MIN),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;
    use schema::{FactKey, KindName, Member};

    use super::*;

    fn rate(per_second: u32, burst: u32) -> Rate {
        Rate { per_second: NonZeroU32::new(per_second).unwrap(), burst: NonZeroU32::new(burst).unwrap() }
    }

    fn fact(target: &str, user: &str) -> FactKey {
        let kind = KindName::parse("like").unwrap();
        FactKey { target: TargetKey::parse(target).unwrap(), kind, member: Member::parse(user).unwrap() }
    }

    #[test]
    fn a_burst_is_let_in_and_then_the_rate() {
        let clock = FakeRelativeClock::default();
        let metrics = HttpMetrics::default();
        let limits = Limits::new(Rates { key: Some(rate(10, 3)), ..Rates::default() }, clock.clone(), &metrics);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert!(limits.key(&a, 2).is_ok() && limits.key(&a, 1).is_ok());
        let problem = limits.key(&a, 1).unwrap_err();
        assert_eq!((problem.status, problem.kind.as_str()), (429, "/problems/limited"));
        assert!(limits.key(&b, 3).is_ok(), "another key has its own");
        assert!(limits.key(&b, 4).is_err() && limits.key(&b, 0).is_ok());
        clock.advance(Duration::from_millis(100));
        assert!(limits.key(&a, 1).is_ok());
        assert!(limits.key(&a, 1).is_err());
        assert_eq!(metrics.limited.with_label_values(&["key"]).get(), 3);
    }

    #[test]
    fn users_and_targets_are_limited_apart_and_memory_is_bounded() {
        let clock = FakeRelativeClock::default();
        let metrics = HttpMetrics::default();
        let rates = Rates { user: Some(rate(1, 1)), target: Some(rate(1, 2)), ..Rates::default() };
        let limits = Limits::new(rates, clock.clone(), &metrics);
        assert!(limits.like(&fact("n/p", "u1")).is_ok());
        assert!(limits.like(&fact("n/q", "u1")).is_err(), "the user");
        assert!(limits.like(&fact("n/p", "u2")).is_ok());
        assert!(limits.like(&fact("n/p", "u3")).is_err(), "the target");
        assert_eq!(metrics.limited.with_label_values(&["user"]).get(), 1);
        assert_eq!(metrics.limited.with_label_values(&["target"]).get(), 1);
        for n in 0..MAX_REMEMBERED / 2 + 2 * CHECKS_A_LOOK as usize {
            clock.advance(Duration::from_millis(1));
            assert!(limits.like(&fact(&format!("n/{n}"), &format!("v{n}"))).is_ok());
        }
        assert!(limits.user.as_ref().unwrap().limiter.len() <= MAX_REMEMBERED / 2 + CHECKS_A_LOOK as usize);
    }
}
