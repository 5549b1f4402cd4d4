//! Scans in key order: by token, so that a slice is a range.

use std::ops::Bound;

use async_trait::async_trait;
use schema::{IndexRow, KindName, ShardKey, TargetKey, UserKey};

use super::{
    Embedded, index, keys,
    rows::{Table, damaged},
};
use crate::engine::{ScanTable, Slice, SlicePage, StoreResult};

/// Rows of one partition that are walked over before the next is looked for from the top: small
/// partitions are cheaper to walk, large ones to jump.
const WALK: usize = 16;

/// Finds partitions; `parse` takes one, and the length of its prefix, out of a key.
fn scan<T>(
    engine: &Embedded,
    table: Table,
    slice: Slice,
    from: Option<&[u8]>,
    limit: usize,
    parse: impl Fn(&[u8]) -> Option<(T, usize)>,
) -> StoreResult<SlicePage<T>> {
    let view = engine.rows.view()?;
    let (first, end) = slice.bounds();
    let end = end.map_or(Bound::Unbounded, |token| Bound::Excluded(token.to_be_bytes().to_vec()));
    let first = first.to_be_bytes().to_vec();
    // `from` is the prefix of the last partition of the page before.
    let mut start = match from.map(keys::behind) {
        Some(Bound::Excluded(key)) => Bound::Included(key.max(first)),
        Some(_) => return Ok(SlicePage { items: Vec::new(), next: None }),
        None => Bound::Included(first),
    };
    let mut items = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    'jump: loop {
        let mut walked = 0;
        for row in view.range(table, start, end.clone()) {
            let (key, _) = row?;
            if let Some(prefix) = last.as_deref().filter(|prefix| key.starts_with(prefix)) {
                walked += 1;
                if walked == WALK {
                    start = match keys::behind(prefix) {
                        Bound::Excluded(key) => Bound::Included(key),
                        _ => return Ok(SlicePage { items, next: None }),
                    };
                    continue 'jump;
                }
                continue;
            }
            if items.len() == limit.max(1) {
                return Ok(SlicePage { items, next: last });
            }
            let (item, len) = parse(&key).ok_or_else(|| damaged(table, &key))?;
            items.push(item);
            last = Some(key[..len].to_vec());
            walked = 0;
        }
        return Ok(SlicePage { items, next: None });
    }
}

#[async_trait]
impl ScanTable for Embedded {
    async fn scan_facts(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<ShardKey>> {
        scan(self, Table::Facts, slice, from, limit, keys::parse_shard)
    }

    async fn scan_counters(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<TargetKey>> {
        scan(self, Table::Counters, slice, from, limit, keys::parse_target)
    }

    async fn scan_ledgers(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<ShardKey>> {
        scan(self, Table::Ledger, slice, from, limit, keys::parse_shard)
    }

    async fn scan_index(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<(UserKey, KindName)>> {
        scan(self, Table::ByUser, slice, from, limit, keys::parse_user)
    }

    async fn page_index(
        &self,
        user: &UserKey,
        kind: &KindName,
        after: Option<&TargetKey>,
        limit: usize,
    ) -> StoreResult<(Vec<(TargetKey, IndexRow)>, bool)> {
        index::page_by_target(self, user, kind, after, limit)
    }
}
