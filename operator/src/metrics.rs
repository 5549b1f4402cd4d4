//! Names of what the operators' work tells Prometheus; all zero at start.

use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

/// How a run ended, as a label.
const ENDS: [&str; 3] = ["done", "cancelled", "failed"];
/// What became of a register of a run, as a label.
const EFFECTS: [&str; 4] = ["changed", "unchanged", "superseded", "refused"];

pub(crate) struct Metrics {
    pub runs: IntCounterVec,
    pub members: IntCounterVec,
    pub waiting: IntGauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let counters = |name: &str, help: &str, label: &str, values: &[&str]| {
            let made = IntCounterVec::new(Opts::new(name, help), &[label]).expect("constant names are valid");
            for value in values {
                made.with_label_values(&[value]);
            }
            made
        };
        let waiting = IntGauge::new("tally_hide_runs_waiting", "Hide runs that wait or run").expect("constant names are valid");
        Self {
            runs: counters("tally_hide_runs_total", "Hide runs ended, by how", "end", &ENDS),
            members: counters("tally_hide_members_total", "Registers written by hide runs, by effect", "effect", &EFFECTS),
            waiting,
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.runs.clone()))?;
        registry.register(Box::new(self.members.clone()))?;
        registry.register(Box::new(self.waiting.clone()))
    }

    /// Books one chunk: changed, unchanged, superseded, refused.
    pub fn chunk(&self, effects: [u64; 4]) {
        for (name, n) in EFFECTS.iter().zip(effects) {
            self.members.with_label_values(&[name]).inc_by(n);
        }
    }
}
