//! Scans in key order: by token, so that a slice is a range.

use std::ops::Bound;

use async_trait::async_trait;
use schema::{IndexRow, KindName, ShardKey, TargetKey, UserKey};

use super::{
    Embedded, cells, counters, facts, index, keys, ledger,
    rows::{Table, damaged},
};
use crate::engine::{
    FactRows, IndexRows, IndexTimeRow, LedgerRows, ScanTable, Slice, SlicePage, StoreResult, TargetCounters, TimeRow,
};

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

/// Reads rows in key order, one pass of one iterator. `row` takes a row: the part that is open, if the
/// row is of it, the key and the value; a part to begin, if it is of another.
fn walk<T>(
    engine: &Embedded,
    table: Table,
    slice: Slice,
    from: Option<&[u8]>,
    limit: usize,
    mut row: impl FnMut(Option<&mut T>, &[u8], &[u8]) -> StoreResult<Option<T>>,
) -> StoreResult<SlicePage<T>> {
    let view = engine.rows.view()?;
    let (first, end) = slice.bounds();
    let end = end.map_or(Bound::Unbounded, |token| Bound::Excluded(token.to_be_bytes().to_vec()));
    // `from` is the last key of the page before.
    let start = from.map_or_else(|| Bound::Included(first.to_be_bytes().to_vec()), |key| Bound::Excluded(key.to_vec()));
    let mut items = Vec::new();
    let mut last = None;
    for (n, found) in view.range(table, start, end).enumerate() {
        if n == limit.max(1) {
            return Ok(SlicePage { items, next: last.map(|key: fjall::UserKey| key.to_vec()) });
        }
        let (key, value) = found?;
        if let Some(begun) = row(items.last_mut(), &key, &value)? {
            items.push(begun);
        }
        last = Some(key);
    }
    Ok(SlicePage { items, next: None })
}

fn fact_row(open: Option<&mut FactRows>, key: &[u8], value: &[u8]) -> StoreResult<Option<FactRows>> {
    let at = || damaged(Table::Facts, key);
    let mut begun = None;
    let part = match open.filter(|part| key.starts_with(&part.place)) {
        Some(part) => part,
        None => {
            let (shard, end) = keys::parse_shard(key).ok_or_else(at)?;
            begun.insert(FactRows { place: key[..end].to_vec(), shard, head: None, rows: Vec::new() })
        }
    };
    match keys::parse_id(&key[part.place.len()..]).ok_or_else(at)? {
        "" => part.head = Some(facts::decode_head(key, value)?),
        id => part.rows.push((keys::member(id).ok_or_else(at)?, facts::decode_fact(key, value)?)),
    }
    Ok(begun)
}

fn ledger_row(open: Option<&mut LedgerRows>, key: &[u8], value: &[u8]) -> StoreResult<Option<LedgerRows>> {
    let at = || damaged(Table::Ledger, key);
    let mut begun = None;
    let part = match open.filter(|part| key.starts_with(&part.place)) {
        Some(part) => part,
        None => {
            let (leaf, end) = keys::parse_shard(key).ok_or_else(at)?;
            begun.insert(LedgerRows { place: key[..end].to_vec(), leaf, head: None, rows: Vec::new(), times: Vec::new() })
        }
    };
    match key[part.place.len()..].split_first().ok_or_else(at)? {
        (&keys::HEAD, []) => part.head = Some(ledger::decode_head(key, value)?),
        (&keys::BY_ID, id) => {
            let member = keys::parse_id(id).and_then(keys::member).ok_or_else(at)?;
            part.rows.push((member, ledger::decode_row(key, value)?));
        }
        (&keys::BY_TIME, rest) => {
            let parsed = keys::parse_by_time(rest)
                .and_then(|(at, id)| Some(TimeRow { at, member: keys::member(&id)?, choice: cells::decode_byte(value)? }));
            part.times.push(parsed.ok_or_else(at)?);
        }
        _ => return Err(at()),
    }
    Ok(begun)
}

/// Rows of one (user, kind), and the prefix of their keys.
type OpenIndex = (Vec<u8>, IndexRows);

fn index_row(open: Option<&mut OpenIndex>, key: &[u8], value: &[u8]) -> StoreResult<Option<OpenIndex>> {
    let at = || damaged(Table::ByUser, key);
    let mut begun = None;
    let (prefix, part) = match open.filter(|(prefix, _)| key.starts_with(prefix)) {
        Some(part) => part,
        None => {
            let ((user, kind), end) = keys::parse_user(key).ok_or_else(at)?;
            let part = IndexRows { user, kind, rows: Vec::new(), times: Vec::new() };
            begun.insert((key[..end].to_vec(), part))
        }
    };
    let target = |text: &str| TargetKey::parse(text).ok();
    match key[prefix.len()..].split_first().ok_or_else(at)? {
        (&keys::BY_ID, id) => {
            let target = keys::parse_id(id).and_then(target).ok_or_else(at)?;
            part.rows.push((target, index::decode(key, value)?));
        }
        (&keys::BY_TIME, rest) => {
            let parsed = keys::parse_by_time(rest).and_then(|(at, id)| Some(IndexTimeRow { at, target: target(&id)? }));
            part.times.push(parsed.ok_or_else(at)?);
        }
        _ => return Err(at()),
    }
    Ok(begun)
}

#[async_trait]
impl ScanTable for Embedded {
    async fn fact_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<FactRows>> {
        walk(self, Table::Facts, slice, from, limit, fact_row)
    }

    async fn ledger_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<LedgerRows>> {
        walk(self, Table::Ledger, slice, from, limit, ledger_row)
    }

    async fn counter_rows(
        &self,
        slice: Slice,
        from: Option<&[u8]>,
        limit: usize,
    ) -> StoreResult<SlicePage<(TargetKey, TargetCounters)>> {
        counters::walk_targets(self, slice, from, limit)
    }

    async fn index_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<IndexRows>> {
        let page = walk(self, Table::ByUser, slice, from, limit, index_row)?;
        Ok(SlicePage { items: page.items.into_iter().map(|(_, part)| part).collect(), next: page.next })
    }

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
