//! Facts, and landing: facts, index rows and journal entry in one atomic batch.

use std::ops::Bound;

use async_trait::async_trait;
use fjall::UserKey;
use schema::{CounterRow, Fact, JournalEntry, LaneId, Member, RootHead, ShardKey, Slot, codec};

use super::{
    Embedded,
    index::IndexPut,
    keys,
    rows::{Table, damaged},
    txn::Txn,
};
use crate::engine::{
    CommitOutcome, FactPage, FactRead, FactTable, FactWrite, FusedLanding, Landing, LedgerCommit, Seen, StoreResult,
};

/// About what a write holds while it is queued, in bytes.
const WRITE_WEIGHT: usize = 512;

/// A write whose keys were made outside the writer's thread.
struct FactPut {
    key: UserKey,
    fact: Fact,
    index: Option<IndexPut>,
    seen: Option<Seen>,
}

impl FactPut {
    fn of(write: &FactWrite) -> Self {
        let choice = write.fact.choice;
        let index = write.index.as_ref().filter(|_| choice.version != 0);
        Self {
            key: keys::with_id(&keys::shard(&write.shard), write.member.as_str()).into(),
            fact: write.fact.written(),
            index: index.map(|user| IndexPut::new(user, &write.shard.kind, &write.shard.target, choice.into())),
            seen: write.seen,
        }
    }

    fn run(self, txn: &mut Txn<'_>) -> StoreResult<()> {
        let seen = self.seen.filter(|seen| !txn.written_since(&self.key, seen.as_of));
        if self.fact != Fact::default() {
            let stored = match seen {
                Some(seen) => seen.fact,
                None => txn.get(Table::Facts, &self.key)?.map(|bytes| decode_fact(&self.key, &bytes)).transpose()?,
            };
            let joined = stored.unwrap_or_default().join(self.fact);
            if stored != Some(joined) {
                txn.put(Table::Facts, self.key, codec::encode_fact(&joined));
            }
        }
        match self.index {
            Some(index) if seen.is_some_and(|seen| seen.nowhere) => index.run_first(txn),
            Some(index) => index.run(txn, false),
            None => Ok(()),
        }
    }
}

trait Written {
    fn written(&self) -> Self;
}

impl Written for Fact {
    /// Registers with version 0 are left alone, whatever else they say.
    fn written(&self) -> Self {
        let mut fact = *self;
        if fact.choice.version == 0 {
            fact.choice = Default::default();
        }
        for hide in &mut fact.hides {
            if hide.version == 0 {
                *hide = Default::default();
            }
        }
        fact
    }
}

pub(super) fn decode_fact(key: &[u8], bytes: &[u8]) -> StoreResult<Fact> {
    codec::decode_fact(bytes).map_err(|_| damaged(Table::Facts, key))
}

pub(super) fn decode_head(key: &[u8], bytes: &[u8]) -> StoreResult<RootHead> {
    codec::decode_root_head(bytes).map_err(|_| damaged(Table::Facts, key))
}

#[async_trait]
impl FactTable for Embedded {
    async fn read_facts(&self, shard: &ShardKey, members: &[Member]) -> StoreResult<FactRead> {
        // Before the view: what it shows is at least as new.
        let as_of = self.rows.commits();
        let view = self.rows.view()?;
        let prefix = keys::shard(shard);
        let head = if shard.shard.is_root() { view.get(Table::Facts, &prefix)? } else { None };
        let head = head.map(|bytes| decode_head(&prefix, &bytes)).transpose()?;
        let read = |member: &Member| {
            let key = keys::with_id(&prefix, member.as_str());
            view.get(Table::Facts, &key)?.map(|bytes| decode_fact(&key, &bytes)).transpose()
        };
        Ok(FactRead { head, facts: members.iter().map(read).collect::<StoreResult<_>>()?, as_of })
    }

    async fn page_facts(&self, shard: &ShardKey, after: Option<&Member>, limit: usize) -> StoreResult<FactPage> {
        let view = self.rows.view()?;
        let (prefix, limit) = (keys::shard(shard), limit.max(1));
        let mut page = FactPage::default();
        let from = match after {
            // The head's key is the prefix itself, so it comes first.
            None => Bound::Included(prefix.clone()),
            Some(after) => {
                let head = view.get(Table::Facts, &prefix)?;
                page.head = head.map(|bytes| decode_head(&prefix, &bytes)).transpose()?;
                Bound::Excluded(keys::with_id(&prefix, after.as_str()))
            }
        };
        for row in view.range(Table::Facts, from, keys::behind(&prefix)) {
            if page.rows.len() == limit {
                return Ok(page);
            }
            let (key, value) = row?;
            if key.len() == prefix.len() {
                page.head = Some(decode_head(&prefix, &value)?);
                continue;
            }
            let member = keys::parse_id(&key[prefix.len()..]).and_then(keys::member);
            page.rows.push((member.ok_or_else(|| damaged(Table::Facts, &key))?, decode_fact(&key, &value)?));
        }
        Ok(FactPage { end: true, ..page })
    }

    async fn write_facts(&self, writes: &[FactWrite]) -> Vec<StoreResult<()>> {
        let puts: Vec<FactPut> = writes.iter().map(FactPut::of).collect();
        let work = move |txn: &mut Txn<'_>| {
            let one = |put: FactPut| {
                // A damaged index row must not keep back the fact's answer as done: both or neither.
                let mark = txn.mark();
                put.run(txn).inspect_err(|_| txn.undo_to(mark))
            };
            Ok(puts.into_iter().map(one).collect())
        };
        let done = self.writer.call(true, writes.len() * WRITE_WEIGHT, work).await;
        done.unwrap_or_else(|e| vec![Err(e); writes.len()])
    }

    async fn raise_root_head(&self, root: &ShardKey, head: RootHead) -> StoreResult<()> {
        let key = keys::shard(root);
        let work = move |txn: &mut Txn<'_>| {
            let stored = txn.get(Table::Facts, &key)?.map(|bytes| decode_head(&key, &bytes)).transpose()?;
            let joined = stored.unwrap_or_default().join(head);
            if stored != Some(joined) {
                txn.put(Table::Facts, key, codec::encode_root_head(&joined));
            }
            Ok(())
        };
        self.writer.call(true, WRITE_WEIGHT, work).await
    }
}

#[async_trait]
impl FusedLanding for Embedded {
    async fn land(&self, lane: LaneId, slot: Slot, entry: JournalEntry, writes: Vec<FactWrite>) -> StoreResult<Landing> {
        let puts: Vec<FactPut> = writes.iter().map(FactPut::of).collect();
        let journal = (keys::entry(lane, slot, entry.id), super::journal::encode(&entry)?);
        let weight = writes.len() * WRITE_WEIGHT + journal.1.len();
        let work = move |txn: &mut Txn<'_>| {
            let Some(state) = txn.lane(lane, |_| ())?.filter(|state| !state.retired) else { return Ok(Landing::LaneGone) };
            if slot <= state.closed_through {
                return Ok(Landing::SlotClosed(state.closed_through));
            }
            txn.put(Table::Journal, journal.0, journal.1);
            for put in puts {
                put.run(txn)?;
            }
            Ok(Landing::Landed)
        };
        self.writer.call(true, weight, work).await
    }

    async fn commit_counted(
        &self,
        leaf: &ShardKey,
        commit: &LedgerCommit,
        counter: &CounterRow,
    ) -> StoreResult<Option<CommitOutcome>> {
        self.commit_with(leaf, commit, Some(counter)).await.map(Some)
    }
}
