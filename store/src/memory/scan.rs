//! Scans: partitions in key order.

use std::{collections::BTreeSet, ops::Bound};

use async_trait::async_trait;
use schema::{IndexRow, KindName, ShardKey, TargetKey, UserKey, token_of};

use super::{
    Memory, State,
    cells::{Cell, Key},
};
use crate::{
    StoreResult,
    engine::{FactRows, IndexRows, LedgerRows, ScanTable, Slice, SlicePage, TargetCounters},
};

/// A key before every other: namespaces are of at most 32 characters, `-` is the smallest of them
/// and smaller than the `/` behind them, and a space is the smallest id.
const FIRST_TARGET: &str = "--------------------------------/ ";

/// Whether a key's token lies in the slice. A user's key is hashed as a target's is.
pub(super) fn holds(slice: Slice, key: &str) -> bool {
    let (from, to) = slice.bounds();
    let token = TargetKey::parse(key).map_or(0, |key| token_of(&key));
    token >= from && to.is_none_or(|to| token < to)
}

/// A page of distinct items in order of their names; the place to go on is the last name given out.
fn page<T: Ord + Clone>(items: &BTreeSet<T>, name: impl Fn(&T) -> String, from: Option<&[u8]>, limit: usize) -> SlicePage<T> {
    let after = from.map(|f| String::from_utf8_lossy(f).into_owned());
    let mut named: Vec<(String, &T)> = items.iter().map(|i| (name(i), i)).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let mut rest = named.into_iter().filter(|(n, _)| after.as_ref().is_none_or(|a| n > a));
    let taken: Vec<(String, &T)> = rest.by_ref().take(limit.max(1)).collect();
    let next = if rest.next().is_some() { taken.last().map(|(n, _)| n.clone().into_bytes()) } else { None };
    SlicePage { items: taken.into_iter().map(|(_, i)| i.clone()).collect(), next }
}

pub(super) fn shard_name(key: &ShardKey) -> String {
    format!("{}\0{}\0{:05}", key.target, key.kind, key.shard.0)
}

impl State {
    fn found<T: Ord>(&self, pick: impl Fn(&Key) -> Option<T>) -> BTreeSet<T> {
        self.keys().into_iter().filter_map(pick).collect()
    }
}

#[async_trait]
impl ScanTable for Memory {
    async fn fact_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<FactRows>> {
        self.step(|state| Ok(state.fact_rows(slice, from, limit))).await
    }

    async fn ledger_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<LedgerRows>> {
        self.step(|state| Ok(state.ledger_rows(slice, from, limit))).await
    }

    async fn counter_rows(
        &self,
        slice: Slice,
        from: Option<&[u8]>,
        limit: usize,
    ) -> StoreResult<SlicePage<(TargetKey, TargetCounters)>> {
        self.step(|state| Ok(state.counter_rows(slice, from, limit))).await
    }

    async fn index_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<IndexRows>> {
        self.step(|state| Ok(state.index_rows(slice, from, limit))).await
    }

    async fn scan_facts(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<ShardKey>> {
        self.step(|state| {
            let items = state.found(|key| match key {
                Key::Fact(shard, _) | Key::Root(shard) if holds(slice, shard.target.as_str()) => Some(shard.clone()),
                _ => None,
            });
            Ok(page(&items, shard_name, from, limit))
        })
        .await
    }

    async fn scan_counters(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<TargetKey>> {
        self.step(|state| {
            let items = state.found(|key| match key {
                Key::Counter(shard) | Key::Shown(shard) if holds(slice, shard.target.as_str()) => Some(shard.target.clone()),
                _ => None,
            });
            Ok(page(&items, TargetKey::to_string, from, limit))
        })
        .await
    }

    async fn scan_ledgers(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<ShardKey>> {
        self.step(|state| {
            let stored = state.ledgers.iter().filter(|(_, l)| l.now().head.is_some());
            let items = stored.map(|(leaf, _)| leaf.clone()).filter(|leaf| holds(slice, leaf.target.as_str())).collect();
            Ok(page(&items, shard_name, from, limit))
        })
        .await
    }

    async fn scan_index(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<(UserKey, KindName)>> {
        self.step(|state| {
            let items = state.found(|key| match key {
                Key::Index(user, kind, _) | Key::IndexTime(user, kind, _) if holds(slice, user.as_str()) => {
                    Some((user.clone(), kind.clone()))
                }
                _ => None,
            });
            Ok(page(&items, |(user, kind)| format!("{user}\0{kind}"), from, limit))
        })
        .await
    }

    async fn page_index(
        &self,
        user: &UserKey,
        kind: &KindName,
        after: Option<&TargetKey>,
        limit: usize,
    ) -> StoreResult<(Vec<(TargetKey, IndexRow)>, bool)> {
        self.step(|state| {
            let belongs = |key: &Key| matches!(key, Key::Index(u, k, _) if u == user && k == kind);
            let first = TargetKey::parse(FIRST_TARGET).expect("a namespace and an id");
            let from = match after {
                Some(target) => Bound::Excluded(Key::Index(user.clone(), kind.clone(), target.clone())),
                None => Bound::Included(Key::Index(user.clone(), kind.clone(), first)),
            };
            let found = state.read_while(from, belongs, limit.max(1) + 1);
            let mut rows: Vec<(TargetKey, IndexRow)> = found
                .into_iter()
                .filter_map(|(key, cell)| match (key, cell) {
                    (Key::Index(_, _, target), Cell::Index(row)) => Some((target, row)),
                    _ => None,
                })
                .collect();
            let end = rows.len() <= limit.max(1);
            rows.truncate(limit.max(1));
            Ok((rows, end))
        })
        .await
    }
}
