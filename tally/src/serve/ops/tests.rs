//! The operators' routes over a whole server in this process, without a network.

use std::{collections::BTreeSet, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, header},
};
use http_body_util::BodyExt;
use ingest::http::Api;
use prometheus::Registry;
use serde_json::{Value, json};
use store::clock::Stopwatch;
use tower::ServiceExt;

use super::{ACCESS, OpsApi};
use crate::{
    config::Config,
    serve::{Node, Opening, Parts, ingest_settings},
};

struct World {
    router: Router,
    registry: Registry,
    parts: Parts,
}

fn config(dir: &tempfile::TempDir) -> Config {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let data = dir.path().join("data").display().to_string();
    let flags = [pair("data", &data), pair("write_timeout", "300ms"), pair("slot", "200ms"), pair("sweep_delay", "500ms")];
    Config::from_flags(&flags).unwrap()
}

async fn start(config: &Config) -> World {
    let registry = Registry::new();
    let parts = Parts::start(config, Node::open(config, Opening::Serve).await.unwrap(), &registry).await.unwrap();
    let api = Api::new(registry.clone(), ingest_settings(config)).unwrap().access(ACCESS);
    let ops = OpsApi::default();
    ops.open(parts.ops());
    api.open(parts.ingest().clone());
    let router = ingest::http::router(api, ops.router());
    World { router, registry, parts }
}

impl World {
    async fn send(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let body = body.map_or_else(Body::empty, |json| Body::from(json.to_string()));
        let answer = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::String(text)))
    }

    async fn ok(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.send(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    async fn like_all(&self, target: &str, users: impl Iterator<Item = String>) {
        let users: Vec<String> = users.collect();
        for part in users.chunks(500) {
            let facts: Vec<Value> = part.iter().map(|u| json!({"target": target, "kind": "like", "user": u})).collect();
            let answer = self.ok("POST", "/v1/video/facts", Some(json!({ "facts": facts }))).await;
            assert!(answer["results"].as_array().unwrap().iter().all(|r| r["outcome"] == "applied"), "{answer}");
        }
    }

    /// Waits until readers see `due`: what is answered may be published, and counted, a moment later.
    async fn shows(&self, target: &str, due: i64) {
        let watch = Stopwatch::start();
        loop {
            let answer = self.ok("GET", &format!("/v1/video/targets/{target}?kinds=like"), None).await;
            let total = answer["kinds"]["like"]["total"].as_i64().unwrap();
            if total == due && self.parts.idle() {
                return;
            }
            assert!(watch.elapsed() < Duration::from_secs(60), "{target} stays at {total}, not {due}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits for the end of a run.
    async fn ended(&self, run: &Value) -> Value {
        let path = format!("/v1/ops/hide-runs/{}", run["id"].as_str().or(run["run"].as_str()).unwrap());
        let watch = Stopwatch::start();
        loop {
            let run = self.ok("GET", &path, None).await;
            if !matches!(run["state"].as_str(), Some("queued" | "running")) {
                return run;
            }
            assert!(watch.elapsed() < Duration::from_secs(120), "{run}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn verified(&self) {
        let job = self.ok("POST", "/v1/ops/verify", None).await;
        let path = format!("/v1/ops/jobs/{}", job["id"].as_str().unwrap());
        loop {
            let job = self.ok("GET", &path, None).await;
            match job["state"].as_str() {
                Some("running") => tokio::time::sleep(Duration::from_millis(20)).await,
                _ => return assert_eq!(job["report"]["drifted"], 0, "{job}"),
            }
        }
    }

    fn metric(&self, name: &str, label: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|f| f.name() == name).unwrap_or_else(|| panic!("no {name}"));
        let of = family.get_metric().iter().find(|m| m.get_label()[0].value() == label).unwrap();
        of.get_counter().get_value() + of.get_gauge().get_value()
    }
}

fn hide(target: &str, members: &[String], reason: &str) -> Value {
    json!({"namespace": "video", "target": target, "kind": "like", "members": members, "reason": reason, "why": "bought", "ticket": "T-1", "operator": "ada"})
}

fn why() -> Value {
    json!({"why": "a mistake", "operator": "ada"})
}

/// LD-3: a bad group is removed in one call, and in batches of which one fails; the rest stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_group_is_hidden_in_one_call_or_in_batches_and_comes_back_by_undo() {
    let dir = tempfile::tempdir().unwrap();
    let w = start(&config(&dir)).await;
    let bad: Vec<String> = (0..2000).map(|n| format!("bad{n}")).collect();
    for target in ["one", "many"] {
        w.like_all(target, bad.iter().cloned().chain((0..10).map(|n| format!("good{n}")))).await;
        w.shows(target, 2010).await;
    }
    let run = w.ok("POST", "/v1/ops/hide", Some(hide("one", &bad, "fraud"))).await;
    let ended = w.ended(&run).await;
    assert_eq!((&ended["state"], &ended["changed"], &ended["members"]), (&json!("done"), &json!(2000), &json!(2000)));
    w.shows("one", 10).await;
    for (n, batch) in bad.chunks(50).enumerate() {
        let mut body = hide("many", batch, "fraud");
        if n == 7 {
            body["members"][3] = json!("");
            assert_eq!(w.send("POST", "/v1/ops/hide", Some(body.clone())).await.0, 400, "one of them is no id");
            body["members"][3] = json!(batch[3]);
        }
        let run = w.ok("POST", "/v1/ops/hide", Some(body)).await;
        w.ended(&run).await;
    }
    w.shows("many", 10).await;
    let state = w.ok("GET", "/v1/video/targets/one/like/bad7", None).await;
    assert_eq!((&state["choice"], &state["hidden"]), (&json!("like"), &json!(["fraud"])));
    let undo = w.ok("POST", &format!("/v1/ops/hide-runs/{}/undo", ended["id"].as_str().unwrap()), Some(why())).await;
    assert_eq!(w.ended(&undo).await["changed"], 2000);
    w.shows("one", 2010).await;
    assert_eq!((w.metric("tally_hide_members_total", "changed"), w.metric("tally_hide_runs_total", "done")), (6000.0, 42.0));
    let listed = w.ok("GET", "/v1/ops/hide-runs?limit=200", None).await;
    let ids: BTreeSet<&str> = listed["runs"].as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), &listed["next"]), (42, &Value::Null));
    w.verified().await;
}

/// AC-2, AC-4: suspended twice, active again: exactly as before, and unlike always works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_users_likes_are_hidden_refused_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let w = start(&config(&dir)).await;
    for n in 0..40 {
        w.like_all(&format!("p{n}"), ["u1", "u2"].map(str::to_owned).into_iter()).await;
    }
    let place = "/v1/ops/users/video/u1/status";
    assert_eq!(w.ok("GET", place, None).await, json!({"status": "active", "version": null, "run": null}));
    let suspend = || Some(json!({"status": "suspended", "why": "spam", "operator": "ada"}));
    let first = w.ok("PUT", place, suspend()).await;
    assert_eq!(w.send("PUT", "/v1/video/targets/p1/like/u1", None).await.0, 403, "refused at once");
    assert_eq!(w.ok("PUT", place, suspend()).await["run"], first["run"]);
    assert_eq!(w.ended(&first).await["changed"], 40);
    for n in [0, 39] {
        w.shows(&format!("p{n}"), 1).await;
        let list = w.ok("GET", &format!("/v1/video/targets/p{n}/like"), None).await;
        assert_eq!((list["members"].as_array().unwrap().len(), &list["members"][0]["member"]), (1, &json!("u2")));
    }
    assert_eq!(w.ok("DELETE", "/v1/video/targets/p39/like/u1", None).await["outcome"], "applied");
    let active = w.ok("PUT", place, Some(json!({"status": "active", "why": "appeal", "operator": "ada"}))).await;
    assert_eq!(w.ended(&active).await["changed"], 40);
    w.shows("p0", 2).await;
    w.shows("p39", 1).await;
    assert_eq!(w.send("PUT", "/v1/video/targets/p39/like/u1", None).await.0, 200);
    w.verified().await;
}

/// LD-8: no late event brings the number of a gone target back, and nothing drifts below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gone_target_stays_gone_whatever_is_still_on_its_way() {
    let dir = tempfile::tempdir().unwrap();
    let w = start(&config(&dir)).await;
    w.ok("PUT", "/v1/ops/mode", Some(json!({"pause": ["aggregator", "sweep"], "why": "to hold events back"}))).await;
    w.like_all("p1", (0..1000).map(|n| format!("u{n}"))).await;
    w.like_all("p2", ["u1".to_owned()].into_iter()).await;
    let place = "/v1/ops/targets/video/p1/status";
    assert_eq!(w.send("PUT", place, Some(json!({"status": "suspended", "why": "x"}))).await.0, 400);
    assert_eq!(w.send("PUT", place, Some(json!({"status": "gone", "why": " "}))).await.0, 400);
    let set = w.ok("PUT", place, Some(json!({"status": "gone", "why": "deleted"}))).await;
    assert_eq!((&set["status"], &set["before"], &set["run"]), (&json!("gone"), &json!("open"), &Value::Null));
    w.ok("PUT", "/v1/ops/mode", Some(json!({"resume": ["aggregator", "sweep"], "why": "go"}))).await;
    w.shows("p2", 1).await;
    assert_eq!(w.send("GET", "/v1/video/targets/p1", None).await.0, 410);
    assert_eq!(w.send("PUT", "/v1/video/targets/p1/like/new", None).await.0, 410);
    let top = w.ok("GET", "/v1/ops/top?namespace=video&kind=like", None).await;
    assert_eq!(top, json!([{"target": "p2", "total": 1, "choices": {"like": 1}}]));
    w.verified().await;
    w.ok("PUT", place, Some(json!({"status": "open", "why": "restored"}))).await;
    w.shows("p1", 1000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_on_in_the_next_process_and_modes_stay_set() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir);
    let members: Vec<String> = (0..6000).map(|n| format!("u{n}")).collect();
    let w = start(&config).await;
    w.like_all("p1", members.iter().cloned()).await;
    let run = w.ok("POST", "/v1/ops/hide", Some(hide("p1", &members, "moderation"))).await;
    let path = format!("/v1/ops/hide-runs/{}", run["id"].as_str().unwrap());
    while w.ok("GET", &path, None).await["done"] == 0 {
        tokio::task::yield_now().await;
    }
    w.ok("PUT", "/v1/ops/mode", Some(json!({"mode": "read-only", "pause": ["rebuild"], "why": "moving"}))).await;
    let World { router, registry, parts } = w;
    drop((router, registry)); // The directory is free once nobody holds the store any more.
    parts.stop(Duration::from_secs(5)).await;
    let w = start(&config).await;
    let set = w.ok("GET", "/v1/ops/mode", None).await;
    assert_eq!(
        (&set["mode"], &set["why"], &set["paused"][0]["part"]),
        (&json!("read-only"), &json!("moving"), &json!("rebuild"))
    );
    assert_eq!((w.metric("tally_mode", "read-only"), w.metric("tally_paused", "rebuild")), (1.0, 1.0));
    assert_eq!(w.send("PUT", "/v1/video/targets/p1/like/x", None).await.0, 503);
    assert_eq!(w.ok("GET", &path, None).await["state"], "running", "it waits while nothing may be written");
    w.ok("PUT", "/v1/ops/mode", Some(json!({"mode": "normal", "resume": ["rebuild"], "why": "moved"}))).await;
    let ended = w.ended(&run).await;
    assert_eq!((&ended["state"], &ended["changed"], &ended["done"]), (&json!("done"), &json!(6000), &json!(6000)));
    w.shows("p1", 0).await;
    w.verified().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_is_listed_filtered_and_exported() {
    let dir = tempfile::tempdir().unwrap();
    let w = start(&config(&dir)).await;
    for n in 0..7 {
        let body = json!({"status": "closed", "why": "quiet", "operator": if n % 2 == 0 { "ada" } else { "eve" }});
        w.ok("PUT", &format!("/v1/ops/targets/video/p{n}/status"), Some(body)).await;
    }
    w.ok("PUT", "/v1/ops/mode", Some(json!({"mode": "shed", "why": "load", "operator": "eve"}))).await;
    let page = w.ok("GET", "/v1/ops/audit?limit=3", None).await;
    assert_eq!(page["entries"].as_array().unwrap().len(), 3);
    assert_eq!((&page["entries"][0]["action"], &page["entries"][0]["after"]["mode"]), (&json!("set-mode"), &json!("shed")));
    let next = page["next"].as_str().unwrap();
    assert_eq!(
        w.ok("GET", &format!("/v1/ops/audit?limit=200&cursor={next}"), None).await["entries"].as_array().unwrap().len(),
        5
    );
    let ada = w.ok("GET", "/v1/ops/audit?operator=ada&action=set-status", None).await;
    assert_eq!(ada["entries"].as_array().unwrap().len(), 4);
    let Value::String(export) = w.ok("GET", "/v1/ops/audit?format=ndjson", None).await else { panic!("one document") };
    let lines: Vec<Value> = export.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((lines.len(), &lines[7]["on"], &lines[7]["key"]), (8, &json!("target video/p0"), &json!("local")));
    assert_eq!(w.send("GET", "/v1/ops/audit?format=xml", None).await.0, 400);
}

/// Likes, 16 at a time, until told to stop: how many, the median and the 99th percentile.
async fn likes(w: &World, label: &str, stop: &dyn Fn() -> bool) -> (usize, Duration, Duration) {
    let mut times = Vec::new();
    let mut n = 0;
    while !stop() {
        let paths = (n..n + 16).map(|i| format!("/v1/video/targets/t{}/like/{label}{i}", i % 500));
        let each = paths.map(|path| async move {
            let watch = Stopwatch::start();
            w.ok("PUT", &path, None).await;
            watch.elapsed()
        });
        times.extend(futures::future::join_all(each).await);
        n += 16;
    }
    times.sort_unstable();
    (times.len(), times[times.len() / 2], times[times.len() * 99 / 100])
}

/// 100,000 facts while others like: seconds, and the likes' p99 beside it and without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: cargo test -p tally a_hundred_thousand -- --ignored --nocapture"]
async fn a_hundred_thousand_facts_are_hidden_beside_traffic() {
    let dir = tempfile::tempdir().unwrap();
    let w = start(&config(&dir)).await;
    let members: Vec<String> = (0..100_000).map(|n| format!("u{n}")).collect();
    w.like_all("big", members.iter().cloned()).await;
    w.shows("big", 100_000).await;
    let watch = Stopwatch::start();
    let alone = likes(&w, "a", &|| watch.elapsed() > Duration::from_secs(5)).await;
    let run = w.ok("POST", "/v1/ops/hide", Some(hide("big", &members, "fraud"))).await;
    let watch = Stopwatch::start();
    let done = std::sync::atomic::AtomicBool::new(false);
    let seen = || done.load(std::sync::atomic::Ordering::Relaxed);
    let (beside, ended) = tokio::join!(likes(&w, "b", &seen), async {
        let ended = w.ended(&run).await;
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        (ended, watch.elapsed())
    });
    let (ended, took) = ended;
    assert_eq!(ended["changed"], 100_000);
    println!("100,000 hidden in {took:?}; likes, 16 at a time (number, p50, p99): alone {alone:?}, beside {beside:?}");
    w.shows("big", 0).await;
}
