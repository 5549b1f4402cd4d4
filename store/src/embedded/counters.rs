//! Counters, and the level that is shown.

use std::ops::Bound;

use async_trait::async_trait;
use fjall::UserKey as RowKey;
use schema::{CounterRow, Level, Shard, ShardKey, TargetKey};

use super::{
    Embedded, cells, keys,
    rows::{Table, damaged},
    txn::Txn,
};
use crate::engine::{CounterPut, CounterTable, Slice, SlicePage, StoreResult, TargetCounters};

const PUT_WEIGHT: usize = 384;
/// Counter rows begin at shard 1.
const SHOWN: Shard = Shard(0);

/// A counter write whose bytes were made outside the writer's thread.
pub(super) struct Put {
    key: RowKey,
    cell: Vec<u8>,
}

impl Put {
    pub fn new(ShardKey { target, kind, shard }: &ShardKey, row: &CounterRow) -> Self {
        Self { key: keys::counter(target, kind, *shard).into(), cell: cells::encode_counter(row) }
    }

    /// Writes the row if its (order, blob) is larger than the stored one's.
    pub fn run(self, txn: &mut Txn<'_>) -> StoreResult<()> {
        if let Some(stored) = txn.get(Table::Counters, &self.key)? {
            let old = cells::split_counter(&stored).ok_or_else(|| damaged(Table::Counters, &self.key))?;
            if cells::split_counter(&self.cell).is_none_or(|new| new <= old) {
                return Ok(());
            }
        }
        txn.put(Table::Counters, self.key, self.cell);
        Ok(())
    }
}

/// Adds a stored row to those of its target, whose prefix has this length.
fn take(found: &mut TargetCounters, prefix: usize, key: &[u8], value: &[u8]) -> StoreResult<()> {
    let at = || damaged(Table::Counters, key);
    let (kind, shard, _) = keys::parse_kind_shard(key, prefix).ok_or_else(at)?;
    if shard == SHOWN {
        found.shown.push((kind, cells::decode_byte(value).ok_or_else(at)?));
    } else {
        found.rows.push((kind, shard, cells::decode_counter(value).ok_or_else(at)?));
    }
    Ok(())
}

/// Targets of a slice with all their rows, in key order.
pub(super) fn walk_targets(
    engine: &Embedded,
    slice: Slice,
    from: Option<&[u8]>,
    limit: usize,
) -> StoreResult<SlicePage<(TargetKey, TargetCounters)>> {
    let view = engine.rows.view()?;
    let (first, end) = slice.bounds();
    let end = end.map_or(Bound::Unbounded, |token| Bound::Excluded(token.to_be_bytes().to_vec()));
    // `from` is the prefix of the last target of the page before.
    let start = from.map_or_else(|| Bound::Included(first.to_be_bytes().to_vec()), keys::behind_included);
    let mut items: Vec<(TargetKey, TargetCounters)> = Vec::new();
    let mut prefix: Vec<u8> = Vec::new();
    for (n, row) in view.range(Table::Counters, start, end).enumerate() {
        let (key, value) = row?;
        if prefix.is_empty() || !key.starts_with(&prefix) {
            if n >= limit.max(1) {
                return Ok(SlicePage { items, next: Some(prefix) });
            }
            let (target, len) = keys::parse_target(&key).ok_or_else(|| damaged(Table::Counters, &key))?;
            prefix.clear();
            prefix.extend_from_slice(&key[..len]);
            items.push((target, TargetCounters::default()));
        }
        if let Some((_, found)) = items.last_mut() {
            take(found, prefix.len(), &key, &value)?;
        }
    }
    Ok(SlicePage { items, next: None })
}

#[async_trait]
impl CounterTable for Embedded {
    async fn read_counters(&self, target: &TargetKey) -> StoreResult<TargetCounters> {
        let view = self.rows.view()?;
        let prefix = keys::target(target);
        let mut found = TargetCounters::default();
        for row in view.prefix(Table::Counters, &prefix) {
            let (key, value) = row?;
            take(&mut found, prefix.len(), &key, &value)?;
        }
        Ok(found)
    }

    async fn put_counters(&self, puts: &[CounterPut]) -> Vec<StoreResult<()>> {
        let made: Vec<Put> = puts.iter().map(|put| Put::new(&put.shard, &put.row)).collect();
        let work = move |txn: &mut Txn<'_>| Ok(made.into_iter().map(|put| put.run(txn)).collect());
        let done = self.writer.call(false, puts.len() * PUT_WEIGHT, work).await;
        done.unwrap_or_else(|e| vec![Err(e); puts.len()])
    }

    async fn raise_shown(&self, root: &ShardKey, level: Level) -> StoreResult<()> {
        let key = keys::counter(&root.target, &root.kind, SHOWN);
        let work = move |txn: &mut Txn<'_>| {
            let decode = |bytes: fjall::UserValue| cells::decode_byte(&bytes).ok_or_else(|| damaged(Table::Counters, &key));
            let stored = txn.get(Table::Counters, &key)?.map(decode).transpose()?;
            if stored.is_none_or(|stored| stored < level) {
                txn.put(Table::Counters, key, cells::encode_byte(level));
            }
            Ok(())
        };
        self.writer.call(false, PUT_WEIGHT, work).await
    }

    async fn drop_counter(&self, shard: &ShardKey) -> StoreResult<()> {
        let key = keys::counter(&shard.target, &shard.kind, shard.shard);
        let work = move |txn: &mut Txn<'_>| {
            txn.delete(Table::Counters, key);
            Ok(())
        };
        self.writer.call(false, PUT_WEIGHT, work).await
    }
}
