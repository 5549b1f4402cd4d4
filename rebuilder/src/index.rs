//! Checks of the per-user index.

use std::collections::HashSet;

use schema::{Fact, IndexRow, KindName, Member, ShardKey, TargetKey, UserKey};
use store::{Protocol, StoreResult, engine::IndexTimeRow};

use crate::suspect::{Suspect, fact_of};

/// Rows that are read at a time.
const PAGE: usize = 200;

/// What a check of one (user, kind) saw.
#[derive(Debug, Default)]
pub(crate) struct CheckedIndex {
    /// Section 1 rows.
    pub rows: u64,
    /// Time rows that readers skip: the choice has moved on.
    pub left_over: Vec<IndexTimeRow>,
    /// What looked wrong.
    pub suspects: Vec<Suspect>,
}

/// Most left-over rows that one (user, kind) hands on at a time.
const MAX_LEFT_OVER: usize = 10_000;

/// Compares every row of one (user, kind) with its fact, and its two sections with each other. Rows
/// that are missing or behind are found by [`missing_rows`].
pub(crate) async fn check_user(protocol: &Protocol, user: &UserKey, kind: &KindName) -> StoreResult<CheckedIndex> {
    let mut out = CheckedIndex::default();
    let engine = protocol.engine();
    // Section 2 first, against section 1 as it is now: (target, since) of the valid ones.
    let mut listed: HashSet<TargetKey> = HashSet::new();
    let mut after = None;
    loop {
        let (times, end) = engine.page_index_times(user, kind, after.as_ref(), PAGE).await?;
        let targets: Vec<TargetKey> = times.iter().map(|t| t.target.clone()).collect();
        let rows = engine.read_index(user, kind, &targets).await?;
        after = times.last().map(|t| (t.at, t.target.clone())).or(after);
        for (time, row) in times.into_iter().zip(rows) {
            if row.is_some_and(|r| r.choice != 0 && r.since == time.at) {
                listed.insert(time.target);
            } else if out.left_over.len() < MAX_LEFT_OVER {
                out.left_over.push(time);
            }
        }
        if end {
            break;
        }
    }
    let mut after: Option<TargetKey> = None;
    loop {
        let (rows, end) = engine.page_index(user, kind, after.as_ref(), PAGE).await?;
        out.rows += rows.len() as u64;
        for (target, row) in &rows {
            let due: IndexRow = fact_of(protocol, target, kind, &user.member()).await?.choice.into();
            // One that is behind its fact is found from the fact's side.
            if *row != due && row.version >= due.version {
                let (user, kind, target) = (user.clone(), kind.clone(), target.clone());
                out.suspects.push(Suspect::Index { user, kind, target, version: due.version });
            }
            if row.choice != 0 && !listed.contains(target) {
                out.suspects.push(Suspect::IndexTime { user: user.clone(), kind: kind.clone(), target: target.clone() });
            }
        }
        after = rows.last().map(|(t, _)| t.clone()).or(after);
        if end {
            return Ok(out);
        }
    }
}

/// The other direction: those of `facts` (of one partition) whose index row is missing or behind.
pub(crate) async fn missing_rows(protocol: &Protocol, shard: &ShardKey, facts: &[(Member, Fact)]) -> StoreResult<Vec<Suspect>> {
    let mut out = Vec::new();
    for (member, fact) in facts.iter().filter(|(_, f)| f.choice.version > 0) {
        let user = UserKey::of(&shard.target, member);
        let rows = protocol.engine().read_index(&user, &shard.kind, std::slice::from_ref(&shard.target)).await?;
        if rows.into_iter().next().flatten().is_none_or(|r| r.version < fact.choice.version) {
            let (kind, target) = (shard.kind.clone(), shard.target.clone());
            out.push(Suspect::Index { user, kind, target, version: fact.choice.version });
        }
    }
    Ok(out)
}
