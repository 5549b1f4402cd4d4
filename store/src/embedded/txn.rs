//! What one group of jobs is about to write: visible to the jobs behind it, and in no one else's
//! sight before it is committed.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use fjall::{OwnedWriteBatch, PersistMode, UserKey, UserValue};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    keys,
    rows::{Rows, Table},
};
use crate::engine::StoreResult;

/// `None`: the row is to vanish.
type Pending = HashMap<UserKey, Option<UserValue>, BuildHasherDefault<KeyHasher>>;

/// Stripes of [`Recent`], 512 KiB in all: rows of the last few groups rarely meet in one.
const STRIPES: usize = 1 << 16;

/// In which group a fact row was last written, by a hash of its key: what was read as of that group or
/// a later one is still so. Keys that share a stripe only cost a read.
pub struct Recent(Vec<u64>);

impl Default for Recent {
    fn default() -> Self {
        Self(vec![0; STRIPES])
    }
}

impl Recent {
    fn stripe(key: &[u8]) -> usize {
        xxh3_64_with_seed(key, 0) as usize % STRIPES
    }
}

/// Rows of a group, by key, so that each key is in the batch once.
pub struct Txn<'a> {
    rows: &'a Rows,
    recent: &'a mut Recent,
    /// This group's number, counted from 1.
    group: u64,
    pending: [Pending; Table::ALL.len()],
    /// What the job under way replaced, for when it fails.
    undo: Vec<(Table, UserKey, Option<Option<UserValue>>)>,
    bytes: usize,
    len: usize,
}

impl<'a> Txn<'a> {
    pub fn new(rows: &'a Rows, recent: &'a mut Recent) -> Self {
        let group = rows.commits() + 1;
        Self { rows, recent, group, pending: Default::default(), undo: Vec::new(), bytes: 0, len: 0 }
    }

    /// Whether the fact row may have been written in a group after `as_of`, this one included.
    pub fn written_since(&self, key: &[u8], as_of: u64) -> bool {
        self.recent.0[Recent::stripe(key)] > as_of
    }

    /// Bytes of keys and values so far, an upper bound.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Rows so far, an upper bound.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The value as this group sees it.
    pub fn get(&self, table: Table, key: &[u8]) -> StoreResult<Option<UserValue>> {
        match self.pending[table as usize].get(key) {
            Some(value) => Ok(value.clone()),
            None => self.rows.get(table, key),
        }
    }

    pub fn put(&mut self, table: Table, key: impl Into<UserKey>, value: Vec<u8>) {
        self.set(table, key.into(), Some(value.into()));
    }

    pub fn delete(&mut self, table: Table, key: impl Into<UserKey>) {
        self.set(table, key.into(), None);
    }

    fn set(&mut self, table: Table, key: UserKey, value: Option<UserValue>) {
        self.bytes += key.len() + value.as_ref().map_or(0, |v| v.len()) + 16;
        self.len += 1;
        if table == Table::Facts {
            // Not taken back with the row: then it is read once more than needed.
            self.recent.0[Recent::stripe(&key)] = self.group;
        }
        let before = self.pending[table as usize].insert(key.clone(), value);
        self.undo.push((table, key, before));
    }

    /// Keys under `prefix` as this group sees them, at most about `limit`.
    pub fn keys_under(&self, table: Table, prefix: &[u8], limit: usize) -> StoreResult<Vec<UserKey>> {
        let pending = &self.pending[table as usize];
        let mut found: Vec<UserKey> =
            pending.iter().filter(|(k, v)| v.is_some() && k.starts_with(prefix)).map(|(k, _)| k.clone()).collect();
        for row in self.rows.view()?.prefix(table, prefix) {
            if found.len() >= limit {
                break;
            }
            let (key, _) = row?;
            if !pending.contains_key(&key) {
                found.push(key);
            }
        }
        Ok(found)
    }

    /// A point within a job, for [`Self::undo_to`].
    pub fn mark(&self) -> usize {
        self.undo.len()
    }

    /// Takes back what the job under way wrote since `mark`.
    pub fn undo_to(&mut self, mark: usize) {
        for (table, key, before) in self.undo.drain(mark.min(self.undo.len())..).rev() {
            let pending = &mut self.pending[table as usize];
            match before {
                Some(value) => pending.insert(key, value),
                None => pending.remove(&key),
            };
        }
    }

    /// Ends a job: keeps what it wrote, or takes it back.
    pub fn end_job(&mut self, keep: bool) {
        if !keep {
            self.undo_to(0);
        }
        self.undo.clear();
    }

    /// Commits everything in one atomic batch. `durable` also covers all that was committed before,
    /// so it is not skipped where there is nothing to write.
    pub fn commit(self, durable: bool) -> StoreResult<u64> {
        let mode = if durable { PersistMode::SyncData } else { PersistMode::Buffer };
        let len = self.pending.iter().map(Pending::len).sum();
        let done = if len == 0 {
            if durable { self.rows.db.persist(mode) } else { Ok(()) }
        } else {
            let mut batch = OwnedWriteBatch::with_capacity(self.rows.db.clone(), len).durability(Some(mode));
            for (table, pending) in Table::ALL.into_iter().zip(self.pending) {
                let keyspace = self.rows.keyspace(table);
                for (key, value) in pending {
                    match value {
                        Some(value) => batch.insert(keyspace, key, value),
                        None => batch.remove(keyspace, key),
                    }
                }
            }
            batch.commit()
        };
        // Whether the journal has it or not is unknown now, and everything behind it is not
        // certain either: only opening again tells.
        done.map_err(|e| {
            let detail = self.rows.failed(e);
            self.rows.stop.because(detail.to_string())
        })?;
        self.rows.committed();
        Ok(len as u64)
    }

    /// Removes up to `limit` rows under `prefix`; whether there may be more.
    pub fn delete_under(&mut self, table: Table, prefix: &[u8], limit: usize) -> StoreResult<bool> {
        let found = self.keys_under(table, prefix, limit)?;
        let more = found.len() >= limit;
        for key in found {
            self.delete(table, key);
        }
        Ok(more)
    }

    /// Reads, changes and writes a lane's state; nothing where the lane is unknown.
    pub fn lane(
        &mut self,
        lane: schema::LaneId,
        change: impl FnOnce(&mut crate::engine::LaneState),
    ) -> StoreResult<Option<crate::engine::LaneState>> {
        let key = keys::lane(lane);
        let Some(bytes) = self.get(Table::Small, &key)? else { return Ok(None) };
        let before = super::cells::decode_lane(lane, &bytes).ok_or_else(|| super::rows::damaged(Table::Small, &key))?;
        let mut state = before;
        change(&mut state);
        if state != before {
            self.put(Table::Small, key, super::cells::encode_lane(&state));
        }
        Ok(Some(state))
    }
}

/// Hashes a key's bytes at one go; a group is too small for chosen collisions to matter.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_usize(&mut self, n: usize) {
        self.0 ^= n as u64;
    }
}
