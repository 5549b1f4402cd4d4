//! The largest targets, exact.

use std::{cmp::Reverse, collections::BinaryHeap};

use futures::{StreamExt, TryStreamExt, stream};
use schema::{Counts, KindName, Status, StatusKey, TargetKey};
use store::{StoreError, StoreResult, engine::Slice};

use crate::Rebuilder;

/// Partitions that are listed at a time.
const PAGE: usize = 256;

impl Rebuilder {
    /// The `n` targets of a namespace with the largest total of `kind`, exact: every target with
    /// facts is looked at, and those that are gone are left out. Equal totals are ordered by id.
    pub async fn top(&self, namespace: &str, kind: &KindName, n: usize) -> StoreResult<Vec<(TargetKey, Counts)>> {
        let mut best: BinaryHeap<Reverse<(i64, Reverse<TargetKey>)>> = BinaryHeap::new();
        let mut kept = std::collections::HashMap::new();
        let mut from = None;
        loop {
            let page = self.protocol.engine().scan_facts(Slice::ALL, from.as_deref(), PAGE).await?;
            let roots =
                page.items.into_iter().filter(|k| k.shard.is_root() && k.kind == *kind && k.target.namespace() == namespace);
            let counts = stream::iter(roots.map(|key| async move {
                let counts = self.protocol.counts(&key.target, std::slice::from_ref(kind)).await?;
                let counts = counts.into_iter().next().and_then(|c| c.counts).filter(|c| c.total() > 0);
                let gone = counts.is_some() && self.gone(&key.target).await?;
                Ok::<_, StoreError>((key.target, counts.filter(|_| !gone)))
            }));
            let mut counts = counts.buffer_unordered(self.settings.parallel.max(1));
            while let Some((target, counts)) = counts.try_next().await? {
                let Some(counts) = counts else { continue };
                best.push(Reverse((counts.total(), Reverse(target.clone()))));
                kept.insert(target, counts);
                if best.len() > n
                    && let Some(Reverse((_, Reverse(out)))) = best.pop()
                {
                    kept.remove(&out);
                }
            }
            drop(counts);
            match page.next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
        let order = best.into_sorted_vec().into_iter();
        Ok(order.filter_map(|Reverse((_, Reverse(target)))| kept.remove(&target).map(|c| (target, c))).collect())
    }
    async fn gone(&self, target: &TargetKey) -> StoreResult<bool> {
        let status = self.protocol.statuses(&[StatusKey::Target(target.clone())]).await?;
        Ok(status == [Status::Gone])
    }
}
