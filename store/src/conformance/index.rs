//! Properties of [`IndexTable`](crate::engine::IndexTable).
//!
//! A time row is valid only where section 1 has the same `since` and a choice. An engine may or may
//! not leave others behind, so lists are compared after that check.

use schema::{IndexRow, Micros, TargetKey, UserKey};

use super::{Subject, names::*};
use crate::engine::{IndexEntry, IndexTimeRow};

fn row(version: Micros, choice: u8, since: Micros) -> IndexRow {
    IndexRow { version, choice, since }
}

async fn put(engine: &Subject, user: &UserKey, target: &TargetKey, row: IndexRow) {
    let entry = IndexEntry { user: user.clone(), kind: kind("like"), target: target.clone(), row };
    all_ok(engine.put_index(&[entry]).await, 1);
}

async fn read(engine: &Subject, user: &UserKey, target: &TargetKey) -> Option<IndexRow> {
    engine.read_index(user, &kind("like"), std::slice::from_ref(target)).await.expect("read")[0]
}

/// Every time row, read in pages of `size`.
async fn raw_times(engine: &Subject, user: &UserKey, size: usize) -> Vec<IndexTimeRow> {
    let mut got: Vec<IndexTimeRow> = Vec::new();
    loop {
        let after = got.last().map(|t| (t.at, t.target.clone()));
        let (rows, end) = engine.page_index_times(user, &kind("like"), after.as_ref(), size).await.expect("page");
        assert!(rows.len() <= size && (end || !rows.is_empty()));
        got.extend(rows);
        if end {
            return got;
        }
    }
}

async fn valid_times(engine: &Subject, user: &UserKey) -> Vec<(Micros, TargetKey)> {
    let mut valid = Vec::new();
    for time in raw_times(engine, user, 100).await {
        if read(engine, user, &time.target).await.is_some_and(|r| r.choice != 0 && r.since == time.at) {
            valid.push((time.at, time.target));
        }
    }
    valid
}

/// Both orders of each pair, ties included, and asked for in an order of their own.
pub async fn index_rows_join_by_version(engine: Subject) {
    let user = user("join");
    for [one, other] in [[row(5, 1, 5), row(7, 2, 6)], [row(5, 2, 3), row(5, 1, 4)], [row(5, 1, 5), row(6, 0, 6)]] {
        for order in [[one, other, one], [other, one, other]] {
            let target = target("t");
            for row in order {
                put(&engine, &user, &target, row).await;
            }
            assert_eq!(read(&engine, &user, &target).await, Some(one.join(other)));
        }
    }
    let (a, b) = (target("a"), target("b"));
    put(&engine, &user, &a, row(1, 1, 1)).await;
    let asked = [b, a.clone(), target("c"), a];
    let found = engine.read_index(&user, &kind("like"), &asked).await.expect("read");
    assert_eq!(found, [None, Some(row(1, 1, 1)), None, Some(row(1, 1, 1))]);
    assert_eq!(engine.read_index(&user, &kind("other"), &asked).await.expect("read"), vec![None; 4]);
}

/// Equal and different times, some before 1970.
pub async fn the_index_lists_latest_and_largest_first(engine: Subject) {
    let user = user("list");
    let mut want: Vec<_> = (0..20).map(|n| ((n % 5) - 1, target(&format!("t{n}")))).collect();
    for (at, target) in &want {
        put(&engine, &user, target, row(10, 1, *at)).await;
    }
    want.sort_by(|a, b| b.cmp(a));
    assert_eq!(valid_times(&engine, &user).await, want);
    let other = engine.page_index_times(&user, &kind("other"), None, 10).await.expect("page");
    assert_eq!(other, (vec![], true));
}

/// Moved forwards by a newer row; an older one, later, changes nothing.
pub async fn a_moved_index_row_is_valid_at_its_new_time_only(engine: Subject) {
    let (user, target) = (user("moved"), target("t"));
    for (write, since) in [(row(5, 1, 5), 5), (row(8, 2, 8), 8), (row(6, 1, 6), 8), (row(9, 2, 8), 8)] {
        put(&engine, &user, &target, write).await;
        assert_eq!(valid_times(&engine, &user).await, [(since, target.clone())]);
    }
}

/// Withdrawn, then liked again.
pub async fn a_withdrawn_index_row_is_listed_nowhere(engine: Subject) {
    let (user, target) = (user("gone"), target("t"));
    put(&engine, &user, &target, row(5, 1, 5)).await;
    put(&engine, &user, &target, row(6, 0, 6)).await;
    assert_eq!((valid_times(&engine, &user).await, read(&engine, &user, &target).await), (vec![], Some(row(6, 0, 6))));
    put(&engine, &user, &target, row(7, 1, 7)).await;
    assert_eq!(valid_times(&engine, &user).await, [(7, target)]);
}

/// By the choice register only: a hide makes no index row, and an older choice does not win.
pub async fn a_written_fact_carries_its_index_rows(engine: Subject) {
    let shard = root("fact");
    let user = user("fact");
    let ada = user.member();
    let write = |fact| crate::engine::FactWrite { index: Some(user.clone()), ..write(&shard, &ada, fact) };
    all_ok(engine.write_facts(&[write(hidden(0, 9, 1))]).await, 1);
    assert_eq!(read(&engine, &user, &shard.target).await, None);
    for (fact, want) in [(chosen(5, 1, 4), row(5, 1, 4)), (chosen(7, 2, 7), row(7, 2, 7)), (chosen(6, 1, 6), row(7, 2, 7))] {
        all_ok(engine.write_facts(&[write(fact)]).await, 1);
        assert_eq!(read(&engine, &user, &shard.target).await, Some(want));
        assert_eq!(valid_times(&engine, &user).await, [(want.since, shard.target.clone())]);
    }
    all_ok(engine.write_facts(&[write(chosen(8, 0, 8))]).await, 1);
    assert_eq!(valid_times(&engine, &user).await, []);
}

/// The row named, and no other at its time.
pub async fn a_dropped_index_time_row_is_gone(engine: Subject) {
    let (user, one, other) = (user("time"), target("a"), target("b"));
    put(&engine, &user, &one, row(5, 1, 5)).await;
    put(&engine, &user, &other, row(5, 1, 5)).await;
    for _ in 0..2 {
        let time = IndexTimeRow { at: 5, target: one.clone() };
        engine.drop_index_time(&user, &kind("like"), &time).await.expect("drop");
        assert_eq!(raw_times(&engine, &user, 10).await, [IndexTimeRow { at: 5, target: other.clone() }]);
    }
    assert_eq!(read(&engine, &user, &one).await, Some(row(5, 1, 5)));
}

/// Both sections of the target named, and nothing of another.
pub async fn a_dropped_index_row_is_gone_from_both_sections(engine: Subject) {
    let (user, one, other) = (user("both"), target("a"), target("b"));
    put(&engine, &user, &one, row(5, 1, 5)).await;
    put(&engine, &user, &other, row(6, 1, 6)).await;
    for _ in 0..2 {
        engine.drop_index(&user, &kind("like"), &one).await.expect("drop");
        assert_eq!((read(&engine, &user, &one).await, read(&engine, &user, &other).await), (None, Some(row(6, 1, 6))));
        assert_eq!(raw_times(&engine, &user, 10).await, [IndexTimeRow { at: 6, target: other.clone() }]);
    }
}

/// Both sections, in pages of each size.
pub async fn pages_of_the_index_reach_the_end_without_skip_or_repeat(engine: Subject) {
    let user = user("pages");
    let mut targets: Vec<_> = (0..23).map(|n| target(&format!("t{n}"))).collect();
    for (n, target) in (0..).zip(&targets) {
        put(&engine, &user, target, row(100 + n, u8::from(n % 4 != 0), n / 3)).await;
    }
    targets.sort();
    let times = raw_times(&engine, &user, 100).await;
    assert!(times.len() >= 17 && times.is_sorted_by(|a, b| (b.at, &b.target) < (a.at, &a.target)));
    for size in [1, 2, 7, 22, 23, 24] {
        assert_eq!(raw_times(&engine, &user, size).await, times, "pages of {size}");
        let mut got: Vec<TargetKey> = Vec::new();
        loop {
            let (rows, end) = engine.page_index(&user, &kind("like"), got.last(), size).await.expect("page");
            assert!(rows.len() <= size && (end || !rows.is_empty()));
            got.extend(rows.into_iter().map(|(target, _)| target));
            if end {
                break;
            }
        }
        assert_eq!(got, targets, "pages of {size}");
    }
    let (rows, end) = engine.page_index(&user, &kind("other"), None, 5).await.expect("page");
    assert!(rows.is_empty() && end);
}

/// Section 1 does not change by it, so an engine that compares first must not stop there.
pub async fn a_repeated_index_write_brings_a_lost_time_row_back(engine: Subject) {
    let (user, target) = (user("again"), target("t"));
    put(&engine, &user, &target, row(5, 1, 3)).await;
    let time = IndexTimeRow { at: 3, target: target.clone() };
    engine.drop_index_time(&user, &kind("like"), &time).await.expect("drop");
    assert_eq!(valid_times(&engine, &user).await, []);
    put(&engine, &user, &target, row(5, 1, 3)).await;
    assert_eq!(valid_times(&engine, &user).await, [(3, target)]);
}
