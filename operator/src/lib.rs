//! What operators do to facts and targets: hide and show, statuses, the audit log.
//!
//! Never sets a number: a run writes registers by the ordinary path, and counting follows. A run
//! that is cut off anywhere goes on where it was, at the same versions, and an undo takes back what
//! its run changed and nothing else (design, sections 3 and 16).

mod audit;
mod metrics;
mod record;
mod run;
mod settings;
mod status;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use async_trait::async_trait;
use prometheus::Registry;
use schema::{Micros, StatusKey};
use store::{
    Protocol, StoreError,
    protocol::{WriteRequest, Written},
};
use tokio::sync::Notify;

pub use audit::{AuditEntry, AuditFilter, AuditPage, MAX_TEXT};
use metrics::Metrics;
pub use record::{Run, RunPage, RunState, Totals, What};
pub use run::Order;
pub use settings::OperatorSettings;
pub use status::{Changed, SetStatus};

/// The ordinary way to write registers, and who wants to know of a changed status.
#[async_trait]
pub trait Writer: Send + Sync + 'static {
    /// Writes; one answer for each, in order. An error says why it is not taken now: nothing of that
    /// request was written, and it is sent again.
    async fn write_many(&self, requests: Vec<WriteRequest>) -> Vec<Result<Written, String>>;

    /// A status was changed through this process.
    fn status_changed(&self, key: &StatusKey);
}

/// Who asks for something, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Who {
    /// The name of the key that was presented; `local` where none is configured.
    pub key: String,
    /// The person, where the caller names one.
    pub operator: Option<String>,
    /// The reason, in the operator's words.
    pub why: String,
    /// A ticket, where there is one.
    pub ticket: Option<String>,
}

/// Why an operator's request is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It cannot be right; says which field is wrong.
    #[error("{field}: {detail}")]
    Bad {
        /// The field at fault.
        field: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// There is no such run.
    #[error("there is no run {0}; GET /v1/ops/hide-runs lists them")]
    NoRun(u64),
    /// There may have been such a run; those that ended long ago are forgotten.
    #[error(
        "run {id} is forgotten: a run is kept for {} h after its end (`run_retention`), and then cannot be undone; \
         GET /v1/ops/hide-runs lists those that are kept",
        kept.as_secs() / 3600
    )]
    Forgotten {
        /// The run.
        id: u64,
        /// How long a run is kept.
        kept: std::time::Duration,
    },
    /// It does not fit what is so now.
    #[error("{0}")]
    Conflict(String),
    /// Too many runs wait.
    #[error("{0} runs wait already; try again when one of them has ended")]
    Full(usize),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Refused {
    pub(crate) fn bad(field: &'static str, detail: impl Into<String>) -> Self {
        Self::Bad { field, detail: detail.into() }
    }
}

struct Shared {
    protocol: Protocol,
    writer: Arc<dyn Writer>,
    settings: OperatorSettings,
    /// Runs that wait or run, by id: they are executed in this order.
    live: Mutex<BTreeMap<u64, Run>>,
    /// Orders that change what runs there are go one after another.
    ordering: tokio::sync::Mutex<()>,
    wake: Notify,
    /// The last id or audit time that was given out.
    last: AtomicI64,
    metrics: Metrics,
}

/// Hides, shows, sets statuses, keeps the audit log. Cheap to clone.
#[derive(Clone)]
pub struct Operator(Arc<Shared>);

impl Operator {
    /// An operator over `protocol` that writes by `writer`. Call [`Self::recover`] before anything
    /// else, and let [`Self::run`] run somewhere.
    pub fn new(protocol: Protocol, writer: Arc<dyn Writer>, settings: OperatorSettings) -> Self {
        let (live, ordering, wake) = (Mutex::default(), tokio::sync::Mutex::default(), Notify::new());
        let (last, metrics) = (AtomicI64::new(0), Metrics::default());
        Self(Arc::new(Shared { protocol, writer, settings, live, ordering, wake, last, metrics }))
    }

    /// Adds the operator's metrics to a registry.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        self.0.metrics.register(registry)
    }

    /// A store time that was not given out before: orders runs and audit entries.
    fn moment(&self) -> Micros {
        let now = self.0.protocol.clock().now();
        let next = |last: i64| Some(now.max(last.saturating_add(1)));
        let last = self.0.last.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).unwrap_or_else(|last| last);
        now.max(last.saturating_add(1))
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<u64, Run>> {
        self.0.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
