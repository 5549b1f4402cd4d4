//! Scenarios of numbers below zero, and of votes that change sides (docs/scenarios.md).

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use futures::future::join_all;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rebuilder::{Cause, Progress, Rebuilder, RebuilderSettings, Scope};
use schema::{Counts, Register};
use serde_json::json;
use store::{
    clock::Clock,
    engine::{CommitOutcome, LedgerCommit},
    memory::Faults,
    protocol::{Outcome, WriteRequest},
};
use tally_tests::scenario::{
    fact, member, root,
    served::{Served, at_once, like_path},
    tap::Way,
    watch::Watch,
    world::{Setup, World},
};

/// Somebody who never liked it takes their like back ten times.
#[test]
fn ng_1_unlikes_by_somebody_who_never_liked_change_no_count() {
    let served = Served::default();
    for i in 1..=3 {
        served.ok("PUT", &like_path("p1", &format!("u{i}")));
    }
    served.counted("p1", "like", 3);
    for _ in 0..10 {
        let answer = served.ok("DELETE", &like_path("p1", "u9"));
        assert_eq!((&answer["outcome"], &answer["choice"]), (&json!("unchanged"), &json!(null)));
        assert_eq!(served.ok("GET", "/v1/t/targets/p1?kinds=like")["kinds"]["like"]["total"], 3);
    }
    served.counted("p1", "like", 3);
    let facts = served.rest(0);
    assert_eq!(facts.rows(&root("p1", "like")), 4, "a withdrawn row keeps the version of the answer");
}

/// One removal, twenty times at once: over HTTP, and through three processes on a store in trouble.
#[test]
fn ng_2_one_removal_at_once_by_twenty_clients_subtracts_one() {
    let served = Served::default();
    for i in 1..=3 {
        served.ok("PUT", &like_path("p1", &format!("u{i}")));
    }
    let answers = at_once(20, |_| served.ask("DELETE", &like_path("p1", "u1"), None));
    assert!(answers.iter().all(|(status, answer)| *status == 200 && answer["choice"].is_null()), "{answers:?}");
    served.counted("p1", "like", 2);
    let mut left = served.listed("p1", "like");
    left.sort();
    assert_eq!(left, ["u2", "u3"]);
    served.rest(0);
}

#[tokio::test]
async fn ng_2_one_removal_by_three_processes_on_a_store_in_trouble_subtracts_one() {
    for seed in 0..5 {
        println!("seed {seed}");
        let w = World::new(Setup { processes: 3, seed, ..Setup::default() }).await;
        for i in 1..=3 {
            w.processes[0].like("p1", &format!("u{i}")).await;
        }
        w.drain().await;
        w.memory().set_faults(Faults::frequent());
        let watch = Watch::start(&w.processes[0], vec![root("p1", "like")], 2..=3);
        let counting: Vec<_> = w.processes.iter().map(|p| p.keep_counting()).collect();
        join_all((0..20).map(|i| w.processes[i % 3].unlike("p1", "u1"))).await;
        for worker in counting {
            worker.stop().await;
        }
        w.memory().set_faults(Faults::none());
        assert!(w.processes[2].unlike("p1", "u1").await.landed());
        watch.stop().await;
        let facts = w.rest().await;
        assert_eq!(facts.live(&root("p1", "like")), [member("u2"), member("u3")].into());
    }
}

/// Counter rows and ledger heads are damaged to -2; three likes follow. Shown is never a clamped
/// number, `verify` names the damage, a rebuild mends it from the facts.
#[tokio::test]
async fn ng_5_a_stored_negative_is_found_and_repaired_not_clamped() {
    let w = World::new(Setup::default()).await;
    let p = &w.processes[0];
    for i in 0..12 {
        p.like("large", &format!("u{i:02}")).await;
    }
    p.like("small", "u1").await;
    w.drain().await;
    let minus_two: Counts = [(1, -2)].into_iter().collect();
    w.memory().damage_counters(|_, row| row.counts = minus_two.clone());
    assert_eq!(p.total(&root("small", "like")).await, Some(-2), "what is wrong shows as what it is");
    let leaf = w.memory().ledgers().into_keys().next().unwrap();
    let head = w.memory().ledgers()[&leaf].head.clone().unwrap();
    let mut wrong = head.clone();
    (wrong.revision, wrong.counts) = (head.revision + 1, minus_two);
    let commit = LedgerCommit {
        expect_revision: Some(head.revision),
        head: wrong,
        rows: Vec::new(),
        drop_times: Vec::new(),
        put_times: Vec::new(),
        drop_rows: Vec::new(),
    };
    assert_eq!(w.engine.commit(&leaf, &commit).await, Ok(CommitOutcome::Applied));
    for i in 0..3 {
        p.like("large", &format!("new{i}")).await;
        p.like("small", &format!("new{i}")).await;
    }
    p.count().await;
    assert_eq!(p.total(&root("small", "like")).await, Some(4), "a small target's count is made from its facts");
    let rebuilder = Rebuilder::new(w.processes[1].protocol.clone(), RebuilderSettings::default());
    let found = rebuilder.verify(Scope::All, &Progress::default()).await.unwrap();
    assert!(found.drift.iter().any(|d| d.cause == Cause::Count), "{found:?}");
    let mended = rebuilder.rebuild(Scope::All, false, &Progress::default()).await.unwrap();
    assert_eq!((mended.drifted, mended.repaired), (found.drifted, found.drifted), "{mended:?}");
    let facts = w.rest().await;
    assert_eq!(facts.live(&root("large", "like")).len(), 15);
}

/// The withdrawal comes first, then the older like, then the older like again.
#[tokio::test]
async fn ng_8_a_stale_version_never_overrides_a_newer_one() {
    let w = World::new(Setup::default()).await;
    for p in &w.processes {
        p.tap.set(Way::Held);
    }
    for target in ["small", "large"] {
        for i in 0..if target == "large" { 12 } else { 0 } {
            w.processes[0].like(target, &format!("v{i}")).await;
        }
        w.drain().await;
        let base = i64::from(target == "large") * 12;
        let watch = Watch::start(&w.processes[1], vec![root(target, "like")], base..=base + 1);
        let now = w.clock.now();
        let at =
            |value, ago| WriteRequest { key: fact(target, "like", "u1"), register: Register::Choice, value, at: Some(now - ago) };
        assert_eq!(w.processes[1].write(at(0, 10)).await.outcome, Outcome::Unchanged, "withdrawn before it was liked");
        let withdrawn = w.processes[1].tap.take();
        for _ in 0..2 {
            let late = w.processes[0].write(at(1, 20)).await;
            assert_eq!(late.outcome, Outcome::Superseded);
            for event in w.processes[0].tap.take().into_iter().chain(withdrawn.clone()) {
                w.processes[0].bus.push(event);
            }
            w.processes[0].count().await;
            assert_eq!(w.processes[0].total(&root(target, "like")).await, Some(base));
        }
        watch.stop().await;
        let facts = w.rest().await;
        assert_eq!(facts.fact(&fact(target, "like", "u1")).register(Register::Choice), (now - 10, 0));
    }
}

/// Each of the nine moves between none, up and down, with events repeated and reordered.
#[tokio::test]
async fn vs_1_every_move_between_votes_changes_the_score_as_the_table_says() {
    let seed = 3;
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // Choices of `reaction`: 0 none, 1 up, 2 down.
    let score = |counts: &Counts| counts.get(1) - counts.get(2);
    let worth = [0, 1, -1];
    let w = World::new(Setup { seed, ..Setup::default() }).await;
    for p in &w.processes {
        p.tap.set(Way::Held);
    }
    for target in ["small", "large"] {
        for i in 0..if target == "large" { 12 } else { 2 } {
            w.processes[0].choose(fact(target, "reaction", &format!("v{i}")), 1 + i % 2).await;
        }
        w.drain().await;
        for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
            let voter = fact(target, "reaction", &format!("u{from}{to}"));
            w.processes[0].choose(voter.clone(), from).await;
            let mut events = w.processes[0].tap.take();
            events.iter().for_each(|event| w.processes[0].bus.push(event.clone()));
            w.processes[0].count().await;
            let before = w.processes[0].protocol.counts(&voter.target, std::slice::from_ref(&voter.kind)).await.unwrap();
            w.processes[1].choose(voter.clone(), to).await;
            events.extend(w.processes[1].tap.take());
            events.extend(events.clone());
            for _ in 0..events.len() {
                let event = events.swap_remove(rng.random_range(0..events.len()));
                let p = &w.processes[rng.random_range(0..2)];
                p.bus.push(event);
                if rng.random_bool(0.5) {
                    p.count().await;
                }
            }
            for p in &w.processes {
                p.count().await;
            }
            let after = w.processes[1].protocol.counts(&voter.target, std::slice::from_ref(&voter.kind)).await.unwrap();
            let [before, after] = [before, after].map(|told| score(told[0].counts.as_ref().unwrap()));
            let due = worth[usize::from(to)] - worth[usize::from(from)];
            assert_eq!(after - before, due, "{target}: {from} to {to}");
        }
        w.rest().await;
    }
}
