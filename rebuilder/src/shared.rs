//! What all tasks of one run share: the report that they add to, the throttle, the freeze; and how a
//! suspicion becomes drift, and drift a repair.

use std::{
    collections::HashSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{StreamExt, TryStreamExt, stream};
use schema::{KindName, Micros};
use store::{Protocol, StoreError, StoreResult};

use crate::{
    Cause, Drift, Progress, RebuilderSettings, Report, evidence::Evidence, metrics::Metrics, repair::repair, suspect::Suspect,
    throttle::Throttle,
};

/// Suspects that one task collects before they are looked at again, so that pauses are shared.
pub(crate) const MAX_HELD: usize = 4096;
/// Drifted targets that are told apart; more are counted once for each place.
const MAX_TARGETS: usize = 100_000;

/// Whether a run repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Look,
    Mend,
}

/// One run under way.
pub(crate) struct Shared {
    pub protocol: Protocol,
    pub settings: RebuilderSettings,
    pub throttle: Throttle,
    pub progress: Progress,
    pub metrics: Metrics,
    mode: Mode,
    confirmed: bool,
    started: Micros,
    frozen: AtomicBool,
    state: Mutex<State>,
}

struct State {
    report: Report,
    targets: HashSet<(String, String)>,
}

impl Shared {
    pub fn new(
        protocol: Protocol,
        settings: RebuilderSettings,
        throttle: Throttle,
        progress: Progress,
        metrics: Metrics,
        mode: Mode,
        report: Report,
    ) -> Self {
        let (confirmed, started) = (report.confirmed, report.started);
        let state = Mutex::new(State { report, targets: HashSet::new() });
        Self { protocol, settings, throttle, progress, metrics, mode, confirmed, started, frozen: AtomicBool::new(false), state }
    }

    /// Seed of the sums of this run: nobody who chooses ids knows it beforehand.
    pub fn seed(&self) -> u64 {
        self.started.unsigned_abs()
    }

    /// Whether users' lists are kept for a kind.
    pub fn is_indexed(&self, kind: &KindName) -> bool {
        self.protocol.settings().kinds.get(kind.as_str()).is_some_and(|k| k.by_user)
    }

    /// Whether this run repairs, as things stand.
    pub fn mends(&self) -> bool {
        self.mode == Mode::Mend && !self.frozen.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the report, and shows it.
    pub fn note(&self, change: impl FnOnce(&mut Report)) {
        let mut state = self.lock();
        let before = state.report.facts;
        change(&mut state.report);
        self.metrics.facts.inc_by(state.report.facts - before);
        self.progress.publish(&state.report);
    }

    /// The report as it is.
    pub fn report(&self) -> Report {
        self.lock().report.clone()
    }

    pub fn add(&self, drift: Drift) {
        self.metrics.add(&drift);
        let mut state = self.lock();
        self.count_target(&mut state, &drift);
        state.report.add(drift);
        self.progress.publish(&state.report);
    }

    fn count_target(&self, state: &mut State, drift: &Drift) {
        if state.targets.len() >= MAX_TARGETS || state.targets.insert((drift.target.clone(), drift.kind.clone())) {
            state.report.drifted_targets += 1;
        }
    }

    /// Stops repair where `found`, with what was found before, is more than the thresholds allow.
    fn freeze_above(&self, found: &[(Suspect, Drift)]) {
        if !self.mends() || self.confirmed {
            return;
        }
        let s = &self.settings;
        let large = found.iter().filter(|_| s.freeze_size > 0).find(|(_, d)| d.size().is_some_and(|size| size > s.freeze_size));
        let mut state = self.lock();
        let new: HashSet<(&str, &str)> = found.iter().map(|(_, d)| (d.target.as_str(), d.kind.as_str())).collect();
        let new = new.into_iter().filter(|(t, k)| !state.targets.contains(&((*t).to_owned(), (*k).to_owned()))).count() as u64;
        let (drifted, checked) = (state.report.drifted_targets + new, state.report.targets.max(1));
        let percent = drifted as f64 * 100.0 / checked as f64;
        let because = if let Some((_, drift)) = large {
            let size = drift.size().unwrap_or(0);
            format!("{} {} is wrong by {size}, more than {}", drift.target, drift.kind, s.freeze_size)
        } else if drifted >= s.freeze_targets.max(1) && percent > s.freeze_percent {
            format!("{drifted} of {checked} checked targets differ, more than {} %", s.freeze_percent)
        } else {
            return;
        };
        tracing::error!(%because, "too much drift: nothing more is repaired until an operator confirms");
        self.metrics.frozen.inc();
        self.frozen.store(true, Ordering::Relaxed);
        (state.report.frozen, state.report.frozen_because) = (true, Some(because));
    }

    /// Looks at suspects again, with pauses, until they are gone or stay; then reports and repairs
    /// what stayed.
    pub async fn settle(&self, mut suspects: Vec<Suspect>) -> StoreResult<()> {
        let mut found: Vec<(Suspect, Drift)> = Vec::new();
        let mut known = HashSet::new();
        suspects.retain(|s| known.insert(s.clone()));
        let mut unmoved = 0;
        for look in 0..self.settings.looks.max(1) {
            if suspects.is_empty() {
                return Ok(());
            }
            if look > 0 {
                self.protocol.clock().sleep(self.settings.settle).await;
            }
            let before = suspects.len();
            self.throttle.take(before).await;
            let looks = stream::iter(suspects.into_iter().map(|s| async move {
                let drift = s.look(&self.protocol).await?;
                Ok::<_, StoreError>(drift.map(|d| (s, d)))
            }));
            found = looks.buffered(self.settings.parallel.max(1)).try_filter_map(async |found| Ok(found)).try_collect().await?;
            suspects = found.iter().map(|(s, _)| s.clone()).collect();
            unmoved = if found.len() == before { unmoved + 1 } else { 0 };
            // A repair is harmless to work under way, so a rebuild waits less for it than `verify`.
            if self.mode == Mode::Mend && unmoved >= 2 {
                break;
            }
        }
        self.freeze_above(&found);
        let evidence = self.evidence(&found).await?;
        for (suspect, mut drift) in found {
            if !self.mends() {
                if let Suspect::Ahead { leaf, member } = &suspect {
                    drift.after = evidence.judge(&self.protocol, leaf, member).await?.forecast(&drift.after);
                }
            } else if suspect.look(&self.protocol).await?.is_some() {
                if let Some(done) = repair(&self.protocol, &suspect, &drift, &evidence).await? {
                    drift.after = done;
                }
                drift.repaired = suspect.look(&self.protocol).await?.is_none();
            } else {
                drift.repaired = true; // An earlier repair has mended this too.
            }
            self.add(drift);
        }
        Ok(())
    }

    /// What the journal bears out of the facts that seem lost.
    async fn evidence(&self, found: &[(Suspect, Drift)]) -> StoreResult<Evidence> {
        let lost = found.iter().filter(|(_, d)| matches!(d.cause, Cause::FactLost | Cause::Index));
        let keys = lost.filter_map(|(suspect, _)| suspect.fact_key());
        Evidence::gather(&self.protocol, keys.collect()).await
    }
}
