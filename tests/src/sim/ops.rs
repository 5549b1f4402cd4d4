//! What happens in a simulation, as data: generated from a seed, and shrunk to a list short enough
//! to be kept as a regression.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schema::{Micros, Reason, Register};
use serde::{Deserialize, Serialize};

/// Number of processes; each has its own protocol, clock, lane and bus over one engine.
pub const PROCESSES: usize = 2;

/// Which register, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reg {
    /// The member's choice.
    Choice,
    /// Hidden because the content was removed.
    Moderation,
    /// Hidden because the account is suspended.
    Suspension,
    /// Hidden because the like was bought.
    Fraud,
}

impl From<Reg> for Register {
    fn from(reg: Reg) -> Self {
        match reg {
            Reg::Choice => Self::Choice,
            Reg::Moderation => Self::Hide(Reason::Moderation),
            Reg::Suspension => Self::Hide(Reason::Suspension),
            Reg::Fraud => Self::Hide(Reason::Fraud),
        }
    }
}

/// One register of one fact that a request wants written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Target number.
    pub target: u8,
    /// Index into [`KINDS`].
    pub kind: u8,
    /// Member number.
    pub member: u8,
    /// Register.
    pub reg: Reg,
    /// Choice, or 1/0 for hidden or not.
    pub value: u8,
    /// An import: this many microseconds before the process's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ago: Option<u32>,
}

/// Kinds that simulations use; the second is not listed by user, the third has six choices.
pub const KINDS: [&str; 3] = ["like", "comment", "reaction"];

/// What becomes of the events of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Events {
    /// On the process's bus, once.
    Once,
    /// Twice, the second time on the other process's bus.
    Twice,
    /// Never.
    Lost,
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// One request of one or several facts; a process serialises those of one fact.
    Write {
        /// Process.
        p: u8,
        /// What is written; different facts.
        items: Vec<Item>,
        /// Fate of the events.
        events: Events,
    },
    /// The aggregator of a process takes what is on its bus.
    Aggregate {
        /// Process.
        p: u8,
    },
    /// An old event comes again, or one for which nothing ever happened; to any partition.
    Stray {
        /// Process.
        p: u8,
        /// Target number.
        target: u8,
        /// Index into [`KINDS`].
        kind: u8,
        /// Members named.
        members: Vec<u8>,
        /// The root, or the leaves of these members.
        root: bool,
    },
    /// Everything on a process's bus is lost.
    LoseEvents {
        /// Process.
        p: u8,
    },
    /// A process dies with all its tasks, and another takes its place.
    Kill {
        /// Process.
        p: u8,
    },
    /// One task dies where it is: the n-th of those that live, modulo their number.
    Drop {
        /// Which.
        n: u8,
    },
    /// An audit of each leaf of a target.
    Audit {
        /// Process.
        p: u8,
        /// Target number.
        target: u8,
        /// Index into [`KINDS`].
        kind: u8,
    },
    /// A pass of the sweep.
    Sweep {
        /// Process.
        p: u8,
        /// Through the current slot instead of behind the delay.
        drain: bool,
    },
    /// A rebuild of one target, or of everything.
    Rebuild {
        /// Process.
        p: u8,
        /// Target number; `None`: everything.
        target: Option<u8>,
        /// Only look.
        dry: bool,
    },
    /// A counter is repaired although nothing may be wrong with it.
    Repair {
        /// Process.
        p: u8,
        /// Target number.
        target: u8,
        /// Index into [`KINDS`].
        kind: u8,
    },
    /// All that readers can ask, once.
    Read {
        /// Process.
        p: u8,
        /// Target number.
        target: u8,
        /// Index into [`KINDS`].
        kind: u8,
        /// Member number.
        member: u8,
    },
    /// A sign of life.
    Touch {
        /// Process.
        p: u8,
    },
    /// Nothing is begun for so many steps.
    Steps {
        /// Steps.
        n: u16,
    },
}

/// The circumstances: drawn from the seed, not shrunk.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Targets.
    pub targets: u8,
    /// Members.
    pub members: u8,
    /// Kinds, from the front of [`KINDS`].
    pub kinds: u8,
    /// Length of a journal slot.
    pub slot: Duration,
    /// How far the sweep stays behind.
    pub sweep_delay: Duration,
    /// When a silent lane is taken for dead.
    pub lane_timeout: Duration,
    /// How long a request may try.
    pub deadline: Duration,
    /// Clock error of each process, microseconds.
    pub offsets: [Micros; PROCESSES],
    /// Granularity of the clocks, microseconds.
    pub grain: Micros,
    /// Virtual time of one step, microseconds.
    pub tick: Micros,
    /// How likely a task is paused instead of polled.
    pub pause: f64,
    /// Longest pause, microseconds.
    pub longest_pause: Micros,
    /// Whether the engine journals and lands in one step.
    pub fused: bool,
    /// How much goes wrong in the engine: 0 nothing, 1 much.
    pub trouble: f64,
}

impl Scenario {
    /// The circumstances of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5ce9_a210);
        let ms = Duration::from_millis;
        let slot = ms(pick(&mut rng, &[2, 8, 40]));
        // Two slots are what a lane's retirement allows for clock errors and closed slots together.
        let half = Micros::try_from(slot.as_micros()).unwrap_or(Micros::MAX) / 2;
        let offset = pick(&mut rng, &[0, 0, 50, 2_000, 20_000]).min(half);
        Self {
            targets: pick(&mut rng, &[1, 1, 2]),
            members: pick(&mut rng, &[2, 4, 5, 7]),
            kinds: pick(&mut rng, &[1, 1, 2, 3]),
            slot,
            sweep_delay: slot * pick(&mut rng, &[0, 1, 3]),
            lane_timeout: ms(pick(&mut rng, &[10, 60, 100_000, 100_000])),
            deadline: ms(pick(&mut rng, &[1, 20, 200, 2_000])),
            offsets: [0, if rng.random_bool(0.5) { offset } else { -offset }],
            grain: pick(&mut rng, &[1, 1, 1_000, 5_000]).min(half),
            tick: pick(&mut rng, &[1, 20, 100, 500]),
            pause: pick(&mut rng, &[0.0, 0.01, 0.05]),
            longest_pause: pick(&mut rng, &[2_000, 30_000, 200_000]),
            fused: rng.random_bool(0.25),
            trouble: pick(&mut rng, &[0.0, 0.3, 0.6, 1.0]),
        }
    }

    /// Largest difference between two processes' ideas of the time, microseconds.
    pub fn clock_error(&self) -> Micros {
        self.offsets[1].abs() + 2 * self.grain
    }
}

/// The ops of a seed.
pub fn generate(seed: u64) -> Vec<Op> {
    let scenario = Scenario::of(seed);
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x0b5_7e11);
    let length = pick(&mut rng, &[15, 40, 80]);
    let mut ops = Vec::new();
    while ops.len() < length {
        let p = rng.random_range(0..PROCESSES as u8);
        let target = rng.random_range(0..scenario.targets);
        let kind = rng.random_range(0..scenario.kinds);
        let member = rng.random_range(0..scenario.members);
        let op = match rng.random_range(0..100u8) {
            0..40 => {
                let first = item(&mut rng, &scenario, target, kind, member);
                if rng.random_bool(0.3) {
                    // The other process is asked for the opposite of the same register at once.
                    let other = Item { value: opposite(&mut rng, &first), ago: None, ..first };
                    let events = events(&mut rng);
                    ops.push(Op::Write { p: 1 - p, items: vec![other], events });
                }
                Op::Write { p, items: batch(&mut rng, &scenario, first), events: events(&mut rng) }
            }
            40..58 => Op::Aggregate { p },
            58..63 => Op::Stray { p, target, kind, members: vec![member], root: rng.random_bool(0.5) },
            63..65 => Op::LoseEvents { p },
            65..67 => Op::Kill { p },
            67..71 => Op::Drop { n: rng.random_range(0..32) },
            71..75 => Op::Audit { p, target, kind },
            75..82 => Op::Sweep { p, drain: rng.random_bool(0.3) },
            82..84 => {
                Op::Rebuild { p, target: if rng.random_bool(0.7) { Some(target) } else { None }, dry: rng.random_bool(0.3) }
            }
            84..85 => Op::Repair { p, target, kind },
            85..90 => Op::Read { p, target, kind, member },
            90..92 => Op::Touch { p },
            _ => Op::Steps { n: pick(&mut rng, &[5, 20, 60]) },
        };
        ops.push(op);
    }
    ops
}

fn batch(rng: &mut ChaCha8Rng, scenario: &Scenario, first: Item) -> Vec<Item> {
    let mut items = vec![first];
    if rng.random_bool(0.25) {
        for member in (0..scenario.members).filter(|&m| m != first.member) {
            if rng.random_bool(0.6) {
                let target = rng.random_range(0..scenario.targets);
                items.push(item(rng, scenario, target, first.kind, member));
            }
        }
    }
    items
}

fn item(rng: &mut ChaCha8Rng, scenario: &Scenario, target: u8, kind: u8, member: u8) -> Item {
    let reg = match rng.random_range(0..20u8) {
        0..2 => Reg::Moderation,
        2..3 => Reg::Suspension,
        3..4 => Reg::Fraud,
        _ => Reg::Choice,
    };
    let choices = if KINDS[usize::from(kind)] == "reaction" { 3 } else { 1 };
    let value = if reg != Reg::Choice {
        u8::from(rng.random_bool(0.6))
    } else if rng.random_bool(0.55) {
        rng.random_range(1..=choices)
    } else {
        0
    };
    let span = u32::try_from(scenario.slot.as_micros()).unwrap_or(u32::MAX).saturating_mul(4);
    let ago = (reg == Reg::Choice && rng.random_bool(0.08)).then(|| rng.random_range(0..span));
    Item { target, kind, member, reg, value, ago }
}

fn opposite(rng: &mut ChaCha8Rng, item: &Item) -> u8 {
    match (item.value, KINDS[usize::from(item.kind)] == "reaction" && item.reg == Reg::Choice) {
        (0, true) => rng.random_range(1..=3),
        (0, false) => 1,
        _ => 0,
    }
}

fn events(rng: &mut ChaCha8Rng) -> Events {
    match rng.random_range(0..10u8) {
        0..6 => Events::Once,
        6..8 => Events::Twice,
        _ => Events::Lost,
    }
}

fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

/// Everything that replays a run: pasted into `tests/regressions.rs` when a seed fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Circumstances and schedule.
    pub seed: u64,
    /// What happens.
    pub ops: Vec<Op>,
}

impl Case {
    /// The case of a seed, in full.
    pub fn of(seed: u64) -> Self {
        Self { seed, ops: generate(seed) }
    }
}
