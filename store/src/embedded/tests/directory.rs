//! What the engine says about directories that it cannot use.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    embedded::{Embedded, EmbeddedSettings, OpenError},
    engine::MetaTable,
};

fn open(path: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(path, &EmbeddedSettings::default())
}

fn made() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    dir
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

#[test]
fn a_directory_is_made_and_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    for _ in 0..2 {
        let engine = open(&path).unwrap();
        assert_eq!(names(&path), ["LOCK", "TALLY", "rows"]);
        drop(engine);
        assert_eq!(names(&path), ["FILES", "LOCK", "TALLY", "rows"]);
    }
}

#[test]
fn a_directory_in_use_is_refused_until_it_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("in use by another process; stop that process"), "{error}");
    drop(first);
    open(dir.path()).unwrap();
}

#[test]
fn a_foreign_directory_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "mine").unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("choose an empty or a new directory"), "{error}");
    assert_eq!(names(dir.path()), ["thesis.txt"]);
}

#[test]
fn a_newer_format_is_refused() {
    let dir = made();
    fs::write(dir.path().join("TALLY"), "tally data, format 2, half-open\n").unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 2, .. }), "{error}");
    assert!(error.to_string().contains("upgrade this process"), "{error}");
}

#[test]
fn a_damaged_format_file_is_refused() {
    let long = [b'x'; 10_000];
    let broken: [&[u8]; 6] =
        [b"", b"tally", &[0xff, 0, 7], b"tally data, format x, ready\n", b"tally data, format 1, maybe\n", &long];
    for bytes in broken {
        let dir = made();
        fs::write(dir.path().join("TALLY"), bytes).unwrap();
        let error = open(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("restore it from a backup"), "{error}");
    }
}

#[test]
fn missing_rows_are_damage_and_not_a_new_start() {
    let dir = made();
    fs::remove_dir_all(dir.path().join("rows")).unwrap();
    for _ in 0..2 {
        let error = open(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
    assert_eq!(names(dir.path()), ["FILES", "LOCK", "TALLY"]);
}

#[test]
fn an_interrupted_first_start_is_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("LOCK"), "").unwrap();
    fs::write(dir.path().join("TALLY.new"), "tally da").unwrap();
    drop(open(dir.path()).unwrap());
    // Cut off within the rows: fjall made its journal, but not yet its version file.
    fs::write(dir.path().join("TALLY"), "tally data, format 1, creating\n").unwrap();
    fs::remove_file(dir.path().join("rows/version")).unwrap();
    drop(open(dir.path()).unwrap());
    drop(open(dir.path()).unwrap());
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_of_the_system() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let locked = dir.path().join("locked");
    fs::create_dir_all(locked.join("LOCK")).unwrap();
    let mut unusable = vec![file.join("below"), file, locked];
    let read_only = dir.path().join("read-only");
    fs::create_dir(&read_only).unwrap();
    let mut mode = fs::metadata(&read_only).unwrap().permissions();
    mode.set_readonly(true);
    fs::set_permissions(&read_only, mode).unwrap();
    // For the superuser it is not read-only.
    if fs::write(read_only.join("LOCK"), "").is_err() {
        unusable.push(read_only);
    }
    for path in unusable {
        let error = open(&path).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
        assert!(error.to_string().contains("check that it exists, may be written"), "{error}");
    }
}

/// Whatever is done to any one file after the store was closed is noticed, by the file's name, and as
/// often as it is tried; put right, it opens.
#[test]
fn a_file_that_changed_since_the_store_was_closed_is_named() {
    let dir = made();
    let rows = dir.path().join("rows");
    let all: Vec<PathBuf> = files(&rows).into_iter().filter(|f| !f.ends_with("lock")).collect();
    assert!(all.len() > 20, "{all:?}");
    for file in &all {
        let good = fs::read(file).unwrap();
        let mut flipped = good.clone();
        if let Some(byte) = flipped.last_mut() {
            *byte ^= 1;
        }
        let longer = [&good[..], b"x"].concat();
        for bad in [Some(flipped).filter(|bad| *bad != good), Some(longer), None] {
            match &bad {
                Some(bad) => fs::write(file, bad).unwrap(),
                None => fs::remove_file(file).unwrap(),
            }
            for _ in 0..2 {
                let error = open(dir.path()).unwrap_err();
                assert!(matches!(&error, OpenError::Damaged { .. }), "{error}");
                let text = error.to_string();
                assert!(text.contains(&*file.to_string_lossy()), "{}: {text}", file.display());
            }
        }
        fs::write(file, good).unwrap();
    }
    let seal = dir.path().join("FILES");
    let good = fs::read(&seal).unwrap();
    for bad in [&good[..good.len() / 2], b"", b"tally files, format 1\nend 00"] {
        fs::write(&seal, bad).unwrap();
        let error = open(dir.path()).unwrap_err();
        assert!(matches!(&error, OpenError::Damaged { path, .. } if *path == seal), "{error}");
    }
    fs::write(&seal, good).unwrap();
    drop(open(dir.path()).unwrap());
}

#[test]
fn a_missing_format_file_is_damage_and_not_somebody_elses_directory() {
    let dir = made();
    fs::remove_file(dir.path().join("TALLY")).unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

/// Each file in turn is overwritten and cut short. The directory opens or is refused, reads answer
/// or fail; nothing panics, and a second attempt finds the lock free.
#[tokio::test]
async fn garbage_in_any_file_is_an_error_and_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).unwrap();
    for n in 0..200 {
        engine.put_meta(&format!("k{n}"), &[7; 100]).await.unwrap();
    }
    engine.close().await.unwrap();
    drop(engine);
    let rows = dir.path().join("rows");
    let mut refused = 0;
    for file in files(&rows) {
        if file.ends_with("lock") {
            continue;
        }
        let good = fs::read(&file).unwrap();
        let used = good.len().min(4096);
        let garbage: Vec<u8> = (0..used).map(|i| (i * 131 + 17) as u8).collect();
        let flipped: Vec<u8> = good.iter().enumerate().map(|(i, b)| if i == used / 2 { b ^ 0x55 } else { *b }).collect();
        for bad in [garbage, flipped, good[..used / 2].to_vec(), Vec::new()] {
            let copy = tempfile::tempdir().unwrap();
            copy_dir(dir.path(), copy.path());
            // As after a crash: nothing but the database's own checks stands between it and garbage.
            fs::remove_file(copy.path().join("FILES")).unwrap();
            fs::write(copy.path().join(file.strip_prefix(dir.path()).unwrap()), bad).unwrap();
            for _ in 0..2 {
                match open(copy.path()) {
                    Ok(engine) => {
                        for n in 0..200 {
                            let _ = engine.get_meta(&format!("k{n}")).await;
                        }
                        let _ = engine.list_meta("", 1000).await;
                    }
                    Err(OpenError::Damaged { .. } | OpenError::Io { .. }) => refused += 1,
                    Err(other) => panic!("{}: {other}", file.display()),
                }
            }
        }
    }
    assert!(refused > 10, "only {refused} were refused");
}

fn copy_dir(from: &Path, to: &Path) {
    for file in files(from) {
        let copy = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(&file, copy).unwrap();
    }
}
