//! Small operational rows.

use async_trait::async_trait;

use super::{Embedded, keys, rows::Table, rows::damaged, txn::Txn};
use crate::engine::{MetaTable, StoreResult};

#[async_trait]
impl MetaTable for Embedded {
    async fn get_meta(&self, key: &str) -> StoreResult<Option<Vec<u8>>> {
        self.rows.stop.check()?;
        Ok(self.rows.get(Table::Small, &keys::meta(key))?.map(|value| value.to_vec()))
    }

    async fn put_meta(&self, key: &str, value: &[u8]) -> StoreResult<()> {
        let (key, value) = (keys::meta(key), value.to_vec());
        let weight = key.len() + value.len();
        let work = |txn: &mut Txn<'_>| {
            txn.put(Table::Small, key, value);
            Ok(())
        };
        self.writer.call(true, weight, work).await
    }

    async fn swap_meta(&self, key: &str, expected: Option<&[u8]>, new: &[u8]) -> StoreResult<bool> {
        let (key, expected, new) = (keys::meta(key), expected.map(<[u8]>::to_vec), new.to_vec());
        let weight = key.len() + new.len() + expected.as_ref().map_or(0, Vec::len);
        let work = move |txn: &mut Txn<'_>| {
            let stored = txn.get(Table::Small, &key)?;
            let fits = stored.as_deref() == expected.as_deref();
            if fits {
                txn.put(Table::Small, key, new);
            }
            Ok(fits)
        };
        self.writer.call(true, weight, work).await
    }

    async fn drop_meta(&self, key: &str) -> StoreResult<()> {
        let key = keys::meta(key);
        let work = |txn: &mut Txn<'_>| {
            txn.delete(Table::Small, key);
            Ok(())
        };
        self.writer.call(true, 64, work).await
    }

    async fn list_meta(&self, prefix: &str, limit: usize) -> StoreResult<Vec<(String, Vec<u8>)>> {
        let view = self.rows.view()?;
        let row = |row: StoreResult<(fjall::UserKey, fjall::UserValue)>| {
            let (key, value) = row?;
            let name = keys::parse_meta(&key).ok_or_else(|| damaged(Table::Small, &key))?;
            Ok((name.to_owned(), value.to_vec()))
        };
        view.prefix(Table::Small, &keys::meta(prefix)).take(limit).map(row).collect()
    }
}
