//! Directed schedules: tasks of the real protocol driven poll by poll over the engine in memory, held
//! wherever the schedule wants, dropped as if their process had died.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use schema::{Counts, Fact, FactKey, KindName, Level, Member, Namespace, Reason, Register, Shard, ShardKey, TargetKey, leaf_of};
use store::{
    Protocol, Settings,
    clock::ManualClock,
    memory::{Faults, Memory},
    protocol::{Lane, Outcome, WriteRequest, Written},
};

/// Facts of one kind in a root before it is promoted, in these schedules.
pub const SMALL: usize = 3;
/// Two leaves.
pub const LEVEL: Level = 1;
/// Polls after which a task counts as stuck.
const MANY: usize = 200_000;

/// A task that goes on only when told to. Dropping it is the death of its process.
pub struct Held<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    done: Option<T>,
}

impl<T> Held<T> {
    /// One poll; whether the task has ended.
    pub fn step(&mut self) -> bool {
        if self.done.is_none()
            && let Poll::Ready(value) = self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            self.done = Some(value);
        }
        self.done.is_some()
    }

    /// Goes on until `reached`; fails where the task ends before.
    pub fn until(&mut self, what: &str, mut reached: impl FnMut() -> bool) {
        for _ in 0..MANY {
            if reached() {
                return;
            }
            assert!(!self.step(), "the task ended before: {what}");
        }
        panic!("never reached: {what}");
    }

    /// Goes on to the end, calling `each` after every poll.
    pub fn watch(mut self, mut each: impl FnMut()) -> T {
        for _ in 0..MANY {
            let ended = self.step();
            each();
            if ended && let Some(value) = self.done.take() {
                return value;
            }
        }
        panic!("the task never ends");
    }

    /// Goes on to the end.
    pub fn finish(self) -> T {
        self.watch(|| {})
    }
}

/// One process: its own protocol state and lane, on the common store.
pub struct Process {
    /// The protocol as this process runs it.
    pub protocol: Protocol,
    lane: Rc<Lane>,
}

/// A store, a clock, and what the schedule looked at.
pub struct World {
    /// The engine.
    pub memory: Arc<Memory>,
    /// The clock of all processes.
    pub clock: Arc<ManualClock>,
    settings: Settings,
    lanes: Rc<RefCell<AtomicU64>>,
}

impl World {
    /// A replicated store without faults but for those that the schedule scripts.
    pub fn new(settings: Settings) -> Self {
        let settings = Settings { small_limit: SMALL, level: LEVEL, ..settings };
        let clock = Arc::new(ManualClock::starting_at(1_000_000_000_000));
        Self { memory: Arc::new(Memory::new(7, false, Faults::none())), clock, settings, lanes: Rc::default() }
    }

    /// Starts a process.
    pub fn process(&self) -> Process {
        let protocol = Protocol::new(self.memory.clone(), self.clock.clone(), self.settings.clone());
        let first = self.lanes.borrow().fetch_add(1000, Ordering::Relaxed);
        let next = AtomicU64::new(first + 1);
        let lane =
            run(protocol.open_lane(Box::new(move || next.fetch_add(1, Ordering::Relaxed)))).expect("no fault is scripted yet");
        Process { protocol, lane: Rc::new(lane) }
    }

    /// Time goes by.
    pub fn wait(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Everything late arrives, every lane is swept to its end; twice, as a first sweep may write.
    pub fn drain(&self, process: &Process) {
        self.memory.clear_script();
        for _ in 0..2 {
            self.wait(60);
            run(process.protocol.touch_lane(&process.lane)).expect("no faults while draining");
            self.memory.deliver_all();
            run(process.protocol.sweep()).expect("no faults while draining");
        }
    }

    /// What the facts say of a root's (target, kind), root and leaves joined.
    pub fn truth(&self, root: &ShardKey) -> Counts {
        let mut joined: std::collections::BTreeMap<Member, Fact> = Default::default();
        for ((shard, member), fact) in self.memory.facts() {
            if shard.target == root.target && shard.kind == root.kind {
                let entry = joined.entry(member).or_default();
                *entry = entry.join(fact);
            }
        }
        store::protocol::count(joined.values())
    }

    /// I1: every head's counts are its counted rows.
    pub fn check_heads(&self) -> Result<(), String> {
        for (leaf, state) in self.memory.ledgers() {
            let rows = store::protocol::count(state.rows.values().map(|r| &r.fact));
            let head = state.head.map(|h| h.counts).unwrap_or_default();
            if head != rows {
                return Err(format!("I1: shard {} says {head:?}, its rows say {rows:?}", leaf.shard));
            }
        }
        Ok(())
    }

    /// I5: once readers sum the leaves, each leaf with facts is complete.
    pub fn check_shown(&self) -> Result<(), String> {
        let ledgers = self.memory.ledgers();
        for (root, level) in self.memory.shown() {
            let members = self.memory.facts().into_keys().filter(|(s, _)| s.target == root.target && s.kind == root.kind);
            for (_, member) in members {
                let leaf = root.with_shard(leaf_of(&member, level));
                if !ledgers.get(&leaf).is_some_and(|l| l.head.as_ref().is_some_and(|h| h.complete)) {
                    return Err(format!("I5: shown, though shard {} is not complete", leaf.shard));
                }
            }
        }
        Ok(())
    }

    /// I2: what readers are told is what the facts say.
    pub fn check_total(&self, process: &Process, root: &ShardKey) -> Result<(), String> {
        let told = run(process.protocol.counts(&root.target, std::slice::from_ref(&root.kind))).map_err(|e| e.to_string())?;
        let told = told.into_iter().next().and_then(|k| k.counts);
        let truth = self.truth(root);
        if told.as_ref() == Some(&truth) {
            Ok(())
        } else {
            Err(format!("I2: readers are told {told:?}, the facts say {truth:?}"))
        }
    }
}

impl Process {
    /// The lane that it journals in.
    pub fn lane(&self) -> schema::LaneId {
        self.lane.id()
    }

    /// Begins a write of one register.
    pub fn write(&self, root: &ShardKey, member: &Member, register: Register, value: u8, at: Option<i64>) -> Held<Written> {
        let (protocol, lane) = (self.protocol.clone(), self.lane.clone());
        let request = WriteRequest { key: root.fact(member), register, value, at };
        held(async move { protocol.write(&lane, &[request]).await.0.remove(0) })
    }

    /// Begins a choice.
    pub fn choose(&self, root: &ShardKey, member: &Member, choice: u8) -> Held<Written> {
        self.write(root, member, Register::Choice, choice, None)
    }

    /// Hides a fact, or shows it again.
    pub fn hide(&self, root: &ShardKey, member: &Member, hidden: bool) -> Held<Written> {
        self.write(root, member, Register::Hide(Reason::Moderation), u8::from(hidden), None)
    }

    /// A choice that is answered and counted.
    pub fn counted(&self, root: &ShardKey, member: &Member, choice: u8) -> Written {
        let written = self.choose(root, member, choice).finish();
        assert!(matches!(written.outcome, Outcome::Applied | Outcome::Unchanged), "{written:?}");
        self.reconcile(&root.with_shard(written.shard), std::slice::from_ref(member)).finish();
        written
    }

    /// Begins a reconcile.
    pub fn reconcile(&self, shard: &ShardKey, members: &[Member]) -> Held<bool> {
        let (protocol, shard, members) = (self.protocol.clone(), shard.clone(), members.to_vec());
        held(async move { protocol.reconcile(&shard, &members).await.is_ok() })
    }

    /// A target with four members, two in each leaf, counted and shown; its root and the members
    /// by leaf.
    pub fn large(&self, id: &str) -> (ShardKey, [Vec<Member>; 2]) {
        let root = target(id, "like");
        let members = by_leaf(2);
        for member in members.iter().flatten() {
            self.counted(&root, member, 1);
        }
        let everybody: Vec<Member> = members.concat();
        self.reconcile(&root, &everybody).finish();
        (root, members)
    }
}

/// Makes a task that waits to be told.
pub fn held<T>(future: impl Future<Output = T> + 'static) -> Held<T> {
    Held { future: Box::pin(future), done: None }
}

/// Runs a future to its end; everything in memory is ready after a few polls.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..MANY {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
    panic!("the future never ends");
}

/// Root of a (target, kind).
pub fn target(id: &str, kind: &str) -> ShardKey {
    let namespace = Namespace::parse("t").expect("a namespace");
    ShardKey::root(TargetKey::new(&namespace, id).expect("an id"), KindName::parse(kind).expect("a kind"))
}

/// A member by name.
pub fn member(id: &str) -> Member {
    Member::parse(id).expect("an id")
}

/// `n` members of each of the two leaves.
pub fn by_leaf(n: usize) -> [Vec<Member>; 2] {
    let of = |shard: u16| {
        let all = (0..).map(|i| member(&format!("m{i}")));
        all.filter(|m| leaf_of(m, LEVEL) == Shard(shard)).take(n).collect()
    };
    [of(2), of(3)]
}

/// A member's fact as all replicas hold it, wherever it is.
pub fn fact(world: &World, key: &FactKey) -> Fact {
    let all = world.memory.facts().into_iter();
    let mine = all.filter(|((shard, m), _)| shard.target == key.target && shard.kind == key.kind && *m == key.member);
    mine.fold(Fact::default(), |joined, (_, fact)| joined.join(fact))
}
