//! A small deployment in one thread: two processes over one engine, each with its own protocol,
//! clock, lane and event bus; requests, aggregators, sweeps, audits and rebuilds side by side.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aggregator::{Aggregator, AggregatorSettings, MemoryBus, Sweep};
use futures::lock::Mutex;
use rebuilder::{Cause, Progress, Rebuilder, RebuilderSettings, Scope};
use schema::{ChangeEvent, FactKey, KindName, Member, Micros, Shard, ShardKey, TargetKey, leaf_of, leaves};
use store::{
    Protocol, Settings, StoreResult,
    memory::{Faults, Memory},
    protocol::{Lane, Outcome, WriteRequest},
};

use super::{
    executor::{Executor, SimClock, VirtualTime},
    ops::{Events, Item, KINDS, Op, PROCESSES, Scenario},
};

/// T in simulations.
pub const SMALL: usize = 3;
/// L in simulations: leaves 2 and 3.
pub const LEVEL: u8 = 1;

/// One request of one register, and what it was answered.
#[derive(Debug, Clone)]
pub struct Record {
    /// Which fact.
    pub key: FactKey,
    /// What was wanted.
    pub item: Item,
    /// Virtual time at which its write began.
    pub begin: Micros,
    /// The answer; `None`: there was none.
    pub answer: Option<(Outcome, Micros)>,
}

/// What tasks note for the checks.
#[derive(Default)]
pub struct Notes {
    /// All requests.
    pub records: RefCell<Vec<Record>>,
    /// What must never happen, and did.
    pub broken: RefCell<Option<String>>,
    /// A damage was done on purpose: recounts may find something.
    pub damaged: Cell<bool>,
}

impl Notes {
    /// Notes a broken invariant; the first one stays.
    pub fn broke(&self, text: String) {
        self.broken.borrow_mut().get_or_insert(text);
    }
}

/// One process.
pub struct Process {
    /// The protocol; a restarted process has a new one.
    pub protocol: Protocol,
    /// The event bus.
    pub bus: Arc<MemoryBus>,
    lane: Mutex<Option<Arc<Lane>>>,
    ids: Arc<AtomicU64>,
    lines: RefCell<BTreeMap<FactKey, Rc<Mutex<()>>>>,
}

impl Process {
    /// The process's lane; opens it at first.
    async fn lane(&self) -> StoreResult<Arc<Lane>> {
        let mut lane = self.lane.lock().await;
        if let Some(open) = &*lane {
            return Ok(open.clone());
        }
        let ids = self.ids.clone();
        let opened = self.protocol.open_lane(Box::new(move || ids.fetch_add(1, Ordering::Relaxed))).await?;
        Ok(lane.insert(Arc::new(opened)).clone())
    }

    fn line(&self, key: &FactKey) -> Rc<Mutex<()>> {
        self.lines.borrow_mut().entry(key.clone()).or_default().clone()
    }
}

/// A fault of the protocol or of the engine, by name; without the feature there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fault {
    /// Which; `None`: the protocol as it is.
    #[cfg(feature = "mutations")]
    pub mutation: Option<store::protocol::Mutation>,
}

/// The deployment.
pub struct World {
    /// The circumstances.
    pub scenario: Scenario,
    /// The engine.
    pub memory: Arc<Memory>,
    /// Virtual time.
    pub time: Arc<VirtualTime>,
    /// The tasks.
    pub executor: Executor,
    /// The processes as they are now.
    pub processes: [Rc<Process>; PROCESSES],
    /// What the tasks note.
    pub notes: Rc<Notes>,
    settings: Settings,
    ids: Arc<AtomicU64>,
}

impl World {
    /// A world for a scenario; `seed` decides what goes wrong in the engine.
    pub fn new(scenario: Scenario, seed: u64, fault: Fault, tracing: bool) -> Self {
        let settings = settings(&scenario, fault);
        let memory = Arc::new(Memory::new(seed, scenario.fused, faults(scenario.trouble)));
        #[cfg(feature = "mutations")]
        if let Some(mutation) = fault.mutation {
            memory.set_commit_check(super::checks::commit_check(mutation));
        }
        let time = VirtualTime::new();
        let executor = Executor::new(time.clone(), tracing);
        let ids = Arc::new(AtomicU64::new(1));
        let processes = std::array::from_fn(|p| process(&memory, &time, &scenario, &settings, &ids, p));
        Self { scenario, memory, time, executor, processes, notes: Rc::default(), settings, ids }
    }

    /// A process of its own that only reads and repairs; its clock has no error.
    pub fn operator(&self) -> Rc<Process> {
        process(&self.memory, &self.time, &self.scenario, &self.settings, &self.ids, 0)
    }

    /// The key of a target.
    pub fn target(n: u8) -> TargetKey {
        TargetKey::parse(&format!("sim/t{n}")).expect("a valid key")
    }

    /// The name of a kind.
    pub fn kind(n: u8) -> KindName {
        KindName::parse(KINDS[usize::from(n)]).expect("a valid kind")
    }

    /// The id of a member.
    pub fn member(n: u8) -> Member {
        Member::parse(&format!("u{n}")).expect("a valid id")
    }

    /// The root of a (target, kind).
    pub fn root(target: u8, kind: u8) -> ShardKey {
        ShardKey::root(Self::target(target), Self::kind(kind))
    }

    /// Every (target, kind) of the scenario.
    pub fn roots(&self) -> Vec<ShardKey> {
        let kinds = self.scenario.kinds;
        (0..self.scenario.targets).flat_map(|t| (0..kinds).map(move |k| Self::root(t, k))).collect()
    }

    /// Begins what an op says.
    pub fn begin(&mut self, op: &Op) {
        self.executor.note(|| format!("op {op:?}"), 7);
        match op {
            Op::Write { p, items, events } => self.write(usize::from(*p), items, *events),
            Op::Aggregate { p } => {
                let process = self.processes[usize::from(*p)].clone();
                let settings = AggregatorSettings { parallel: 4, ..AggregatorSettings::default() };
                let aggregator = Aggregator::new(process.protocol.clone(), process.bus.clone(), settings);
                self.spawn(*p, "aggregate", async move {
                    aggregator.run_once().await;
                });
            }
            Op::Stray { p, target, kind, members, root } => {
                let at = Self::root(*target, *kind);
                // Nobody names a leaf before there is one.
                let large = self.memory.facts().keys().any(|(s, _)| !s.shard.is_root() && s.with_shard(Shard::ROOT) == at);
                for &member in members {
                    let member = Self::member(member);
                    let shard = if *root || !large { at.clone() } else { at.with_shard(leaf_of(&member, LEVEL)) };
                    let event = ChangeEvent { shard, members: vec![member], at: self.time.now(), traces: Vec::new() };
                    self.processes[usize::from(*p)].bus.push(event);
                }
            }
            Op::LoseEvents { p } => self.processes[usize::from(*p)].bus.lose_all(),
            Op::Kill { p } => self.kill(usize::from(*p)),
            Op::Drop { n } => self.drop_task(*n),
            Op::Audit { p, target, kind } => self.audit(*p, Self::root(*target, *kind)),
            Op::Sweep { p, drain } => {
                let protocol = self.processes[usize::from(*p)].protocol.clone();
                let drain = *drain;
                self.spawn(*p, "sweep", async move {
                    if drain {
                        drop(protocol.sweep_until(protocol.settings().slot_of(protocol.clock().now())).await);
                    } else {
                        drop(Sweep::new(protocol, Duration::from_millis(1)).run_once().await);
                    }
                });
            }
            Op::Rebuild { p, target, dry } => self.rebuild(*p, *target, *dry),
            Op::Repair { p, target, kind } => {
                let protocol = self.processes[usize::from(*p)].protocol.clone();
                let root = Self::root(*target, *kind);
                self.spawn(*p, "repair", async move { drop(protocol.repair_counter(&root).await) });
            }
            Op::Read { p, target, kind, member } => self.read(*p, Self::root(*target, *kind), Self::member(*member)),
            Op::Touch { p } => {
                let process = self.processes[usize::from(*p)].clone();
                self.spawn(*p, "touch", async move {
                    if let Ok(lane) = process.lane().await {
                        drop(process.protocol.touch_lane(&lane).await);
                    }
                });
            }
            Op::Steps { .. } => {}
        }
    }

    fn spawn(&mut self, p: u8, label: &str, future: impl Future<Output = ()> + 'static) -> u64 {
        self.executor.spawn(usize::from(p), label, future)
    }

    /// A request as ingest serves it: those of one fact go one after another, events follow the
    /// answer, the completion row comes last.
    fn write(&mut self, p: usize, items: &[Item], events: Events) {
        let (process, other) = (self.processes[p].clone(), self.processes[1 - p].bus.clone());
        let (time, notes) = (self.time.clone(), self.notes.clone());
        let mut items = items.to_vec();
        items.sort_by_key(|i| (i.target, i.kind, i.member));
        items.dedup_by_key(|i| (i.target, i.kind, i.member));
        let label = format!("write {items:?}");
        self.executor.spawn(p, label, async move {
            let keys: Vec<FactKey> = items.iter().map(|i| Self::root(i.target, i.kind).fact(&Self::member(i.member))).collect();
            let lines: Vec<_> = keys.iter().map(|k| process.line(k)).collect();
            let mut turns = Vec::new();
            for line in &lines {
                turns.push(line.lock().await);
            }
            let Ok(lane) = process.lane().await else { return };
            let requests: Vec<WriteRequest> = items
                .iter()
                .zip(&keys)
                .map(|(item, key)| WriteRequest {
                    key: key.clone(),
                    register: item.reg.into(),
                    value: item.value,
                    at: item.ago.map(|ago| (process.protocol.clock().now() - Micros::from(ago)).max(1)),
                })
                .collect();
            let first = notes.records.borrow().len();
            let begin = time.now();
            let record = |(key, item): (&FactKey, &Item)| Record { key: key.clone(), item: *item, begin, answer: None };
            notes.records.borrow_mut().extend(keys.iter().zip(&items).map(record));
            let (answers, completion) = process.protocol.write(&lane, &requests).await;
            let mut changed: BTreeMap<Shard, BTreeSet<(u8, u8, u8)>> = BTreeMap::new();
            for (n, (answer, item)) in answers.into_iter().zip(&items).enumerate() {
                if answer.landed() {
                    changed.entry(answer.shard).or_default().insert((item.target, item.kind, item.member));
                }
                notes.records.borrow_mut()[first + n].answer = Some((answer.outcome, answer.version));
            }
            drop(turns);
            for (shard, places) in changed {
                for (target, kind, member) in places {
                    let shard = Self::root(target, kind).with_shard(shard);
                    let event = ChangeEvent { shard, members: vec![Self::member(member)], at: time.now(), traces: Vec::new() };
                    match events {
                        Events::Once => process.bus.push(event),
                        Events::Twice => {
                            process.bus.push(event.clone());
                            other.push(event);
                        }
                        Events::Lost => {}
                    }
                }
            }
            if let Some(completion) = completion {
                process.protocol.complete(completion).await;
            }
        });
    }

    fn kill(&mut self, p: usize) {
        self.executor.kill_owner(p);
        self.processes[p] = process(&self.memory, &self.time, &self.scenario, &self.settings, &self.ids, p);
    }

    fn drop_task(&mut self, n: u8) {
        let ids = self.executor.ids();
        if !ids.is_empty() {
            self.executor.kill(ids[usize::from(n) % ids.len()]);
        }
    }

    fn audit(&mut self, p: u8, root: ShardKey) {
        let (protocol, notes) = (self.processes[usize::from(p)].protocol.clone(), self.notes.clone());
        self.spawn(p, "audit", async move {
            let Ok((head, _)) = protocol.read_small(&root).await else { return };
            for leaf in head.level().into_iter().flat_map(leaves) {
                let leaf = root.with_shard(leaf);
                let report = protocol.audit(&leaf).await;
                if let Some((before, after)) = report.ok().and_then(|r| r.corrected)
                    && !notes.damaged.get()
                {
                    notes.broke(format!("a recount cried wolf in {leaf:?}: {before:?} is not {after:?}"));
                }
            }
        });
    }

    fn rebuild(&mut self, p: u8, target: Option<u8>, dry: bool) {
        let (protocol, notes) = (self.processes[usize::from(p)].protocol.clone(), self.notes.clone());
        let scope = match target {
            Some(target) => Scope::Target { target: Self::target(target), kind: None },
            None => Scope::All,
        };
        self.spawn(p, "rebuild", async move {
            let rebuilder = Rebuilder::new(protocol, rebuilder_settings());
            if let Ok(report) = rebuilder.rebuild(scope, dry, &Progress::default()).await
                && let Some(drift) = report.drift.iter().find(|d| matches!(d.cause, Cause::Count | Cause::FactLost))
                && !notes.damaged.get()
            {
                notes.broke(format!("a rebuild beside traffic cried wolf: {drift:?}"));
            }
        });
    }

    fn read(&mut self, p: u8, root: ShardKey, member: Member) {
        let (protocol, notes) = (self.processes[usize::from(p)].protocol.clone(), self.notes.clone());
        self.spawn(p, "read", async move {
            if let Ok(counts) = protocol.counts(&root.target, std::slice::from_ref(&root.kind)).await {
                let negative = counts.iter().filter_map(|c| c.counts.as_ref()).any(|c| c.any_negative());
                if negative && !notes.damaged.get() {
                    notes.broke(format!("I5 a negative count was shown: {counts:?}"));
                }
            }
            drop(protocol.list(&root, None, None, 2).await);
            drop(protocol.state(&root.fact(&member)).await);
            drop(protocol.count_for(&root.fact(&member)).await);
        });
    }
}

/// A rebuilder that suits a world of a few facts.
pub fn rebuilder_settings() -> RebuilderSettings {
    RebuilderSettings {
        slices: 2,
        parallel: 3,
        looks: 3,
        settle: Duration::from_millis(2),
        page: 5,
        classes: 16,
        lease: Duration::from_millis(300),
        // A simulated world damages most of what it has.
        freeze_targets: u64::MAX,
        freeze_size: 0,
        ..RebuilderSettings::default()
    }
}

/// The protocol's settings in simulations.
pub fn settings(scenario: &Scenario, fault: Fault) -> Settings {
    #[cfg(not(feature = "mutations"))]
    let _ = fault;
    Settings {
        small_limit: SMALL,
        level: LEVEL,
        slot: scenario.slot,
        sweep_delay: scenario.sweep_delay,
        deadline: scenario.deadline,
        lane_timeout: scenario.lane_timeout,
        parallel: 3,
        #[cfg(feature = "mutations")]
        mutation: fault.mutation,
        ..Settings::default()
    }
}

fn process(
    memory: &Arc<Memory>,
    time: &Arc<VirtualTime>,
    scenario: &Scenario,
    settings: &Settings,
    ids: &Arc<AtomicU64>,
    p: usize,
) -> Rc<Process> {
    let clock = Arc::new(SimClock::new(time.clone(), scenario.offsets[p], scenario.grain));
    Rc::new(Process {
        protocol: Protocol::new(memory.clone(), clock, settings.clone()),
        bus: MemoryBus::new(2, 1000),
        lane: Mutex::default(),
        ids: ids.clone(),
        lines: RefCell::default(),
    })
}

fn faults(trouble: f64) -> Faults {
    let much = Faults::frequent();
    Faults {
        reaches: 1.0 - (1.0 - much.reaches) * trouble,
        late: much.late,
        arrives: much.arrives,
        unavailable: much.unavailable * trouble,
        answer_lost: much.answer_lost * trouble,
        stale: much.stale * trouble,
        commit_unknown: much.commit_unknown * trouble,
    }
}
