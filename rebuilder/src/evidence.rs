//! A ledger row ahead of its fact: was the fact lost, or is the row wrong? The row is believed,
//! register by register, only where the journal or the user's index bears it out.

use std::collections::{HashMap, HashSet};

use schema::{Fact, FactKey, Member, Micros, Reason, Register, Shard, ShardKey, Slot, UserKey};
use store::{Protocol, StoreResult};

use crate::suspect::ledger_row;

/// Journal entries that are read at a time.
const PAGE: usize = 512;
/// Slots beyond now in which entries may stand: writers whose slot was closed journal in a later one.
pub(crate) const AHEAD: Slot = 4;

/// Registers that the retained journal holds for some facts.
#[derive(Default)]
pub(crate) struct Evidence {
    intents: HashMap<FactKey, HashSet<(Register, Micros, u8)>>,
}

/// What is to be done about one member.
pub(crate) struct Verdict {
    /// The fact as it is stored, on any copy.
    pub fact: Option<Fact>,
    /// The ledger row as it was judged.
    pub row: Fact,
    /// Registers of the row that are borne out, joined into the fact.
    pub restored: Fact,
    /// What bears them out.
    pub journal: bool,
    pub index: bool,
}

impl Evidence {
    /// Reads the whole retained journal once for `wanted`; not at all where there is nothing to find.
    pub async fn gather(protocol: &Protocol, wanted: HashSet<FactKey>) -> StoreResult<Self> {
        let mut out = Self::default();
        if wanted.is_empty() {
            return Ok(out);
        }
        let engine = protocol.engine();
        for lane in engine.lanes().await? {
            // Slots before the retained ones are gone, and none lies far ahead of the time.
            let kept = micros(protocol.settings().journal_retention);
            let now = protocol.clock().now().max(lane.seen);
            let mut from = lane.first.max(protocol.settings().slot_of(now.saturating_sub(kept)) - 1);
            let last = protocol.settings().slot_of(now) + AHEAD;
            while from <= last {
                let Some(slot) = engine.next_slot(lane.lane, from, last).await? else { break };
                let mut after = None;
                loop {
                    let (entries, end) = engine.read_slot(lane.lane, slot, after, PAGE).await?;
                    after = entries.last().map(|e| e.id).or(after);
                    for intent in entries.into_iter().flat_map(|e| e.intents) {
                        if wanted.contains(&intent.key) {
                            let found = (intent.register, intent.version, intent.value);
                            out.intents.entry(intent.key).or_default().insert(found);
                        }
                    }
                    tokio::task::yield_now().await;
                    if end {
                        break;
                    }
                }
                from = slot + 1;
            }
        }
        Ok(out)
    }

    /// Compares ledger row and fact of one member, the fact from every copy.
    pub async fn judge(&self, protocol: &Protocol, leaf: &ShardKey, member: &Member) -> StoreResult<Verdict> {
        let engine = protocol.engine();
        let row = ledger_row(protocol, leaf, member).await?.fact;
        let there = engine.read_facts_at_all(leaf, std::slice::from_ref(member)).await?.facts;
        let fact = there.into_iter().next().flatten();
        let mut verdict = Verdict { fact, row, restored: fact.unwrap_or_default(), journal: false, index: false };
        let stored = verdict.restored;
        if stored.join(row) == stored {
            return Ok(verdict);
        }
        let key = leaf.with_shard(Shard::ROOT).fact(member);
        let user = UserKey::of(&leaf.target, member);
        let index = engine.read_index(&user, &leaf.kind, std::slice::from_ref(&leaf.target)).await?.into_iter().next().flatten();
        let registers = [Register::Choice].into_iter().chain(Reason::ALL.map(Register::Hide));
        for register in registers {
            let only = only(&row, register);
            if stored.join(only) == stored {
                continue;
            }
            let (version, value) = row.register(register);
            let by_index = register == Register::Choice && index == Some(row.choice.into());
            let by_journal = self.intents.get(&key).is_some_and(|found| found.contains(&(register, version, value)));
            if by_index || by_journal {
                verdict.restored = verdict.restored.join(only);
                verdict.index |= by_index;
                verdict.journal |= by_journal;
            }
        }
        Ok(verdict)
    }
}

impl Verdict {
    /// Whether the row is ahead of the fact at all.
    pub fn is_ahead(&self) -> bool {
        let fact = self.fact.unwrap_or_default();
        fact.join(self.row) != fact
    }

    /// Whether something is to be written into the fact.
    pub fn restores(&self) -> bool {
        self.restored != self.fact.unwrap_or_default()
    }

    /// Whether the row stays ahead of the fact even then.
    pub fn rewrites(&self) -> bool {
        self.restored.join(self.row) != self.restored
    }

    fn source(&self) -> &'static str {
        match (self.journal, self.index) {
            (true, true) => "the journal and the user's index bear it out",
            (true, false) => "the journal bears it out",
            (false, _) => "the user's index bears it out",
        }
    }

    /// What a repair will do, for reports that only look.
    pub fn forecast(&self, after: &str) -> String {
        match (self.is_ahead(), self.restores()) {
            (false, _) => after.to_owned(),
            (true, true) => format!("{after}; a rebuild restores the fact from the ledger: {}", self.source()),
            (true, false) => format!("{after}; a rebuild rewrites the ledger row from the fact: nothing bears it out"),
        }
    }

    /// What was done.
    pub fn done(&self) -> String {
        let restored = || format!("the fact was restored from the ledger: {}", self.source());
        match (self.restores(), self.rewrites()) {
            (true, false) => restored(),
            (true, true) => format!("{}; the rest of the ledger row was rewritten from the fact", restored()),
            (false, _) => "the ledger row was rewritten from the fact: nothing bears it out".to_owned(),
        }
    }
}

/// The row with nothing but one register.
fn only(row: &Fact, register: Register) -> Fact {
    let mut out = Fact::default();
    match register {
        Register::Choice => out.choice = row.choice,
        Register::Hide(reason) => out.hides[reason as usize] = row.hides[reason as usize],
    }
    out
}

impl crate::suspect::Suspect {
    /// The fact whose ledger row or index row may be what is left of it.
    pub(crate) fn fact_key(&self) -> Option<FactKey> {
        match self {
            Self::Ahead { leaf, member } => Some(leaf.with_shard(Shard::ROOT).fact(member)),
            Self::Index { user, kind, target, .. } => {
                Some(FactKey { target: target.clone(), kind: kind.clone(), member: user.member() })
            }
            _ => None,
        }
    }
}

pub(crate) fn micros(duration: std::time::Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}
