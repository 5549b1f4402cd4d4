//! Scopes, leases, freeze, throttle, and what is remembered of a run.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use common::{World, like, member, quick, root, setup, setup_at, setup_with, target};
use schema::CounterRow;
use store::{
    Protocol, Settings, StoreError,
    clock::{Clock, ManualClock, SystemClock},
    embedded::{Embedded, EmbeddedSettings},
};
use tally_rebuilder::{Cause, MAX_RUNS, Order, PARTS, Progress, Rebuilder, RebuilderSettings, Report, RunState, Scope};

/// `n` small targets whose counters are all wrong by 5.
async fn wrong_counters(w: &World, n: usize) {
    for i in 0..n {
        let root = w.liked(&format!("p{i}"), 1).await;
        let mut row: CounterRow = w.counter(&root).await;
        row.counts.add(1, 5);
        w.put_counter(&root, row).await;
    }
}

async fn rebuild(w: &World) -> Report {
    w.rebuilder.rebuild(Scope::All, false, &Progress::default()).await.unwrap()
}

/// Begins a rebuild and drops it as a kill would, after at least `slices` slices.
async fn cut_off(w: &World, settings: RebuilderSettings, slices: u64) {
    let progress = Progress::default();
    let cut = Rebuilder::new(w.protocol.clone(), RebuilderSettings { parallel: 1, ..settings });
    let watch = async {
        while progress.slices_done.load(Ordering::Relaxed) < slices {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = watch => {}
        ended = cut.rebuild(Scope::All, false, &progress) => panic!("it was not cut off: {ended:?}"),
    }
}

#[tokio::test]
async fn a_rebuild_that_was_cut_off_is_taken_up_where_it_was() {
    let settings = RebuilderSettings { slices: 16, ..quick() };
    let w = setup_with(settings.clone()).await;
    wrong_counters(&w, 40).await;
    cut_off(&w, settings, 3).await;
    let unfinished = w.rebuilder.unfinished().await.unwrap();
    assert_eq!(unfinished.iter().map(|r| (r.scope.as_str(), r.slices)).collect::<Vec<_>>(), [("all", 16)]);
    let rest = rebuild(&w).await;
    assert!((3..16).contains(&rest.resumed_slices), "{}", rest.resumed_slices);
    assert!(rest.repaired < 40 && rest.drifted == rest.repaired, "{:?}", rest.drift);
    assert!(w.verify().await.clean());
    assert!(w.rebuilder.unfinished().await.unwrap().is_empty());
    assert_eq!(rebuild(&w).await.resumed_slices, 0, "the next one begins anew");
    let reports = w.rebuilder.reports(10).await.unwrap();
    let states: Vec<RunState> = reports.iter().rev().map(|r| r.state).collect();
    assert_eq!(states, [RunState::Running, RunState::Done, RunState::Done, RunState::Done]);
}

#[tokio::test]
async fn a_rebuild_that_was_cut_off_long_ago_is_given_up() {
    let settings = RebuilderSettings { slices: 16, ..quick() };
    let w = setup_with(RebuilderSettings { resume: Duration::ZERO, ..settings.clone() }).await;
    wrong_counters(&w, 40).await;
    cut_off(&w, settings, 3).await;
    assert_eq!(rebuild(&w).await.resumed_slices, 0);
    assert!(w.verify().await.clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_rebuilds_share_the_slices_and_both_end() {
    let w = setup_with(RebuilderSettings { slices: 16, parallel: 2, ..quick() }).await;
    wrong_counters(&w, 60).await;
    let (one, other) = tokio::join!(rebuild(&w), rebuild(&w));
    assert!(one.drifted + other.drifted >= 60, "{} and {}", one.drifted, other.drifted);
    assert_eq!((one.drifted, other.drifted), (one.repaired, other.repaired));
    assert_ne!(one.id, other.id);
    assert!(w.verify().await.clean());
}

/// Both at the same instant, beside writes: the count is right, and nobody's repair undoes another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_rebuilds_of_one_target_at_once_are_harmless() {
    let w = setup().await;
    let (leaf, _) = w.large("p").await;
    w.damage(&leaf, |commit| commit.head.counts.add(1, -3)).await;
    let order = Order::rebuild(Scope::Target { target: target("p"), kind: Some(like()) });
    let run = || async { w.rebuilder.run(&order, &Progress::default()).await.unwrap() };
    let writes = async {
        for i in 40..120 {
            w.write("p", i, 1).await;
            w.protocol.reconcile(&root("p"), &[member(i)]).await.unwrap();
        }
    };
    let (one, other, ()) = tokio::join!(run(), run(), writes);
    assert!(one.drifted + other.drifted >= 1);
    let members: Vec<_> = (0..120).map(member).collect();
    for leaf in schema::leaves(common::LEVEL) {
        let mine: Vec<_> = members.iter().filter(|m| schema::leaf_of(m, common::LEVEL) == leaf).cloned().collect();
        w.protocol.reconcile(&root("p").with_shard(leaf), &mine).await.unwrap();
    }
    assert_eq!(w.total("p").await, 120);
    assert!(w.verify().await.clean());
}

#[tokio::test]
async fn too_much_drift_stops_repair_until_somebody_confirms_with_a_reason() {
    let settings = RebuilderSettings { slices: 1, freeze_targets: 20, freeze_percent: 1.0, ..quick() };
    let w = setup_with(settings).await;
    for i in 100..140 {
        w.liked(&format!("q{i}"), 1).await;
    }
    wrong_counters(&w, 25).await;
    let frozen = rebuild(&w).await;
    assert!(frozen.frozen && frozen.frozen_because.as_deref().unwrap().contains("25 of 65 checked targets differ"));
    assert_eq!((frozen.drifted, frozen.drifted_targets, frozen.repaired), (25, 25, 0));
    assert_eq!(w.total("p3").await, 6, "nothing is repaired");
    let order = Order { confirm: true, operator: Some("ada".into()), ..Order::rebuild(Scope::All) };
    let refused = w.rebuilder.run(&order, &Progress::default()).await;
    assert!(matches!(&refused, Err(StoreError::Refused(why)) if why.contains("reason")), "{refused:?}");
    let order = Order { reason: Some("the backup of Monday".into()), ..order };
    let done = w.rebuilder.run(&order, &Progress::default()).await.unwrap();
    assert_eq!((done.frozen, done.repaired, w.total("p3").await), (false, 25, 1));
    let kept = w.rebuilder.report(&done.id).await.unwrap().unwrap();
    assert_eq!((kept.operator.as_deref(), kept.reason.as_deref()), (Some("ada"), Some("the backup of Monday")));
    assert_eq!(kept, done);
}

#[tokio::test]
async fn little_drift_freezes_nothing_and_one_large_difference_does() {
    let w = setup_with(RebuilderSettings { freeze_targets: 20, freeze_size: 100, ..quick() }).await;
    wrong_counters(&w, 5).await;
    assert_eq!(rebuild(&w).await.repaired, 5, "fewer than twenty targets");
    let root = w.liked("p", 3).await;
    let mut row = w.counter(&root).await;
    row.counts.add(1, 101);
    w.put_counter(&root, row).await;
    let frozen = rebuild(&w).await;
    assert!(frozen.frozen_because.as_deref().unwrap().contains("t/p like is wrong by 101"), "{frozen:?}");
    assert_eq!(
        (frozen.drift[0].before_total, frozen.drift[0].after_total, frozen.drift[0].size()),
        (Some(104), Some(3), Some(101))
    );
}

#[tokio::test]
async fn parts_cover_everything_once_and_the_next_is_the_one_verified_longest_ago() {
    let w = setup().await;
    wrong_counters(&w, 30).await;
    w.large("big").await;
    let before = w.rebuilder.parts().await.unwrap();
    assert!(before.len() == PARTS as usize && before.iter().all(|&at| at == 0));
    let (mut targets, mut index_rows, mut drifted, mut parts) = (0, 0, 0, BTreeSet::new());
    for n in 1..=PARTS {
        let order = Order { dry_run: true, ..Order::rebuild(Scope::Part(None)) };
        let report = w.rebuilder.run(&order, &Progress::default()).await.unwrap();
        (targets, index_rows, drifted) = (targets + report.targets, index_rows + report.index_rows, drifted + report.drifted);
        assert_eq!(report.parts_never_verified, PARTS - n);
        parts.insert(report.scope);
    }
    assert_eq!((targets, index_rows, drifted, parts.len()), (31, 70, 30, PARTS as usize));
    let times = w.rebuilder.parts().await.unwrap();
    let oldest = (0..PARTS).min_by_key(|&n| times[n as usize]).unwrap();
    let next = w.rebuilder.rebuild(Scope::Part(None), false, &Progress::default()).await.unwrap();
    assert_eq!(next.scope, format!("part {oldest}"));
    let whole = rebuild(&w).await;
    assert!(whole.share_percent > 99.9 && whole.drifted + next.drifted == 30, "{:?}", whole.drift);
    let times = w.rebuilder.parts().await.unwrap();
    assert!(times.iter().all(|&at| at == times[0] && at >= whole.started), "a run over everything verifies all parts");
    let none = w.rebuilder.verify(Scope::Part(Some(PARTS)), &Progress::default()).await;
    assert!(matches!(&none, Err(StoreError::Refused(why)) if why.contains("0 to 29")), "{none:?}");
}

#[tokio::test]
async fn a_part_finds_index_rows_missing_and_without_a_fact() {
    let w = setup().await;
    for i in 0..40 {
        w.liked(&format!("p{i}"), 1).await;
    }
    let user = schema::UserKey::of(&target("p7"), &member(0));
    let engine = w.protocol.engine();
    engine.drop_index(&user, &like(), &target("p7")).await.unwrap();
    let ghost = store::engine::IndexEntry {
        user,
        kind: like(),
        target: target("never"),
        row: schema::IndexRow { version: 5, choice: 1, since: 5 },
    };
    engine.put_index(&[ghost]).await.into_iter().for_each(|r| r.unwrap());
    let mut found = BTreeSet::new();
    for part in 0..PARTS {
        let report = w.rebuilder.rebuild(Scope::Part(Some(part)), false, &Progress::default()).await.unwrap();
        found.extend(report.drift.iter().map(|d| (d.cause, d.target.clone(), d.repaired)));
    }
    let want = ["t/never", "t/p7"].map(|t| (Cause::Index, t.to_owned(), true));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), want);
    assert!(w.verify().await.clean());
}

#[tokio::test]
async fn since_checks_what_the_journal_names_and_refuses_what_it_no_longer_holds() {
    let clock = Arc::new(ManualClock::starting_at(1_700_000_000_000_000));
    let w = setup_at(quick(), clock.clone()).await;
    w.liked("old", 2).await;
    w.large("old-large").await;
    clock.advance(Duration::from_secs(600));
    let at = clock.now();
    wrong_counters(&w, 2).await;
    let (leaf, _) = w.large("new-large").await;
    w.damage(&leaf, |commit| commit.head.counts.add(1, 4)).await;
    let old = root("old");
    let mut row = w.counter(&old).await;
    row.counts.add(1, 5);
    w.put_counter(&old, row).await;
    clock.advance(Duration::from_secs(600));
    let progress = Progress::default();
    let since = |at| w.rebuilder.rebuild(Scope::Since(at), false, &progress);
    let report = since(at).await.unwrap();
    let found: BTreeSet<_> = report.drift.iter().map(|d| (d.target.as_str(), d.cause, d.repaired)).collect();
    let want = [("t/new-large", Cause::Count, true), ("t/p0", Cause::Counter, true), ("t/p1", Cause::Counter, true)];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), want);
    // The lists of those who liked something are checked whole: two large targets for each of 40, and four small ones.
    assert_eq!((report.targets, report.facts, report.index_rows), (3, 42, 84), "nothing else is read");
    assert_eq!(w.total("old").await, 7);
    let earlier = since(at - 700_000_000).await.unwrap();
    assert_eq!((earlier.drifted, w.total("old").await), (1, 2));
    let refused = since(at - 49 * 3_600_000_000).await;
    assert!(
        matches!(&refused, Err(StoreError::Refused(why)) if why.contains("48 hours") && why.contains("`part` or `all`")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn an_unknown_target_is_refused_and_a_ghost_is_not() {
    let w = setup().await;
    w.liked("p", 1).await;
    let verify = |id: &str, kind| Scope::Target { target: target(id), kind };
    for scope in [verify("q", None), verify("p", Some(schema::KindName::parse("comment").unwrap()))] {
        let refused = w.rebuilder.verify(scope, &Progress::default()).await;
        assert!(matches!(&refused, Err(StoreError::Refused(why)) if why.contains("nothing was ever written")), "{refused:?}");
    }
    let row = CounterRow { order: 1, rank: 1, counts: [(1, 3)].into_iter().collect(), as_of: 1 };
    w.put_counter(&root("ghost"), row).await;
    let report = w.rebuilder.verify(verify("ghost", None), &Progress::default()).await.unwrap();
    assert_eq!(report.drift.iter().map(|d| d.cause).collect::<Vec<_>>(), [Cause::Overcounted]);
}

#[tokio::test]
async fn the_throttle_holds_whatever_is_checked() {
    let clock = Arc::new(ManualClock::starting_at(1_700_000_000_000_000));
    let w = setup_at(quick(), clock.clone()).await;
    w.large("p").await;
    for i in 0..20 {
        w.liked(&format!("p{i}"), 2).await;
    }
    // 80 facts and at least as many rows in each of ledger and index.
    for scope in [Scope::All, Scope::Target { target: target("p"), kind: None }] {
        let rows = if scope == Scope::All { 200 } else { 40 };
        let (free, before) = (Order { rate: Some(0), ..Order::verify(scope.clone()) }, clock.now());
        w.rebuilder.run(&free, &Progress::default()).await.unwrap();
        assert_eq!(clock.now(), before, "nothing waits");
        let slow = Order { rate: Some(10), ..Order::verify(scope) };
        w.rebuilder.run(&slow, &Progress::default()).await.unwrap();
        let took = clock.now() - before;
        assert!(took >= (rows - 1) * 100_000, "{took} microseconds for at least {rows} rows at 10 a second");
    }
}

#[tokio::test]
async fn reports_survive_the_process_and_the_last_two_hundred_are_kept() {
    let w = setup().await;
    w.liked("p", 2).await;
    let scope = || Scope::Target { target: target("p"), kind: None };
    let mut ids = Vec::new();
    for _ in 0..MAX_RUNS + 3 {
        ids.push(w.rebuilder.verify(scope(), &Progress::default()).await.unwrap().id);
    }
    assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]));
    let World { protocol, lane, rebuilder, dir } = w;
    protocol.engine().get_meta("x").await.unwrap();
    drop((protocol, lane, rebuilder));
    let engine = Arc::new(Embedded::open(dir.path(), &EmbeddedSettings::default()).unwrap());
    let protocol = Protocol::new(engine, Arc::new(SystemClock::default()), Settings::default());
    let rebuilder = Rebuilder::new(protocol, quick());
    let kept = rebuilder.reports(1000).await.unwrap();
    let want: Vec<&String> = ids.iter().rev().take(MAX_RUNS).collect();
    assert_eq!(kept.iter().map(|r| &r.id).collect::<Vec<_>>(), want);
    assert!(kept.iter().all(|r| r.facts == 2 && r.state == RunState::Done && r.finished >= r.started));
    assert_eq!(rebuilder.report(&ids[0]).await.unwrap(), None);
    assert_eq!(rebuilder.report("../x").await.unwrap(), None);
    assert_eq!(rebuilder.report(&ids[9]).await.unwrap().map(|r| r.scope).as_deref(), Some("target t/p"));
}
