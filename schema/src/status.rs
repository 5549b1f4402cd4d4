//! What an operator has said of a whole target or user (design, sections 5 and 14).

use serde::{Deserialize, Serialize};

use crate::{Micros, TargetKey, UserKey};

/// Whose status.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatusKey {
    /// A target's.
    Target(TargetKey),
    /// A user's.
    User(UserKey),
}

/// A status; the first two are what everybody has who was never spoken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A target like any other.
    Open,
    /// A user like any other.
    Active,
    /// A target that takes no new choices; it is read as before.
    Closed,
    /// A target that readers are told is gone.
    Gone,
    /// A user whose new choices are refused and whose facts are hidden.
    Suspended,
}

/// Stored status of a target or user: last writer wins by version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatusRow {
    /// Orders writes: store time, above the row's version before.
    pub version: Micros,
    /// The status.
    pub status: Status,
    /// The hide run that belongs to a suspension, so that activating can undo exactly that one.
    pub run: Option<u64>,
}

impl StatusKey {
    /// What holds where no row is stored.
    pub fn usual(&self) -> Status {
        match self {
            Self::Target(_) => Status::Open,
            Self::User(_) => Status::Active,
        }
    }

    /// Statuses that fit this key.
    pub fn statuses(&self) -> &'static [Status] {
        match self {
            Self::Target(_) => &[Status::Open, Status::Closed, Status::Gone],
            Self::User(_) => &[Status::Active, Status::Suspended],
        }
    }
}

impl std::fmt::Display for StatusKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Target(target) => write!(f, "target {target}"),
            Self::User(user) => write!(f, "user {user}"),
        }
    }
}

impl Status {
    /// All statuses, in storage order.
    pub const ALL: [Self; 5] = [Self::Open, Self::Active, Self::Closed, Self::Gone, Self::Suspended];

    /// Lower-case name, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Active => "active",
            Self::Closed => "closed",
            Self::Gone => "gone",
            Self::Suspended => "suspended",
        }
    }

    /// The status of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl StatusRow {
    /// The newer of two copies; at equal versions the larger of the rest.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        self.max(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_name_and_belongs_to_targets_or_to_users() {
        let keys = [StatusKey::Target(TargetKey::parse("v/p").unwrap()), StatusKey::User(UserKey::parse("v/u").unwrap())];
        for status in Status::ALL {
            assert_eq!(Status::parse(status.name()), Some(status));
            assert_eq!(keys.iter().filter(|k| k.statuses().contains(&status)).count(), 1, "{status:?}");
        }
        assert!(keys.iter().all(|k| k.statuses()[0] == k.usual()));
        assert_eq!(Status::parse("Open"), None);
    }

    #[test]
    fn the_newer_status_wins_in_either_order() {
        let row = |version, status| StatusRow { version, status, run: None };
        for (a, b, want) in [
            (row(1, Status::Gone), row(2, Status::Open), row(2, Status::Open)),
            (row(2, Status::Closed), row(2, Status::Gone), row(2, Status::Gone)),
        ] {
            assert_eq!((a.join(b), b.join(a)), (want, want));
        }
    }
}
