//! What a run found.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use schema::{Counts, Micros};
use serde::{Deserialize, Serialize};

/// Most drifted places that a report lists; all are counted.
pub const MAX_LISTED: usize = 1000;

/// In what way a projection differed from the facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A fact that nobody has counted.
    Uncounted,
    /// Something is counted that the facts do not hold.
    Overcounted,
    /// A ledger head's counts are not its counted rows.
    Count,
    /// A counter row is not what its shard was counted to be.
    Counter,
    /// A per-user index row is missing, wrong, or without a fact.
    Index,
    /// A leaf's list by time is not its counted rows.
    Listing,
    /// The ledger knows a newer state than the facts: a fact was lost.
    FactLost,
}

impl Cause {
    /// All of them, in the order in which reports name them.
    pub const ALL: [Self; 7] =
        [Self::Uncounted, Self::Overcounted, Self::Count, Self::Counter, Self::Index, Self::Listing, Self::FactLost];

    /// Its name in reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uncounted => "uncounted",
            Self::Overcounted => "overcounted",
            Self::Count => "count",
            Self::Counter => "counter",
            Self::Index => "index",
            Self::Listing => "listing",
            Self::FactLost => "fact-lost",
        }
    }
}

/// One place where a projection differed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// `namespace/id` of the target.
    pub target: String,
    /// The kind.
    pub kind: String,
    /// 1: the root; 16 and more: a leaf.
    pub shard: u16,
    /// The member concerned, where it is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub member: Option<String>,
    /// In what way it differed.
    pub cause: Cause,
    /// What the projection said.
    pub before: String,
    /// What the facts say.
    pub after: String,
    /// Members counted by the projection, where it is a count that differed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before_total: Option<i64>,
    /// Members that are to be counted, where it is a count that differed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after_total: Option<i64>,
    /// Whether a repair was made and a further look found nothing.
    pub repaired: bool,
}

impl Drift {
    pub(crate) fn totals(mut self, before: Option<&Counts>, after: Option<&Counts>) -> Self {
        (self.before_total, self.after_total) = (before.map(Counts::total), after.map(Counts::total));
        self
    }

    /// By how many members a count was wrong, where it is known.
    pub fn size(&self) -> Option<u64> {
        Some(self.after_total?.abs_diff(self.before_total?))
    }
}

/// Drift of one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CauseTotals {
    /// Places found.
    pub found: u64,
    /// Places repaired.
    pub repaired: u64,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Begun, and not ended yet; or its process is gone.
    #[default]
    Running,
    /// Ended.
    Done,
    /// Ended by an error.
    Failed,
}

/// The result of `verify` or `rebuild`, and its record in the store.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Names the run; later runs have larger ids. Empty before it is recorded.
    #[serde(default)]
    pub id: String,
    /// `verify`, `rebuild` or `rebuild --dry-run`.
    pub what: String,
    /// What was covered, as on the command line: `all`, `target video/1 like`, `part 7`, …
    #[serde(default)]
    pub scope: String,
    /// Where the run stands.
    #[serde(default)]
    pub state: RunState,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Who ordered it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operator: Option<String>,
    /// Why, where somebody said so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Whether repair above the threshold was confirmed.
    #[serde(default)]
    pub confirmed: bool,
    /// Store time at the start, microseconds.
    pub started: Micros,
    /// Store time at the end, microseconds; 0: not ended.
    pub finished: Micros,
    /// Slices that an earlier run, which was cut off, had finished; 0: from the beginning.
    #[serde(default)]
    pub resumed_slices: u32,
    /// Slices that another run, at work at the same time, has done.
    #[serde(default)]
    pub shared_slices: u32,
    /// Partitions of facts that were checked.
    pub partitions: u64,
    /// (target, kind)s that were checked.
    pub targets: u64,
    /// Fact rows that were checked.
    pub facts: u64,
    /// Per-user index rows that were checked.
    pub index_rows: u64,
    /// Left-over rows in users' lists by time: skipped by readers, removed by a rebuild.
    pub left_over: u64,
    /// Leaves that kept changing, so that head and rows could not be compared at one moment
    /// (`rebuild` compares them all the same, by its audit cursor).
    pub busy_leaves: u64,
    /// Share of the key space that this run verified, in percent.
    #[serde(default)]
    pub share_percent: f64,
    /// Age of the part that was verified longest ago, at the end of the run, in seconds; only of
    /// those that ever were.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_part_seconds: Option<u64>,
    /// Parts of the key space that were never verified.
    #[serde(default)]
    pub parts_never_verified: u32,
    /// Places where a projection differed.
    pub drifted: u64,
    /// Places that were repaired.
    pub repaired: u64,
    /// (target, kind)s with such places.
    #[serde(default)]
    pub drifted_targets: u64,
    /// Places by cause.
    #[serde(default)]
    pub causes: BTreeMap<Cause, CauseTotals>,
    /// Whether repair stopped because there was too much drift.
    #[serde(default)]
    pub frozen: bool,
    /// Which threshold was passed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub frozen_because: Option<String>,
    /// The first [`MAX_LISTED`] of them.
    pub drift: Vec<Drift>,
}

impl Report {
    /// The namespace of the target that was covered; `None`: it was about all of them.
    pub fn namespace(&self) -> Option<&str> {
        // A namespace has neither spaces nor slashes, so whatever the target's id is, this is it.
        Some(self.scope.strip_prefix("target ")?.split_once('/')?.0)
    }

    /// Whether nothing differed.
    pub fn clean(&self) -> bool {
        self.drifted == 0
    }

    pub(crate) fn add(&mut self, drift: Drift) {
        let totals = self.causes.entry(drift.cause).or_default();
        totals.found += 1;
        totals.repaired += u64::from(drift.repaired);
        self.drifted += 1;
        self.repaired += u64::from(drift.repaired);
        if self.drift.len() < MAX_LISTED {
            self.drift.push(drift);
        }
    }
}

/// How far a run has come; read by whoever shows it. Copies show the same run.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Slices finished.
    pub slices_done: Arc<AtomicU64>,
    /// Slices in all; 0: not known yet.
    pub slices: Arc<AtomicU64>,
    /// Facts checked so far.
    pub facts: Arc<AtomicU64>,
    /// Drift found so far.
    pub drifted: Arc<AtomicU64>,
}

impl Progress {
    pub(crate) fn publish(&self, report: &Report) {
        self.facts.store(report.facts, Ordering::Relaxed);
        self.drifted.store(report.drifted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_whose_target_it_is_about() {
        for (scope, namespace) in [
            ("target video/p1", Some("video")),
            ("target video/a b/c like", Some("video")),
            ("all", None),
            ("part 7", None),
            ("since 5", None),
            ("", None),
        ] {
            assert_eq!(Report { scope: scope.into(), ..Report::default() }.namespace(), namespace, "{scope}");
        }
    }

    #[test]
    fn causes_are_named_as_they_are_stored() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
        }
    }
}
