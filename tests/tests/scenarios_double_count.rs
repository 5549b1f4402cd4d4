//! Scenarios of counting twice (docs/scenarios.md): clicks, retries, copies, late replays, restarts.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use aggregator::{Aggregator, AggregatorSettings, MemoryBus};
use futures::future::join_all;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schema::{ChangeEvent, CounterRow, Counts, codec};
use serde_json::json;
use store::{Settings, bus::EventSink, memory::Faults, protocol::Outcome};
use tally_tests::{
    directed,
    scenario::{
        book::Book,
        fact, oracles,
        proxy::Proxy,
        root,
        served::{Served, ask, at_once, like_path},
        tap::Way,
        watch::Watch,
        world::{Setup, World},
    },
    server::request,
};

/// 50 clicks at once through three clients of one server, and 50 back.
#[test]
fn dc_1_fast_repeated_clicks_count_once() {
    let served = Served::default();
    for (method, total) in [("PUT", 1), ("DELETE", 0)] {
        let outcomes = at_once(50, |_| ask(served.address(), method, &like_path("p1", "u1"), None));
        let changed = outcomes.iter().filter(|(_, answer)| answer["outcome"] == "applied").count();
        assert!(outcomes.iter().all(|(status, _)| *status == 200), "{outcomes:?}");
        assert_eq!(changed, 1, "one effective change: {outcomes:?}");
        served.counted("p1", "like", total);
        assert_eq!(served.listed("p1", "like").len(), usize::try_from(total).unwrap());
    }
    let facts = served.rest(0);
    assert_eq!((facts.rows(&root("p1", "like")), facts.live(&root("p1", "like")).len()), (1, 0));
}

/// The same through three processes over one replicated store: nothing but the store joins them.
#[tokio::test]
async fn dc_1_fast_repeated_clicks_through_three_processes_count_once() {
    for faults in [Faults::none(), Faults::frequent()] {
        let w = World::new(Setup { processes: 3, faults, seed: 11, ..Setup::default() }).await;
        let watch = Watch::start(&w.processes[0], vec![root("p1", "like")], 0..=1);
        for (choice, total) in [(1, 1), (0, 0)] {
            let clicks = (0..50).map(|i| w.processes[i % 3].choose(fact("p1", "like", "u1"), choice));
            let answers = join_all(clicks).await;
            let fine = |o: &Outcome| matches!(o, Outcome::Applied | Outcome::Unchanged | Outcome::Accepted | Outcome::Unknown(_));
            assert!(answers.iter().all(|a| fine(&a.outcome)), "{answers:?}");
            w.memory().set_faults(Faults::none());
            // Whatever was in doubt: the member clicks once more, and is answered.
            assert!(w.processes[0].choose(fact("p1", "like", "u1"), choice).await.landed());
            w.drain().await;
            assert_eq!(w.processes[1].total(&root("p1", "like")).await, Some(total));
            w.memory().set_faults(faults);
        }
        watch.stop().await;
        assert_eq!(w.rest().await.rows(&root("p1", "like")), 1);
    }
}

/// Two first likes of one pair at the same time, a thousand pairs.
#[test]
fn dc_2_the_losing_half_of_a_double_click_is_told_the_same_state() {
    const PAIRS: usize = 1000;
    let served = Served::default();
    let workers: Vec<_> = (0..16).map(|_| Arc::new(Barrier::new(2))).collect();
    thread::scope(|scope| {
        for (worker, together) in workers.iter().enumerate() {
            let halves = [0, 1].map(|_| {
                let (together, address) = (together.clone(), served.address());
                scope.spawn(move || {
                    let pairs = (worker..PAIRS).step_by(16);
                    pairs
                        .map(|i| {
                            together.wait();
                            ask(address, "PUT", &like_path(&format!("p{}", i % 50), &format!("u{i}")), None)
                        })
                        .collect::<Vec<_>>()
                })
            });
            let [first, second] = halves.map(|half| half.join().unwrap());
            for ((a, one), (b, other)) in first.into_iter().zip(second) {
                assert_eq!((a, b), (200, 200), "{one} {other}");
                assert_eq!((&one["choice"], &other["choice"]), (&json!("like"), &json!("like")));
                let mut words = [one["outcome"].as_str().unwrap(), other["outcome"].as_str().unwrap()];
                words.sort_unstable();
                // Joined into one write, both are told of it; else the later finds it done.
                let shared = one["version"] == other["version"];
                assert!(words == ["applied", "unchanged"] || (shared && words == ["applied"; 2]), "{one} {other}");
            }
        }
    });
    for i in 0..50 {
        served.counted(&format!("p{i}"), "like", 20);
    }
    let facts = served.rest(0);
    assert_eq!((0..50).map(|i| facts.rows(&root(&format!("p{i}"), "like"))).sum::<usize>(), PAIRS);
}

/// The answer is cut off after the like is durable; the client tries again, and again from nothing.
#[test]
fn dc_4_retries_after_a_lost_answer_count_once() {
    let served = Served::default();
    // Of three connections only the last gets its answer.
    let proxy = Proxy::start(served.address(), |number| number % 3 != 2);
    for i in 0..40 {
        let path = like_path(&format!("p{}", i % 2), &format!("u{i}"));
        for retry in 0..3 {
            let answer = request(proxy.address(), "PUT", &path, None);
            assert_eq!(answer.is_ok(), retry == 2, "{answer:?}");
            if let Ok((status, answer)) = answer {
                assert_eq!((status, &answer["outcome"], &answer["choice"]), (200, &json!("unchanged"), &json!("like")));
            }
        }
    }
    assert_eq!(proxy.swallowed(), 80);
    for target in ["p0", "p1"] {
        served.counted(target, "like", 20);
        assert_eq!(served.listed(target, "like").len(), 20);
    }
    served.rest(0);
}

/// Every event one to three times, in any order, some of them ten thousand entries later.
#[tokio::test]
async fn dc_5_repeated_and_shuffled_events_change_no_total() {
    const EVENTS: usize = 5_000;
    let seed = 5;
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let w = World::new(Setup { seed, ..Setup::default() }).await;
    for process in &w.processes {
        process.tap.set(Way::Held);
    }
    let roots: Vec<_> = (0..6).map(|i| root(&format!("p{i}"), "like")).collect();
    for _ in 0..EVENTS / 100 {
        let batch = (0..100).map(|_| {
            let key = fact(&format!("p{}", rng.random_range(0..6)), "like", &format!("u{}", rng.random_range(0..60)));
            w.processes[rng.random_range(0..2)].choose(key, u8::from(rng.random_bool(0.6)))
        });
        join_all(batch.collect::<Vec<_>>()).await;
    }
    let events: Vec<_> = w.processes.iter().flat_map(|p| p.tap.take()).collect();
    let mut copies: Vec<(usize, usize)> = Vec::new();
    for at in 0..events.len() {
        copies.push((at + rng.random_range(0..50), at));
        for _ in 0..rng.random_range(0..=2) {
            copies.push((at + rng.random_range(0..10_000), at));
        }
    }
    copies.sort_unstable();
    let watch = Watch::start(&w.processes[1], roots, 0..=60);
    for (n, (_, at)) in copies.iter().enumerate() {
        let process = &w.processes[rng.random_range(0..2)];
        process.bus.push(events[*at].clone());
        if n % 50 == 0 {
            process.aggregator.run_once().await;
        }
    }
    watch.stop().await;
    let facts = w.rest().await;
    assert!((0..6).all(|i| facts.rows(&root(&format!("p{i}"), "like")) > 8), "every target became large");
}

/// Nobody counts for a month; then everything of that month comes at once, twice.
#[tokio::test]
async fn dc_9_a_month_old_export_of_events_changes_nothing() {
    const MONTH: Duration = Duration::from_secs(30 * 86_400);
    let w = World::new(Setup::default()).await;
    let p = &w.processes[0];
    p.tap.set(Way::Held);
    for i in 0..40 {
        p.like("old", &format!("u{i}")).await;
        p.like("small", &format!("u{}", i % 5)).await;
    }
    let export = p.tap.take();
    w.wait(MONTH);
    // Swept and forgotten long ago; half have gone since.
    w.sweep().await;
    p.tap.set(Way::Through);
    for i in 0..20 {
        p.unlike("old", &format!("u{i}")).await;
    }
    p.count().await;
    w.wait(MONTH);
    for _ in 0..2 {
        p.tap.publish(export.clone()).await;
        w.processes[1].tap.publish(export.iter().rev().cloned().collect()).await;
        w.processes[1].count().await;
    }
    let facts = w.rest().await;
    assert_eq!(facts.live(&root("old", "like")).len(), 20);
    assert_eq!(facts.live(&root("small", "like")).len(), 5);
}

/// Like, unlike, like, 500 times within no time, events repeated.
#[tokio::test]
async fn dc_10_a_second_like_after_an_unlike_is_news_again() {
    let w = World::new(Setup { seed: 10, ..Setup::default() }).await;
    for i in 0..9 {
        w.processes[0].like("large", &format!("v{i}")).await;
    }
    w.drain().await;
    let mut versions = Vec::new();
    for cycle in 0..500 {
        for (step, (choice, process)) in [(1, 0), (0, 1), (1, 0)].into_iter().enumerate() {
            for target in ["small", "large"] {
                let written = w.processes[process].choose(fact(target, "like", "u1"), choice).await;
                // The cycle before ended with a like.
                let news = step > 0 || cycle == 0;
                assert_eq!(written.outcome, if news { Outcome::Applied } else { Outcome::Unchanged }, "{cycle} {step}");
                versions.push(written.version);
            }
        }
        for process in &w.processes {
            let events = process.tap.take();
            process.tap.publish(events).await;
            process.tap.take();
            if cycle % 7 == 0 {
                process.aggregator.run_once().await;
            }
        }
    }
    for target in 0..2 {
        let mine: Vec<_> = versions.iter().skip(target).step_by(2).collect();
        assert!(mine.windows(2).all(|pair| pair[0] < pair[1]), "each occurrence has a version of its own");
    }
    let facts = w.rest().await;
    assert_eq!((facts.live(&root("small", "like")).len(), facts.live(&root("large", "like")).len()), (1, 10));
}

/// A worker dies at a thousand random points of its round, and another reads on.
#[test]
fn dc_11_a_worker_that_dies_at_any_point_counts_nothing_twice() {
    const DEATHS: usize = 1000;
    let seed = 11;
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let w = directed::World::new(Settings { lane_timeout: Duration::from_secs(1 << 30), ..Settings::default() });
    let p = w.process();
    let bus = MemoryBus::new(4, 10_000);
    let roots: Vec<_> = (0..4).map(|i| directed::target(&format!("p{i}"), "like")).collect();
    let mut unfinished = 0;
    for _ in 0..DEATHS {
        let mut events = Vec::new();
        for _ in 0..rng.random_range(1..6) {
            let root = &roots[rng.random_range(0..roots.len())];
            let who = directed::member(&format!("m{}", rng.random_range(0..8)));
            let written = p.choose(root, &who, u8::from(rng.random_bool(0.6))).finish();
            events.push(ChangeEvent {
                shard: root.with_shard(written.shard),
                members: vec![who],
                at: written.version,
                traces: Vec::new(),
            });
        }
        events.iter().for_each(|event| bus.push(event.clone()));
        let aggregator = Aggregator::new(p.protocol.clone(), bus.clone(), AggregatorSettings::default());
        let mut worker = directed::held(async move { aggregator.run_once().await });
        let polls = rng.random_range(0..16);
        if !(0..polls).any(|_| worker.step()) {
            unfinished += 1; // Dies here, with whatever it had taken.
        }
        drop(worker);
        if rng.random_bool(0.5) {
            events.into_iter().for_each(|event| bus.push(event)); // Handed out again, counted already or not.
        }
        assert_eq!((w.check_heads(), w.check_shown()), (Ok(()), Ok(())));
        w.wait(1);
    }
    assert!(unfinished > DEATHS / 3, "only {unfinished} died in the middle");
    w.drain(&p);
    directed::run(oracles::check(&p.protocol, &Book::default(), 0));
}

/// Large numbers through every reader: one type, no wrap, no text.
#[tokio::test]
async fn dc_12_counts_beyond_32_and_53_bits_stay_what_they_are() {
    let w = World::new(Setup::default()).await;
    for i in 0..9 {
        w.processes[0].like("large", &format!("u{i}")).await;
    }
    w.processes[0].like("small", "u1").await;
    w.drain().await;
    for n in [0, (1_i64 << 31) - 1, 1 << 31, 1 << 53, (1 << 53) + 1, i64::MAX] {
        let counts: Counts = [(1, n)].into_iter().collect();
        let row = CounterRow { order: 1, rank: 2, counts: counts.clone(), as_of: 3 };
        let stored = codec::decode_counter(1, &codec::encode_counter(&row)).unwrap();
        assert_eq!(stored, row, "what is stored");
        let text = serde_json::to_string(&json!({ "total": counts.total() })).unwrap();
        assert_eq!(text, format!("{{\"total\":{n}}}"), "a JSON number, every digit of it");
        w.memory().damage_counters(|shard, row| {
            let first = shard.shard.is_root() || shard.shard.0 == 4;
            row.counts = if first { counts.clone() } else { Counts::default() };
        });
        for id in ["large", "small"] {
            assert_eq!(w.processes[0].total(&root(id, "like")).await, Some(n), "{id}");
        }
    }
}
