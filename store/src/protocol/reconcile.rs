//! Counting (design, section 6): bring a shard's projection up to its facts. Aggregator, sweep and
//! rebuilder call the same function; what a message says is never added.

use std::time::Duration;

use futures::future::join_all;
use schema::{CounterRow, Counts, Fact, LedgerHead, LedgerRow, Member, Micros, RootHead, ShardKey};

use super::{Protocol, mutation::mutant};
use crate::{
    StoreError, StoreResult,
    engine::{CommitOutcome, CounterPut, LedgerCommit, LedgerRead, MAX_COMMIT_MEMBERS, RowChange},
};

/// Conflicts in a row after which a reconcile pauses before it reads again.
const PATIENCE: u32 = 3;

/// What a reconcile did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// Ledger commits that were applied.
    pub commits: u32,
    /// Members whose ledger rows they raised.
    pub members: u32,
    /// Commits refused because something had changed.
    pub conflicts: u32,
    /// Commits and reads of unknown outcome.
    pub unknowns: u32,
    /// Whether a target became large here.
    pub promoted: bool,
}

impl std::ops::AddAssign for Reconciled {
    fn add_assign(&mut self, other: Self) {
        self.commits += other.commits;
        self.members += other.members;
        self.conflicts += other.conflicts;
        self.unknowns += other.unknowns;
        self.promoted |= other.promoted;
    }
}

impl Protocol {
    /// Brings the projection of `shard` up to its facts, as far as `members` are concerned (a small
    /// target: all of it). When it returns `Ok`, facts of `members` that were in the store before
    /// the call are counted and readable.
    pub async fn reconcile(&self, shard: &ShardKey, members: &[Member]) -> StoreResult<Reconciled> {
        let mut members = members.to_vec();
        members.sort_unstable();
        members.dedup();
        if shard.shard.is_root() {
            self.reconcile_root(shard, &members).await
        } else {
            self.reconcile_leaf(shard, &members).await
        }
    }

    async fn reconcile_root(&self, root: &ShardKey, members: &[Member]) -> StoreResult<Reconciled> {
        let (head, facts) = self.read_small(root).await?;
        if let Some(level) = head.level() {
            return self.move_on(root, level, members).await;
        }
        if facts.len() > self.settings.small_limit {
            return self.promote(root, members).await;
        }
        if facts.is_empty() && head.epoch == 0 {
            return Ok(Reconciled::default()); // Nothing was ever written here.
        }
        self.put_counter(root, self.small_counter(head, &facts)).await?;
        Ok(Reconciled::default())
    }

    /// Counts small targets together: their counters are written in one call, so that a store with one
    /// writer is not asked for each. `None`: not a small target, or nothing is known of its counter's
    /// write; [`Self::reconcile`] it by itself. Otherwise the same promise as there.
    pub async fn reconcile_small(&self, roots: &[ShardKey]) -> Vec<Option<StoreResult<()>>> {
        let pages = join_all(
            roots.iter().map(|root| async move { if root.shard.is_root() { Some(self.read_small(root).await) } else { None } }),
        )
        .await;
        let mut done: Vec<Option<StoreResult<()>>> = Vec::with_capacity(roots.len());
        let (mut puts, mut put_for) = (Vec::new(), Vec::new());
        for (root, page) in roots.iter().zip(pages) {
            done.push(match page {
                None => None,
                Some(Err(error)) => Some(Err(error)),
                Some(Ok((head, facts))) if head.level().is_some() || facts.len() > self.settings.small_limit => None,
                Some(Ok((head, facts))) if facts.is_empty() && head.epoch == 0 => Some(Ok(())),
                Some(Ok((head, facts))) => {
                    puts.push(CounterPut { shard: root.clone(), row: self.small_counter(head, &facts) });
                    put_for.push(done.len());
                    None
                }
            });
        }
        if !puts.is_empty() {
            let results = self.engine.put_counters(&puts).await;
            for (at, result) in put_for.into_iter().zip(results) {
                // What may succeed later is tried again by itself.
                done[at] = (!result.as_ref().is_err_and(StoreError::is_transient)).then_some(result);
            }
        }
        done
    }

    /// The root's head and at most T + 1 facts.
    pub async fn read_small(&self, root: &ShardKey) -> StoreResult<(RootHead, Vec<(Member, Fact)>)> {
        let limit = self.settings.small_limit + 1;
        let mut page = self.engine.page_facts(root, None, limit).await?;
        let mut head = page.head.unwrap_or_default();
        let mut rows = std::mem::take(&mut page.rows);
        while !page.end && rows.len() < limit && head.level().is_none() {
            page = self.engine.page_facts(root, rows.last().map(|(m, _)| m), limit - rows.len()).await?;
            head = head.join(page.head.unwrap_or_default());
            rows.append(&mut page.rows);
        }
        Ok((head, rows))
    }

    /// A small target's counter row: a pure function of its page. Ordered by (newest, rank), which
    /// grow strictly with every register, so the newest view wins on every replica.
    pub fn small_counter(&self, head: RootHead, facts: &[(Member, Fact)]) -> CounterRow {
        let as_of = facts.iter().map(|(_, f)| f.newest()).fold(0, Micros::max);
        let value = |f: &Fact| u128::from(f.choice.choice) + f.hides.iter().map(|h| u128::from(h.value)).sum::<u128>();
        let rank = facts.iter().fold(256 * u128::from(head.epoch.max(0).unsigned_abs()), |sum, (_, f)| {
            sum + f.rank() - if mutant!(self, BareRank) { value(f) } else { 0 }
        });
        CounterRow {
            order: as_of.max(head.epoch),
            rank: if mutant!(self, MaxRank) { 0 } else { rank },
            counts: facts.iter().map(|(_, f)| (f.counted(), 1)).collect(),
            as_of,
        }
    }

    async fn reconcile_leaf(&self, leaf: &ShardKey, members: &[Member]) -> StoreResult<Reconciled> {
        let mut done = Reconciled::default();
        if members.is_empty() {
            self.reconcile_chunk(leaf, members, &mut done).await?; // Builds if need be, writes the counter.
        }
        for chunk in members.chunks(MAX_COMMIT_MEMBERS) {
            self.reconcile_chunk(leaf, chunk, &mut done).await?;
        }
        Ok(done)
    }

    /// At most 99 members, in one commit.
    async fn reconcile_chunk(&self, leaf: &ShardKey, chunk: &[Member], done: &mut Reconciled) -> StoreResult<()> {
        for attempt in 0..self.settings.attempts {
            self.pause_before(attempt).await;
            let (ledger, facts) = futures::join!(self.engine.read_ledger(leaf, chunk), self.engine.read_facts(leaf, chunk));
            let (ledger, facts) = (ledger?, facts?);
            if !ledger.head.as_ref().is_some_and(|h| h.complete) && !mutant!(self, PartialLeaf) {
                // Never a partial sum: a leaf is counted from all its facts before it is shown.
                self.build(leaf, done).await?;
                continue;
            }
            if self.is_torn(&ledger) {
                continue;
            }
            let head = ledger.head.unwrap_or_default();
            let changes = self.changes(chunk, &ledger.rows, &facts.facts);
            if changes.is_empty() {
                if mutant!(self, NoFinalPut) && done.commits == 0 {
                    return Ok(());
                }
                // Whoever committed this may have died before it wrote the counter.
                return self.put_leaf_counter(leaf, &head).await;
            }
            let commit = self.next_commit(&head, changes, mutant!(self, PartialLeaf));
            if self.commit_counted(leaf, &commit, done).await? {
                return Ok(());
            }
        }
        Err(StoreError::Unavailable(format!(
            "{} attempts to count shard {} met other writers",
            self.settings.attempts, leaf.shard
        )))
    }

    /// Reads head and rows until the head is no older than the rows beside it.
    pub(super) async fn read_whole(&self, leaf: &ShardKey, members: &[Member]) -> StoreResult<LedgerRead> {
        for attempt in 0..self.settings.attempts {
            self.pause_before(attempt).await;
            let read = self.engine.read_ledger(leaf, members).await?;
            if !self.is_torn(&read) {
                return Ok(read);
            }
        }
        Err(StoreError::Unavailable(format!("the head of shard {} stays behind its rows", leaf.shard)))
    }

    /// A quorum read may pair rows with a head older than the commit that wrote them.
    pub(super) fn is_torn(&self, read: &LedgerRead) -> bool {
        let head = read.head.as_ref().map_or(0, |h| h.revision);
        !mutant!(self, RowBlind) && read.rows.iter().flatten().any(|row| row.revision > head)
    }

    /// Rows whose joined registers exceed the ledger's.
    pub(super) fn changes(&self, members: &[Member], rows: &[Option<LedgerRow>], facts: &[Option<Fact>]) -> Vec<RowChange> {
        let mut out = Vec::new();
        for ((member, row), fact) in members.iter().zip(rows).zip(facts) {
            let Some(fact) = *fact else { continue };
            let counted = row.map(|r| r.fact);
            let joined = if mutant!(self, NoVersions) { without_versions(fact) } else { counted.unwrap_or_default().join(fact) };
            if counted != Some(joined) {
                out.push(RowChange { member: member.clone(), expect: counted, fact: joined });
            }
        }
        out
    }

    /// The commit that counts `changes` on top of `head`.
    pub(super) fn next_commit(&self, head: &LedgerHead, changes: Vec<RowChange>, complete: bool) -> LedgerCommit {
        let mut next = head.clone();
        next.complete |= complete;
        for change in &changes {
            let old = change.expect.unwrap_or_default().counted();
            let new = change.fact.counted();
            next.counts.add(old, -1);
            next.counts.add(new, 1);
            if let Some(audit) = &mut next.audit
                && audit.pos.as_ref().is_some_and(|pos| change.member <= *pos)
            {
                audit.sum.add(old, -1);
                audit.sum.add(new, 1);
            }
            next.as_of = next.as_of.max(change.fact.newest());
        }
        // Above every version that it counts, so that a paused worker with an older fact in hand fails.
        next.revision =
            changes.iter().map(|c| c.fact.newest().saturating_add(1)).fold(head.revision.saturating_add(1), Micros::max);
        LedgerCommit {
            expect_revision: (head.revision > 0).then_some(head.revision),
            head: next,
            rows: changes,
            drop_times: Vec::new(),
            put_times: Vec::new(),
            drop_rows: Vec::new(),
        }
    }

    /// Commits and writes the counter that belongs to it, in one step where the engine can; whether the
    /// commit was applied.
    async fn commit_counted(&self, leaf: &ShardKey, commit: &LedgerCommit, done: &mut Reconciled) -> StoreResult<bool> {
        if let Some(fused) = self.engine.fused()
            && let Some(result) = fused.commit_counted(leaf, commit, &leaf_counter(&commit.head)).await.transpose()
            // A damaged counter row must not keep the ledger back as well.
            && !matches!(result, Err(StoreError::Damaged(_)))
        {
            return Ok(book(result, commit, done)? == Some(CommitOutcome::Applied));
        }
        let applied = self.try_commit(leaf, commit, done).await? == Some(CommitOutcome::Applied);
        if applied {
            self.put_leaf_counter(leaf, &commit.head).await?;
        }
        Ok(applied)
    }

    /// `None`: the outcome is unknown, so read again.
    pub(super) async fn try_commit(
        &self,
        leaf: &ShardKey,
        commit: &LedgerCommit,
        done: &mut Reconciled,
    ) -> StoreResult<Option<CommitOutcome>> {
        book(self.engine.commit(leaf, commit).await, commit, done)
    }

    /// Writes the counter row that belongs to a leaf's head.
    pub(super) async fn put_leaf_counter(&self, leaf: &ShardKey, head: &LedgerHead) -> StoreResult<()> {
        self.put_counter(leaf, leaf_counter(head)).await
    }

    pub(super) async fn put_counter(&self, shard: &ShardKey, row: CounterRow) -> StoreResult<()> {
        let put = [CounterPut { shard: shard.clone(), row }];
        let mut last = Ok(());
        for attempt in 0..self.settings.attempts {
            self.pause_before(attempt).await;
            last = self.engine.put_counters(&put).await.into_iter().collect::<StoreResult<Vec<()>>>().map(|_| ());
            if !last.as_ref().is_err_and(StoreError::is_transient) {
                break;
            }
        }
        last
    }

    /// Lets others finish once several attempts have failed; grows to 64 ms.
    pub(super) async fn pause_before(&self, attempt: u32) {
        if attempt > PATIENCE {
            self.clock.sleep(Duration::from_millis(1 << (attempt - PATIENCE).min(6))).await;
        }
    }
}

/// Notes what became of a commit. `None`: that is unknown.
fn book(result: StoreResult<CommitOutcome>, commit: &LedgerCommit, done: &mut Reconciled) -> StoreResult<Option<CommitOutcome>> {
    match result {
        Ok(outcome) => {
            match outcome {
                CommitOutcome::Applied => {
                    done.commits += 1;
                    done.members += u32::try_from(commit.rows.len()).unwrap_or(u32::MAX);
                }
                CommitOutcome::Conflict => done.conflicts += 1,
            }
            Ok(Some(outcome))
        }
        Err(StoreError::Unknown(_)) => {
            done.unknowns += 1;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The counter row of a leaf: its head's counts, ordered by revision.
pub fn leaf_counter(head: &LedgerHead) -> CounterRow {
    CounterRow { order: head.revision, rank: 0, counts: head.counts.clone(), as_of: head.as_of }
}

/// Counts of the counted rows among `facts`.
pub fn count<'a>(facts: impl IntoIterator<Item = &'a Fact>) -> Counts {
    facts.into_iter().map(|f| (f.counted(), 1)).collect()
}

fn without_versions(mut fact: Fact) -> Fact {
    fact.choice.version = 0;
    fact.choice.since = 0; // It tells versions apart as well.
    fact.hides.iter_mut().for_each(|h| h.version = 0);
    fact
}
