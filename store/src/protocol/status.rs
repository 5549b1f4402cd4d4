//! Statuses of targets and users.

use schema::{Micros, Status, StatusKey, StatusRow};

use super::Protocol;
use crate::{StoreError, StoreResult};

impl Protocol {
    /// The status row that is stored; `None`: nothing was ever said of it.
    pub async fn status_row(&self, key: &StatusKey) -> StoreResult<Option<StatusRow>> {
        Ok(self.engine.read_status(std::slice::from_ref(key)).await?.into_iter().next().flatten())
    }

    /// The version for the next status: store time, above that of the row that stands.
    pub fn next_status_version(&self, before: Option<StatusRow>) -> Micros {
        self.clock.now().max(before.map_or(0, |row| row.version.saturating_add(1)))
    }

    /// Writes a status row, last writer wins; may be repeated. `Refused`: no such status of that key.
    pub async fn put_status(&self, key: &StatusKey, row: StatusRow) -> StoreResult<()> {
        if !key.statuses().contains(&row.status) {
            return Err(StoreError::Refused(format!("{key} cannot be {}", row.status.name())));
        }
        self.engine.put_status(key, row).await
    }

    /// The status of each key, in order.
    pub async fn statuses(&self, keys: &[StatusKey]) -> StoreResult<Vec<Status>> {
        let rows = self.engine.read_status(keys).await?;
        Ok(keys.iter().zip(rows).map(|(key, row)| row.map_or(key.usual(), |row| row.status)).collect())
    }
}
