//! Runs are forgotten some time after their end, and none that anybody still needs.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use common::{World, fact, member, user, who};
use schema::{Reason, Status, StatusKey};
use tally_operator::{Order, Refused, Run, RunState, SetStatus, What};

const DAY: Duration = Duration::from_secs(86_400);

fn order(members: &[&str]) -> Order {
    let members = members.iter().map(|m| member(m)).collect();
    Order::Members { target: common::target("p1"), kind: common::kind("like"), members }
}

async fn hide(w: &World, members: &[&str]) -> Run {
    let run = w.operator.order(&who(), order(members), Reason::Fraud, true).await.unwrap();
    w.finish().await;
    w.operator.get(run.id).await.unwrap()
}

async fn listed(w: &World) -> Vec<u64> {
    w.operator.list(None, 100, |_| true).await.unwrap().runs.iter().map(|run| run.id).collect()
}

/// Whether anything of a run is stored: its record, its members, its chunks.
async fn stored(w: &World, id: u64) -> usize {
    let engine = w.protocol.engine();
    let mut found = engine.list_meta(&format!("hide-run/{id:016x}"), 10).await.unwrap().len();
    for log in ["hide-members", "hide-chunks"] {
        found += engine.page_log(&format!("{log}/{id:016x}"), false, None, 10).await.unwrap().0.len();
    }
    found
}

async fn set(w: &World, status: Status) -> Run {
    let set = SetStatus { key: StatusKey::User(user("u1")), status };
    let run = w.operator.set_status(&who(), &set).await.unwrap().run.unwrap();
    w.finish().await;
    run
}

#[tokio::test]
async fn a_run_is_forgotten_when_it_ended_long_enough_ago_and_says_so() {
    let w = World::new(true).await;
    w.like("p1", "u1").await;
    let old = hide(&w, &["u1", "u2"]).await;
    let never = w.operator.get(7).await;
    assert_eq!(never, Err(Refused::NoRun(7)), "nothing was forgotten yet");
    w.clock.advance(60 * DAY);
    let young = hide(&w, &["u3"]).await;
    assert_eq!(w.operator.forget_old().await, Ok(0));
    assert!(stored(&w, old.id).await > 1);
    w.clock.advance(31 * DAY);
    assert_eq!(w.operator.forget_old().await, Ok(1));
    assert_eq!((listed(&w).await, stored(&w, old.id).await), (vec![young.id], 0));
    let kept = 90 * DAY;
    assert_eq!(w.operator.get(old.id).await, Err(Refused::Forgotten { id: old.id, kept }));
    let undo = w.operator.undo(&who(), old.id).await.unwrap_err();
    assert!(undo.to_string().contains("kept for 2160 h") && undo.to_string().contains("run_retention"), "{undo}");
    assert_eq!(w.operator.get(young.id + 1).await, Err(Refused::NoRun(young.id + 1)));
    assert_eq!(fact(&w, "p1", "u1").await.hides[Reason::Fraud as usize].value, 1, "what it hid stays hidden");
    // The young one can still be undone, and the undo outlives it.
    let undo = w.operator.undo(&who(), young.id).await.unwrap();
    w.clock.advance(80 * DAY);
    assert_eq!(w.operator.forget_old().await, Ok(0), "an undo that waits reads what it undoes");
    w.finish().await;
    assert_eq!(w.operator.forget_old().await, Ok(1));
    let undo = w.operator.get(undo.id).await.unwrap();
    assert_eq!((undo.state, undo.totals.changed), (RunState::Done, 1));
    assert_eq!(w.operator.namespace_of(&undo).await.unwrap().as_deref(), Some("video"));
    let again = w.operator.undo(&who(), undo.id).await.unwrap();
    w.finish().await;
    assert_eq!(w.operator.get(again.id).await.unwrap().totals.changed, 1, "an undo is undone without the run below");
}

#[tokio::test]
async fn what_waits_runs_or_suspends_is_kept_however_old_it_is() {
    let w = World::new(true).await;
    w.like("p1", "u1").await;
    let suspension = set(&w, Status::Suspended).await;
    let waiting = w.operator.order(&who(), order(&["u2"]), Reason::Fraud, true).await.unwrap();
    w.clock.advance(1000 * DAY);
    assert_eq!(w.operator.forget_old().await, Ok(0));
    assert_eq!(listed(&w).await, [waiting.id, suspension.id]);
    w.finish().await;
    assert_eq!(w.operator.forget_old().await, Ok(0), "it has ended just now");
    // Taking the suspension back works as on the first day; then its run is as any other.
    let back = set(&w, Status::Active).await;
    assert_eq!(back.what, What::Undo { run: suspension.id, members: 1 });
    assert_eq!(fact(&w, "p1", "u1").await.hides[Reason::Suspension as usize].value, 0);
    assert_eq!(w.operator.forget_old().await, Ok(1), "the suspension, which ended long ago");
    w.clock.advance(91 * DAY);
    assert_eq!(w.operator.forget_old().await, Ok(2));
    assert_eq!(listed(&w).await, Vec::<u64>::new());
}

#[tokio::test]
async fn forgetting_that_is_cut_off_anywhere_is_finished_by_the_next_pass() {
    let mut cut = 0;
    loop {
        let w = World::new(false).await;
        let runs = [hide(&w, &["u1", "u2", "u3", "u4", "u5"]).await, hide(&w, &["u6"]).await];
        w.clock.advance(91 * DAY);
        let ended = {
            let (mut pass, mut left) = (pin!(w.operator.forget_old()), cut);
            poll_fn(|cx| {
                if pass.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(true);
                }
                if left == 0 {
                    return Poll::Ready(false);
                }
                left -= 1;
                Poll::Pending
            })
            .await
        };
        let after = w.reopened().await;
        after.operator.forget_old().await.unwrap();
        for run in &runs {
            assert_eq!(stored(&after, run.id).await, 0, "cut off at {cut}");
            assert!(matches!(after.operator.get(run.id).await, Err(Refused::Forgotten { .. })), "cut off at {cut}");
        }
        assert_eq!(after.protocol.engine().page_log("hide-runs", false, None, 10).await.unwrap().0.len(), 0);
        if ended {
            println!("cut off at each of {cut} awaits");
            return;
        }
        cut += 1;
        assert!(cut < 1000, "it never ends");
    }
}

#[tokio::test]
async fn pages_of_one_namespace_reach_all_of_its_runs_and_no_other() {
    let w = World::new(true).await;
    let mut runs = Vec::new();
    for n in 0..5 {
        runs.insert(0, hide(&w, &[&format!("u{n}")]).await.id);
    }
    for limit in [1, 2, 5, 100] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = w.operator.list(after, limit, |namespace| namespace == Some("video")).await.unwrap();
            assert!(page.runs.len() <= limit);
            found.extend(page.runs.iter().map(|run| run.id));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, runs, "limit {limit}");
    }
    assert_eq!(w.operator.list(None, 100, |namespace| namespace == Some("article")).await.unwrap().runs, []);
}
