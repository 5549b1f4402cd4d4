//! Directed schedules of what was once wrong, or easily could be.

use std::{sync::Arc, time::Duration};

use rebuilder::{Progress, Rebuilder, RebuilderSettings, Scope};
use schema::Shard;
use store::{
    Protocol, Settings,
    clock::{Clock, ManualClock},
    memory::{Table, WriteFate},
    protocol::Outcome,
};
use tally_tests::directed::{World, by_leaf, fact, member, run, target};

fn verify(w: &World, protocol: &Protocol) -> rebuilder::Report {
    let settings = RebuilderSettings { slices: 1, looks: 1, settle: Duration::ZERO, ..RebuilderSettings::default() };
    w.memory.clear_script();
    run(Rebuilder::new(protocol.clone(), settings).verify(Scope::All, &Progress::default())).expect("no faults are scripted")
}

/// The clock of the process that takes over is behind that of the one that is gone.
#[test]
fn a_lane_is_retired_to_its_end_also_by_a_clock_that_is_behind() {
    let w = World::new(Settings::default());
    let gone = w.process();
    let root = target("p", "like");
    w.wait(100);
    run(gone.protocol.engine().touch_lane(gone.lane(), w.clock.now())).expect("no faults");
    gone.choose(&root, &member("u"), 1).finish();
    let behind = Arc::new(ManualClock::starting_at(w.clock.now() - 95_000_000));
    let next = Protocol::new(w.memory.clone(), behind, gone.protocol.settings().clone());
    let report = run(next.retire(gone.lane())).expect("no faults");
    assert_eq!((report.retired, report.intents), (1, 1), "the entry is found");
    assert_eq!(w.memory.counters().values().map(|c| c.counts.total()).sum::<i64>(), 1);
}

/// A row that the store refuses becomes a dead letter; the lane and the other rows go on.
#[test]
fn a_refused_row_becomes_a_dead_letter_and_its_lane_goes_on() {
    let w = World::new(Settings { parallel: 1, ..Settings::default() });
    let p = w.process();
    for (who, fate) in [("bad", WriteFate::Lost), ("good", WriteFate::Lost)] {
        (0..500).for_each(|_| w.memory.script_write(Table::Fact, fate));
        assert_eq!(p.choose(&target(who, "like"), &member("u"), 1).finish().outcome, Outcome::Accepted);
        w.memory.clear_script();
    }
    w.wait(60);
    // The first target in key order is swept first: twice, as a batch and alone.
    (0..2).for_each(|_| w.memory.script_write(Table::Fact, WriteFate::Refused));
    let report = run(p.protocol.sweep()).expect("a refusal does not stop the lane");
    assert_eq!((report.dead, report.rewritten), (1, 1));
    assert!(report.complete_until > w.clock.now() - 45_000_000, "the lane went on");
    let letters = run(p.protocol.engine().list_meta("dead/", 10)).expect("no faults");
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(w.memory.counters().values().map(|c| c.counts.total()).sum::<i64>(), 1);
}

/// A repeated like was written to the root of a target that is large by now, and its event is lost:
/// the sweep moves the root's own registers on, so that leaf, ledger and index agree with them.
#[test]
fn the_sweep_moves_a_late_write_out_of_the_root() {
    let w = World::new(Settings::default());
    let (p, q) = (w.process(), w.process());
    let root = target("p", "like");
    let members = by_leaf(2);
    let late = members[0][0].clone();
    p.counted(&root, &late, 1);
    w.wait(1);
    let before = w.memory.journal_entries();
    let mut repeated = q.choose(&root, &late, 1);
    repeated.until("journalled", || w.memory.journal_entries() > before);
    for m in members.iter().flatten().filter(|m| **m != late) {
        p.counted(&root, m, 1);
    }
    assert_eq!(repeated.finish().shard, Shard::ROOT, "the schedule is about a write to the root");
    w.drain(&p);
    let report = verify(&w, &p.protocol);
    assert!(report.clean(), "{:?}", report.drift);
    assert_eq!(w.check_total(&p, &root), Ok(()));
}

/// What the versions promise, and what they do not: a request that began first but *reads* late finds
/// the younger one's version and goes above it, so it wins. Requests of one process are serialised, so
/// this takes two processes and a pause before the read.
#[test]
fn a_request_of_another_process_that_reads_late_goes_above_one_that_began_after_it() {
    let w = World::new(Settings::default());
    let (p, q) = (w.process(), w.process());
    let root = target("p", "like");
    let mut first = q.choose(&root, &member("u"), 0);
    first.step(); // Begun, nothing read yet.
    w.wait(5);
    let second = p.choose(&root, &member("u"), 1).finish();
    let first = first.finish();
    assert!(first.version > second.version, "the later reader goes above what it read");
    w.drain(&p);
    assert_eq!(fact(&w, &root.fact(&member("u"))).choice.choice, 0);
    assert_eq!(w.check_total(&p, &root), Ok(()));
}
