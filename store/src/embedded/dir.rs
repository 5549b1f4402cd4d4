//! The data directory: whose it is, which format it has, and that only one process has it open.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{rows::Table, seal};

/// Format that this version writes: keys, cells, and the names of the keyspaces.
const FORMAT: u32 = 1;
const LOCK: &str = "LOCK";
const MARK: &str = "TALLY";
const MARK_NEW: &str = "TALLY.new";
const ROWS: &str = "rows";
/// Longest mark file that is looked at, in bytes.
const MAX_MARK: usize = 256;

/// Why a data directory cannot be opened, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{path} is in use by another process; stop that process, or choose another directory")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// It holds something else.
    #[error("{path} is not empty and not a Tally data directory; choose an empty or a new directory")]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// Written by a newer version.
    #[error("{path} has format {found}, this version knows {FORMAT}; upgrade this process")]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Its files cannot be understood.
    #[error("{path} is damaged: {detail}; restore it from a backup, or keep it aside and start with a new directory")]
    Damaged {
        /// The directory or file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The system refused.
    #[error("cannot use {path}: {source}; check that it exists, may be written, and has free space")]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// Tells a file that cannot be understood from one that cannot be reached.
    pub(super) fn of_fjall(path: &Path, error: fjall::Error) -> Self {
        let path = path.to_path_buf();
        match error {
            fjall::Error::Io(e) | fjall::Error::Storage(fjall::LsmError::Io(e)) => match e.kind() {
                ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::NotADirectory => {
                    Self::Damaged { path, detail: e.to_string() }
                }
                _ => Self::Io { path, source: e },
            },
            fjall::Error::Locked => Self::Locked { path },
            other => Self::Damaged { path, detail: format!("{other:?}") },
        }
    }
}

/// A locked data directory; the lock ends with this value or its process.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Whether the rows were closed in order, so that their files may be sealed.
    closed: AtomicBool,
    _lock: File,
}

#[derive(Debug, PartialEq, Eq)]
enum Mark {
    /// Rows were being laid out when the process died; nothing was stored yet.
    Creating,
    Ready,
}

impl DataDir {
    /// Locks the directory, made where there is none, and checks whose it is.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        fs::create_dir_all(path).map_err(|e| OpenError::io(path, e))?;
        if !path.join(MARK).exists() {
            refuse_foreign(path)?;
        }
        let lock_path = path.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(|e| OpenError::io(&lock_path, e))?;
        lock.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => OpenError::Locked { path: path.into() },
            TryLockError::Error(e) => OpenError::io(&lock_path, e),
        })?;
        let dir = Self { path: path.into(), closed: AtomicBool::new(false), _lock: lock };
        let mark = dir.read_mark()?;
        if mark == Some(Mark::Ready) {
            seal::check(path, &dir.rows())?;
        }
        match mark {
            Some(Mark::Ready) if !dir.rows().join("version").exists() => {
                return Err(OpenError::Damaged { path: dir.rows(), detail: "its files are missing".into() });
            }
            // Without its journal a store would open as an older, smaller one.
            Some(Mark::Ready) if !has_journal(&dir.rows()) => {
                return Err(OpenError::Damaged { path: dir.rows(), detail: "its journal is missing".into() });
            }
            Some(Mark::Ready) => {
                seal::check_layout(&dir.rows(), Table::ALL.len())?;
                // Refused above, it stays, so that the next try is refused too.
                seal::break_seal(path)?;
            }
            Some(Mark::Creating) | None => {
                dir.write_mark(&Mark::Creating)?;
                seal::break_seal(path)?;
                if dir.rows().exists() {
                    fs::remove_dir_all(dir.rows()).map_err(|e| OpenError::io(&dir.rows(), e))?;
                }
            }
        }
        Ok(dir)
    }

    /// Where the rows are.
    pub fn rows(&self) -> PathBuf {
        self.path.join(ROWS)
    }

    /// The rows were closed in order: once they are gone, and with this value, their files are sealed.
    pub fn closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Records that the rows are laid out: from now on, missing files are damage.
    pub fn created(&self) -> Result<(), OpenError> {
        if self.read_mark()? == Some(Mark::Ready) { Ok(()) } else { self.write_mark(&Mark::Ready) }
    }

    fn read_mark(&self) -> Result<Option<Mark>, OpenError> {
        let path = self.path.join(MARK);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(OpenError::io(&path, e)),
        };
        let mark = (bytes.len() <= MAX_MARK).then(|| String::from_utf8(bytes).ok()).flatten();
        let damaged = || OpenError::Damaged { path: path.clone(), detail: "not a format file".into() };
        let mark = mark.ok_or_else(damaged)?;
        let (format, state) =
            mark.strip_prefix("tally data, format ").and_then(|rest| rest.trim_end().split_once(", ")).ok_or_else(damaged)?;
        let format: u32 = format.parse().map_err(|_| damaged())?;
        match (format, state) {
            (FORMAT, "ready") => Ok(Some(Mark::Ready)),
            (FORMAT, "creating") => Ok(Some(Mark::Creating)),
            (found, _) if found > FORMAT => Err(OpenError::Newer { path: self.path.clone(), found }),
            _ => Err(damaged()),
        }
    }

    /// Replaces the mark so that a crash leaves the old one or the new one.
    fn write_mark(&self, mark: &Mark) -> Result<(), OpenError> {
        let state = match mark {
            Mark::Creating => "creating",
            Mark::Ready => "ready",
        };
        let (path, new) = (self.path.join(MARK), self.path.join(MARK_NEW));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(format!("tally data, format {FORMAT}, {state}\n").as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|e| OpenError::io(&path, e))
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if self.closed.load(Ordering::Acquire)
            && let Err(error) = seal::write(&self.path, &self.rows())
        {
            // Without a seal it opens as after a crash.
            tracing::warn!(%error, "the list of files could not be written");
        }
    }
}

/// Whether a journal with anything in it is there; a store that was laid out always has one.
fn has_journal(rows: &Path) -> bool {
    let entries = fs::read_dir(rows).into_iter().flatten().flatten();
    entries.filter(|e| e.path().extension().is_some_and(|x| x == "jnl")).any(|e| e.metadata().is_ok_and(|m| m.len() > 0))
}

/// A directory without a mark may hold nothing but what an interrupted first start left.
fn refuse_foreign(path: &Path) -> Result<(), OpenError> {
    // The mark is made before the rows are.
    if path.join(LOCK).exists() && path.join(ROWS).exists() {
        return Err(OpenError::Damaged { path: path.join(MARK), detail: "this file is missing".into() });
    }
    for entry in fs::read_dir(path).map_err(|e| OpenError::io(path, e))? {
        let name = entry.map_err(|e| OpenError::io(path, e))?.file_name();
        // A file system of its own begins with this directory.
        if ![LOCK, MARK_NEW, MARK, "lost+found"].iter().any(|ours| name == *ours) {
            return Err(OpenError::Foreign { path: path.into() });
        }
    }
    Ok(())
}
