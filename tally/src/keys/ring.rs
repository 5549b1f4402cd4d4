//! The keys in force: looked up by id, compared in constant time, exchanged as a whole.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use ingest::http::{Authority, Caller};
use schema::Micros;
use store::clock::Clock;
use subtle::ConstantTimeEq;

use super::{
    file::{CheckedKey, KeyFile, too_open},
    token,
};

#[derive(PartialEq)]
struct Entry {
    hash: token::Hash,
    expires: Option<Micros>,
    disabled: bool,
    caller: Caller,
}

/// All keys of one reading of the file.
#[derive(Default)]
struct Keys(HashMap<Box<str>, Entry>);

impl Keys {
    fn new(checked: Vec<CheckedKey>) -> Self {
        let entry = |key: CheckedKey| {
            let caller = Caller { name: key.name.into(), roles: key.roles, namespaces: Arc::new(key.namespaces) };
            (key.id.into(), Entry { hash: key.hash, expires: key.expires, disabled: key.disabled, caller })
        };
        Self(checked.into_iter().map(entry).collect())
    }

    /// Names of those that are in `self` and, by `other`'s entry of the same id, wanted; in order.
    fn names(&self, other: &Self, wanted: impl Fn(&Entry, Option<&Entry>) -> bool) -> Vec<String> {
        let found = self.0.iter().filter(|(id, entry)| wanted(entry, other.0.get(*id)));
        let mut names: Vec<String> = found.map(|(_, entry)| entry.caller.name.to_string()).collect();
        names.sort_unstable();
        names
    }
}

/// What another reading of the file changed: names only, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyChanges {
    /// Keys in force before.
    pub before: usize,
    /// Keys in force now.
    pub count: usize,
    /// New ones.
    pub added: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Those whose name, rights, end or secret are others than before.
    pub changed: Vec<String>,
}

impl KeyChanges {
    /// Whether anything is other than before.
    pub fn any(&self) -> bool {
        [&self.added, &self.removed, &self.changed].iter().any(|names| !names.is_empty())
    }
}

/// The keys of a file.
pub struct KeyRing {
    path: PathBuf,
    keys: ArcSwap<Keys>,
    clock: Arc<dyn Clock>,
}

impl KeyRing {
    /// Reads the file; without any key nobody could come in, so that is an error too.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let ring = Self { path: path.to_owned(), keys: ArcSwap::default(), clock };
        match ring.reload()?.count {
            0 => Err(format!("{} holds no keys; `tally key new` makes one", path.display())),
            _ => Ok(ring),
        }
    }

    /// Reads the file again; on an error the keys stay as they are.
    pub fn reload(&self) -> Result<KeyChanges, String> {
        let (_, checked) = KeyFile::load(&self.path)?;
        if let Some(warning) = too_open(&self.path) {
            tracing::warn!("{warning}");
        }
        let now = Arc::new(Keys::new(checked));
        let before = self.keys.swap(now.clone());
        Ok(KeyChanges {
            before: before.0.len(),
            count: now.0.len(),
            added: now.names(&before, |_, other| other.is_none()),
            removed: before.names(&now, |_, other| other.is_none()),
            changed: now.names(&before, |entry, other| other.is_some_and(|other| other != entry)),
        })
    }
}

impl Authority for KeyRing {
    fn caller(&self, sent: Option<&str>) -> Option<Caller> {
        let sent = sent.unwrap_or_default();
        let keys = self.keys.load();
        let entry = token::id(sent).and_then(|id| keys.0.get(id));
        // An unknown id is compared too, with a hash that no text has: the time tells nothing.
        let expected = entry.map_or(&[0; 32], |e| &e.hash);
        let equal: bool = token::hash(sent).ct_eq(expected).into();
        let entry = entry.filter(|e| equal && !e.disabled)?;
        match entry.expires {
            Some(expires) if self.clock.now() >= expires => None,
            _ => Some(entry.caller.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::clock::ManualClock;

    use super::*;
    use crate::keys::{
        Secret,
        file::{StoredKey, time_text},
    };

    fn stored(token: &Secret, name: &str) -> StoredKey {
        StoredKey {
            id: token::id(token.reveal()).unwrap().to_owned(),
            name: name.to_owned(),
            hash: token::hash_text(&token::hash(token.reveal())),
            namespaces: vec!["*".into()],
            roles: vec!["read".into()],
            created: time_text(0),
            expires: None,
            disabled: false,
        }
    }

    #[test]
    fn only_the_whole_token_of_a_key_in_force_is_known_and_a_broken_file_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        let mut n = 0;
        let mut token = || {
            token::new(|| {
                n += 1;
                n * 0x9e37_79b9
            })
        };
        let (first, second, third, never) = (token(), token(), token(), token());
        let expires = Some(time_text(100_000_000));
        let keys = vec![
            stored(&first, "first"),
            StoredKey { expires, ..stored(&second, "second") },
            StoredKey { disabled: true, ..stored(&third, "third") },
        ];
        KeyFile { keys: keys.clone() }.save(&path).unwrap();
        let clock = Arc::new(ManualClock::starting_at(99_000_000));
        let ring = KeyRing::open(&path, clock.clone()).unwrap();
        let name = |token: &Secret| ring.caller(Some(token.reveal())).map(|c| c.name.to_string());
        assert_eq!((name(&first).as_deref(), name(&second).as_deref()), (Some("first"), Some("second")));
        assert_eq!((name(&third), name(&never)), (None, None), "disabled and unknown");
        clock.advance(Duration::from_secs(1));
        assert_eq!((name(&second), name(&first).as_deref()), (None, Some("first")), "expired");
        let text = first.reveal();
        let wrong_secret = format!("{}{}", &text[..text.len() - 1], if text.ends_with('0') { '1' } else { '0' });
        for bad in [None, Some(""), Some(wrong_secret.as_str()), Some(&text[..text.len() - 1]), Some("Bearer")] {
            assert!(ring.caller(bad).is_none());
        }

        std::fs::write(&path, "[[key]]\nid = ").unwrap();
        assert!(ring.reload().is_err());
        assert_eq!(name(&first).as_deref(), Some("first"), "a broken file keeps the old keys");
        KeyFile { keys: vec![stored(&never, "fourth")] }.save(&path).unwrap();
        let names = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        let changes = ring.reload().unwrap();
        assert_eq!((changes.before, changes.count, changes.any()), (3, 1, true));
        assert_eq!((changes.added, changes.removed), (names(&["fourth"]), names(&["first", "second", "third"])));
        KeyFile { keys: vec![StoredKey { disabled: true, ..stored(&never, "fourth") }] }.save(&path).unwrap();
        assert_eq!(ring.reload().unwrap().changed, names(&["fourth"]));
        KeyFile { keys: vec![stored(&never, "fourth")] }.save(&path).unwrap();
        assert!(ring.reload().unwrap().any());
        assert!(!ring.reload().unwrap().any(), "the same file again");
        assert_eq!((name(&first), name(&never).as_deref()), (None, Some("fourth")));
    }
}
