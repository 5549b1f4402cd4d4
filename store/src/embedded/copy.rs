//! A copy of every row at one moment, taken while writes go on, and its way back into an empty store.
//!
//! fjall keeps old versions while a snapshot is open, so a copy needs no pause and no lock: it holds
//! exactly what was committed before it began, so everything that was answered before. Rows travel in
//! blocks: for each row its table (one byte), the lengths of key and value (4 bytes each,
//! big-endian), the key, the value. These bytes are a storage format: backups are made of them.

use std::{ops::Bound, sync::Arc};

use fjall::{Readable, Snapshot};

use super::{
    Embedded,
    rows::{Rows, Table},
};
use crate::engine::{StoreError, StoreResult};

/// About how large a block is, in bytes; one row more at most.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Longest key and value that a block may hold, in bytes.
const MAX_KEY: usize = 4 << 10;
const MAX_VALUE: usize = 16 << 20;
/// Bytes before a row's key.
const HEAD: usize = 9;

/// A copy under way. Dropping it ends it.
pub struct RowCopy {
    rows: Arc<Rows>,
    snapshot: Snapshot,
    table: usize,
    after: Option<Vec<u8>>,
}

/// Why a block cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rows of the copy cannot be read (byte {at} of a block)")]
pub struct BadBlock {
    /// Where in the block.
    pub at: usize,
}

/// A row of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row<'a> {
    table: Table,
    key: &'a [u8],
    value: &'a [u8],
}

impl RowCopy {
    /// The next block with the number of its rows; `None`: all rows are copied. Reads the disk: call
    /// it where that may block.
    pub fn next_block(&mut self) -> StoreResult<Option<(Vec<u8>, u64)>> {
        self.rows.stop.check()?;
        let (mut block, mut rows) = (Vec::with_capacity(BLOCK_BYTES + 4096), 0);
        while let Some(&table) = Table::ALL.get(self.table) {
            let from = self.after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
            let range = self.snapshot.range(self.rows.keyspace(table), (from, Bound::<Vec<u8>>::Unbounded));
            for row in range {
                let (key, value) = row.into_inner().map_err(|e| self.rows.failed(e))?;
                put(&mut block, table, &key, &value)?;
                rows += 1;
                if block.len() >= BLOCK_BYTES {
                    self.after = Some(key.to_vec());
                    return Ok(Some((block, rows)));
                }
            }
            (self.table, self.after) = (self.table + 1, None);
        }
        Ok((rows > 0).then_some((block, rows)))
    }
}

fn put(block: &mut Vec<u8>, table: Table, key: &[u8], value: &[u8]) -> StoreResult<()> {
    let length = |n: usize, most: usize| u32::try_from(n).ok().filter(|_| n <= most);
    let (Some(key_len), Some(value_len)) = (length(key.len(), MAX_KEY), length(value.len(), MAX_VALUE)) else {
        return Err(StoreError::Damaged(format!("a row of {} and {} bytes", key.len(), value.len())));
    };
    block.push(table as u8);
    block.extend_from_slice(&key_len.to_be_bytes());
    block.extend_from_slice(&value_len.to_be_bytes());
    block.extend_from_slice(key);
    block.extend_from_slice(value);
    Ok(())
}

/// Takes the rows of a block apart, or says where it cannot.
fn rows_of(block: &[u8]) -> Result<Vec<Row<'_>>, BadBlock> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < block.len() {
        let bad = BadBlock { at };
        let head = block.get(at..at + HEAD).ok_or(bad)?;
        let table = Table::ALL.get(usize::from(head[0])).copied().ok_or(bad)?;
        let length = |from: usize, most: usize| {
            let bytes = head[from..from + 4].try_into().expect("four bytes");
            usize::try_from(u32::from_be_bytes(bytes)).ok().filter(|n| *n <= most).ok_or(bad)
        };
        let key = at + HEAD;
        let value = key + length(1, MAX_KEY)?;
        let end = value + length(5, MAX_VALUE)?;
        let row = Row { table, key: block.get(key..value).ok_or(bad)?, value: block.get(value..end).ok_or(bad)? };
        out.push(row);
        at = end;
    }
    Ok(out)
}

impl Embedded {
    /// Begins a copy of every row as of now. Until it is dropped the store keeps old versions of
    /// what it has still to copy, so its owner bounds how long it takes.
    pub fn copy(&self) -> StoreResult<RowCopy> {
        self.rows.stop.check()?;
        Ok(RowCopy { rows: self.rows.clone(), snapshot: self.rows.db.snapshot(), table: 0, after: None })
    }

    /// Whether nothing is stored yet.
    pub fn is_empty(&self) -> StoreResult<bool> {
        let view = self.rows.view()?;
        for table in Table::ALL {
            if let Some(row) = view.range(table, Bound::Unbounded, Bound::Unbounded).next() {
                row?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the rows of a block of a [`RowCopy`] as they are and answers how many. Only for a
    /// store that nothing else writes to; durable once [`Self::close`] has succeeded.
    pub async fn put_block(&self, block: Vec<u8>) -> StoreResult<u64> {
        let damaged = |e: BadBlock| StoreError::Damaged(e.to_string());
        let weight = block.len();
        let work = move |txn: &mut super::txn::Txn<'_>| {
            let rows = rows_of(&block).map_err(damaged)?;
            for row in &rows {
                txn.put(row.table, row.key, row.value.to_vec());
            }
            Ok(rows.len() as u64)
        };
        self.writer.call(false, weight, work).await
    }
}

/// How many rows a block holds, where it can be taken apart.
pub fn check_block(block: &[u8]) -> Result<u64, BadBlock> {
    rows_of(block).map(|rows| rows.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_bytes_are_a_storage_format_and_garbage_is_refused() {
        let mut block = Vec::new();
        put(&mut block, Table::Facts, b"key", b"v").unwrap();
        put(&mut block, Table::Small, b"k", b"").unwrap();
        assert_eq!(block, b"\0\0\0\0\x03\0\0\0\x01keyv\x05\0\0\0\x01\0\0\0\0k");
        assert_eq!(check_block(&block), Ok(2));
        assert_eq!(check_block(b""), Ok(0));
        for cut in 1..block.len() {
            let whole = cut == HEAD + 4;
            assert_eq!(check_block(&block[..cut]).is_ok(), whole, "{cut} bytes");
        }
        assert_eq!(check_block(b"\x06\0\0\0\0\0\0\0\0"), Err(BadBlock { at: 0 }), "no such table");
        assert!(check_block(b"\0\xff\xff\xff\xff\xff\xff\xff\xff").is_err(), "hostile lengths");
    }
}
