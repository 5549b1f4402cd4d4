//! What a test may look at, and break, without awaiting anything.

use std::collections::BTreeMap;

use schema::{CounterRow, Fact, IndexRow, KindName, Level, Member, ShardKey, TargetKey, UserKey};

use super::{
    Faults, LedgerState, Memory,
    cells::{Cell, Key},
};

impl Memory {
    /// Grows whenever something that can be looked at here may have changed.
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Facts as all replicas hold them together, without what is still on its way.
    pub fn facts(&self) -> BTreeMap<(ShardKey, Member), Fact> {
        self.collect(|key, cell| match (key, cell) {
            (Key::Fact(shard, member), Cell::Fact(fact)) => Some(((shard.clone(), member.clone()), fact)),
            _ => None,
        })
    }

    /// Counter rows, joined.
    pub fn counters(&self) -> BTreeMap<ShardKey, CounterRow> {
        self.collect(|key, cell| match (key, cell) {
            (Key::Counter(shard), Cell::Counter(row)) => Some((shard.clone(), row)),
            _ => None,
        })
    }

    /// Shown levels by root, joined.
    pub fn shown(&self) -> BTreeMap<ShardKey, Level> {
        self.collect(|key, cell| match (key, cell) {
            (Key::Shown(root), Cell::Shown(level)) => Some((root.clone(), level)),
            _ => None,
        })
    }

    /// Section 1 of the index, joined.
    pub fn index(&self) -> BTreeMap<(UserKey, KindName, TargetKey), IndexRow> {
        self.collect(|key, cell| match (key, cell) {
            (Key::Index(user, kind, target), Cell::Index(row)) => Some(((user.clone(), kind.clone(), target.clone()), row)),
            _ => None,
        })
    }

    /// Journal entries that some replica holds.
    pub fn journal_entries(&self) -> usize {
        self.lock().keys().into_iter().filter(|key| matches!(key, Key::Journal(..))).count()
    }

    /// Every leaf's ledger as it is now.
    pub fn ledgers(&self) -> BTreeMap<ShardKey, LedgerState> {
        self.lock().ledgers.iter().map(|(leaf, ledger)| (leaf.clone(), ledger.now().clone())).collect()
    }

    /// Changes the probabilities of faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = if self.fused { Faults { reaches: 1.0, stale: 0.0, ..faults } } else { faults };
    }

    /// Delivers every late write and ends every open commit at once; what was lost stays lost.
    pub fn deliver_all(&self) {
        let mut state = self.lock();
        for (replica, key, cell) in std::mem::take(&mut state.late) {
            let joined = match state.replicas[replica].remove(&key) {
                Some(there) => there.join(cell),
                None => cell,
            };
            state.replicas[replica].insert(key, joined);
        }
        for ledger in state.ledgers.values_mut() {
            ledger.pending.clear();
        }
    }

    /// Replaces counter rows on every replica, keeping their order, as a damaged disk might.
    pub fn damage_counters(&self, mut damage: impl FnMut(&ShardKey, &mut CounterRow)) {
        let damaged: Vec<(ShardKey, CounterRow)> = self.counters().into_iter().collect();
        let mut state = self.lock();
        for (shard, mut row) in damaged {
            damage(&shard, &mut row);
            for replica in &mut state.replicas {
                replica.insert(Key::Counter(shard.clone()), Cell::Counter(row.clone()));
            }
        }
    }

    /// Drops ledgers, counters and index rows: everything that can be derived again but for the
    /// level that readers use.
    pub fn drop_derived(&self) {
        let mut state = self.lock();
        state.ledgers.clear();
        state.remove(|key| matches!(key, Key::Counter(_) | Key::Index(..) | Key::IndexTime(..)));
    }

    /// What commits compare from now on.
    #[cfg(feature = "mutations")]
    pub fn set_commit_check(&self, check: super::CommitCheck) {
        self.lock().commit_check = check;
    }

    fn collect<K: Ord, V>(&self, pick: impl Fn(&Key, Cell) -> Option<(K, V)>) -> BTreeMap<K, V> {
        let state = self.lock();
        state.keys().into_iter().filter_map(|key| pick(key, state.joined(key)?)).collect()
    }
}
