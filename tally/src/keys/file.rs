//! The keys file: TOML, one `[[key]]` each, hashes only; changed by replacing it as a whole.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use schema::{Micros, Namespace};
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::token;
use ingest::http::{Namespaces, Role, Roles};

/// Largest keys file, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// Most keys in a file.
const MAX_KEYS: usize = 10_000;

/// One key as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredKey {
    /// The part of the token that it is looked up by.
    pub id: String,
    /// Who has it: for logs and the audit log.
    pub name: String,
    /// `sha256:` and the hash of the whole token.
    pub hash: String,
    /// Namespaces, or `*`.
    pub namespaces: Vec<String>,
    /// `read`, `write`, `moderate`, `operate`.
    pub roles: Vec<String>,
    /// When it was made, as `2026-03-01T12:00:00Z`.
    pub created: String,
    /// From when on it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Refused, but kept for the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}

/// A key that was checked.
#[derive(Debug, Clone)]
pub struct CheckedKey {
    /// The part of the token that it is looked up by.
    pub id: String,
    /// Hash of the token.
    pub hash: token::Hash,
    /// Who has it.
    pub name: String,
    /// What it may do.
    pub roles: Roles,
    /// Where.
    pub namespaces: Namespaces,
    /// From when on it is refused.
    pub expires: Option<Micros>,
    /// Refused at any time.
    pub disabled: bool,
}

/// All keys of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// In the order in which they were made.
    #[serde(default, rename = "key")]
    pub keys: Vec<StoredKey>,
}

impl StoredKey {
    /// Everything in it, understood; the error names what is not.
    pub fn check(&self) -> Result<CheckedKey, String> {
        let wrong = |what: String| format!("key `{}`: {what}", self.name);
        if self.name.is_empty() || self.name.len() > 64 || self.name.chars().any(char::is_control) {
            return Err("a key's `name` has 1 to 64 bytes and no control characters".into());
        }
        if !token::is_id(&self.id) {
            return Err(wrong("`id` is not 12 hexadecimal digits".into()));
        }
        let hash = token::parse_hash(&self.hash).ok_or_else(|| wrong("`hash` is not as `sha256:…`".into()))?;
        let mut roles = Vec::new();
        for name in &self.roles {
            let known = || Role::ALL.map(Role::name).join(", ");
            roles.push(Role::parse(name).ok_or_else(|| wrong(format!("no role `{name}`; there are {}", known())))?);
        }
        let namespaces = match self.namespaces.as_slice() {
            [] => return Err(wrong("`namespaces` is empty; use [\"*\"] for all".into())),
            [all] if all == "*" => Namespaces::All,
            some => Namespaces::Only(
                some.iter().map(|n| Namespace::parse(n)).collect::<Result<_, _>>().map_err(|e| wrong(e.to_string()))?,
            ),
        };
        let expires = self.expires.as_deref().map(parse_time).transpose().map_err(wrong)?;
        let (id, name) = (self.id.clone(), self.name.clone());
        Ok(CheckedKey { id, hash, name, roles: roles.into_iter().collect(), namespaces, expires, disabled: self.disabled })
    }
}

impl KeyFile {
    /// Reads and checks a file, as its keys and as what they mean.
    pub fn load(path: &Path) -> Result<(Self, Vec<CheckedKey>), String> {
        let place = path.display();
        let mut text = String::new();
        let file = File::open(path).map_err(|e| format!("cannot read the keys in {place}: {e}"))?;
        let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
        read.map_err(|e| format!("cannot read the keys in {place}: {e}"))?;
        if text.len() as u64 > MAX_FILE {
            return Err(format!("the keys in {place} are larger than 4 MiB"));
        }
        // The message without the text around: a line of a keys file is nobody's business.
        let file: Self = toml::from_str(&text).map_err(|e| format!("the keys in {place} do not fit: {}", e.message()))?;
        if file.keys.len() > MAX_KEYS {
            return Err(format!("{place} holds {} keys, at most {MAX_KEYS} are possible", file.keys.len()));
        }
        let checked = file.keys.iter().map(StoredKey::check).collect::<Result<Vec<_>, _>>();
        let checked = checked.map_err(|e| format!("{place}: {e}"))?;
        let mut ids: Vec<&str> = checked.iter().map(|k| k.id.as_str()).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("{place}: two keys have the id {}", pair[0])),
            None => Ok((file, checked)),
        }
    }

    /// Replaces the file in one step, readable by its owner only.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("cannot write the keys to {}: {e}", path.display());
        let text = toml::to_string(self).expect("texts and lists always serialise");
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut fresh = tempfile::Builder::new().prefix(".keys").tempfile_in(folder).map_err(failed)?;
        let note =
            "# Keys of Tally: hashes only. `tally key new|list|revoke` changes this file; a running server reads it again.\n\n";
        fresh.write_all(note.as_bytes()).and_then(|()| fresh.write_all(text.as_bytes())).map_err(failed)?;
        fresh.as_file().set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        fresh.as_file().sync_all().map_err(failed)?;
        fresh.persist(path).map_err(|e| failed(e.error))?;
        File::open(folder).and_then(|f| f.sync_all()).map_err(failed)
    }
}

/// Held while a keys file is changed, so that two changes at once lose none; ends with the process.
pub struct Lock(#[expect(dead_code, reason = "held, not read")] File);

impl Lock {
    /// Waits for nobody: somebody else's change is an error that says so.
    pub fn take(path: &Path) -> Result<Self, String> {
        let mut place = path.as_os_str().to_owned();
        place.push(".lock");
        let place = PathBuf::from(place);
        let failed = |e: std::io::Error| format!("cannot lock {}: {e}", place.display());
        let file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&place).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(std::fs::TryLockError::WouldBlock) => Err(format!("{} is being changed; try again", path.display())),
            Err(std::fs::TryLockError::Error(e)) => Err(failed(e)),
        }
    }
}

/// A warning where others than the owner may read the file.
pub fn too_open(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o077 != 0).then(|| format!("{} may be read by others (mode {:o}); chmod 600 it", path.display(), mode & 0o777))
}

/// `2026-03-01T12:00:00Z`, to the second.
pub fn time_text(at: Micros) -> String {
    let seconds = OffsetDateTime::from_unix_timestamp(at.div_euclid(1_000_000)).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    seconds.format(&Rfc3339).expect("years below 10000 have this form")
}

/// A moment as [`time_text`] writes it.
pub fn parse_time(text: &str) -> Result<Micros, String> {
    let parsed = OffsetDateTime::parse(text, &Rfc3339).ok();
    let micros = parsed.and_then(|t| Micros::try_from(t.unix_timestamp_nanos() / 1000).ok());
    micros.ok_or_else(|| format!("`{text}` is not a moment as 2026-03-01T12:00:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> StoredKey {
        StoredKey {
            id: format!("{n:012x}"),
            name: format!("k{n}"),
            hash: token::hash_text(&[7; 32]),
            namespaces: vec!["video".into()],
            roles: vec!["read".into(), "write".into()],
            created: time_text(1_700_000_000_000_000),
            expires: None,
            disabled: false,
        }
    }

    #[test]
    fn what_is_saved_is_loaded_and_nobody_else_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        let expires = Some("2026-03-01T12:00:00Z".to_owned());
        let file = KeyFile { keys: vec![key(1), StoredKey { expires, disabled: true, ..key(2) }] };
        file.save(&path).unwrap();
        let (loaded, checked) = KeyFile::load(&path).unwrap();
        assert_eq!(loaded, file);
        assert_eq!(checked[1].expires.map(time_text).as_deref(), Some("2026-03-01T12:00:00Z"));
        assert!(checked[0].roles.has(Role::Write) && !checked[0].roles.has(Role::Operate));
        assert_eq!(too_open(&path), None);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(too_open(&path).is_some_and(|w| w.contains("644")));
    }

    #[test]
    fn a_key_that_does_not_fit_is_named_and_two_of_one_id_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        let cases = [
            (StoredKey { roles: vec!["admin".into()], ..key(1) }, "no role `admin`; there are read, write, moderate, operate"),
            (StoredKey { namespaces: vec![], ..key(1) }, "`namespaces` is empty"),
            (StoredKey { namespaces: vec!["*".into(), "video".into()], ..key(1) }, "namespace"),
            (StoredKey { hash: "x".into(), ..key(1) }, "`hash`"),
            (StoredKey { expires: Some("tomorrow".into()), ..key(1) }, "is not a moment"),
            (StoredKey { id: "Z".into(), ..key(1) }, "`id`"),
            (key(2), "two keys have the id 000000000002"),
        ];
        for (bad, expected) in cases {
            KeyFile { keys: vec![key(2), bad] }.save(&path).unwrap();
            let error = KeyFile::load(&path).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        std::fs::write(&path, "[[key]]\nsecret = 'tally_hidden'\n").unwrap();
        assert!(!KeyFile::load(&path).unwrap_err().contains("tally_hidden"));
    }

    #[test]
    fn two_changes_at_once_are_not_possible() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        let held = Lock::take(&path).unwrap();
        assert!(Lock::take(&path).is_err_and(|e| e.contains("being changed")));
        drop(held);
        assert!(Lock::take(&path).is_ok());
    }
}
