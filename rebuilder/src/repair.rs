//! Repairs: each counts again from the facts, or writes a derived row again. None sets a number.

use schema::{Fact, IndexRow, Member, ShardKey, UserKey, leaf_of};
use store::{
    Protocol, StoreResult,
    engine::{FactWrite, IndexEntry, IndexTimeRow, RowChange, TimeRow},
};

use crate::{
    Cause, Drift,
    evidence::Evidence,
    suspect::{Suspect, fact_of},
};

/// Mends what `suspect` stands for; `drift` is what the last look found. Says what was done where
/// there was a choice.
pub(crate) async fn repair(
    protocol: &Protocol,
    suspect: &Suspect,
    drift: &Drift,
    evidence: &Evidence,
) -> StoreResult<Option<String>> {
    if let Suspect::Ahead { leaf, member } = suspect {
        return fact_lost(protocol, leaf, member, evidence).await;
    }
    mend(protocol, suspect, drift, evidence).await.map(|()| None)
}

async fn mend(protocol: &Protocol, suspect: &Suspect, drift: &Drift, evidence: &Evidence) -> StoreResult<()> {
    let engine = protocol.engine();
    match suspect {
        Suspect::Small { root, .. } if drift.cause == Cause::Uncounted => protocol.reconcile(root, &[]).await.map(|_| ()),
        Suspect::Small { root, .. } => protocol.repair_counter(root).await,
        Suspect::Promotion { root } => {
            protocol.reconcile(root, &[]).await?;
            // Shown, but a leaf's counter row is gone: each leaf writes its own again.
            let shown = engine.read_counters(&root.target).await?.shown(&root.kind);
            for leaf in shown.into_iter().flat_map(schema::leaves) {
                protocol.reconcile(&root.with_shard(leaf), &[]).await?;
            }
            Ok(())
        }
        Suspect::LeftInRoot { root, member, .. } => protocol.reconcile(root, std::slice::from_ref(member)).await.map(|_| ()),
        Suspect::NoLedger { leaf } => protocol.reconcile(leaf, &[]).await.map(|_| ()),
        Suspect::Behind { leaf, member, .. } => protocol.reconcile(leaf, std::slice::from_ref(member)).await.map(|_| ()),
        Suspect::Ahead { leaf, member } => fact_lost(protocol, leaf, member, evidence).await.map(|_| ()),
        Suspect::Head { leaf } => protocol.audit(leaf).await.map(|_| ()),
        Suspect::LeafCounter { leaf, .. } if drift.cause == Cause::Uncounted => protocol.reconcile(leaf, &[]).await.map(|_| ()),
        Suspect::LeafCounter { leaf, .. } => protocol.repair_counter(leaf).await,
        Suspect::ExtraTime { leaf, at, member } => {
            let members = std::slice::from_ref(member);
            let drop = (*at, member.clone());
            protocol
                .repair_ledger(leaf, members, |read, commit| {
                    // One row of a moment may be right and only its choice wrong: then it is rewritten.
                    let fact = read.rows.first().copied().flatten().unwrap_or_default().fact;
                    match listed(&fact, member).filter(|t| t.at == *at) {
                        Some(right) => commit.put_times.push(right),
                        None => commit.drop_times.push(drop.clone()),
                    }
                    true
                })
                .await
                .map(|_| ())
        }
        Suspect::MissingTime { leaf, member } => {
            let put = |read: &store::engine::LedgerRead, commit: &mut store::engine::LedgerCommit| {
                let fact = read.rows.first().copied().flatten().unwrap_or_default().fact;
                commit.put_times.extend(listed(&fact, member));
                !commit.put_times.is_empty()
            };
            protocol.repair_ledger(leaf, std::slice::from_ref(member), put).await.map(|_| ())
        }
        Suspect::Ghost { shard } => engine.drop_counter(shard).await,
        Suspect::Index { user, kind, target, .. } => {
            // An index row ahead of its fact may be what bears out that the fact was lost.
            let root = ShardKey::root(target.clone(), kind.clone());
            if let Some(level) = protocol.read_small(&root).await?.0.level() {
                let member = user.member();
                fact_lost(protocol, &root.with_shard(leaf_of(&member, level)), &member, evidence).await?;
            }
            let fact = fact_of(protocol, target, kind, &user.member()).await?;
            let due: IndexRow = fact.choice.into();
            let row = engine.read_index(user, kind, std::slice::from_ref(target)).await?.into_iter().next().flatten();
            if row.is_some_and(|r| r.join(due) != due) {
                // A row that would win against the right one has to go first.
                engine.drop_index(user, kind, target).await?;
            }
            if due.version == 0 { Ok(()) } else { put_index(protocol, user, kind, target, due).await }
        }
        Suspect::IndexTime { user, kind, target } => {
            let row = engine.read_index(user, kind, std::slice::from_ref(target)).await?.into_iter().next().flatten();
            match row {
                Some(row) => put_index(protocol, user, kind, target, row).await,
                None => Ok(()),
            }
        }
    }
}

/// Removes rows of a user's list by time that readers skip.
pub(crate) async fn drop_left_over(
    protocol: &Protocol,
    user: &UserKey,
    kind: &schema::KindName,
    rows: &[IndexTimeRow],
) -> StoreResult<()> {
    for row in rows {
        let (engine, target) = (protocol.engine(), std::slice::from_ref(&row.target));
        let valid = |r: &IndexRow| r.choice != 0 && r.since == row.at;
        // A row that is newer than the choice belongs to a write under way, whose choice comes next.
        let now = engine.read_index(user, kind, target).await?.into_iter().next().flatten();
        if now.is_none_or(|r| valid(&r) || r.version < row.at) {
            continue;
        }
        engine.drop_index_time(user, kind, row).await?;
        // It may have become valid again meanwhile: a request or an import can bring a `since` back.
        if let Some(now) = engine.read_index(user, kind, target).await?.into_iter().next().flatten().filter(valid) {
            let entry = IndexEntry { user: user.clone(), kind: kind.clone(), target: row.target.clone(), row: now };
            engine.put_index(&[entry]).await.into_iter().collect::<StoreResult<Vec<()>>>()?;
        }
    }
    Ok(())
}

/// The ledger is ahead of its fact: registers that are borne out go back into the fact; where others
/// remain, the row is rewritten from the fact, in a commit that I4 exempts. Says which it was.
async fn fact_lost(protocol: &Protocol, leaf: &ShardKey, member: &Member, evidence: &Evidence) -> StoreResult<Option<String>> {
    let engine = protocol.engine();
    let verdict = evidence.judge(protocol, leaf, member).await?;
    if !verdict.is_ahead() {
        return Ok(None);
    }
    let done = verdict.done();
    tracing::warn!(shard = ?leaf, %member, %done, "a ledger row is ahead of its fact");
    if verdict.restores() {
        let indexed = protocol.settings().kinds.get(leaf.kind.as_str()).is_some_and(|k| k.by_user);
        let index = indexed.then(|| UserKey::of(&leaf.target, member));
        let restored = FactWrite { shard: leaf.clone(), member: member.clone(), fact: verdict.restored, index, seen: None };
        for result in engine.write_facts(&[restored]).await {
            result?;
        }
    }
    if verdict.rewrites() {
        let fact = verdict.fact.map(|_| verdict.restored).or_else(|| verdict.restores().then_some(verdict.restored));
        protocol
            .repair_ledger(leaf, std::slice::from_ref(member), |read, commit| {
                let Some(now) = read.rows.first().copied().flatten() else { return false };
                if now.fact != verdict.row {
                    return false; // Somebody has counted since it was judged: nothing here is certain any more.
                }
                match fact {
                    Some(fact) => commit.rows.push(RowChange { member: member.clone(), expect: Some(verdict.row), fact }),
                    None => {
                        commit.drop_rows.push((member.clone(), verdict.row));
                        commit.drop_times.extend(listed(&verdict.row, member).map(|t| (t.at, t.member)));
                    }
                }
                true
            })
            .await?;
    }
    // What the member did meanwhile is counted on top.
    protocol.reconcile(leaf, std::slice::from_ref(member)).await?;
    Ok(Some(done))
}

fn listed(fact: &Fact, member: &Member) -> Option<TimeRow> {
    let counted = fact.counted();
    (counted != 0).then(|| TimeRow { at: fact.choice.since, member: member.clone(), choice: counted })
}

async fn put_index(
    protocol: &Protocol,
    user: &UserKey,
    kind: &schema::KindName,
    target: &schema::TargetKey,
    row: IndexRow,
) -> StoreResult<()> {
    let entry = IndexEntry { user: user.clone(), kind: kind.clone(), target: target.clone(), row };
    for result in protocol.engine().put_index(&[entry]).await {
        result?;
    }
    Ok(())
}
