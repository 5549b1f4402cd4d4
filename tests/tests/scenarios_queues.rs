//! Scenarios of streams and their consumers, tried on the queues in memory (docs/scenarios.md).

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use futures::future::join_all;
use schema::{ChangeEvent, Shard};
use store::{
    memory::{Table, WriteFate},
    protocol::Outcome,
};
use tally_tests::{
    scenario::{
        fact, member, root,
        served::{Served, like_path},
        tap::Way,
        watch::Watch,
        world::{Process, Setup, World},
    },
    server::request,
};

/// The same events are worked on by all processes at the same time.
#[tokio::test]
async fn pe_4_work_that_is_done_by_several_at_once_counts_once() {
    let w = World::new(Setup { processes: 4, ..Setup::default() }).await;
    for process in &w.processes {
        process.tap.set(Way::Held);
    }
    join_all((0..100).map(|i| {
        let w = &w;
        async move { w.processes[0].choose(fact(&format!("p{}", i % 3), "like", &format!("u{i}")), 1).await }
    }))
    .await;
    let events = w.processes[0].tap.take();
    let watch = Watch::start(&w.processes[0], (0..3).map(|i| root(&format!("p{i}"), "like")).collect(), 0..=34);
    for process in &w.processes {
        events.iter().for_each(|event| process.bus.push(event.clone()));
    }
    join_all(w.processes.iter().map(Process::count)).await;
    watch.stop().await;
    for (i, due) in [34, 33, 33].into_iter().enumerate() {
        assert_eq!(w.processes[0].total(&root(&format!("p{i}"), "like")).await, Some(due), "by events alone");
    }
    w.rest().await;
}

/// Workers come and go under load, each dying with what it holds.
#[tokio::test]
async fn pe_7_workers_that_come_and_go_lose_no_change() {
    let mut w = World::new(Setup { processes: 5, seed: 7, ..Setup::default() }).await;
    for round in 0..10 {
        let mut workers: Vec<_> = w.processes.iter().map(Process::keep_counting).collect();
        join_all((0..50).map(|i| {
            let w = &w;
            async move { w.processes[i % 5].like(&format!("p{}", i % 2), &format!("u{round}.{i}")).await }
        }))
        .await;
        // From five to one: the others' queues go with them.
        workers.remove(0).stop().await;
        for (process, worker) in w.processes[1..].iter().zip(workers) {
            worker.kill().await;
            process.kill().await;
        }
        w.processes.truncate(1);
        while w.processes.len() < 5 {
            w.join().await;
        }
    }
    let facts = w.rest().await;
    assert_eq!(facts.live(&root("p0", "like")).len() + facts.live(&root("p1", "like")).len(), 500);
}

/// Changes from before the first worker ever ran, and from a time without any.
#[tokio::test]
async fn fo_2_changes_from_before_the_first_worker_and_without_one_are_counted() {
    let w = World::new(Setup::default()).await;
    for i in 0..500 {
        w.processes[0].like("before", &format!("u{i}")).await;
    }
    w.processes[0].count().await;
    assert_eq!(w.processes[1].total(&root("before", "like")).await, Some(500), "by events alone");
    for i in 0..500 {
        w.processes[0].like("lost", &format!("u{i}")).await;
    }
    w.processes[0].bus.lose_all();
    let facts = w.rest().await;
    assert_eq!(facts.live(&root("lost", "like")).len(), 500);
}

/// Three times as many changes as the queues hold, and nobody at work.
#[tokio::test]
async fn fo_12_changes_that_overflow_the_queues_are_counted_by_the_sweep() {
    let w = World::new(Setup { queue: 10, processes: 1, ..Setup::default() }).await;
    let p = &w.processes[0];
    for i in 0..240 {
        p.like(&format!("p{}", i % 12), &format!("u{i}")).await;
    }
    let (taken, dropped) = p.bus.totals();
    assert!(taken <= 80 && dropped >= 160, "the loss is counted: {taken} {dropped}");
    let facts = w.rest().await;
    assert!((0..12).all(|i| facts.live(&root(&format!("p{i}"), "like")).len() == 20));
}

/// The queues are away for a long time: likes succeed, and are counted without events.
#[tokio::test]
async fn fo_14_likes_succeed_and_are_counted_while_the_queues_are_away() {
    let w = World::new(Setup { processes: 1, ..Setup::default() }).await;
    let p = &w.processes[0];
    p.tap.set(Way::Lost);
    for minute in 1..=5 {
        for i in 0..20 {
            assert_eq!(p.like("p1", &format!("u{minute}.{i}")).await.outcome, Outcome::Applied);
        }
        w.wait(Duration::from_secs(60));
        w.sweep().await;
        assert_eq!(p.total(&root("p1", "like")).await, Some(minute * 20), "by the sweep alone");
    }
    w.rest().await;
}

/// SIGTERM under load, ten times on one directory: in time, and every answered like is counted.
#[test]
fn fo_16_a_stop_under_load_is_in_time_and_loses_nothing() {
    let mut served = Served::default();
    let answered = AtomicU64::new(0);
    for round in 0..10 {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for client in 0..4 {
                let (stop, answered, address) = (&stop, &answered, served.address().to_owned());
                scope.spawn(move || {
                    for i in 0.. {
                        let like = request(&address, "PUT", &like_path("p1", &format!("u{round}.{client}.{i}")), None);
                        match like {
                            Ok((200, _)) => drop(answered.fetch_add(1, Ordering::SeqCst)),
                            // Stopping: refused, or the door is closed.
                            Ok((503, _)) | Err(_) => {}
                            Ok(other) => panic!("{other:?}"),
                        }
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                    }
                });
            }
            let before = answered.load(Ordering::SeqCst);
            while answered.load(Ordering::SeqCst) < before + 20 {
                thread::yield_now();
            }
            let took = served.restart();
            stop.store(true, Ordering::SeqCst);
            assert!(took < Duration::from_secs(8), "stopped after {took:?}");
        });
    }
    let facts = served.rest(0);
    let live = u64::try_from(facts.live(&root("p1", "like")).len()).unwrap();
    let answered = answered.into_inner();
    assert!(live >= answered && answered >= 200, "{answered} answered, {live} there");
}

/// Events about what does not exist, and a fact that the store will never take: others are counted,
/// the refused one is put aside, and no counter appears from nothing.
#[tokio::test]
async fn fo_17_events_of_unknown_targets_and_refused_facts_hold_up_nobody() {
    let w = World::new(Setup { processes: 1, ..Setup::default() }).await;
    let p = &w.processes[0];
    let stray = |shard| ChangeEvent { shard, members: vec![member("nobody")], at: 1, traces: Vec::new() };
    for i in 0..50 {
        p.bus.push(stray(root(&format!("unknown{i}"), "like")));
        p.bus.push(stray(root("p1", "nokind")));
        p.bus.push(stray(root("p1", "like").with_shard(Shard::ROOT)));
        p.like("p1", &format!("u{i}")).await;
    }
    p.count().await;
    assert_eq!(p.total(&root("p1", "like")).await, Some(50));
    w.drain().await;
    // The intent stands in the journal, and its row is refused whenever it is tried.
    for _ in 0..3 {
        w.memory().script_write(Table::Fact, WriteFate::Refused);
    }
    assert!(matches!(p.like("p2", "refused").await.outcome, Outcome::Refused(_)));
    w.wait(Duration::from_secs(60));
    w.sweep().await;
    assert_eq!(w.engine.list_meta("dead/", 10).await.unwrap().len(), 1);
    p.like("p2", "u1").await;
    let facts = w.rest_with(1).await;
    assert_eq!(facts.live(&root("p2", "like")), [member("u1")].into());
}

/// An event that was put aside comes again after its like was taken back.
#[tokio::test]
async fn fo_19_an_old_event_played_back_puts_no_old_state_over_new() {
    let w = World::new(Setup { processes: 1, ..Setup::default() }).await;
    let p = &w.processes[0];
    p.tap.set(Way::Held);
    for target in ["small", "large"] {
        for i in 0..if target == "large" { 12 } else { 0 } {
            p.like(target, &format!("v{i}")).await;
        }
        w.drain().await;
        p.tap.take();
        p.like(target, "u1").await;
        let parked = p.tap.take();
        p.unlike(target, "u1").await;
        w.drain().await;
        for _ in 0..3 {
            parked.iter().for_each(|event| p.bus.push(event.clone()));
            p.count().await;
        }
        let facts = w.rest().await;
        assert!(!facts.live(&root(target, "like")).contains(&member("u1")));
    }
}
