//! The keyspaces: how they are opened, read, and kept small enough to open again quickly.

use std::{
    cell::Cell,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use fjall::{
    Database, Iter, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot, UserKey, UserValue,
    config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy},
};

use super::{EmbeddedSettings, OpenError};
use crate::engine::{StoreError, StoreResult};

/// Which keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Facts,
    Ledger,
    Counters,
    ByUser,
    Journal,
    Small,
}

impl Table {
    pub const ALL: [Self; 6] = [Self::Facts, Self::Ledger, Self::Counters, Self::ByUser, Self::Journal, Self::Small];

    fn name(self) -> &'static str {
        match self {
            Self::Facts => "facts",
            Self::Ledger => "ledger",
            Self::Counters => "counters",
            Self::ByUser => "by_user",
            Self::Journal => "journal",
            Self::Small => "small",
        }
    }
}

/// Largest memtable of one keyspace, in bytes. fjall records it when a keyspace is made, so it is
/// not a setting; `EmbeddedSettings::replay_bytes` bounds all of them together.
const MEMTABLE_BYTES: u64 = 32 << 20;
/// The engine's own bound for its journal files; ours, by rotating, is far below it.
const JOURNAL_LIMIT_BYTES: u64 = 128 << 20;
/// fjall stops its writer in its own loops at 4 sealed memtables and 30 runs, where nobody can tell
/// it that the workers are dead. We stop before that.
const SEALED_LIMIT: usize = 3;
const L0_LIMIT: usize = 28;

thread_local! {
    static OPENING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is opening rows. A panic then is about the files, is caught, and becomes
/// [`OpenError::Damaged`]: a panic hook should leave it alone.
pub fn opening() -> bool {
    OPENING.get()
}

/// A file that is written to learn why the database could not; hidden, so that nobody counts it.
const PROBE: &str = ".probe";
const PROBE_BYTES: usize = 256 << 10;

/// Set once, when nothing works any more.
#[derive(Debug, Default)]
pub struct Stop(OnceLock<String>);

impl Stop {
    /// The first reason given is the one that is told.
    pub fn because(&self, reason: impl Into<String>) -> StoreError {
        StoreError::Stopped(self.0.get_or_init(|| reason.into()).clone())
    }

    pub fn check(&self) -> StoreResult<()> {
        self.0.get().map_or(Ok(()), |reason| Err(StoreError::Stopped(reason.clone())))
    }
}

/// The open database.
pub struct Rows {
    pub db: Database,
    keyspaces: [Keyspace; Table::ALL.len()],
    pub stop: Arc<Stop>,
    path: PathBuf,
    replay_bytes: u64,
    /// Bytes written since all memtables were rotated.
    unrotated: AtomicU64,
    /// Groups committed since opening: all of them are in every view taken after it was read.
    commits: AtomicU64,
}

fn options(table: Table) -> KeyspaceCreateOptions {
    let options = KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
    match table {
        // Every write to these begins with a read that often finds nothing.
        Table::Facts | Table::Ledger | Table::ByUser => options
            .filter_policy(FilterPolicy::new([
                FilterPolicyEntry::Bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
                FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(12.0)),
            ]))
            .filter_block_pinning_policy(PinningPolicy::new([true, true, false])),
        // Read in order only.
        Table::Journal => options.filter_policy(FilterPolicy::disabled()),
        Table::Counters | Table::Small => options,
    }
}

fn open_keyspaces(path: &Path, settings: &EmbeddedSettings) -> fjall::Result<(Database, [Keyspace; Table::ALL.len()])> {
    let db = Database::builder(path)
        .cache_size(settings.cache_bytes)
        .max_journaling_size(JOURNAL_LIMIT_BYTES)
        .worker_threads(settings.workers.max(2))
        .open()?;
    let mut opened = Vec::with_capacity(Table::ALL.len());
    for table in Table::ALL {
        opened.push(db.keyspace(table.name(), || options(table))?);
    }
    let keyspaces = opened.try_into().unwrap_or_else(|_| unreachable!("one keyspace for each table"));
    Ok((db, keyspaces))
}

impl Rows {
    pub fn open(path: &Path, settings: &EmbeddedSettings) -> Result<Self, OpenError> {
        // fjall asserts what it expects of its files: garbage in them must not end the process.
        OPENING.set(true);
        let opened = catch_unwind(AssertUnwindSafe(|| open_keyspaces(path, settings)));
        OPENING.set(false);
        let (db, keyspaces) = opened
            .map_err(|_| OpenError::Damaged { path: path.into(), detail: "files are not as expected".into() })?
            .map_err(|e| OpenError::of_fjall(path, e))?;
        let rows = Self {
            db,
            keyspaces,
            stop: Arc::default(),
            path: path.into(),
            replay_bytes: settings.replay_bytes,
            unrotated: AtomicU64::new(0),
            commits: AtomicU64::new(0),
        };
        // What was replayed is in memtables again: written out now, it is not replayed twice.
        rows.rotate().map_err(|e| OpenError::of_fjall(path, e))?;
        Ok(rows)
    }

    pub fn keyspace(&self, table: Table) -> &Keyspace {
        &self.keyspaces[table as usize]
    }

    /// Turns fjall's error into what the caller knows; an I/O error stops the store.
    pub fn failed(&self, error: fjall::Error) -> StoreError {
        use fjall::{Error, LsmError};
        if let Err(stopped) = self.stop.check() {
            return stopped;
        }
        match error {
            Error::Storage(LsmError::Io(e)) | Error::Io(e) => self.stop.because(format!("I/O error: {e}")),
            Error::Storage(e) => self.unreadable(&format!("{e:?}")),
            Error::Decompress(_) | Error::InvalidTrailer | Error::InvalidTag(_) => self.unreadable(&format!("{error:?}")),
            // A background worker met it and has not told which.
            Error::Poisoned => self.stop.because(self.write_error().unwrap_or_else(|| "an earlier I/O error".into())),
            other => self.stop.because(format!("{other:?}")),
        }
    }

    /// What writing a little beside the rows fails with now.
    fn write_error(&self) -> Option<String> {
        let path = self.path.join(PROBE);
        let written = std::fs::write(&path, vec![1; PROBE_BYTES]);
        // It may not have come into being.
        let _ = std::fs::remove_file(&path);
        written.err().map(|e| format!("I/O error: {e}"))
    }

    fn unreadable(&self, detail: &str) -> StoreError {
        let path = self.path.display();
        StoreError::Damaged(format!("a file in {path} ({detail}); restore the data directory from a backup"))
    }

    /// How many groups are committed; read it before the view that it speaks of.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// A group is committed. Called by the writer only.
    pub fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Release);
    }

    /// The newest stored value.
    pub fn get(&self, table: Table, key: &[u8]) -> StoreResult<Option<UserValue>> {
        self.keyspace(table).get(key).map_err(|e| self.failed(e))
    }

    /// One consistent view for several reads.
    pub fn view(&self) -> StoreResult<View<'_>> {
        self.stop.check()?;
        Ok(View { rows: self, snapshot: self.db.snapshot() })
    }

    /// Rotates every keyspace's memtable once enough has been written: so the journal that is
    /// replayed on opening stays short, and an idle keyspace holds no old journal back.
    pub fn wrote(&self, bytes: u64) -> StoreResult<()> {
        if self.unrotated.fetch_add(bytes, Ordering::Relaxed) + bytes >= self.replay_bytes {
            self.rotate().map_err(|e| self.failed(e))?;
        }
        Ok(())
    }

    fn rotate(&self) -> fjall::Result<()> {
        self.unrotated.store(0, Ordering::Relaxed);
        for keyspace in &self.keyspaces {
            keyspace.rotate_memtable()?;
        }
        Ok(())
    }

    /// Whether a writer should wait for the background workers.
    pub fn behind(&self) -> bool {
        self.keyspaces.iter().any(|k| k.sealed_memtable_count() >= SEALED_LIMIT || k.l0_table_count() >= L0_LIMIT)
    }

    /// Fails once a background worker has met an error.
    pub fn probe(&self) -> StoreResult<()> {
        self.stop.check()?;
        self.db.persist(PersistMode::Buffer).map_err(|e| self.failed(e))
    }

    /// Makes everything durable and starts to write memtables out.
    pub fn settle(&self) -> StoreResult<()> {
        self.stop.check()?;
        self.db.persist(PersistMode::SyncAll).map_err(|e| self.failed(e))?;
        self.rotate().map_err(|e| self.failed(e))
    }

    /// Whether memtables wait to be written out.
    pub fn unsettled(&self) -> bool {
        self.keyspaces.iter().any(|k| k.sealed_memtable_count() > 0)
    }
}

/// A snapshot of all keyspaces.
pub struct View<'a> {
    rows: &'a Rows,
    snapshot: Snapshot,
}

impl View<'_> {
    pub fn get(&self, table: Table, key: &[u8]) -> StoreResult<Option<UserValue>> {
        self.snapshot.get(self.rows.keyspace(table), key).map_err(|e| self.rows.failed(e))
    }

    /// Rows from `from` on, in key order.
    pub fn range(&self, table: Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Range<'_> {
        // An empty or backward range makes the underlying map panic.
        let empty = match (&from, &to) {
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
            _ => false,
        };
        let iter = (!empty).then(|| self.snapshot.range(self.rows.keyspace(table), (from, to)));
        Range { rows: self.rows, iter, back: false }
    }

    /// The same rows, from the last to the first.
    pub fn range_back(&self, table: Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Range<'_> {
        Range { back: true, ..self.range(table, from, to) }
    }

    /// All rows whose key begins with `prefix`.
    pub fn prefix(&self, table: Table, prefix: &[u8]) -> Range<'_> {
        self.range(table, Bound::Included(prefix.to_vec()), super::keys::behind(prefix))
    }
}

/// Rows of a range; errors as the store's.
pub struct Range<'a> {
    rows: &'a Rows,
    iter: Option<Iter>,
    back: bool,
}

impl Iterator for Range<'_> {
    type Item = StoreResult<(UserKey, UserValue)>;

    fn next(&mut self) -> Option<Self::Item> {
        let iter = self.iter.as_mut()?;
        let guard = if self.back { iter.next_back() } else { iter.next() }?;
        Some(guard.into_inner().map_err(|e| self.rows.failed(e)))
    }
}

/// Says where bytes could not be read.
pub fn damaged(table: Table, key: &[u8]) -> StoreError {
    StoreError::Damaged(format!("{} {}", table.name(), key.escape_ascii()))
}
