//! Every way in which a derived row can be wrong is put into the store by hand; `verify` must name
//! it, `rebuild` must mend it from the facts, and afterwards nothing may differ.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use common::{LEVEL, like, member, root, setup, target};
use schema::{CounterRow, IndexRow, UserKey, leaf_of, leaves};
use store::engine::{IndexEntry, IndexTimeRow, TimeRow};
use tally_rebuilder::{Cause, Progress, Scope};

#[tokio::test]
async fn a_sound_store_is_clean_and_a_rebuild_finds_nothing() {
    let w = setup().await;
    w.liked("small", 3).await;
    w.large("large").await;
    w.liked("gone", 1).await;
    w.write("gone", 0, 0).await;
    w.protocol.reconcile(&root("gone"), &[member(0)]).await.unwrap();
    let report = w.verify().await;
    assert!(report.clean(), "{:?}", report.drift);
    assert_eq!((report.targets, report.facts >= 44, report.index_rows), (3, true, 44));
    let rebuilt = w.rebuilder.rebuild(Scope::All, false, &Progress::default()).await.unwrap();
    assert!(rebuilt.clean(), "{:?}", rebuilt.drift);
    assert_eq!((w.total("small").await, w.total("large").await, w.total("gone").await), (3, 40, 0));
}

#[tokio::test]
async fn a_small_counter_that_wins_every_tie_is_mended() {
    let w = setup().await;
    let root = w.liked("p", 3).await;
    let mut row = w.counter(&root).await;
    row.counts.add(1, 5);
    w.put_counter(&root, row).await;
    assert_eq!(w.total("p").await, 8, "the wrong row is in place");
    w.assert_found_and_mended(Cause::Counter).await;
    assert_eq!(w.total("p").await, 3);
}

#[tokio::test]
async fn a_small_counter_from_the_future_is_mended() {
    let w = setup().await;
    let root = w.liked("p", 3).await;
    let mut row = w.counter(&root).await;
    row.order += 60_000_000;
    row.counts.add(1, -5);
    w.put_counter(&root, row).await;
    assert_eq!(w.total("p").await, -2, "a negative stored value is shown as it is, never clamped");
    w.assert_found_and_mended(Cause::Overcounted).await;
    assert_eq!(w.total("p").await, 3);
}

#[tokio::test]
async fn an_uncounted_fact_of_a_small_and_of_a_large_target_is_counted() {
    let w = setup().await;
    w.liked("small", 2).await;
    w.large("large").await;
    w.write("small", 3, 1).await;
    w.write("large", 77, 1).await;
    w.write("large", 0, 0).await;
    w.assert_found_and_mended(Cause::Uncounted).await;
    assert_eq!((w.total("small").await, w.total("large").await), (3, 40));
}

#[tokio::test]
async fn a_root_that_nobody_promoted_is_promoted() {
    let w = setup().await;
    for i in 0..20 {
        w.write("p", i, 1).await;
    }
    w.assert_found_and_mended(Cause::Uncounted).await;
    assert_eq!(w.total("p").await, 20);
}

#[tokio::test]
async fn a_leaf_counter_that_is_not_its_head_is_mended() {
    let w = setup().await;
    let (leaf, members) = w.large("p").await;
    let mut row = w.counter(&leaf).await;
    row.order += 1;
    row.counts.add(1, 1000);
    w.put_counter(&leaf, row).await;
    w.assert_found_and_mended(Cause::Counter).await;
    assert_eq!(w.total("p").await, 40);
    assert_eq!(w.counter(&leaf).await.counts.total(), i64::try_from(members.len()).unwrap());
}

#[tokio::test]
async fn a_missing_leaf_counter_is_written_again() {
    let w = setup().await;
    let (leaf, _) = w.large("p").await;
    w.protocol.engine().drop_counter(&leaf).await.unwrap();
    w.assert_found_and_mended(Cause::Uncounted).await;
    assert_eq!(w.total("p").await, 40);
}

#[tokio::test]
async fn head_counts_that_are_not_the_rows_are_recounted() {
    let w = setup().await;
    let (leaf, _) = w.large("p").await;
    w.damage(&leaf, |commit| commit.head.counts.add(1, -3)).await;
    assert_eq!(w.total("p").await, 37);
    w.assert_found_and_mended(Cause::Count).await;
    assert_eq!(w.total("p").await, 40);
}

#[tokio::test]
async fn time_rows_too_many_too_few_or_wrong_are_mended() {
    let w = setup().await;
    let (leaf, members) = w.large("p").await;
    let fact = w.ledger_row(&leaf, &members[0]).await;
    w.damage(&leaf, |commit| {
        commit.drop_times.push((fact.choice.since, members[0].clone()));
        commit.put_times.push(TimeRow { at: 5, member: members[1].clone(), choice: 1 });
    })
    .await;
    w.assert_found_and_mended(Cause::Listing).await;
    let listed = w.protocol.list(&root("p"), None, None, 200).await.unwrap();
    assert_eq!(listed.members.len(), 40);
    let other = w.ledger_row(&leaf, &members[1]).await.choice.since;
    w.damage(&leaf, |commit| commit.put_times.push(TimeRow { at: other, member: members[1].clone(), choice: 2 })).await;
    w.assert_found_and_mended(Cause::Listing).await;
}

#[tokio::test]
async fn a_dropped_ledger_is_built_again_from_the_facts() {
    let w = setup().await;
    let (leaf, _) = w.large("p").await;
    w.protocol.engine().drop_ledger(&leaf).await.unwrap();
    w.assert_found_and_mended(Cause::Uncounted).await;
    assert_eq!(w.total("p").await, 40);
}

#[tokio::test]
async fn index_rows_missing_wrong_or_without_a_fact_are_mended() {
    let w = setup().await;
    w.liked("p", 3).await;
    w.liked("q", 2).await;
    let engine = w.protocol.engine();
    let user = |i| UserKey::of(&target("p"), &member(i));
    engine.drop_index(&user(0), &like(), &target("p")).await.unwrap();
    let wrong = IndexRow { version: i64::MAX / 2, choice: 0, since: 1 };
    let ghost = IndexRow { version: 5, choice: 1, since: 5 };
    let entries = [
        IndexEntry { user: user(1), kind: like(), target: target("p"), row: wrong },
        IndexEntry { user: user(2), kind: like(), target: target("never"), row: ghost },
    ];
    engine.put_index(&entries).await.into_iter().for_each(|r| r.unwrap());
    w.assert_found_and_mended(Cause::Index).await;
    for i in 0..3 {
        let mine = w.protocol.user_list(&user(i), &like(), None, 10).await.unwrap();
        assert_eq!(mine.facts.len(), if i < 2 { 2 } else { 1 }, "u{i}: {:?}", mine.facts);
    }
}

#[tokio::test]
async fn a_lost_time_row_of_the_index_is_written_again() {
    let w = setup().await;
    w.liked("p", 1).await;
    let user = UserKey::of(&target("p"), &member(0));
    let row = w.protocol.engine().read_index(&user, &like(), &[target("p")]).await.unwrap()[0].unwrap();
    let time = IndexTimeRow { at: row.since, target: target("p") };
    w.protocol.engine().drop_index_time(&user, &like(), &time).await.unwrap();
    w.assert_found_and_mended(Cause::Index).await;
    assert_eq!(w.protocol.user_list(&user, &like(), None, 10).await.unwrap().facts.len(), 1);
}

#[tokio::test]
async fn a_counter_without_facts_is_removed() {
    let w = setup().await;
    w.liked("p", 1).await;
    let row = CounterRow { order: 1, rank: 1, counts: [(1, 37)].into_iter().collect(), as_of: 1 };
    w.put_counter(&root("ghost"), row).await;
    w.assert_found_and_mended(Cause::Overcounted).await;
    assert_eq!(w.total("ghost").await, 0);
}

/// I7: everything derived is thrown away at once.
#[tokio::test]
async fn a_rebuild_brings_everything_derived_back_from_the_facts_alone() {
    let w = setup().await;
    let small = w.liked("small", 3).await;
    let large = w.liked("large", 60).await;
    for i in 0..10 {
        w.write("large", i, 0).await;
    }
    w.protocol.reconcile(&large, &(0..10).map(member).collect::<Vec<_>>()).await.unwrap();
    for leaf in leaves(LEVEL) {
        let leaf = large.with_shard(leaf);
        w.protocol
            .reconcile(&leaf, &(0..60).map(member).filter(|m| leaf_of(m, LEVEL) == leaf.shard).collect::<Vec<_>>())
            .await
            .unwrap();
        w.protocol.engine().drop_ledger(&leaf).await.unwrap();
        w.protocol.engine().drop_counter(&leaf).await.unwrap();
    }
    for shard in [&small, &large] {
        w.protocol.engine().drop_counter(shard).await.unwrap();
    }
    for i in 0..60 {
        for id in ["small", "large"] {
            w.protocol.engine().drop_index(&UserKey::of(&target(id), &member(i)), &like(), &target(id)).await.unwrap();
        }
    }
    let report = w.rebuilder.rebuild(Scope::All, false, &Progress::default()).await.unwrap();
    assert_eq!(report.drifted, report.repaired, "{:?}", report.drift);
    let after = w.verify().await;
    assert!(after.clean(), "{:?}", after.drift);
    assert_eq!((w.total("small").await, w.total("large").await), (3, 50));
    assert_eq!(w.protocol.list(&large, None, None, 200).await.unwrap().members.len(), 50);
}

#[tokio::test]
async fn a_run_over_one_target_leaves_the_others_alone() {
    let w = setup().await;
    for id in ["p", "q"] {
        let root = w.liked(id, 2).await;
        w.protocol.engine().drop_counter(&root).await.unwrap();
        let row = CounterRow { order: 1, rank: 1, counts: [(1, 9)].into_iter().collect(), as_of: 1 };
        w.put_counter(&root, row).await;
    }
    let scope = Scope::Target { target: target("p"), kind: Some(like()) };
    let report = w.rebuilder.rebuild(scope, false, &Progress::default()).await.unwrap();
    assert_eq!((report.drifted, report.repaired, report.targets), (1, 1, 1), "{:?}", report.drift);
    assert_eq!((w.total("p").await, w.total("q").await), (2, 9));
}

#[tokio::test]
async fn top_is_exact_and_ordered() {
    let w = setup().await;
    for (id, n) in [("a", 2), ("b", 30), ("c", 2), ("d", 1), ("e", 7)] {
        w.liked(id, n).await;
    }
    let top = w.rebuilder.top("t", &like(), 3).await.unwrap();
    let top: Vec<(&str, i64)> = top.iter().map(|(t, c)| (t.id(), c.total())).collect();
    assert_eq!(top, [("b", 30), ("e", 7), ("a", 2)]);
    assert!(w.rebuilder.top("other", &like(), 3).await.unwrap().is_empty());
}
