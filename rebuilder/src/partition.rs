//! Partitions and lists by name, side by side: for runs that cover only some of them.

use std::sync::atomic::Ordering;

use futures::{StreamExt, TryStreamExt, stream};
use schema::{KindName, ShardKey, TargetKey, UserKey};
use store::{Protocol, StoreError, StoreResult};

use crate::{
    check::{Checked, check_leaf, check_root, ghosts},
    index::check_user,
    repair::drop_left_over,
    shared::{MAX_HELD, Shared},
    suspect::corrected,
};

/// One target: all its partitions, and counters without facts.
pub(crate) async fn check_target(shared: &Shared, target: &TargetKey, kind: Option<KindName>) -> StoreResult<()> {
    shared.progress.slices.store(1, Ordering::Relaxed);
    let kinds = match kind {
        Some(kind) => vec![kind],
        None => shared.protocol.settings().kinds.iter().map(|k| k.name.clone()).collect(),
    };
    for kind in kinds {
        let root = ShardKey::root(target.clone(), kind);
        let level = shared.protocol.read_small(&root).await?.0.level();
        let mut all = vec![root.clone()];
        all.extend(level.into_iter().flat_map(schema::leaves).map(|leaf| root.with_shard(leaf)));
        partitions(shared, all).await?;
    }
    shared.settle(ghosts(&shared.protocol, target).await?).await
}

/// Whether anything is stored for a target.
pub(crate) async fn is_known(protocol: &Protocol, target: &TargetKey, kind: Option<&KindName>) -> StoreResult<bool> {
    let counters = protocol.engine().read_counters(target).await?;
    let wanted = |k: &KindName| kind.is_none_or(|kind| kind == k);
    if counters.rows.iter().any(|(k, ..)| wanted(k)) || counters.shown.iter().any(|(k, _)| wanted(k)) {
        return Ok(true);
    }
    for kind in protocol.settings().kinds.iter().map(|k| &k.name).filter(|k| wanted(k)) {
        let page = protocol.engine().page_facts(&ShardKey::root(target.clone(), kind.clone()), None, 1).await?;
        if page.head.is_some() || !page.rows.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks partitions of facts side by side; reports and repairs.
pub(crate) async fn partitions(shared: &Shared, partitions: Vec<ShardKey>) -> StoreResult<()> {
    let protocol = &shared.protocol;
    let mut suspects = Vec::new();
    let checks = stream::iter(partitions.into_iter().map(|key| async move {
        let checked = check(protocol, &key).await?;
        Ok::<_, StoreError>((key, checked))
    }));
    let mut checks = checks.buffer_unordered(shared.settings.parallel.max(1));
    while let Some((key, mut checked)) = checks.try_next().await? {
        shared.throttle.take(usize::try_from(checked.facts).unwrap_or(usize::MAX)).await;
        shared.note(|r| {
            r.partitions += 1;
            r.targets += u64::from(key.shard.is_root());
            r.facts += checked.facts;
            r.busy_leaves += u64::from(checked.busy);
        });
        while shared.mends() && checked.truncated {
            let before = shared.report().repaired;
            shared.settle(std::mem::take(&mut checked.suspects)).await?;
            if shared.report().repaired == before {
                break; // Nothing could be repaired: checking again finds the same.
            }
            checked = check(protocol, &key).await?;
        }
        suspects.append(&mut checked.suspects);
        if checked.busy && shared.mends() {
            // Not to be compared by reading alone; the audit cursor compares while it moves.
            if let Some((before, after)) = protocol.audit(&key).await?.corrected {
                shared.add(corrected(&key, &before, &after));
            }
        }
        if suspects.len() > MAX_HELD {
            shared.settle(std::mem::take(&mut suspects)).await?;
        }
    }
    shared.settle(suspects).await
}

async fn check(protocol: &Protocol, key: &ShardKey) -> StoreResult<Checked> {
    if key.shard.is_root() { check_root(protocol, key).await } else { check_leaf(protocol, key).await }
}

/// Checks users' lists side by side; reports and repairs.
pub(crate) async fn users(shared: &Shared, users: Vec<(UserKey, KindName)>) -> StoreResult<()> {
    let protocol = &shared.protocol;
    let mut suspects = Vec::new();
    let checks = stream::iter(users.into_iter().map(|(user, kind)| async move {
        let checked = check_user(protocol, &user, &kind).await?;
        Ok::<_, StoreError>((user, kind, checked))
    }));
    let mut checks = checks.buffer_unordered(shared.settings.parallel.max(1));
    while let Some((user, kind, mut checked)) = checks.try_next().await? {
        shared.throttle.take(usize::try_from(checked.rows).unwrap_or(usize::MAX)).await;
        shared.note(|r| {
            r.index_rows += checked.rows;
            r.left_over += checked.left_over.len() as u64;
        });
        if shared.mends() {
            drop_left_over(protocol, &user, &kind, &checked.left_over).await?;
        }
        suspects.append(&mut checked.suspects);
        if suspects.len() > MAX_HELD {
            shared.settle(std::mem::take(&mut suspects)).await?;
        }
    }
    shared.settle(suspects).await
}
