//! The store's numbers for Prometheus, read when somebody asks.

use std::sync::Arc;

use prometheus::{
    IntCounter, IntGauge,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use store::embedded::Embedded;

/// Reads [`Embedded::stats`] at each scrape.
pub struct StoreMetrics {
    engine: Arc<Embedded>,
    descriptions: Vec<Desc>,
}

/// Name, meaning, value, and whether it only grows.
type Row = (&'static str, &'static str, u64, bool);

impl StoreMetrics {
    /// Metrics of `engine`.
    pub fn new(engine: Arc<Embedded>) -> Self {
        let describe = |(name, help, ..): Row| {
            Desc::new(name.to_owned(), help.to_owned(), Vec::new(), Default::default()).expect("constant names are valid")
        };
        let descriptions = rows(&engine).into_iter().map(describe).collect();
        Self { engine, descriptions }
    }
}

fn rows(engine: &Embedded) -> [Row; 9] {
    let s = engine.stats();
    [
        ("tally_store_queue", "Writes that wait for the store's writer or for their commit", s.queued, false),
        ("tally_store_jobs_total", "Writes answered by the store", s.jobs, true),
        ("tally_store_groups_total", "Commits", s.groups, true),
        ("tally_store_rows_total", "Rows committed", s.rows, true),
        ("tally_store_durable_groups_total", "Commits that waited for the disk", s.durable_groups, true),
        ("tally_store_durable_microseconds_total", "Time spent in those", s.durable_micros, true),
        ("tally_store_stalls_total", "Times the writer waited for memtables to be written out", s.stalls, true),
        ("tally_store_disk_bytes", "Size of the store's files", s.disk_bytes, false),
        ("tally_store_journal_bytes", "Part of it that is replayed after a crash", s.journal_bytes, false),
    ]
}

impl Collector for StoreMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let family = |(name, help, value, grows): Row| {
            if grows {
                let counter = IntCounter::new(name, help).expect("constant names are valid");
                counter.inc_by(value);
                counter.collect()
            } else {
                let gauge = IntGauge::new(name, help).expect("constant names are valid");
                gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
                gauge.collect()
            }
        };
        rows(&self.engine).into_iter().flat_map(family).collect()
    }
}
