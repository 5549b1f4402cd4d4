//! Scenarios of reading and paging, of crowds on one target, and of identifiers (docs/scenarios.md).

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use aggregator::{Aggregator, AggregatorSettings};
use futures::future::join_all;
use schema::{Register, UserKey};
use serde_json::{Value, json};
use store::{
    clock::{Clock, Stopwatch},
    memory::Faults,
    protocol::WriteRequest,
};
use tally_tests::scenario::{
    fact, kind, root,
    served::{Served, ask, like_path, target_path},
    spy::How,
    target,
    watch::Watch,
    world::{Process, Setup, World},
};

fn like(id: &str, who: String, value: u8, at: Option<i64>) -> WriteRequest {
    WriteRequest { key: fact(id, "like", &who), register: Register::Choice, value, at }
}

/// A thousand members of one and the same microsecond, seven at a time: each exactly once.
#[tokio::test]
async fn pg_1_members_of_one_moment_are_listed_exactly_once() {
    let w = World::new(Setup::default()).await;
    let p = &w.processes[0];
    let at = w.clock.now() - 1;
    for (id, n) in [("small", 8_usize), ("large", 1000)] {
        p.write_many((0..n).map(|i| like(id, format!("u{i}"), 1, Some(at))).collect()).await;
    }
    w.drain().await;
    for (id, n) in [("small", 8_usize), ("large", 1000)] {
        let (mut seen, mut pages, mut after) = (Vec::new(), 0, None);
        loop {
            let page = p.protocol.list(&root(id, "like"), None, after, 7).await.unwrap();
            assert!(page.members.iter().all(|row| row.at == at) && page.members.len() <= 7);
            seen.extend(page.members.into_iter().map(|row| row.member));
            pages += 1;
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!((seen.len(), pages), (n, n.div_ceil(7)));
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), n, "none twice");
        assert!(seen.is_sorted_by(|a, b| a > b), "one order, whatever the page");
    }
    w.rest().await;
}

/// One live, very many withdrawn, one live: both are reached, and an empty page is not the end.
#[tokio::test]
async fn pg_4_live_rows_behind_many_withdrawn_ones_are_reached() {
    const GONE: usize = 10_500;
    let w = World::new(Setup::default()).await;
    let p = &w.processes[0];
    let user = UserKey::of(&target("x"), &tally_tests::scenario::member("u1"));
    p.like("first", "u1").await;
    w.wait(Duration::from_secs(1));
    for value in [1, 0] {
        for from in (0..GONE).step_by(500) {
            p.write_many(
                (from..from + 500)
                    .map(|i| WriteRequest {
                        key: fact(&format!("gone{i}"), "like", "u1"),
                        register: Register::Choice,
                        value,
                        at: None,
                    })
                    .collect(),
            )
            .await;
        }
        w.wait(Duration::from_secs(1));
    }
    let (mut found, mut empty, mut after) = (Vec::new(), 0, None);
    loop {
        let page = p.protocol.user_list(&user, &kind("like"), after, 1).await.unwrap();
        empty += usize::from(page.facts.is_empty() && page.next.is_some());
        found.extend(page.facts.into_iter().map(|(target, _)| target.id().to_owned()));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(found, ["first"]);
    assert!(empty > 0, "a page that looks at ten thousand left-over rows gives a cursor, not the end");
    p.like("last", "u1").await;
    let page = p.protocol.user_list(&user, &kind("like"), None, 2).await.unwrap();
    assert_eq!(page.facts[0].0, target("last"));
    // The same among the likers of one target.
    p.like("p1", "first").await;
    for value in [1, 0] {
        for from in (0..1500).step_by(500) {
            p.write_many((from..from + 500).map(|i| like("p1", format!("gone{i}"), value, None)).collect()).await;
        }
        p.count().await;
    }
    p.like("p1", "last").await;
    w.drain().await;
    let page = p.protocol.list(&root("p1", "like"), None, None, 10).await.unwrap();
    assert_eq!(page.members.iter().map(|row| row.member.as_str()).collect::<Vec<_>>(), ["last", "first"]);
}

/// 200 ids at once, some unknown, some malformed, some twice, one deleted: each has its own answer by its id.
#[test]
fn pg_8_one_bad_id_of_a_batch_harms_no_other() {
    let served = Served::default();
    for i in 0..190 {
        served.ok("PUT", &like_path(&format!("p{i}"), "u1"));
    }
    served.counted("p189", "like", 1);
    let gone = json!({ "status": "gone", "why": "deleted" }).to_string();
    assert_eq!(served.ask("PUT", "/v1/ops/targets/t/p7/status", Some(&gone)).0, 200);
    let long = "x".repeat(129);
    let mut ids: Vec<String> = (0..190).map(|i| format!("p{i}")).collect();
    ids.extend(["unknown1", "unknown2", "unknown3", "", &long].map(str::to_owned));
    ids.extend((0..5).map(|i| format!("p{i}")));
    assert_eq!(ids.len(), 200);
    let (status, answer) = served.ask("POST", "/v1/t/counts", Some(&json!({ "targets": ids, "kinds": ["like"] }).to_string()));
    assert_eq!(status, 200, "{answer}");
    let of = |id: &str| &answer["targets"][id];
    assert_eq!(answer["targets"].as_object().unwrap().len(), 195, "by id, each once");
    assert!((0..190).filter(|i| *i != 7).all(|i| of(&format!("p{i}"))["kinds"]["like"]["total"] == 1), "{answer}");
    assert_eq!((&of("p7")["problem"]["status"], &of("p7")["kinds"]), (&json!(410), &Value::Null), "{}", of("p7"));
    assert!((1..=3).all(|i| of(&format!("unknown{i}"))["kinds"]["like"]["total"] == 0));
    for bad in ["", long.as_str()] {
        assert_eq!(of(bad)["problem"]["status"], 400, "{}", of(bad));
    }
    ids.push("one more".into());
    let (status, answer) = served.ask("POST", "/v1/t/counts", Some(&json!({ "targets": ids }).to_string()));
    assert_eq!((status, &answer["limit"]), (400, &json!(200)), "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("at most 200"));
    served.rest(0);
}

/// After one's own like the next read has it; and what was shown new is never old again.
#[test]
fn pg_9_own_changes_show_at_once_and_numbers_do_not_flicker() {
    let served = Served::default();
    for i in 0..30 {
        let liked = served.ok("PUT", &like_path("p1", &format!("u{i}")));
        let own = format!("{}?kinds=like&after={}&user=u{i}", target_path("p1"), liked["version"].as_str().unwrap());
        assert_eq!(served.ok("GET", &own)["kinds"]["like"]["total"], i + 1, "read-your-writes");
        assert_eq!(served.ok("GET", &like_path("p1", &format!("u{i}")))["choice"], "like");
        let watch = Stopwatch::start();
        let mut last = 0;
        while last < i + 1 {
            let told = served.ok("GET", &format!("{}?kinds=like", target_path("p1")))["kinds"]["like"]["total"].as_i64().unwrap();
            assert!(told >= last, "{last}, then {told}");
            last = told;
            assert!(watch.elapsed() < Duration::from_secs(2), "a cached number is about a second old at most");
        }
    }
    served.rest(0);
}

/// 5,000 readers at the moment when the cached number ends: the store is asked a few times.
#[tokio::test]
async fn pg_10_a_crowd_of_readers_asks_the_store_once() {
    let (w, spy) = World::spied(Setup::default()).await;
    let p = &w.processes[0];
    for i in 0..30 {
        p.like("p1", &format!("u{i}")).await;
    }
    w.drain().await;
    let reads = || spy.count("counters", How::Read);
    for _ in 0..3 {
        p.ingest.forget(&target("p1"));
        let before = reads();
        let id = target("p1");
        let told = join_all((0..5_000).map(|_| p.ingest.counts(&id))).await;
        assert!(
            told.into_iter().all(|c| c
                .unwrap()
                .kinds
                .iter()
                .any(|(k, n)| k.as_str() == "like" && n.counts.as_ref().unwrap().total() == 30))
        );
        assert!(reads() - before <= 2, "{} reads", reads() - before);
    }
    w.rest().await;
}

/// Five thousand different members like one target as fast as they can, on the real engine.
#[tokio::test]
async fn hp_1_a_crowd_on_one_target_is_answered_without_conflicts() {
    const LIKES: usize = 5_000;
    let w = World::embedded(Setup { processes: 1, ..Setup::default() }).await;
    let p = &w.processes[0];
    let watch = Watch::start(p, vec![root("p1", "like")], 0..=5_000);
    let counting = p.keep_counting();
    let stopwatch = Stopwatch::start();
    let times = join_all((0..LIKES).map(|i| async move {
        let answer = p.like("p1", &format!("u{i}")).await;
        assert!(answer.landed(), "{answer:?}");
        stopwatch.elapsed()
    }))
    .await;
    counting.stop().await;
    watch.stop().await;
    println!("{LIKES} likes of one target in {:?}, none failed", times.into_iter().max().unwrap());
    assert_eq!(w.rest().await.live(&root("p1", "like")).len(), LIKES);
}

/// Four workers count disjoint members of one target at the same time; commits conflict, get lost, or
/// are read late, and no update is.
#[tokio::test]
async fn hp_5_workers_on_one_target_lose_no_update() {
    for seed in 0..4 {
        println!("seed {seed}");
        let w = World::new(Setup { processes: 4, seed, ..Setup::default() }).await;
        let likes = join_all((0..200).map(|i| {
            let w = &w;
            async move { w.processes[i % 4].like("p1", &format!("u{i}")).await }
        }));
        assert!(likes.await.iter().all(|answer| answer.landed()));
        w.memory().set_faults(Faults { commit_unknown: 0.1, stale: 0.3, ..Faults::none() });
        let rounds = join_all(w.processes.iter().map(|p| p.aggregator.run_once())).await;
        let conflicts: u32 = rounds.iter().map(|round| round.done.conflicts + round.done.unknowns).sum();
        println!("{conflicts} commits were not applied at once");
        w.memory().set_faults(Faults::none());
        for p in &w.processes {
            p.count().await;
        }
        assert_eq!(w.processes[3].total(&root("p1", "like")).await, Some(200), "by events alone");
        w.rest().await;
    }
}

/// 95 of 100 changes are of one target; others are counted in time all the same.
#[test]
fn hp_8_one_hot_target_does_not_hold_up_the_others() {
    let served = Served::default();
    let stop = AtomicBool::new(false);
    let slowest = thread::scope(|scope| {
        for client in 0..4 {
            let (stop, address) = (&stop, served.address());
            scope.spawn(move || {
                for i in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let body: Vec<Value> = (0..95)
                        .map(|n| json!({ "target": "hot", "kind": "like", "user": format!("u{client}.{i}.{n}") }))
                        .collect();
                    let (status, _) = ask(address, "POST", "/v1/t/facts", Some(&json!({ "facts": body }).to_string()));
                    assert_eq!(status, 200);
                }
            });
        }
        let mut slowest = Duration::ZERO;
        for i in 0..25 {
            let path = like_path(&format!("cold{}", i % 5), &format!("u{i}"));
            served.ok("PUT", &path);
            let watch = Stopwatch::start();
            while served.ok("GET", &path)["counted"] != true {
                assert!(watch.elapsed() < Duration::from_secs(5), "a cold target waits for the hot one");
            }
            slowest = slowest.max(watch.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
        slowest
    });
    println!("a cold target's like was counted after {slowest:?} at most");
    served.rest(0);
}

/// The same among queues: a backlog of one target, and a single event of another behind it.
#[tokio::test]
async fn hp_8_an_event_behind_a_hot_backlog_is_counted_before_the_backlog_ends() {
    let w = World::new(Setup { processes: 1, ..Setup::default() }).await;
    let p: &Process = &w.processes[0];
    p.write_many((0..3_000).map(|i| like("hot", format!("u{i}"), 1, None)).collect()).await;
    p.like("cold", "u1").await;
    let aggregator = Aggregator::new(p.protocol.clone(), p.bus.clone(), AggregatorSettings::default());
    let mut round = Box::pin(aggregator.run_once());
    while p.total(&root("cold", "like")).await != Some(1) {
        assert!(futures::poll!(round.as_mut()).is_pending(), "the backlog ended first");
    }
    assert!(futures::poll!(round.as_mut()).is_pending(), "counted while the hot one was being counted");
    round.await;
    p.count().await;
    w.rest().await;
}

/// Ids are bytes: each spelling is one fact through every route and encoding, or a clear 4xx.
#[test]
fn un_4_an_id_is_the_same_fact_through_every_route_and_encoding() {
    let served = Served::default();
    let spellings = [
        ("Abc", "%41bc"),
        ("abc", "%61%62%63"),
        ("a b ", "a%20b%20"),
        ("{x}", "%7Bx%7D"),
        ("ä/ö", "%c3%a4%2F%C3%b6"),
        ("+", "%2B"),
        ("é", "%C3%A9"),
        ("e\u{301}", "e%CC%81"),
        (".", "%2E"),
        ("..", "%2e%2e"),
    ];
    for (id, path) in spellings {
        let body = json!({ "facts": [{ "target": id, "kind": "like", "user": id }] }).to_string();
        let (status, answer) = served.ask("POST", "/v1/t/facts", Some(&body));
        assert_eq!((status, &answer["results"][0]["outcome"]), (200, &json!("applied")), "{id}: {answer}");
        let again = served.ok("PUT", &like_path(path, path));
        assert_eq!(again["outcome"], "unchanged", "{id}: one fact by path and by body");
        let state = served.ok("GET", &format!("/v1/t/users/{path}/like?targets={path}"));
        assert_eq!(state["targets"][id]["choice"], "like", "{id}: {state}");
        served.counted(path, "like", 1);
        assert_eq!(served.listed(path, "like"), [id]);
    }
    for bad in ["%zz", "%4", "%00", "%0a", "%ff", "", "a%C3"] {
        let (status, answer) = served.ask("PUT", &like_path("p1", bad), None);
        assert!((400..500).contains(&status), "{bad}: {status} {answer}");
    }
    for (_, path) in &spellings[..3] {
        assert_eq!(served.ok("DELETE", &like_path(path, path))["outcome"], "applied");
        served.counted(path, "like", 0);
    }
    let facts = served.rest(0);
    assert_eq!(facts.live(&root("abc", "like")).len() + facts.live(&root("Abc", "like")).len(), 0);
    assert_eq!(facts.live(&root("ä/ö", "like")).len(), 1);
}

/// Neighbours beyond 2^53 stay two, and travel as text.
#[test]
fn un_5_large_numeric_ids_are_text_and_never_merge() {
    let served = Served::default();
    let ids = [(1_u64 << 53) - 1, 1 << 53, (1 << 53) + 1, (1 << 63) - 2, (1 << 63) - 1, u64::MAX];
    for (n, id) in ids.into_iter().enumerate() {
        for other in &ids[..=n] {
            served.ok("PUT", &like_path(&id.to_string(), &other.to_string()));
        }
    }
    for (n, id) in ids.into_iter().enumerate() {
        let id = id.to_string();
        served.counted(&id, "like", i64::try_from(n + 1).unwrap());
        assert_eq!(served.ok("GET", &target_path(&id))["target"], json!(id), "text, every digit of it");
        let mut listed = served.listed(&id, "like");
        listed.sort_by_key(|id| id.parse::<u64>().unwrap());
        assert_eq!(listed, ids[..=n].iter().map(u64::to_string).collect::<Vec<_>>());
    }
    let number = json!({ "facts": [{ "target": "p1", "kind": "like", "user": 1_u64 << 53 }] }).to_string();
    let (status, answer) = served.ask("POST", "/v1/t/facts", Some(&number));
    assert_eq!((status, &answer["results"][0]["outcome"]), (200, &json!("rejected")), "a number is no id: {answer}");
    served.rest(0);
}

/// Text of every kind as an id and as a choice: bytes come back as they went in, or a clear 4xx; a
/// counter moves only for what was accepted. Ids are limited in bytes of UTF-8, 128 of them.
#[test]
fn un_3_unusual_text_is_kept_byte_for_byte_or_refused() {
    let served = Served::default();
    let thumb = "\u{1F44D}";
    let kept = [thumb.to_owned(), thumb.repeat(32), "x".repeat(128), "\u{200B}".into(), "\u{202E}abc".into(), "👩‍👩‍👧‍👦".into()];
    for id in &kept {
        let body = json!({ "facts": [{ "target": "p1", "kind": "like", "user": id }] }).to_string();
        let (status, answer) = served.ask("POST", "/v1/t/facts", Some(&body));
        assert_eq!((status, &answer["results"][0]["outcome"]), (200, &json!("applied")), "{id:?}: {answer}");
    }
    let refused =
        [thumb.repeat(33), "x".repeat(129), String::new(), "a\0b".into(), "\u{7f}".into(), "\u{85}".into(), thumb.repeat(15_000)];
    for id in &refused {
        let body = json!({ "facts": [{ "target": "p1", "kind": "like", "user": id }] }).to_string();
        let (status, answer) = served.ask("POST", "/v1/t/facts", Some(&body));
        assert_eq!((status, &answer["results"][0]["outcome"]), (200, &json!("rejected")), "{answer}");
        assert_eq!(answer["results"][0]["problem"]["status"], 400);
    }
    let lone = r#"{"facts":[{"target":"p1","kind":"like","user":"\ud83d"}]}"#;
    assert_eq!(served.ask("POST", "/v1/t/facts", Some(lone)).0, 400, "half a surrogate pair");
    for choice in [thumb, "", "LIKE", "like ", "\0", "\u{200B}"] {
        let body = json!({ "choice": choice }).to_string();
        let (status, answer) = served.ask("PUT", &format!("{}/reaction/u1", target_path("p1")), Some(&body));
        assert_eq!(status, 400, "{choice:?}: {answer}");
    }
    served.counted("p1", "like", i64::try_from(kept.len()).unwrap());
    let listed: BTreeSet<String> = served.listed("p1", "like").into_iter().collect();
    assert_eq!(listed, kept.into_iter().collect());
    served.rest(0);
}
