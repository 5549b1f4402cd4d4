//! Names of what ingest tells Prometheus. All are zero at start; labels are constants and route
//! templates, never ids.

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::Bar;

/// Outcome words of a write, as labels.
pub(crate) const OUTCOMES: [&str; 7] = ["applied", "unchanged", "superseded", "accepted", "rejected", "unavailable", "unknown"];

/// Classes of HTTP answers, as labels.
pub(crate) const CLASSES: [&str; 4] = ["2xx", "4xx", "429", "5xx"];

/// Layers of limits, as labels.
pub(crate) const LAYERS: [&str; 4] = ["requests", "key", "user", "target"];

/// What ingest counts.
#[derive(Clone)]
pub(crate) struct IngestMetrics {
    pub queue: IntGauge,
    pub batch: Histogram,
    pub shared: IntCounter,
    pub no_capacity: IntCounter,
    outcomes: IntCounterVec,
    /// Those of [`OUTCOMES`], in order, looked up once.
    by_outcome: [IntCounter; OUTCOMES.len()],
    pub barred: IntCounterVec,
    pub traced: IntCounter,
    pub cache_hits: IntCounter,
    pub cache_loads: IntCounter,
    pub stale_answers: IntCounter,
}

/// What the HTTP side counts; it exists before the store is open.
#[derive(Clone)]
pub(crate) struct HttpMetrics {
    pub requests: IntCounterVec,
    pub limited: IntCounterVec,
    pub seconds: HistogramVec,
}

impl Default for IngestMetrics {
    fn default() -> Self {
        let counter = |name: &str, help: &str| IntCounter::new(name, help).expect("constant names are valid");
        let batch = HistogramOpts::new("tally_ingest_batch_requests", "Requests of one micro-batch")
            .buckets(vec![1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        let outcomes = counters("tally_ingest_outcomes_total", "Answers to writes, by outcome", &["outcome"]);
        let metrics = Self {
            queue: IntGauge::new("tally_ingest_queue", "Requests that wait for a micro-batch").expect("constant names are valid"),
            batch: Histogram::with_opts(batch).expect("constant buckets are valid"),
            shared: counter("tally_ingest_shared_writes_total", "Requests that were served by an identical one that waited"),
            no_capacity: counter("tally_ingest_no_capacity_total", "Requests refused because the queue was full"),
            by_outcome: OUTCOMES.map(|outcome| outcomes.with_label_values(&[outcome])),
            outcomes,
            traced: counter("tally_ingest_traced_writes_total", "Writes whose trace was followed"),
            barred: counters("tally_ingest_barred_total", "Writes refused by a status, by status", &["status"]),
            cache_hits: counter("tally_counts_cache_hits_total", "Counts answered from memory"),
            cache_loads: counter("tally_counts_cache_loads_total", "Counts read from the store"),
            stale_answers: counter("tally_counts_stale_total", "Counts answered with stale: true"),
        };
        for bar in Bar::ALL {
            metrics.barred.with_label_values(&[bar.name()]);
        }
        metrics
    }
}

impl Default for HttpMetrics {
    fn default() -> Self {
        let seconds = HistogramOpts::new("tally_http_request_seconds", "Time to answer, by route")
            .buckets(vec![0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
        let limited = counters("tally_limits_hit_total", "Requests and items refused by a limit, by layer", &["layer"]);
        for layer in LAYERS {
            limited.with_label_values(&[layer]);
        }
        Self {
            limited,
            requests: counters("tally_http_requests_total", "HTTP answers, by route and class", &["route", "class"]),
            seconds: HistogramVec::new(seconds, &["route"]).expect("constant buckets are valid"),
        }
    }
}

impl HttpMetrics {
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.requests.clone()))?;
        registry.register(Box::new(self.limited.clone()))?;
        registry.register(Box::new(self.seconds.clone()))
    }
}

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect("constant names are valid")
}

impl IngestMetrics {
    /// One answer, by its word.
    pub fn outcome(&self, word: &str) {
        let place = OUTCOMES.iter().position(|outcome| *outcome == word).expect("outcomes are constants");
        self.by_outcome[place].inc();
    }

    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.queue.clone()))?;
        registry.register(Box::new(self.batch.clone()))?;
        for counter in [&self.shared, &self.no_capacity, &self.traced, &self.cache_hits, &self.cache_loads, &self.stale_answers] {
            registry.register(Box::new(counter.clone()))?;
        }
        registry.register(Box::new(self.barred.clone()))?;
        registry.register(Box::new(self.outcomes.clone()))
    }
}
