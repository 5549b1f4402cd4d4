//! Up to which line everything has been answered, kept in a file so that an import can go on.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

#[derive(Serialize, Deserialize)]
struct State {
    /// What was imported, and how lines were read.
    what: String,
    /// Every line up to this one is answered, bad or not wanted.
    lines: u64,
}

#[derive(Default)]
struct Lines {
    /// First lines of batches that are collected or on their way.
    open: BTreeSet<u64>,
    /// Last line that was read.
    read: u64,
}

/// The place of an import.
pub struct Place {
    file: Option<PathBuf>,
    what: String,
    start: u64,
    lines: Mutex<Lines>,
}

impl Place {
    /// Goes on where `file` says, if it exists; then it must be about the same `what`.
    pub fn open(file: Option<&Path>, what: String) -> Result<Self, Failure> {
        let mut start = 0;
        if let Some(path) = file.filter(|p| p.exists()) {
            let wrong = |why: String| Failure::usage(format!("--resume {}: {why}", path.display()));
            let bytes = fs::read(path).map_err(|e| wrong(e.to_string()))?;
            let state: State = serde_json::from_slice(&bytes).map_err(|_| wrong("not a state file of `tally import`".into()))?;
            if state.what != what {
                return Err(wrong(
                    "it belongs to an import of another file or with other options; choose another state file".into(),
                ));
            }
            start = state.lines;
        }
        Ok(Self {
            file: file.map(Path::to_path_buf),
            what,
            start,
            lines: Mutex::new(Lines { open: BTreeSet::new(), read: start }),
        })
    }

    /// Lines to skip.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// A batch that begins at `line` is being collected.
    pub fn begin(&self, line: u64) {
        self.lock().open.insert(line);
    }

    /// Everything in the batch that begins at `line` is answered.
    pub fn end(&self, line: u64) {
        self.lock().open.remove(&line);
    }

    /// `line` has been read, and put into a batch if it belongs into one.
    pub fn read(&self, line: u64) {
        self.lock().read = line;
    }

    /// Every line up to this one needs no further work.
    pub fn done(&self) -> u64 {
        let lines = self.lock();
        lines.open.first().map_or(lines.read, |first| first - 1)
    }

    /// Writes the state file, where there is one; a crash leaves the old or the new one.
    pub fn save(&self) -> Result<(), Failure> {
        let Some(path) = &self.file else { return Ok(()) };
        let state = State { what: self.what.clone(), lines: self.done() };
        let bytes = serde_json::to_vec(&state).expect("texts and numbers always serialise");
        let mut new = path.clone().into_os_string();
        new.push(".new");
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(|e| Failure::unreachable(format!("--resume {}: {e}", path.display())))
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_before_the_first_open_batch_and_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let place = Place::open(Some(&path), "a".into()).unwrap();
        for line in 1..=10 {
            if [3, 5].contains(&line) {
                place.begin(line);
            }
            place.read(line);
        }
        assert_eq!(place.done(), 2);
        place.end(3);
        place.save().unwrap();
        assert_eq!(Place::open(Some(&path), "a".into()).unwrap().start(), 4);
        place.end(5);
        assert_eq!(place.done(), 10);
        assert!(Place::open(Some(&path), "b".into()).is_err(), "another import's state");
        fs::write(&path, "x").unwrap();
        assert!(Place::open(Some(&path), "a".into()).is_err());
    }
}
