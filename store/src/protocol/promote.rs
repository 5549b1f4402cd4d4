//! A target becomes large (design, section 4): resumable, idempotent, safe to race.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use schema::{Fact, Level, Member, RootHead, Shard, ShardKey, leaf_of, leaves};

use super::{Protocol, mutation::mutant, reconcile::Reconciled};
use crate::{
    StoreError, StoreResult,
    engine::{FactWrite, MAX_COMMIT_MEMBERS},
};

/// Facts that are copied to their leaves at a time.
const COPY_PAGE: usize = 1000;

impl Protocol {
    /// Step 1: the level goes into the root's head row, and ingest writes to the leaves from now on.
    pub(super) async fn promote(&self, root: &ShardKey, members: &[Member]) -> StoreResult<Reconciled> {
        let head = RootHead { level: self.settings.level, level_at: self.clock.now(), epoch: 0 };
        self.engine.raise_root_head(root, head).await?;
        let mut done = self.move_on(root, self.settings.level, members).await?;
        done.promoted = true;
        Ok(done)
    }

    /// Steps 2 to 4 for a root that has a level: all of it until the leaves are shown, afterwards
    /// only `members`, so that a request which still wrote to the root is moved on, however late.
    pub(super) async fn move_on(&self, root: &ShardKey, level: Level, members: &[Member]) -> StoreResult<Reconciled> {
        let mut done = Reconciled::default();
        if mutant!(self, FlagFirst) {
            self.engine.raise_shown(root, level).await?;
        }
        let counters = self.engine.read_counters(&root.target).await?;
        if counters.shown(&root.kind).is_some_and(|shown| shown >= level) {
            if mutant!(self, NoForward) {
                return Ok(done);
            }
            for chunk in members.chunks(MAX_COMMIT_MEMBERS) {
                let read = self.engine.read_facts(root, chunk).await?;
                let found: Vec<_> = chunk.iter().cloned().zip(read.facts).filter_map(|(m, f)| Some((m, f?))).collect();
                done += self.copy_and_count(root, level, &found, false).await?;
            }
            return Ok(done);
        }
        let mut after: Option<Member> = None;
        loop {
            let page = self.engine.page_facts(root, after.as_ref(), COPY_PAGE).await?;
            done += self.copy_and_count(root, level, &page.rows, page.end).await?;
            if page.end {
                break;
            }
            after = page.rows.last().map(|(m, _)| m.clone()).or(after);
        }
        self.engine.raise_shown(root, level).await?;
        Ok(done)
    }

    /// Copies facts to their leaves, at the same versions, and reconciles those leaves with them
    /// (`every`: all leaves, so that the empty ones are complete too).
    async fn copy_and_count(
        &self,
        root: &ShardKey,
        level: Level,
        facts: &[(Member, Fact)],
        every: bool,
    ) -> StoreResult<Reconciled> {
        let mut by_leaf: BTreeMap<Shard, Vec<(Member, Fact)>> = BTreeMap::new();
        if every {
            by_leaf.extend(leaves(level).map(|leaf| (leaf, Vec::new())));
        }
        for (member, fact) in facts {
            by_leaf.entry(leaf_of(member, level)).or_default().push((member.clone(), *fact));
        }
        let work = by_leaf.into_iter().map(|(leaf, facts)| {
            let leaf = root.with_shard(leaf);
            async move {
                let writes: Vec<FactWrite> = facts
                    .iter()
                    .map(|(member, fact)| FactWrite {
                        shard: leaf.clone(),
                        member: member.clone(),
                        fact: *fact,
                        index: None,
                        seen: None,
                    })
                    .collect();
                self.write_all(&writes).await?;
                let members: Vec<Member> = facts.into_iter().map(|(m, _)| m).collect();
                self.reconcile_boxed(leaf, members).await
            }
        });
        let mut results = stream::iter(work).buffer_unordered(self.settings.parallel.max(1));
        let mut done = Reconciled::default();
        while let Some(result) = results.next().await {
            done += result?;
        }
        Ok(done)
    }

    /// The recursion root -> leaf ends at the leaf, but the compiler wants it boxed.
    fn reconcile_boxed(&self, leaf: ShardKey, members: Vec<Member>) -> futures::future::BoxFuture<'_, StoreResult<Reconciled>> {
        Box::pin(async move { self.reconcile(&leaf, &members).await })
    }

    /// Writes facts until each is durable; gives up after the usual attempts.
    pub(super) async fn write_all(&self, writes: &[FactWrite]) -> StoreResult<()> {
        let mut open: Vec<FactWrite> = writes.to_vec();
        let mut last = StoreError::Unavailable("no attempt was made".into());
        for attempt in 0..self.settings.attempts {
            if open.is_empty() {
                return Ok(());
            }
            self.pause_before(attempt).await;
            let results = self.engine.write_facts(&open).await;
            let mut left = Vec::new();
            for (write, result) in open.into_iter().zip(results) {
                match result {
                    Ok(()) => {}
                    Err(error) if error.is_transient() => {
                        last = error;
                        left.push(write);
                    }
                    Err(error) => return Err(error),
                }
            }
            open = left;
        }
        if open.is_empty() { Ok(()) } else { Err(last) }
    }
}
