//! Runs: `verify` and `rebuild` over whatever an order covers, recorded in the store.

use std::sync::{Arc, atomic::Ordering};

use prometheus::Registry;
use schema::Micros;
use store::{Protocol, StoreError, StoreResult, switch::Switch};

use crate::{
    Progress, RebuilderSettings, Report, RunState, history,
    lease::{Leases, Round, unfinished},
    metrics::Metrics,
    partition::{check_target, is_known},
    scope::{Order, PARTS, Scope},
    shared::{Mode, Shared},
    since,
    throttle::Throttle,
    whole::{check_all, check_part, slices_of_a_part},
};

/// Recounts everything from the facts.
#[derive(Clone)]
pub struct Rebuilder {
    pub(crate) protocol: Protocol,
    pub(crate) settings: RebuilderSettings,
    metrics: Metrics,
    pause: Switch,
}

impl Rebuilder {
    /// A rebuilder over `protocol`.
    pub fn new(protocol: Protocol, settings: RebuilderSettings) -> Self {
        let metrics = Metrics::new(protocol.clock().clone(), &protocol.settings().kinds);
        Self { protocol, settings, metrics, pause: Switch::default() }
    }

    /// A run that repairs waits where it is while `pause` is on.
    #[must_use]
    pub fn paused_by(mut self, pause: Switch) -> Self {
        self.pause = pause;
        self
    }

    /// Registers the metrics of all runs.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        self.metrics.register(registry)
    }

    /// Reads what the metrics show of earlier processes: when each part was verified.
    pub async fn load(&self) -> StoreResult<()> {
        self.ages().await.map(|_| ())
    }

    /// Recomputes everything derived and reports every difference; repairs nothing. Work under way
    /// is given time to settle before anything is called drift.
    pub async fn verify(&self, scope: Scope, progress: &Progress) -> StoreResult<Report> {
        self.run(&Order::verify(scope), progress).await
    }

    /// The same, and repairs what it finds unless `dry_run`. A run that was cut off is taken up where
    /// it was.
    pub async fn rebuild(&self, scope: Scope, dry_run: bool, progress: &Progress) -> StoreResult<Report> {
        self.run(&Order { dry_run, ..Order::rebuild(scope) }, progress).await
    }

    /// Why an order cannot be carried out; `None`: it can.
    pub async fn refusal(&self, order: &Order) -> StoreResult<Option<String>> {
        if order.confirm && order.reason.as_deref().is_none_or(|r| r.trim().is_empty()) {
            return Ok(Some("to confirm a repair of so much drift give a reason".to_owned()));
        }
        Ok(match &order.scope {
            Scope::Part(Some(part)) if *part >= PARTS => Some(format!("there is no part {part}; parts are 0 to {}", PARTS - 1)),
            Scope::Since(at) if *at < since::reach(&self.protocol) => {
                let hours = self.protocol.settings().journal_retention.as_secs_f64() / 3600.0;
                Some(format!("the journal reaches back {hours} hours only; for older changes use `part` or `all`"))
            }
            Scope::Target { target, kind } if !is_known(&self.protocol, target, kind.as_ref()).await? => {
                let kind = kind.as_ref().map(|k| format!(" for kind `{k}`")).unwrap_or_default();
                Some(format!("there is no target {target}{kind}: nothing was ever written to it"))
            }
            _ => None,
        })
    }

    /// Carries an order out; the result is also kept in the store ([`Self::reports`]). An order that
    /// cannot be carried out is [`StoreError::Refused`].
    pub async fn run(&self, order: &Order, progress: &Progress) -> StoreResult<Report> {
        if let Some(why) = self.refusal(order).await? {
            return Err(StoreError::Refused(why));
        }
        let scope = match order.scope {
            Scope::Part(None) => Scope::Part(Some(self.oldest_part().await?)),
            ref scope => scope.clone(),
        };
        let mut report = Report {
            what: order.what().to_owned(),
            scope: scope.to_string(),
            operator: order.operator.clone(),
            reason: order.reason.clone(),
            confirmed: order.confirm,
            started: self.protocol.clock().now(),
            ..Report::default()
        };
        self.metrics.runs.inc();
        history::begin(&self.protocol, &mut report).await?;
        let id = report.id.clone();
        let mode = if order.mends() { Mode::Mend } else { Mode::Look };
        let rate = order.rate.unwrap_or(self.settings.rate);
        let throttle = Throttle::new(self.protocol.clock().clone(), rate, self.settings.page);
        let throttle = if order.mends() { throttle.paused_by(self.pause.clone()) } else { throttle };
        let shared = Arc::new(Shared::new(
            self.protocol.clone(),
            self.settings.clone(),
            throttle,
            progress.clone(),
            self.metrics.clone(),
            mode,
            report,
        ));
        let done = self.cover(&shared, &scope, id).await;
        // Slices that others did are done as well.
        progress.slices_done.store(progress.slices.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut report = shared.report();
        report.finished = self.protocol.clock().now();
        let ended = done.and(self.ages().await);
        match &ended {
            Ok((oldest, never)) => {
                report.state = RunState::Done;
                report.oldest_part_seconds =
                    oldest.map(|at| report.finished.saturating_sub(at).max(0).unsigned_abs() / 1_000_000);
                report.parts_never_verified = *never;
            }
            Err(error) => (report.state, report.error) = (RunState::Failed, Some(error.to_string())),
        }
        let kept = history::keep(&self.protocol, &report).await;
        ended?;
        kept?;
        Ok(report)
    }

    async fn cover(&self, shared: &Arc<Shared>, scope: &Scope, id: String) -> StoreResult<()> {
        let leases = |slices: u32| Leases::join(&self.protocol, &self.settings, scope.to_string(), slices, id.clone());
        match scope {
            Scope::Target { target, kind } => check_target(shared, target, kind.clone()).await,
            Scope::Since(at) => since::check_since(shared, *at).await,
            Scope::All => {
                let leases = if shared.mends() { Some(Arc::new(leases(self.settings.slices.max(1)).await?)) } else { None };
                let as_of = check_all(shared, leases.clone()).await?;
                self.ended(shared, leases, None, as_of).await
            }
            Scope::Part(part) => {
                let part = part.unwrap_or(0);
                let leases = if shared.mends() { Some(Arc::new(leases(slices_of_a_part()).await?)) } else { None };
                let as_of = check_part(shared, leases.clone(), part).await?;
                self.ended(shared, leases, Some(part), as_of).await
            }
        }
    }

    async fn ended(&self, shared: &Shared, leases: Option<Arc<Leases>>, part: Option<u32>, as_of: Micros) -> StoreResult<()> {
        if let Some(leases) = leases {
            leases.end().await?;
        }
        shared.note(|r| r.share_percent = part.map_or(100.0, |_| 100.0 / f64::from(PARTS)));
        history::verified(&self.protocol, part, as_of).await
    }

    async fn oldest_part(&self) -> StoreResult<u32> {
        let parts = history::parts(&self.protocol).await?;
        Ok((0..).zip(parts).min_by_key(|&(_, at)| at).map_or(0, |(part, _)| part))
    }

    /// When the part was verified that was so longest ago, of those that ever were; how many never were.
    async fn ages(&self) -> StoreResult<(Option<Micros>, u32)> {
        let parts = history::parts(&self.protocol).await?;
        let oldest = parts.iter().copied().filter(|&at| at > 0).min();
        let never = u32::try_from(parts.iter().filter(|&&at| at == 0).count()).unwrap_or(PARTS);
        self.metrics.ages.set(oldest, never);
        Ok((oldest, never))
    }

    /// Store time at which each of [`PARTS`] parts was last verified; 0: never.
    pub async fn parts(&self) -> StoreResult<Vec<Micros>> {
        history::parts(&self.protocol).await
    }

    /// The last runs, newest first; at most [`history::MAX_RUNS`] are kept.
    pub async fn reports(&self, limit: usize) -> StoreResult<Vec<Report>> {
        history::runs(&self.protocol, limit).await
    }

    /// One run, while it is kept.
    pub async fn report(&self, id: &str) -> StoreResult<Option<Report>> {
        history::run(&self.protocol, id).await
    }

    /// Rebuilds that were begun and have not ended; the next one over the same goes on with them.
    pub async fn unfinished(&self) -> StoreResult<Vec<Round>> {
        unfinished(&self.protocol).await
    }
}
