//! One run from beginning to end: ops and schedule from a seed, then rest, then the invariants that
//! hold at rest, then damage and repair.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use futures::future::LocalBoxFuture;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rebuilder::{Progress, Rebuilder, Scope};
use schema::{Counts, Fact, Member, Micros, Register, Shard, ShardKey, UserKey, leaves};
use store::{
    StoreResult,
    engine::TimeRow,
    memory::Faults,
    protocol::{Outcome, count},
};

use super::{
    checks::Watch,
    executor::Step,
    ops::{Case, Op, Scenario},
    world::{Fault, Process, Record, World, rebuilder_settings},
};

/// Steps after which a run that should have come to rest has not.
const MAX_STEPS: u32 = 300_000;
/// Tasks beyond which no more are begun until some have ended.
const MAX_TASKS: usize = 60;

/// How a run went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The broken invariant, if one is.
    pub broken: Option<String>,
    /// Digest of every decision: equal for equal runs.
    pub digest: u64,
    /// Every decision in words, if asked for.
    pub trace: Vec<String>,
    /// Requests begun.
    pub requests: usize,
    /// Of these answered.
    pub answered: usize,
}

/// Runs a case.
pub fn run(case: &Case, fault: Fault, tracing: bool) -> Run {
    let mut simulation = Simulation {
        world: World::new(Scenario::of(case.seed), case.seed ^ 0x0e61_9e00, fault, tracing),
        watch: Watch::default(),
        rng: ChaCha8Rng::seed_from_u64(case.seed ^ 0x5c4e_d01e),
    };
    let result = simulation.all(&case.ops);
    let world = &mut simulation.world;
    if let Err(text) = &result {
        world.executor.note(|| format!("BROKEN {text}"), 1);
    }
    let records = world.notes.records.borrow();
    Run {
        broken: result.err(),
        digest: world.executor.digest(),
        trace: world.executor.trace().to_vec(),
        requests: records.len(),
        answered: records.iter().filter(|r| promise(r).is_some()).count(),
    }
}

/// The version that an answer promises to keep; `None`: it promises nothing.
pub fn promise(record: &Record) -> Option<Micros> {
    match &record.answer {
        Some((Outcome::Applied | Outcome::Unchanged | Outcome::Superseded | Outcome::Accepted, version)) => Some(*version),
        _ => None,
    }
}

struct Simulation {
    world: World,
    watch: Watch,
    rng: ChaCha8Rng,
}

impl Simulation {
    fn all(&mut self, ops: &[Op]) -> Result<(), String> {
        for op in ops {
            self.world.begin(op);
            let steps = match op {
                Op::Steps { n } => u32::from(*n),
                _ => self.rng.random_range(0..12),
            };
            for _ in 0..steps {
                self.step()?;
            }
            let mut patience = 2_000;
            while self.world.executor.tasks() > MAX_TASKS && patience > 0 {
                self.step()?;
                patience -= 1;
            }
        }
        self.rest()?;
        let facts = self.at_rest()?;
        self.mend(&facts)
    }

    fn step(&mut self) -> Result<Step, String> {
        let (pause, longest, tick) = (self.world.scenario.pause, self.world.scenario.longest_pause, self.world.scenario.tick);
        let step = self.world.executor.step(&mut self.rng, pause, longest, tick);
        self.watch.look(&self.world.memory)?;
        match self.world.notes.broken.borrow_mut().take() {
            Some(text) => Err(text),
            None => Ok(step),
        }
    }

    /// No more faults, every task comes to its end, and the sweep, alone, counts the rest.
    fn rest(&mut self) -> Result<(), String> {
        // What is on its way arrives, or never does.
        let arrives = if self.rng.random_bool(0.5) { 1.0 } else { 0.0 };
        self.world.memory.set_faults(Faults { arrives, ..Faults::none() });
        self.world.scenario.pause = 0.0;
        for _ in 0..MAX_STEPS {
            if self.step()? == Step::Idle {
                break;
            }
        }
        if self.world.executor.tasks() > 0 {
            return Err(format!("tasks never come to an end: {:?}", self.world.executor.labels()));
        }
        let process = self.world.operator();
        for _ in 0..3 {
            let (protocol, ahead) = (process.protocol.clone(), self.world.scenario.clock_error());
            self.await_ok("the sweep", move || {
                let protocol = protocol.clone();
                Box::pin(async move {
                    let slot = protocol.settings().slot_of(protocol.clock().now() + ahead) + 2;
                    protocol.sweep_until(slot).await.map(|_| ())
                })
            })?;
        }
        Ok(())
    }

    /// Runs one task to its end beside nothing else, with the checks of every step.
    fn await_ok<T: 'static>(
        &mut self,
        what: &str,
        begin: impl Fn() -> LocalBoxFuture<'static, StoreResult<T>>,
    ) -> Result<T, String> {
        let mut last = String::new();
        for _ in 0..5 {
            let (out, future) = (Rc::new(RefCell::new(None)), begin());
            let put = out.clone();
            self.world.executor.spawn(usize::MAX, what, async move {
                let result = future.await;
                *put.borrow_mut() = Some(result);
            });
            for _ in 0..MAX_STEPS {
                if self.step()? == Step::Idle {
                    break;
                }
            }
            match out.borrow_mut().take() {
                Some(Ok(value)) => return Ok(value),
                Some(Err(error)) => last = error.to_string(),
                None => return Err(format!("{what} does not come to an end")),
            }
        }
        Err(format!("{what} fails at rest: {last}"))
    }

    /// I2 and I3. Returns the facts, whichever partition they are in.
    fn at_rest(&mut self) -> Result<Truth, String> {
        let truth = Truth::of(self.world.memory.facts());
        for record in self.world.notes.records.borrow().iter() {
            self.kept(record, &truth)?;
        }
        for round in 0..3 {
            self.shown("I2", &truth).map_err(|e| format!("{e} (look {round})"))?;
        }
        self.lists("I2", &truth)?;
        self.index("I2", &truth)?;
        let process = self.world.operator();
        let report = self.rebuilder(&process, false)?;
        if !report.clean() {
            return Err(format!("I2 verify at rest is not clean: {:?}", report.drift));
        }
        Ok(truth)
    }

    /// I3: an answered change is there, or a newer one is.
    fn kept(&self, record: &Record, truth: &Truth) -> Result<(), String> {
        let Some(version) = promise(record) else { return Ok(()) };
        let register: Register = record.item.reg.into();
        let fact = truth.fact(&record.key.shard(Shard::ROOT), &record.key.member);
        let (stands, value) = fact.register(register);
        if stands < version {
            return Err(format!("I3 an answered change is lost: {record:?}, the register is at {stands}"));
        }
        if value == record.item.value || record.item.ago.is_some() {
            return Ok(());
        }
        // Somebody wanted this other value: their version must not be from before this one began.
        if stands + self.world.scenario.clock_error() < record.begin {
            return Err(format!("I3 an answer was undone by an older request: {record:?}, the register is {value} at {stands}"));
        }
        Ok(())
    }

    fn shown(&mut self, what: &str, truth: &Truth) -> Result<(), String> {
        let process = self.world.operator();
        for root in self.world.roots() {
            let protocol = process.protocol.clone();
            let key = root.clone();
            let counts = self.await_ok("counts", move || {
                let (protocol, key) = (protocol.clone(), key.clone());
                Box::pin(async move { protocol.counts(&key.target, std::slice::from_ref(&key.kind)).await })
            })?;
            let due = truth.counts(&root);
            let found = counts.into_iter().next().and_then(|c| c.counts);
            if found.as_ref() != Some(&due) {
                return Err(format!("{what} {root:?} shows {found:?}, the facts are {due:?}"));
            }
        }
        Ok(())
    }

    fn lists(&mut self, what: &str, truth: &Truth) -> Result<(), String> {
        let process = self.world.operator();
        for root in self.world.roots() {
            let protocol = process.protocol.clone();
            let key = root.clone();
            let listing = self.await_ok("list", move || {
                let (protocol, key) = (protocol.clone(), key.clone());
                Box::pin(async move { protocol.list(&key, None, None, 100).await })
            })?;
            let due = truth.list(&root);
            if listing.members != due {
                return Err(format!("{what} the list of {root:?} is {:?}, the facts are {due:?}", listing.members));
            }
        }
        Ok(())
    }

    fn index(&mut self, what: &str, truth: &Truth) -> Result<(), String> {
        let index = self.world.memory.index();
        for root in self.world.roots() {
            let listed = self.world.operator().protocol.settings().kinds.get(root.kind.as_str()).is_some_and(|k| k.by_user);
            for (member, fact) in truth.of_root(&root).filter(|(_, f)| listed && f.choice.version > 0) {
                let key = (UserKey::of(&root.target, &member), root.kind.clone(), root.target.clone());
                let row = index.get(&key).copied();
                if row != Some(fact.choice.into()) {
                    return Err(format!("{what} the index row of {member} under {root:?} is {row:?}, the fact {fact:?}"));
                }
            }
        }
        Ok(())
    }

    /// All of it, also where a run that was cut off is taken up where it was.
    fn rebuilder(&mut self, process: &Rc<Process>, mend: bool) -> Result<rebuilder::Report, String> {
        let report = self.rebuild_once(process, mend)?;
        if report.resumed_slices + report.shared_slices > 0 { self.rebuild_once(process, mend) } else { Ok(report) }
    }

    fn rebuild_once(&mut self, process: &Rc<Process>, mend: bool) -> Result<rebuilder::Report, String> {
        let rebuilder = Rebuilder::new(process.protocol.clone(), rebuilder_settings());
        self.await_ok("the rebuilder", move || {
            let rebuilder = rebuilder.clone();
            Box::pin(async move {
                let progress = Progress::default();
                if mend {
                    rebuilder.rebuild(Scope::All, false, &progress).await
                } else {
                    rebuilder.verify(Scope::All, &progress).await
                }
            })
        })
    }

    /// I7: counters corrupted, then everything derived dropped; repair and ordinary work bring it back.
    fn mend(&mut self, truth: &Truth) -> Result<(), String> {
        self.world.notes.damaged.set(true);
        let process = self.world.operator();
        let memory = self.world.memory.clone();
        memory.damage_counters(|_, row| row.counts.add(1, 1));
        let whole = self.rng.random_bool(0.5);
        if whole {
            let report = self.unwatched(|s| s.rebuilder(&process, true))?;
            if let Some(bad) = report.drift.iter().find(|d| !d.repaired) {
                return Err(format!("I7 a rebuild left {bad:?}"));
            }
        } else {
            for shard in memory.counters().into_keys() {
                let protocol = process.protocol.clone();
                self.unwatched(|s| {
                    s.await_ok("repair", move || {
                        let (protocol, shard) = (protocol.clone(), shard.clone());
                        Box::pin(async move { protocol.repair_counter(&shard).await })
                    })
                })?;
            }
        }
        self.unwatched(|s| s.shown("I7 after corrupted counters:", truth))?;
        memory.drop_derived();
        if self.rng.random_bool(0.5) {
            self.unwatched(|s| s.rebuilder(&process, true))?;
            self.unwatched(|s| s.index("I7 after a rebuild:", truth))?;
        } else {
            self.reconcile_each(&process, truth)?;
        }
        self.unwatched(|s| s.shown("I7 after a dropped ledger:", truth))?;
        self.unwatched(|s| s.lists("I7 after a dropped ledger:", truth))
    }

    /// One ordinary reconcile in each partition, with one member at hand.
    fn reconcile_each(&mut self, process: &Rc<Process>, truth: &Truth) -> Result<(), String> {
        for root in self.world.roots() {
            let shown = self.world.memory.shown().get(&root).copied();
            let shards: Vec<ShardKey> = match shown {
                Some(level) => leaves(level).map(|l| root.with_shard(l)).collect(),
                None => vec![root.clone()],
            };
            for shard in shards {
                let some: Vec<Member> = truth.at(&shard).into_iter().take(1).collect();
                let protocol = process.protocol.clone();
                self.unwatched(|s| {
                    s.await_ok("reconcile", move || {
                        let (protocol, shard, some) = (protocol.clone(), shard.clone(), some.clone());
                        Box::pin(async move { protocol.reconcile(&shard, &some).await.map(|_| ()) })
                    })
                })?;
            }
        }
        Ok(())
    }

    /// Without the checks of every step, which a damaged store does not pass until it is mended.
    fn unwatched<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        let watch = std::mem::replace(&mut self.watch, Watch::blind());
        let result = work(self);
        self.watch = watch;
        result
    }
}

/// The facts, joined over partitions and replicas: what every projection must say.
struct Truth {
    by_shard: BTreeMap<(ShardKey, Member), Fact>,
    joined: BTreeMap<(ShardKey, Member), Fact>,
}

impl Truth {
    fn of(by_shard: BTreeMap<(ShardKey, Member), Fact>) -> Self {
        let mut joined: BTreeMap<(ShardKey, Member), Fact> = BTreeMap::new();
        for ((shard, member), fact) in &by_shard {
            let all = joined.entry((shard.with_shard(Shard::ROOT), member.clone())).or_default();
            *all = all.join(*fact);
        }
        Self { by_shard, joined }
    }

    fn of_root<'a>(&'a self, root: &'a ShardKey) -> impl Iterator<Item = (Member, Fact)> + 'a {
        self.joined.iter().filter(move |((r, _), _)| r == root).map(|((_, m), f)| (m.clone(), *f))
    }

    fn fact(&self, root: &ShardKey, member: &Member) -> Fact {
        self.joined.get(&(root.clone(), member.clone())).copied().unwrap_or_default()
    }

    fn at(&self, shard: &ShardKey) -> Vec<Member> {
        self.by_shard.keys().filter(|(s, _)| s == shard).map(|(_, m)| m.clone()).collect()
    }

    fn counts(&self, root: &ShardKey) -> Counts {
        let facts: Vec<Fact> = self.of_root(root).map(|(_, f)| f).collect();
        count(&facts)
    }

    fn list(&self, root: &ShardKey) -> Vec<TimeRow> {
        let counted = self.of_root(root).filter(|(_, f)| f.counted() != 0);
        let mut rows: Vec<TimeRow> =
            counted.map(|(member, f)| TimeRow { at: f.choice.since, member, choice: f.counted() }).collect();
        rows.sort_unstable_by(|a, b| (b.at, &b.member).cmp(&(a.at, &a.member)));
        rows
    }
}
