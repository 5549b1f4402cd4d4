//! Properties of [`ScanTable`](crate::engine::ScanTable). Other tests' rows may be found too.

use std::{collections::BTreeMap, fmt::Debug, future::Future};

use schema::{CounterRow, Counts, LedgerHead, ShardKey, token_of};

use super::{Subject, names::*};
use crate::{
    StoreResult,
    engine::{CounterPut, IndexEntry, LedgerCommit, Slice, SlicePage},
};

/// Walks every slice in pages of several sizes: how often each of `mine` was found, at each size.
async fn scanned_once<T, F, Fut>(mine: &[T], of: u32, scan: F)
where
    T: Ord + Clone + Debug,
    F: Fn(Slice, Option<Vec<u8>>, usize) -> Fut,
    Fut: Future<Output = StoreResult<SlicePage<T>>>,
{
    for size in [1, 7, 1000] {
        let mut found: BTreeMap<T, usize> = mine.iter().map(|t| (t.clone(), 0)).collect();
        for index in 0..of {
            let mut from = None;
            loop {
                let page = scan(Slice { index, of }, from, size).await.expect("scan");
                assert!(page.items.len() <= size && (page.next.is_none() || !page.items.is_empty()));
                for item in page.items {
                    found.entry(item).and_modify(|n| *n += 1);
                }
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
        }
        let wrong: Vec<_> = found.into_iter().filter(|(_, n)| *n != 1).collect();
        assert!(wrong.is_empty(), "{of} slices, pages of {size}: {wrong:?}");
    }
}

/// The bounds meet without a gap, and each token is in one slice.
pub async fn slices_partition_the_key_space(_engine: Subject) {
    for of in [1, 2, 3, 7, 64, 1000] {
        let bounds: Vec<_> = (0..of).map(|index| Slice { index, of }.bounds()).collect();
        assert_eq!((bounds[0].0, bounds[of as usize - 1].1), (0, None));
        assert!(bounds.windows(2).all(|pair| pair[0].1 == Some(pair[1].0)));
        for n in 0..50 {
            let token = token_of(&target(&format!("t{n}")));
            let holding = bounds.iter().filter(|(first, end)| *first <= token && end.is_none_or(|end| token < end));
            assert_eq!(holding.count(), 1, "{token:x} of {of}");
        }
    }
}

/// Small and large partitions, several of one target, one with a head only.
pub async fn a_fact_scan_finds_each_partition_once(engine: Subject) {
    let mut mine = Vec::new();
    for n in 0..12 {
        let root = root("scan");
        let rows = if n == 0 { 70 } else { 1 + n % 3 };
        let mut writes = Vec::new();
        for shard in [root.clone(), root.with_shard(shard(16)), ShardKey::root(root.target.clone(), kind("zap"))] {
            writes.extend((0..rows).map(|m| write(&shard, &member(&format!("m{m}")), chosen(1, 1, 1))));
            mine.push(shard);
        }
        all_ok(engine.write_facts(&writes).await, writes.len());
    }
    let bare = root("scan");
    engine.raise_root_head(&bare, schema::RootHead { level: 4, ..Default::default() }).await.expect("raise");
    mine.push(bare);
    for of in [1, 3] {
        scanned_once(&mine, of, |slice, from, size| {
            let engine = engine.clone();
            async move { engine.scan_facts(slice, from.as_deref(), size).await }
        })
        .await;
    }
}

/// Targets with one row and with many.
pub async fn a_counter_scan_finds_each_target_once(engine: Subject) {
    let mut mine = Vec::new();
    for n in 0..12 {
        let root = root("scan");
        let row = CounterRow { order: 1, rank: 0, counts: Counts::default(), as_of: 1 };
        let shards = if n == 0 { 40 } else { 1 + n % 3 };
        let puts: Vec<_> = (1..=shards).map(|s| CounterPut { shard: root.with_shard(shard(s)), row: row.clone() }).collect();
        all_ok(engine.put_counters(&puts).await, puts.len());
        mine.push(root.target);
    }
    for of in [1, 3] {
        scanned_once(&mine, of, |slice, from, size| {
            let engine = engine.clone();
            async move { engine.scan_counters(slice, from.as_deref(), size).await }
        })
        .await;
    }
}

/// Leaves with a head alone and with many rows.
pub async fn a_ledger_scan_finds_each_leaf_once(engine: Subject) {
    let mut mine = Vec::new();
    for n in 0..6 {
        let root = root("scan");
        for leaf in [16, 17] {
            let leaf = root.with_shard(shard(leaf));
            let rows = members().into_iter().take(n * 5).map(|member| crate::engine::RowChange {
                member,
                expect: None,
                fact: chosen(1, 1, 1),
            });
            let commit = LedgerCommit {
                expect_revision: None,
                head: LedgerHead { revision: 1, ..LedgerHead::default() },
                rows: rows.collect(),
                drop_times: vec![],
                put_times: vec![],
                drop_rows: vec![],
            };
            engine.commit(&leaf, &commit).await.expect("commit");
            mine.push(leaf);
        }
    }
    for of in [1, 3] {
        scanned_once(&mine, of, |slice, from, size| {
            let engine = engine.clone();
            async move { engine.scan_ledgers(slice, from.as_deref(), size).await }
        })
        .await;
    }
}

/// Lists of one user by kind, short and long, one of withdrawn rows only.
pub async fn an_index_scan_finds_each_list_once(engine: Subject) {
    let mut mine = Vec::new();
    for n in 0..8 {
        let user = user("scan");
        for name in ["like", "zap"] {
            let row = schema::IndexRow { version: 1, choice: u8::from(n != 1), since: 1 };
            let entry = |t| IndexEntry { user: user.clone(), kind: kind(name), target: target(&format!("t{t}")), row };
            let entries: Vec<_> = (0..if n == 0 { 50 } else { n }).map(entry).collect();
            all_ok(engine.put_index(&entries).await, entries.len());
            mine.push((user.clone(), kind(name)));
        }
    }
    for of in [1, 3] {
        scanned_once(&mine, of, |slice, from, size| {
            let engine = engine.clone();
            async move { engine.scan_index(slice, from.as_deref(), size).await }
        })
        .await;
    }
}
