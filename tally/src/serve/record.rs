//! What the store was made with: recorded at first start, compared at every later one.

use std::time::Duration;

use schema::{Kind, Kinds, codec};
use serde::{Deserialize, Serialize};
use store::{Engine, StoreResult};

use crate::{config::Config, failure::Failure};

const KEY: &str = "settings";

/// Settings that decide what stored bytes mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Format byte of the blobs.
    pub format: u8,
    /// What is counted, with the order of the choices.
    pub kinds: Vec<Kind>,
    /// T.
    pub small_limit: usize,
    /// L.
    pub level: u8,
    /// Length of a journal slot in microseconds: journals written so far are numbered by it.
    pub slot_micros: u64,
}

impl Recorded {
    /// What `config` would record.
    pub fn of(config: &Config) -> Self {
        Self {
            format: codec::FORMAT,
            kinds: config.kinds.iter().cloned().collect(),
            small_limit: config.small_limit,
            level: config.level,
            slot_micros: u64::try_from(config.slot.as_micros()).expect("checked to be at most ten minutes"),
        }
    }

    /// The slot length that existing journals are numbered by.
    pub fn slot(&self) -> Duration {
        Duration::from_micros(self.slot_micros)
    }

    /// What the store has recorded; `None`: it is new.
    pub async fn load(engine: &dyn Engine) -> Result<Option<Self>, Failure> {
        let bytes = engine.get_meta(KEY).await.map_err(|e| Failure::unreachable(e.to_string()))?;
        let Some(bytes) = bytes else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| {
            Failure::unreachable(format!("the settings recorded in the store cannot be read: {e}; upgrade this process"))
        })
    }

    /// Makes this the record.
    pub async fn save(&self, engine: &dyn Engine) -> StoreResult<()> {
        let bytes = serde_json::to_vec(self).expect("numbers, texts and lists always serialise");
        engine.put_meta(KEY, &bytes).await
    }

    /// Whether this version reads what a store with this record holds; the error says what to do.
    pub fn readable(&self) -> Result<(), String> {
        if self.format == codec::FORMAT {
            return Ok(());
        }
        Err(format!("its rows have format {}, this version knows {}; upgrade this process", self.format, codec::FORMAT))
    }

    /// Whether a process configured as `self` may work on a store recorded as `stored`; the error
    /// says what differs. Kinds and choices may be added, the slot length may change.
    pub fn may_follow(&self, stored: &Self) -> Result<(), String> {
        for (name, configured, recorded) in
            [("small_limit", self.small_limit, stored.small_limit), ("level", usize::from(self.level), usize::from(stored.level))]
        {
            if configured != recorded {
                return Err(format!("`{name}` is {configured}, the store was made with {recorded}; it cannot change"));
            }
        }
        for old in &stored.kinds {
            let name = &old.name;
            let new = self.kinds.iter().find(|k| k.name == *name);
            let new = new.ok_or_else(|| format!("kind `{name}` is in the store but not configured; add it back"))?;
            if !new.choices.starts_with(&old.choices) {
                let (old, new) = (old.choices.join(", "), new.choices.join(", "));
                return Err(format!(
                    "kind `{name}` has choices {new}, the store has {old}; choices may only be added at the end"
                ));
            }
            if new.by_user != old.by_user {
                return Err(format!("kind `{name}`: `by_user` was {} at first start; it cannot change", old.by_user));
            }
        }
        Ok(())
    }

    /// The recorded kinds.
    pub fn kinds(&self) -> Result<Kinds, Failure> {
        Kinds::new(self.kinds.clone())
            .map_err(|e| Failure::unreachable(format!("the kinds recorded in the store are wrong: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, choices: &[&str]) -> Kind {
        let name = schema::KindName::parse(name).unwrap();
        Kind { name, choices: choices.iter().map(|&c| c.to_owned()).collect(), by_user: true }
    }

    fn recorded(kinds: Vec<Kind>) -> Recorded {
        Recorded { format: codec::FORMAT, kinds, small_limit: 128, level: 4, slot_micros: 1 }
    }

    #[test]
    fn kinds_and_choices_may_be_added_and_nothing_else_changes() {
        let stored = recorded(vec![kind("like", &["like"]), kind("mood", &["a", "b"])]);
        let mut next = recorded(vec![kind("like", &["like"]), kind("mood", &["a", "b", "c"]), kind("star", &["star"])]);
        next.slot_micros = 2;
        assert_eq!(next.may_follow(&stored), Ok(()));
        let refused = [
            recorded(vec![kind("like", &["like"])]),
            recorded(vec![kind("like", &["like"]), kind("mood", &["b", "a"])]),
            recorded(vec![kind("like", &["like"]), kind("mood", &["a"])]),
            recorded(vec![Kind { by_user: false, ..kind("like", &["like"]) }, kind("mood", &["a", "b"])]),
            Recorded { small_limit: 64, ..stored.clone() },
            Recorded { level: 5, ..stored.clone() },
        ];
        for next in refused {
            assert!(next.may_follow(&stored).is_err(), "{next:?}");
        }
    }

    #[test]
    fn another_format_is_not_readable_and_the_error_says_what_to_do() {
        let stored = recorded(vec![kind("like", &["like"])]);
        assert_eq!(stored.readable(), Ok(()));
        let newer = Recorded { format: codec::FORMAT + 1, ..stored };
        assert!(newer.readable().is_err_and(|why| why.contains("upgrade")));
    }
}
