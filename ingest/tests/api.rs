//! The API as its users see it.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use std::collections::BTreeSet;

use axum::{Router, body::Body, http::Request};
use common::{ask, setup};
use prometheus::Registry;
use serde_json::{Value, json};
use tally_ingest::{IngestSettings, http};

fn version(json: &Value) -> i64 {
    json["version"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_like_is_applied_repeated_withdrawn_and_withdrawn_again() {
    let w = setup().await;
    let path = "/v1/video/targets/p1/like/u1";
    let first = w.put(path).await;
    assert_eq!((first.status.as_u16(), &first.json["outcome"], &first.json["choice"]), (200, &json!("applied"), &json!("like")));
    let again = w.put_json(path, r#"{"choice":"like"}"#).await;
    assert_eq!(again.json["outcome"], "unchanged");
    assert!(version(&again.json) > version(&first.json), "an unchanged answer holds at a new version");
    w.counted(path).await;
    let state = w.get(path).await.json;
    assert_eq!(state["choice"], "like");
    assert_eq!(state["since"], first.json["version"], "a repeated like does not move anybody");
    assert_eq!(state["version"], again.json["version"]);
    assert_eq!((&state["hidden"], &state["counted"]), (&json!([]), &json!(true)));
    let gone = w.delete(path).await.json;
    assert_eq!((&gone["outcome"], &gone["choice"]), (&json!("applied"), &Value::Null));
    assert_eq!(w.delete(path).await.json["outcome"], "unchanged");
    assert_eq!(w.get(path).await.json["choice"], Value::Null);
    assert_eq!(w.total("p1", "like").await, 0);
    let never = w.get("/v1/video/targets/p1/like/u2").await.json;
    assert_eq!((&never["choice"], &never["version"], &never["since"]), (&Value::Null, &Value::Null, &Value::Null));
}

#[tokio::test]
async fn counts_are_by_kind_and_choice_and_unused_kinds_are_left_out() {
    let w = setup().await;
    for (user, choice) in [("u1", "love"), ("u2", "love"), ("u3", "wow")] {
        w.put_json(&format!("/v1/video/targets/p1/reaction/{user}"), &json!({ "choice": choice }).to_string()).await;
    }
    w.put("/v1/video/targets/p1/like/u1").await;
    w.counted("/v1/video/targets/p1/like/u1").await;
    for user in ["u1", "u2", "u3"] {
        w.counted(&format!("/v1/video/targets/p1/reaction/{user}")).await;
    }
    let answer = w.get("/v1/video/targets/p1").await.json;
    assert_eq!(answer["target"], "p1");
    let kinds = json!({"like": {"total": 1, "choices": {"like": 1}}, "reaction": {"total": 3, "choices": {"love": 2, "wow": 1}}});
    assert_eq!(answer["kinds"], kinds);
    assert_eq!(answer["stale"], false);
    assert!(answer["as_of"].as_str().unwrap().parse::<i64>().unwrap() > 0);
    assert!(answer["complete_until"].as_str().unwrap().parse::<i64>().unwrap() > 0);
    let asked = w.get("/v1/video/targets/p2?kinds=like,bookmark").await.json;
    assert_eq!(asked["kinds"], json!({"like": {"total": 0, "choices": {}}, "bookmark": {"total": 0, "choices": {}}}));
    assert_eq!(w.get("/v1/video/targets/p2").await.json["kinds"], json!({}));
}

/// VS-1: from each of {none, up, down} to each of them.
#[tokio::test]
async fn switching_a_choice_moves_exactly_one_count() {
    let w = setup().await;
    let choices = [None, Some("love"), Some("angry")];
    for (i, from) in choices.iter().enumerate() {
        for (j, to) in choices.iter().enumerate() {
            let target = format!("s{i}{j}");
            for choice in [from, to] {
                let path = format!("/v1/video/targets/{target}/reaction/u1");
                match choice {
                    Some(choice) => w.put_json(&path, &json!({ "choice": choice }).to_string()).await,
                    None => w.delete(&path).await,
                };
            }
            w.counted(&format!("/v1/video/targets/{target}/reaction/u1")).await;
            let counts = w.get(&format!("/v1/video/targets/{target}")).await.json["kinds"]["reaction"].clone();
            let due = to.map_or(json!({}), |c| json!({ c: 1 }));
            assert_eq!((&counts["total"], &counts["choices"]), (&json!(i64::from(to.is_some())), &due), "{from:?} -> {to:?}");
        }
    }
}

/// PG-8: unknown, malformed, repeated ids in one batch: answers are by id and do not disturb each other.
#[tokio::test]
async fn a_batch_of_counts_answers_by_id_and_one_bad_id_fails_alone() {
    let w = setup().await;
    w.put("/v1/video/targets/p1/like/u1").await;
    w.counted("/v1/video/targets/p1/like/u1").await;
    let answer = w.post("/v1/video/counts", r#"{"targets":["p1","never","","bad\u0007id","p1","p1"]}"#).await.json;
    let targets = answer["targets"].as_object().unwrap();
    assert_eq!(targets.len(), 4);
    assert_eq!(targets["p1"]["kinds"]["like"]["total"], 1);
    assert_eq!(targets["never"]["kinds"], json!({}));
    assert_eq!(targets[""]["problem"]["field"], "targets");
    assert_eq!(targets["bad\u{7}id"]["problem"]["status"], 400);
    assert!(answer["complete_until"].is_string());
}

/// PG-1: one moment, page size 7, small and large: each exactly once, newest first.
#[tokio::test]
async fn lists_reach_everybody_once_whatever_the_page_and_the_layout() {
    let w = setup().await;
    for (target, n) in [("small", 7), ("large", 100)] {
        let facts: Vec<Value> =
            (0..n).map(|i| json!({"target": target, "kind": "like", "user": format!("u{i:03}"), "choice": "like", "at": "1700000000000000"})).collect();
        let done = w.post("/v1/video/facts", &json!({ "facts": facts }).to_string()).await.json;
        assert!(done["results"].as_array().unwrap().iter().all(|r| r["outcome"] == "applied"), "{done}");
        for limit in [1, 7, 200] {
            let mut seen = Vec::new();
            let mut cursor = String::new();
            loop {
                let page = w.get(&format!("/v1/video/targets/{target}/like?limit={limit}&cursor={cursor}")).await.json;
                let members = page["members"].as_array().unwrap();
                assert!(members.len() <= limit);
                seen.extend(members.iter().map(|m| m["member"].as_str().unwrap().to_owned()));
                match page["next"].as_str() {
                    Some(next) => cursor = next.to_owned(),
                    None => break,
                }
            }
            assert_eq!(seen.len(), n, "{target} by {limit}");
            assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), n);
            assert!(seen.is_sorted_by(|a, b| a > b), "larger ids first at one moment");
        }
    }
}

/// A cursor holds nothing of the layout: taken from a small list, it goes on in the large one.
#[tokio::test]
async fn a_cursor_survives_promotion() {
    let w = setup().await;
    for i in 0..8 {
        w.put(&format!("/v1/video/targets/p/like/old{i}")).await;
    }
    let page = w.get("/v1/video/targets/p/like?limit=3").await.json;
    for i in 0..30 {
        w.put(&format!("/v1/video/targets/p/like/new{i}")).await;
    }
    let rest = w.get(&format!("/v1/video/targets/p/like?limit=200&cursor={}", page["next"].as_str().unwrap())).await.json;
    let names =
        |p: &Value| p["members"].as_array().unwrap().iter().map(|m| m["member"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&page), ["old7", "old6", "old5"]);
    assert_eq!(names(&rest), ["old4", "old3", "old2", "old1", "old0"]);
}

#[tokio::test]
async fn members_can_be_listed_by_choice() {
    let w = setup().await;
    for i in 0..40 {
        let choice = if i % 10 == 0 { "wow" } else { "sad" };
        w.put_json(&format!("/v1/video/targets/p/reaction/u{i:02}"), &json!({ "choice": choice }).to_string()).await;
    }
    let page = w.get("/v1/video/targets/p/reaction?choice=wow&limit=200").await.json;
    let names: Vec<_> = page["members"].as_array().unwrap().iter().map(|m| m["member"].as_str().unwrap()).collect();
    assert_eq!(names, ["u30", "u20", "u10", "u00"]);
    assert_eq!(page["next"], Value::Null);
}

#[tokio::test]
async fn a_user_sees_which_targets_they_hold_and_their_own_list() {
    let w = setup().await;
    for i in 0..12 {
        w.put(&format!("/v1/video/targets/p{i}/like/u1")).await;
    }
    w.delete("/v1/video/targets/p3/like/u1").await;
    let states = w.get("/v1/video/users/u1/like?targets=p1,p3,never,with%2Ccomma").await.json;
    assert_eq!(states["targets"]["p1"]["choice"], "like");
    assert!(states["targets"]["p1"]["since"].is_string());
    for id in ["p3", "never", "with,comma"] {
        assert_eq!(states["targets"][id], json!({"choice": null}), "{id}");
    }
    let mut own = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = w.get(&format!("/v1/video/users/u1/like?limit=4&cursor={cursor}")).await.json;
        own.extend(page["facts"].as_array().unwrap().iter().map(|f| f["target"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(own, ["p11", "p10", "p9", "p8", "p7", "p6", "p5", "p4", "p2", "p1", "p0"]);
}

#[tokio::test]
async fn bulk_facts_are_answered_one_by_one_and_a_bad_one_fails_alone() {
    let w = setup().await;
    let body = r#"{"facts":[
        {"target":"p1","kind":"like","user":"u1","choice":"like"},
        {"target":"p1","kind":"like","user":"u1","choice":null},
        {"target":"p1","kind":"nope","user":"u1","choice":"like"},
        {"target":"p1","kind":"like","user":"u2","choice":"like","at":"1700000000000000"},
        {"target":"p1","kind":"like","user":"u2","choice":"like","at":"1600000000000000"},
        {"target":"p1","kind":"like","user":"u2","choice":"like","at":"1700000000000000"},
        {"target":"p1","kind":"like","user":"u3","choice":"like","at":"99999999999999999"},
        {"target":"p1","kind":"like","user":"u3","surprise":1},
        {"target":7,"kind":"like","user":"u3"},
        {"target":"p1","kind":"reaction","user":"u3"},
        {"target":"p1","kind":"like","user":"","choice":"like"}]}"#;
    let answer = w.post("/v1/video/facts", body).await;
    assert_eq!(answer.status, 200);
    let results = answer.json["results"].as_array().unwrap();
    let outcomes: Vec<_> = results.iter().map(|r| r["outcome"].as_str().unwrap()).collect();
    let due = [
        "applied",
        "applied",
        "rejected",
        "applied",
        "superseded",
        "unchanged",
        "rejected",
        "rejected",
        "rejected",
        "rejected",
        "rejected",
    ];
    assert_eq!(outcomes, due);
    let fields: Vec<_> = results.iter().filter_map(|r| r["problem"]["field"].as_str()).collect();
    assert_eq!(fields, ["kind", "at", "surprise", "body", "choice", "user"]);
    assert_eq!(w.get("/v1/video/targets/p1/like/u1").await.json["choice"], Value::Null, "items of one member keep their order");
    let imported = w.get("/v1/video/targets/p1/like/u2").await.json;
    assert_eq!((&imported["since"], &imported["version"]), (&json!("1700000000000000"), &json!("1700000000000000")));
    assert_eq!(w.total("p1", "like").await, 1);
}

/// UN-4: an id is its bytes, however it is encoded on the way.
#[tokio::test]
async fn ids_are_the_same_two_bytes_in_every_encoding() {
    let w = setup().await;
    for (put, get, id) in [
        ("caf%C3%A9", "caf%c3%a9", "café"),
        ("a%2Fb", "a%2fb", "a/b"),
        ("A", "%41", "A"),
        ("a", "%61", "a"),
        ("x+y", "x%2by", "x+y"),
        ("%20x%20", "%20x%20", " x "),
        ("%7Bx%7D", "%7bx%7d", "{x}"),
        ("%F0%9F%8E%89", "%f0%9f%8e%89", "🎉"),
    ] {
        let applied = w.put(&format!("/v1/video/targets/{put}/like/{put}")).await;
        assert_eq!(applied.json["outcome"], "applied", "{id}");
        let state = w.get(&format!("/v1/video/targets/{get}/like/{get}")).await.json;
        assert_eq!(state["version"], applied.json["version"], "{id}");
        w.counted(&format!("/v1/video/targets/{get}/like/{get}")).await;
        let counts = w.post("/v1/video/counts", &json!({ "targets": [id] }).to_string()).await.json;
        assert_eq!(counts["targets"][id]["kinds"]["like"]["total"], 1, "{id}");
        let bulk = json!({"facts": [{"target": id, "kind": "like", "user": id, "choice": "like"}]}).to_string();
        assert_eq!(w.post("/v1/video/facts", &bulk).await.json["results"][0]["outcome"], "unchanged", "{id}");
    }
}

/// UN-5: neighbours of 2^53 and 2^63 are different ids, and versions travel as strings.
#[tokio::test]
async fn large_numbers_as_ids_never_merge() {
    let w = setup().await;
    let ids = ["9007199254740991", "9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775806"];
    for id in ids {
        assert_eq!(w.put(&format!("/v1/video/targets/{id}/like/{id}")).await.json["outcome"], "applied");
    }
    for id in ids {
        let listed = w.get(&format!("/v1/video/targets/{id}/like")).await.json;
        assert_eq!(listed["members"].as_array().unwrap().len(), 1);
        assert_eq!(listed["members"][0]["member"], id);
    }
}

/// Of others only what is counted is promised, so the others are settled first.
#[tokio::test]
async fn own_changes_are_in_the_count_that_names_them() {
    let w = setup().await;
    for (target, others) in [("small", 3), ("large", 40)] {
        for i in 0..others {
            w.put(&format!("/v1/video/targets/{target}/like/u{i}")).await;
        }
        while w.get(&format!("/v1/video/targets/{target}")).await.json["kinds"]["like"]["total"] != others {
            tokio::task::yield_now().await;
        }
        for flip in 0..20 {
            let path = format!("/v1/video/targets/{target}/like/me");
            let done = if flip % 2 == 0 { w.put(&path).await } else { w.delete(&path).await };
            let read = format!("/v1/video/targets/{target}?after={}&user=me", done.json["version"].as_str().unwrap());
            assert_eq!(w.get(&read).await.json["kinds"]["like"]["total"], others + (1 - flip % 2), "{target} {flip}");
        }
    }
}

#[tokio::test]
async fn before_the_store_is_open_only_health_answers_and_after_it_everything_does() {
    let api = http::Api::new(Registry::new(), IngestSettings::default()).unwrap();
    let router = http::router(api.clone(), Router::new());
    let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    assert_eq!(ask(&router, get("/healthz")).await.status, 200);
    for path in ["/readyz", "/v1/video/targets/p1", "/v1/video/targets/p1/like/u1"] {
        let answer = ask(&router, get(path)).await;
        assert_eq!((answer.status.as_u16(), answer.content_type.as_str()), (503, "application/problem+json"), "{path}");
        assert!(answer.retry_after.is_some());
    }
    let w = setup().await;
    api.open(w.ingest.clone());
    assert_eq!(ask(&router, get("/readyz")).await.status, 200);
    assert_eq!(ask(&router, get("/v1/video/targets/p1")).await.status, 200);
}

#[tokio::test]
async fn metrics_are_there_from_the_start_and_never_hold_an_id() {
    let w = setup().await;
    let text = |answer: common::Answer| answer.json.as_str().unwrap().to_owned();
    let before = text(w.get("/metrics").await);
    for name in ["tally_ingest_outcomes_total{outcome=\"applied\"} 0", "tally_counts_cache_loads_total 0", "tally_ingest_queue 0"]
    {
        assert!(before.contains(name), "{name} is not in {before}");
    }
    w.put("/v1/video/targets/secret-target/like/secret-user").await;
    let after = text(w.get("/metrics").await);
    assert!(after.contains("tally_ingest_outcomes_total{outcome=\"applied\"} 1"));
    assert!(after.contains("route=\"/v1/{namespace}/targets/{target}/{kind}/{member}\""));
    assert!(!after.contains("secret"));
}
