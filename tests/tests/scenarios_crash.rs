//! Scenarios of crashes between two writes, of answers that nobody got, and of the sweep that finds
//! what was left (docs/scenarios.md).

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{sync::Arc, time::Duration};

use futures::future::{join_all, select};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schema::{Member, ShardKey};
use store::{
    Protocol, Settings,
    clock::ManualClock,
    memory::{Faults, Memory},
    protocol::WriteRequest,
};
use tally_tests::{
    directed::{self, run},
    scenario::{
        book::Book,
        fact, oracles, root,
        tap::Way,
        watch::Watch,
        world::{Setup, Skewed, World, turn},
    },
    sim,
};

/// After this much time without any event everything is counted: slot, delay, and a pass of the sweep.
const REPAIRED: Duration = Duration::from_secs(10 + 30 + 10);

/// Gives way `n` times.
async fn moments(n: usize) {
    for _ in 0..n {
        turn().await;
    }
}

/// 500 likes by processes that are killed at some point of their writes, with the queues away.
#[tokio::test]
async fn cr_1_a_fact_whose_event_was_never_sent_is_counted_in_the_stated_time() {
    let seed = 21;
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut w = World::new(Setup { processes: 1, seed, ..Setup::default() }).await;
    for round in 0..20 {
        let dies = w.start().await;
        dies.tap.set(Way::Lost);
        let likes: Vec<_> = (0..25).map(|i| (format!("p{}", i % 3), format!("u{round}.{i}"))).collect();
        let likes = join_all(likes.iter().map(|(target, who)| dies.like(target, who)));
        let death = Box::pin(moments(rng.random_range(0..40)));
        drop(select(Box::pin(likes), death).await);
        dies.kill().await;
    }
    let alive = w.join().await;
    alive.like("p0", "alive").await;
    alive.count().await;
    for _ in 0..REPAIRED.as_secs() / 5 {
        w.wait(Duration::from_secs(5));
        w.sweep().await;
    }
    let p = &w.processes[0];
    let facts = oracles::Facts::read(&p.protocol).await;
    for i in 0..3 {
        let root = root(&format!("p{i}"), "like");
        assert_eq!(p.total(&root).await, Some(facts.counts(&root).total()), "nobody did anything");
        assert!(facts.rows(&root) > 50, "{}", facts.rows(&root));
    }
    w.rest().await;
}

/// A worker dies for good with a hundred members in hand; another process finds them.
#[tokio::test]
async fn cr_2_what_a_dead_worker_held_is_counted_by_others() {
    let mut w = World::new(Setup::default()).await;
    let dies = w.processes.remove(1);
    for i in 0..100 {
        dies.like("p1", &format!("u{i}")).await;
    }
    moments(100).await; // Events go out behind the answers.
    let aggregator = dies.aggregator.clone();
    let mut worker = Box::pin(async move { aggregator.run_once().await });
    assert!(futures::poll!(worker.as_mut()).is_pending());
    assert!(dies.bus.backlog() == 0 && !dies.aggregator.idle(), "it holds everything");
    drop(worker);
    dies.kill().await;
    w.wait(REPAIRED);
    w.sweep().await;
    assert_eq!(w.processes[0].total(&root("p1", "like")).await, Some(100));
    w.rest().await;
}

/// Counters vanish from the store and from memory: what is missing is unknown, never 0 or 1.
#[tokio::test]
async fn cr_6_a_counter_that_is_gone_is_counted_again_from_the_facts() {
    const LIKES: usize = 1_234;
    let mut setup = Setup::default();
    setup.ingest.cache_targets = 1;
    let w = World::new(setup).await;
    let p = &w.processes[0];
    let likes = (0..LIKES).map(|i| WriteRequest {
        key: fact("p1", "like", &format!("u{i}")),
        register: schema::Register::Choice,
        value: 1,
        at: None,
    });
    p.write_many(likes.collect()).await;
    for i in 0..5 {
        p.like("small", &format!("u{i}")).await;
    }
    p.count().await;
    for (id, likes) in [("p1", LIKES), ("small", 5)] {
        let (root, likes) = (root(id, "like"), i64::try_from(likes).unwrap());
        let watch = Watch::start(p, vec![root.clone()], likes..=likes + 1);
        assert_eq!(p.total(&root).await, Some(likes));
        for shard in w.memory().counters().into_keys().filter(|s| s.target == root.target) {
            w.engine.drop_counter(&shard).await.unwrap();
            p.ingest.forget(&root.target);
            assert_eq!(w.processes[1].total(&root).await, Some(likes), "without the counter of shard {}", shard.shard);
        }
        for shard in w.memory().counters().into_keys().filter(|s| s.target == root.target) {
            w.engine.drop_counter(&shard).await.unwrap();
        }
        p.like(id, "one more").await;
        p.count().await;
        watch.stop().await;
        assert_eq!(p.total(&root).await, Some(likes + 1));
    }
    w.rest().await;
}

/// Twenty writes take up to half a minute to arrive, one clock is five seconds behind, newer ones
/// pass them, and the sweep is at work all the time.
#[test]
fn cr_7_writes_that_become_visible_late_are_not_skipped() {
    let seed = 7;
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let memory = Arc::new(Memory::new(seed, false, Faults::none()));
    let clock = Arc::new(ManualClock::starting_at(1_000_000_000_000_000));
    let book = Book::default();
    let process = |by, lane: u64| {
        let settings = Settings { small_limit: 8, level: 2, lane_timeout: Duration::from_secs(1 << 30), ..Settings::default() };
        let next = std::sync::atomic::AtomicU64::new(lane);
        let protocol = Protocol::new(memory.clone(), Arc::new(Skewed { clock: clock.clone(), by }), settings);
        let ids = Box::new(move || next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        (protocol.clone(), Arc::new(run(protocol.open_lane(ids)).unwrap()))
    };
    let (behind, right) = (process(-5_000_000, 100), process(0, 200));
    let write = |(protocol, lane): &(Protocol, Arc<store::protocol::Lane>), who: String| {
        let request = WriteRequest { key: fact("p1", "like", &who), register: schema::Register::Choice, value: 1, at: None };
        let (ticket, protocol, lane) = (book.begin(&request), protocol.clone(), lane.clone());
        (ticket, directed::held(async move { protocol.write(&lane, &[request]).await.0.remove(0) }))
    };
    let mut late: Vec<_> = (0..20)
        .map(|i| {
            let (ticket, mut held) = write(if i % 2 == 0 { &behind } else { &right }, format!("late{i}"));
            for _ in 0..rng.random_range(0..8) {
                held.step();
            }
            (rng.random_range(0..30), ticket, held)
        })
        .collect();
    for second in 0..60 {
        clock.advance(Duration::from_secs(1));
        let (ticket, newer) = write(&right, format!("new{second}"));
        book.end(ticket, &newer.finish());
        run(right.0.sweep()).unwrap();
        while let Some(at) = late.iter().position(|(when, ..)| *when == second) {
            let (_, ticket, held) = late.swap_remove(at);
            book.end(ticket, &held.finish());
        }
    }
    assert!(late.is_empty());
    clock.advance(REPAIRED);
    for (protocol, lane) in [&behind, &right] {
        run(protocol.touch_lane(lane)).unwrap();
    }
    run(right.0.sweep()).unwrap();
    let facts = run(oracles::check(&right.0, &book, 0));
    assert_eq!(facts.live(&root("p1", "like")).len(), 80);
}

/// The sweep comes while requests are under way, its marks are lost three times in ten, and facts
/// change between its look and its work.
#[tokio::test]
async fn cr_8_sweep_and_requests_at_once_take_no_version_back() {
    for seed in 0..2 {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut setup = Setup { seed, ..Setup::default() };
        (setup.settings.slot, setup.settings.sweep_delay) = (Duration::from_millis(2), Duration::ZERO);
        let w = World::new(setup).await;
        w.memory().set_faults(Faults { answer_lost: 0.3, commit_unknown: 0.1, ..Faults::none() });
        let mut invariants = sim::checks::Watch::default();
        for _ in 0..30 {
            let requests = join_all((0..10).map(|i| {
                let who = format!("u{}", rng.random_range(0..14));
                w.processes[i % 2].choose(fact("p1", "like", &who), u8::from(rng.random_bool(0.6)))
            }));
            let sweeps = async {
                for i in 0..3 {
                    w.wait(Duration::from_millis(1));
                    // Cut off by an answer that is lost, it goes on with the next.
                    drop(w.processes[i % 2].protocol.sweep().await);
                    w.processes[i % 2].aggregator.run_once().await;
                }
            };
            let mut both = Box::pin(futures::future::join(requests, sweeps));
            while futures::poll!(both.as_mut()).is_pending() {
                assert_eq!(invariants.look(w.memory()), Ok(()));
                tokio::task::yield_now().await;
            }
        }
        let facts = w.rest().await;
        assert_eq!(invariants.look(w.memory()), Ok(()));
        assert_eq!(facts.rows(&root("p1", "like")), 14);
    }
}

/// A process dies between every two steps of a write, a count, a promotion; readers are asked at each
/// half state.
#[test]
fn cr_11_every_half_state_can_be_read_and_is_repaired() {
    for (before, large) in [(0, false), (2, false), (3, true), (6, true)] {
        for step in 0.. {
            let w = directed::World::new(Settings::default());
            let p = w.process();
            let root = directed::target("p", "like");
            for i in 0..before {
                p.counted(&root, &directed::member(&format!("m{i}")), 1);
            }
            let dies = w.process();
            let who = directed::member("new");
            let mut left = step;
            let mut like = dies.choose(&root, &who, 1);
            let mut ended = go_on(&mut like, &mut left);
            if ended {
                let shard = root.with_shard(like.finish().shard);
                let mut count = dies.reconcile(&shard, std::slice::from_ref(&who));
                ended = go_on(&mut count, &mut left);
            }
            check_readers(&p.protocol, &root, &who, before);
            assert_eq!((w.check_heads(), w.check_shown()), (Ok(()), Ok(())));
            w.drain(&p);
            let facts = run(oracles::check(&p.protocol, &Book::default(), 0));
            assert!(facts.live(&root).len() >= before, "step {step}");
            if ended {
                assert_eq!(facts.live(&root).len(), before + 1);
                assert_eq!(!w.memory.ledgers().is_empty(), large);
                break;
            }
        }
    }
}

/// Up to `left` polls; whether the task has ended.
fn go_on<T>(task: &mut directed::Held<T>, left: &mut usize) -> bool {
    while *left > 0 {
        *left -= 1;
        if task.step() {
            return true;
        }
    }
    false
}

/// O3 in the middle: readers are answered; what is said to be counted is in the number and the list.
fn check_readers(protocol: &Protocol, root: &ShardKey, who: &Member, before: usize) {
    let before = i64::try_from(before).unwrap();
    let state = run(protocol.state(&root.fact(who))).unwrap();
    let told = run(protocol.counts(&root.target, std::slice::from_ref(&root.kind))).unwrap();
    let own = run(protocol.count_for(&root.fact(who))).unwrap().counts.unwrap().total();
    let listed = run(protocol.list(root, None, None, 100)).unwrap().members;
    let total = told[0].counts.as_ref().map(schema::Counts::total);
    assert!(total.is_none_or(|n| (before..=before + 1).contains(&n)), "{told:?}");
    assert_eq!(own, before + i64::from(state.fact.counted()), "read-your-writes");
    if state.counted {
        assert_eq!(total, Some(before + 1), "`counted` is a proof");
        assert!(listed.iter().any(|row| row.member == *who));
    }
}
