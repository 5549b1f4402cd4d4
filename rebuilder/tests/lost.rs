//! A ledger row ahead of its fact means that a fact was lost. It is believed, register by register,
//! only where the journal or the user's index bears it out.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use common::{World, like, setup};
use schema::{Fact, IndexRow, Intent, JournalEntry, Member, Reason, Register, Shard, ShardKey, UserKey};
use store::engine::{IndexEntry, RowChange};
use tally_rebuilder::{Cause, Progress, Scope};

/// The index bears the ledger out, so the fact is restored from it.
#[tokio::test]
async fn a_lost_fact_is_restored_where_the_index_bears_it_out() {
    let w = setup().await;
    let (leaf, members) = w.large("p").await;
    let old = w.ledger_row(&leaf, &members[0]).await;
    let newer = old.join(Fact::of(Register::Choice, old.choice.version + 10, 0, old.choice.version + 10));
    w.damage(&leaf, |commit| {
        commit.head.counts.add(1, -1);
        commit.rows.push(RowChange { member: members[0].clone(), expect: Some(old), fact: newer });
    })
    .await;
    let entry = IndexEntry {
        user: UserKey::of(&leaf.target, &members[0]),
        kind: like(),
        target: leaf.target.clone(),
        row: IndexRow { version: newer.choice.version, choice: 0, since: newer.choice.since },
    };
    w.protocol.engine().put_index(&[entry]).await.into_iter().for_each(|r| r.unwrap());
    let said = w.assert_found_and_mended(Cause::FactLost).await;
    assert!(said.contains("restored from the ledger: the user's index bears it out"), "{said}");
    assert_eq!(w.total("p").await, 39, "the withdrawal is back");
}

/// Nothing bears the ledger out, so the row is rewritten from the fact.
#[tokio::test]
async fn a_ledger_row_that_nothing_bears_out_follows_the_fact() {
    let w = setup().await;
    let (leaf, members) = w.large("p").await;
    let old = w.ledger_row(&leaf, &members[0]).await;
    let newer = old.join(Fact::of(Register::Hide(Reason::Fraud), old.choice.version + 10, 1, 0));
    let stranger = Member::parse("nobody").unwrap();
    let ghost = Fact::of(Register::Choice, old.choice.version, 1, 1);
    w.damage(&leaf, |commit| {
        commit.rows.push(RowChange { member: members[0].clone(), expect: Some(old), fact: newer });
        commit.rows.push(RowChange { member: stranger, expect: None, fact: ghost });
    })
    .await;
    let said = w.assert_found_and_mended(Cause::FactLost).await;
    assert!(said.contains("rewritten from the fact: nothing bears it out"), "{said}");
    assert_eq!(w.total("p").await, 40);
}

impl World {
    /// The ledger has `newer` of a member, counted as it should be, and the facts do not.
    async fn lose(&self, leaf: &ShardKey, member: &Member, newer: Fact) -> Fact {
        let old = self.ledger_row(leaf, member).await;
        let newer = old.join(newer);
        self.damage(leaf, |commit| {
            commit.head.counts.add(old.counted(), -1);
            commit.head.counts.add(newer.counted(), 1);
            commit.rows.push(RowChange { member: member.clone(), expect: Some(old), fact: newer });
        })
        .await;
        newer
    }

    /// The journal names a register.
    async fn journal(&self, leaf: &ShardKey, member: &Member, register: Register, version: i64, value: u8) {
        let intent = Intent { key: leaf.with_shard(Shard::ROOT).fact(member), register, version, value };
        let slot = self.protocol.settings().slot_of(self.protocol.clock().now());
        let entry = JournalEntry { id: 1_000_000, intents: vec![intent], landed: vec![] };
        self.protocol.engine().append(self.lane.id(), slot, &entry).await.unwrap();
    }

    async fn fact(&self, leaf: &ShardKey, member: &Member) -> Fact {
        self.protocol.engine().read_facts(leaf, std::slice::from_ref(member)).await.unwrap().facts[0].unwrap()
    }
}

#[tokio::test]
async fn a_lost_hide_is_restored_where_the_journal_bears_it_out() {
    let w = setup().await;
    let (leaf, members) = w.large("p").await;
    let version = w.ledger_row(&leaf, &members[0]).await.newest() + 10;
    let hide = Register::Hide(Reason::Fraud);
    let newer = w.lose(&leaf, &members[0], Fact::of(hide, version, 1, 0)).await;
    w.journal(&leaf, &members[0], hide, version, 1).await;
    let said = w.assert_found_and_mended(Cause::FactLost).await;
    assert!(said.contains("restored from the ledger: the journal bears it out"), "{said}");
    assert_eq!((w.fact(&leaf, &members[0]).await, w.total("p").await), (newer, 39));
}

#[tokio::test]
async fn a_journal_entry_of_another_value_bears_nothing_out() {
    let w = setup().await;
    let (leaf, members) = w.large("p").await;
    let version = w.ledger_row(&leaf, &members[0]).await.newest() + 10;
    let hide = Register::Hide(Reason::Fraud);
    w.lose(&leaf, &members[0], Fact::of(hide, version, 1, 0)).await;
    w.journal(&leaf, &members[0], hide, version, 0).await;
    let said = w.assert_found_and_mended(Cause::FactLost).await;
    assert!(said.contains("nothing bears it out"), "{said}");
    assert_eq!(w.total("p").await, 40);
}

#[tokio::test]
async fn only_the_registers_that_are_borne_out_are_restored() {
    let w = setup().await;
    let (leaf, members) = w.large("p").await;
    let old = w.ledger_row(&leaf, &members[0]).await;
    let version = old.newest() + 10;
    let choice = Fact::of(Register::Choice, version, 0, version);
    let both = choice.join(Fact::of(Register::Hide(Reason::Moderation), version, 1, 0));
    w.lose(&leaf, &members[0], both).await;
    w.journal(&leaf, &members[0], Register::Choice, version, 0).await;
    let said = w.assert_found_and_mended(Cause::FactLost).await;
    assert!(said.contains("the journal bears it out; the rest of the ledger row was rewritten"), "{said}");
    assert_eq!(w.fact(&leaf, &members[0]).await, old.join(choice));
    assert_eq!(w.ledger_row(&leaf, &members[0]).await, old.join(choice));
}

#[tokio::test]
async fn a_run_that_only_looks_says_what_a_rebuild_would_do() {
    let w = setup().await;
    let (leaf, members) = w.large("p").await;
    let version = w.ledger_row(&leaf, &members[0]).await.newest() + 10;
    let hide = Register::Hide(Reason::Fraud);
    w.lose(&leaf, &members[0], Fact::of(hide, version, 1, 0)).await;
    let said = |report: tally_rebuilder::Report| report.drift[0].after.clone();
    let report = said(w.rebuilder.verify(Scope::All, &Progress::default()).await.unwrap());
    assert!(report.contains("a rebuild rewrites the ledger row"), "{report}");
    w.journal(&leaf, &members[0], hide, version, 1).await;
    let report = said(w.rebuilder.verify(Scope::All, &Progress::default()).await.unwrap());
    assert!(report.contains("a rebuild restores the fact from the ledger: the journal bears it out"), "{report}");
}
