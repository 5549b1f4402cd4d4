//! Scenarios of outcomes that nobody knows, and of clocks that disagree (docs/scenarios.md).

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{collections::BTreeSet, io::Write, net::TcpStream, time::Duration};

use futures::future::{join_all, select};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rebuilder::{Progress, Rebuilder, RebuilderSettings, Scope};
use schema::{Reason, Register};
use store::{
    memory::Faults,
    protocol::{Outcome, WriteRequest},
};
use tally_tests::{
    scenario::{
        fact,
        proxy::Proxy,
        root,
        served::{Served, like_path},
        spy::How,
        watch::Watch,
        world::{Setup, World},
    },
    server::request,
};

/// A tenth of all answers is lost or late, by driver and by caller; both try again.
#[tokio::test]
async fn to_1_unknown_outcomes_and_retries_report_no_conflict_and_lose_nothing() {
    for seed in 0..3 {
        println!("seed {seed}");
        let w = World::new(Setup { seed, ..Setup::default() }).await;
        let faults = Faults {
            answer_lost: 0.1,
            commit_unknown: 0.1,
            unavailable: 0.05,
            reaches: 0.9,
            late: 0.5,
            arrives: 0.1,
            stale: 0.1,
        };
        w.memory().set_faults(faults);
        let watch = Watch::start(&w.processes[0], vec![root("p0", "like"), root("p1", "like")], 0..=150);
        let counting: Vec<_> = w.processes.iter().map(|p| p.keep_counting()).collect();
        let likes = join_all((0..300).map(|i| {
            let (w, i) = (&w, i);
            async move {
                for attempt in 0..50 {
                    let p = &w.processes[(i + attempt) % 2];
                    let answer = p.like(&format!("p{}", i % 2), &format!("u{i}")).await;
                    match answer.outcome {
                        Outcome::Applied | Outcome::Unchanged | Outcome::Accepted => return attempt,
                        Outcome::Unknown(_) | Outcome::Unavailable(_) => {}
                        Outcome::Refused(_) | Outcome::Superseded => panic!("{answer:?}"),
                    }
                }
                panic!("never answered");
            }
        }));
        let retried = likes.await.into_iter().filter(|&n| n > 0).count();
        println!("{retried} were sent again");
        for worker in counting {
            worker.stop().await;
        }
        watch.stop().await;
        let facts = w.rest().await;
        assert_eq!(facts.live(&root("p0", "like")).len() + facts.live(&root("p1", "like")).len(), 300);
    }
}

/// The same on the real server: a tenth of the answers is swallowed, and the client sends again.
#[test]
fn to_1_clients_that_send_again_after_swallowed_answers_are_told_success() {
    let served = Served::default();
    let proxy = Proxy::start(served.address(), |number| number % 10 == 3);
    let mut again = 0;
    for i in 0..150 {
        let path = like_path(&format!("p{}", i % 2), &format!("u{i}"));
        let answer = (0..5).find_map(|_| match request(proxy.address(), "PUT", &path, None) {
            Ok(answer) => Some(answer),
            Err(_) => {
                again += 1;
                None
            }
        });
        let (status, answer) = answer.unwrap();
        assert_eq!((status, answer["choice"].as_str()), (200, Some("like")), "{answer}");
    }
    assert!(again >= 15 && proxy.swallowed() == again, "{again}");
    for target in ["p0", "p1"] {
        served.counted(target, "like", 75);
    }
    served.rest(0);
}

/// Every statement is sent twice by the driver, and one write in twenty times out besides: nothing that
/// is written adds to what is there.
#[tokio::test]
async fn to_2_statements_sent_twice_count_once() {
    let seed = 2;
    let (w, spy) = World::spied(Setup { seed, ..Setup::default() }).await;
    spy.send_twice();
    w.memory().set_faults(Faults { answer_lost: 0.05, commit_unknown: 0.05, ..Faults::none() });
    let counting: Vec<_> = w.processes.iter().map(|p| p.keep_counting()).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..30 {
        join_all((0..20).map(|i| {
            let key = fact(&format!("p{}", i % 3), "reaction", &format!("u{}", rng.random_range(0..40)));
            w.processes[i % 2].choose(key, rng.random_range(0..3))
        }))
        .await;
    }
    for worker in counting {
        worker.stop().await;
    }
    w.rest().await;
    let written = spy.seen().into_iter().filter(|((_, how), _)| *how != How::Read).map(|(_, n)| n).sum::<u64>();
    assert!(written > 1000, "{written}");
}

/// Callers go away in the middle of ten thousand likes; an unlike that follows wins over each.
#[tokio::test]
async fn to_3_an_unlike_after_an_abandoned_like_wins() {
    const LIKES: usize = 10_000;
    let seed = 33;
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let w = World::new(Setup { processes: 1, seed, ..Setup::default() }).await;
    let p = &w.processes[0];
    let watch = Watch::start(p, vec![root("p0", "like")], 0..=i64::try_from(LIKES).unwrap());
    let counting = p.keep_counting();
    for group in 0..LIKES / 100 {
        let whom: Vec<_> = (0..100).map(|i| (format!("p{}", i % 4), format!("u{group}.{i}"))).collect();
        let likes = join_all(whom.iter().map(|(target, who)| p.like(target, who)));
        let patience = rng.random_range(0..60);
        let gone = Box::pin(async {
            for _ in 0..patience {
                tokio::task::yield_now().await;
            }
        });
        drop(select(Box::pin(likes), gone).await);
        let regretted = whom.iter().filter(|(_, who)| who.ends_with('7'));
        for answer in join_all(regretted.map(|(target, who)| p.unlike(target, who))).await {
            assert!(answer.landed(), "{answer:?}");
        }
    }
    counting.stop().await;
    watch.stop().await;
    p.stop().await; // What was begun and abandoned ends first.
    let facts = w.rest().await;
    let regretted = |who: &schema::Member| who.as_str().ends_with('7');
    let live: Vec<_> = (0..4).flat_map(|i| facts.live(&root(&format!("p{i}"), "like"))).collect();
    assert!(live.len() > 100 && !live.iter().any(regretted), "{} live", live.len());
}

/// Connections that are closed right behind the request: each like may have happened or not.
#[test]
fn to_3_requests_whose_connection_was_dropped_leave_counts_and_lists_in_agreement() {
    let served = Served::default();
    for i in 0..300 {
        let mut stream = TcpStream::connect(served.address()).unwrap();
        let path = like_path(&format!("p{}", i % 2), &format!("u{i}"));
        write!(stream, "PUT {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n").unwrap();
        drop(stream);
    }
    served.ok("PUT", &like_path("p0", "last"));
    let facts = served.rest(0);
    let rows = facts.rows(&root("p0", "like")) + facts.rows(&root("p1", "like"));
    assert!((1..=301).contains(&rows), "{rows}");
}

/// The store answers "not applied" to commits, again and again: each caller looks again, none goes on
/// as if it had written.
#[tokio::test]
async fn to_7_a_commit_that_was_not_applied_is_not_taken_for_done() {
    let (w, spy) = World::spied(Setup::default()).await;
    let (p, root) = (&w.processes[0], root("p1", "like"));
    for i in 0..30 {
        p.like("p1", &format!("u{i}")).await;
    }
    w.drain().await;
    let rebuilder = Rebuilder::new(p.protocol.clone(), RebuilderSettings::default());
    let leaf = w.memory().ledgers().into_keys().next().unwrap();
    let calls: [&str; 5] = ["reconcile", "audit", "repair", "rebuild", "sweep"];
    for (i, call) in calls.into_iter().enumerate() {
        p.unlike("p1", &format!("u{i}")).await;
        spy.refuse_commits(5);
        let before = spy.count("ledger", How::Conditional);
        match call {
            "reconcile" => p.count().await,
            "audit" => drop(p.protocol.audit(&leaf).await.unwrap()),
            "repair" => p.protocol.repair_counter(&leaf).await.unwrap(),
            "rebuild" => drop(rebuilder.rebuild(Scope::All, false, &Progress::default()).await.unwrap()),
            _ => {
                p.bus.lose_all();
                w.wait(Duration::from_secs(60));
                w.sweep().await;
            }
        }
        assert!(spy.count("ledger", How::Conditional) > before + 5, "{call} tried again");
        p.count().await;
        assert_eq!(p.total(&root).await, Some(29 - i64::try_from(i).unwrap()), "after {call}");
    }
    // Refused for ever: it says so, and shows no wrong number.
    p.unlike("p1", "u29").await;
    spy.refuse_commits(usize::MAX);
    assert_eq!(p.aggregator.run_once().await.failed, 1);
    assert_eq!(p.total(&root).await, Some(25));
    spy.refuse_commits(0);
    assert_eq!(w.rest().await.live(&root).len(), 24);
}

/// Two hosts, two seconds ahead and behind: like on one, unlike on the other, each after the answer
/// to the one before.
#[tokio::test]
async fn ck_1_the_last_answered_change_stands_whatever_the_hosts_clocks() {
    let w = World::new(Setup { skew: vec![2_000_000, -2_000_000], ..Setup::default() }).await;
    for target in ["small", "large"] {
        for i in 0..if target == "large" { 12 } else { 0 } {
            w.processes[0].like(target, &format!("v{i}")).await;
        }
        let others = i64::from(target == "large") * 12;
        for round in 0..200 {
            for (process, choice) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
                let written = w.processes[process].choose(fact(target, "like", "u1"), choice).await;
                assert!(written.landed(), "{written:?}");
                if round % 20 == 0 {
                    w.processes[process].count().await;
                    w.processes[1 - process].count().await;
                    let total = w.processes[0].total(&root(target, "like")).await;
                    assert_eq!(total, Some(others + i64::from(choice)));
                }
                w.wait(Duration::from_micros(100));
            }
        }
        let facts = w.rest().await;
        assert_eq!(facts.fact(&fact(target, "like", "u1")).choice.choice, 1);
    }
}

/// Unlike and like in one and the same microsecond, over and over: the like survives.
#[tokio::test]
async fn ck_2_a_like_in_the_microsecond_of_an_unlike_survives() {
    let w = World::new(Setup::default()).await;
    for who in 0..50 {
        for _ in 0..100 {
            for (process, choice) in [(0, 0), (1, 1)] {
                let written = w.processes[process].choose(fact("p1", "like", &format!("u{who}")), choice).await;
                assert!(written.landed());
            }
        }
    }
    let facts = w.rest().await;
    assert_eq!(facts.live(&root("p1", "like")).len(), 50);
}

/// Every table is written in one way only: the ledger by comparison, all others by their own versions.
#[tokio::test]
async fn ck_3_no_table_is_written_both_plainly_and_conditionally() {
    let (w, spy) = World::spied(Setup::default()).await;
    let p = &w.processes[0];
    for i in 0..40 {
        p.like("p1", &format!("u{i}")).await;
        p.choose(fact("p2", "reaction", &format!("u{}", i % 6)), 2).await;
    }
    w.drain().await;
    for reason in Reason::ALL {
        for value in [1, 0] {
            let key = fact("p1", "like", "u3");
            p.write(WriteRequest { key, register: Register::Hide(reason), value, at: None }).await;
        }
    }
    w.memory().damage_counters(|_, row| row.counts.add(1, 1));
    let rebuilder = Rebuilder::new(p.protocol.clone(), RebuilderSettings::default());
    let report = rebuilder.rebuild(Scope::All, false, &Progress::default()).await.unwrap();
    assert!(report.repaired > 0);
    w.memory().drop_derived();
    rebuilder.rebuild(Scope::All, false, &Progress::default()).await.unwrap();
    for leaf in w.memory().ledgers().into_keys() {
        p.protocol.audit(&leaf).await.unwrap();
    }
    for lane in w.engine.lanes().await.unwrap() {
        p.protocol.retire(lane.lane).await.unwrap();
    }
    w.rest().await;
    let ways = |how| spy.seen().into_keys().filter(|(_, h)| *h == how).map(|(table, _)| table).collect::<BTreeSet<_>>();
    let (plain, conditional, removed) = (ways(How::Plain), ways(How::Conditional), ways(How::Removal));
    assert_eq!(plain.intersection(&conditional).collect::<Vec<_>>(), Vec::<&String>::new(), "{plain:?} {conditional:?}");
    let tables = |ways: &BTreeSet<String>| ways.iter().filter(|t| !t.starts_with("meta ")).cloned().collect::<Vec<_>>();
    assert_eq!(tables(&conditional), ["ledger"]);
    assert_eq!(tables(&plain), ["by_user", "counters", "facts", "journal", "lanes"]);
    // Rows vanish only from what can be derived again, or has been swept.
    assert!(!removed.contains("facts") && !removed.contains("ledger"), "{removed:?}");
}
