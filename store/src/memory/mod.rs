//! An engine in memory, for tests: three replicas that lose and delay writes, quorum reads that mix
//! rows, commits of unknown outcome. All of it comes from one seed, and every method yields once
//! before and once after its effect, so that a scheduler can interleave tasks, or drop one, at
//! every await.

mod cells;
mod inspect;
mod ledger;
mod operate;
mod replicas;
mod row_scan;
mod scan;
mod script;
mod tables;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use schema::ShardKey;

pub use cells::{Cell, Key, Table};
pub use ledger::LedgerState;
pub use script::{CommitFate, LedgerView, WriteFate};

use crate::engine::{Engine, FusedLanding};

/// Probabilities of faults, each per call or per replica, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faults {
    /// A write reaches a replica at once.
    pub reaches: f64,
    /// A write that did not reach a replica at once does so later, after any number of steps.
    pub late: f64,
    /// A late write arrives at some step.
    pub arrives: f64,
    /// A plain write is refused by the coordinator: nothing is written.
    pub unavailable: f64,
    /// A plain write is done, but the answer is lost.
    pub answer_lost: f64,
    /// Each row of a quorum read of a ledger is as of another of the last commits.
    pub stale: f64,
    /// A commit's outcome is not told.
    pub commit_unknown: f64,
}

impl Faults {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self { reaches: 1.0, late: 1.0, arrives: 1.0, unavailable: 0.0, answer_lost: 0.0, stale: 0.0, commit_unknown: 0.0 }
    }

    /// About as often as in the model that the design was checked with.
    pub fn frequent() -> Self {
        Self { reaches: 0.8, late: 0.5, arrives: 0.1, unavailable: 0.03, answer_lost: 0.03, stale: 0.2, commit_unknown: 0.1 }
    }
}

/// What a commit compares. All but `Full` are faults, for tests that must catch them.
#[cfg(feature = "mutations")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommitCheck {
    /// Head and rows, as the contract says.
    #[default]
    Full,
    /// Nothing.
    Nothing,
    /// The head's revision only.
    HeadOnly,
    /// The head, and the rows' versions, but not what was chosen.
    VersionOnly,
}

/// Commits of a leaf that stay readable to stale reads.
const HISTORY: usize = 4;

struct State {
    rng: ChaCha8Rng,
    faults: Faults,
    replicas: [BTreeMap<Key, Cell>; 3],
    late: Vec<(usize, Key, Cell)>,
    ledgers: BTreeMap<ShardKey, ledger::Ledger>,
    meta: BTreeMap<String, Vec<u8>>,
    logs: operate::Logs,
    script: script::Script,
    /// Counts everything that may have changed what replicas or ledgers hold.
    changes: u64,
    #[cfg(feature = "mutations")]
    commit_check: CommitCheck,
}

/// The engine.
pub struct Memory {
    state: Mutex<State>,
    fused: bool,
}

impl Memory {
    /// Three replicas with `faults`, or, where `fused`, a single copy that journals and lands in one
    /// step; then only the outcomes of commits and answers can be lost.
    pub fn new(seed: u64, fused: bool, faults: Faults) -> Self {
        let state = State {
            rng: ChaCha8Rng::seed_from_u64(seed),
            faults: if fused { Faults { reaches: 1.0, stale: 0.0, ..faults } } else { faults },
            replicas: Default::default(),
            late: Vec::new(),
            ledgers: BTreeMap::new(),
            meta: BTreeMap::new(),
            logs: operate::Logs::new(),
            script: script::Script::default(),
            changes: 0,
            #[cfg(feature = "mutations")]
            commit_check: CommitCheck::default(),
        };
        Self { state: Mutex::new(state), fused }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `effect` between two awaits: a task may be held or dropped before or after it, and what
    /// it did stays.
    async fn step<T>(&self, effect: impl FnOnce(&mut State) -> T) -> T {
        pause().await;
        let result = {
            let mut state = self.lock();
            state.settle();
            effect(&mut state)
        };
        pause().await;
        result
    }
}

/// Gives way once.
async fn pause() {
    let mut waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Engine for Memory {
    fn fused(&self) -> Option<&dyn FusedLanding> {
        self.fused.then_some(self as &dyn FusedLanding)
    }
}
