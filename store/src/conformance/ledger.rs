//! Properties of [`LedgerTable`](crate::engine::LedgerTable).

use schema::{Audit, Fact, LedgerHead, LedgerRow, Member, ShardKey};

use super::{Subject, names::*};
use crate::engine::{CommitOutcome, LedgerCommit, LedgerRead, RowChange, TimeRow};

fn head(revision: i64) -> LedgerHead {
    LedgerHead { revision, complete: true, ..LedgerHead::default() }
}

fn change(member: &Member, expect: Option<Fact>, fact: Fact) -> RowChange {
    RowChange { member: member.clone(), expect, fact }
}

fn commit(expect_revision: Option<i64>, revision: i64, rows: Vec<RowChange>) -> LedgerCommit {
    LedgerCommit { expect_revision, head: head(revision), rows, drop_times: vec![], put_times: vec![], drop_rows: vec![] }
}

#[track_caller]
fn applied(outcome: crate::StoreResult<CommitOutcome>) {
    assert_eq!(outcome, Ok(CommitOutcome::Applied));
}

#[track_caller]
fn conflicted(outcome: crate::StoreResult<CommitOutcome>) {
    assert_eq!(outcome, Ok(CommitOutcome::Conflict));
}

async fn times(engine: &Subject, leaf: &ShardKey) -> Vec<(i64, String, u8)> {
    let (rows, end) = engine.page_times(leaf, None, 1000).await.expect("page");
    assert!(end);
    rows.into_iter().map(|r| (r.at, r.member.as_str().to_owned(), r.choice)).collect()
}

/// Everything that a leaf holds, to show that nothing was written.
async fn whole(engine: &Subject, leaf: &ShardKey) -> (LedgerRead, Vec<(Member, LedgerRow)>, Vec<(i64, String, u8)>) {
    let page = engine.page_ledger(leaf, None, 1000).await.expect("page");
    assert!(page.end);
    let asked: Vec<_> = page.rows.iter().map(|(m, _)| m.clone()).collect();
    let read = engine.read_ledger(leaf, &asked).await.expect("read");
    assert_eq!(read.head, page.head);
    assert_eq!(read.rows, page.rows.iter().map(|(_, row)| Some(*row)).collect::<Vec<_>>());
    (read, page.rows, times(engine, leaf).await)
}

/// Head, rows with its revision, and time rows of what is counted.
pub async fn a_ledger_commit_applies_whole_on_an_absent_head(engine: Subject) {
    let leaf = leaf("fresh");
    let (ada, bob, eve) = (member("ada"), member("bob"), member("eve"));
    let shown = chosen(5, 2, 4);
    let unseen = chosen(6, 1, 6).join(hidden(0, 7, 1));
    applied(engine.commit(&leaf, &commit(None, 10, vec![change(&ada, None, shown), change(&bob, None, unseen)])).await);
    let read = engine.read_ledger(&leaf, &[bob, eve, ada]).await.expect("read");
    let row = |fact| Some(LedgerRow { fact, revision: 10 });
    assert_eq!(read, LedgerRead { head: Some(head(10)), rows: vec![row(unseen), None, row(shown)] });
    assert_eq!(times(&engine, &leaf).await, [(4, "ada".into(), 2)]);
}

/// Too old, too new, absent where one is expected, present where none is.
pub async fn a_ledger_commit_conflicts_on_another_revision_and_writes_nothing(engine: Subject) {
    let (leaf, ada) = (leaf("revision"), member("ada"));
    let new = |expect, revision| commit(expect, revision, vec![change(&ada, None, chosen(1, 1, 1))]);
    conflicted(engine.commit(&leaf, &new(Some(0), 3)).await);
    assert_eq!(whole(&engine, &leaf).await.0, LedgerRead::default());
    applied(engine.commit(&leaf, &commit(None, 5, vec![])).await);
    let before = whole(&engine, &leaf).await;
    for expect in [None, Some(4), Some(6)] {
        conflicted(engine.commit(&leaf, &new(expect, 9)).await);
        assert_eq!(whole(&engine, &leaf).await, before, "{expect:?}");
    }
    applied(engine.commit(&leaf, &new(Some(5), 6)).await);
    // The same again, as after an unknown outcome, must not apply twice.
    conflicted(engine.commit(&leaf, &new(Some(5), 6)).await);
}

/// One row of three is not as expected: other registers, absent, or present.
pub async fn a_ledger_commit_conflicts_on_any_row_and_writes_nothing(engine: Subject) {
    let leaf = leaf("rows");
    let (ada, bob, eve) = (member("ada"), member("bob"), member("eve"));
    let (one, two) = (chosen(1, 1, 1), chosen(2, 2, 2));
    applied(engine.commit(&leaf, &commit(None, 5, vec![change(&ada, None, one), change(&bob, None, one)])).await);
    let before = whole(&engine, &leaf).await;
    let good = || change(&ada, Some(one), two);
    for bad in [
        change(&bob, Some(two), two),
        change(&bob, None, two),
        change(&eve, Some(one), two),
        change(&bob, Some(one.join(hidden(2, 1, 0))), two),
    ] {
        for rows in [vec![good(), bad.clone()], vec![bad.clone(), good()]] {
            conflicted(engine.commit(&leaf, &commit(Some(5), 6, rows)).await);
            assert_eq!(whole(&engine, &leaf).await, before, "{bad:?}");
        }
    }
    let drop = LedgerCommit { drop_rows: vec![(bob.clone(), two)], ..commit(Some(5), 6, vec![good()]) };
    conflicted(engine.commit(&leaf, &drop).await);
    assert_eq!(whole(&engine, &leaf).await, before);
    applied(engine.commit(&leaf, &commit(Some(5), 6, vec![good(), change(&eve, None, two)])).await);
    let revisions: Vec<_> = whole(&engine, &leaf).await.1.into_iter().map(|(m, row)| (m, row.revision)).collect();
    assert_eq!(revisions, [(ada, 6), (bob, 5), (eve, 6)]);
}

/// Counted, changed at one time, moved, hidden, shown again, withdrawn.
pub async fn a_ledger_commit_moves_time_rows_with_their_facts(engine: Subject) {
    let (leaf, ada) = (leaf("moves"), member("ada"));
    let steps = [
        (chosen(1, 1, 1), vec![(1, "ada".to_owned(), 1)]),
        (chosen(2, 2, 1), vec![(1, "ada".to_owned(), 2)]),
        (chosen(3, 2, 3), vec![(3, "ada".to_owned(), 2)]),
        (chosen(3, 2, 3).join(hidden(1, 1, 1)), vec![]),
        (chosen(4, 1, 4).join(hidden(1, 1, 1)), vec![]),
        (chosen(4, 1, 4).join(hidden(1, 2, 0)), vec![(4, "ada".to_owned(), 1)]),
        (chosen(9, 0, 9).join(hidden(1, 2, 0)), vec![]),
    ];
    let (mut before, mut revision) = (None, None);
    for (n, (fact, want)) in (1..).zip(steps) {
        applied(engine.commit(&leaf, &commit(revision, n, vec![change(&ada, before, fact)])).await);
        assert_eq!(times(&engine, &leaf).await, want, "step {n}");
        (before, revision) = (Some(fact), Some(n));
    }
}

/// Rows with equal and different times; pages of each size.
pub async fn time_rows_are_listed_latest_and_largest_first(engine: Subject) {
    let leaf = leaf("times");
    let made: Vec<_> =
        members().into_iter().enumerate().map(|(i, m)| TimeRow { at: (i % 3) as i64, member: m, choice: 1 }).collect();
    let rows = made.iter().map(|t| change(&t.member, None, chosen(9, 1, t.at))).collect();
    applied(engine.commit(&leaf, &commit(None, 10, rows)).await);
    let mut want = made;
    want.sort_by(|a, b| (b.at, &b.member).cmp(&(a.at, &a.member)));
    for size in [1, 2, 7, want.len() - 1, want.len(), want.len() + 1] {
        let mut got: Vec<TimeRow> = Vec::new();
        loop {
            let after = got.last().map(|t| (t.at, t.member.clone()));
            let (rows, end) = engine.page_times(&leaf, after.as_ref(), size).await.expect("page");
            assert!(rows.len() <= size && (end || !rows.is_empty()));
            got.extend(rows);
            if end {
                break;
            }
        }
        assert_eq!(got, want, "pages of {size}");
    }
}

/// Rows ascending, and the head with each page.
pub async fn pages_of_a_ledger_reach_the_end_without_skip_or_repeat(engine: Subject) {
    let leaf = leaf("pages");
    let all = members();
    let rows = all.iter().rev().map(|m| change(m, None, chosen(3, 1, 3))).collect();
    applied(engine.commit(&leaf, &commit(None, 10, rows)).await);
    for size in [1, 2, 7, all.len() - 1, all.len(), all.len() + 1] {
        let mut got: Vec<Member> = Vec::new();
        loop {
            let page = engine.page_ledger(&leaf, got.last(), size).await.expect("page");
            assert_eq!(page.head, Some(head(10)));
            assert!(page.rows.len() <= size && (page.end || !page.rows.is_empty()));
            assert!(page.rows.iter().all(|(_, r)| *r == LedgerRow { fact: chosen(3, 1, 3), revision: 10 }));
            got.extend(page.rows.into_iter().map(|(m, _)| m));
            if page.end {
                break;
            }
        }
        assert_eq!(got, all, "pages of {size}");
    }
    let empty = engine.page_ledger(&super::names::leaf("empty"), None, 3).await.expect("page");
    assert_eq!((empty.head, empty.rows, empty.end), (None, vec![], true));
}

/// A stray time row, a missing one, and a row without a fact.
pub async fn ledger_repair_drops_and_puts_what_it_says(engine: Subject) {
    let leaf = leaf("repair");
    let (ada, bob) = (member("ada"), member("bob"));
    let fact = chosen(5, 1, 5);
    applied(engine.commit(&leaf, &commit(None, 1, vec![change(&ada, None, fact), change(&bob, None, fact)])).await);
    let put = TimeRow { at: 8, member: bob.clone(), choice: 2 };
    let repair = LedgerCommit { put_times: vec![put], drop_times: vec![(5, bob.clone())], ..commit(Some(1), 2, vec![]) };
    applied(engine.commit(&leaf, &repair).await);
    assert_eq!(times(&engine, &leaf).await, [(8, "bob".into(), 2), (5, "ada".into(), 1)]);
    let drop = vec![(bob.clone(), fact)];
    let repair = LedgerCommit { drop_rows: drop, drop_times: vec![(8, bob)], ..commit(Some(2), 3, vec![]) };
    applied(engine.commit(&leaf, &repair).await);
    let (read, rows, times) = whole(&engine, &leaf).await;
    assert_eq!((read.head, rows), (Some(head(3)), vec![(ada, LedgerRow { fact, revision: 1 })]));
    assert_eq!(times, [(5, "ada".into(), 1)]);
}

/// Counts, progress of a recount, and the rest.
pub async fn a_ledger_head_keeps_all_its_fields(engine: Subject) {
    let leaf = leaf("head");
    for (n, audit) in
        [None, Some((None, counts(&[]))), Some((Some(member("é")), counts(&[(1, 3), (63, -1)])))].into_iter().enumerate()
    {
        let want = LedgerHead {
            revision: 100 + n as i64,
            counts: counts(&[(1, 7), (2, -5)]),
            complete: n == 1,
            as_of: 99,
            audit: audit.map(|(pos, sum)| Audit { pos, sum }),
        };
        let before = n.checked_sub(1).map(|n| 100 + n as i64);
        applied(engine.commit(&leaf, &LedgerCommit { head: want.clone(), ..commit(before, 0, vec![]) }).await);
        assert_eq!(engine.read_ledger(&leaf, &[]).await.expect("read").head, Some(want));
    }
}

/// Six tasks each add ten to a count that is in the head; conflicts are tried again, and what was
/// answered applied is all there.
pub async fn racing_ledger_commits_apply_one_after_another(engine: Subject) {
    let leaf = leaf("race");
    let tasks = (0..6).map(|_| {
        let (engine, leaf) = (engine.clone(), leaf.clone());
        tokio::spawn(async move {
            let mut done = 0;
            while done < 10 {
                let old = engine.read_ledger(&leaf, &[]).await.expect("read").head;
                let mut new = old.clone().unwrap_or_default();
                new.counts.add(1, 1);
                new.revision += 1;
                let next = LedgerCommit { head: new, ..commit(old.map(|h| h.revision), 0, vec![]) };
                done += i64::from(engine.commit(&leaf, &next).await.expect("commit") == CommitOutcome::Applied);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a task");
    }
    let head = engine.read_ledger(&leaf, &[]).await.expect("read").head.expect("a head");
    assert_eq!((head.counts.get(1), head.revision), (60, 60));
}

/// Head, rows and time rows vanish, of this leaf only; a new commit starts from nothing.
pub async fn a_dropped_ledger_is_gone_and_others_stay(engine: Subject) {
    let leaf = leaf("drop");
    let other = leaf.with_shard(shard(leaf.shard.0 + 1));
    let rows: Vec<_> = members().iter().map(|m| change(m, None, chosen(1, 1, 1))).collect();
    for shard in [&leaf, &other] {
        applied(engine.commit(shard, &commit(None, 1, rows.clone())).await);
    }
    let before = whole(&engine, &other).await;
    for _ in 0..2 {
        engine.drop_ledger(&leaf).await.expect("drop");
        assert_eq!(whole(&engine, &leaf).await, (LedgerRead::default(), vec![], vec![]));
    }
    assert_eq!(whole(&engine, &other).await, before);
    applied(engine.commit(&leaf, &commit(None, 1, rows)).await);
}
