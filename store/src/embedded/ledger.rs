//! The ledger. A commit is compared and applied in the writer's thread, so it is serial.

use std::ops::Bound;

use async_trait::async_trait;
use schema::{CounterRow, LedgerHead, LedgerRow, Member, Micros, ShardKey, codec};

use super::{
    Embedded, cells, counters, keys,
    rows::{Table, damaged},
    txn::Txn,
};
use crate::engine::{
    CommitOutcome, LedgerCommit, LedgerPage, LedgerRead, LedgerTable, MAX_COMMIT_MEMBERS, StoreError, StoreResult, TimeRow,
};

/// About what a row of a commit holds while it is queued, in bytes.
const ROW_WEIGHT: usize = 512;
/// Rows removed in one job.
const DROP_CHUNK: usize = 2048;

pub(super) fn decode_head(key: &[u8], bytes: &[u8]) -> StoreResult<LedgerHead> {
    codec::decode_ledger_head(bytes).map_err(|_| damaged(Table::Ledger, key))
}

pub(super) fn decode_row(key: &[u8], bytes: &[u8]) -> StoreResult<LedgerRow> {
    codec::decode_ledger_row(bytes).map_err(|_| damaged(Table::Ledger, key))
}

fn head_key(prefix: &[u8]) -> Vec<u8> {
    [prefix, &[keys::HEAD]].concat()
}

/// Compares everything, then writes everything.
fn apply(txn: &mut Txn<'_>, prefix: &[u8], commit: &LedgerCommit) -> StoreResult<CommitOutcome> {
    let head = head_key(prefix);
    let stored = txn.get(Table::Ledger, &head)?.map(|bytes| decode_head(&head, &bytes)).transpose()?;
    if stored.map(|h| h.revision) != commit.expect_revision {
        return Ok(CommitOutcome::Conflict);
    }
    let changed = commit.rows.iter().map(|r| (&r.member, r.expect));
    let dropped = commit.drop_rows.iter().map(|(member, fact)| (member, Some(*fact)));
    for (member, expect) in changed.chain(dropped) {
        let key = keys::by_id(prefix, member.as_str());
        let stored = txn.get(Table::Ledger, &key)?.map(|bytes| decode_row(&key, &bytes)).transpose()?;
        if stored.map(|row| row.fact) != expect {
            return Ok(CommitOutcome::Conflict);
        }
    }
    txn.put(Table::Ledger, head, codec::encode_ledger_head(&commit.head));
    // Deletions first: a row that moves may be written again under the same key.
    for (at, member) in &commit.drop_times {
        txn.delete(Table::Ledger, keys::by_time(prefix, *at, member.as_str()));
    }
    for (member, _) in &commit.drop_rows {
        txn.delete(Table::Ledger, keys::by_id(prefix, member.as_str()));
    }
    for row in &commit.rows {
        let (old, new) = (row.old_time(), row.new_time());
        if let Some(at) = old.filter(|at| new.is_none_or(|(new, _)| new != *at)) {
            txn.delete(Table::Ledger, keys::by_time(prefix, at, row.member.as_str()));
        }
    }
    let times = commit.put_times.iter().map(|t| (t.at, &t.member, t.choice));
    let moved = commit.rows.iter().filter_map(|row| row.new_time().map(|(at, choice)| (at, &row.member, choice)));
    for (at, member, choice) in times.chain(moved) {
        txn.put(Table::Ledger, keys::by_time(prefix, at, member.as_str()), cells::encode_byte(choice));
    }
    for row in &commit.rows {
        let stored = LedgerRow { fact: row.fact, revision: commit.head.revision };
        txn.put(Table::Ledger, keys::by_id(prefix, row.member.as_str()), codec::encode_ledger_row(&stored));
    }
    Ok(CommitOutcome::Applied)
}

impl Embedded {
    /// The commit, and if it is applied the counter row in the same step.
    pub(super) async fn commit_with(
        &self,
        leaf: &ShardKey,
        commit: &LedgerCommit,
        counter: Option<&CounterRow>,
    ) -> StoreResult<CommitOutcome> {
        if commit.rows.len() > MAX_COMMIT_MEMBERS {
            return Err(StoreError::Refused(format!("a commit has at most {MAX_COMMIT_MEMBERS} rows")));
        }
        let rows = commit.rows.len() + commit.drop_rows.len() + commit.drop_times.len() + commit.put_times.len() + 2;
        let counter = counter.map(|row| counters::Put::new(leaf, row));
        let (prefix, commit) = (keys::shard(leaf), commit.clone());
        let work = move |txn: &mut Txn<'_>| {
            let outcome = apply(txn, &prefix, &commit)?;
            match counter {
                Some(counter) if outcome == CommitOutcome::Applied => counter.run(txn)?,
                _ => {}
            }
            Ok(outcome)
        };
        self.writer.call(false, rows * ROW_WEIGHT, work).await
    }
}

#[async_trait]
impl LedgerTable for Embedded {
    async fn read_ledger(&self, leaf: &ShardKey, members: &[Member]) -> StoreResult<LedgerRead> {
        let view = self.rows.view()?;
        let prefix = keys::shard(leaf);
        let head = head_key(&prefix);
        let read = |member: &Member| {
            let key = keys::by_id(&prefix, member.as_str());
            view.get(Table::Ledger, &key)?.map(|bytes| decode_row(&key, &bytes)).transpose()
        };
        Ok(LedgerRead {
            head: view.get(Table::Ledger, &head)?.map(|bytes| decode_head(&head, &bytes)).transpose()?,
            rows: members.iter().map(read).collect::<StoreResult<_>>()?,
        })
    }

    async fn page_ledger(&self, leaf: &ShardKey, after: Option<&Member>, limit: usize) -> StoreResult<LedgerPage> {
        let view = self.rows.view()?;
        let prefix = keys::shard(leaf);
        let head = head_key(&prefix);
        let mut page = LedgerPage {
            head: view.get(Table::Ledger, &head)?.map(|bytes| decode_head(&head, &bytes)).transpose()?,
            ..LedgerPage::default()
        };
        let section = keys::by_id(&prefix, "");
        let from = Bound::Excluded(keys::with_id(&section, after.map_or("", Member::as_str)));
        for row in view.range(Table::Ledger, from, keys::behind(&section)) {
            if page.rows.len() == limit.max(1) {
                return Ok(page);
            }
            let (key, value) = row?;
            let member = keys::parse_id(&key[section.len()..]).and_then(keys::member);
            page.rows.push((member.ok_or_else(|| damaged(Table::Ledger, &key))?, decode_row(&key, &value)?));
        }
        Ok(LedgerPage { end: true, ..page })
    }

    async fn page_times(
        &self,
        leaf: &ShardKey,
        after: Option<&(Micros, Member)>,
        limit: usize,
    ) -> StoreResult<(Vec<TimeRow>, bool)> {
        let view = self.rows.view()?;
        let prefix = keys::shard(leaf);
        let section = [&prefix[..], &[keys::BY_TIME]].concat();
        let from = match after {
            Some((at, member)) => Bound::Excluded(keys::by_time(&prefix, *at, member.as_str())),
            None => Bound::Included(section.clone()),
        };
        let mut found = Vec::new();
        for row in view.range(Table::Ledger, from, keys::behind(&section)) {
            if found.len() == limit.max(1) {
                return Ok((found, false));
            }
            let (key, value) = row?;
            let parsed = || {
                let (at, member) = keys::parse_by_time(&key[section.len()..])?;
                Some(TimeRow { at, member: keys::member(&member)?, choice: cells::decode_byte(&value)? })
            };
            found.push(parsed().ok_or_else(|| damaged(Table::Ledger, &key))?);
        }
        Ok((found, true))
    }

    async fn commit(&self, leaf: &ShardKey, commit: &LedgerCommit) -> StoreResult<CommitOutcome> {
        self.commit_with(leaf, commit, None).await
    }

    /// In chunks, the head first: a reader in between finds a leaf that has to be built.
    async fn drop_ledger(&self, leaf: &ShardKey) -> StoreResult<()> {
        let prefix = keys::shard(leaf);
        loop {
            let prefix = prefix.clone();
            let work = move |txn: &mut Txn<'_>| {
                txn.delete(Table::Ledger, head_key(&prefix));
                txn.delete_under(Table::Ledger, &prefix, DROP_CHUNK)
            };
            if !self.writer.call(false, DROP_CHUNK * 128, work).await? {
                return Ok(());
            }
        }
    }
}
