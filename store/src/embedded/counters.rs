//! Counters, and the level that is shown.

use async_trait::async_trait;
use fjall::UserKey as RowKey;
use schema::{Level, Shard, ShardKey, TargetKey};

use super::{
    Embedded, cells, keys,
    rows::{Table, damaged},
    txn::Txn,
};
use crate::engine::{CounterPut, CounterTable, StoreResult, TargetCounters};

const PUT_WEIGHT: usize = 384;
/// Counter rows begin at shard 1.
const SHOWN: Shard = Shard(0);

/// Writes the row if its (order, blob) is larger than the stored one's.
fn put_larger(txn: &mut Txn<'_>, key: RowKey, cell: Vec<u8>) -> StoreResult<()> {
    if let Some(stored) = txn.get(Table::Counters, &key)? {
        let old = cells::split_counter(&stored).ok_or_else(|| damaged(Table::Counters, &key))?;
        if cells::split_counter(&cell).is_none_or(|new| new <= old) {
            return Ok(());
        }
    }
    txn.put(Table::Counters, key, cell);
    Ok(())
}

#[async_trait]
impl CounterTable for Embedded {
    async fn read_counters(&self, target: &TargetKey) -> StoreResult<TargetCounters> {
        let view = self.rows.view()?;
        let prefix = keys::target(target);
        let mut found = TargetCounters::default();
        for row in view.prefix(Table::Counters, &prefix) {
            let (key, value) = row?;
            let at = || damaged(Table::Counters, &key);
            let (kind, shard, _) = keys::parse_kind_shard(&key, prefix.len()).ok_or_else(at)?;
            if shard == SHOWN {
                found.shown.push((kind, cells::decode_byte(&value).ok_or_else(at)?));
            } else {
                found.rows.push((kind, shard, cells::decode_counter(&value).ok_or_else(at)?));
            }
        }
        Ok(found)
    }

    async fn put_counters(&self, puts: &[CounterPut]) -> Vec<StoreResult<()>> {
        let cell = |put: &CounterPut| {
            let ShardKey { target, kind, shard } = &put.shard;
            (RowKey::from(keys::counter(target, kind, *shard)), cells::encode_counter(&put.row))
        };
        let cells: Vec<_> = puts.iter().map(cell).collect();
        let work = move |txn: &mut Txn<'_>| Ok(cells.into_iter().map(|(key, cell)| put_larger(txn, key, cell)).collect());
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
