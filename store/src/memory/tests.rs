//! The suite on this engine, replicated and fused, without faults; and what only this engine does.

use std::sync::Arc;

use schema::{Fact, IndexRow, KindName, LaneId, LedgerHead, Member, Namespace, Shard, ShardKey, TargetKey, UserKey};

use super::{Faults, Memory, Table, WriteFate};
use crate::{
    Engine, StoreError,
    engine::{
        CommitOutcome, FactTable, FactWrite, IndexEntry, IndexTable, JournalTable, LedgerCommit, LedgerTable, MAX_COMMIT_MEMBERS,
        RowChange, ScanTable,
    },
};

async fn setup_replicated() -> (Arc<dyn Engine>, String) {
    (Arc::new(Memory::new(1, false, Faults::none())), String::new())
}

async fn setup_fused() -> (Arc<dyn Engine>, String) {
    (Arc::new(Memory::new(2, true, Faults::none())), String::new())
}

crate::conformance!(replicated, setup_replicated);
crate::conformance!(fused, setup_fused);

fn quiet() -> Memory {
    Memory::new(3, false, Faults::none())
}

const LANE: LaneId = LaneId(7);

#[tokio::test]
async fn a_fact_on_a_single_replica_is_read_at_all_and_by_everybody_afterwards() {
    let engine = quiet();
    let leaf = ShardKey { target: TargetKey::parse("n/t").unwrap(), kind: KindName::parse("like").unwrap(), shard: Shard(16) };
    let (member, fact) = (Member::parse("m").unwrap(), Fact::of(schema::Register::Choice, 5, 1, 5));
    engine.script_write(Table::Fact, WriteFate::Only(0));
    let write = FactWrite { shard: leaf.clone(), member: member.clone(), fact, index: None, seen: None };
    assert!(engine.write_facts(&[write]).await[0].is_err());
    let members = std::slice::from_ref(&member);
    engine.script_quorum([1, 2]);
    assert_eq!(engine.read_facts(&leaf, members).await.unwrap().facts, [None]);
    assert_eq!(engine.read_facts_at_all(&leaf, members).await.unwrap().facts, [Some(fact)]);
    engine.script_quorum([1, 2]);
    assert_eq!(engine.read_facts(&leaf, members).await.unwrap().facts, [Some(fact)], "the other copies are repaired");
}

#[tokio::test]
async fn a_sign_of_life_does_not_carry_a_close_that_was_lost() {
    let engine = quiet();
    engine.register_lane(LANE, 10, 1).await.unwrap();
    engine.script_write(Table::Lane, WriteFate::Only(0));
    assert!(matches!(engine.close(LANE, 20).await, Err(StoreError::Unknown(_))));
    engine.touch_lane(LANE, 2).await.unwrap();
    engine.set_swept(LANE, 11).await.unwrap();
    engine.script_quorum([1, 2]);
    assert_eq!(engine.closed_through(LANE).await.unwrap(), Some(9));
    engine.script_quorum([0, 1]);
    assert_eq!(engine.closed_through(LANE).await.unwrap(), Some(20));
}

#[tokio::test]
async fn index_pages_begin_at_the_first_target_of_every_namespace() {
    let engine = quiet();
    let kind = KindName::parse("like").unwrap();
    for namespace in ["-", "--", "---", "0", "z"] {
        let namespace = Namespace::parse(namespace).unwrap();
        let (user, target) = (UserKey::new(&namespace, "u").unwrap(), TargetKey::new(&namespace, " ").unwrap());
        let row = IndexRow { version: 1, choice: 1, since: 1 };
        let entry = IndexEntry { user: user.clone(), kind: kind.clone(), target: target.clone(), row };
        assert_eq!(engine.put_index(&[entry]).await, vec![Ok(())]);
        assert_eq!(engine.page_index(&user, &kind, None, 10).await.unwrap(), (vec![(target, row)], true), "{namespace}");
    }
}

#[tokio::test]
async fn looking_for_a_slot_gives_way_before_and_after() {
    let engine = quiet();
    engine.append(LANE, 4, &schema::JournalEntry::default()).await.unwrap();
    let mut call = engine.next_slot(LANE, 3, 5);
    assert!(futures::poll!(&mut call).is_pending());
    assert!(futures::poll!(&mut call).is_pending());
    assert_eq!(call.await.unwrap(), Some(4));
}

#[tokio::test]
async fn a_commit_above_the_bound_is_refused_and_leaves_nothing() {
    let engine = quiet();
    let namespace = Namespace::parse("n").unwrap();
    let kind = KindName::parse("like").unwrap();
    let leaf = ShardKey { target: TargetKey::new(&namespace, "t").unwrap(), kind, shard: Shard(2) };
    let change = |i| RowChange { member: Member::parse(&format!("m{i}")).unwrap(), expect: None, fact: Fact::default() };
    let head = LedgerHead { revision: 1, ..LedgerHead::default() };
    let commit = |n| LedgerCommit {
        expect_revision: None,
        head: head.clone(),
        rows: (0..n).map(change).collect(),
        drop_times: Vec::new(),
        put_times: Vec::new(),
        drop_rows: Vec::new(),
    };
    let refused = engine.commit(&leaf, &commit(MAX_COMMIT_MEMBERS + 1)).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(engine.page_ledger(&leaf, None, 1).await.unwrap().head, None);
    assert_eq!(engine.commit(&leaf, &commit(MAX_COMMIT_MEMBERS)).await, Ok(CommitOutcome::Applied));
}
