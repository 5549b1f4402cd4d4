//! Statuses and logs.

use std::{collections::BTreeMap, ops::Bound};

use async_trait::async_trait;
use schema::{Micros, StatusKey, StatusRow};

use super::{
    Memory,
    cells::{Cell, Key},
};
use crate::{
    StoreResult,
    engine::{LogEntry, LogTable, StatusTable, check_log},
};

/// Entries by name, time and id. As for meta rows, nothing goes wrong here.
pub(super) type Logs = BTreeMap<String, BTreeMap<(Micros, u64), Vec<u8>>>;

#[async_trait]
impl StatusTable for Memory {
    async fn read_status(&self, keys: &[StatusKey]) -> StoreResult<Vec<Option<StatusRow>>> {
        let keys: Vec<Key> = keys.iter().map(|key| Key::Status(key.clone())).collect();
        let row = |cell| match cell {
            Some(Cell::Status(row)) => Some(row),
            _ => None,
        };
        self.step(|state| Ok(state.read(&keys).into_iter().map(row).collect())).await
    }

    async fn put_status(&self, key: &StatusKey, row: StatusRow) -> StoreResult<()> {
        self.step(|state| state.write(vec![(Key::Status(key.clone()), Cell::Status(row))])).await
    }

    async fn any_status(&self) -> StoreResult<bool> {
        // Statuses come last among the keys.
        let has = |key: Option<&Key>| matches!(key, Some(Key::Status(_)));
        self.step(|state| Ok(state.replicas.iter().any(|replica| has(replica.keys().next_back())))).await
    }
}

#[async_trait]
impl LogTable for Memory {
    async fn append_log(&self, log: &str, at: Micros, id: u64, value: &[u8]) -> StoreResult<()> {
        check_log(log, value)?;
        self.step(|state| {
            state.logs.entry(log.to_owned()).or_default().insert((at, id), value.to_owned());
            Ok(())
        })
        .await
    }

    async fn page_log(
        &self,
        log: &str,
        newest_first: bool,
        after: Option<(Micros, u64)>,
        limit: usize,
    ) -> StoreResult<(Vec<LogEntry>, bool)> {
        self.step(|state| {
            let Some(entries) = state.logs.get(log) else { return Ok((Vec::new(), true)) };
            let entry = |(&(at, id), value): (&(Micros, u64), &Vec<u8>)| LogEntry { at, id, value: value.clone() };
            let place = after.map_or(Bound::Unbounded, Bound::Excluded);
            let wanted = limit.max(1) + 1;
            let mut found: Vec<LogEntry> = if newest_first {
                entries.range((Bound::Unbounded, place)).rev().take(wanted).map(entry).collect()
            } else {
                entries.range((place, Bound::Unbounded)).take(wanted).map(entry).collect()
            };
            let end = found.len() < wanted;
            found.truncate(limit.max(1));
            Ok((found, end))
        })
        .await
    }

    async fn drop_log_entry(&self, log: &str, at: Micros, id: u64) -> StoreResult<()> {
        self.step(|state| {
            state.logs.get_mut(log).and_then(|entries| entries.remove(&(at, id)));
            Ok(())
        })
        .await
    }

    async fn drop_log(&self, log: &str) -> StoreResult<()> {
        self.step(|state| {
            state.logs.remove(log);
            Ok(())
        })
        .await
    }
}
