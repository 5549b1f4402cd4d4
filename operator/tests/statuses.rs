//! Statuses, suspensions with their runs, and the audit log.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use common::{World, key, target, user, who};
use schema::{Reason, Register, Status, StatusKey};
use serde_json::json;
use tally_operator::{AuditFilter, Order, RunState, SetStatus, What};

fn set(key: StatusKey, status: Status) -> SetStatus {
    SetStatus { key, status }
}

/// Targets and kinds whose fact of `u1` is hidden for a suspension, with the choice beside it.
async fn hidden(w: &World) -> Vec<(String, u8, u8)> {
    let mut out = Vec::new();
    for (t, k) in FACTS {
        let fact = w.protocol.facts(&[key(t, k, "u1")]).await.unwrap()[0];
        out.push((format!("{t} {k}"), fact.choice.choice, fact.hides[Reason::Suspension as usize].value));
    }
    out
}

const FACTS: [(&str, &str); 13] = [
    ("p0", "like"),
    ("p1", "like"),
    ("p2", "like"),
    ("p3", "like"),
    ("p4", "like"),
    ("p5", "like"),
    ("p6", "like"),
    ("p0", "bookmark"),
    ("p1", "bookmark"),
    ("p2", "reaction"),
    ("late", "like"),
    ("late", "bookmark"),
    ("withdrawn", "like"),
];

async fn setup(fused: bool) -> World {
    let w = World::new(fused).await;
    for (t, k) in &FACTS[..10] {
        w.write_kind(t, k, "u1", Register::Choice, 1).await;
    }
    w.write_kind("withdrawn", "like", "u1", Register::Choice, 1).await;
    w.write_kind("withdrawn", "like", "u1", Register::Choice, 0).await;
    w.write_kind("p3", "like", "u1", Register::Hide(Reason::Suspension), 1).await;
    w.like("p0", "u2").await;
    w
}

/// AC-2, cut off anywhere: everything that counts is hidden, and comes back exactly.
#[tokio::test]
async fn suspending_hides_every_fact_of_a_user_and_activating_takes_exactly_that_back() {
    let user = StatusKey::User(user("u1"));
    for fused in [true, false] {
        for cut in (0..).step_by(5) {
            let w = setup(fused).await;
            let start = hidden(&w).await;
            let changed = w.operator.set_status(&who(), &set(user.clone(), Status::Suspended)).await.unwrap();
            assert_eq!((changed.before, changed.row.status), (Status::Active, Status::Suspended));
            assert!(w.writer.told.lock().unwrap().contains(&user), "it counts at once");
            let run = changed.run.unwrap();
            let mut whole = w.cut_off_after(cut).await;
            let w = w.reopened().await;
            w.finish().await;
            let ended = w.operator.get(run.id).await.unwrap();
            assert_eq!((ended.state, ended.totals.changed, ended.totals.unchanged), (RunState::Done, 9, 1), "cut at {cut}");
            for ((what, choice, hides), before) in hidden(&w).await.into_iter().zip(&start) {
                assert_eq!((choice, hides), (before.1, u8::from(choice != 0)), "cut at {cut}: {what}");
            }
            // Twice in a row: still the same run.
            let again = w.operator.set_status(&who(), &set(user.clone(), Status::Suspended)).await.unwrap();
            assert_eq!((again.before, again.run.unwrap().id), (Status::Suspended, run.id));
            assert!(w.operator.undo(&who(), run.id).await.is_err(), "a suspension ends with its status");
            let active = w.operator.set_status(&who(), &set(user.clone(), Status::Active)).await.unwrap();
            assert_eq!(active.run.unwrap().what, What::Undo { run: run.id, members: 9 });
            whole &= w.cut_off_after(cut).await;
            let w = w.reopened().await;
            w.finish().await;
            assert_eq!(hidden(&w).await, start, "fused: {fused}, cut at {cut}");
            assert_eq!(w.protocol.statuses(std::slice::from_ref(&user)).await.unwrap(), [Status::Active]);
            assert_eq!(w.operator.set_status(&who(), &set(user.clone(), Status::Active)).await.unwrap().run, None);
            // Without a sweep beside it a run over journal and facts apart waits for the watermark.
            if whole || !fused && cut > 600 {
                break;
            }
            assert!(cut < 5000, "it never ends");
        }
    }
}

/// Requests that were admitted before may still land; the run waits for them and walks once more.
#[tokio::test]
async fn a_like_that_lands_after_the_first_walk_is_hidden_by_the_second() {
    let w = setup(true).await;
    let run = w.operator.set_status(&who(), &set(StatusKey::User(user("u1")), Status::Suspended)).await.unwrap().run.unwrap();
    w.run_until(async || w.operator.get(run.id).await.unwrap().totals.done == 10).await;
    w.write_kind("late", "like", "u1", Register::Choice, 1).await;
    w.write_kind("late", "bookmark", "u1", Register::Choice, 1).await;
    w.finish().await;
    let late: Vec<_> = hidden(&w).await.into_iter().filter(|(what, ..)| what.starts_with("late")).collect();
    assert!(late.iter().all(|(_, choice, hides)| (*choice, *hides) == (1, 1)), "{late:?}");
    let ended = w.operator.get(run.id).await.unwrap();
    assert!(ended.ended.unwrap() - ended.status.unwrap().version >= 6_000_000, "deadline and age of a status");
}

#[tokio::test]
async fn activating_while_the_suspension_still_runs_ends_it_and_takes_it_back() {
    let w = setup(true).await;
    let start = hidden(&w).await;
    let user = StatusKey::User(user("u1"));
    let run = w.operator.set_status(&who(), &set(user.clone(), Status::Suspended)).await.unwrap().run.unwrap();
    w.run_until(async || w.operator.get(run.id).await.unwrap().totals.done > 0).await;
    w.operator.set_status(&who(), &set(user.clone(), Status::Active)).await.unwrap();
    // And at once again: three runs in a row, each in its turn.
    let second = w.operator.set_status(&who(), &set(user.clone(), Status::Suspended)).await.unwrap().run.unwrap();
    assert_ne!(second.id, run.id);
    w.operator.set_status(&who(), &set(user.clone(), Status::Active)).await.unwrap();
    w.finish().await;
    assert_eq!(w.operator.get(run.id).await.unwrap().state, RunState::Cancelled);
    assert_eq!(hidden(&w).await, start);
    assert_eq!(w.protocol.statuses(&[user]).await.unwrap(), [Status::Active]);
}

#[tokio::test]
async fn a_cancelled_suspension_goes_on_when_it_is_asked_for_again() {
    let w = setup(true).await;
    let user = StatusKey::User(user("u1"));
    let run = w.operator.set_status(&who(), &set(user.clone(), Status::Suspended)).await.unwrap().run.unwrap();
    w.run_until(async || w.operator.get(run.id).await.unwrap().totals.done > 0).await;
    w.operator.cancel(&who(), run.id).await.unwrap();
    w.finish().await;
    assert_eq!(w.operator.get(run.id).await.unwrap().state, RunState::Cancelled);
    let again = w.operator.set_status(&who(), &set(user.clone(), Status::Suspended)).await.unwrap().run.unwrap();
    assert_eq!(again.id, run.id);
    w.finish().await;
    let ended = w.operator.get(run.id).await.unwrap();
    assert_eq!((ended.state, ended.totals.changed), (RunState::Done, 9));
}

#[tokio::test]
async fn a_users_facts_are_hidden_for_any_reason_and_a_status_that_does_not_fit_is_refused() {
    let w = setup(true).await;
    let run = w.operator.order(&who(), Order::User { user: user("u1") }, Reason::Fraud, true).await.unwrap();
    w.finish().await;
    let ended = w.operator.get(run.id).await.unwrap();
    assert_eq!((ended.state, ended.totals.done, ended.totals.changed), (RunState::Done, 10, 10));
    assert_eq!(w.protocol.facts(&[key("p0", "like", "u2")]).await.unwrap()[0].counted(), 1, "nobody else's");
    for (key, status) in [
        (StatusKey::User(user("u1")), Status::Gone),
        (StatusKey::User(user("u1")), Status::Open),
        (StatusKey::Target(target("p1")), Status::Suspended),
    ] {
        assert!(w.operator.set_status(&who(), &set(key, status)).await.is_err());
    }
}

#[tokio::test]
async fn every_action_is_in_the_audit_log_with_what_was_so_before() {
    let w = setup(true).await;
    let p1 = StatusKey::Target(target("p1"));
    w.operator.set_status(&who(), &set(p1.clone(), Status::Closed)).await.unwrap();
    w.operator.set_status(&tally_operator::Who { operator: None, ticket: None, ..who() }, &set(p1, Status::Gone)).await.unwrap();
    let order = Order::Members { target: target("p1"), kind: common::kind("like"), members: vec![common::member("u1")] };
    let run = w.operator.order(&who(), order, Reason::Moderation, true).await.unwrap();
    w.finish().await;
    w.operator.undo(&who(), run.id).await.unwrap();
    let all = w.operator.audit_page(&AuditFilter::default(), None, 100).await.unwrap();
    assert_eq!(all.next, None);
    let told: Vec<&str> = all.entries.iter().map(|e| e.action.as_str()).collect();
    assert_eq!(told, ["undo", "hide", "set-status", "set-status"], "newest first");
    let gone = &all.entries[2];
    assert_eq!(
        (&gone.before, &gone.after, &gone.on[..], &gone.operator),
        (&json!("closed"), &json!("gone"), "target video/p1", &None)
    );
    assert_eq!((&all.entries[1].ticket, &all.entries[1].why[..]), (&Some("T-1".to_owned()), "bought"));
    assert_eq!(all.entries[1].after["run"], json!(run.id.to_string()));
    // By pages of one, with each filter.
    for (operator, action, want) in [
        (None, None, 4),
        (Some("ada"), None, 3),
        (Some("local"), None, 4),
        (Some("ada"), Some("set-status"), 1),
        (Some("eve"), None, 0),
    ] {
        let filter = AuditFilter { operator: operator.map(str::to_owned), action: action.map(str::to_owned) };
        let (mut found, mut after) = (0, None);
        loop {
            let page = w.operator.audit_page(&filter, after, 1).await.unwrap();
            found += page.entries.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, want, "{operator:?} {action:?}");
    }
}
