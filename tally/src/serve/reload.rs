//! Files that are read again while the server runs: keys and certificates; what that changed is in the
//! audit log.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use operator::{Operator, Who};
use prometheus::{IntCounterVec, Opts, Registry};
use serde_json::{Value, json};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use crate::{failure::Failure, keys::KeyChanges};

/// Changes that wait for the audit log while the store is being opened, or is away.
const WAITING: usize = 64;
/// Names that one entry of the audit log has; all are counted.
const LISTED: usize = 100;
/// Attempts at writing an entry, and the pause between.
const ATTEMPTS: u32 = 30;
/// Who the audit log says it was: no key, but the process itself.
const WHO: &str = "process";

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

/// What another reading made of what was in force.
pub struct Reloaded {
    /// What is in force now, in a few words.
    pub said: String,
    /// What was in force and what is, for the audit log; `None`: it is the same.
    pub change: Option<(Value, Value)>,
}

impl Reloaded {
    /// Of keys: their names, never what they are compared with.
    pub fn keys(changes: &KeyChanges) -> Self {
        let names = |names: &[String]| json!(names[..names.len().min(LISTED)]);
        let (added, removed, changed) = (&changes.added, &changes.removed, &changes.changed);
        let after = json!({
            "keys": changes.count,
            "added": names(added), "removed": names(removed), "changed": names(changed),
            "number": { "added": added.len(), "removed": removed.len(), "changed": changed.len() },
        });
        let change = changes.any().then(|| (json!({ "keys": changes.before }), after));
        Self { said: format!("{} keys", changes.count), change }
    }

    /// Of a certificate, by the fingerprints of its chain.
    pub fn certificate(before: &[String], now: &[String]) -> Self {
        let change = (before != now).then(|| (json!({ "sha256": before }), json!({ "sha256": now })));
        Self { said: "the certificate".to_owned(), change }
    }
}

/// A change that the audit log is to have.
pub struct Change {
    what: &'static str,
    why: &'static str,
    before: Value,
    after: Value,
}

/// Where changes wait until the store is open.
pub fn changes() -> (mpsc::Sender<Change>, mpsc::Receiver<Change>) {
    mpsc::channel(WAITING)
}

/// Writes changes into the audit log as they come, until there can be no more.
pub async fn record(operator: Operator, mut changes: mpsc::Receiver<Change>) {
    while let Some(Change { what, why, before, after }) = changes.recv().await {
        let who = Who { key: WHO.to_owned(), why: why.to_owned(), ..Who::default() };
        let action = format!("reload-{what}");
        let mut attempt = 1;
        while let Err(error) = operator.audit(&who, &action, "this server", before.clone(), after.clone()).await {
            if attempt == ATTEMPTS {
                tracing::error!(%error, %before, %after, "{action} is not in the audit log");
                break;
            }
            attempt += 1;
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Files that belong together, and how they are read.
pub struct Watched {
    what: &'static str,
    paths: Vec<PathBuf>,
    seen: Vec<Stamp>,
    reload: Arc<dyn Fn() -> Result<Reloaded, String> + Send + Sync>,
}

impl Watched {
    /// `what` is one of the labels. `reload` says what is in force now, or why what was there stays. Made *before* the first reading, so that no change falls between.
    pub fn new(
        what: &'static str,
        paths: Vec<PathBuf>,
        reload: impl Fn() -> Result<Reloaded, String> + Send + Sync + 'static,
    ) -> Self {
        let seen = paths.iter().map(|p| stamp(p)).collect();
        Self { what, paths, seen, reload: Arc::new(reload) }
    }

    /// Reads again if something changed, or in any case.
    async fn look(&mut self, in_any_case: bool, metrics: &ReloadMetrics, changes: &mpsc::Sender<Change>) {
        // Before reading: a change in the meantime is seen at the next look.
        let now: Vec<Stamp> = self.paths.iter().map(|p| stamp(p)).collect();
        if now == self.seen && !in_any_case {
            return;
        }
        self.seen = now;
        let reload = self.reload.clone();
        let read = tokio::task::spawn_blocking(move || reload()).await.expect("a panic has ended the process before");
        let result = match read {
            Ok(Reloaded { said, change }) => {
                tracing::info!("read again: {said}");
                if let Some((before, after)) = change {
                    let why = if in_any_case { "SIGHUP" } else { "the file has changed" };
                    if changes.try_send(Change { what: self.what, why, before, after }).is_err() {
                        tracing::error!("too many changes wait for the audit log; this one is not in it: {said}");
                    }
                }
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
pub async fn watch(
    mut files: Vec<Watched>,
    mut hangup: Signal,
    metrics: ReloadMetrics,
    changes: mpsc::Sender<Change>,
    stop: CancellationToken,
) {
    loop {
        let asked = tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => false,
            got = hangup.recv() => got.is_some(),
        };
        for file in &mut files {
            file.look(asked, &metrics, &changes).await;
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
            Ok(Reloaded { said: "a number".to_owned(), change: Some((json!(1), json!(text.len()))) })
        });
        let registry = Registry::new();
        let metrics = ReloadMetrics::register(&registry).unwrap();
        let (changes, mut changed) = changes();
        let count = |result| metrics.0.with_label_values(&["keys", result]).get();
        watched.look(false, &metrics, &changes).await;
        assert_eq!(reads.load(Ordering::SeqCst), 0, "nothing changed");
        std::fs::write(&path, "22").unwrap();
        watched.look(false, &metrics, &changes).await;
        watched.look(false, &metrics, &changes).await;
        assert_eq!((reads.load(Ordering::SeqCst), count("done"), count("failed")), (1, 1, 0));
        std::fs::write(&path, "broken").unwrap();
        watched.look(false, &metrics, &changes).await;
        assert_eq!((count("done"), count("failed")), (1, 1));
        watched.look(true, &metrics, &changes).await;
        assert_eq!(count("failed"), 2, "asked by signal");
        let change = changed.try_recv().unwrap();
        assert_eq!((change.what, change.why, change.after), ("keys", "the file has changed", json!(2)));
        assert!(changed.try_recv().is_err(), "a reading that failed changes nothing");
    }

    #[test]
    fn names_are_listed_up_to_a_bound_and_what_is_the_same_is_no_change() {
        let name = |n: usize| format!("k{n}");
        let changes = KeyChanges { count: 500, added: (0..500).map(name).collect(), ..KeyChanges::default() };
        let (_, after) = Reloaded::keys(&changes).change.unwrap();
        assert_eq!(after["added"].as_array().map(Vec::len), Some(LISTED));
        assert_eq!(after["number"]["added"], 500);
        assert!(Reloaded::keys(&KeyChanges { before: 3, count: 3, ..KeyChanges::default() }).change.is_none());
        let one = ["a".to_owned()];
        assert!(Reloaded::certificate(&one, &one).change.is_none() && Reloaded::certificate(&one, &[]).change.is_some());
    }
}
