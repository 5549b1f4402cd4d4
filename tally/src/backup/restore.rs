//! `tally restore`: a data directory of a backup, made and verified beside its place, `DIR.restoring`.
//!
//! `DIR` gets its name when everything is durable and verified; so a restore that is cut off anywhere
//! leaves nothing under that name, and the next one clears away what the earlier one had made.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::Read,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rebuilder::Report;
use schema::Micros;
use serde::Serialize;

use super::{Frames, Manifest, failed, folder, open};
use crate::{
    cli::RestoreArgs,
    config::Config,
    failure::Failure,
    output::{grouped, print, print_json},
    progress::Shown,
    repair,
    serve::OrderBody,
    times::said,
};

/// File that a restore makes first: only a directory that has it is cleared away.
const MARK: &str = "TALLY-RESTORE";
/// Where the rows are, until they get their name.
const STORE: &str = "data";
/// Bytes of a part that are read at a time.
const PIECE: usize = 1 << 20;

/// What a restore did.
#[derive(Debug, Serialize)]
struct Restored {
    backup: PathBuf,
    data: PathBuf,
    rows: u64,
    started: Micros,
    verify: Report,
}

/// `tally restore`.
pub async fn restore(args: RestoreArgs) -> Result<u8, Failure> {
    let data = &args.dir;
    refuse_taken(data)?;
    let manifest = tokio::task::block_in_place(|| folder::check(&args.backup))?;
    let place = Beside::claim(data)?;
    // Another one may have ended since.
    refuse_taken(data)?;
    let report = match fill(&args.backup, &manifest, &place).await {
        Ok(report) => place.give_name(data).map(|()| report),
        Err(failure) => Err(place.clear_after(failure)),
    }?;
    let code = repair::verdict(&report);
    if args.json {
        let (backup, rows, started) = (args.backup.clone(), manifest.rows, manifest.head.started);
        print_json(&Restored { backup, data: data.clone(), rows, started, verify: report })?;
    } else {
        print(&format!(
            "{}: {} rows restored; everything answered before {} is in it\n{}",
            data.display(),
            grouped(manifest.rows),
            said(manifest.head.started),
            repair::describe(&report)
        ))?;
    }
    Ok(code)
}

fn refuse_taken(data: &Path) -> Result<(), Failure> {
    if folder::is_free(data)? {
        return Ok(());
    }
    Err(Failure::usage(format!("{} is not empty; restore into a new directory", data.display())))
}

/// Writes all rows, and verifies what they make.
async fn fill(backup: &Path, manifest: &Manifest, place: &Beside) -> Result<Report, Failure> {
    write_rows(backup, manifest, &place.store()).await?;
    let flags = [("data".to_owned(), place.store().display().to_string())];
    repair::offline(&Config::from_flags(&flags)?, &OrderBody::default()).await
}

/// The directory beside the data's, locked for as long as this value lives.
struct Beside {
    dir: PathBuf,
    _lock: File,
}

impl Beside {
    /// Makes it, or clears away what a restore that was cut off had made in it.
    fn claim(data: &Path) -> Result<Self, Failure> {
        let mut name = data.file_name().unwrap_or_default().to_owned();
        name.push(".restoring");
        let dir = data.with_file_name(name);
        let io = |e: std::io::Error| Failure::unreachable(format!("cannot use {}: {e}", dir.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(io)?;
        let mark = dir.join(MARK);
        // Cut off before its mark, a restore leaves an empty directory.
        if !mark.exists() && !folder::is_free(&dir)? {
            return Err(Failure::usage(format!(
                "{} is in the way: a restore writes there first, and it holds files that none has made (it has no {MARK}); \
                 look at them, move or remove that directory, and try again",
                dir.display()
            )));
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&mark).map_err(io)?;
        lock.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => {
                Failure::usage(format!("another restore into {} is under way; wait for it", data.display()))
            }
            TryLockError::Error(e) => io(e),
        })?;
        let place = Self { dir, _lock: lock };
        if place.store().exists() {
            fs::remove_dir_all(place.store()).map_err(|e| {
                Failure::unreachable(format!("cannot clear away what an earlier restore left: {}: {e}", place.store().display()))
            })?;
            eprintln!("tally: cleared away what an earlier restore that was cut off had left in {}", place.dir.display());
        }
        Ok(place)
    }

    fn store(&self) -> PathBuf {
        self.dir.join(STORE)
    }

    /// Gives the rows the data's name, and goes.
    fn give_name(self, data: &Path) -> Result<(), Failure> {
        let io = |e: std::io::Error| {
            let place = self.store();
            Failure::unreachable(format!(
                "cannot give {} its name: {e}; everything is restored and verified in {}: move that directory, or try again",
                data.display(),
                place.display()
            ))
        };
        fs::rename(self.store(), data).map_err(io)?;
        let parent = data.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|d| d.sync_all()).map_err(io)?;
        // The data is in its place: what is left over is one small file.
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("tally: {} is not needed any more and cannot be removed: {error}", self.dir.display());
        }
        Ok(())
    }

    /// Removes what this restore has made; the failure, with a word about what could not be.
    fn clear_after(self, failure: Failure) -> Failure {
        match fs::remove_dir_all(&self.dir) {
            Ok(()) => failure,
            Err(error) => Failure {
                message: format!(
                    "{}; what was made is in {} and cannot be removed ({error}): the next restore clears it away",
                    failure.message,
                    self.dir.display()
                ),
                ..failure
            },
        }
    }
}

/// Writes the rows of all parts into a new store at `place`.
async fn write_rows(backup: &Path, manifest: &Manifest, place: &Path) -> Result<(), Failure> {
    let io = |e: std::io::Error| Failure::unreachable(format!("cannot read {}: {e}", backup.display()));
    let engine = open(place).await?;
    let (mut written, mut bytes, mut shown) = (0, 0, Shown::new(Some(manifest.bytes)));
    let mut piece = vec![0; PIECE];
    for part in &manifest.parts {
        let mut file = File::open(backup.join(&part.file)).map_err(io)?;
        let mut frames = Frames::default();
        loop {
            let read = tokio::task::block_in_place(|| file.read(&mut piece)).map_err(io)?;
            if read == 0 {
                break;
            }
            frames.feed(&piece[..read]);
            while let Some((_, block)) = frames.next()? {
                written += engine.put_block(block).await.map_err(failed)?;
            }
            bytes += read as u64;
            shown.update(bytes, || format!("{} rows restored", grouped(written)));
        }
        if !frames.is_empty() {
            return Err(Failure::negative(format!(
                "the backup {} is damaged: {} ends in the middle of a block",
                backup.display(),
                part.file
            )));
        }
    }
    shown.end();
    engine.close().await.map_err(failed)?;
    if written != manifest.rows {
        return Err(Failure::negative(format!(
            "the backup {} is damaged: it holds {written} rows, the manifest says {}",
            backup.display(),
            manifest.rows
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_restore_has_made_is_cleared_away_and_one_at_a_time_works_there() {
        let folder = tempfile::tempdir().unwrap();
        let (data, dir) = (folder.path().join("d"), folder.path().join("d.restoring"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("precious"), "x").unwrap();
        let refused = Beside::claim(&data).err().unwrap().message;
        assert!(refused.contains("is in the way") && dir.join("precious").exists(), "{refused}");
        fs::remove_file(dir.join("precious")).unwrap();
        let place = Beside::claim(&data).unwrap();
        fs::create_dir(place.store()).unwrap();
        fs::write(place.store().join("half"), "x").unwrap();
        let second = Beside::claim(&data).err().unwrap().message;
        assert!(second.contains("under way") && place.store().join("half").exists(), "{second}");
        drop(place);
        let place = Beside::claim(&data).unwrap();
        assert!(!place.store().exists(), "what was left is cleared away");
        let told = place.clear_after(Failure::negative("damaged"));
        assert_eq!((told, dir.exists()), (Failure::negative("damaged"), false));
        let place = Beside::claim(&data).unwrap();
        fs::create_dir(place.store()).unwrap();
        place.give_name(&data).unwrap();
        assert!(data.exists() && !dir.exists());
    }
}
