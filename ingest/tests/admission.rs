//! Statuses of targets and users: who may write, what readers are told.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use std::time::Duration;

use common::{World, setup, setup_with};
use schema::{Status, StatusKey, StatusRow, TargetKey, UserKey};
use serde_json::json;
use store::{Settings, clock::Stopwatch};
use tally_ingest::{IngestSettings, Mode};

impl World {
    /// As the operators' route does it.
    async fn set(&self, key: StatusKey, status: Status) {
        let protocol = self.ingest.protocol();
        let before = protocol.status_row(&key).await.unwrap();
        let row = StatusRow { version: protocol.next_status_version(before), status, run: None };
        protocol.put_status(&key, row).await.unwrap();
        self.ingest.status_changed(&key);
    }
}

fn target(id: &str) -> StatusKey {
    StatusKey::Target(TargetKey::parse(&format!("video/{id}")).unwrap())
}

fn user(id: &str) -> StatusKey {
    StatusKey::User(UserKey::parse(&format!("video/{id}")).unwrap())
}

/// AC-4: what a member holds can always be given back.
#[tokio::test]
async fn a_new_choice_is_refused_with_the_right_status_and_a_withdrawal_never() {
    let w = setup().await;
    for (key, status, code, slug) in [
        (target("p1"), Status::Closed, 403, "/problems/closed"),
        (target("p1"), Status::Gone, 410, "/problems/gone"),
        (user("u1"), Status::Suspended, 403, "/problems/suspended"),
    ] {
        let path = "/v1/video/targets/p1/like/u1";
        assert_eq!(w.put(path).await.json["outcome"], "applied");
        w.set(key.clone(), status).await;
        let refused = w.put(path).await;
        assert_eq!((refused.status.as_u16(), &refused.json["type"]), (code, &json!(slug)));
        assert_eq!(w.delete(path).await.json["outcome"], "applied", "withdrawing works under {status:?}");
        assert_eq!(w.delete(path).await.json["outcome"], "unchanged");
        assert_eq!(w.put(path).await.status.as_u16(), code, "and liking again does not");
        w.set(key.clone(), key.usual()).await;
        assert_eq!(w.put(path).await.json["outcome"], "applied", "open again at once");
        assert_eq!(w.delete(path).await.json["outcome"], "applied");
    }
    // A comment's member is not a user: a suspended user of that name does not bar it.
    w.set(user("c1"), Status::Suspended).await;
    assert_eq!(w.put("/v1/video/targets/p1/comment/c1").await.json["outcome"], "applied");
}

#[tokio::test]
async fn a_batch_refuses_item_by_item_and_writes_the_others() {
    let w = setup().await;
    for (key, status) in [(target("closed"), Status::Closed), (target("gone"), Status::Gone), (user("bad"), Status::Suspended)] {
        w.set(key, status).await;
    }
    let item = |target: &str, user: &str| json!({"target": target, "kind": "like", "user": user, "choice": "like", "at": "5"});
    let withdrawn = json!({"target": "gone", "kind": "like", "user": "bad", "choice": null});
    let facts = [item("closed", "u1"), item("p1", "u1"), item("gone", "u1"), item("p1", "bad"), item("p1", "u2"), withdrawn];
    let answer = w.post("/v1/video/facts", &json!({ "facts": facts }).to_string()).await;
    let told: Vec<_> = answer.json["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["outcome"].clone(), r["problem"]["status"].clone()))
        .collect();
    let rejected = |status: u16| (json!("rejected"), json!(status));
    let applied = || (json!("applied"), json!(null));
    let unchanged = (json!("unchanged"), json!(null));
    assert_eq!(told, [rejected(403), applied(), rejected(410), rejected(403), applied(), unchanged]);
    assert_eq!(w.total("p1", "like").await, 2);
    let metric = |status: &str| {
        let families = w.registry.gather();
        let family = families.iter().find(|f| f.name() == "tally_ingest_barred_total").unwrap();
        let of = family.get_metric().iter().find(|m| m.get_label()[0].value() == status).unwrap();
        of.get_counter().get_value()
    };
    assert_eq!((metric("closed"), metric("gone"), metric("suspended")), (1.0, 1.0, 1.0));
}

/// LD-8: facts and counters stay what they are below, and no reader is shown them.
#[tokio::test]
async fn a_gone_target_is_gone_for_every_reader_and_a_closed_one_for_none() {
    let w = setup().await;
    for n in 0..30 {
        w.put(&format!("/v1/video/targets/p1/like/u{n}")).await;
    }
    for n in 0..30 {
        w.counted(&format!("/v1/video/targets/p1/like/u{n}")).await;
    }
    let reads = [
        "/v1/video/targets/p1",
        "/v1/video/targets/p1?kinds=like&after=1&user=u1",
        "/v1/video/targets/p1/like?limit=5",
        "/v1/video/targets/p1/like/u3",
    ];
    let own = "/v1/video/users/u3/like?targets=p1,p2";
    for (status, code) in [(Status::Closed, 200), (Status::Gone, 410), (Status::Open, 200)] {
        w.set(target("p1"), status).await;
        for path in reads {
            assert_eq!(w.get(path).await.status.as_u16(), code, "{status:?} {path}");
        }
        let batch = w.post("/v1/video/counts", r#"{"targets":["p1","p2"]}"#).await.json;
        let states = w.get(own).await.json;
        assert_eq!(batch["targets"]["p2"]["kinds"], json!({}));
        assert_eq!(states["targets"]["p2"]["choice"], json!(null));
        if status == Status::Gone {
            assert_eq!(
                (&batch["targets"]["p1"]["problem"]["status"], &states["targets"]["p1"]["problem"]["status"]),
                (&json!(410), &json!(410))
            );
        } else {
            assert_eq!(
                (&batch["targets"]["p1"]["kinds"]["like"]["total"], &states["targets"]["p1"]["choice"]),
                (&json!(30), &json!("like"))
            );
        }
    }
}

#[tokio::test]
async fn a_change_through_another_process_counts_within_the_second() {
    let w = setup().await;
    let path = "/v1/video/targets/p1/like/u1";
    // Both statuses are asked about once there is any, and then they are remembered as usual ones.
    w.set(target("other"), Status::Closed).await;
    assert_eq!(w.put(path).await.status.as_u16(), 200);
    let protocol = w.ingest.protocol();
    let row = StatusRow { version: protocol.next_status_version(None), status: Status::Closed, run: None };
    protocol.put_status(&target("p1"), row).await.unwrap();
    let since = Stopwatch::start();
    while w.put(path).await.status.as_u16() == 200 {
        assert!(since.elapsed() < Duration::from_secs(5), "never noticed");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn each_mode_refuses_what_it_says_and_tells_why() {
    let w = setup().await;
    let path = "/v1/video/targets/p1/like/u1";
    let facts = r#"{"facts":[{"target":"p2","kind":"like","user":"u1"}]}"#;
    for (mode, write, bulk, read) in [
        (Mode::Shed, 200, 503, 200),
        (Mode::ReadOnly, 503, 503, 200),
        (Mode::Closed, 503, 503, 503),
        (Mode::Normal, 200, 200, 200),
    ] {
        w.ingest.gate().set(mode, "moving house");
        let told = [w.put(path).await, w.post("/v1/video/facts", facts).await, w.get("/v1/video/targets/p1").await];
        assert_eq!(told.each_ref().map(|a| a.status.as_u16()), [write, bulk, read], "{mode:?}");
        for refused in told.iter().filter(|a| a.status.as_u16() == 503) {
            assert!(refused.json["detail"].as_str().unwrap().contains("moving house") && refused.retry_after.is_some());
        }
        assert_eq!(w.get("/healthz").await.status.as_u16(), 200);
    }
}

/// Under `shed` nothing is published; what was written is counted later, as after a lost event.
#[tokio::test]
async fn what_is_written_under_shed_is_counted_by_the_sweep() {
    let settings = Settings { slot: Duration::from_millis(20), ..Settings::default() };
    let w = setup_with(settings, IngestSettings::default()).await;
    w.ingest.gate().set(Mode::Shed, "too much");
    let path = "/v1/video/targets/p1/like/u1";
    assert_eq!(w.put(path).await.json["outcome"], "applied");
    assert_eq!(w.get(path).await.json["counted"], false);
    let protocol = w.ingest.protocol();
    let since = Stopwatch::start();
    while w.get(path).await.json["counted"] != true {
        assert!(since.elapsed() < Duration::from_secs(10), "never counted");
        protocol.sweep_until(protocol.settings().slot_of(protocol.clock().now())).await.unwrap();
    }
    assert_eq!(w.total("p1", "like").await, 1);
}
