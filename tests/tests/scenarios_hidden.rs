//! Scenarios of removal, restoring and suspension (docs/scenarios.md): what is hidden does not count,
//! and counts again when it is shown.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use futures::future::join_all;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schema::{FactKey, Reason, Register};
use store::{
    memory::Faults,
    protocol::{Outcome, WriteRequest},
};
use tally_tests::scenario::{
    fact, member, root,
    tap::Way,
    watch::Watch,
    world::{Process, Setup, World},
};

fn hide(key: FactKey, reason: Reason, hidden: bool) -> WriteRequest {
    WriteRequest { key, register: Register::Hide(reason), value: u8::from(hidden), at: None }
}

async fn hidden(process: &Process, key: FactKey, reason: Reason, hidden: bool) {
    let written = process.write(hide(key, reason, hidden)).await;
    assert!(written.landed(), "{written:?}");
}

/// 2,010 likes, 2,000 of them from one bad group, hidden in 40 batches of which one fails and is
/// tried again.
#[tokio::test]
async fn ld_3_hiding_a_bad_group_in_batches_leaves_exactly_the_others() {
    let w = World::new(Setup::default()).await;
    let p = &w.processes[0];
    let who = |i: usize| fact("p1", "like", &if i < 2_000 { format!("bad{i}") } else { format!("good{i}") });
    p.write_many((0..2_010).map(|i| WriteRequest { key: who(i), register: Register::Choice, value: 1, at: None }).collect())
        .await;
    w.drain().await;
    assert_eq!(p.total(&root("p1", "like")).await, Some(2_010));
    let watch = Watch::start(&w.processes[1], vec![root("p1", "like")], 10..=2_010);
    let counting = p.keep_counting();
    for batch in 0..40 {
        let group = || (50 * batch..50 * (batch + 1)).map(|i| hide(who(i), Reason::Fraud, true)).collect::<Vec<_>>();
        if batch == 17 {
            w.memory().set_faults(Faults { unavailable: 1.0, ..Faults::none() });
            let failed = p.write_many(group()).await;
            assert!(failed.iter().all(|w| matches!(w.outcome, Outcome::Unavailable(_))), "{:?}", failed[0]);
            w.memory().set_faults(Faults::none());
        }
        assert!(p.write_many(group()).await.iter().all(|w| w.landed()));
    }
    counting.stop().await;
    watch.stop().await;
    let facts = w.rest().await;
    assert_eq!(facts.live(&root("p1", "like")).len(), 10);
}

/// Removed and restored 25 times, with events repeated and reordered: counted while visible, else not.
#[tokio::test]
async fn mr_1_remove_and_restore_over_and_over_moves_no_total() {
    let seed = 25;
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let w = World::new(Setup { seed, ..Setup::default() }).await;
    for p in &w.processes {
        p.tap.set(Way::Held);
    }
    for target in ["small", "large"] {
        let others = if target == "large" { 12 } else { 0 };
        for i in 0..others {
            w.processes[0].choose(fact(target, "comment", &format!("c{i}")), 1).await;
        }
        let comment = fact(target, "comment", "mine");
        w.processes[0].choose(comment.clone(), 1).await;
        w.drain().await;
        let watch = Watch::start(&w.processes[1], vec![root(target, "comment")], others..=others + 1);
        let mut old = Vec::new();
        for round in 0..25 {
            for (gone, due) in [(true, others), (false, others + 1)] {
                hidden(&w.processes[round % 2], comment.clone(), Reason::Moderation, gone).await;
                old.extend(w.processes.iter().flat_map(|p| p.tap.take()));
                for _ in 0..3 {
                    w.processes[rng.random_range(0..2)].bus.push(old[rng.random_range(0..old.len())].clone());
                }
                w.processes[0].bus.push(old.last().unwrap().clone());
                join_all(w.processes.iter().map(Process::count)).await;
                assert_eq!(w.processes[1].total(&root(target, "comment")).await, Some(due), "{target} {round}");
            }
        }
        watch.stop().await;
        w.rest().await;
    }
}

/// A user is suspended, twice in a row, and again not: total and list go down and come back exactly.
#[tokio::test]
async fn ac_2_likes_of_a_suspended_user_leave_total_and_list_and_come_back() {
    let w = World::new(Setup::default()).await;
    let p = &w.processes[0];
    for target in ["small", "large"] {
        for i in 0..if target == "large" { 20 } else { 5 } {
            p.like(target, &format!("u{i}")).await;
        }
    }
    let before = w.rest().await;
    let set = async |value| {
        for target in ["small", "large"] {
            hidden(p, fact(target, "like", "u1"), Reason::Suspension, value).await;
        }
    };
    for _ in 0..2 {
        set(true).await;
        let facts = w.rest().await;
        for (target, left) in [("small", 4), ("large", 19)] {
            let live = facts.live(&root(target, "like"));
            assert!(live.len() == left && !live.contains(&member("u1")), "{target}");
        }
    }
    set(false).await;
    let after = w.rest().await;
    for target in ["small", "large"] {
        assert_eq!(after.live(&root(target, "like")), before.live(&root(target, "like")));
        let since = |facts: &tally_tests::scenario::oracles::Facts| facts.fact(&fact(target, "like", "u1")).choice;
        assert_eq!(since(&after), since(&before), "the member's own register is nobody else's");
    }
}

/// A like that is hidden for every reason at once can still be taken back, and stays so when shown.
#[tokio::test]
async fn ac_4_a_hidden_like_can_be_taken_back() {
    let w = World::new(Setup::default()).await;
    let p = &w.processes[0];
    for target in ["small", "large"] {
        for i in 0..if target == "large" { 12 } else { 2 } {
            p.like(target, &format!("u{i}")).await;
        }
        for reason in Reason::ALL {
            hidden(p, fact(target, "like", "u1"), reason, true).await;
        }
        assert_eq!(w.processes[1].unlike(target, "u1").await.outcome, Outcome::Applied);
        for reason in Reason::ALL {
            hidden(p, fact(target, "like", "u1"), reason, false).await;
        }
        let facts = w.rest().await;
        assert!(!facts.live(&root(target, "like")).contains(&member("u1")));
    }
}
