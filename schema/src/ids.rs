//! Identifiers: opaque UTF-8 bytes, kept exactly as given, checked once at the edge.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{KindName, Shard};

/// Longest target, user or member id, in bytes of UTF-8.
pub const MAX_ID_BYTES: usize = 128;
/// Longest namespace, in bytes.
pub const MAX_NAMESPACE_BYTES: usize = 32;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Ids have at least one byte.
    #[error("an id must not be empty")]
    Empty,
    /// The id has more bytes than allowed.
    #[error("an id has at most {max} bytes, this one has {len}")]
    TooLong {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// Control characters (U+0000 to U+001F, U+007F to U+009F) are refused.
    #[error("an id must not contain control characters")]
    Control,
    /// Namespaces are `[a-z0-9-]{1,32}`.
    #[error("a namespace is 1 to 32 of a-z, 0-9 and '-'")]
    Namespace,
    /// A stored key without its `namespace/` part.
    #[error("a key is `namespace/id`")]
    Key,
}

fn check_id(id: &str) -> Result<(), IdError> {
    if id.is_empty() {
        return Err(IdError::Empty);
    }
    if id.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong { len: id.len(), max: MAX_ID_BYTES });
    }
    if id.chars().any(char::is_control) {
        return Err(IdError::Control);
    }
    Ok(())
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text, as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0.as_ref().to_owned()
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(value: String) -> Result<Self, IdError> {
                Self::parse(&value)
            }
        }
    };
}

text_type!(
    /// Whose ids these are: `[a-z0-9-]{1,32}`.
    Namespace
);
text_type!(
    /// `namespace/id` of a target: the partition key of its facts and counters.
    TargetKey
);
text_type!(
    /// `namespace/id` of a user: the partition key of the per-user index.
    UserKey
);
text_type!(
    /// The bare id of who or what is counted once under a target. Never empty: the empty member
    /// is the head row of a partition.
    Member
);

impl Namespace {
    /// Checks `[a-z0-9-]{1,32}`.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let fits = (1..=MAX_NAMESPACE_BYTES).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if fits { Ok(Self(text.into())) } else { Err(IdError::Namespace) }
    }
}

impl Member {
    /// Checks 1 to 128 bytes and no control characters.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        check_id(text)?;
        Ok(Self(text.into()))
    }
}

macro_rules! key_type {
    ($name:ident) => {
        impl $name {
            /// Joins a namespace and an id that is checked here.
            pub fn new(namespace: &Namespace, id: &str) -> Result<Self, IdError> {
                check_id(id)?;
                Ok(Self(format!("{namespace}/{id}").into()))
            }

            /// Parses a stored `namespace/id`.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                let (namespace, id) = text.split_once('/').ok_or(IdError::Key)?;
                Namespace::parse(namespace)?;
                check_id(id)?;
                Ok(Self(text.into()))
            }

            /// The part before the first `/`.
            pub fn namespace(&self) -> &str {
                self.0.split_once('/').map_or("", |(namespace, _)| namespace)
            }

            /// The part behind the first `/`: the id as the caller knows it.
            pub fn id(&self) -> &str {
                self.0.split_once('/').map_or("", |(_, id)| id)
            }
        }
    };
}

key_type!(TargetKey);
key_type!(UserKey);

impl UserKey {
    /// The member that this user is under a target.
    pub fn member(&self) -> Member {
        Member(self.id().into())
    }

    /// The user behind `member` of a target of the same namespace. Both ids have passed the same
    /// check, so this cannot fail.
    pub fn of(target: &TargetKey, member: &Member) -> Self {
        Self(format!("{}/{member}", target.namespace()).into())
    }
}

/// One (target, kind, member): the identity of a fact.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FactKey {
    /// What is liked.
    pub target: TargetKey,
    /// What is counted.
    pub kind: KindName,
    /// Who is counted.
    pub member: Member,
}

/// One partition of facts: a (target, kind, shard).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardKey {
    /// What is liked.
    pub target: TargetKey,
    /// What is counted.
    pub kind: KindName,
    /// Root or leaf.
    pub shard: Shard,
}

impl ShardKey {
    /// The root partition of (target, kind).
    pub fn root(target: TargetKey, kind: KindName) -> Self {
        Self { target, kind, shard: Shard::ROOT }
    }

    /// Another shard of the same (target, kind).
    pub fn with_shard(&self, shard: Shard) -> Self {
        Self { target: self.target.clone(), kind: self.kind.clone(), shard }
    }

    /// The fact of `member` under this target and kind.
    pub fn fact(&self, member: &Member) -> FactKey {
        FactKey { target: self.target.clone(), kind: self.kind.clone(), member: member.clone() }
    }
}

impl FactKey {
    /// The partition `shard` of this fact's (target, kind).
    pub fn shard(&self, shard: Shard) -> ShardKey {
        ShardKey { target: self.target.clone(), kind: self.kind.clone(), shard }
    }
}
