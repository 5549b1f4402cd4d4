//! A ledger commit and its counter in one step.

use schema::{CounterRow, Fact, KindName, LedgerHead, Member, Register, Shard, ShardKey, TargetKey};

use crate::{
    embedded::{Embedded, EmbeddedSettings},
    engine::{CommitOutcome, CounterTable, FusedLanding, LedgerCommit, LedgerTable, RowChange},
};

fn commit(expect: Option<i64>, revision: i64, member: &str) -> (LedgerCommit, CounterRow) {
    let fact = Fact::of(Register::Choice, revision - 1, 1, revision - 1);
    let counts = [(1, revision)].into_iter().collect::<schema::Counts>();
    let head = LedgerHead { revision, counts: counts.clone(), complete: true, as_of: revision - 1, audit: None };
    let rows = vec![RowChange { member: Member::parse(member).unwrap(), expect: None, fact }];
    let commit = LedgerCommit { expect_revision: expect, head, rows, drop_times: vec![], put_times: vec![], drop_rows: vec![] };
    (commit, CounterRow { order: revision, rank: 0, counts, as_of: revision - 1 })
}

#[tokio::test]
async fn the_counter_is_written_with_the_commit_and_not_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Embedded::open(dir.path(), &EmbeddedSettings::default()).unwrap();
    let root = ShardKey::root(TargetKey::parse("video/p1").unwrap(), KindName::parse("like").unwrap());
    let leaf = root.with_shard(Shard(16));
    let (first, counter) = commit(None, 5, "ada");
    assert_eq!(engine.commit_counted(&leaf, &first, &counter).await, Ok(Some(CommitOutcome::Applied)));
    let read = async || engine.read_counters(&leaf.target).await.unwrap().row(&leaf.kind, leaf.shard).cloned();
    assert_eq!(read().await, Some(counter.clone()));
    // Somebody else has committed meanwhile: neither ledger nor counter change.
    let (late, other) = commit(Some(4), 9, "eve");
    assert_eq!(engine.commit_counted(&leaf, &late, &other).await, Ok(Some(CommitOutcome::Conflict)));
    assert_eq!(read().await, Some(counter));
    let ledger = engine.read_ledger(&leaf, &[Member::parse("ada").unwrap(), Member::parse("eve").unwrap()]).await.unwrap();
    assert_eq!((ledger.head.map(|h| h.revision), ledger.rows[0].is_some(), ledger.rows[1]), (Some(5), true, None));
}
