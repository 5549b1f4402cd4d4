//! Scans: the key space in slices, by partition and by row.

use async_trait::async_trait;
use schema::{Fact, IndexRow, KindName, LedgerHead, LedgerRow, Member, RootHead, ShardKey, TargetKey, UserKey};

use super::{IndexTimeRow, StoreResult, TargetCounters, TimeRow};

/// A part of the key space: every target belongs to exactly one of `of` slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slice {
    /// Number of this slice, from 0.
    pub index: u32,
    /// How many slices there are.
    pub of: u32,
}

impl Slice {
    /// The whole key space.
    pub const ALL: Self = Self { index: 0, of: 1 };

    /// First token of the slice and first token behind it (`None`: the end). Tokens are
    /// [`schema::token_of`] or the server's own.
    pub fn bounds(self) -> (u64, Option<u64>) {
        let edge = |i: u32| (u128::from(i) << 64) / u128::from(self.of.max(1));
        (u64::try_from(edge(self.index)).unwrap_or(u64::MAX), u64::try_from(edge(self.index + 1)).ok())
    }
}

/// Partitions found by a scan, in an order of the engine's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePage<T> {
    /// What was found; no partition twice in one scan.
    pub items: Vec<T>,
    /// Where to go on; `None`: the end of the slice.
    pub next: Option<Vec<u8>>,
}

/// Where a partition lies in the order of a scan. Facts and ledgers of one shard have the same place,
/// so that both can be read side by side.
pub type Place = Vec<u8>;

/// Rows of one facts partition, as a scan comes across them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactRows {
    /// Where in the scan.
    pub place: Place,
    /// The partition.
    pub shard: ShardKey,
    /// Row '' (roots only), with the partition's first rows.
    pub head: Option<RootHead>,
    /// Rows, ascending.
    pub rows: Vec<(Member, Fact)>,
}

/// Rows of one leaf's ledger, as a scan comes across them: the head, then rows by member, then time
/// rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRows {
    /// Where in the scan.
    pub place: Place,
    /// The leaf.
    pub leaf: ShardKey,
    /// The head, with the partition's first rows.
    pub head: Option<LedgerHead>,
    /// Rows, ascending.
    pub rows: Vec<(Member, LedgerRow)>,
    /// Time rows, in any order.
    pub times: Vec<TimeRow>,
}

/// Rows of one (user, kind), as a scan comes across them: section 1 before section 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRows {
    /// Whose list.
    pub user: UserKey,
    /// Which kind.
    pub kind: KindName,
    /// Section 1, ascending.
    pub rows: Vec<(TargetKey, IndexRow)>,
    /// Section 2, in any order.
    pub times: Vec<IndexTimeRow>,
}

/// Scans for the rebuilder. They may miss what is written after they begin, never what was there.
///
/// The `scan_…` methods name partitions. The `…_rows` methods read whole tables: at most `limit` rows
/// (at least one) a page, with the continuation as for partitions. A page may end within a
/// partition; the rest of it then begins the next page. Rows of one page need not be as of one
/// moment, and each page is read anew.
#[async_trait]
pub trait ScanTable: Send + Sync {
    /// Fact rows in order of place.
    async fn fact_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<FactRows>>;
    /// Ledger rows in order of place.
    async fn ledger_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<LedgerRows>>;
    /// Counter rows. A target is never cut: a page may be longer than `limit` by the rest of one.
    async fn counter_rows(
        &self,
        slice: Slice,
        from: Option<&[u8]>,
        limit: usize,
    ) -> StoreResult<SlicePage<(TargetKey, TargetCounters)>>;
    /// Rows of the per-user index; a user belongs to the slice of its key's token.
    async fn index_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<IndexRows>>;
    /// Partitions of `facts`.
    async fn scan_facts(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<ShardKey>>;
    /// Targets with counter rows.
    async fn scan_counters(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<TargetKey>>;
    /// Leaves with a ledger.
    async fn scan_ledgers(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<ShardKey>>;
    /// Partitions of `by_user`; a user belongs to the slice of its key's token.
    async fn scan_index(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> StoreResult<SlicePage<(UserKey, KindName)>>;
    /// Section 1 rows of one (user, kind) behind `after`, ascending, at most `limit`, and whether they end here.
    async fn page_index(
        &self,
        user: &UserKey,
        kind: &KindName,
        after: Option<&TargetKey>,
        limit: usize,
    ) -> StoreResult<(Vec<(TargetKey, IndexRow)>, bool)>;
}
