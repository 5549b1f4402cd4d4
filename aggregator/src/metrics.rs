//! Names of what the aggregator and the sweep tell Prometheus. All are zero at start.

use std::sync::Arc;

use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};
use store::clock::Clock;

use crate::gauges::Lags;

/// Builds a metric whose name and help are constants of this crate.
macro_rules! metric {
    ($kind:ident, $name:literal, $help:literal) => {
        $kind::new($name, $help).expect("constant names are valid")
    };
}

fn histogram(name: &str, help: &str, buckets: Vec<f64>) -> Histogram {
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)).expect("constant names and buckets are valid")
}

/// What the aggregator counts.
#[derive(Clone)]
pub(crate) struct AggregatorMetrics {
    pub shards: IntCounter,
    pub members: IntCounter,
    pub commits: IntCounter,
    pub members_per_commit: Histogram,
    pub conflicts: IntCounter,
    pub unknowns: IntCounter,
    pub promotions: IntCounter,
    pub failures: IntCounter,
    pub given_up: IntCounter,
    pub freshness: Histogram,
    pub reconcile: Histogram,
}

impl Default for AggregatorMetrics {
    fn default() -> Self {
        Self {
            shards: metric!(IntCounter, "tally_aggregator_shards_total", "Shards reconciled"),
            members: metric!(IntCounter, "tally_aggregator_members_total", "Members named by the notices of those shards"),
            commits: metric!(IntCounter, "tally_aggregator_commits_total", "Ledger commits applied"),
            members_per_commit: histogram(
                "tally_aggregator_members_per_commit",
                "Members whose ledger rows one shard's commits raised",
                vec![1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 99.0],
            ),
            conflicts: metric!(IntCounter, "tally_aggregator_conflicts_total", "Ledger commits refused because rows had changed"),
            unknowns: metric!(IntCounter, "tally_aggregator_unknowns_total", "Ledger commits of unknown outcome"),
            promotions: metric!(IntCounter, "tally_aggregator_promotions_total", "Targets that became large"),
            failures: metric!(IntCounter, "tally_aggregator_failures_total", "Reconciles that failed and were tried again"),
            given_up: metric!(IntCounter, "tally_aggregator_given_up_total", "Shards left to the sweep after repeated failures"),
            freshness: histogram(
                "tally_freshness_seconds",
                "From a change's answer to its count being readable: the oldest change of each shard that was counted from a queue",
                vec![0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0],
            ),
            reconcile: histogram(
                "tally_aggregator_reconcile_seconds",
                "Time of one reconcile; up to 64 small targets share one",
                vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0],
            ),
        }
    }
}

impl AggregatorMetrics {
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        for counter in [
            &self.shards,
            &self.members,
            &self.commits,
            &self.conflicts,
            &self.unknowns,
            &self.promotions,
            &self.failures,
            &self.given_up,
        ] {
            registry.register(Box::new(counter.clone()))?;
        }
        registry.register(Box::new(self.members_per_commit.clone()))?;
        registry.register(Box::new(self.reconcile.clone()))?;
        registry.register(Box::new(self.freshness.clone()))
    }
}

/// What the sweep counts.
#[derive(Clone)]
pub(crate) struct SweepMetrics {
    pub passes: IntCounter,
    pub failures: IntCounter,
    pub slots: IntCounter,
    pub intents: IntCounter,
    pub rewritten: IntCounter,
    pub dead: IntCounter,
    pub retired: IntCounter,
    pub lags: Lags,
}

impl SweepMetrics {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            passes: metric!(IntCounter, "tally_sweep_passes_total", "Passes of the sweep over all lanes"),
            failures: metric!(IntCounter, "tally_sweep_failures_total", "Passes that stopped at an unavailable store"),
            slots: metric!(IntCounter, "tally_sweep_slots_total", "Journal slots with entries that were swept"),
            intents: metric!(IntCounter, "tally_sweep_intents_total", "Intents found in swept slots"),
            rewritten: metric!(
                IntCounter,
                "tally_sweep_rewritten_total",
                "Facts that had not landed and were written by the sweep"
            ),
            dead: metric!(IntCounter, "tally_sweep_dead_letters_total", "Intents that the store refused"),
            retired: metric!(
                IntCounter,
                "tally_sweep_lanes_retired_total",
                "Lanes of gone processes that were closed and retired"
            ),
            lags: Lags::new(clock),
        }
    }

    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        for counter in [&self.passes, &self.failures, &self.slots, &self.intents, &self.rewritten, &self.dead, &self.retired] {
            registry.register(Box::new(counter.clone()))?;
        }
        registry.register(Box::new(self.lags.clone()))
    }
}
