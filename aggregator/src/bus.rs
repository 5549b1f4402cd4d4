//! The event bus of a single process: bounded queues in memory, one for each bucket, coalesced by
//! shard. They may be lost with the process; the sweep finds the rest.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use schema::{ChangeEvent, Member, Micros, ShardKey, TRACE_LOG, TraceId, add_trace, bucket_of};
use store::bus::EventSink;
use tokio::sync::Notify;

/// What is known to have changed in one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Where to look.
    pub shard: ShardKey,
    /// Whom to look at.
    pub members: BTreeSet<Member>,
    /// When the oldest of these changes was answered.
    pub at: Micros,
    /// Traces that are followed to the commit, at most [`schema::MAX_TRACES`].
    pub traces: Vec<TraceId>,
}

impl Notice {
    /// Takes in what a later notice of the same shard says.
    pub fn merge(&mut self, other: Self) {
        self.members.extend(other.members);
        self.at = self.at.min(other.at);
        for id in other.traces {
            add_trace(&mut self.traces, id);
        }
    }
}

#[derive(Default)]
struct Bucket {
    /// Shards in the order in which they were first named.
    order: VecDeque<ShardKey>,
    notices: HashMap<ShardKey, Notice>,
    members: usize,
    /// Woken by each event; replaced by whoever works on this bucket.
    listener: Arc<Notify>,
}

/// Bounded queues in memory. A member that changes a thousand times before it is looked at is one
/// entry.
pub struct MemoryBus {
    buckets: Vec<Mutex<Bucket>>,
    capacity: usize,
    published: AtomicU64,
    dropped: AtomicU64,
    /// Sum of the buckets' members, so that asking for it takes no lock.
    backlog: AtomicUsize,
}

impl MemoryBus {
    /// `buckets` queues (at least 1), each for at most `capacity` members.
    pub fn new(buckets: u16, capacity: usize) -> Arc<Self> {
        let buckets = (0..buckets.max(1)).map(|_| Default::default()).collect();
        Arc::new(Self {
            buckets,
            capacity: capacity.max(1),
            published: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            backlog: AtomicUsize::new(0),
        })
    }

    /// How many queues there are.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// (members taken in, members dropped because a queue was full) since the start.
    pub fn totals(&self) -> (u64, u64) {
        (self.published.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    /// Members that wait to be looked at.
    pub fn backlog(&self) -> usize {
        self.backlog.load(Ordering::SeqCst)
    }

    /// (members in the fullest queue, when the oldest change was answered of those that stand first in a
    /// queue). One look into each queue.
    pub fn fullest_and_first(&self) -> (usize, Option<Micros>) {
        let looks = (0..self.buckets.len()).map(|bucket| {
            let queue = self.lock(bucket);
            (queue.members, queue.order.front().and_then(|shard| queue.notices.get(shard)).map(|notice| notice.at))
        });
        looks.fold((0, None), |(most, first), (members, at)| {
            (most.max(members), first.map_or(at, |first| Some(at.map_or(first, |at| first.min(at)))))
        })
    }

    /// Takes up to `limit` shards from one bucket, oldest first; at once, maybe none.
    pub fn take(&self, bucket: usize, limit: usize) -> Vec<Notice> {
        let mut queue = self.lock(bucket);
        let mut out = Vec::new();
        while out.len() < limit {
            let Some(shard) = queue.order.pop_front() else { break };
            if let Some(notice) = queue.notices.remove(&shard) {
                queue.members -= notice.members.len();
                self.backlog.fetch_sub(notice.members.len(), Ordering::SeqCst);
                out.push(notice);
            }
        }
        out
    }

    /// What wakes the worker of `buckets` from now on. It may wake for nothing; it never sleeps
    /// while something is queued that the worker has not been woken for.
    pub fn listen(&self, buckets: &[usize]) -> Arc<Notify> {
        let listener = Arc::new(Notify::new());
        for &bucket in buckets {
            self.lock(bucket).listener = listener.clone();
        }
        listener.notify_one(); // For what was queued before.
        listener
    }

    /// Throws away everything queued: for tests of what the sweep must find.
    pub fn lose_all(&self) {
        for bucket in 0..self.buckets.len() {
            let mut queue = self.lock(bucket);
            self.backlog.fetch_sub(queue.members, Ordering::SeqCst);
            *queue = Bucket { listener: queue.listener.clone(), ..Bucket::default() };
        }
    }

    /// Takes in one event at once.
    pub fn push(&self, event: ChangeEvent) {
        let index = usize::from(bucket_of(&event.shard, u16::try_from(self.buckets.len()).unwrap_or(u16::MAX)));
        let mut bucket = self.lock(index);
        let queue = &mut *bucket;
        if !queue.notices.contains_key(&event.shard) {
            queue.order.push_back(event.shard.clone());
        }
        let notice = queue.notices.entry(event.shard.clone()).or_insert_with(|| Notice {
            shard: event.shard,
            members: BTreeSet::new(),
            at: event.at,
            traces: Vec::new(),
        });
        notice.at = notice.at.min(event.at);
        for &id in &event.traces {
            add_trace(&mut notice.traces, id);
        }
        let (mut taken, mut dropped) = (0, 0);
        for member in event.members {
            if queue.members < self.capacity {
                let new = notice.members.insert(member);
                queue.members += usize::from(new);
                self.backlog.fetch_add(usize::from(new), Ordering::SeqCst);
                taken += 1;
            } else {
                dropped += u64::from(!notice.members.contains(&member));
            }
        }
        if notice.members.is_empty() {
            // Nothing of the event fitted in: no empty notice may stay behind.
            let shard = notice.shard.clone();
            queue.notices.remove(&shard);
            queue.order.pop_back();
        }
        let listener = queue.listener.clone();
        drop(bucket);
        self.published.fetch_add(taken, Ordering::Relaxed);
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
        listener.notify_one();
        if dropped > 0 {
            for id in event.traces {
                tracing::debug!(target: TRACE_LOG, trace_id = %id, "no room in the queue: left to the sweep");
            }
        }
    }

    fn lock(&self, bucket: usize) -> MutexGuard<'_, Bucket> {
        self.buckets[bucket].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl EventSink for MemoryBus {
    async fn publish(&self, events: Vec<ChangeEvent>) {
        for event in events {
            self.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use schema::{KindName, Shard, TargetKey};

    use super::*;

    fn event(target: &str, members: &[&str], at: Micros) -> ChangeEvent {
        let target = TargetKey::parse(&format!("t/{target}")).expect("a key");
        let shard = ShardKey { target, kind: KindName::parse("like").expect("a kind"), shard: Shard::ROOT };
        ChangeEvent { shard, members: members.iter().map(|m| Member::parse(m).expect("an id")).collect(), at, traces: Vec::new() }
    }

    #[test]
    fn repeated_changes_of_a_member_are_one_entry_with_the_oldest_time() {
        let bus = MemoryBus::new(1, 10);
        for at in (1..=1000).rev() {
            bus.push(event("p1", &["u1"], at));
        }
        assert_eq!(bus.backlog(), 1);
        let taken = bus.take(0, 10);
        assert_eq!((taken.len(), taken[0].members.len(), taken[0].at), (1, 1, 1));
        assert_eq!(bus.backlog(), 0);
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_stays_usable() {
        let bus = MemoryBus::new(1, 2);
        bus.push(event("p1", &["u1", "u2", "u3"], 1));
        bus.push(event("p2", &["u1"], 1));
        assert_eq!(bus.totals(), (2, 2));
        assert_eq!(bus.take(0, 10).len(), 1, "no empty notice for p2");
        bus.push(event("p2", &["u1"], 2));
        assert_eq!(bus.take(0, 10).len(), 1);
        assert_eq!(bus.backlog(), 0);
    }

    #[test]
    fn shards_come_in_the_order_in_which_they_were_first_named() {
        let bus = MemoryBus::new(1, 100);
        for target in ["b", "a", "c", "a", "b"] {
            bus.push(event(target, &["u"], 1));
        }
        let first: Vec<_> = bus.take(0, 2).into_iter().map(|n| n.shard.target.id().to_owned()).collect();
        assert_eq!(first, ["b", "a"]);
        assert_eq!(bus.take(0, 9).len(), 1);
    }
}
