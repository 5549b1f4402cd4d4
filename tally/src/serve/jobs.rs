//! Work that takes longer than a request: one at a time, with progress, the last few remembered.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rebuilder::{Progress, Report};
use serde::{Deserialize, Serialize};
use store::StoreResult;

/// Jobs that are remembered.
const REMEMBERED: usize = 32;

/// One job, running or ended.
pub struct Job {
    id: u64,
    what: String,
    /// Whose target it is about; `None`: everybody's.
    namespace: Option<String>,
    progress: Progress,
    result: OnceLock<Result<Report, String>>,
}

/// A job as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobView {
    /// Its number, for `/v1/ops/jobs/{id}`.
    pub id: String,
    /// `verify`, `rebuild` or `rebuild --dry-run`.
    pub what: String,
    /// `running`, `done` or `failed`.
    pub state: JobState,
    /// How far it is.
    pub progress: ProgressView,
    /// The result of one that is done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub report: Option<Report>,
    /// Why one failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Under way.
    Running,
    /// Ended; there is a report.
    Done,
    /// Ended; there is an error.
    Failed,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressView {
    /// Slices of the key space finished.
    pub slices_done: u64,
    /// Slices in all; 0: not known yet.
    pub slices: u64,
    /// Facts checked.
    pub facts: u64,
    /// Differences found.
    pub drifted: u64,
}

impl Job {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The namespace that it is about; `None`: all of them.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// For the work itself.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The job as it is now; the report only if asked for, since it may be long.
    pub fn view(&self, with_report: bool) -> JobView {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let p = &self.progress;
        let progress = ProgressView {
            slices_done: load(&p.slices_done),
            slices: load(&p.slices),
            facts: load(&p.facts),
            drifted: load(&p.drifted),
        };
        let (state, report, error) = match self.result.get() {
            None => (JobState::Running, None, None),
            Some(Ok(report)) => (JobState::Done, Some(report.clone()), None),
            Some(Err(error)) => (JobState::Failed, None, Some(error.clone())),
        };
        let report = report.filter(|_| with_report);
        JobView { id: self.id.to_string(), what: self.what.clone(), state, progress, report, error }
    }
}

/// All jobs of this process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Jobs {
    list: Arc<Mutex<VecDeque<Arc<Job>>>>,
    last: Arc<AtomicU64>,
}

impl Jobs {
    /// Starts `work` in the background; where another job runs, that one is the error. `namespace`:
    /// whose it is, `None` for all of them.
    pub fn start<F, W>(&self, what: &str, namespace: Option<&str>, work: W) -> Result<Arc<Job>, Arc<Job>>
    where
        F: Future<Output = StoreResult<Report>> + Send,
        W: FnOnce(Arc<Job>) -> F + Send + 'static,
    {
        let mut list = self.lock();
        // The newest: while it runs no other is added, so it is never the one forgotten.
        if let Some(running) = list.back().filter(|j| j.result.get().is_none()) {
            return Err(running.clone());
        }
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (what, namespace) = (what.to_owned(), namespace.map(str::to_owned));
        let job = Arc::new(Job { id, what, namespace, progress: Progress::default(), result: OnceLock::new() });
        list.push_back(job.clone());
        if list.len() > REMEMBERED {
            list.pop_front();
        }
        drop(list);
        let running = job.clone();
        tokio::spawn(async move {
            let result = work(running.clone()).await;
            match &result {
                Ok(r) => {
                    tracing::info!(job = id, what = %r.what, facts = r.facts, drifted = r.drifted, repaired = r.repaired, "job done")
                }
                Err(error) => tracing::error!(job = id, %error, "job failed"),
            }
            running.result.get_or_init(|| result.map_err(|e| e.to_string()));
        });
        Ok(job)
    }

    /// The job with this number, while it is remembered.
    pub fn get(&self, id: u64) -> Option<Arc<Job>> {
        self.lock().iter().find(|j| j.id == id).cloned()
    }

    /// All that are remembered, newest first.
    pub fn all(&self) -> Vec<Arc<Job>> {
        self.lock().iter().rev().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Job>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use store::StoreError;

    use super::*;

    #[tokio::test]
    async fn one_job_runs_at_a_time_and_results_are_kept() {
        let jobs = Jobs::default();
        let (release, wait) = tokio::sync::oneshot::channel::<()>();
        let first = jobs
            .start("verify", None, |_| async {
                wait.await.ok();
                Ok(Report { facts: 7, ..Report::default() })
            })
            .unwrap_or_else(|_| panic!("nothing runs yet"));
        let refused = jobs.start("rebuild", None, |_| async { Ok(Report::default()) });
        assert_eq!(refused.err().map(|j| j.id()), Some(first.id()));
        assert_eq!(first.view(true).state, JobState::Running);
        release.send(()).unwrap();
        while first.view(false).state == JobState::Running {
            tokio::task::yield_now().await;
        }
        assert_eq!(first.view(true).report.map(|r| r.facts), Some(7));
        assert!(first.view(false).report.is_none());
        let second = jobs.start("verify", None, |_| async { Err(StoreError::Unavailable("away".into())) });
        let second = second.unwrap_or_else(|_| panic!("the first has ended"));
        while second.view(false).state == JobState::Running {
            tokio::task::yield_now().await;
        }
        assert_eq!((second.view(true).state, jobs.all().len()), (JobState::Failed, 2));
        assert_eq!(jobs.get(first.id()).map(|j| j.id()), Some(first.id()));
        assert!(jobs.get(99).is_none());
    }
}
