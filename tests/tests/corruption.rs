//! Rows of every derived table made wrong beside live traffic: `verify` names each with its cause and
//! nothing else, a rebuild mends them all, and no reader sees a partial or a negative number.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "corruption/harm.rs"]
mod harm;
#[path = "corruption/world.rs"]
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use harm::{Harm, second};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rebuilder::Report;
use schema::{Member, UserKey, leaves};
use world::{LARGE, LEVEL, World, like, likes, member, root, target};

/// Targets of each harm: of 400 small and 60 large ones each is done to about one percent.
const SMALL_EACH: usize = 4;
const LARGE_EACH: usize = 2;
/// Targets that nobody touches, and that traffic uses, small and large of each.
const STILL: (usize, usize) = (320, 24);
const BUSY: (usize, usize) = (48, 10);
/// Members of busy targets who like and withdraw all the time, beside those who stand.
const RESTLESS: usize = 4;
/// Readers look this often.
const PERIOD: Duration = Duration::from_millis(20);

/// Targets and what is done to them.
fn harmed() -> Vec<(String, Harm)> {
    let each = |h: Harm| if h.large() { LARGE_EACH } else { SMALL_EACH };
    let name = |h: Harm, i| format!("{}-{h:?}-{i}", if h.large() { "large" } else { "small" }).to_lowercase();
    Harm::ALL.into_iter().flat_map(|h| (0..each(h)).map(move |i| (name(h, i), h))).collect()
}

fn named(what: &str, (small, large): (usize, usize)) -> Vec<String> {
    let small = (0..small).map(|i| format!("small-{what}-{i}"));
    small.chain((0..large).map(|i| format!("large-{what}-{i}"))).collect()
}

/// Numbers that a reader may be shown for a target.
#[derive(Debug, Clone)]
struct Allowed {
    /// By the facts.
    right: std::ops::RangeInclusive<i64>,
    /// The injected number, until the right one was seen again.
    wrong: Option<i64>,
}

type Watch = Arc<Mutex<BTreeMap<String, Allowed>>>;

/// Looks at every target of `watch` at 50 Hz; returns how many numbers it saw.
async fn read(w: Arc<World>, watch: Watch, stop: Arc<AtomicBool>) -> u64 {
    let mut seen = 0;
    let mut turn = 0_usize;
    while !stop.load(Ordering::Relaxed) {
        let period = tokio::time::sleep(PERIOD);
        let all = watch.lock().unwrap().clone();
        // All harmed and a part of the others in each period, so that it stays at 50 Hz.
        let due = all.iter().enumerate().filter(|(i, (_, a))| a.wrong.is_some() || i % 10 == turn % 10);
        for (_, (id, allowed)) in due {
            let Some(total) = w.total(id).await else { continue };
            seen += 1;
            if allowed.right.contains(&total) {
                if let Some(allowed) = watch.lock().unwrap().get_mut(id) {
                    // The injected number never comes back, unless it looks like the right one.
                    allowed.wrong = None;
                }
            } else {
                assert_eq!(Some(total), allowed.wrong, "{id} must be shown as {:?}", allowed.right);
            }
        }
        turn += 1;
        period.await;
    }
    seen
}

/// Members of busy targets like and withdraw, one at a time, until `stop`; returns who likes what.
async fn change(w: Arc<World>, number: usize, stop: Arc<AtomicBool>, changes: Arc<AtomicU64>) -> BTreeMap<String, i64> {
    let mut rng = ChaCha8Rng::seed_from_u64(number as u64);
    let busy = named("busy", BUSY);
    let mut liked: BTreeMap<String, i64> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let id = &busy[rng.random_range(0..busy.len())];
        let choice = u8::from(rng.random_range(0..3) > 0);
        w.write(id, Member::parse(&format!("r{number}")).unwrap(), choice).await;
        liked.insert(id.clone(), i64::from(choice));
        changes.fetch_add(1, Ordering::Relaxed);
    }
    liked
}

/// Every harm is named by its cause, and nothing else is.
fn assert_all_found(report: &Report, harmed: &[(String, Harm)]) {
    assert_eq!(report.drifted, report.drift.len() as u64, "the report lists all");
    for (id, harm) in harmed {
        let name = format!("c/{id}");
        let causes: BTreeSet<_> =
            report.drift.iter().filter(|d| d.target == name || d.target == format!("{name}-never")).map(|d| d.cause).collect();
        assert!(causes.iter().any(|c| harm.causes().contains(c)), "{harm:?} of {id} was not found but as {causes:?}");
        let other = causes.iter().find(|c| !harm.causes().contains(c) && !harm.consequences().contains(c));
        assert_eq!(other, None, "{harm:?} of {id} was called {causes:?}");
    }
    assert_no_other(report, harmed);
}

fn assert_no_other(report: &Report, harmed: &[(String, Harm)]) {
    let known: BTreeSet<String> = harmed.iter().flat_map(|(id, _)| [format!("c/{id}"), format!("c/{id}-never")]).collect();
    let alarm: Vec<_> = report.drift.iter().filter(|d| !known.contains(&d.target)).collect();
    assert!(alarm.is_empty(), "undamaged, and yet: {alarm:?}");
}

/// What the facts say: (target, number shown, who is listed).
async fn picture(w: &World, ids: &[String]) -> Vec<(String, Option<i64>, BTreeMap<Member, i64>)> {
    let mut all = Vec::new();
    for id in ids {
        all.push((id.clone(), w.total(id).await, w.listed(id).await));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_wrong_row_is_named_and_mended_beside_traffic_and_no_reader_is_misled() {
    let w = Arc::new(World::start().await);
    let harmed = harmed();
    let (still, busy) = (named("still", STILL), named("busy", BUSY));
    let harmed_ids: Vec<String> = harmed.iter().map(|(id, _)| id.clone()).collect();
    let all: Vec<String> = [&still[..], &busy, &harmed_ids].concat();
    w.fill(&all).await;
    // Two whose errors cancel need one who has withdrawn.
    for (id, _) in harmed.iter().filter(|(_, h)| *h == Harm::RowsCancel) {
        w.write(id, second(id), 0).await;
    }
    w.idle().await;
    let sound = w.verify().await;
    assert!(sound.clean(), "{:?}", sound.drift);
    let before = picture(&w, &harmed_ids).await;

    let (stop_reader, stop_traffic) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let watch: Watch = Arc::default();
    for id in still.iter().chain(&busy) {
        let standing = i64::try_from(likes(id)).unwrap();
        let most = standing + if busy.contains(id) { i64::try_from(RESTLESS).unwrap() } else { 0 };
        watch.lock().unwrap().insert(id.clone(), Allowed { right: standing..=most, wrong: None });
    }
    let reader = tokio::spawn(read(w.clone(), watch.clone(), stop_reader.clone()));
    let changes = Arc::new(AtomicU64::new(0));
    let traffic: Vec<_> =
        (0..RESTLESS).map(|n| tokio::spawn(change(w.clone(), n, stop_traffic.clone(), changes.clone()))).collect();

    for (id, harm) in &harmed {
        harm.inflict(&w, id).await;
        if !harm.mended_by_readers() {
            let right = before.iter().find(|(b, _, _)| b == id).and_then(|b| b.1).unwrap();
            let wrong = w.total(id).await;
            // Two errors that cancel are mended one after the other.
            let between = i64::from(harm.cancels());
            let allowed = Allowed { right: right - between..=right + between, wrong: wrong.filter(|&n| n != right) };
            watch.lock().unwrap().insert(id.clone(), allowed);
        }
    }
    let changed = changes.load(Ordering::Relaxed);
    let found = w.verify().await;
    assert_all_found(&found, &harmed);
    assert_eq!(found.repaired, 0, "verify repairs nothing");
    let mended = w.rebuild().await;
    assert_all_found(&mended, &harmed);
    assert_eq!(mended.drifted, mended.repaired, "{:?}", mended.drift.iter().filter(|d| !d.repaired).collect::<Vec<_>>());
    let after = w.verify().await;
    assert!(after.clean(), "{:?}", after.drift);
    assert!(changes.load(Ordering::Relaxed) > changed + 50, "there was hardly any traffic beside them");

    stop_traffic.store(true, Ordering::Relaxed);
    let mut due: BTreeMap<String, i64> = busy.iter().map(|id| (id.clone(), i64::try_from(likes(id)).unwrap())).collect();
    for task in traffic {
        for (id, n) in task.await.unwrap() {
            *due.get_mut(&id).unwrap() += n;
        }
    }
    w.idle().await;
    stop_reader.store(true, Ordering::Relaxed);
    let seen = reader.await.unwrap();
    assert!(seen > 1000, "readers saw only {seen} numbers");
    for (id, n) in &due {
        assert_eq!(w.total(id).await, Some(*n), "{id}");
    }
    assert_eq!(picture(&w, &harmed_ids).await, before, "what was damaged is as it was");
    for id in &harmed_ids {
        let user = UserKey::of(&target(id), &member(1));
        let own = w.protocol.user_states(&user, &like(), &[target(id)]).await.unwrap();
        assert!(own[0].is_some(), "{id} is in its member's index again");
    }
    let end = w.verify().await;
    assert!(end.clean() && end.left_over == 0, "{} left over, {:?}", end.left_over, end.drift);
    Arc::into_inner(w).unwrap().end().await;
}

/// I7, at once and all of it: whatever is derived is thrown away and comes back from the facts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_derived_comes_back_from_the_facts() {
    let w = World::start().await;
    let ids = named("kept", (60, 8));
    w.fill(&ids).await;
    for id in ids.iter().step_by(3) {
        w.write(id, member(2), 0).await;
    }
    w.idle().await;
    let before = picture(&w, &ids).await;
    let engine = w.protocol.engine();
    for id in &ids {
        for leaf in leaves(LEVEL) {
            engine.drop_ledger(&root(id).with_shard(leaf)).await.unwrap();
            engine.drop_counter(&root(id).with_shard(leaf)).await.unwrap();
        }
        // The root's own row, and which leaves are shown.
        engine.drop_counter(&root(id)).await.unwrap();
        engine.drop_counter(&root(id).with_shard(schema::Shard(0))).await.unwrap();
        for i in 0..LARGE {
            engine.drop_index(&UserKey::of(&target(id), &member(i)), &like(), &target(id)).await.unwrap();
        }
    }
    let mended = w.rebuild().await;
    assert!(mended.drifted > 0 && mended.drifted == mended.repaired, "{} of {}", mended.repaired, mended.drifted);
    let after = w.verify().await;
    assert!(after.clean(), "{:?}", after.drift);
    assert_eq!(picture(&w, &ids).await, before);
    for i in 0..4 {
        let user = UserKey::of(&target("x"), &member(i));
        let (mut own, mut after) = (BTreeSet::new(), None);
        loop {
            let page = w.protocol.user_list(&user, &like(), after, 50).await.unwrap();
            own.extend(page.facts.into_iter().map(|(target, _)| target));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let due = ids.iter().enumerate().filter(|(n, _)| i != 2 || n % 3 != 0);
        assert_eq!(own, due.map(|(_, id)| target(id)).collect(), "u{i}");
    }
    w.end().await;
}
