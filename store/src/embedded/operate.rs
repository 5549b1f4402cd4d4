//! Statuses and logs, in the keyspace of small rows, so that a store of an earlier version opens.

use std::{
    ops::Bound,
    sync::atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use schema::{Micros, StatusKey, StatusRow, codec};

use super::{
    Embedded, keys,
    rows::{Rows, Table, damaged},
    txn::Txn,
};
use crate::engine::{LogEntry, LogTable, StatusTable, StoreResult, check_log};

/// Rows that one job of the writer removes.
const DROP_ROWS: usize = 1000;

/// Whether there is any status: this process is the only one that writes, so it knows.
pub(super) struct AnyStatus(AtomicBool);

impl AnyStatus {
    pub fn of(rows: &Rows) -> StoreResult<Self> {
        let view = rows.view()?;
        let any = keys::STATUSES.iter().any(|prefix| view.prefix(Table::Small, prefix).next().is_some());
        Ok(Self(AtomicBool::new(any)))
    }
}

fn decode(key: &[u8], bytes: &[u8]) -> StoreResult<StatusRow> {
    codec::decode_status(bytes).map_err(|_| damaged(Table::Small, key))
}

#[async_trait]
impl StatusTable for Embedded {
    async fn read_status(&self, statuses: &[StatusKey]) -> StoreResult<Vec<Option<StatusRow>>> {
        self.rows.stop.check()?;
        if !self.any_status.0.load(Ordering::Acquire) {
            return Ok(vec![None; statuses.len()]);
        }
        let read = |status: &StatusKey| {
            let key = keys::status(status);
            self.rows.get(Table::Small, &key)?.map(|bytes| decode(&key, &bytes)).transpose()
        };
        statuses.iter().map(read).collect()
    }

    async fn put_status(&self, key: &StatusKey, row: StatusRow) -> StoreResult<()> {
        let key = keys::status(key);
        let weight = key.len() + 64;
        // Before the row can be seen: nobody may skip a row that stands.
        self.any_status.0.store(true, Ordering::Release);
        let work = move |txn: &mut Txn<'_>| {
            let stored = txn.get(Table::Small, &key)?.map(|bytes| decode(&key, &bytes)).transpose()?;
            let joined = stored.map_or(row, |stored| stored.join(row));
            if stored != Some(joined) {
                txn.put(Table::Small, key, codec::encode_status(&joined));
            }
            Ok(())
        };
        self.writer.call(true, weight, work).await
    }

    async fn any_status(&self) -> StoreResult<bool> {
        Ok(self.any_status.0.load(Ordering::Acquire))
    }
}

#[async_trait]
impl LogTable for Embedded {
    async fn append_log(&self, log: &str, at: Micros, id: u64, value: &[u8]) -> StoreResult<()> {
        check_log(log, value)?;
        let (key, value) = (keys::log_entry(&keys::log(log), at, id), value.to_vec());
        let weight = key.len() + value.len();
        let work = |txn: &mut Txn<'_>| {
            txn.put(Table::Small, key, value);
            Ok(())
        };
        self.writer.call(true, weight, work).await
    }

    async fn page_log(
        &self,
        log: &str,
        newest_first: bool,
        after: Option<(Micros, u64)>,
        limit: usize,
    ) -> StoreResult<(Vec<LogEntry>, bool)> {
        let view = self.rows.view()?;
        let prefix = keys::log(log);
        let place = after.map(|(at, id)| Bound::Excluded(keys::log_entry(&prefix, at, id)));
        let (first, end) = (Bound::Included(prefix.clone()), keys::behind(&prefix));
        let rows = match (newest_first, place) {
            (false, from) => view.range(Table::Small, from.unwrap_or(first), end),
            (true, to) => view.range_back(Table::Small, first, to.unwrap_or(end)),
        };
        let mut found = Vec::new();
        for row in rows {
            if found.len() == limit.max(1) {
                return Ok((found, false));
            }
            let (key, value) = row?;
            let (at, id) = keys::parse_log_entry(&key[prefix.len()..]).ok_or_else(|| damaged(Table::Small, &key))?;
            found.push(LogEntry { at, id, value: value.to_vec() });
        }
        Ok((found, true))
    }

    async fn drop_log_entry(&self, log: &str, at: Micros, id: u64) -> StoreResult<()> {
        let key = keys::log_entry(&keys::log(log), at, id);
        let weight = key.len() + 64;
        let work = |txn: &mut Txn<'_>| {
            txn.delete(Table::Small, key);
            Ok(())
        };
        self.writer.call(true, weight, work).await
    }

    async fn drop_log(&self, log: &str) -> StoreResult<()> {
        let prefix = keys::log(log);
        loop {
            let prefix = prefix.clone();
            let more = self.writer.call(true, 512, move |txn: &mut Txn<'_>| txn.delete_under(Table::Small, &prefix, DROP_ROWS));
            if !more.await? {
                return Ok(());
            }
        }
    }
}
