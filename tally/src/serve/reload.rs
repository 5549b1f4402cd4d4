//! Files that are read again while the server runs: keys and certificates.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use prometheus::{IntCounterVec, Opts, Registry};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// What may be read again, as a label.
const WHAT: [&str; 2] = ["keys", "tls"];

/// How often each was read again.
#[derive(Clone)]
pub struct ReloadMetrics(IntCounterVec);

impl ReloadMetrics {
    /// All at zero, in `registry`.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let opts = Opts::new("tally_reloads_total", "Files read again while running; failed: what was there stays in force");
        let counters = IntCounterVec::new(opts, &["what", "result"])?;
        for what in WHAT {
            for result in ["done", "failed"] {
                counters.with_label_values(&[what, result]);
            }
        }
        registry.register(Box::new(counters.clone()))?;
        Ok(Self(counters))
    }
}

/// A file as it was seen: another inode, size or time means that it was changed.
type Stamp = Option<(u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}

/// Files that belong together, and how they are read.
pub struct Watched {
    what: &'static str,
    paths: Vec<PathBuf>,
    seen: Vec<Stamp>,
    reload: Arc<dyn Fn() -> Result<String, String> + Send + Sync>,
}

impl Watched {
    /// `what` is one of the labels. `reload` says in a few words what is in force now, or why what was
    /// there stays. Made *before* the first reading, so that no change falls between.
    pub fn new(
        what: &'static str,
        paths: Vec<PathBuf>,
        reload: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        let seen = paths.iter().map(|p| stamp(p)).collect();
        Self { what, paths, seen, reload: Arc::new(reload) }
    }

    /// Reads again if something changed, or in any case.
    async fn look(&mut self, in_any_case: bool, metrics: &ReloadMetrics) {
        // Before reading: a change in the meantime is seen at the next look.
        let now: Vec<Stamp> = self.paths.iter().map(|p| stamp(p)).collect();
        if now == self.seen && !in_any_case {
            return;
        }
        self.seen = now;
        let reload = self.reload.clone();
        let read = tokio::task::spawn_blocking(move || reload()).await.expect("a panic has ended the process before");
        let result = match read {
            Ok(done) => {
                tracing::info!("read again: {done}");
                "done"
            }
            Err(error) => {
                tracing::error!("not read again, what was there stays in force: {error}");
                "failed"
            }
        };
        metrics.0.with_label_values(&[self.what, result]).inc();
    }
}

/// The signal to read everything again; taken before the server is ready, since it would end a
/// process that does not expect it.
pub fn hangup() -> Result<Signal, Failure> {
    signal(SignalKind::hangup()).map_err(|e| Failure::unreachable(format!("cannot watch for signals: {e}")))
}

/// Looks each second and at SIGHUP, until `stop`.
pub async fn watch(mut files: Vec<Watched>, mut hangup: Signal, metrics: ReloadMetrics, stop: CancellationToken) {
    loop {
        let asked = tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => false,
            got = hangup.recv() => got.is_some(),
        };
        for file in &mut files {
            file.look(asked, &metrics).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_changed_file_is_read_once_and_a_broken_one_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "1").unwrap();
        let (reads, read, place) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)), path.clone());
        let counted = reads.clone();
        let mut watched = Watched::new("keys", vec![path.clone()], move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let text = std::fs::read_to_string(&place).map_err(|e| e.to_string())?;
            read.store(text.parse().map_err(|_| "not a number".to_owned())?, Ordering::SeqCst);
            Ok("a number".to_owned())
        });
        let registry = Registry::new();
        let metrics = ReloadMetrics::register(&registry).unwrap();
        let count = |result| metrics.0.with_label_values(&["keys", result]).get();
        watched.look(false, &metrics).await;
        assert_eq!(reads.load(Ordering::SeqCst), 0, "nothing changed");
        std::fs::write(&path, "22").unwrap();
        watched.look(false, &metrics).await;
        watched.look(false, &metrics).await;
        assert_eq!((reads.load(Ordering::SeqCst), count("done"), count("failed")), (1, 1, 0));
        std::fs::write(&path, "broken").unwrap();
        watched.look(false, &metrics).await;
        assert_eq!((count("done"), count("failed")), (1, 1));
        watched.look(true, &metrics).await;
        assert_eq!(count("failed"), 2, "asked by signal");
    }
}
