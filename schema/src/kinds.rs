//! Kinds (what is counted) and their choices (what a member picked).

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Most choices that one kind may have; 0 means withdrawn.
pub const MAX_CHOICES: usize = 63;

/// What the member picked, 1 to 63; 0: nothing (never liked, or withdrawn).
pub type Choice = u8;

/// Name of a kind: `[a-z0-9_-]{1,32}`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KindName(Arc<str>);

impl KindName {
    /// Checks `[a-z0-9_-]{1,32}`.
    pub fn parse(text: &str) -> Result<Self, KindError> {
        let fits = (1..=32).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if fits { Ok(Self(text.into())) } else { Err(KindError::Name(text.chars().take(40).collect())) }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl From<KindName> for String {
    fn from(value: KindName) -> String {
        value.0.as_ref().to_owned()
    }
}

impl TryFrom<String> for KindName {
    type Error = KindError;
    fn try_from(value: String) -> Result<Self, KindError> {
        Self::parse(&value)
    }
}

/// Why a kind's definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    /// The kind's name is malformed.
    #[error("`{0}` is not a kind name: use 1 to 32 of a-z, 0-9, '-' and '_'")]
    Name(String),
    /// A kind has 1 to 63 choices.
    #[error("kind `{kind}` has {len} choices, a kind has 1 to 63")]
    ChoiceCount {
        /// The kind.
        kind: String,
        /// Choices given.
        len: usize,
    },
    /// Choices are 1 to 32 bytes without control characters, and differ.
    #[error("kind `{kind}`: choice `{choice}` is empty, too long, repeated, or has control characters")]
    Choice {
        /// The kind.
        kind: String,
        /// The choice.
        choice: String,
    },
    /// Two kinds share a name.
    #[error("kind `{0}` is defined twice")]
    Twice(String),
}

/// A kind and its choices, in storage order: the first has number 1. Choices may be added at the
/// end, never moved or removed, since facts hold their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// Its name.
    pub name: KindName,
    /// Names of the choices 1, 2, …
    pub choices: Vec<String>,
    /// Whether members are users, so that the fact is listed under the user too.
    pub by_user: bool,
}

impl Kind {
    /// Number of the choice called `name`.
    pub fn choice(&self, name: &str) -> Option<Choice> {
        self.choices.iter().position(|c| c == name).and_then(|i| Choice::try_from(i + 1).ok())
    }

    /// Name of `choice`; `None` for 0 and for a number that this kind does not have.
    pub fn choice_name(&self, choice: Choice) -> Option<&str> {
        self.choices.get(usize::from(choice).checked_sub(1)?).map(String::as_str)
    }
}

/// The kinds that a deployment counts, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds(BTreeMap<KindName, Kind>);

impl Kinds {
    /// Checks names, choice counts and duplicates.
    pub fn new(kinds: Vec<Kind>) -> Result<Self, KindError> {
        let mut map = BTreeMap::new();
        for kind in kinds {
            if !(1..=MAX_CHOICES).contains(&kind.choices.len()) {
                return Err(KindError::ChoiceCount { kind: kind.name.to_string(), len: kind.choices.len() });
            }
            for (i, choice) in kind.choices.iter().enumerate() {
                let fits = (1..=32).contains(&choice.len()) && !choice.chars().any(char::is_control);
                if !fits || kind.choices[..i].contains(choice) {
                    return Err(KindError::Choice { kind: kind.name.to_string(), choice: choice.clone() });
                }
            }
            let name = kind.name.clone();
            if map.insert(name.clone(), kind).is_some() {
                return Err(KindError::Twice(name.to_string()));
            }
        }
        Ok(Self(map))
    }

    /// The kind called `name`.
    pub fn get(&self, name: &str) -> Option<&Kind> {
        self.0.iter().find(|(k, _)| k.as_str() == name).map(|(_, v)| v)
    }

    /// All kinds, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.0.values()
    }
}

/// `like`, `bookmark`, `comment` (members are comment ids) and `reaction` with six choices.
pub fn default_kinds() -> Kinds {
    let kind = |name: &str, choices: &[&str], by_user| Kind {
        name: KindName(name.into()),
        choices: choices.iter().map(|&c| c.to_owned()).collect(),
        by_user,
    };
    Kinds::new(vec![
        kind("like", &["like"], true),
        kind("bookmark", &["bookmark"], true),
        kind("comment", &["comment"], false),
        kind("reaction", &["like", "love", "laugh", "wow", "sad", "angry"], true),
    ])
    .expect("the defaults pass their own check, see the test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_choices_are_numbered_from_one() {
        let kinds = default_kinds();
        let reaction = kinds.get("reaction").expect("a default");
        assert_eq!(reaction.choices.len(), 6);
        assert_eq!(reaction.choice("like"), Some(1));
        assert_eq!(reaction.choice_name(6), Some("angry"));
        assert_eq!(reaction.choice_name(0), None);
        assert_eq!(reaction.choice_name(7), None);
    }

    #[test]
    fn bad_kinds_are_refused() {
        let kind = |choices: Vec<String>| Kind { name: KindName("k".into()), choices, by_user: true };
        assert!(Kinds::new(vec![kind(vec![])]).is_err());
        assert!(Kinds::new(vec![kind((0..64).map(|i| i.to_string()).collect())]).is_err());
        assert!(Kinds::new(vec![kind(vec!["a".into(), "a".into()])]).is_err());
        assert!(Kinds::new(vec![kind(vec!["a".into()]), kind(vec!["b".into()])]).is_err());
        assert!(KindName::parse("Like").is_err());
    }
}
