//! Every short cut that the design forbids, compiled in, is caught by a schedule of its own. Each
//! schedule runs twice: the real protocol survives it, the one with the fault does not.

#![cfg(feature = "mutations")]

use schema::{Register, Shard, ShardKey};
use store::{
    Settings,
    clock::Clock,
    memory::{CommitCheck, LedgerView, Table, WriteFate},
    protocol::{Mutation, Outcome},
};
use tally_tests::directed::{Process, World, by_leaf, fact, held, member, run, target};

type Verdict = Result<(), String>;
type Schedule = fn(Option<Mutation>) -> Verdict;

/// Which schedule catches which fault.
const SCHEDULES: [(Mutation, Schedule); 17] = [
    (Mutation::SkipNoop, older_request_lands_after_unchanged),
    (Mutation::SkipSecond, older_request_lands_after_a_second_click),
    (Mutation::OneRegister, hidden_and_shown_again),
    (Mutation::NoClose, journalled_into_a_slot_that_was_swept),
    (Mutation::NoJournal, accepted_and_never_landed),
    (Mutation::NoCas, two_workers_on_one_leaf),
    (Mutation::NoVersions, paused_worker_with_an_old_fact),
    (Mutation::HeadOnly, stale_row_beside_a_new_head),
    (Mutation::VersionOnly, stale_choice_at_the_same_version),
    (Mutation::RowBlind, old_head_beside_new_rows),
    (Mutation::MaxRank, older_view_of_the_same_newest_version),
    (Mutation::BareRank, older_view_of_a_tie),
    (Mutation::PartialLeaf, one_member_of_a_dropped_ledger),
    (Mutation::SameOrder, wrong_counter_that_wins_the_tie),
    (Mutation::FlagFirst, reader_during_a_promotion),
    (Mutation::NoForward, late_write_to_a_promoted_root),
    (Mutation::NoFinalPut, writer_died_before_the_counter),
];

fn world(mutation: Option<Mutation>) -> World {
    let world = World::new(Settings { mutation, ..Settings::default() });
    world.memory.set_commit_check(match mutation {
        Some(Mutation::NoCas) => CommitCheck::Nothing,
        Some(Mutation::HeadOnly) => CommitCheck::HeadOnly,
        Some(Mutation::VersionOnly) => CommitCheck::VersionOnly,
        _ => CommitCheck::Full,
    });
    world
}

/// Holds a write between its journal entry and its fact.
macro_rules! journalled {
    ($world:expr, $write:expr) => {{
        let before = $world.memory.journal_entries();
        let mut write = $write;
        write.until("journalled", || $world.memory.journal_entries() > before);
        write
    }};
}

/// I3: an answered choice stands.
fn check_choice(w: &World, root: &ShardKey, who: &str, choice: u8) -> Verdict {
    let stored = fact(w, &root.fact(&member(who)));
    if stored.choice.choice == choice { Ok(()) } else { Err(format!("I3: {who} was answered {choice}, the fact is {stored:?}")) }
}

/// A younger request finds its wish fulfilled while an older one is on its way.
fn older_request_lands_after_unchanged(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let (earlier, p) = (w.process(), w.process());
    older_request_lands_last(&w, &earlier, &p)
}

/// The same where the process has just landed that state itself.
fn older_request_lands_after_a_second_click(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    older_request_lands_last(&w, &p, &p)
}

/// `first` likes; another process begins to withdraw and pauses; `p` likes again and is answered.
fn older_request_lands_last(w: &World, first: &Process, p: &Process) -> Verdict {
    let q = w.process();
    let root = target("p", "like");
    first.counted(&root, &member("u"), 1);
    w.wait(1);
    let older = journalled!(w, q.choose(&root, &member("u"), 0));
    w.wait(1);
    let answer = p.choose(&root, &member("u"), 1).finish();
    assert_eq!(answer.outcome, Outcome::Unchanged);
    older.finish();
    w.drain(p);
    check_choice(w, &root, "u", 1)
}

/// An operator hides and shows; the member's own choice is nobody else's.
fn hidden_and_shown_again(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let root = target("p", "like");
    p.counted(&root, &member("u"), 1);
    for hidden in [true, false] {
        w.wait(1);
        p.hide(&root, &member("u"), hidden).finish();
    }
    w.drain(&p);
    check_choice(&w, &root, "u", 1)
}

/// The way to the journal is long: the slot is swept before the entry arrives, and the fact is lost.
fn journalled_into_a_slot_that_was_swept(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let (p, sweeper) = (w.process(), w.process());
    let root = target("p", "like");
    let mut late = p.choose(&root, &member("u"), 1);
    late.step(); // Slot and version are chosen; nothing has reached the store.
    for _ in 0..4 {
        w.wait(15);
        run(sweeper.protocol.sweep()).expect("no faults");
    }
    for _ in 0..1000 {
        w.memory.script_write(Table::Fact, WriteFate::Lost);
    }
    let answer = late.finish();
    if !matches!(answer.outcome, Outcome::Accepted) {
        return Ok(()); // Promises nothing.
    }
    w.drain(&sweeper);
    check_choice(&w, &root, "u", 1)
}

/// The fact never arrives; only the journal can bring it.
fn accepted_and_never_landed(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let root = target("p", "like");
    for _ in 0..1000 {
        w.memory.script_write(Table::Fact, WriteFate::Lost);
    }
    let answer = p.choose(&root, &member("u"), 1).finish();
    assert_eq!(answer.outcome, Outcome::Accepted);
    w.drain(&p);
    check_choice(&w, &root, "u", 1)
}

/// A large target whose first leaf has two further members with facts, not yet counted.
fn two_uncounted(p: &Process) -> (ShardKey, ShardKey, Vec<schema::Member>) {
    let (root, _) = p.large("p");
    let new = by_leaf(4)[0][2..].to_vec();
    for m in &new {
        assert_eq!(p.choose(&root, m, 1).finish().shard, Shard(2));
    }
    (root.clone(), root.with_shard(Shard(2)), new)
}

/// Both read the same head; the second commit rests on a count that has moved on.
fn two_workers_on_one_leaf(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let (root, leaf, new) = two_uncounted(&p);
    let mut first = p.reconcile(&leaf, &new[..1]);
    // Head, rows and facts are read; the commit has not been sent.
    (0..3).for_each(|_| assert!(!first.step()));
    p.reconcile(&leaf, &new[1..]).finish();
    first.finish();
    w.check_heads()?;
    w.drain(&p);
    w.check_total(&p, &root)
}

/// A worker pauses with an old like in hand while the member has withdrawn, and wakes last of all.
fn paused_worker_with_an_old_fact(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let (root, [left, _]) = p.large("p");
    let leaf = root.with_shard(Shard(2));
    p.counted(&root, &left[0], 0);
    w.wait(1);
    p.choose(&root, &left[0], 1).finish();
    let mut paused = p.reconcile(&leaf, &left[..1]);
    (0..3).for_each(|_| assert!(!paused.step()));
    w.wait(1);
    p.counted(&root, &left[0], 0);
    w.drain(&p);
    paused.finish();
    w.check_heads()?;
    w.check_total(&p, &root)
}

/// A quorum read brings the newest head with a row as it was before.
fn stale_row_beside_a_new_head(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let (root, leaf, new) = two_uncounted(&p);
    p.reconcile(&leaf, &new[..1]).finish();
    w.memory.script_read(&leaf, LedgerView { head: 0, rows: 1 });
    p.reconcile(&leaf, &new[..1]).finish();
    w.check_heads()?;
    w.drain(&p);
    w.check_total(&p, &root)
}

/// The same where old and new row have one version, and differ in what was chosen.
fn stale_choice_at_the_same_version(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let root = target("p", "reaction");
    let members = by_leaf(2);
    for m in members.iter().flatten() {
        p.counted(&root, m, 1);
    }
    let (leaf, m) = (root.with_shard(Shard(2)), &members[0][..1]);
    // Two imports of one moment: the larger choice wins.
    w.wait(1);
    let at = Some(w.clock.now());
    w.wait(1);
    for choice in [1, 2] {
        p.write(&root, &m[0], Register::Choice, choice, at).finish();
        p.reconcile(&leaf, m).finish();
    }
    w.memory.script_read(&leaf, LedgerView { head: 0, rows: 1 });
    p.reconcile(&leaf, m).finish();
    w.check_heads()?;
    w.drain(&p);
    w.check_total(&p, &root)
}

/// A worker dies before it writes the counter; the next reads the new row beside the old head.
fn old_head_beside_new_rows(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let (root, leaf, new) = two_uncounted(&p);
    die_after_commit(&w, &p, &leaf, &new);
    w.memory.script_read(&leaf, LedgerView { head: 1, rows: 0 });
    assert!(p.reconcile(&leaf, &new).finish());
    w.check_total(&p, &root)
}

fn die_after_commit(w: &World, p: &Process, leaf: &ShardKey, members: &[schema::Member]) {
    let revision = |w: &World| w.memory.ledgers()[leaf].head.as_ref().map_or(0, |h| h.revision);
    let before = revision(w);
    let mut dies = p.reconcile(leaf, members);
    dies.until("committed", || revision(w) > before);
}

/// Two views of a small target have the same newest version; the older one is written last.
fn older_view_of_the_same_newest_version(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let root = target("p", "like");
    for (who, value, at) in [("x", 1, 10), ("y", 1, 5)] {
        p.write(&root, &member(who), Register::Choice, value, Some(at)).finish();
    }
    let mut old_view = p.reconcile(&root, &[]);
    (0..3).for_each(|_| assert!(!old_view.step())); // Has read its page.
    p.write(&root, &member("y"), Register::Choice, 0, Some(6)).finish();
    p.reconcile(&root, &[]).finish();
    old_view.finish();
    w.check_total(&p, &root)
}

/// Two requests take one version of one register, and the view without the larger value is last.
fn older_view_of_a_tie(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let (p, q) = (w.process(), w.process());
    let root = target("p", "like");
    p.counted(&root, &member("u"), 1);
    w.wait(1);
    let hide = journalled!(w, q.hide(&root, &member("u"), true));
    let show = p.hide(&root, &member("u"), false).finish();
    let mut old_view = p.reconcile(&root, &[]);
    (0..3).for_each(|_| assert!(!old_view.step()));
    let hidden = hide.finish();
    assert_eq!(hidden.version, show.version, "the schedule is about a tie");
    p.reconcile(&root, &[]).finish();
    old_view.finish();
    w.check_total(&p, &root)
}

/// The ledger is dropped; one ordinary reconcile of one member comes by.
fn one_member_of_a_dropped_ledger(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let (root, [left, right]) = p.large("p");
    w.memory.drop_derived();
    p.reconcile(&root.with_shard(Shard(2)), &left[..1]).finish();
    p.reconcile(&root.with_shard(Shard(3)), &right[..1]).finish();
    w.check_total(&p, &root)
}

/// I7: a counter row with the right order and a wrong value that wins the tie.
fn wrong_counter_that_wins_the_tie(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let root = target("p", "like");
    p.counted(&root, &member("u"), 1);
    w.memory.damage_counters(|_, row| row.counts.add(1, 1));
    run(p.protocol.repair_counter(&root)).expect("no faults");
    w.check_total(&p, &root)
}

/// Somebody reads at every step of a promotion.
fn reader_during_a_promotion(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let root = target("p", "like");
    let members = by_leaf(2).concat();
    for m in &members {
        p.choose(&root, m, 1).finish();
    }
    let mut verdict = Ok(());
    p.reconcile(&root, &members).watch(|| {
        if verdict.is_ok() {
            verdict = w.check_shown();
        }
    });
    verdict?;
    w.check_total(&p, &root)
}

/// A request read the root while it was small, and writes to it when it has long been promoted.
fn late_write_to_a_promoted_root(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let (p, q) = (w.process(), w.process());
    let root = target("p", "like");
    let members = by_leaf(3);
    let late = members[0][2].clone();
    let write = journalled!(w, q.choose(&root, &late, 1));
    for m in members.iter().flat_map(|m| &m[..2]) {
        p.counted(&root, m, 1);
    }
    w.check_shown()?;
    let written = write.finish();
    assert_eq!(written.shard, Shard::ROOT, "the schedule is about a write to the root");
    assert!(q.reconcile(&root, std::slice::from_ref(&late)).finish(), "its own event");
    w.check_total(&p, &root)
}

/// The commit stands, its writer is dead, and the next worker finds nothing new.
fn writer_died_before_the_counter(mutation: Option<Mutation>) -> Verdict {
    let w = world(mutation);
    let p = w.process();
    let (root, leaf, new) = two_uncounted(&p);
    die_after_commit(&w, &p, &leaf, &new);
    assert!(p.reconcile(&leaf, &new).finish());
    w.check_total(&p, &root)
}

#[test]
fn every_fault_has_a_schedule_of_its_own() {
    for (name, fault) in Mutation::ALL {
        assert_eq!(SCHEDULES.iter().filter(|(m, _)| *m == fault).count(), 1, "{name}");
    }
}

#[test]
fn the_real_protocol_survives_every_schedule() {
    for (fault, schedule) in SCHEDULES {
        assert_eq!(schedule(None), Ok(()), "the schedule for {fault:?}");
    }
}

#[test]
fn every_fault_is_caught_by_its_schedule() {
    for (fault, schedule) in SCHEDULES {
        match schedule(Some(fault)) {
            Ok(()) => panic!("{fault:?} is not caught"),
            Err(verdict) => println!("{fault:?}: {verdict}"),
        }
    }
}

/// Found while these schedules were written: a sweep that proves rows counted must not write the
/// counter of an older head that another read brings.
#[test]
fn the_sweep_writes_the_counter_of_the_head_that_proves_its_rows() {
    let w = world(None);
    let p = w.process();
    let (root, leaf, new) = two_uncounted(&p);
    die_after_commit(&w, &p, &leaf, &new);
    w.wait(60);
    // Whatever the sweep reads after the read that proves, the head may be the one before.
    w.memory.script_read(&leaf, LedgerView { head: 0, rows: 0 });
    for _ in 0..3 {
        w.memory.script_read(&leaf, LedgerView { head: 1, rows: 1 });
    }
    let protocol = p.protocol.clone();
    assert!(held(async move { protocol.sweep().await.is_ok() }).finish());
    assert_eq!(w.check_total(&p, &root), Ok(()));
}
