//! Recounting beside traffic, and repairs that need a higher order (design, sections 6 and 8).

use schema::{Audit, Counts, Member, Micros, RootHead, ShardKey};

use super::{Protocol, build::contended, mutation::mutant, reconcile::Reconciled};
use crate::{
    StoreResult,
    engine::{CommitOutcome, LedgerCommit, LedgerRead},
};

/// Ledger rows that one step of a recount reads.
const AUDIT_PAGE: usize = 500;

/// What a recount found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditReport {
    /// Rows recounted by this call (others may have done the rest).
    pub rows: u64,
    /// Head counts before and after, where they were wrong.
    pub corrected: Option<(Counts, Counts)>,
}

impl Protocol {
    /// Recounts a leaf's ledger rows while traffic goes on, without a pause: the audit cursor in
    /// the head moves by commits, and every ordinary commit keeps the sum behind it up to date. At
    /// the end the sum becomes the counts if they differ. Goes on where an earlier call stopped.
    pub async fn audit(&self, leaf: &ShardKey) -> StoreResult<AuditReport> {
        let mut report = AuditReport::default();
        let mut failed = 0;
        let mut began = false;
        self.complete_head(leaf).await?;
        while failed < self.settings.attempts {
            self.pause_before(failed).await;
            let head = self.engine.page_ledger(leaf, None, 1).await?.head.unwrap_or_default();
            let Some(audit) = head.audit.clone() else {
                if began {
                    break; // Somebody else has ended it.
                }
                let mut start = self.next_commit(&head, Vec::new(), false);
                start.head.audit = Some(Audit { pos: None, sum: Counts::default() });
                self.step(leaf, start, &mut failed, &mut began).await?;
                continue;
            };
            began = true;
            // Head and rows are serial reads, the head first: if the revision still stands at the
            // commit, the rows were as of it.
            let page = self.engine.page_ledger(leaf, audit.pos.as_ref(), AUDIT_PAGE).await?;
            let Some(head) = page.head.filter(|h| h.audit.as_ref() == Some(&audit)) else {
                failed += 1;
                continue;
            };
            let mut sum = audit.sum;
            for (_, row) in &page.rows {
                sum.add(row.fact.counted(), 1);
            }
            let mut step = self.next_commit(&head, Vec::new(), false);
            let ends = page.end;
            let mut corrected = None;
            if ends {
                step.head.audit = None;
                if sum != head.counts {
                    corrected = Some((head.counts.clone(), sum.clone()));
                    step.head.counts = sum;
                }
            } else {
                let pos: Option<Member> = page.rows.last().map(|(m, _)| m.clone()).or(audit.pos);
                step.head.audit = Some(Audit { pos, sum });
            }
            let next = step.head.clone();
            if self.step(leaf, step, &mut failed, &mut began).await? {
                report.rows += page.rows.len() as u64;
                if ends {
                    report.corrected = corrected;
                    self.put_leaf_counter(leaf, &next).await?;
                    return Ok(report);
                }
            }
        }
        if failed < self.settings.attempts { Ok(report) } else { Err(contended(leaf)) }
    }

    async fn step(&self, leaf: &ShardKey, commit: LedgerCommit, failed: &mut u32, began: &mut bool) -> StoreResult<bool> {
        let applied = self.try_commit(leaf, &commit, &mut Reconciled::default()).await? == Some(CommitOutcome::Applied);
        *failed = if applied { 0 } else { *failed + 1 };
        *began |= applied;
        Ok(applied)
    }

    /// Applies a repair of a leaf's rows: `edit` turns the commit that would change nothing but the
    /// revision into the one wanted, from what the ledger holds for `members` (at most 99) now.
    /// `false`: `edit` found nothing to do.
    pub async fn repair_ledger(
        &self,
        leaf: &ShardKey,
        members: &[Member],
        edit: impl Fn(&LedgerRead, &mut LedgerCommit) -> bool + Send + Sync,
    ) -> StoreResult<bool> {
        for attempt in 0..self.settings.attempts {
            self.pause_before(attempt).await;
            self.complete_head(leaf).await?;
            let read = self.engine.read_ledger(leaf, members).await?;
            if self.is_torn(&read) {
                continue;
            }
            let head = read.head.clone().unwrap_or_default();
            let mut commit = self.next_commit(&head, Vec::new(), false);
            if !edit(&read, &mut commit) {
                return Ok(false);
            }
            let mut changed = self.next_commit(&head, std::mem::take(&mut commit.rows), false);
            for (member, fact) in &commit.drop_rows {
                changed.head.counts.add(fact.counted(), -1);
                if let Some(audit) = changed.head.audit.as_mut().filter(|a| a.pos.as_ref().is_some_and(|pos| member <= pos)) {
                    audit.sum.add(fact.counted(), -1);
                }
            }
            changed.drop_rows = commit.drop_rows;
            changed.drop_times = commit.drop_times;
            changed.put_times = commit.put_times;
            if self.try_commit(leaf, &changed, &mut Reconciled::default()).await? == Some(CommitOutcome::Applied) {
                self.put_leaf_counter(leaf, &changed.head).await?;
                return Ok(true);
            }
        }
        Err(contended(leaf))
    }

    /// Rewrites the counter row of `shard` from facts or ledger with an order above the stored
    /// row's, so that a wrong value cannot win the tie.
    pub async fn repair_counter(&self, shard: &ShardKey) -> StoreResult<()> {
        let stored = self.engine.read_counters(&shard.target).await?;
        let order = stored.row(&shard.kind, shard.shard).map_or(0, |row| row.order);
        if mutant!(self, SameOrder) {
            return self.reconcile(shard, &[]).await.map(|_| ());
        }
        if shard.shard.is_root() {
            let epoch: Micros = self.clock.now().max(order.saturating_add(1));
            self.engine.raise_root_head(shard, RootHead { level: 0, level_at: 0, epoch }).await?;
            return self.reconcile(shard, &[]).await.map(|_| ());
        }
        for attempt in 0..self.settings.attempts {
            self.pause_before(attempt).await;
            let head = self.complete_head(shard).await?;
            let mut empty = self.next_commit(&head, Vec::new(), false);
            empty.head.revision = empty.head.revision.max(order.saturating_add(1));
            if self.try_commit(shard, &empty, &mut Reconciled::default()).await? == Some(CommitOutcome::Applied) {
                return self.put_leaf_counter(shard, &empty.head).await;
            }
        }
        Err(contended(shard))
    }
}
