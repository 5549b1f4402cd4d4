//! What tells a damaged file from a whole one before the database reads it.
//!
//! Two checks, because the database itself trusts its directory: a missing file may make it drop a
//! keyspace, a flipped bit in a list of tables may make it ask for any amount of memory, and a
//! shortened journal is a smaller store.
//!
//! - The *seal*: after a clean end the file `FILES` names every file of the rows with its length and
//!   a checksum. It is compared, and removed, before the rows are opened; so it exists only while
//!   nobody has the store open.
//! - The *layout*, always, also after a crash: every keyspace is there, and its list of tables has the
//!   checksum that the database wrote beside it.
//!
//! After a crash there is no seal, and a journal's end may rightly be torn: then a journal that was
//! also cut short by hand cannot be told from one that was torn, and what it lost is not noticed.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::OpenError;

/// The seal's name in the data directory.
pub const SEAL: &str = "FILES";
const SEAL_NEW: &str = "FILES.new";
const FIRST_LINE: &str = "tally files, format 1";
/// Largest seal that is read, in bytes: room for 100,000 files.
const MAX_SEAL: u64 = 8 << 20;
/// How much of a table's end is checked, in bytes: where its parts are, and mostly its index. Its data
/// blocks have checksums of their own, and reading them all would make opening as slow as a scan.
const TABLE_END: u64 = 64 << 10;
/// Folder of the tables in each keyspace, and of the keyspaces.
const TABLES: &str = "tables";
const KEYSPACES: &str = "keyspaces";
/// The database's own keyspace beside ours.
const META_KEYSPACES: usize = 1;
/// Names the newest list of tables: its number and its checksum.
const CURRENT: &str = "current";
/// Number (u64), checksum (u128), sort of checksum (u8), little-endian.
const CURRENT_LEN: usize = 25;
/// Held by the database while it is open; empty.
const ROWS_LOCK: &str = "lock";

/// Writes the seal of `rows` into `dir`. The rows must be closed.
pub fn write(dir: &Path, rows: &Path) -> io::Result<()> {
    let mut text = format!("{FIRST_LINE}\n");
    for name in names(rows)? {
        let (len, sum) = fingerprint(&rows.join(&name), is_table(&name))?;
        let _ = writeln!(text, "{len} {sum:016x} {name}");
    }
    let sum = xxh3_64(text.as_bytes());
    let _ = writeln!(text, "end {sum:016x}");
    let new = dir.join(SEAL_NEW);
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, dir.join(SEAL))?;
    File::open(dir)?.sync_all()
}

/// Compares `rows` with the seal in `dir`, if there is one.
pub fn check(dir: &Path, rows: &Path) -> Result<(), OpenError> {
    let path = dir.join(SEAL);
    let Some(text) = read_seal(&path).map_err(|e| OpenError::io(&path, e))? else { return Ok(()) };
    let damaged = |path: &Path, detail: &str| OpenError::Damaged { path: path.into(), detail: detail.into() };
    let entries = parse(&text).ok_or_else(|| damaged(&path, "not the list of files that was written at the last end"))?;
    let found = names(rows).map_err(|e| match e.kind() {
        ErrorKind::NotFound => damaged(rows, "it is missing"),
        _ => OpenError::io(rows, e),
    })?;
    for (len, sum, name) in &entries {
        let file = rows.join(name);
        if found.binary_search_by(|f| f.as_str().cmp(name)).is_err() {
            return Err(damaged(&file, "this file is missing; it was there when the store was closed"));
        }
        let (now, now_sum) = fingerprint(&file, is_table(name)).map_err(|e| OpenError::io(&file, e))?;
        if now != *len {
            return Err(damaged(&file, &format!("it has {now} bytes; it had {len} when the store was closed")));
        }
        if now_sum != *sum {
            return Err(damaged(&file, "its content is not what it was when the store was closed"));
        }
    }
    match found.iter().find(|name| !entries.iter().any(|(_, _, known)| known == *name)) {
        Some(name) => Err(damaged(&rows.join(name), "this file was not there when the store was closed")),
        None => Ok(()),
    }
}

/// Removes the seal, for good: what comes next changes the files.
pub fn break_seal(dir: &Path) -> Result<(), OpenError> {
    let path = dir.join(SEAL);
    match fs::remove_file(&path) {
        Ok(()) => File::open(dir).and_then(|d| d.sync_all()).map_err(|e| OpenError::io(&path, e)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(OpenError::io(&path, e)),
    }
}

/// Checks what the database would take as it is: that `keyspaces` of ours and its own are there, each
/// with a whole list of its tables.
pub fn check_layout(rows: &Path, keyspaces: usize) -> Result<(), OpenError> {
    let folder = rows.join(KEYSPACES);
    let damaged = |path: &Path, detail: &str| OpenError::Damaged { path: path.into(), detail: detail.into() };
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries.collect::<io::Result<Vec<_>>>().map_err(|e| OpenError::io(&folder, e))?,
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(damaged(&folder, "it is missing")),
        Err(e) => return Err(OpenError::io(&folder, e)),
    };
    let mut there = 0;
    for path in entries.into_iter().map(|e| e.path()).filter(|p| p.is_dir()) {
        check_list(&path)?;
        there += 1;
    }
    let due = keyspaces + META_KEYSPACES;
    if there == due { Ok(()) } else { Err(damaged(&folder, &format!("{there} folders are there, expected {due}"))) }
}

/// The list of tables of one keyspace is whole, and so are the tables' names.
fn check_list(keyspace: &Path) -> Result<(), OpenError> {
    let current = keyspace.join(CURRENT);
    let read = |path: &Path| match fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err(OpenError::Damaged { path: path.into(), detail: "this file is missing".into() })
        }
        Err(e) => Err(OpenError::io(path, e)),
    };
    let damaged = |path: &Path| OpenError::Damaged { path: path.into(), detail: "its content is not what was written".into() };
    let bytes: [u8; CURRENT_LEN] = read(&current)?.try_into().map_err(|_| damaged(&current))?;
    let (number, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| damaged(&current))?;
    let (sum, sort) = rest.split_first_chunk::<16>().ok_or_else(|| damaged(&current))?;
    if sort != [0] {
        return Err(damaged(&current));
    }
    let list = keyspace.join(format!("v{}", u64::from_le_bytes(*number)));
    let mut hash = Xxh3::new();
    hash.update(&read(&list)?);
    if hash.digest128() == u128::from_le_bytes(*sum) { Ok(()) } else { Err(damaged(&list)) }
}

fn is_table(name: &str) -> bool {
    Path::new(name).parent().is_some_and(|folder| folder.ends_with(TABLES))
}

/// Names of all files of `rows`, below it, sorted. Hidden ones are not ours, nor the database's.
fn names(rows: &Path) -> io::Result<Vec<String>> {
    let (mut names, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(rows.join(&folder))? {
            let entry = entry?;
            let name = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(name);
            } else if name != Path::new(ROWS_LOCK) && !entry.file_name().to_string_lossy().starts_with('.') {
                let text = name.to_str().ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "a name that is not text"))?;
                names.push(text.to_owned());
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Length, and a checksum of all of it or, for a table, of its end.
fn fingerprint(path: &Path, end_only: bool) -> io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    if end_only {
        file.seek(SeekFrom::Start(len.saturating_sub(TABLE_END)))?;
    }
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; 128 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((len, hash.digest())),
            Ok(n) => hash.update(&buffer[..n]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn read_seal(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut bytes = Vec::new();
    file.take(MAX_SEAL).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Length, checksum and name of each file; `None`: this is no whole seal.
fn parse(bytes: &[u8]) -> Option<Vec<(u64, u64, String)>> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (body, sum) = text.rsplit_once('\n')?;
    let sum = u64::from_str_radix(sum.strip_prefix("end ")?, 16).ok()?;
    let body_len = body.len() + 1;
    if xxh3_64(&bytes[..body_len]) != sum {
        return None;
    }
    let mut lines = body.lines();
    if lines.next() != Some(FIRST_LINE) {
        return None;
    }
    let entry = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let (len, sum, name) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        Some((len, u64::from_str_radix(sum, 16).ok()?, name.to_owned()))
    };
    lines.map(entry).collect()
}
