//! Properties of [`FactTable`](crate::engine::FactTable).

use schema::{Fact, Member, RootHead, ShardKey};

use super::{Subject, names::*};

async fn write_one(engine: &Subject, shard: &ShardKey, member: &Member, fact: Fact) {
    all_ok(engine.write_facts(&[write(shard, member, fact)]).await, 1);
}

async fn read_one(engine: &Subject, shard: &ShardKey, member: &Member) -> Option<Fact> {
    let read = engine.read_facts(shard, std::slice::from_ref(member)).await.expect("read");
    assert_eq!(read.facts.len(), 1);
    read.facts[0]
}

/// All orders of three writes, each also repeated, give the join.
pub async fn facts_join_register_by_register(engine: Subject) {
    let writes = [chosen(5, 1, 5), chosen(9, 0, 9).join(hidden(0, 3, 1)), hidden(0, 4, 0).join(hidden(2, 1, 1))];
    let want = writes.iter().fold(Fact::default(), |all, &one| all.join(one));
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (shard, ada) = (root("join"), member("ada"));
        for i in order.into_iter().chain(order) {
            write_one(&engine, &shard, &ada, writes[i]).await;
        }
        assert_eq!(read_one(&engine, &shard, &ada).await, Some(want), "{order:?}");
    }
}

/// Both orders of two writes that tie.
pub async fn a_fact_with_equal_versions_keeps_the_larger_of_each_field(engine: Subject) {
    let (one, other) = (chosen(7, 2, 3).join(hidden(1, 6, 0)), chosen(7, 1, 5).join(hidden(1, 6, 1)));
    for pair in [[one, other], [other, one]] {
        let (shard, ada) = (root("tie"), member("ada"));
        for fact in pair {
            write_one(&engine, &shard, &ada, fact).await;
        }
        assert_eq!(read_one(&engine, &shard, &ada).await, Some(chosen(7, 2, 5).join(hidden(1, 6, 1))));
    }
}

/// A write of one register neither makes nor changes another.
pub async fn registers_with_version_zero_are_left_alone(engine: Subject) {
    let (shard, ada) = (root("zero"), member("ada"));
    write_one(&engine, &shard, &ada, hidden(0, 5, 1)).await;
    assert_eq!(read_one(&engine, &shard, &ada).await, Some(hidden(0, 5, 1)));
    write_one(&engine, &shard, &ada, chosen(6, 1, 6)).await;
    assert_eq!(read_one(&engine, &shard, &ada).await, Some(hidden(0, 5, 1).join(chosen(6, 1, 6))));
}

/// Twelve members asked for in an order of their own, half of them absent.
pub async fn facts_are_read_in_the_order_asked_for_and_absent_ones_are_none(engine: Subject) {
    let shard = root("order");
    let asked: Vec<_> = ["k", "c", "m", "a", "é", "b", "aa", "z", "d", "i", "f", "e"].map(member).into();
    for (i, who) in asked.iter().enumerate().filter(|(i, _)| i % 2 == 0) {
        write_one(&engine, &shard, who, chosen(10 + i as i64, 1, 1)).await;
    }
    let read = engine.read_facts(&shard, &asked).await.expect("read");
    let want: Vec<_> = (0..12).map(|i| (i % 2 == 0).then(|| chosen(10 + i, 1, 1))).collect();
    assert_eq!((read.head, read.facts), (None, want));
    let nothing = engine.read_facts(&root("nothing"), &[]).await.expect("read");
    assert_eq!((nothing.head, nothing.facts), (None, vec![]));
}

/// Neighbours in every part of the key.
pub async fn facts_of_other_shards_kinds_and_targets_are_apart(engine: Subject) {
    let base = root("apart");
    let mut others = vec![base.with_shard(shard(16)), base.with_shard(shard(0x0100)), base.with_shard(shard(0xffff))];
    others.push(ShardKey::root(base.target.clone(), kind("like2")));
    others.push(ShardKey::root(base.target.clone(), kind("lik")));
    let longer = schema::TargetKey::parse(&format!("{}x", base.target)).expect("a target");
    others.push(ShardKey::root(longer, base.kind.clone()));
    let ada = member("ada");
    write_one(&engine, &base, &ada, chosen(1, 1, 1)).await;
    for (i, other) in others.iter().enumerate() {
        assert_eq!(read_one(&engine, other, &ada).await, None, "{other:?}");
        write_one(&engine, other, &ada, chosen(2 + i as i64, 1, 1)).await;
    }
    let page = engine.page_facts(&base, None, 100).await.expect("page");
    assert_eq!((page.rows, page.end), (vec![(ada, chosen(1, 1, 1))], true));
}

/// Pages of each size give the same rows, ascending, and the head with each.
pub async fn pages_of_facts_reach_the_end_without_skip_or_repeat(engine: Subject) {
    let shard = root("pages");
    let head = RootHead { level: 4, level_at: 5, epoch: 6 };
    let want: Vec<_> = members().into_iter().enumerate().map(|(i, m)| (m, chosen(1 + i as i64, 1, 1))).collect();
    let writes: Vec<_> = want.iter().rev().map(|(m, f)| write(&shard, m, *f)).collect();
    all_ok(engine.write_facts(&writes).await, writes.len());
    engine.raise_root_head(&shard, head).await.expect("raise");
    for size in [1, 2, 7, want.len() - 1, want.len(), want.len() + 1] {
        let mut got = Vec::new();
        loop {
            let page = engine.page_facts(&shard, got.last().map(|(m, _)| m), size).await.expect("page");
            assert_eq!(page.head, Some(head));
            assert!(page.rows.len() <= size && (page.end || !page.rows.is_empty()));
            got.extend(page.rows);
            if page.end {
                break;
            }
        }
        assert_eq!(got, want, "pages of {size}");
    }
    assert_eq!(engine.page_facts(&root("empty"), None, 5).await.expect("page"), end_of_nothing());
}

fn end_of_nothing() -> crate::engine::FactPage {
    crate::engine::FactPage { end: true, ..Default::default() }
}

/// Raised field by field, in both orders, beside a member's row.
pub async fn a_root_head_joins_and_is_no_row(engine: Subject) {
    let heads = [RootHead { level: 4, level_at: 9, epoch: 0 }, RootHead { level: 0, level_at: 0, epoch: 7 }];
    for order in [[0, 1], [1, 0]] {
        let (shard, ada) = (root("head"), member("ada"));
        for i in order.into_iter().chain(order) {
            engine.raise_root_head(&shard, heads[i]).await.expect("raise");
        }
        write_one(&engine, &shard, &ada, chosen(1, 1, 1)).await;
        let want = Some(RootHead { level: 4, level_at: 9, epoch: 7 });
        let read = engine.read_facts(&shard, std::slice::from_ref(&ada)).await.expect("read");
        assert_eq!((read.head, read.facts), (want, vec![Some(chosen(1, 1, 1))]));
        let page = engine.page_facts(&shard, None, 5).await.expect("page");
        assert_eq!((page.head, page.rows.len(), page.end), (want, 1, true));
    }
}

/// The same fact twice in one call, newer first and older first.
pub async fn a_batch_with_one_fact_twice_joins_both(engine: Subject) {
    for pair in [[chosen(8, 2, 8), chosen(5, 1, 5)], [chosen(5, 1, 5), chosen(8, 2, 8)]] {
        let (shard, ada) = (root("twice"), member("ada"));
        all_ok(engine.write_facts(&pair.map(|fact| write(&shard, &ada, fact))).await, 2);
        assert_eq!(read_one(&engine, &shard, &ada).await, Some(chosen(8, 2, 8)));
    }
    assert_eq!(engine.write_facts(&[]).await, vec![]);
}

/// Eight tasks write two registers of the same members at once: the join of all stands.
pub async fn concurrent_fact_writes_lose_nothing(engine: Subject) {
    let shard = root("race");
    let who = ["a", "b", "c"].map(member);
    let of =
        |task: i64, round: i64| chosen(1 + (task * 7 + round * 11) % 97, 1, 1).join(hidden(1, 1 + (task * 13 + round) % 89, 1));
    let tasks = (0..8).map(|task| {
        let (engine, shard, who) = (engine.clone(), shard.clone(), who.clone());
        tokio::spawn(async move {
            for round in 0..12 {
                let writes = who.each_ref().map(|m| write(&shard, m, of(task, round)));
                all_ok(engine.write_facts(&writes).await, 3);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a task");
    }
    let want = (0..8).flat_map(|t| (0..12).map(move |r| of(t, r))).fold(Fact::default(), Fact::join);
    for m in &who {
        assert_eq!(read_one(&engine, &shard, m).await, Some(want));
    }
}
