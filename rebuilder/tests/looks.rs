//! What only looks: explain and export, on the embedded engine.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{collections::BTreeMap, sync::Arc};

use schema::{
    Fact, FactKey, Intent, JournalEntry, KindName, LaneId, Member, Namespace, Reason, Register, Shard, TargetKey, leaf_of,
};
use store::{
    Protocol, Settings,
    clock::SystemClock,
    embedded::{Embedded, EmbeddedSettings},
    protocol::{Lane, WriteRequest},
};
use tally_rebuilder::{ExportFilter, ExportPlace, export_page};

struct World {
    protocol: Protocol,
    lane: Lane,
    _dir: tempfile::TempDir,
}

const LEVEL: u8 = 2;
const SMALL: usize = 4;

async fn setup() -> World {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(Embedded::open(dir.path(), &EmbeddedSettings::default()).unwrap());
    let settings = Settings { small_limit: SMALL, level: LEVEL, ..Settings::default() };
    let protocol = Protocol::new(engine, Arc::new(SystemClock::default()), settings);
    let lane = protocol.open_lane(Box::new(|| 7)).await.unwrap();
    World { protocol, lane, _dir: dir }
}

fn key(namespace: &str, target: &str, member: &str) -> FactKey {
    FactKey {
        target: TargetKey::new(&Namespace::parse(namespace).unwrap(), target).unwrap(),
        kind: KindName::parse("like").unwrap(),
        member: Member::parse(member).unwrap(),
    }
}

impl World {
    async fn write(&self, key: &FactKey, register: Register, value: u8) -> Fact {
        let request = WriteRequest { key: key.clone(), register, value, at: None };
        let (written, _) = self.protocol.write(&self.lane, &[request]).await;
        assert!(written[0].landed(), "{:?}", written[0]);
        written[0].fact
    }

    async fn count(&self, key: &FactKey) {
        let (root, members) = (key.shard(Shard::ROOT), std::slice::from_ref(&key.member));
        self.protocol.reconcile(&root, members).await.unwrap();
        if let Some(level) = self.protocol.read_small(&root).await.unwrap().0.level() {
            self.protocol.reconcile(&root.with_shard(leaf_of(&key.member, level)), members).await.unwrap();
        }
    }

    /// Everything of namespace `t`, in pages of `limit`.
    async fn export(&self, limit: usize) -> Vec<(FactKey, Fact)> {
        let filter = ExportFilter { namespace: "t".to_owned(), kind: None };
        let (mut place, mut all) = (ExportPlace::default(), Vec::new());
        loop {
            let page = export_page(&self.protocol, &filter, place, limit).await.unwrap();
            assert!(page.facts.len() <= limit);
            all.extend(page.facts);
            match page.next {
                Some(next) => place = next,
                None => return all,
            }
        }
    }
}

#[tokio::test]
async fn an_export_holds_each_fact_once_in_order_whatever_the_pages_and_the_layout() {
    let world = setup().await;
    let mut expected = BTreeMap::new();
    for (target, members) in [("large", 23), ("one", 1), ("small", 3)] {
        for i in 0..members {
            let key = key("t", target, &format!("u{i:02}"));
            world.write(&key, Register::Choice, 1).await;
            world.count(&key).await;
            // After the promotion: the root's copy is older than the leaf's.
            let fact = world.write(&key, Register::Hide(Reason::Fraud), u8::from(i % 5 == 0)).await;
            expected.insert((schema::token_of(&key.target), key.clone()), fact);
        }
    }
    world.write(&key("other", "one", "u1"), Register::Choice, 1).await;
    let expected: Vec<(FactKey, Fact)> = expected.into_iter().map(|((_, key), fact)| (key, fact)).collect();
    for limit in [1, 2, 3, 7, 26, 27, 28, 100] {
        assert_eq!(world.export(limit).await, expected, "pages of {limit}");
    }
}

#[tokio::test]
async fn an_export_goes_on_at_its_member_though_the_target_became_large_between_two_pages() {
    let world = setup().await;
    let member = |i: usize| key("t", "p", &format!("u{i:02}"));
    for i in 0..3 {
        world.write(&member(i), Register::Choice, 1).await;
    }
    let filter = ExportFilter { namespace: "t".to_owned(), kind: None };
    let first = export_page(&world.protocol, &filter, ExportPlace::default(), 2).await.unwrap();
    for i in 3..20 {
        world.write(&member(i), Register::Choice, 1).await;
        world.count(&member(i)).await;
    }
    let rest = export_page(&world.protocol, &filter, first.next.unwrap(), 100).await.unwrap();
    let members = first.facts.iter().chain(&rest.facts).map(|(key, _)| key.member.clone());
    assert_eq!(members.collect::<Vec<_>>(), (0..20).map(|i| member(i).member).collect::<Vec<_>>());
    assert_eq!(rest.next, None);
}

#[tokio::test]
async fn explain_tells_counted_from_pending_in_both_layouts_and_changes_nothing() {
    let world = setup().await;
    let small = key("t", "small", "u1");
    let fact = world.write(&small, Register::Choice, 1).await;
    let e = world.protocol.explain(&small).await.unwrap();
    assert_eq!((e.fact, e.counted, e.counter, e.intents.len()), (fact, false, None, 1));
    assert!(e.intents[0].landed && !e.intents[0].swept && e.journal_whole);
    let again = world.protocol.explain(&small).await.unwrap();
    assert!(!again.counted && again.counter.is_none(), "explain counts nothing itself");
    world.count(&small).await;
    let e = world.protocol.explain(&small).await.unwrap();
    assert!(e.counted && e.counter == e.due && e.shard == Shard::ROOT);
    assert_eq!(e.index.map(|row| row.version), Some(fact.choice.version));

    let large = key("t", "large", "u05");
    for i in 0..10 {
        let key = key("t", "large", &format!("u{i:02}"));
        world.write(&key, Register::Choice, 1).await;
        world.count(&key).await;
    }
    let fact = world.write(&large, Register::Hide(Reason::Moderation), 1).await;
    let e = world.protocol.explain(&large).await.unwrap();
    assert_eq!((e.fact, e.counted, e.shard), (fact, false, leaf_of(&large.member, LEVEL)));
    let (head, row) = e.ledger.unwrap();
    assert!(head.unwrap().complete && row.unwrap().fact.counted() == 1, "the ledger still counts it");
    world.protocol.reconcile(&large.shard(e.shard), std::slice::from_ref(&large.member)).await.unwrap();
    let e = world.protocol.explain(&large).await.unwrap();
    assert!(e.counted && e.ledger.unwrap().1.unwrap().fact == fact);
    assert_eq!(e.shown, Some(LEVEL));
}

#[tokio::test]
async fn explain_finds_an_intent_that_has_not_landed() {
    let world = setup().await;
    let wanted = key("t", "p", "u1");
    let intent = |key: &FactKey, value| Intent { key: key.clone(), register: Register::Choice, version: 77, value };
    let entry = JournalEntry { id: 99, intents: vec![intent(&key("t", "p", "u2"), 1), intent(&wanted, 1)], landed: Vec::new() };
    let slot = world.protocol.settings().slot_of(world.protocol.clock().now());
    world.protocol.engine().append(LaneId(7), slot, &entry).await.unwrap();
    let e = world.protocol.explain(&wanted).await.unwrap();
    assert_eq!((e.fact, e.intents.len()), (Fact::default(), 1));
    assert!(!e.intents[0].landed && !e.intents[0].swept && e.intents[0].slot == slot);
}
