//! Metrics of all runs of this process.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use prometheus::{
    IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use schema::{Kinds, Micros};
use store::clock::Clock;

use crate::{Cause, Drift};

/// Label of a kind that is not configured: a damaged row may name any.
const OTHER: &str = "other";

/// Counters; the labels are there from the start.
#[derive(Clone)]
pub(crate) struct Metrics {
    found: IntCounterVec,
    repaired: IntCounterVec,
    pub facts: IntCounter,
    pub runs: IntCounter,
    pub frozen: IntCounter,
    pub ages: Ages,
    kinds: Arc<[String]>,
}

impl Metrics {
    pub fn new(clock: Arc<dyn Clock>, kinds: &Kinds) -> Self {
        let names: Arc<[String]> = kinds.iter().map(|k| k.name.to_string()).collect();
        let by_cause = |name: &str, help: &str| {
            let counters = IntCounterVec::new(Opts::new(name, help), &["kind", "cause"]).expect("constant names are valid");
            for kind in names.iter().map(String::as_str).chain([OTHER]) {
                for cause in Cause::ALL {
                    counters.with_label_values(&[kind, cause.name()]);
                }
            }
            counters
        };
        let counter = |name: &str, help: &str| IntCounter::new(name, help).expect("constant names are valid");
        Self {
            found: by_cause("tally_rebuild_drift_found_total", "Places where a projection differed from the facts"),
            repaired: by_cause("tally_rebuild_drift_repaired_total", "Places that were repaired"),
            facts: counter("tally_rebuild_facts_checked_total", "Fact rows checked by verify and rebuild"),
            runs: counter("tally_rebuild_runs_total", "Runs of verify and rebuild that were begun"),
            frozen: counter("tally_rebuild_frozen_total", "Rebuilds that stopped to repair because of too much drift"),
            ages: Ages::new(clock),
            kinds: names.clone(),
        }
    }

    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.found.clone()))?;
        registry.register(Box::new(self.repaired.clone()))?;
        registry.register(Box::new(self.facts.clone()))?;
        registry.register(Box::new(self.runs.clone()))?;
        registry.register(Box::new(self.frozen.clone()))?;
        registry.register(Box::new(self.ages.clone()))
    }

    pub fn add(&self, drift: &Drift) {
        let known = self.kinds.contains(&drift.kind);
        let label = [if known { drift.kind.as_str() } else { OTHER }, drift.cause.name()];
        self.found.with_label_values(&label).inc();
        if drift.repaired {
            self.repaired.with_label_values(&label).inc();
        }
    }
}

/// How long ago parts of the key space were verified, computed when somebody asks.
#[derive(Clone)]
pub(crate) struct Ages {
    clock: Arc<dyn Clock>,
    /// When the part was verified that was so longest ago; 0: none was.
    oldest: Arc<AtomicI64>,
    never: Arc<AtomicI64>,
    descriptions: Vec<Desc>,
}

const OLDEST: (&str, &str) =
    ("tally_rebuild_oldest_part_age_seconds", "Age of the part of the key space verified longest ago, of those that ever were");
const NEVER: (&str, &str) = ("tally_rebuild_parts_never_verified", "Parts of the key space that were never verified");

impl Ages {
    fn new(clock: Arc<dyn Clock>) -> Self {
        let describe = |(name, help): (&str, &str)| {
            Desc::new(name.to_owned(), help.to_owned(), Vec::new(), Default::default()).expect("constant names are valid")
        };
        let descriptions = vec![describe(OLDEST), describe(NEVER)];
        Self { clock, oldest: Arc::default(), never: Arc::default(), descriptions }
    }

    pub fn set(&self, oldest: Option<Micros>, never: u32) {
        self.oldest.store(oldest.unwrap_or(0), Ordering::Relaxed);
        self.never.store(i64::from(never), Ordering::Relaxed);
    }
}

impl Collector for Ages {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let oldest = self.oldest.load(Ordering::Relaxed);
        let age = if oldest == 0 { 0 } else { self.clock.now().saturating_sub(oldest) / 1_000_000 };
        let gauge = |(name, help): (&str, &str), value: i64| {
            let gauge = IntGauge::new(name, help).expect("constant names are valid");
            gauge.set(value);
            gauge.collect()
        };
        [gauge(OLDEST, age), gauge(NEVER, self.never.load(Ordering::Relaxed))].concat()
    }
}
