//! The design's invariants, looked at from outside: I1, I4 and I5 after every step.

use std::collections::BTreeMap;

use schema::{Counts, Fact, Member, Micros, Register, ShardKey, leaves};
use store::{
    memory::{LedgerState, Memory},
    protocol::count,
};

/// The registers of a fact.
pub const REGISTERS: [Register; 4] = [
    Register::Choice,
    Register::Hide(schema::Reason::Moderation),
    Register::Hide(schema::Reason::Suspension),
    Register::Hide(schema::Reason::Fraud),
];

/// What the checks saw last.
#[derive(Default)]
pub struct Watch {
    blind: bool,
    changes: Option<u64>,
    facts: BTreeMap<(ShardKey, Member), Fact>,
    ledgers: BTreeMap<ShardKey, LedgerState>,
    counts: BTreeMap<(ShardKey, Micros), Counts>,
}

impl Watch {
    /// One that sees nothing: for a store that was damaged on purpose.
    pub fn blind() -> Self {
        Self { blind: true, ..Self::default() }
    }

    /// Looks at everything, if something may have changed since the last look.
    ///
    /// # Errors
    /// The invariant that is broken, and where.
    pub fn look(&mut self, memory: &Memory) -> Result<(), String> {
        if self.blind {
            return Ok(());
        }
        let changes = memory.changes();
        if self.changes.replace(changes) == Some(changes) {
            return Ok(());
        }
        let facts = memory.facts();
        for (place, old) in &self.facts {
            let new = facts.get(place).ok_or_else(|| format!("I4 a fact vanished: {place:?}"))?;
            not_backwards(old, new).map_err(|r| format!("I4 {r:?} of the fact {place:?} went backwards: {old:?} to {new:?}"))?;
        }
        let ledgers = memory.ledgers();
        for (leaf, ledger) in &ledgers {
            self.look_at_ledger(leaf, ledger, &facts)?;
        }
        self.look_at_counters(memory, &facts, &ledgers)?;
        self.facts = facts;
        self.ledgers = ledgers;
        Ok(())
    }

    fn look_at_ledger(
        &mut self,
        leaf: &ShardKey,
        ledger: &LedgerState,
        facts: &BTreeMap<(ShardKey, Member), Fact>,
    ) -> Result<(), String> {
        let head = ledger.head.clone().unwrap_or_default();
        let rows = count(ledger.rows.values().map(|r| &r.fact));
        if head.counts != rows {
            return Err(format!("I1 the head of {leaf:?} says {:?}, its rows are {rows:?}", head.counts));
        }
        let times: Counts = ledger.times.values().map(|&choice| (choice, 1)).collect();
        if times != rows {
            return Err(format!("I1 the list of {leaf:?} has {times:?}, its rows are {rows:?}"));
        }
        for (member, row) in &ledger.rows {
            let fact = facts.get(&(leaf.clone(), member.clone())).copied().unwrap_or_default();
            not_backwards(&row.fact, &fact).map_err(|r| {
                format!("I4 {r:?} of {member} is counted in {leaf:?} ahead of its fact: {:?}, {fact:?}", row.fact)
            })?;
            if row.revision > head.revision {
                return Err(format!("a row of {leaf:?} is newer than its head: {row:?}, {head:?}"));
            }
        }
        if let Some(old) = self.ledgers.get(leaf) {
            let before = old.head.as_ref().map_or(0, |h| h.revision);
            if head.revision < before {
                return Err(format!("I4 the revision of {leaf:?} went backwards: {before} to {}", head.revision));
            }
            for (member, row) in &old.rows {
                let new = ledger.rows.get(member).copied().unwrap_or_default();
                not_backwards(&row.fact, &new.fact)
                    .map_err(|r| format!("I4 {r:?} of {member} in {leaf:?} went backwards: {row:?} to {new:?}"))?;
            }
        }
        self.counts.insert((leaf.clone(), head.revision), head.counts);
        Ok(())
    }

    /// What a reader would be shown: never negative, never partial, and each leaf's number one that
    /// its ledger once had.
    fn look_at_counters(
        &self,
        memory: &Memory,
        facts: &BTreeMap<(ShardKey, Member), Fact>,
        ledgers: &BTreeMap<ShardKey, LedgerState>,
    ) -> Result<(), String> {
        let counters = memory.counters();
        for (shard, row) in &counters {
            if row.counts.any_negative() {
                return Err(format!("I5 the counter of {shard:?} is negative: {row:?}"));
            }
            if shard.shard.is_root() {
                let known = facts.keys().filter(|(s, _)| s == shard).count();
                if row.counts.total() > i64::try_from(known).unwrap_or(i64::MAX) {
                    return Err(format!("I5 the counter of {shard:?} counts more than the {known} facts there: {row:?}"));
                }
            } else if self.counts.get(&(shard.clone(), row.order)).is_some_and(|was| *was != row.counts) {
                return Err(format!("I5 the counter of {shard:?} says what its ledger never held: {row:?}"));
            }
        }
        for (root, level) in memory.shown() {
            for leaf in leaves(level).map(|l| root.with_shard(l)) {
                let complete = ledgers.get(&leaf).and_then(|l| l.head.as_ref()).is_some_and(|h| h.complete);
                if !complete || !counters.contains_key(&leaf) {
                    return Err(format!("I5 {root:?} is shown before its leaf {} is complete", leaf.shard));
                }
            }
        }
        Ok(())
    }
}

/// Checks that no register of `new` is behind the same of `old`; names the first that is.
pub fn not_backwards(old: &Fact, new: &Fact) -> Result<(), Register> {
    REGISTERS.into_iter().find(|&r| new.register(r) < old.register(r)).map_or(Ok(()), Err)
}

/// What commits compare under a mutation that concerns the engine.
#[cfg(feature = "mutations")]
pub fn commit_check(mutation: store::protocol::Mutation) -> store::memory::CommitCheck {
    use store::{memory::CommitCheck, protocol::Mutation};
    match mutation {
        Mutation::NoCas => CommitCheck::Nothing,
        Mutation::HeadOnly => CommitCheck::HeadOnly,
        Mutation::VersionOnly => CommitCheck::VersionOnly,
        _ => CommitCheck::Full,
    }
}
