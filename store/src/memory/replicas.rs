//! Three copies of the plain tables: writes that reach some of them, quorum reads with read repair.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use rand::RngExt;

use super::{
    State,
    cells::{Cell, Key},
    script::WriteFate,
};
use crate::{StoreError, StoreResult};

impl State {
    pub(super) fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.rng.random_bool(p.min(1.0))
    }

    /// Some late writes arrive, some pending commits are decided.
    pub(super) fn settle(&mut self) {
        if !self.late.is_empty() && self.chance(self.faults.arrives) {
            let i = self.rng.random_range(0..self.late.len());
            let (replica, key, cell) = self.late.swap_remove(i);
            self.changes += 1;
            put(&mut self.replicas[replica], key, cell);
        }
        self.settle_commits();
    }

    /// Writes cells to whatever replicas they reach; `Ok` where each is on two of them.
    pub(super) fn write(&mut self, cells: Vec<(Key, Cell)>) -> StoreResult<()> {
        if self.chance(self.faults.unavailable) {
            return Err(StoreError::Unavailable("too few replicas".into()));
        }
        self.changes += 1;
        let mut quorum = true;
        for (key, cell) in cells {
            let fate = self.script.writes.get_mut(&key.table()).and_then(std::collections::VecDeque::pop_front);
            if fate == Some(WriteFate::Refused) {
                return Err(StoreError::Refused("as scripted".into()));
            }
            let mut reached = 0;
            for replica in 0..3 {
                let arrives = match fate {
                    Some(WriteFate::Lost | WriteFate::Refused) => false,
                    Some(WriteFate::Only(one)) => replica == one,
                    Some(WriteFate::AllBut(one)) => replica != one,
                    None => self.chance(self.faults.reaches),
                };
                if arrives {
                    put(&mut self.replicas[replica], key.clone(), cell.clone());
                    reached += 1;
                } else if fate.is_none() && self.chance(self.faults.late) {
                    self.late.push((replica, key.clone(), cell.clone()));
                }
            }
            quorum &= reached >= 2;
        }
        if !quorum || self.chance(self.faults.answer_lost) {
            return Err(StoreError::Unknown("too few replicas answered in time".into()));
        }
        Ok(())
    }

    /// Two replicas for one query.
    fn quorum(&mut self) -> [usize; 2] {
        if let Some(scripted) = self.script.quorums.pop_front() {
            return scripted;
        }
        let out = self.rng.random_range(0..3usize);
        [(out + 1) % 3, (out + 2) % 3]
    }

    /// Reads single cells at quorum, each repaired on the two replicas that were asked.
    pub(super) fn read(&mut self, keys: &[Key]) -> Vec<Option<Cell>> {
        let asked = self.quorum();
        keys.iter().map(|key| self.read_at(asked, key)).collect()
    }

    /// Reads cells from `from` on while they belong, at quorum, in key order; at most `limit`.
    pub(super) fn read_while(&mut self, from: Bound<Key>, belongs: impl Fn(&Key) -> bool, limit: usize) -> Vec<(Key, Cell)> {
        let asked = self.quorum();
        let range = (from, Bound::Unbounded);
        let one =
            |r: usize| self.replicas[r].range(range.clone()).map(|(k, _)| k).take_while(|k| belongs(k)).take(limit).cloned();
        let keys: BTreeSet<Key> = asked.into_iter().flat_map(one).collect();
        keys.into_iter().take(limit).filter_map(|key| self.read_at(asked, &key).map(|cell| (key, cell))).collect()
    }

    fn read_at(&mut self, asked: [usize; 2], key: &Key) -> Option<Cell> {
        let found = asked.iter().filter_map(|&r| self.replicas[r].get(key).cloned()).reduce(Cell::join)?;
        for replica in asked {
            put(&mut self.replicas[replica], key.clone(), found.clone());
        }
        Some(found)
    }

    /// Reads a cell from every replica, and repairs all of them.
    pub(super) fn read_all(&mut self, key: &Key) -> Option<Cell> {
        let found = self.joined(key)?;
        self.replicas.iter_mut().for_each(|replica| put(replica, key.clone(), found.clone()));
        Some(found)
    }

    /// What all replicas hold together of a cell.
    pub(super) fn joined(&self, key: &Key) -> Option<Cell> {
        self.replicas.iter().filter_map(|r| r.get(key).cloned()).reduce(Cell::join)
    }

    /// Removes cells everywhere, also those on their way.
    pub(super) fn remove(&mut self, mut gone: impl FnMut(&Key) -> bool) {
        self.changes += 1;
        self.late.retain(|(_, key, _)| !gone(key));
        for replica in &mut self.replicas {
            replica.retain(|key, _| !gone(key));
        }
    }

    /// Every key that some replica holds.
    pub(super) fn keys(&self) -> BTreeSet<&Key> {
        self.replicas.iter().flat_map(BTreeMap::keys).collect()
    }
}

fn put(replica: &mut BTreeMap<Key, Cell>, key: Key, cell: Cell) {
    let joined = match replica.remove(&key) {
        Some(there) => there.join(cell),
        None => cell,
    };
    replica.insert(key, joined);
}
