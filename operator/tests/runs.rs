//! Runs that hide, show and undo: exact wherever they are cut off.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use common::{World, all_facts, fact, member, who};
use schema::{Reason, Register};
use tally_operator::{Order, Refused, RunState, Totals, What};

/// Members of the runs below: some like, one is hidden already, two have no fact.
const MEMBERS: [&str; 11] = ["u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8", "new1", "new2"];

async fn setup(fused: bool) -> World {
    let w = World::new(fused).await;
    for user in &MEMBERS[..9] {
        w.like("p1", user).await;
    }
    w.write("p1", "u3", Register::Hide(Reason::Moderation), 1).await;
    w.write("p1", "u4", Register::Hide(Reason::Fraud), 1).await;
    w
}

fn order() -> Order {
    Order::Members { target: common::target("p1"), kind: common::kind("like"), members: MEMBERS.map(member).into() }
}

#[tokio::test]
async fn a_run_that_is_cut_off_at_any_await_ends_as_if_it_had_not_been() {
    for fused in [true, false] {
        let (mut cut, mut whole) = (0, false);
        while !whole {
            let w = setup(fused).await;
            let before = all_facts(&w, "p1", &MEMBERS).await;
            let run = w.operator.order(&who(), order(), Reason::Moderation, true).await.unwrap();
            whole = w.cut_off_after(cut).await;
            let after = World::reopened(&w).await;
            after.finish().await;
            let done = after.operator.get(run.id).await.unwrap();
            let totals = Totals { done: 11, changed: 10, unchanged: 1, ..Totals::default() };
            assert_eq!((done.state, done.totals), (RunState::Done, totals), "fused: {fused}, cut at {cut}");
            for (m, fact) in MEMBERS.iter().zip(all_facts(&after, "p1", &MEMBERS).await) {
                assert_eq!(fact.hides[Reason::Moderation as usize].value, 1, "fused: {fused}, cut at {cut}: {m}");
            }
            // The undo is cut off at the same await, where it has so many.
            let undo = after.operator.undo(&who(), run.id).await.unwrap();
            whole &= after.cut_off_after(cut).await;
            let last = World::reopened(&after).await;
            last.finish().await;
            let undone = last.operator.get(undo.id).await.unwrap();
            let totals = Totals { done: 10, changed: 10, ..Totals::default() };
            assert_eq!((undone.state, undone.totals), (RunState::Done, totals), "fused: {fused}, cut at {cut}");
            for ((m, before), after) in MEMBERS.iter().zip(before).zip(all_facts(&last, "p1", &MEMBERS).await) {
                let values = |f: &schema::Fact| (f.choice, f.hides.map(|h| h.value));
                assert_eq!(values(&after), values(&before), "fused: {fused}, cut at {cut}: {m}");
            }
            assert!(cut < 2000, "it never ends");
            cut += 1;
        }
        println!("fused: {fused}: cut off at each of {cut} awaits");
    }
}

/// Lets `work` go on for so many awaits, and drops it; whether it had ended.
async fn cut_off_after<T>(work: impl Future<Output = T>, awaits: usize) -> bool {
    let mut work = std::pin::pin!(work);
    for _ in 0..=awaits {
        if futures::poll!(work.as_mut()).is_ready() {
            return true;
        }
    }
    false
}

/// An order, and an order to undo, that nobody got an answer to: there is no run, or one that ends.
#[tokio::test]
async fn an_order_that_is_cut_off_at_any_await_leaves_no_run_that_waits_for_ever() {
    let (mut cut, mut whole) = (0, false);
    while !whole {
        let w = setup(false).await;
        whole = cut_off_after(w.operator.order(&who(), order(), Reason::Moderation, true), cut).await;
        let after = World::reopened(&w).await;
        after.finish().await;
        let listed = after.operator.list(None, 10, |_| true).await.unwrap().runs;
        assert!(listed.len() <= 1 && listed.iter().all(|run| run.state == RunState::Done), "cut at {cut}: {listed:?}");
        if let Some(run) = listed.first() {
            whole &= cut_off_after(after.operator.undo(&who(), run.id), cut).await;
            let last = World::reopened(&after).await;
            last.finish().await;
            let listed = last.operator.list(None, 10, |_| true).await.unwrap().runs;
            assert!(listed.iter().all(|run| run.state == RunState::Done), "the undo cut at {cut}: {listed:?}");
        }
        assert!(cut < 2000, "it never ends");
        cut += 1;
    }
    assert!(cut > 5, "it was cut off {cut} times only");
}

#[tokio::test]
async fn an_undo_leaves_alone_what_was_written_since() {
    let w = setup(true).await;
    let run = w.operator.order(&who(), order(), Reason::Fraud, true).await.unwrap();
    w.finish().await;
    let again =
        |user: &str| Order::Members { target: common::target("p1"), kind: common::kind("like"), members: vec![member(user)] };
    w.operator.order(&who(), again("u1"), Reason::Fraud, false).await.unwrap();
    let hidden_again = w.operator.order(&who(), again("u1"), Reason::Fraud, true).await.unwrap();
    w.finish().await;
    let undo = w.operator.undo(&who(), run.id).await.unwrap();
    assert_eq!(undo.what, What::Undo { run: run.id, members: 10 });
    w.finish().await;
    let totals = w.operator.get(undo.id).await.unwrap().totals;
    assert_eq!((totals.changed, totals.superseded), (9, 1));
    let value = async |user: &str| fact(&w, "p1", user).await.hides[Reason::Fraud as usize].value;
    assert_eq!((value("u0").await, value("u1").await, value("u4").await, value("new1").await), (0, 1, 1, 0));
    // An undo can be undone, and a second one of the same run is refused.
    assert!(matches!(w.operator.undo(&who(), run.id).await, Err(Refused::Conflict(text)) if text.contains(&undo.id.to_string())));
    w.operator.undo(&who(), undo.id).await.unwrap();
    w.operator.undo(&who(), hidden_again.id).await.unwrap();
    w.finish().await;
    assert_eq!((value("u0").await, value("u1").await, value("new1").await), (1, 0, 1));
}

/// MR-1: hidden and shown again and again, the register says what the last run said.
#[tokio::test]
async fn hiding_and_showing_in_turn_ends_as_the_last_run_said() {
    let w = setup(true).await;
    for n in 0..25 {
        let run = w.operator.order(&who(), order(), Reason::Moderation, n % 2 == 0).await.unwrap();
        w.finish().await;
        assert_eq!(w.operator.get(run.id).await.unwrap().state, RunState::Done);
    }
    let facts = all_facts(&w, "p1", &MEMBERS).await;
    assert!(facts.iter().all(|f| f.hides[Reason::Moderation as usize].value == 1));
    w.operator.order(&who(), order(), Reason::Moderation, false).await.unwrap();
    w.finish().await;
    let facts = all_facts(&w, "p1", &MEMBERS).await;
    assert!(facts.iter().all(|f| f.hides[Reason::Moderation as usize].value == 0));
    assert_eq!(facts[0].counted(), 1);
}

#[tokio::test]
async fn a_cancelled_run_stops_at_a_chunk_and_its_undo_takes_back_what_it_did() {
    let w = setup(true).await;
    let run = w.operator.order(&who(), order(), Reason::Moderation, true).await.unwrap();
    // Cut off where the first chunk is written, so that the rest is still to do.
    w.run_until(async || w.operator.get(run.id).await.unwrap().totals.done > 0).await;
    w.operator.cancel(&who(), run.id).await.unwrap();
    w.finish().await;
    let ended = w.operator.get(run.id).await.unwrap();
    assert_eq!(ended.state, RunState::Cancelled);
    assert!(ended.totals.done > 0 && ended.totals.done < MEMBERS.len() as u64, "{:?}", ended.totals);
    assert!(matches!(w.operator.cancel(&who(), run.id).await, Err(Refused::Conflict(_))));
    w.operator.undo(&who(), run.id).await.unwrap();
    w.finish().await;
    let hidden: Vec<u8> = all_facts(&w, "p1", &MEMBERS).await.iter().map(|f| f.hides[0].value).collect();
    assert_eq!(hidden, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn orders_that_cannot_be_right_are_refused_by_field_and_too_many_wait_outside() {
    let w = setup(true).await;
    let members = |members: Vec<schema::Member>, kind: &str| Order::Members {
        target: common::target("p1"),
        kind: common::kind(kind),
        members,
    };
    let many: Vec<_> = (0..100_001).map(|n| member(&format!("m{n}"))).collect();
    for (order, who, field) in [
        (members(vec![], "like"), who(), "members"),
        (members(many, "like"), who(), "members"),
        (members(vec![member("u1")], "nothing"), who(), "kind"),
        (order(), tally_operator::Who { why: " ".into(), ..who() }, "why"),
        (order(), tally_operator::Who { ticket: Some("x".repeat(500)), ..who() }, "ticket"),
    ] {
        let refused = w.operator.order(&who, order, Reason::Fraud, true).await;
        assert!(matches!(&refused, Err(Refused::Bad { field: told, .. }) if *told == field), "{field}: {refused:?}");
    }
    for _ in 0..common::QUEUE {
        w.operator.order(&who(), order(), Reason::Fraud, true).await.unwrap();
    }
    assert_eq!(w.operator.order(&who(), order(), Reason::Fraud, true).await.unwrap_err(), Refused::Full(common::QUEUE));
    assert_eq!(w.operator.undo(&who(), 7).await.unwrap_err(), Refused::NoRun(7));
    w.finish().await;
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = w.operator.list(after, 2, |_| true).await.unwrap();
        found.extend(page.runs);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found.len(), common::QUEUE);
    assert!(found.windows(2).all(|w| w[0].id > w[1].id) && found.iter().all(|run| run.state == RunState::Done));
}
