//! One member's requests go one after another, double clicks share one write, queues are bounded,
//! counts are loaded once. On one thread, so that what waits and what is on its way is certain.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use std::collections::BTreeSet;

use common::{World, setup, setup_with};
use futures::future::join_all;
use schema::{FactKey, KindName, Member, Register, TargetKey};
use store::{
    Settings,
    protocol::{Outcome, WriteRequest},
};
use tally_ingest::{IngestSettings, Refusal};

fn request(target: &str, member: &str, value: u8) -> WriteRequest {
    let key = FactKey {
        target: TargetKey::parse(&format!("video/{target}")).unwrap(),
        kind: KindName::parse("like").unwrap(),
        member: Member::parse(member).unwrap(),
    };
    WriteRequest { key, register: Register::Choice, value, at: None }
}

async fn choice(w: &World, target: &str, member: &str) -> u8 {
    w.ingest.protocol().state(&request(target, member, 0).key).await.unwrap().fact.choice.choice
}

fn metric(w: &World, name: &str) -> f64 {
    let families = w.registry.gather();
    let family = families.iter().find(|f| f.name() == name).unwrap();
    family.get_metric().iter().map(|m| m.get_counter().get_value()).sum()
}

#[tokio::test]
async fn double_clicks_share_one_write_but_never_one_on_its_way() {
    let w = setup().await;
    let clicks = join_all((0..200).map(|_| w.ingest.write(request("p", "u", 1)))).await;
    let clicks: Vec<_> = clicks.into_iter().map(Result::unwrap).collect();
    // 128 are taken at once and share; the rest comes while that write is on its way and shares another.
    let versions: BTreeSet<i64> = clicks.iter().map(|c| c.version).collect();
    assert_eq!(versions.len(), 2);
    assert_eq!(clicks.iter().filter(|c| c.outcome == Outcome::Applied).count(), 128);
    assert_eq!(clicks.iter().filter(|c| c.outcome == Outcome::Unchanged).count(), 72);
    assert_eq!(metric(&w, "tally_ingest_shared_writes_total"), 198.0);
}

#[tokio::test]
async fn different_requests_of_one_member_keep_their_order() {
    let w = setup().await;
    let flips = join_all((0..60).map(|i| w.ingest.write(request("p", "u", i % 2)))).await;
    let versions: Vec<i64> = flips.into_iter().map(|f| f.unwrap().version).collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "each goes after the one before it");
    assert_eq!(choice(&w, "p", "u").await, 1);
    let bulk = w.ingest.write_many((0..60).map(|i| request("p", "u", (i + 1) % 2)).collect()).await;
    assert!(bulk.iter().all(Result::is_ok));
    assert_eq!(choice(&w, "p", "u").await, 0);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_writes_nothing_of_it() {
    let settings = IngestSettings { queue: 4, ..IngestSettings::default() };
    let w = setup_with(Settings::default(), settings).await;
    let members: Vec<String> = (0..10).map(|i| format!("u{i}")).collect();
    let answers = join_all(members.iter().map(|m| w.ingest.write(request("p", m, 1)))).await;
    assert_eq!(answers.iter().filter(|a| **a == Err(Refusal::NoCapacity)).count(), 6);
    for (member, answer) in members.iter().zip(&answers) {
        assert_eq!(choice(&w, "p", member).await, u8::from(answer.is_ok()));
    }
    assert_eq!(metric(&w, "tally_ingest_no_capacity_total"), 6.0);
    assert!(w.ingest.write(request("p", "later", 1)).await.is_ok());
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_stop_a_write_that_was_begun() {
    let w = setup().await;
    {
        let mut write = Box::pin(w.ingest.write(request("p", "u", 1)));
        assert!(futures::poll!(&mut write).is_pending());
        tokio::task::yield_now().await; // The batcher takes it and begins.
    }
    while choice(&w, "p", "u").await == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(w.ingest.write(request("p", "u", 1)).await.unwrap().outcome, Outcome::Unchanged);
}

#[tokio::test]
async fn a_stopped_ingest_answers_what_it_took_and_refuses_the_rest() {
    let w = setup().await;
    let writes = join_all((0..100).map(|i| {
        let ingest = w.ingest.clone();
        async move {
            if i == 50 {
                ingest.stop();
                tokio::task::yield_now().await;
            }
            ingest.write(request("p", &format!("u{i}"), 1)).await
        }
    }))
    .await;
    for (i, answer) in writes.iter().enumerate() {
        assert_eq!(choice(&w, "p", &format!("u{i}")).await, u8::from(answer.is_ok()), "u{i}: {answer:?}");
    }
    assert!(writes[..50].iter().all(Result::is_ok));
    assert_eq!(w.ingest.write(request("p", "late", 1)).await, Err(Refusal::NoCapacity));
}

/// PG-10: everybody asks at the moment a hot count expires.
#[tokio::test]
async fn five_thousand_readers_of_one_target_load_it_once() {
    let w = setup().await;
    w.ingest.write(request("p", "u", 1)).await.unwrap();
    w.counted("/v1/video/targets/p/like/u").await;
    let target = request("p", "u", 1).key.target;
    let before = metric(&w, "tally_counts_cache_loads_total");
    let counts = join_all((0..5000).map(|_| w.ingest.counts(&target))).await;
    assert!(counts.iter().all(|c| c.as_ref().is_ok_and(|c| c.kinds.iter().any(|(k, n)| k.as_str() == "like" && n.used))));
    assert_eq!(metric(&w, "tally_counts_cache_loads_total") - before, 1.0);
}

/// A value that was read before the target was counted again is not used after it.
#[tokio::test]
async fn a_count_is_forgotten_as_soon_as_its_target_is_counted() {
    let w = setup().await;
    let total = async |w: &World| w.get("/v1/video/targets/p").await.json["kinds"]["like"]["total"].as_i64().unwrap_or(0);
    for i in 1..=20 {
        w.ingest.write(request("p", &format!("u{i}"), 1)).await.unwrap();
        while total(&w).await < i {
            tokio::task::yield_now().await;
        }
        assert_eq!(total(&w).await, i, "long before the second is over");
    }
}

/// DC-1, DC-2, NG-1, NG-2 on one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_dc_ng_storms_of_equal_requests_count_once_and_never_fail() {
    let w = std::sync::Arc::new(setup().await);
    for (value, due) in [(1, 1), (0, 0)] {
        let storm = join_all((0..50).map(|_| w.ingest.write(request("dc1", "u1", value)))).await;
        assert!(storm.iter().all(|r| r.as_ref().is_ok_and(|w| w.landed())));
        assert_eq!(w.total("dc1", "like").await, due);
    }
    for i in 0..1000 {
        let member = format!("u{i}");
        let (a, b) = tokio::join!(w.ingest.write(request("dc2", &member, 1)), w.ingest.write(request("dc2", &member, 1)));
        assert!(a.unwrap().landed() && b.unwrap().landed());
    }
    // A large target: what was answered is in the sum of its leaves once it is counted.
    for i in 0..1000 {
        w.counted(&format!("/v1/video/targets/dc2/like/u{i}")).await;
    }
    assert_eq!(w.total("dc2", "like").await, 1000);
    for user in ["u1", "u2", "u3"] {
        w.ingest.write(request("ng", user, 1)).await.unwrap();
    }
    let strangers = join_all((0..10).map(|_| w.ingest.write(request("ng", "u9", 0)))).await;
    assert!(strangers.iter().all(|r| r.as_ref().is_ok_and(|w| w.outcome == Outcome::Unchanged)));
    assert_eq!(w.total("ng", "like").await, 3);
    let twice = join_all((0..20).map(|_| w.ingest.write(request("ng", "u1", 0)))).await;
    assert!(twice.iter().all(|r| r.as_ref().is_ok_and(|w| w.landed())));
    assert_eq!(w.total("ng", "like").await, 2);
    let listed = w.get("/v1/video/targets/ng/like").await.json;
    assert_eq!(
        listed["members"].as_array().unwrap().iter().map(|m| m["member"].as_str().unwrap()).collect::<Vec<_>>(),
        ["u3", "u2"]
    );
}
