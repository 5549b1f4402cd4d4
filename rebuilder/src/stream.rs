//! Whole tables, a page at a time, in parts of partitions.

use std::collections::VecDeque;

use futures::future::BoxFuture;
use schema::TargetKey;
use store::{
    StoreResult,
    engine::{Engine, FactRows, IndexRows, LedgerRows, Place, Slice, SlicePage, TargetCounters},
};

use crate::shared::Shared;

/// Rows that a scan comes across.
pub(crate) trait Rows: Send + Sized {
    fn page<'a>(
        engine: &'a dyn Engine,
        slice: Slice,
        from: Option<&'a [u8]>,
        limit: usize,
    ) -> BoxFuture<'a, StoreResult<SlicePage<Self>>>;

    /// How many rows are in it.
    fn rows(&self) -> usize;
}

/// Rows with a place.
pub(crate) trait Placed: Rows {
    fn place(&self) -> &Place;
}

macro_rules! rows {
    ($type:ty, $scan:ident, |$part:ident| $count:expr) => {
        impl Rows for $type {
            fn page<'a>(
                engine: &'a dyn Engine,
                slice: Slice,
                from: Option<&'a [u8]>,
                limit: usize,
            ) -> BoxFuture<'a, StoreResult<SlicePage<Self>>> {
                engine.$scan(slice, from, limit)
            }

            fn rows(&self) -> usize {
                let $part = self;
                $count
            }
        }
    };
}

rows!(FactRows, fact_rows, |part| part.rows.len() + usize::from(part.head.is_some()));
rows!(LedgerRows, ledger_rows, |part| part.rows.len() + part.times.len() + usize::from(part.head.is_some()));
rows!((TargetKey, TargetCounters), counter_rows, |part| part.1.rows.len() + part.1.shown.len());
rows!(IndexRows, index_rows, |part| part.rows.len() + part.times.len());

impl Placed for FactRows {
    fn place(&self) -> &Place {
        &self.place
    }
}

impl Placed for LedgerRows {
    fn place(&self) -> &Place {
        &self.place
    }
}

/// The parts of one slice of a table, in order.
pub(crate) struct Parts<'a, T> {
    shared: &'a Shared,
    slice: Slice,
    from: Option<Vec<u8>>,
    end: bool,
    page: VecDeque<T>,
}

impl<'a, T: Rows> Parts<'a, T> {
    pub fn new(shared: &'a Shared, slice: Slice) -> Self {
        Self { shared, slice, from: None, end: false, page: VecDeque::new() }
    }

    async fn fill(&mut self) -> StoreResult<()> {
        while self.page.is_empty() && !self.end {
            let limit = self.shared.throttle.page();
            let page = T::page(&**self.shared.protocol.engine(), self.slice, self.from.as_deref(), limit).await?;
            self.end = page.next.is_none();
            self.from = page.next;
            self.page = page.items.into();
            self.shared.throttle.take(self.page.iter().map(T::rows).sum()).await;
            // Reading the embedded store never waits: others want this thread too.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// The part that comes next.
    pub async fn peek(&mut self) -> StoreResult<Option<&T>> {
        self.fill().await?;
        Ok(self.page.front())
    }

    /// Takes it.
    pub async fn next(&mut self) -> StoreResult<Option<T>> {
        self.fill().await?;
        Ok(self.page.pop_front())
    }
}

impl<T: Placed> Parts<'_, T> {
    /// Takes the next part if it is of the partition at `place`.
    pub async fn next_at(&mut self, place: &[u8]) -> StoreResult<Option<T>> {
        let here = self.peek().await?.is_some_and(|part| part.place() == place);
        Ok(if here { self.page.pop_front() } else { None })
    }
}
