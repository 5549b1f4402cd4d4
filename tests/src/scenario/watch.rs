//! O2: an eye on public numbers while a scenario runs.

use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use schema::ShardKey;
use tokio::task::JoinHandle;

use super::world::Process;

/// Looks at totals, again and again, until it is told to stop.
pub struct Watch {
    stop: Arc<AtomicBool>,
    looks: JoinHandle<u64>,
}

impl Watch {
    /// Begins to look at the totals of `roots` as `process` answers them and as they are stored. Each
    /// must be within `bounds`; a total that cannot be told is none.
    pub fn start(process: &Process, roots: Vec<ShardKey>, bounds: RangeInclusive<i64>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (ingest, protocol, seen) = (process.ingest.clone(), process.protocol.clone(), stop.clone());
        let looks = tokio::spawn(async move {
            let mut looks = 0;
            while !seen.load(Ordering::Relaxed) {
                for root in &roots {
                    // A store in trouble shows no number, and so no wrong one.
                    let fresh = protocol.counts(&root.target, std::slice::from_ref(&root.kind)).await.unwrap_or_default();
                    let cached = ingest.counts(&root.target).await.ok();
                    let cached = cached.as_ref().and_then(|c| c.kinds.iter().find(|(name, _)| *name == root.kind));
                    let told = fresh.first().into_iter().chain(cached.map(|(_, count)| count));
                    for count in told.filter_map(|count| count.counts.as_ref()) {
                        assert!(!count.any_negative() && bounds.contains(&count.total()), "O2: {root:?} shows {count:?}");
                    }
                    let stored = protocol.engine().read_counters(&root.target).await.expect("counters");
                    for (kind, shard, row) in stored.rows {
                        assert!(!row.counts.any_negative(), "O2: {root:?} {kind} {shard} is stored as {row:?}");
                    }
                    looks += 1;
                }
                tokio::task::yield_now().await;
            }
            looks
        });
        Self { stop, looks }
    }

    /// Stops; how often it looked.
    ///
    /// # Panics
    /// Where it saw what must not be seen, or saw nothing.
    pub async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let looks = self.looks.await.expect("O2 holds");
        assert!(looks > 0, "the watch never looked");
        looks
    }
}
