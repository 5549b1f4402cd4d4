//! Building a leaf's ledger from all its facts, where the head is missing or not complete.

use schema::{Fact, LedgerHead, Member, ShardKey};

use super::{Protocol, reconcile::Reconciled};
use crate::{
    StoreError, StoreResult,
    engine::{CommitOutcome, MAX_COMMIT_MEMBERS},
};

impl Protocol {
    /// Counts every fact of the leaf, page by page; the last commit marks the ledger complete, with
    /// a revision above the stored counter's. May be cut off and begun again, and raced.
    pub(super) async fn build(&self, leaf: &ShardKey, done: &mut Reconciled) -> StoreResult<()> {
        let mut after: Option<Member> = None;
        loop {
            let page = self.engine.page_facts(leaf, after.as_ref(), MAX_COMMIT_MEMBERS).await?;
            if !page.rows.is_empty() && self.build_page(leaf, &page.rows, done).await? {
                return Ok(()); // Somebody else has completed it.
            }
            after = page.rows.last().map(|(m, _)| m.clone()).or(after);
            if page.end {
                return self.complete_ledger(leaf, done).await;
            }
        }
    }

    /// Commits one page of facts; whether the ledger was found complete.
    async fn build_page(&self, leaf: &ShardKey, page: &[(Member, Fact)], done: &mut Reconciled) -> StoreResult<bool> {
        let (members, facts): (Vec<Member>, Vec<Option<Fact>>) = page.iter().map(|(m, f)| (m.clone(), Some(*f))).unzip();
        for attempt in 0..self.settings.attempts {
            self.pause_before(attempt).await;
            let ledger = self.engine.read_ledger(leaf, &members).await?;
            if ledger.head.as_ref().is_some_and(|h| h.complete) {
                return Ok(true);
            }
            if self.is_torn(&ledger) {
                continue;
            }
            let changes = self.changes(&members, &ledger.rows, &facts);
            if changes.is_empty() {
                return Ok(false);
            }
            let commit = self.next_commit(&ledger.head.unwrap_or_default(), changes, false);
            if self.try_commit(leaf, &commit, done).await? == Some(CommitOutcome::Applied) {
                return Ok(false);
            }
        }
        Err(contended(leaf))
    }

    async fn complete_ledger(&self, leaf: &ShardKey, done: &mut Reconciled) -> StoreResult<()> {
        for attempt in 0..self.settings.attempts {
            self.pause_before(attempt).await;
            let head = self.engine.read_ledger(leaf, &[]).await?.head.unwrap_or_default();
            if head.complete {
                return Ok(());
            }
            let stored = self.engine.read_counters(&leaf.target).await?;
            let order = stored.row(&leaf.kind, leaf.shard).map_or(0, |row| row.order);
            let mut commit = self.next_commit(&head, Vec::new(), true);
            commit.head.revision = commit.head.revision.max(order.saturating_add(1));
            if self.try_commit(leaf, &commit, done).await? == Some(CommitOutcome::Applied) {
                return Ok(());
            }
        }
        Err(contended(leaf))
    }

    /// The leaf's head with its ledger built, for callers that need one.
    pub(super) async fn complete_head(&self, leaf: &ShardKey) -> StoreResult<LedgerHead> {
        for attempt in 0..self.settings.attempts {
            self.pause_before(attempt).await;
            let head = self.engine.page_ledger(leaf, None, 1).await?.head.unwrap_or_default();
            if head.complete {
                return Ok(head);
            }
            self.build(leaf, &mut Reconciled::default()).await?;
        }
        Err(contended(leaf))
    }
}

pub(super) fn contended(leaf: &ShardKey) -> StoreError {
    StoreError::Unavailable(format!("shard {} is being written by others; it is counted later", leaf.shard))
}
