//! The per-user index.

use std::ops::Bound;

use async_trait::async_trait;
use fjall::UserKey as RowKey;
use schema::{IndexRow, KindName, Micros, TargetKey, UserKey, codec};

use super::{
    Embedded, keys,
    rows::{Table, damaged},
    txn::Txn,
};
use crate::engine::{IndexEntry, IndexTable, IndexTimeRow, StoreResult};

const ENTRY_WEIGHT: usize = 384;

/// An index write whose keys were made outside the writer's thread.
pub(super) struct IndexPut {
    /// Row by target; the time row's key is made from it, as only the stored row tells which.
    key: RowKey,
    prefix_len: usize,
    row: IndexRow,
}

impl IndexPut {
    pub fn new(user: &UserKey, kind: &KindName, target: &TargetKey, row: IndexRow) -> Self {
        let prefix = keys::user(user, kind);
        Self { key: keys::by_id(&prefix, target.as_str()).into(), prefix_len: prefix.len(), row }
    }

    fn time_key(&self, since: Micros) -> StoreResult<Vec<u8>> {
        let target = keys::parse_id(&self.key[self.prefix_len + 1..]).ok_or_else(|| damaged(Table::ByUser, &self.key))?;
        Ok(keys::by_time(&self.key[..self.prefix_len], since, target))
    }

    /// Writes the rows of a fact that there was not before: nothing to join with, no time row to move.
    pub fn run_first(self, txn: &mut Txn<'_>) -> StoreResult<()> {
        if self.row.choice != 0 {
            txn.put(Table::ByUser, self.time_key(self.row.since)?, Vec::new());
        }
        txn.put(Table::ByUser, self.key, codec::encode_index(&self.row));
        Ok(())
    }

    /// Joins the row, and moves the time row with it. `again`: the time row is written even if
    /// nothing changed, as it may have been lost.
    pub fn run(self, txn: &mut Txn<'_>, again: bool) -> StoreResult<()> {
        let stored = txn.get(Table::ByUser, &self.key)?.map(|bytes| decode(&self.key, &bytes)).transpose()?;
        let joined = stored.unwrap_or_default().join(self.row);
        if stored == Some(joined) && !again {
            return Ok(());
        }
        let listed = |row: &IndexRow| row.choice != 0;
        let old = stored.filter(listed).map(|row| row.since);
        let new = Some(joined).filter(listed).map(|row| row.since);
        if old != new || again {
            if let Some(since) = old.filter(|_| old != new) {
                txn.delete(Table::ByUser, self.time_key(since)?);
            }
            if let Some(since) = new {
                txn.put(Table::ByUser, self.time_key(since)?, Vec::new());
            }
        }
        txn.put(Table::ByUser, self.key, codec::encode_index(&joined));
        Ok(())
    }
}

pub(super) fn decode(key: &[u8], bytes: &[u8]) -> StoreResult<IndexRow> {
    codec::decode_index(bytes).map_err(|_| damaged(Table::ByUser, key))
}

/// Rows by target behind `after`, for the rebuilder.
pub(super) fn page_by_target(
    engine: &Embedded,
    user: &UserKey,
    kind: &KindName,
    after: Option<&TargetKey>,
    limit: usize,
) -> StoreResult<(Vec<(TargetKey, IndexRow)>, bool)> {
    let view = engine.rows.view()?;
    let section = keys::by_id(&keys::user(user, kind), "");
    let from = Bound::Excluded(keys::with_id(&section, after.map_or("", TargetKey::as_str)));
    let mut found = Vec::new();
    for row in view.range(Table::ByUser, from, keys::behind(&section)) {
        if found.len() == limit.max(1) {
            return Ok((found, false));
        }
        let (key, value) = row?;
        let target = keys::parse_id(&key[section.len()..]).and_then(|text| TargetKey::parse(text).ok());
        found.push((target.ok_or_else(|| damaged(Table::ByUser, &key))?, decode(&key, &value)?));
    }
    Ok((found, true))
}

#[async_trait]
impl IndexTable for Embedded {
    async fn read_index(&self, user: &UserKey, kind: &KindName, targets: &[TargetKey]) -> StoreResult<Vec<Option<IndexRow>>> {
        let view = self.rows.view()?;
        let prefix = keys::user(user, kind);
        let read = |target: &TargetKey| {
            let key = keys::by_id(&prefix, target.as_str());
            view.get(Table::ByUser, &key)?.map(|bytes| decode(&key, &bytes)).transpose()
        };
        targets.iter().map(read).collect()
    }

    async fn page_index_times(
        &self,
        user: &UserKey,
        kind: &KindName,
        after: Option<&(Micros, TargetKey)>,
        limit: usize,
    ) -> StoreResult<(Vec<IndexTimeRow>, bool)> {
        let view = self.rows.view()?;
        let prefix = keys::user(user, kind);
        let section = keys::with_id(&prefix, "\u{2}");
        let from = match after {
            Some((at, target)) => Bound::Excluded(keys::by_time(&prefix, *at, target.as_str())),
            None => Bound::Included(section.clone()),
        };
        let mut found = Vec::new();
        for row in view.range(Table::ByUser, from, keys::behind(&section)) {
            if found.len() == limit.max(1) {
                return Ok((found, false));
            }
            let (key, _) = row?;
            let (at, target) = keys::parse_by_time(&key[section.len()..])
                .and_then(|(at, target)| Some((at, TargetKey::parse(&target).ok()?)))
                .ok_or_else(|| damaged(Table::ByUser, &key))?;
            found.push(IndexTimeRow { at, target });
        }
        Ok((found, true))
    }

    async fn put_index(&self, entries: &[IndexEntry]) -> Vec<StoreResult<()>> {
        let puts: Vec<_> = entries.iter().map(|e| IndexPut::new(&e.user, &e.kind, &e.target, e.row)).collect();
        let work = move |txn: &mut Txn<'_>| {
            let one = |put: IndexPut| {
                let mark = txn.mark();
                put.run(txn, true).inspect_err(|_| txn.undo_to(mark))
            };
            Ok(puts.into_iter().map(one).collect())
        };
        let done = self.writer.call(false, entries.len() * ENTRY_WEIGHT, work).await;
        done.unwrap_or_else(|e| vec![Err(e); entries.len()])
    }

    async fn drop_index_time(&self, user: &UserKey, kind: &KindName, row: &IndexTimeRow) -> StoreResult<()> {
        let key = keys::by_time(&keys::user(user, kind), row.at, row.target.as_str());
        let work = move |txn: &mut Txn<'_>| {
            txn.delete(Table::ByUser, key);
            Ok(())
        };
        self.writer.call(false, ENTRY_WEIGHT, work).await
    }

    async fn drop_index(&self, user: &UserKey, kind: &KindName, target: &TargetKey) -> StoreResult<()> {
        let put = IndexPut::new(user, kind, target, IndexRow::default());
        let work = move |txn: &mut Txn<'_>| {
            // Left-over time rows are not found from here; the rebuilder removes them.
            if let Some(bytes) = txn.get(Table::ByUser, &put.key)? {
                let stored = decode(&put.key, &bytes)?;
                txn.delete(Table::ByUser, put.time_key(stored.since)?);
                txn.delete(Table::ByUser, put.key);
            }
            Ok(())
        };
        self.writer.call(false, ENTRY_WEIGHT, work).await
    }
}
