//! Properties of the scans by row of [`ScanTable`](crate::engine::ScanTable). Other tests' rows may be
//! found too; one partition's rows may come in several parts.

use std::{collections::BTreeMap, future::Future};

use schema::{CounterRow, Fact, IndexRow, LedgerHead, Member, RootHead, ShardKey, TargetKey};

use super::{Subject, names::*};
use crate::{
    StoreResult,
    engine::{
        CounterPut, FactRows, IndexEntry, IndexTimeRow, LedgerCommit, LedgerRows, RowChange, Slice, SlicePage, TargetCounters,
    },
};

/// Both sections of one (user, kind).
type Sections = (Vec<(TargetKey, IndexRow)>, Vec<IndexTimeRow>);

/// Every page of every slice of `of`, in order; no page is empty before the end.
async fn read_all<T, F, Fut>(of: u32, size: usize, scan: F) -> Vec<Vec<T>>
where
    F: Fn(Slice, Option<Vec<u8>>, usize) -> Fut,
    Fut: Future<Output = StoreResult<SlicePage<T>>>,
{
    let mut slices = Vec::new();
    for index in 0..of {
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let page = scan(Slice { index, of }, from, size).await.expect("scan");
            assert!(page.next.is_none() || !page.items.is_empty());
            found.extend(page.items);
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        slices.push(found);
    }
    slices
}

/// Cuts of the key space and page sizes that each test walks.
const WALKS: [(u32, usize); 4] = [(1, 1), (1, 1000), (3, 2), (3, 7)];

async fn facts(engine: &Subject, of: u32, size: usize) -> Vec<Vec<FactRows>> {
    read_all(of, size, |slice, from, size| async move { engine.fact_rows(slice, from.as_deref(), size).await }).await
}

async fn ledgers(engine: &Subject, of: u32, size: usize) -> Vec<Vec<LedgerRows>> {
    read_all(of, size, |slice, from, size| async move { engine.ledger_rows(slice, from.as_deref(), size).await }).await
}

type Partition = (Option<RootHead>, Vec<(Member, Fact)>);

/// Heads, roots and leaves; every row once, ascending, the parts of a partition side by side, and
/// places ascending.
pub async fn fact_rows_are_read_once_in_order_of_place(engine: Subject) {
    let mut mine: BTreeMap<ShardKey, Partition> = BTreeMap::new();
    for n in 0..6 {
        let root = root("rows");
        let head = RootHead { level: 4, level_at: n, epoch: 7 };
        engine.raise_root_head(&root, head).await.expect("raise");
        mine.insert(root.clone(), (Some(head), Vec::new()));
        for (shard, rows) in [(root.clone(), n), (root.with_shard(shard(16)), 9), (root.with_shard(shard(31)), 1)] {
            let rows: Vec<(Member, Fact)> = members().into_iter().take(rows as usize).map(|m| (m, chosen(5 + n, 1, 5))).collect();
            let writes: Vec<_> = rows.iter().map(|(m, fact)| write(&shard, m, *fact)).collect();
            all_ok(engine.write_facts(&writes).await, writes.len());
            mine.entry(shard).or_default().1 = rows;
        }
    }
    for (of, size) in WALKS {
        let mut found: BTreeMap<ShardKey, Partition> = BTreeMap::new();
        for parts in facts(&engine, of, size).await {
            assert!(parts.is_sorted_by(|a, b| a.place <= b.place), "{of} slices, pages of {size}");
            assert!(parts.windows(2).all(|p| (p[0].place == p[1].place) == (p[0].shard == p[1].shard)));
            for part in parts {
                let begun = found.contains_key(&part.shard);
                assert!(part.head.is_none() || !begun, "the head comes first");
                let (head, rows) = found.entry(part.shard).or_default();
                *head = head.or(part.head);
                rows.extend(part.rows);
            }
        }
        for (shard, partition) in &mine {
            assert_eq!(found.get(shard), Some(partition), "{of} slices, pages of {size}");
        }
    }
}

/// Head, rows and time rows once each, at the place that the leaf's facts have.
pub async fn ledger_rows_are_read_once_at_the_places_of_their_facts(engine: Subject) {
    let mut mine = BTreeMap::new();
    for n in 0..5usize {
        for leaf in [16, 17] {
            let leaf = root("rows").with_shard(shard(leaf));
            let rows: Vec<(Member, Fact)> =
                members().into_iter().take(n * 3).enumerate().map(|(i, m)| (m, chosen(9, (i % 2) as u8, 3 + i as i64))).collect();
            let writes: Vec<_> = rows.iter().map(|(m, fact)| write(&leaf, m, *fact)).collect();
            all_ok(engine.write_facts(&writes).await, writes.len());
            let commit = LedgerCommit {
                expect_revision: None,
                head: LedgerHead { revision: 10, complete: true, ..LedgerHead::default() },
                rows: rows.iter().map(|(m, fact)| RowChange { member: m.clone(), expect: None, fact: *fact }).collect(),
                drop_times: vec![],
                put_times: vec![],
                drop_rows: vec![],
            };
            engine.commit(&leaf, &commit).await.expect("commit");
            mine.insert(leaf, (commit.head, rows));
        }
    }
    let places: BTreeMap<ShardKey, Vec<u8>> =
        facts(&engine, 1, 1000).await.into_iter().flatten().map(|part| (part.shard, part.place)).collect();
    for (of, size) in WALKS {
        let mut found: BTreeMap<ShardKey, LedgerRows> = BTreeMap::new();
        for parts in ledgers(&engine, of, size).await {
            assert!(parts.is_sorted_by(|a, b| a.place <= b.place));
            for part in parts {
                assert!(places.get(&part.leaf).is_none_or(|place| *place == part.place));
                match found.get_mut(&part.leaf) {
                    None => {
                        found.insert(part.leaf.clone(), part);
                    }
                    Some(whole) => {
                        assert!(part.head.is_none() && (whole.times.is_empty() || part.rows.is_empty()));
                        whole.rows.extend(part.rows);
                        whole.times.extend(part.times);
                    }
                }
            }
        }
        for (leaf, (head, rows)) in &mine {
            let whole = found.get_mut(leaf).expect("found");
            assert_eq!((&whole.head, whole.rows.len()), (&Some(head.clone()), rows.len()), "{of} slices, pages of {size}");
            assert!(whole.rows.iter().zip(rows).all(|((m, row), (member, fact))| m == member && row.fact == *fact));
            whole.times.sort();
            let mut times: Vec<_> = rows.iter().filter(|(_, f)| f.counted() != 0).map(|(m, f)| (f.choice.since, m)).collect();
            times.sort();
            assert_eq!(whole.times.iter().map(|t| (t.at, &t.member)).collect::<Vec<_>>(), times);
        }
    }
}

/// A target with many rows is in one page, with its shown levels.
pub async fn counter_rows_are_read_whole_by_target(engine: Subject) {
    let mut mine: BTreeMap<TargetKey, TargetCounters> = BTreeMap::new();
    for n in 0..6u16 {
        let root = root("rows");
        let row = CounterRow { order: 4, rank: 9, counts: counts(&[(1, i64::from(n))]), as_of: 3 };
        let puts: Vec<_> = (1..=n * 4 + 1).map(|s| CounterPut { shard: root.with_shard(shard(s)), row: row.clone() }).collect();
        all_ok(engine.put_counters(&puts).await, puts.len());
        if n % 2 == 0 {
            engine.raise_shown(&root, 4).await.expect("raise");
        }
        mine.insert(root.target.clone(), engine.read_counters(&root.target).await.expect("read"));
    }
    for (of, size) in WALKS {
        let slices = read_all(of, size, |slice, from, size| {
            let engine = &engine;
            async move { engine.counter_rows(slice, from.as_deref(), size).await }
        })
        .await;
        let mut found: Vec<_> = slices.into_iter().flatten().filter(|(t, _)| mine.contains_key(t)).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, mine.clone().into_iter().collect::<Vec<_>>(), "{of} slices, pages of {size}");
    }
}

/// Rows by target and by time once each; withdrawn rows have no time row.
pub async fn index_rows_are_read_once_in_both_sections(engine: Subject) {
    let mut mine = BTreeMap::new();
    for n in 0..6usize {
        let (user, like) = (user("rows"), kind("like"));
        let mut rows = Vec::new();
        for t in 0..n * 3 {
            let row = IndexRow { version: 5, choice: u8::from(t % 3 != 0), since: 4 + t as i64 };
            rows.push((target(&format!("t{t}")), row));
        }
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        let entry = |(t, row): &(TargetKey, IndexRow)| IndexEntry {
            user: user.clone(),
            kind: like.clone(),
            target: t.clone(),
            row: *row,
        };
        let entries: Vec<_> = rows.iter().map(entry).collect();
        all_ok(engine.put_index(&entries).await, entries.len());
        mine.insert(user, rows);
    }
    for (of, size) in WALKS {
        let slices = read_all(of, size, |slice, from, size| {
            let engine = &engine;
            async move { engine.index_rows(slice, from.as_deref(), size).await }
        })
        .await;
        let mut found: BTreeMap<_, Sections> = BTreeMap::new();
        for part in slices.into_iter().flatten() {
            let (rows, times) = found.entry(part.user).or_default();
            assert!(times.is_empty() || part.rows.is_empty(), "rows by target come first");
            rows.extend(part.rows);
            times.extend(part.times);
        }
        for (user, rows) in mine.iter().filter(|(_, rows)| !rows.is_empty()) {
            let (by_target, by_time) = found.get_mut(user).expect("found");
            assert_eq!(by_target, rows, "{of} slices, pages of {size}");
            by_time.sort();
            let mut listed: Vec<_> = rows.iter().filter(|(_, r)| r.choice != 0).cloned().collect();
            listed.sort_by_key(|(t, r)| (r.since, t.clone()));
            let listed: Vec<_> = listed.into_iter().map(|(target, r)| IndexTimeRow { at: r.since, target }).collect();
            assert_eq!(*by_time, listed);
        }
    }
}
