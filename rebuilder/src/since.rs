//! What was written since a moment: the journal names it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::atomic::Ordering,
};

use schema::{Intent, KindName, Member, Micros, Shard, ShardKey, UserKey, leaf_of};
use store::StoreResult;

use crate::{
    evidence::{AHEAD, micros},
    partition::{partitions, users},
    shared::Shared,
};

/// Journal entries that are read at a time.
const PAGE: usize = 256;
/// Shards, and lists, that are remembered as checked; beyond it some are checked again.
const REMEMBERED: usize = 200_000;

/// Earliest moment that the journal reaches back to.
pub(crate) fn reach(shared: &store::Protocol) -> Micros {
    shared.clock().now().saturating_sub(micros(shared.settings().journal_retention))
}

/// Checks every shard and every list that the journal names since `at`.
pub(crate) async fn check_since(shared: &Shared, at: Micros) -> StoreResult<()> {
    let (protocol, engine) = (&shared.protocol, shared.protocol.engine());
    let first = protocol.settings().slot_of(at) - 1;
    let last = protocol.settings().slot_of(protocol.clock().now()) + AHEAD;
    let mut checked = Checked::default();
    let lanes = engine.lanes().await?;
    shared.progress.slices.store(lanes.len() as u64, Ordering::Relaxed);
    for lane in lanes {
        let mut from = first.max(lane.first);
        while from <= last {
            let Some(slot) = engine.next_slot(lane.lane, from, last).await? else { break };
            let mut after = None;
            loop {
                let (entries, end) = engine.read_slot(lane.lane, slot, after, PAGE).await?;
                after = entries.last().map(|e| e.id).or(after);
                shared.throttle.take(entries.len()).await;
                let intents: Vec<Intent> = entries.into_iter().flat_map(|e| e.intents).collect();
                checked.add(shared, &intents).await?;
                if end {
                    break;
                }
            }
            from = slot + 1;
        }
        shared.progress.slices_done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// What was checked already.
#[derive(Default)]
struct Checked {
    shards: HashSet<ShardKey>,
    users: HashSet<(UserKey, KindName)>,
}

impl Checked {
    async fn add(&mut self, shared: &Shared, intents: &[Intent]) -> StoreResult<()> {
        if self.shards.len() + self.users.len() > REMEMBERED {
            *self = Self::default();
        }
        let mut targets: BTreeMap<ShardKey, BTreeSet<Member>> = BTreeMap::new();
        let mut lists = Vec::new();
        for intent in intents {
            let key = &intent.key;
            targets.entry(key.shard(Shard::ROOT)).or_default().insert(key.member.clone());
            let list = (UserKey::of(&key.target, &key.member), key.kind.clone());
            if shared.is_indexed(&key.kind) && self.users.insert(list.clone()) {
                lists.push(list);
            }
        }
        let mut shards = Vec::new();
        for (root, members) in targets {
            let level = shared.protocol.engine().read_facts(&root, &[]).await?.head.and_then(|h| h.level());
            let leaves = members.iter().filter_map(|m| level.map(|level| leaf_of(m, level)));
            let leaves: BTreeSet<Shard> = leaves.chain([Shard::ROOT]).collect();
            shards.extend(leaves.into_iter().map(|s| root.with_shard(s)).filter(|s| self.shards.insert(s.clone())));
        }
        partitions(shared, shards).await?;
        users(shared, lists).await
    }
}
