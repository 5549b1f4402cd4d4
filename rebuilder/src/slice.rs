//! One slice of the key space: facts and ledgers are read side by side in key order, then the counters
//! are compared with what they should be. Bounded memory, whatever the size of a target.

use std::collections::{BTreeMap, VecDeque};

use schema::{Counts, Fact, LedgerHead, LedgerRow, Level, Member, RootHead, Shard, ShardKey, TargetKey, leaf_of};
use store::{
    StoreResult,
    engine::{FactRows, LedgerRows, MAX_COMMIT_MEMBERS, Slice, TargetCounters},
    protocol::leaf_counter,
};

use crate::{
    check::{check_counters, ghosts, name_times},
    index::missing_rows,
    shared::{MAX_HELD, Shared},
    stream::Parts,
    sums::{Sums, due_index, user_of},
    suspect::{Suspect, corrected},
};

/// Partitions that are listed at a time.
const PAGE: usize = 256;
/// Classes of targets in which counters are compared within a slice.
const TARGET_CLASSES: usize = 4096;

/// How the facts of a slice are compared with the per-user index.
#[derive(Clone, Copy)]
pub(crate) enum Index<'a> {
    /// By sums, with the index of all users later.
    Sums(&'a Sums),
    /// Row by row, here: dearer, but of this slice alone.
    Rows,
}

/// A slice under the eye.
pub(crate) struct SliceCheck<'a> {
    shared: &'a Shared,
    slice: Slice,
    index: Index<'a>,
    suspects: Vec<Suspect>,
    /// Counter rows: due less stored.
    counters: Sums,
    text: Vec<u8>,
    user: Vec<u8>,
}

impl<'a> SliceCheck<'a> {
    pub fn new(shared: &'a Shared, slice: Slice, index: Index<'a>) -> Self {
        let classes = TARGET_CLASSES.min(shared.settings.classes);
        let counters = Sums::new(classes, shared.seed());
        Self { shared, slice, index, suspects: Vec::new(), counters, text: Vec::new(), user: Vec::new() }
    }

    /// Checks facts, ledgers and counters of the slice, repairs and reports.
    pub async fn run(mut self) -> StoreResult<()> {
        self.partitions().await?;
        // What the repairs wrote is then seen as it is.
        self.settle(0).await?;
        self.stored_counters().await?;
        if self.counters.any() {
            self.differing_counters().await?;
        }
        self.settle(0).await
    }

    async fn settle(&mut self, keep: usize) -> StoreResult<()> {
        if self.suspects.len() > keep { self.shared.settle(std::mem::take(&mut self.suspects)).await } else { Ok(()) }
    }

    async fn suspect(&mut self, suspect: Suspect) -> StoreResult<()> {
        self.suspects.push(suspect);
        self.settle(MAX_HELD).await
    }

    async fn partitions(&mut self) -> StoreResult<()> {
        let mut facts = Parts::<FactRows>::new(self.shared, self.slice);
        let mut ledgers = Parts::<LedgerRows>::new(self.shared, self.slice);
        loop {
            let fact = facts.peek().await?.map(|part| (&part.place, &part.shard));
            let ledger = ledgers.peek().await?.map(|part| (&part.place, &part.leaf));
            let Some((place, shard)) = fact.into_iter().chain(ledger).min_by(|a, b| a.0.cmp(b.0)) else { return Ok(()) };
            let (place, shard) = (place.clone(), shard.clone());
            if shard.shard.is_root() {
                self.root(&place, &shard, &mut facts).await?;
                // A root has no ledger; what stands at its place is nobody's.
                while ledgers.next_at(&place).await?.is_some() {}
            } else {
                self.leaf(&place, &shard, &mut facts, &mut ledgers).await?;
            }
        }
    }

    async fn root(&mut self, place: &[u8], root: &ShardKey, facts: &mut Parts<'_, FactRows>) -> StoreResult<()> {
        let limit = self.shared.protocol.settings().small_limit;
        let mut head: Option<RootHead> = None;
        let mut rows: Vec<(Member, Fact)> = Vec::new();
        let mut checked = 0;
        while let Some(part) = facts.next_at(place).await? {
            head = head.or(part.head);
            if let Some(level) = head.and_then(|h| h.level()) {
                self.left_in_root(root, level, part.rows).await?;
                continue;
            }
            checked += part.rows.len() as u64;
            self.index(root, &part.rows).await?;
            if rows.is_empty() {
                rows = part.rows;
            } else if rows.len() <= limit {
                rows.extend(part.rows);
            }
        }
        self.shared.note(|r| {
            r.partitions += 1;
            r.targets += 1;
            r.facts += checked;
        });
        let class = self.counters.class(root.target.as_str().as_bytes());
        let head = head.unwrap_or_default();
        if let Some(level) = head.level() {
            let due = self.counters.shown(&mut self.text, &root.target, &root.kind, level);
            self.counters.add(class, due);
        } else if rows.len() > limit {
            return self.suspect(Suspect::Promotion { root: root.clone() }).await;
        } else if !rows.is_empty() {
            let row = self.shared.protocol.small_counter(head, &rows);
            let due = self.counters.counter(&mut self.text, &root.target, &root.kind, Shard::ROOT, &row);
            self.counters.add(class, due);
        }
        Ok(())
    }

    /// Facts of a large target's root are in their leaves too, or are still to be moved on.
    async fn left_in_root(&mut self, root: &ShardKey, level: Level, rows: Vec<(Member, Fact)>) -> StoreResult<()> {
        let mut leaves: BTreeMap<Shard, Vec<(Member, Fact)>> = BTreeMap::new();
        for (member, fact) in rows {
            leaves.entry(leaf_of(&member, level)).or_default().push((member, fact));
        }
        for (leaf, rows) in leaves {
            let leaf = root.with_shard(leaf);
            for chunk in rows.chunks(MAX_COMMIT_MEMBERS) {
                let members: Vec<Member> = chunk.iter().map(|(m, _)| m.clone()).collect();
                let there = self.shared.protocol.engine().read_facts(&leaf, &members).await?.facts;
                self.shared.throttle.take(members.len()).await;
                for ((member, fact), there) in chunk.iter().zip(there) {
                    let there = there.unwrap_or_default();
                    if there.join(*fact) != there {
                        let (root, member, fact) = (root.clone(), member.clone(), *fact);
                        self.suspect(Suspect::LeftInRoot { root, member, fact }).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn leaf(
        &mut self,
        place: &[u8],
        leaf: &ShardKey,
        facts: &mut Parts<'_, FactRows>,
        ledgers: &mut Parts<'_, LedgerRows>,
    ) -> StoreResult<()> {
        let mut seen = SeenLeaf::default();
        let mut fact_rows: VecDeque<(Member, Fact)> = VecDeque::new();
        let mut ledger_rows: VecDeque<(Member, LedgerRow)> = VecDeque::new();
        let mut checked = 0;
        loop {
            if fact_rows.is_empty()
                && let Some(part) = facts.next_at(place).await?
            {
                checked += part.rows.len() as u64;
                self.index(leaf, &part.rows).await?;
                fact_rows = part.rows.into();
            }
            while ledger_rows.is_empty() {
                let Some(part) = ledgers.next_at(place).await? else { break };
                seen.parts += 1;
                seen.head = seen.head.or(part.head);
                for time in &part.times {
                    let hash = self.counters.time(&mut self.text, time.at, time.member.as_str(), time.choice);
                    seen.listed = seen.listed.wrapping_add(hash);
                }
                ledger_rows = part.rows.into();
            }
            match (fact_rows.front(), ledger_rows.front()) {
                (None, None) => break,
                (Some((member, _)), Some((other, _))) if member == other => {
                    let (Some((member, fact)), Some((_, row))) = (fact_rows.pop_front(), ledger_rows.pop_front()) else { break };
                    self.book(&mut seen, &member, &row);
                    if fact != row.fact {
                        self.unequal(leaf, &seen, member, fact, row.fact).await?;
                    }
                }
                (Some((member, _)), other) if other.is_none_or(|(other, _)| member < other) => {
                    let Some((member, fact)) = fact_rows.pop_front() else { break };
                    if fact != Fact::default() {
                        self.unequal(leaf, &seen, member, fact, Fact::default()).await?;
                    }
                }
                _ => {
                    // A ledger row without a fact beside it.
                    let Some((member, row)) = ledger_rows.pop_front() else { break };
                    self.book(&mut seen, &member, &row);
                    self.suspect(Suspect::Ahead { leaf: leaf.clone(), member }).await?;
                }
            }
        }
        self.shared.note(|r| {
            r.partitions += 1;
            r.facts += checked;
        });
        self.ledger_seen(leaf, seen).await
    }

    async fn unequal(&mut self, leaf: &ShardKey, seen: &SeenLeaf, member: Member, fact: Fact, row: Fact) -> StoreResult<()> {
        if seen.complete() && row.join(fact) != row {
            self.suspect(Suspect::Behind { leaf: leaf.clone(), member: member.clone(), fact }).await?;
        }
        if fact.join(row) != fact {
            self.suspect(Suspect::Ahead { leaf: leaf.clone(), member }).await?;
        }
        Ok(())
    }

    fn book(&mut self, seen: &mut SeenLeaf, member: &Member, row: &LedgerRow) {
        let counted = row.fact.counted();
        seen.counts.add(counted, 1);
        if counted != 0 {
            let hash = self.counters.time(&mut self.text, row.fact.choice.since, member.as_str(), counted);
            seen.due = seen.due.wrapping_add(hash);
        }
    }

    /// The head against the rows, the list by time against the rows; the counter is compared later.
    async fn ledger_seen(&mut self, leaf: &ShardKey, seen: SeenLeaf) -> StoreResult<()> {
        if !seen.complete() {
            return self.suspect(Suspect::NoLedger { leaf: leaf.clone() }).await;
        }
        let protocol = &self.shared.protocol;
        let head = seen.head.unwrap_or_default();
        let class = self.counters.class(leaf.target.as_str().as_bytes());
        let due = self.counters.counter(&mut self.text, &leaf.target, &leaf.kind, leaf.shard, &leaf_counter(&head));
        self.counters.add(class, due);
        if head.counts == seen.counts && seen.due == seen.listed && seen.parts == 1 {
            return Ok(());
        }
        if seen.parts > 1 {
            // Read at several moments: only to be compared if nothing has changed in between.
            let now = protocol.engine().page_ledger(leaf, None, 1).await?.head.unwrap_or_default();
            if now.revision != head.revision {
                self.shared.note(|r| r.busy_leaves += 1);
                // Not to be compared by reading alone; the audit cursor compares while it moves.
                if self.shared.mends()
                    && let Some((before, after)) = protocol.audit(leaf).await?.corrected
                {
                    self.shared.add(corrected(leaf, &before, &after));
                }
                return Ok(());
            }
        }
        if head.counts != seen.counts {
            self.suspect(Suspect::Head { leaf: leaf.clone() }).await?;
        }
        if seen.due != seen.listed {
            for suspect in name_times(protocol, leaf).await? {
                self.suspect(suspect).await?;
            }
        }
        Ok(())
    }

    async fn index(&mut self, shard: &ShardKey, rows: &[(Member, Fact)]) -> StoreResult<()> {
        if !self.shared.is_indexed(&shard.kind) {
            return Ok(());
        }
        let sums = match self.index {
            Index::Sums(sums) => sums,
            Index::Rows => {
                let missing = missing_rows(&self.shared.protocol, shard, rows).await?;
                self.shared.throttle.take(rows.len()).await;
                self.suspects.extend(missing);
                return self.settle(MAX_HELD).await;
            }
        };
        for (member, fact) in rows {
            if let Some(row) = due_index(fact.choice) {
                let user = user_of(&mut self.user, &shard.target, member.as_str());
                sums.add(sums.class(user), sums.index(&mut self.text, user, &shard.kind, &shard.target, &row));
            }
        }
        Ok(())
    }

    async fn stored_counters(&mut self) -> StoreResult<()> {
        let mut parts = Parts::<(TargetKey, TargetCounters)>::new(self.shared, self.slice);
        while let Some((target, stored)) = parts.next().await? {
            let class = self.counters.class(target.as_str().as_bytes());
            for (kind, level) in &stored.shown {
                if schema::leaves(*level).any(|leaf| stored.row(kind, leaf).is_none()) {
                    let root = ShardKey::root(target.clone(), kind.clone());
                    self.suspect(Suspect::Promotion { root }).await?;
                }
                self.counters.take(class, self.counters.shown(&mut self.text, &target, kind, *level));
            }
            for (kind, shard, row) in &stored.rows {
                // The root's own row is left from when the target was small; nobody reads it.
                if !shard.is_root() || stored.shown(kind).is_none() {
                    self.counters.take(class, self.counters.counter(&mut self.text, &target, kind, *shard, row));
                }
            }
        }
        Ok(())
    }

    /// The targets of the classes that differ, one by one.
    async fn differing_counters(&mut self) -> StoreResult<()> {
        let (shared, engine) = (self.shared, self.shared.protocol.engine());
        let mut from: Option<Vec<u8>> = None;
        loop {
            let page = engine.scan_facts(self.slice, from.as_deref(), PAGE).await?;
            for root in page.items.into_iter().filter(|key| key.shard.is_root()) {
                if self.counters.differs(self.counters.class(root.target.as_str().as_bytes())) {
                    self.suspects.extend(check_counters(&shared.protocol, &root, true).await?);
                    shared.throttle.take(2).await;
                    self.settle(MAX_HELD).await?;
                }
            }
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        self.settle(0).await?;
        loop {
            let page = engine.scan_counters(self.slice, from.as_deref(), PAGE).await?;
            for target in page.items {
                if self.counters.differs(self.counters.class(target.as_str().as_bytes())) {
                    self.suspects.extend(ghosts(&shared.protocol, &target).await?);
                    shared.throttle.take(2).await;
                    self.settle(MAX_HELD).await?;
                }
            }
            from = page.next;
            if from.is_none() {
                return Ok(());
            }
        }
    }
}

/// What was read of one leaf's ledger.
#[derive(Default)]
struct SeenLeaf {
    head: Option<LedgerHead>,
    /// Parts that the scan brought it in: more than one may be of different moments.
    parts: u32,
    /// Counted rows.
    counts: Counts,
    /// Sum over the time rows that the rows call for, and over those that are there.
    due: u128,
    listed: u128,
}

impl SeenLeaf {
    fn complete(&self) -> bool {
        self.head.as_ref().is_some_and(|h| h.complete)
    }
}
