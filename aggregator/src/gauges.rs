//! Figures that are true at the moment somebody asks: lags, waits and queue lengths, computed at each scrape.
//! A gauge that its loop sets would stand still just when the loop does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::{
    Gauge, GaugeVec, IntCounter, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use schema::Micros;
use store::{
    clock::Clock,
    protocol::{LanesSwept, SweepReport},
};

use crate::MemoryBus;

const SECOND: Micros = 1_000_000;
/// After so long without a counted member the time between says nothing of how fast counting is.
const IDLE: Micros = 5 * SECOND;

/// Members counted per second, of late.
#[derive(Default)]
pub(crate) struct Drain(Mutex<Window>);

#[derive(Default)]
struct Window {
    since: Micros,
    last: Micros,
    members: u64,
    rate: f64,
}

impl Drain {
    /// `members` were counted.
    pub fn add(&self, now: Micros, members: u64) {
        let mut window = lock(&self.0);
        if now.saturating_sub(window.last) > IDLE {
            (window.since, window.members) = (now, 0);
        }
        window.last = now;
        window.members += members;
        let lasted = now.saturating_sub(window.since);
        if lasted >= SECOND {
            let rate = window.members as f64 / seconds(lasted);
            window.rate = if window.rate > 0.0 { f64::midpoint(window.rate, rate) } else { rate };
            (window.since, window.members) = (now, 0);
        }
    }

    /// 0: not known yet.
    fn rate(&self) -> f64 {
        lock(&self.0).rate
    }
}

/// The queues' figures.
pub(crate) struct BusMetrics {
    bus: Arc<MemoryBus>,
    clock: Arc<dyn Clock>,
    drain: Arc<Drain>,
    descriptions: Vec<Desc>,
}

const PUBLISHED: (&str, &str) = ("tally_events_published_total", "Members named by events that a queue took in");
const DROPPED: (&str, &str) = ("tally_events_dropped_total", "Members whose event found its queue full; the sweep counts them");
const BACKLOG: (&str, &str) = ("tally_events_backlog", "Members that wait to be looked at");
const FULLEST: (&str, &str) = ("tally_events_fullest_queue", "Members in the fullest of the queues");
const OLDEST: (&str, &str) = ("tally_events_oldest_seconds", "Age of the oldest change that stands first in a queue");
const WAIT: (&str, &str) =
    ("tally_events_estimated_wait_seconds", "Backlog by the members counted per second of late; at least the age of the oldest");

impl BusMetrics {
    pub fn new(bus: Arc<MemoryBus>, clock: Arc<dyn Clock>, drain: Arc<Drain>) -> Self {
        let descriptions = [PUBLISHED, DROPPED, BACKLOG, FULLEST, OLDEST, WAIT].map(|what| describe(what, &[])).into();
        Self { bus, clock, drain, descriptions }
    }
}

impl Collector for BusMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (published, dropped) = self.bus.totals();
        let (fullest, first) = self.bus.fullest_and_first();
        let backlog = self.bus.backlog() as f64;
        let oldest = first.map_or(0.0, |at| seconds(self.clock.now().saturating_sub(at)));
        let rate = self.drain.rate();
        let wait = if rate > 0.0 { oldest.max(backlog / rate) } else { oldest };
        let counter = |(name, help): (&str, &str), value: u64| {
            let counter = IntCounter::new(name, help).expect("constant names are valid");
            counter.inc_by(value);
            counter.collect()
        };
        [
            counter(PUBLISHED, published),
            counter(DROPPED, dropped),
            gauge(BACKLOG, backlog),
            gauge(FULLEST, fullest as f64),
            gauge(OLDEST, oldest),
            gauge(WAIT, wait),
        ]
        .concat()
    }
}

/// How far behind now the sweep is.
#[derive(Clone)]
pub(crate) struct Lags {
    clock: Arc<dyn Clock>,
    /// Of the last pass that came to its end.
    last: Arc<Mutex<Option<SweepReport>>>,
    descriptions: Vec<Desc>,
}

const LAG: (&str, &str) = ("tally_sweep_lag_seconds", "Store time minus complete_until");
const LANE_LAG: (&str, &str) =
    ("tally_sweep_lane_lag_seconds", "Store time minus the end of what is swept of the lane that is furthest behind, by state");
const LANES: (&str, &str) =
    ("tally_sweep_lanes", "Journal lanes that are not retired, by whether their process gives signs of life");
const STATE: &str = "state";

impl Lags {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let descriptions = vec![describe(LAG, &[]), describe(LANE_LAG, &[STATE]), describe(LANES, &[STATE])];
        Self { clock, last: Arc::default(), descriptions }
    }

    pub fn set(&self, report: &SweepReport) {
        *lock(&self.last) = Some(report.clone());
    }
}

impl Collector for Lags {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let now = self.clock.now();
        let last = lock(&self.last).clone();
        let behind = |until: Option<Micros>| until.map_or(0.0, |until| seconds(now.saturating_sub(until)));
        let report = last.as_ref();
        let sorts: [(&str, LanesSwept); 2] =
            [("live", report.map(|r| r.live).unwrap_or_default()), ("gone", report.map(|r| r.gone).unwrap_or_default())];
        let by_state = |(name, help): (&str, &str), value: &dyn Fn(&LanesSwept) -> f64| {
            let gauges = GaugeVec::new(Opts::new(name, help), &[STATE]).expect("constant names are valid");
            for (state, swept) in &sorts {
                gauges.with_label_values(&[state]).set(value(swept));
            }
            gauges.collect()
        };
        [
            gauge(LAG, behind(report.map(|r| r.complete_until))),
            by_state(LANE_LAG, &|swept| behind(swept.until)),
            by_state(LANES, &|swept| swept.lanes as f64),
        ]
        .concat()
    }
}

fn describe((name, help): (&str, &str), labels: &[&str]) -> Desc {
    let labels = labels.iter().map(|&label| label.to_owned()).collect();
    Desc::new(name.to_owned(), help.to_owned(), labels, Default::default()).expect("constant names are valid")
}

fn gauge((name, help): (&str, &str), value: f64) -> Vec<MetricFamily> {
    let gauge = Gauge::new(name, help).expect("constant names are valid");
    gauge.set(value);
    gauge.collect()
}

fn seconds(micros: Micros) -> f64 {
    micros.max(0) as f64 / SECOND as f64
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_busy_time() {
        let drain = Drain::default();
        let start = 1_000 * SECOND;
        for tenth in 0..=10 {
            drain.add(start + tenth * SECOND / 10, 10);
        }
        assert!((drain.rate() - 110.0).abs() < 1.0, "{}", drain.rate());
        // An hour in which nothing came makes nothing slower.
        drain.add(start + 3_600 * SECOND, 1);
        assert!((drain.rate() - 110.0).abs() < 1.0, "{}", drain.rate());
    }
}
