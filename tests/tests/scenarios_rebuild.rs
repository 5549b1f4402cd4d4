//! Scenarios of recounts beside traffic (docs/scenarios.md).

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rebuilder::{Cause, Order, Progress, Rebuilder, RebuilderSettings, Report, Scope};
use schema::Shard;
use store::{Settings, StoreError, memory::Faults};
use tally_tests::{
    directed::{self, run},
    scenario::{
        book::Book,
        fact, oracles, root,
        spy::How,
        target,
        watch::Watch,
        world::{Process, Setup, World, turn},
    },
};

fn rebuilder(process: &Process) -> Rebuilder {
    let quick = RebuilderSettings { slices: 4, looks: 3, settle: Duration::from_millis(1), ..RebuilderSettings::default() };
    Rebuilder::new(process.protocol.clone(), quick)
}

async fn rebuild(process: &Process, id: &str) -> Report {
    let scope = Scope::Target { target: target(id), kind: None };
    for _ in 0..100 {
        match rebuilder(process).rebuild(scope.clone(), false, &Progress::default()).await {
            Ok(report) => return report,
            // Others kept winning on one leaf; nothing was done by halves.
            Err(StoreError::Unavailable(_)) => turn().await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("a rebuild never comes to its end");
}

/// Members u0 to u39 stay, u40 to u44 come and go, for as long as `others` takes.
async fn beside_toggles<T>(w: &World, seed: u64, others: impl Future<Output = T>) -> T {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut others = Box::pin(others);
    let mut done = None;
    while done.is_none() {
        let toggles = join_all((0..5).map(|i| {
            let process = &w.processes[rng.random_range(0..2)];
            process.choose(fact("p1", "like", &format!("u{}", 40 + i)), u8::from(rng.random_bool(0.5)))
        }));
        // Some time between them: without it no other commit ever finds a leaf at rest.
        let mut toggles = Box::pin(async {
            toggles.await;
            for _ in 0..40 {
                turn().await;
            }
        });
        while futures::poll!(toggles.as_mut()).is_pending() {
            if done.is_none()
                && let std::task::Poll::Ready(value) = futures::poll!(others.as_mut())
            {
                done = Some(value);
            }
            tokio::task::yield_now().await;
        }
    }
    done.unwrap()
}

async fn forty(w: &World) {
    for i in 0..40 {
        w.processes[0].like("p1", &format!("u{i}")).await;
    }
    w.drain().await;
}

/// A hundred rebuilds of one target while it is liked and unliked.
#[tokio::test]
async fn rb_1_rebuilds_beside_traffic_leave_no_drift() {
    for faults in [Faults::none(), Faults { commit_unknown: 0.05, stale: 0.1, ..Faults::none() }] {
        let w = World::new(Setup { processes: 3, seed: 1, ..Setup::default() }).await;
        forty(&w).await;
        w.memory().set_faults(faults);
        let watch = Watch::start(&w.processes[0], vec![root("p1", "like")], 40..=45);
        let counting: Vec<_> = w.processes.iter().map(Process::keep_counting).collect();
        let rebuilds = async {
            for _ in 0..100 {
                let report = rebuild(&w.processes[2], "p1").await;
                assert_eq!(report.drifted, report.repaired, "{report:?}");
            }
        };
        beside_toggles(&w, 1, rebuilds).await;
        for worker in counting {
            worker.stop().await;
        }
        watch.stop().await;
        assert_eq!(w.rest().await.rows(&root("p1", "like")), 45);
    }
}

/// A worker has read and pauses; a rebuild stores its total; the worker goes on. At every point.
#[test]
fn rb_1_a_worker_that_pauses_across_a_rebuild_undoes_nothing() {
    for large in [false, true] {
        for pause in 0.. {
            let w = directed::World::new(Settings::default());
            let p = w.process();
            let (root, who) = (directed::target("p", "like"), directed::by_leaf(3)[0][2].clone());
            if large {
                p.large("p");
            }
            let written = p.choose(&root, &who, 1).finish();
            let mut worker = p.reconcile(&root.with_shard(written.shard), std::slice::from_ref(&who));
            let ended = (0..pause).any(|_| worker.step());
            w.wait(1);
            p.choose(&root, &who, 0).finish();
            let other = Rebuilder::new(w.process().protocol, RebuilderSettings::default());
            let scope = Scope::Target { target: root.target.clone(), kind: None };
            run(other.rebuild(scope, false, &Progress::default())).unwrap();
            assert_eq!(w.check_total(&p, &root), Ok(()), "the rebuild counted");
            worker.finish();
            assert_eq!(w.check_total(&p, &root), Ok(()), "the old view came last, after {pause} steps");
            w.drain(&p);
            run(oracles::check(&p.protocol, &Book::default(), 0));
            if ended {
                break;
            }
        }
    }
}

/// Two rebuilds of one damaged target begin at the same instant, beside traffic.
#[tokio::test]
async fn rb_2_two_rebuilds_at_once_double_nothing() {
    let w = World::new(Setup { processes: 4, seed: 2, ..Setup::default() }).await;
    forty(&w).await;
    for round in 0..5 {
        w.memory().damage_counters(|_, row| row.counts.add(1, 3));
        let both = async {
            let (one, other) = futures::join!(rebuild(&w.processes[2], "p1"), rebuild(&w.processes[3], "p1"));
            assert!(one.drifted == one.repaired && other.drifted == other.repaired, "{one:?} {other:?}");
            assert!(one.drifted + other.drifted > 0, "somebody found the damage");
        };
        beside_toggles(&w, round, both).await;
        let facts = w.rest().await;
        assert!((40..=45).contains(&facts.live(&root("p1", "like")).len()));
    }
}

/// Two rebuilds of everything, on two hosts at the same moment: they share the work, and each wrong counter
/// is written by one of them.
#[tokio::test]
async fn rb_2_of_two_rebuilds_of_everything_only_one_writes_each_counter() {
    let (w, spy) = World::spied(Setup { processes: 3, seed: 3, ..Setup::default() }).await;
    let p = &w.processes[0];
    for group in 0..10 {
        join_all((0..10).map(|i| async move { p.like(&format!("p{}", 10 * group + i), "u1").await })).await;
    }
    w.drain().await;
    let mut wrong = BTreeSet::new();
    w.memory().damage_counters(|shard, row| {
        wrong.insert(shard.target.to_string());
        row.counts.add(1, 3);
    });
    assert_eq!(wrong.len(), 100);
    let before = spy.count("counters", How::Plain);
    let order = Order { confirm: true, reason: Some("damaged by hand".to_owned()), ..Order::rebuild(Scope::All) };
    let (one, other) = (rebuilder(&w.processes[1]), rebuilder(&w.processes[2]));
    let (first, second) = (Progress::default(), Progress::default());
    let (one, other) = futures::join!(one.run(&order, &first), other.run(&order, &second));
    let (one, other) = (one.unwrap(), other.unwrap());
    println!("repaired by one {}, by the other {}", one.repaired, other.repaired);
    let repaired = |report: &Report| report.drift.iter().filter(|d| d.repaired).map(|d| d.target.clone()).collect::<Vec<_>>();
    let all = [repaired(&one), repaired(&other)].concat();
    assert_eq!((all.len(), all.into_iter().collect::<BTreeSet<_>>()), (100, wrong), "each by one of them");
    assert_eq!(spy.count("counters", How::Plain) - before, 100, "and written once");
    w.rest().await;
}

/// A thousand random counters are off by one to five; all are found and mended, and the report says by
/// how much.
#[tokio::test]
async fn rb_4_a_thousand_wrong_counters_are_all_found_and_repaired() {
    const WRONG: usize = 1_000;
    let seed = 4;
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let w = World::new(Setup { seed, ..Setup::default() }).await;
    let p = &w.processes[0];
    for group in 0..12 {
        let likes = (0..100).flat_map(|i| (0..=i % 3).map(move |n| (100 * group + i, n)));
        join_all(likes.map(|(i, n)| async move { p.like(&format!("p{i}"), &format!("u{n}")).await })).await;
    }
    w.drain().await;
    let mut shards: Vec<_> = w.memory().counters().into_keys().collect();
    while shards.len() > WRONG {
        shards.swap_remove(rng.random_range(0..shards.len()));
    }
    let wrong: BTreeSet<_> = shards.into_iter().collect();
    let mut off = std::collections::BTreeMap::new();
    w.memory().damage_counters(|shard, row| {
        if wrong.contains(shard) {
            let by = rng.random_range(1..=5) * if rng.random_bool(0.5) { 1 } else { -1 };
            off.insert(shard.target.to_string(), (row.counts.total(), row.counts.total() + by));
            row.counts.add(1, by);
        }
    });
    let rebuilder = rebuilder(&w.processes[1]);
    let careful = rebuilder.rebuild(Scope::All, false, &Progress::default()).await.unwrap();
    assert!(careful.drifted == 1000 && careful.repaired < 1000, "so much drift is not repaired unasked");
    let (confirm, reason) = (true, Some("counters were damaged by hand".to_owned()));
    let order = Order { confirm, reason, ..Order::rebuild(Scope::All) };
    let report = rebuilder.run(&order, &Progress::default()).await.unwrap();
    assert_eq!(report.drifted, report.repaired, "{:?}", report.causes);
    assert_eq!(careful.repaired + report.repaired, 1000);
    for drift in careful.drift.iter().filter(|d| d.repaired).chain(&report.drift) {
        assert_eq!(drift.cause, Cause::Counter, "{drift:?}");
        let due = off.remove(&drift.target).map(|(due, stored)| (Some(stored), Some(due)));
        assert_eq!(due, Some((drift.before_total, drift.after_total)), "{drift:?}");
    }
    assert!(off.is_empty(), "{off:?}");
    w.rest().await;
}

/// Rebuilds and dying workers, and an eye on the public total all the time.
#[tokio::test]
async fn rb_6_no_reader_sees_a_partial_number_during_rebuilds_and_restarts() {
    let w = World::new(Setup { processes: 3, seed: 6, ..Setup::default() }).await;
    forty(&w).await;
    let watch = Watch::start(&w.processes[1], vec![root("p1", "like")], 40..=45);
    let work = async {
        for round in 0..40 {
            let worker = w.processes[round % 2].keep_counting();
            if round % 4 == 0 {
                // Ledgers are read whole and counted anew, from the first member to the last.
                for leaf in w.memory().ledgers().into_keys() {
                    drop(w.processes[2].protocol.audit(&leaf).await); // Or given up, to others that are quicker.
                }
            }
            rebuild(&w.processes[2], "p1").await;
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            worker.kill().await;
        }
    };
    beside_toggles(&w, 6, work).await;
    let looks = watch.stop().await;
    assert!(looks > 100, "{looks}");
    // The killed workers' own books never close: other processes take their place.
    let (mut w, alive) = (w, 2);
    w.processes.drain(..alive);
    w.rest().await;
}

/// The root of a promoted target keeps no number of its own: what stands there is never shown.
#[tokio::test]
async fn rb_6_no_reader_sees_a_partial_number_during_a_promotion() {
    for seed in 0..6 {
        let w = World::new(Setup { seed, ..Setup::default() }).await;
        for i in 0..8 {
            w.processes[0].like("p1", &format!("u{i}")).await;
        }
        w.drain().await;
        let watch = Watch::start(&w.processes[1], vec![root("p1", "like")], 8..=30);
        let counting: Vec<_> = w.processes.iter().map(Process::keep_counting).collect();
        join_all((8..30).map(|i| {
            let w = &w;
            async move { w.processes[i % 2].like("p1", &format!("u{i}")).await }
        }))
        .await;
        for worker in counting {
            worker.stop().await;
        }
        watch.stop().await;
        assert!(w.memory().shown().contains_key(&root("p1", "like").with_shard(Shard::ROOT)));
        assert_eq!(w.rest().await.live(&root("p1", "like")).len(), 30);
    }
}
