//! A backup on disk: parts, a manifest with the checksum of each, and `SHA256SUMS`, written last.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use schema::Micros;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::frames::{Tag, frame};
use crate::failure::Failure;

/// Format of backups that this version writes and reads.
pub const FORMAT: u32 = 1;
/// A part is closed once it has this many bytes.
const PART_BYTES: u64 = 64 << 20;
/// Largest manifest that is read, in bytes: more than a hundred thousand parts.
const MAX_MANIFEST: u64 = 32 << 20;
const MANIFEST: &str = "manifest.json";
const SUMS: &str = "SHA256SUMS";

/// What a copy is of; the first frame of a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the process that made it.
    pub version: String,
    /// Store time at the beginning, microseconds: every change answered before is in the copy.
    pub started: Micros,
}

/// The manifest of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// What it is a copy of.
    #[serde(flatten)]
    pub head: Head,
    /// Rows of all parts.
    pub rows: u64,
    /// Bytes of all parts.
    pub bytes: u64,
    /// The parts, in order.
    pub parts: Vec<Part>,
}

/// One file of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its name in the backup's directory.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Rows in it.
    pub rows: u64,
    /// Of all its bytes, in hexadecimal.
    pub sha256: String,
}

/// A part being written.
struct Open {
    file: File,
    name: String,
    hash: Sha256,
    bytes: u64,
    rows: u64,
}

/// Writes a backup. Without [`Writer::finish`] what it leaves behind is refused as incomplete.
pub struct Writer {
    dir: PathBuf,
    manifest: Manifest,
    open: Option<Open>,
}

fn failed(path: &Path, doing: &str, error: &std::io::Error) -> Failure {
    Failure::unreachable(format!("cannot {doing} {}: {error}", path.display()))
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether there is nothing at `dir`, or an empty directory.
pub fn is_free(dir: &Path) -> Result<bool, Failure> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(failed(dir, "use", &e)),
    }
}

/// A file that only its owner may read: a backup holds who liked what.
fn create(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|e| failed(path, "write", &e))
}

impl Writer {
    /// Begins a backup in `dir`, which is made, or empty.
    pub fn create(dir: &Path, head: Head) -> Result<Self, Failure> {
        if !is_free(dir)? {
            return Err(Failure::usage(format!("{} is not empty; name a new directory for the backup", dir.display())));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| failed(dir, "make", &e))?;
        let manifest = Manifest { head, rows: 0, bytes: 0, parts: Vec::new() };
        Ok(Self { dir: dir.to_owned(), manifest, open: None })
    }

    /// Adds a block of `rows` rows.
    pub fn block(&mut self, block: &[u8], rows: u64) -> Result<(), Failure> {
        if self.open.is_none() {
            let name = format!("rows-{:06}.part", self.manifest.parts.len() + 1);
            let file = create(&self.dir.join(&name))?;
            self.open = Some(Open { file, name, hash: Sha256::new(), bytes: 0, rows: 0 });
        }
        let open = self.open.as_mut().expect("made above");
        let bytes = frame(Tag::Block, block);
        open.file.write_all(&bytes).map_err(|e| failed(&self.dir.join(&open.name), "write", &e))?;
        open.hash.update(&bytes);
        open.bytes += bytes.len() as u64;
        open.rows += rows;
        if open.bytes >= PART_BYTES { self.close_part() } else { Ok(()) }
    }

    fn close_part(&mut self) -> Result<(), Failure> {
        let Some(open) = self.open.take() else { return Ok(()) };
        open.file.sync_all().map_err(|e| failed(&self.dir.join(&open.name), "write", &e))?;
        self.manifest.rows += open.rows;
        self.manifest.bytes += open.bytes;
        let Open { name: file, hash, bytes, rows, .. } = open;
        self.manifest.parts.push(Part { file, bytes, rows, sha256: hex(hash) });
        Ok(())
    }

    /// Writes manifest and checksums: from now on it is a backup.
    pub fn finish(mut self) -> Result<Manifest, Failure> {
        self.close_part()?;
        let text = serde_json::to_string_pretty(&self.manifest).expect("numbers and texts always serialise") + "\n";
        let mut sums = format!("{}  {MANIFEST}\n", hex(Sha256::new_with_prefix(&text)));
        for part in &self.manifest.parts {
            sums += &format!("{}  {}\n", part.sha256, part.file);
        }
        for (name, text) in [(MANIFEST, &text), (SUMS, &sums)] {
            let path = self.dir.join(name);
            let mut file = create(&path)?;
            file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|e| failed(&path, "write", &e))?;
        }
        File::open(&self.dir).and_then(|d| d.sync_all()).map_err(|e| failed(&self.dir, "write", &e))?;
        Ok(self.manifest)
    }
}

/// Reads manifest and checksums of the backup in `dir`, and every part once; what is wrong is named.
pub fn check(dir: &Path) -> Result<Manifest, Failure> {
    let damaged = |file: &str, what: &str| {
        Failure::negative(format!("the backup {} is damaged: {file}: {what}; use another backup", dir.display()))
    };
    if !dir.is_dir() {
        return Err(Failure::unreachable(format!("there is no backup {}", dir.display())));
    }
    let read = |file: &'static str| -> Result<String, Failure> {
        let path = dir.join(file);
        match fs::metadata(&path) {
            Ok(about) if about.len() > MAX_MANIFEST => Err(damaged(file, "too large")),
            Ok(_) => String::from_utf8(fs::read(&path).map_err(|e| failed(&path, "read", &e))?)
                .map_err(|_| damaged(file, "not a text")),
            Err(_) => Err(damaged(file, "missing: the backup was not finished")),
        }
    };
    let (sums, text) = (read(SUMS)?, read(MANIFEST)?);
    let listed = |file: &str| {
        let line = sums.lines().find_map(|line| line.strip_suffix(file)?.strip_suffix("  "));
        line.ok_or_else(|| damaged(SUMS, &format!("does not name {file}")))
    };
    if listed(MANIFEST)? != hex(Sha256::new_with_prefix(&text)) {
        return Err(damaged(MANIFEST, "its checksum is not the one in SHA256SUMS"));
    }
    let manifest: Manifest = serde_json::from_str(&text).map_err(|e| damaged(MANIFEST, &e.to_string()))?;
    if manifest.head.format != FORMAT {
        let found = manifest.head.format;
        return Err(Failure::usage(format!(
            "{} has format {found}, this version knows {FORMAT}; use the version that made it",
            dir.display()
        )));
    }
    for part in &manifest.parts {
        let plain = Path::new(&part.file).components().count() == 1 && part.file.starts_with("rows-");
        if !plain || listed(&part.file)? != part.sha256 {
            return Err(damaged(MANIFEST, &format!("{} is not as SHA256SUMS has it", part.file)));
        }
        let path = dir.join(&part.file);
        let mut file = File::open(&path).map_err(|_| damaged(&part.file, "missing"))?;
        let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
        loop {
            let n = file.read(&mut buffer).map_err(|e| damaged(&part.file, &e.to_string()))?;
            if n == 0 {
                break;
            }
            hash.update(&buffer[..n]);
            bytes += n as u64;
        }
        if bytes != part.bytes {
            return Err(damaged(&part.file, &format!("it has {bytes} bytes, the manifest says {}", part.bytes)));
        }
        if hex(hash) != part.sha256 {
            return Err(damaged(&part.file, "its bytes have changed: the checksum differs"));
        }
    }
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(dir: &Path) -> Manifest {
        let head = Head { format: FORMAT, version: "0".into(), started: 7 };
        let mut writer = Writer::create(dir, head).unwrap();
        writer.block(&[1; 100], 3).unwrap();
        writer.block(&[2; 50], 1).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn a_backup_is_whole_or_what_is_wrong_with_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("b");
        let manifest = backup(&dir);
        assert_eq!((manifest.rows, manifest.bytes, manifest.parts.len()), (4, 160, 1));
        assert_eq!(check(&dir).unwrap(), manifest);
        let part = dir.join("rows-000001.part");
        let good = fs::read(&part).unwrap();
        let message = || check(&dir).unwrap_err().message;

        let mut flipped = good.clone();
        flipped[40] ^= 1;
        fs::write(&part, flipped).unwrap();
        assert!(message().contains("rows-000001.part: its bytes have changed"), "{}", message());
        fs::write(&part, &good[..good.len() - 1]).unwrap();
        assert!(message().contains("it has 159 bytes, the manifest says 160"), "{}", message());
        fs::remove_file(&part).unwrap();
        assert!(message().contains("rows-000001.part: missing"), "{}", message());
        fs::write(&part, &good).unwrap();
        assert!(check(&dir).is_ok());

        let text = fs::read_to_string(dir.join(MANIFEST)).unwrap();
        fs::write(dir.join(MANIFEST), text.replace("\"rows\": 4", "\"rows\": 5")).unwrap();
        assert!(message().contains("manifest.json: its checksum"), "{}", message());
        fs::write(dir.join(MANIFEST), text).unwrap();
        fs::remove_file(dir.join(SUMS)).unwrap();
        assert!(message().contains("the backup was not finished"), "{}", message());
        assert!(check(&folder.path().join("none")).unwrap_err().message.contains("there is no backup"));
    }

    #[test]
    fn a_manifest_cannot_name_files_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("b");
        backup(&dir);
        let text = fs::read_to_string(dir.join(MANIFEST)).unwrap().replace("rows-000001.part", "../rows-000001.part");
        let sums = fs::read_to_string(dir.join(SUMS)).unwrap().replace("rows-000001.part", "../rows-000001.part");
        let (_, rest) = sums.split_once('\n').unwrap();
        fs::write(dir.join(SUMS), format!("{}  {MANIFEST}\n{rest}", hex(Sha256::new_with_prefix(&text)))).unwrap();
        fs::write(dir.join(MANIFEST), text).unwrap();
        fs::write(folder.path().join("rows-000001.part"), "x").unwrap();
        assert!(check(&dir).unwrap_err().message.contains("is damaged: manifest.json"));
    }

    #[test]
    fn only_an_empty_directory_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x"), "").unwrap();
        let head = Head { format: FORMAT, version: "0".into(), started: 7 };
        assert!(Writer::create(folder.path(), head).is_err());
    }
}
