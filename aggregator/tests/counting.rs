//! Events and the sweep, alone and together, on the embedded engine: whatever happens to the events,
//! every answered change is counted, and nothing is counted twice.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use schema::{ChangeEvent, FactKey, KindName, Member, Namespace, Register, Shard, ShardKey, TargetKey, leaf_of};
use store::{
    Protocol, Settings,
    bus::EventSink,
    clock::{Clock, ManualClock, SystemClock},
    embedded::{Embedded, EmbeddedSettings},
    protocol::{Lane, WriteRequest},
};
use tally_aggregator::{Aggregator, AggregatorSettings, MemoryBus, Sweep};
use tokio_util::sync::CancellationToken;

struct World {
    protocol: Protocol,
    lane: Lane,
    bus: Arc<MemoryBus>,
    aggregator: Aggregator,
    _dir: tempfile::TempDir,
}

async fn setup(clock: Arc<dyn Clock>, settings: Settings) -> World {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(Embedded::open(dir.path(), &EmbeddedSettings::default()).unwrap());
    let protocol = Protocol::new(engine, clock, settings);
    let lane = protocol.open_lane(Box::new(|| 7)).await.unwrap();
    let bus = MemoryBus::new(8, 10_000);
    let aggregator = Aggregator::new(protocol.clone(), bus.clone(), AggregatorSettings::default());
    World { protocol, lane, bus, aggregator, _dir: dir }
}

fn target(id: &str) -> TargetKey {
    TargetKey::new(&Namespace::parse("t").unwrap(), id).unwrap()
}

fn like() -> KindName {
    KindName::parse("like").unwrap()
}

fn member(i: usize) -> Member {
    Member::parse(&format!("u{i}")).unwrap()
}

impl World {
    async fn write(&self, id: &str, i: usize, value: u8) -> ChangeEvent {
        let key = FactKey { target: target(id), kind: like(), member: member(i) };
        let request = WriteRequest { key: key.clone(), register: Register::Choice, value, at: None };
        let (written, _) = self.protocol.write(&self.lane, &[request]).await;
        assert!(written[0].landed(), "{:?}", written[0]);
        ChangeEvent {
            shard: key.shard(written[0].shard),
            members: vec![key.member],
            at: self.protocol.clock().now(),
            traces: Vec::new(),
        }
    }

    async fn total(&self, id: &str) -> i64 {
        let counts = self.protocol.counts(&target(id), &[like()]).await.unwrap();
        counts[0].counts.as_ref().map_or(-1, |c| c.total())
    }
}

/// A member who changes a thousand times before anybody looks is one ledger row and one commit.
#[tokio::test]
async fn a_thousand_flips_in_one_window_are_one_row_and_one_commit() {
    let w = setup(Arc::new(SystemClock::default()), Settings { small_limit: 4, level: 2, ..Settings::default() }).await;
    for i in 0..20 {
        let event = w.write("p", i, 1).await;
        w.bus.publish(vec![event]).await;
    }
    w.aggregator.run_once().await;
    w.aggregator.run_once().await;
    let root = ShardKey::root(target("p"), like());
    let leaf = root.with_shard(leaf_of(&member(3), 2));
    let rows = |page: store::engine::LedgerPage| page.rows.len();
    let before = w.protocol.engine().page_ledger(&leaf, None, 100).await.unwrap();
    let revision = before.head.as_ref().unwrap().revision;
    for i in 0..1000 {
        let event = w.write("p", 3, u8::from(i % 2 == 0)).await;
        assert_eq!(event.shard, leaf);
        w.bus.publish(vec![event]).await;
    }
    let round = w.aggregator.run_once().await;
    assert_eq!((round.shards, round.done.commits, round.done.members), (1, 1, 1));
    let after = w.protocol.engine().page_ledger(&leaf, None, 100).await.unwrap();
    assert!(after.head.as_ref().unwrap().revision > revision);
    assert_eq!(rows(after), rows(before));
    assert_eq!(w.aggregator.run_once().await.done.commits, 0);
    assert_eq!(w.total("p").await, 19, "the last flip withdrew");
}

/// Small targets share one write of counters; what needs more than that is left for a reconcile of its own.
#[tokio::test]
async fn small_targets_are_counted_together_and_others_are_left_alone() {
    let w = setup(Arc::new(SystemClock::default()), Settings { small_limit: 4, level: 1, ..Settings::default() }).await;
    for (id, likes) in [("one", 1), ("four", 4), ("five", 5)] {
        for i in 0..likes {
            w.write(id, i, 1).await;
        }
    }
    let root = |id: &str| ShardKey::root(target(id), like());
    let asked = [root("one"), root("five"), root("none"), root("one").with_shard(leaf_of(&member(0), 1)), root("four")];
    let done = w.protocol.reconcile_small(&asked).await;
    let counted: Vec<bool> = done.iter().map(|d| matches!(d, Some(Ok(())))).collect();
    assert_eq!(counted, [true, false, true, false, true], "{done:?}");
    assert!(done.iter().all(|d| !matches!(d, Some(Err(_)))), "{done:?}");
    assert_eq!((w.total("one").await, w.total("four").await), (1, 4));
    let written = w.protocol.engine().read_counters(&target("five")).await.unwrap();
    assert!(written.rows.is_empty() && written.shown.is_empty(), "too many for a small target: promotion comes first");
    w.bus.publish(vec![ChangeEvent { shard: root("five"), members: vec![member(0)], at: 1, traces: Vec::new() }]).await;
    let round = w.aggregator.run_once().await;
    assert!(round.done.promoted && round.failed == 0);
    assert_eq!(w.total("five").await, 5);
}

/// Events repeated, in any order, of facts that have moved on: nothing is counted twice.
#[tokio::test]
async fn repeated_and_reordered_events_change_no_number() {
    let w = setup(Arc::new(SystemClock::default()), Settings { small_limit: 4, level: 1, ..Settings::default() }).await;
    let mut events = Vec::new();
    for i in 0..30 {
        events.push(w.write("p", i, 1).await);
        events.push(w.write("p", i / 2, u8::from(i % 3 == 0)).await);
    }
    let held: i64 = {
        let mut state = std::collections::HashMap::new();
        for i in 0..30 {
            state.insert(i, 1);
            state.insert(i / 2, i64::from(i % 3 == 0));
        }
        state.values().sum()
    };
    for step in [7, 11, 1] {
        for at in 0..events.len() {
            w.bus.publish(vec![events[at * step % events.len()].clone(); 2]).await;
            if at % 5 == 0 {
                w.aggregator.run_once().await;
            }
        }
        w.aggregator.run_once().await;
        w.aggregator.run_once().await;
        assert_eq!(w.total("p").await, held);
    }
}

/// All events are lost: the sweep alone finds every change, and moves the watermark past it.
#[tokio::test]
async fn the_sweep_counts_what_events_missed() {
    let clock = Arc::new(ManualClock::starting_at(1_800_000_000_000_000));
    let w = setup(clock.clone(), Settings { small_limit: 4, level: 2, ..Settings::default() }).await;
    for i in 0..50 {
        let event = w.write(if i % 2 == 0 { "hot" } else { "cold" }, i % 7, 1).await;
        w.bus.publish(vec![event]).await;
        clock.advance(Duration::from_millis(700));
    }
    let answered = clock.now();
    w.bus.lose_all();
    let sweep = Sweep::new(w.protocol.clone(), Duration::from_secs(1));
    let early = sweep.run_once().await.unwrap();
    assert!(early.complete_until < answered);
    clock.advance(Duration::from_secs(41));
    let late = sweep.run_once().await.unwrap();
    assert!(late.complete_until >= answered, "{} < {answered}", late.complete_until);
    assert_eq!((w.total("hot").await, w.total("cold").await), (7, 7));
    assert_eq!(early.rewritten + late.rewritten, 0, "every fact had landed");
    assert_eq!(sweep.run_once().await.unwrap().intents, 0, "a swept slot is not read again");
}

/// A silent lane is closed to the end, swept and retired; its process, if it lives, goes on in a new one.
#[tokio::test]
async fn a_silent_lane_is_retired_and_its_process_finds_a_new_one() {
    let clock = Arc::new(ManualClock::starting_at(1_800_000_000_000_000));
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(Embedded::open(dir.path(), &EmbeddedSettings::default()).unwrap());
    let protocol = Protocol::new(engine, clock.clone(), Settings::default());
    let next = Mutex::new(1u64..);
    let lane = protocol.open_lane(Box::new(move || next.lock().unwrap().next().unwrap())).await.unwrap();
    let first = lane.id();
    let write = |i| WriteRequest {
        key: FactKey { target: target("p"), kind: like(), member: member(i) },
        register: Register::Choice,
        value: 1,
        at: None,
    };
    assert!(protocol.write(&lane, &[write(1)]).await.0[0].landed());
    clock.advance(Duration::from_secs(300));
    assert_eq!(protocol.sweep().await.unwrap().retired, 1);
    assert!(protocol.write(&lane, &[write(2)]).await.0[0].landed());
    assert_ne!(lane.id(), first, "the old lane takes nothing more");
    clock.advance(Duration::from_secs(60));
    protocol.touch_lane(&lane).await.unwrap();
    protocol.sweep().await.unwrap();
    let counts = protocol.counts(&target("p"), &[like()]).await.unwrap();
    assert_eq!(counts[0].counts.as_ref().unwrap().total(), 2);
}

/// The loop itself, beside eight writers on one hot and many cold targets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loop_counts_everything_beside_traffic_and_stops() {
    let w =
        Arc::new(setup(Arc::new(SystemClock::default()), Settings { small_limit: 16, level: 2, ..Settings::default() }).await);
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let hook = seen.clone();
    let aggregator = w.aggregator.clone().on_counted(Arc::new(move |t: &TargetKey| {
        hook.lock().unwrap().insert(t.clone());
    }));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { aggregator.run(stop).await }
    });
    let writers = (0..8).map(|writer| {
        let w = w.clone();
        tokio::spawn(async move {
            for i in 0..100 {
                let hot = w.write("hot", writer * 100 + i, 1).await;
                let cold = w.write(&format!("cold{}", i % 25), writer, 1).await;
                w.bus.publish(vec![hot, cold]).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    stop.cancel();
    running.await.unwrap();
    assert!(w.aggregator.idle(), "a stopping loop finishes what is queued");
    assert_eq!(w.total("hot").await, 800);
    for i in 0..25 {
        assert_eq!(w.total(&format!("cold{i}")).await, 8);
    }
    assert_eq!(seen.lock().unwrap().len(), 26, "caches are told of every target");
    assert_eq!(
        w.protocol.read_small(&ShardKey { target: target("hot"), kind: like(), shard: Shard::ROOT }).await.unwrap().0.level(),
        Some(2)
    );
}

#[tokio::test]
async fn a_drain_counts_what_was_answered_and_claims_nothing_of_what_is_answered_afterwards() {
    let clock = Arc::new(ManualClock::starting_at(1_000_000_000_000));
    let w = setup(clock.clone(), Settings::default()).await;
    let slot = w.protocol.settings().slot_of(clock.now());
    for i in 0..2 {
        w.write("p1", i, 1).await;
        w.bus.lose_all();
        w.protocol.sweep_until(slot).await.unwrap();
        assert_eq!(w.total("p1").await, i64::try_from(i).unwrap() + 1, "drained again within one slot");
    }
    w.write("p1", 2, 1).await; // Its event is lost.
    let answered = clock.now();
    for seconds in 0..60 {
        clock.advance(Duration::from_secs(1));
        w.protocol.sweep().await.unwrap();
        let until = w.protocol.complete_until().await.unwrap();
        assert!(until <= answered || w.total("p1").await == 3, "after {seconds} s: {until} > {answered}, not counted");
    }
    assert_eq!(w.total("p1").await, 3);
}

fn metric(registry: &prometheus::Registry, name: &str) -> prometheus::proto::Metric {
    let families = registry.gather();
    families.iter().find(|f| f.name() == name).unwrap_or_else(|| panic!("no {name}")).get_metric()[0].clone()
}

/// Freshness is the time from the oldest change's answer to its count; waits and queues are as they are when somebody asks.
#[tokio::test]
async fn freshness_and_waits_are_what_they_say() {
    let clock = Arc::new(ManualClock::starting_at(1_000_000_000));
    let w = setup(clock.clone(), Settings::default()).await;
    let registry = prometheus::Registry::new();
    w.aggregator.register(&registry).unwrap();
    let first = w.write("p", 1, 1).await;
    w.bus.publish(vec![first]).await;
    clock.advance(Duration::from_millis(30));
    let second = w.write("p", 2, 1).await;
    w.bus.publish(vec![second]).await;
    clock.advance(Duration::from_millis(10));
    let gauge = |name: &str| metric(&registry, name).get_gauge().get_value();
    assert_eq!((gauge("tally_events_backlog"), gauge("tally_events_fullest_queue")), (2.0, 2.0));
    assert!((gauge("tally_events_oldest_seconds") - 0.04).abs() < 1e-9);
    assert!((gauge("tally_events_estimated_wait_seconds") - 0.04).abs() < 1e-9, "at least the age of the oldest");
    w.aggregator.run_once().await;
    let freshness = metric(&registry, "tally_freshness_seconds");
    assert_eq!(freshness.get_histogram().get_sample_count(), 1, "one for a shard and round");
    assert!((freshness.get_histogram().get_sample_sum() - 0.04).abs() < 1e-9, "{freshness:?}");
    assert_eq!(metric(&registry, "tally_events_published_total").get_counter().get_value(), 2.0);
    assert_eq!((gauge("tally_events_backlog"), gauge("tally_events_estimated_wait_seconds")), (0.0, 0.0));
}

/// The lag goes on growing while no pass is made, and names lanes whose process is silent.
#[tokio::test]
async fn the_sweeps_lag_grows_while_it_stands_still() {
    let clock = Arc::new(ManualClock::starting_at(1_000_000_000));
    let w = setup(clock.clone(), Settings::default()).await;
    let sweep = Sweep::new(w.protocol.clone(), Duration::from_secs(5));
    let registry = prometheus::Registry::new();
    sweep.register(&registry).unwrap();
    let lag = || metric(&registry, "tally_sweep_lag_seconds").get_gauge().get_value();
    assert_eq!(lag(), 0.0, "no pass yet");
    clock.advance(Duration::from_secs(100));
    w.protocol.touch_lane(&w.lane).await.unwrap();
    sweep.run_once().await.unwrap();
    let before = lag();
    assert!((30.0..=50.0).contains(&before), "{before}");
    clock.advance(Duration::from_secs(7));
    assert!((lag() - before - 7.0).abs() < 1e-6);
    let by_state = |name: &str, state: &str| {
        let families = registry.gather();
        let family = families.iter().find(|f| f.name() == name).unwrap();
        family.get_metric().iter().find(|m| m.get_label()[0].value() == state).unwrap().get_gauge().get_value()
    };
    assert_eq!((by_state("tally_sweep_lanes", "live"), by_state("tally_sweep_lanes", "gone")), (1.0, 0.0));
    assert!((by_state("tally_sweep_lane_lag_seconds", "live") - lag()).abs() < 1e-6);
    assert_eq!(by_state("tally_sweep_lane_lag_seconds", "gone"), 0.0);
}
