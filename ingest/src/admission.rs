//! Who may write what: statuses of targets and users, asked once for a micro-batch and remembered
//! for about a second.
//!
//! A withdrawal is never refused, and neither is an operator's own register: only a new choice is
//! asked about. A change of a status through this process counts at once, one through another
//! process within the second.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;
use schema::{Register, Status, StatusKey, TargetKey, UserKey};
use store::{Protocol, StoreResult, protocol::WriteRequest};

/// How long a status may be answered from memory.
const TTL: Duration = Duration::from_secs(1);
/// Most statuses in memory.
const REMEMBERED: u64 = 100_000;

/// The status that bars a write; nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bar {
    /// The target takes no new choices.
    #[error("this target is closed: it takes no new choices; withdrawing one still works")]
    Closed,
    /// The target is gone.
    #[error("this target is gone; withdrawing a choice still works")]
    Gone,
    /// The user is suspended.
    #[error("this user is suspended: their new choices are refused; withdrawing one still works")]
    Suspended,
}

impl Bar {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Gone, Self::Suspended];

    /// The status's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => Status::Closed.name(),
            Self::Gone => Status::Gone.name(),
            Self::Suspended => Status::Suspended.name(),
        }
    }

    fn of(status: Status) -> Option<Self> {
        match status {
            Status::Open | Status::Active => None,
            Status::Closed => Some(Self::Closed),
            Status::Gone => Some(Self::Gone),
            Status::Suspended => Some(Self::Suspended),
        }
    }
}

/// Looks statuses up. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Admission {
    protocol: Protocol,
    known: Cache<StatusKey, Status>,
    /// Raised with every change through this process: what was read before it is not remembered.
    changes: Arc<AtomicU64>,
}

impl Admission {
    pub fn new(protocol: Protocol) -> Self {
        let known = Cache::builder().max_capacity(REMEMBERED).time_to_live(TTL).build();
        Self { protocol, known, changes: Arc::default() }
    }

    /// What bars each request, in order; empty where nothing bars any.
    pub async fn bars(&self, requests: &[WriteRequest]) -> StoreResult<Vec<Option<Bar>>> {
        let asks = |r: &WriteRequest| r.register == Register::Choice && r.value != 0;
        if !requests.iter().any(asks) || !self.protocol.engine().any_status().await? {
            return Ok(Vec::new());
        }
        let kinds = &self.protocol.settings().kinds;
        let mut keys = Vec::with_capacity(requests.len() * 2);
        for r in requests.iter().filter(|r| asks(r)) {
            keys.push(StatusKey::Target(r.key.target.clone()));
            if kinds.get(r.key.kind.as_str()).is_some_and(|k| k.by_user) {
                keys.push(StatusKey::User(UserKey::of(&r.key.target, &r.key.member)));
            }
        }
        let found = self.unusual(keys).await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let bar = |r: &WriteRequest| {
            let target = found.get(&StatusKey::Target(r.key.target.clone()));
            let by_user = kinds.get(r.key.kind.as_str()).is_some_and(|k| k.by_user);
            let user = || by_user.then(|| found.get(&StatusKey::User(UserKey::of(&r.key.target, &r.key.member)))).flatten();
            target.or_else(user).and_then(|&status| Bar::of(status))
        };
        Ok(requests.iter().map(|r| asks(r).then(|| bar(r)).flatten()).collect())
    }

    /// Which of `targets` are gone, in order.
    pub async fn gone(&self, targets: &[TargetKey]) -> StoreResult<Vec<bool>> {
        if !self.protocol.engine().any_status().await? {
            return Ok(vec![false; targets.len()]);
        }
        let keys: Vec<StatusKey> = targets.iter().cloned().map(StatusKey::Target).collect();
        let found = self.unusual(keys.clone()).await?;
        Ok(keys.iter().map(|key| found.get(key) == Some(&Status::Gone)).collect())
    }

    /// The status of this key was changed just now, through this process.
    pub fn forget(&self, key: &StatusKey) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.known.invalidate(key);
    }

    /// Those of `keys` with a status that is not the usual one; one read for all that are not known.
    async fn unusual(&self, mut keys: Vec<StatusKey>) -> StoreResult<HashMap<StatusKey, Status>> {
        let mut found = HashMap::new();
        keys.retain(|key| match self.known.get(key) {
            Some(status) => {
                if status != key.usual() {
                    found.insert(key.clone(), status);
                }
                false
            }
            None => true,
        });
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(found);
        }
        let under = self.changes.load(Ordering::SeqCst);
        let statuses = self.protocol.statuses(&keys).await?;
        for (key, status) in keys.into_iter().zip(statuses) {
            if status != key.usual() {
                found.insert(key.clone(), status);
            }
            self.known.insert(key.clone(), status);
            // Looked at after the insertion: a change before it is seen here, one after it forgets.
            if self.changes.load(Ordering::SeqCst) != under {
                self.known.invalidate(&key);
            }
        }
        Ok(found)
    }
}
