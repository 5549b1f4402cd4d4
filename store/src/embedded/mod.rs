//! The default engine: one process, one directory, fjall 3.
//!
//! One thread writes (module `writer`); reads go to the database directly, from any task. What a method
//! promises to be durable is on disk (`fdatasync`) before it is answered, and nothing is visible
//! that the database's own journal does not hold yet. Derived rows are written without waiting for
//! the disk; they are in the same journal, so they survive together with whatever durable write
//! comes next. After an I/O error nothing is answered `Ok` until the directory is opened again.

mod cells;
mod copy;
mod counters;
mod dir;
mod facts;
mod index;
mod journal;
mod keys;
mod ledger;
mod meta;
mod operate;
mod rows;
mod scan;
mod seal;
#[cfg(test)]
mod tests;
mod txn;
mod writer;

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    thread::JoinHandle,
};

use schema::{LaneId, Slot};

pub use copy::{BLOCK_BYTES, BadBlock, RowCopy, check_block};
pub use dir::OpenError;
use rows::Rows;
pub use rows::opening;
use writer::Writer;

use crate::engine::{Engine, FusedLanding, StoreResult};

/// Bounds of the engine. The defaults keep a process with five million facts below 1 GiB and open
/// them again within seconds.
#[derive(Debug, Clone)]
pub struct EmbeddedSettings {
    /// Cache of data, index and filter blocks, in bytes.
    pub cache_bytes: u64,
    /// Bytes written between two rotations of all memtables: what is replayed on opening after a
    /// crash, and about half of what memtables hold, in bytes.
    pub replay_bytes: u64,
    /// Jobs that wait for the writer, in bytes; callers beyond it wait outside.
    pub queue_bytes: usize,
    /// Rows after which a group is committed though more is queued.
    pub group_rows: usize,
    /// Bytes after which a group is committed though more is queued.
    pub group_bytes: usize,
    /// Threads that write memtables out and compact, at least 2.
    pub workers: usize,
}

impl Default for EmbeddedSettings {
    fn default() -> Self {
        Self {
            cache_bytes: 128 << 20,
            replay_bytes: 64 << 20,
            queue_bytes: 32 << 20,
            group_rows: 4096,
            group_bytes: 4 << 20,
            workers: 2,
        }
    }
}

/// Totals since opening, and the state now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EmbeddedStats {
    /// Jobs that wait for the writer or for their commit.
    pub queued: u64,
    /// Jobs answered.
    pub jobs: u64,
    /// Commits.
    pub groups: u64,
    /// Rows committed; divided by `groups`, how well writes share commits.
    pub rows: u64,
    /// Commits that waited for the disk.
    pub durable_groups: u64,
    /// Time those took, `fdatasync` included, in microseconds.
    pub durable_micros: u64,
    /// Times the writer had to wait for memtables to be written out or compacted.
    pub stalls: u64,
    /// Size of the directory's rows and journals, in bytes.
    pub disk_bytes: u64,
    /// Part of it that is journals, in bytes.
    pub journal_bytes: u64,
}

/// The engine. Close it before dropping it where that must not block.
pub struct Embedded {
    writer: Writer,
    thread: Mutex<Option<JoinHandle<()>>>,
    rows: Arc<Rows>,
    /// First slot of each lane that may still have rows, so that dropping does not walk over what
    /// was dropped before.
    dropped: Mutex<HashMap<LaneId, Slot>>,
    any_status: operate::AnyStatus,
    // Last: the directory is sealed and free once everything above is gone.
    dir: dir::DataDir,
}

impl Embedded {
    /// Opens the directory, made where there is none. Blocks while journals are replayed.
    pub fn open(path: impl AsRef<Path>, settings: &EmbeddedSettings) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let dir = dir::DataDir::open(path)?;
        let rows = Arc::new(Rows::open(&dir.rows(), settings)?);
        let any_status =
            operate::AnyStatus::of(&rows).map_err(|e| OpenError::Damaged { path: path.into(), detail: e.to_string() })?;
        dir.created()?;
        let (writer, thread) = Writer::start(rows.clone(), settings).map_err(|e| OpenError::io(path, e))?;
        Ok(Self { writer, thread: Mutex::new(Some(thread)), rows, dropped: Mutex::default(), any_status, dir })
    }

    /// Commits what is queued, makes everything durable, and ends the writer. Later calls fail with
    /// [`StoreError::Stopped`](crate::StoreError::Stopped). The directory stays locked until this
    /// value is dropped.
    pub async fn close(&self) -> StoreResult<()> {
        let closed = self.writer.close().await;
        self.join();
        closed
    }

    /// Numbers for metrics.
    pub fn stats(&self) -> EmbeddedStats {
        let totals = self.writer.totals();
        EmbeddedStats {
            queued: totals.queued.load(Relaxed),
            jobs: totals.jobs.load(Relaxed),
            groups: totals.groups.load(Relaxed),
            rows: totals.rows.load(Relaxed),
            durable_groups: totals.durable_groups.load(Relaxed),
            durable_micros: totals.durable_micros.load(Relaxed),
            stalls: totals.stalls.load(Relaxed),
            disk_bytes: self.rows.db.disk_space().unwrap_or(0),
            journal_bytes: self.rows.db.journal_disk_space().unwrap_or(0),
        }
    }

    /// The thread has answered its close or lost its queue: it is about to end.
    fn join(&self) {
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if thread.is_some_and(|t| t.join().is_err()) {
            tracing::error!("the store's writer failed");
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.writer.hang_up();
        self.join();
        // Ours and the writer's; a copy under way keeps the rows open, and then their files are not sealed.
        let alone = Arc::strong_count(&self.rows) <= 2;
        if alone && self.writer.totals().settled.load(Relaxed) {
            self.dir.closed();
        }
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

impl Engine for Embedded {
    fn fused(&self) -> Option<&dyn FusedLanding> {
        Some(self)
    }
}
