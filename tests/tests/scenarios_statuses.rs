//! Scenarios of targets that are closed or gone, users that are suspended, and comments that are approved
//! or not (docs/scenarios.md), by the operators' routes of the real server.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{thread, time::Duration};

use serde_json::{Value, json};
use store::clock::Stopwatch;
use tally_tests::scenario::{
    root,
    served::{Served, like_path, target_path},
};

/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn ops(served: &Served, method: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = served.ask(method, &format!("/v1/ops/{path}"), Some(&body.to_string()));
    assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    answer
}

/// Waits for the end of a run, if `answer` names one.
fn ended(served: &Served, answer: &Value) {
    let Some(id) = answer["id"].as_str().or(answer["run"].as_str()) else { return };
    let watch = Stopwatch::start();
    loop {
        let run = served.ok("GET", &format!("/v1/ops/hide-runs/{id}"));
        if run["state"] == "done" {
            return;
        }
        assert!(watch.elapsed() < PATIENCE, "{run}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn set_status(served: &Served, place: &str, status: &str) {
    let set = ops(served, "PUT", &format!("{place}/status"), &json!({ "status": status, "why": "a trial" }));
    ended(served, &set);
}

fn like(served: &Served, target: &str, users: impl Iterator<Item = usize>) {
    let facts: Vec<Value> = users.map(|i| json!({ "target": target, "kind": "like", "user": format!("u{i}") })).collect();
    let (status, answer) = served.ask("POST", "/v1/t/facts", Some(&json!({ "facts": facts }).to_string()));
    assert_eq!(status, 200, "{answer}");
    assert!(answer["results"].as_array().unwrap().iter().all(|r| r["outcome"] == "applied"), "{answer}");
}

/// A thousand events of a target are still on their way when it is deleted; a restart plays the journal
/// back besides. Nobody is shown a number of it again, and nothing below drifts.
#[test]
fn ld_8_late_events_bring_no_count_of_a_gone_target_back() {
    let mut served = Served::default();
    ops(&served, "PUT", "mode", &json!({ "pause": ["aggregator", "sweep"], "why": "events are held back" }));
    for part in 0..2 {
        like(&served, "p1", 500 * part..500 * (part + 1));
    }
    like(&served, "p2", 0..1);
    set_status(&served, "targets/t/p1", "gone");
    let gone = |served: &Served| {
        for path in [target_path("p1"), format!("{}/like", target_path("p1"))] {
            assert_eq!(served.ask("GET", &path, None).0, 410, "{path}");
        }
        let body = json!({ "targets": ["p1", "p2"], "kinds": ["like"] }).to_string();
        let (_, answer) = served.ask("POST", "/v1/t/counts", Some(&body));
        assert_eq!(answer["targets"]["p1"]["problem"]["status"], 410, "{answer}");
        let top = served.ok("GET", "/v1/ops/top?namespace=t&kind=like");
        assert!(top.as_array().unwrap().iter().all(|entry| entry["target"] != "p1"), "{top}");
    };
    gone(&served);
    served.restart();
    gone(&served);
    ops(&served, "PUT", "mode", &json!({ "resume": ["aggregator", "sweep"], "why": "go on" }));
    served.counted("p2", "like", 1);
    let watch = Stopwatch::start();
    // Below, where only operators look, it is counted all the same.
    let below = "/v1/ops/explain?namespace=t&target=p1&kind=like&member=u999";
    while served.ok("GET", below)["counted"] != true {
        gone(&served);
        assert!(watch.elapsed() < PATIENCE, "what was on its way is not counted: {}", served.ok("GET", below));
    }
    gone(&served);
    // Taken back meanwhile, and there again once the target is.
    assert_eq!(served.ok("DELETE", &like_path("p1", "u0"))["outcome"], "applied");
    set_status(&served, "targets/t/p1", "open");
    served.counted("p1", "like", 999);
    set_status(&served, "targets/t/p1", "gone");
    gone(&served);
    assert_eq!(served.rest(0).live(&root("p1", "like")).len(), 999, "facts are kept, whatever readers are shown");
}

/// On a target that is closed or gone, and by a user who is suspended: new likes are refused and leave
/// nothing, alone and in a batch; old ones can be taken back.
#[test]
fn ac_4_new_likes_on_what_is_hidden_are_refused_and_old_ones_taken_back() {
    let served = Served::default();
    for (target, others) in [("closed", 3), ("gone", 12), ("open", 3)] {
        like(&served, target, 1..others);
        served.counted(target, "like", others as i64 - 1);
    }
    set_status(&served, "targets/t/closed", "closed");
    set_status(&served, "targets/t/gone", "gone");
    set_status(&served, "users/t/u2", "suspended");
    for (target, who, refusal) in [("closed", "new", 403), ("gone", "new", 410), ("open", "u2", 403), ("other", "u2", 403)] {
        let (status, answer) = served.ask("PUT", &like_path(target, who), None);
        assert_eq!(status, refusal, "{target} {who}: {answer}");
        let item = |target: &str, user: &str| json!({ "target": target, "kind": "like", "user": user });
        let body = json!({ "facts": [item(target, who), item("open", "u1")] }).to_string();
        let (status, answer) = served.ask("POST", "/v1/t/facts", Some(&body));
        let results = &answer["results"];
        assert_eq!((status, &results[0]["outcome"], &results[1]["outcome"]), (200, &json!("rejected"), &json!("unchanged")));
        assert_eq!(results[0]["problem"]["status"], refusal, "{answer}");
    }
    served.counted("closed", "like", 1); // Without the suspended one's.
    for (target, who) in [("closed", "u1"), ("gone", "u1"), ("open", "u2"), ("closed", "u2")] {
        assert_eq!(served.ok("DELETE", &like_path(target, who))["outcome"], "applied", "{target} {who}");
    }
    set_status(&served, "users/t/u2", "active");
    for (target, left) in [("closed", 0), ("open", 1), ("gone", 10)] {
        set_status(&served, &format!("targets/t/{target}"), "open");
        served.counted(target, "like", left);
        assert_eq!(served.listed(target, "like").len() as i64, left);
    }
    let facts = served.rest(0);
    assert_eq!(facts.rows(&root("other", "like")), 0, "what was refused left nothing");
    assert_eq!((facts.rows(&root("closed", "like")), facts.rows(&root("gone", "like"))), (2, 11));
}

/// Pending, approved, unapproved, approved, spam, restored: a comment counts while it is approved, and the
/// list says the same at each step. There is one truth for all viewers: what does not count is listed for
/// nobody, and whoever asks for the comment's own state is told why.
#[test]
fn mr_2_what_is_not_approved_is_neither_counted_nor_listed_at_any_step() {
    let served = Served::default();
    let hide = |target: &str, reason: &str, hidden: bool| {
        let body = json!({
            "namespace": "t", "target": target, "kind": "comment", "members": ["mine"], "reason": reason, "why": "moderation",
        });
        let run = ops(&served, "POST", if hidden { "hide" } else { "show" }, &body);
        ended(&served, &run);
        run["id"].as_str().unwrap().to_owned()
    };
    for (target, others) in [("small", 2_i64), ("large", 12)] {
        for i in 0..others {
            served.ok("PUT", &format!("{}/comment/c{i}", target_path(target)));
        }
        let step = |name: &str, reasons: &[&str]| {
            let visible = reasons.is_empty();
            served.counted(target, "comment", others + i64::from(visible));
            let listed = served.listed(target, "comment");
            assert_eq!(listed.len() as i64, others + i64::from(visible), "{target} {name}");
            assert_eq!(listed.iter().any(|member| member == "mine"), visible, "{target} {name}");
            let state = served.ok("GET", &format!("{}/comment/mine", target_path(target)));
            assert_eq!((&state["choice"], &state["hidden"]), (&json!("comment"), &json!(reasons)), "{target} {name}");
        };
        // Pending: hidden before it is there, so that it never counts, not even for a moment.
        hide(target, "moderation", true);
        served.ok("PUT", &format!("{}/comment/mine", target_path(target)));
        step("pending", &["moderation"]);
        hide(target, "moderation", false);
        step("approved", &[]);
        hide(target, "moderation", true);
        step("unapproved", &["moderation"]);
        hide(target, "moderation", false);
        step("approved again", &[]);
        let spam = hide(target, "fraud", true);
        step("spam", &["fraud"]);
        // A second reason, and a second removal for the same: neither is undone by the other's undo.
        hide(target, "moderation", true);
        let again = hide(target, "fraud", true);
        let undo =
            |run: &str| ended(&served, &ops(&served, "POST", &format!("hide-runs/{run}/undo"), &json!({ "why": "appeal" })));
        undo(&again);
        step("the second removal is undone", &["moderation", "fraud"]);
        hide(target, "moderation", false);
        undo(&spam);
        // The second removal wrote after the first: what it left is no longer the first one's.
        step("the first is undone too late", &["fraud"]);
        hide(target, "fraud", false);
        step("restored", &[]);
    }
    let facts = served.rest(0);
    assert_eq!((facts.live(&root("small", "comment")).len(), facts.live(&root("large", "comment")).len()), (3, 13));
}
