//! A suspicion: something that looked wrong once. It is looked at again before it counts.

use schema::{Counts, Fact, KindName, LedgerRow, Member, Micros, Shard, ShardKey, TargetKey, UserKey, leaf_of};
use store::{
    Protocol, StoreResult,
    engine::TimeRow,
    protocol::{count, leaf_counter},
};

use crate::{Cause, Drift};

/// What looked wrong, with what was seen, so that a further look can tell "still" from "again".
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Suspect {
    /// A small target's counter row is not the count of its page, which had this order and rank.
    Small { root: ShardKey, due: (Micros, u128) },
    /// A root has more than T facts or a level, but its leaves are not shown.
    Promotion { root: ShardKey },
    /// A fact of a large target's root is not in its leaf.
    LeftInRoot { root: ShardKey, member: Member, fact: Fact },
    /// A leaf without a complete ledger.
    NoLedger { leaf: ShardKey },
    /// A ledger row behind its fact.
    Behind { leaf: ShardKey, member: Member, fact: Fact },
    /// A ledger row ahead of its fact.
    Ahead { leaf: ShardKey, member: Member },
    /// A head whose counts are not its counted rows.
    Head { leaf: ShardKey },
    /// A leaf's counter row that is not its head, which had this revision.
    LeafCounter { leaf: ShardKey, revision: Micros },
    /// A time row that no ledger row bears out.
    ExtraTime { leaf: ShardKey, at: Micros, member: Member },
    /// A counted ledger row without its time row.
    MissingTime { leaf: ShardKey, member: Member },
    /// A counter row of a (target, kind) without facts.
    Ghost { shard: ShardKey },
    /// An index row that is not the fact's choice register.
    Index { user: UserKey, kind: KindName, target: TargetKey, version: Micros },
    /// An index row whose time row is missing.
    IndexTime { user: UserKey, kind: KindName, target: TargetKey },
}

impl Suspect {
    /// Looks again: `None` where nothing is wrong, or not in this way any more.
    pub async fn look(&self, protocol: &Protocol) -> StoreResult<Option<Drift>> {
        let engine = protocol.engine();
        match self {
            Self::Small { root, due } => {
                let stored = engine.read_counters(&root.target).await?.row(&root.kind, Shard::ROOT).cloned();
                let (head, facts) = protocol.read_small(root).await?;
                if head.level().is_some() || facts.len() > protocol.settings().small_limit {
                    return Ok(None); // It became large meanwhile: checked as such.
                }
                let now = protocol.small_counter(head, &facts);
                let before = stored.as_ref().map(|r| show(&r.counts));
                let drift = |cause| {
                    let shown = drift(root, None, cause, before.as_deref().unwrap_or("no counter"), &show(&now.counts));
                    Some(shown.totals(stored.as_ref().map(|r| &r.counts), Some(&now.counts)))
                };
                Ok(match &stored {
                    None => drift(Cause::Uncounted),
                    Some(row) if (row.order, row.rank) < *due => drift(Cause::Uncounted),
                    Some(row) if (row.order, row.rank) < (now.order, now.rank) => None, // Under way.
                    Some(row) if (row.order, row.rank) > (now.order, now.rank) => drift(Cause::Overcounted),
                    Some(row) if row.counts != now.counts || row.as_of != now.as_of => drift(Cause::Counter),
                    Some(_) => None,
                })
            }
            Self::Promotion { root } => {
                let (head, facts) = protocol.read_small(root).await?;
                let counters = engine.read_counters(&root.target).await?;
                let due = head.level().is_some() || facts.len() > protocol.settings().small_limit;
                let bad = match counters.shown(&root.kind) {
                    None => due,
                    Some(level) => schema::leaves(level).any(|leaf| counters.row(&root.kind, leaf).is_none()),
                };
                Ok(bad.then(|| drift(root, None, Cause::Uncounted, "leaves not shown", "a large target")))
            }
            Self::LeftInRoot { root, member, fact } => {
                let Some(level) = engine.read_facts(root, &[]).await?.head.and_then(|h| h.level()) else { return Ok(None) };
                let leaf = root.with_shard(leaf_of(member, level));
                let there = first(engine.read_facts(&leaf, std::slice::from_ref(member)).await?.facts);
                let bad = there.join(*fact) != there;
                Ok(bad.then(|| drift(&leaf, Some(member), Cause::Uncounted, "left in the root", "belongs to the leaf")))
            }
            Self::NoLedger { leaf } => {
                let complete = engine.read_ledger(leaf, &[]).await?.head.is_some_and(|h| h.complete);
                Ok((!complete).then(|| drift(leaf, None, Cause::Uncounted, "no ledger", "a leaf with facts")))
            }
            Self::Behind { leaf, member, fact } => {
                let row = ledger_row(protocol, leaf, member).await?;
                let bad = row.fact.join(*fact) != row.fact;
                Ok(bad.then(|| drift(leaf, Some(member), Cause::Uncounted, &show_fact(&row.fact), &show_fact(fact))))
            }
            Self::Ahead { leaf, member } => {
                // The ledger first: a fact is always written before it is counted. From every copy: a
                // quorum that missed it is no loss.
                let row = ledger_row(protocol, leaf, member).await?;
                let fact = first(engine.read_facts_at_all(leaf, std::slice::from_ref(member)).await?.facts);
                let bad = fact.join(row.fact) != fact;
                Ok(bad.then(|| drift(leaf, Some(member), Cause::FactLost, &show_fact(&row.fact), &show_fact(&fact))))
            }
            Self::Head { leaf } => {
                let mut rows = Counts::default();
                let mut after: Option<Member> = None;
                let mut head = None;
                loop {
                    let page = engine.page_ledger(leaf, after.as_ref(), 1000).await?;
                    let at_page = page.head.unwrap_or_default();
                    if head.get_or_insert_with(|| at_page.clone()).revision != at_page.revision {
                        return Ok(None); // Changing: not to be compared by reading alone.
                    }
                    rows.add_all(&count(page.rows.iter().map(|(_, r)| &r.fact)));
                    after = page.rows.last().map(|(m, _)| m.clone()).or(after);
                    if page.end {
                        break;
                    }
                }
                let head = engine
                    .page_ledger(leaf, None, 1)
                    .await?
                    .head
                    .filter(|h| head.is_some_and(|first| first.revision == h.revision));
                let bad = head.filter(|h| h.counts != rows);
                Ok(bad.map(|h| {
                    drift(leaf, None, Cause::Count, &show(&h.counts), &show(&rows)).totals(Some(&h.counts), Some(&rows))
                }))
            }
            Self::LeafCounter { leaf, revision } => {
                let stored = engine.read_counters(&leaf.target).await?.row(&leaf.kind, leaf.shard).cloned();
                let head = engine.read_ledger(leaf, &[]).await?.head.unwrap_or_default();
                let before = stored.as_ref().map_or("no counter".to_owned(), |r| show(&r.counts));
                let drift = |cause| {
                    let shown = drift(leaf, None, cause, &before, &show(&head.counts));
                    Some(shown.totals(stored.as_ref().map(|r| &r.counts), Some(&head.counts)))
                };
                Ok(match &stored {
                    None => drift(Cause::Counter),
                    Some(row) if row.order < *revision => drift(Cause::Uncounted),
                    Some(row) if row.order < head.revision => None, // Under way.
                    Some(row) if *row != leaf_counter(&head) => drift(Cause::Counter),
                    Some(_) => None,
                })
            }
            Self::ExtraTime { leaf, at, member } => {
                let row = ledger_row(protocol, leaf, member).await?;
                let stored = time_row(protocol, leaf, *at, member).await?;
                let bad = stored.filter(|t| row.fact.choice.since != t.at || row.fact.counted() != t.choice);
                Ok(bad.map(|t| {
                    drift(leaf, Some(member), Cause::Listing, &format!("listed with choice {}", t.choice), &show_fact(&row.fact))
                }))
            }
            Self::MissingTime { leaf, member } => {
                let row = ledger_row(protocol, leaf, member).await?;
                if row.fact.counted() == 0 {
                    return Ok(None);
                }
                let at = row.fact.choice.since;
                let there = time_row(protocol, leaf, at, member).await?.is_some_and(|t| t.choice == row.fact.counted());
                Ok((!there).then(|| drift(leaf, Some(member), Cause::Listing, "not listed", &show_fact(&row.fact))))
            }
            Self::Ghost { shard } => {
                let root = shard.with_shard(Shard::ROOT);
                let page = engine.page_facts(&root, None, 1).await?;
                let stored = engine.read_counters(&shard.target).await?.row(&shard.kind, shard.shard).cloned();
                let bad = page.rows.is_empty() && page.head.is_none_or(|h| h.level().is_none());
                Ok(stored.filter(|_| bad).map(|r| {
                    let none = Counts::default();
                    drift(shard, None, Cause::Overcounted, &show(&r.counts), "no facts").totals(Some(&r.counts), Some(&none))
                }))
            }
            Self::Index { user, kind, target, version } => {
                let fact = fact_of(protocol, target, kind, &user.member()).await?;
                let row = engine
                    .read_index(user, kind, std::slice::from_ref(target))
                    .await?
                    .into_iter()
                    .next()
                    .flatten()
                    .unwrap_or_default();
                let due: schema::IndexRow = fact.choice.into();
                // The fact is written before its index row is, so a younger fact may be ahead of it.
                let bad = row != due && (row.version > due.version || row.version < *version || row.version == due.version);
                let root = ShardKey::root(target.clone(), kind.clone());
                let say = |r: &schema::IndexRow| format!("choice {} at {}", r.choice, r.version);
                Ok(bad.then(|| drift(&root, Some(&user.member()), Cause::Index, &say(&row), &say(&due))))
            }
            Self::IndexTime { user, kind, target } => {
                let row = engine
                    .read_index(user, kind, std::slice::from_ref(target))
                    .await?
                    .into_iter()
                    .next()
                    .flatten()
                    .unwrap_or_default();
                let before = (row.since.saturating_add(1), target.clone());
                let mut after = before.clone();
                let mut there = row.choice == 0;
                // Rows of one moment share a place in the list; walk them until the target's own.
                while !there {
                    let (rows, end) = engine.page_index_times(user, kind, Some(&after), 100).await?;
                    there = rows.iter().any(|r| r.at == row.since && r.target == *target);
                    let passed = rows.last().is_none_or(|r| r.at < row.since);
                    if end || passed {
                        break;
                    }
                    after = rows.last().map(|r| (r.at, r.target.clone())).unwrap_or(after);
                }
                let root = ShardKey::root(target.clone(), kind.clone());
                Ok((!there).then(|| drift(&root, Some(&user.member()), Cause::Index, "not in the user's list", "a held choice")))
            }
        }
    }
}

/// The fact of a member wherever it is stored: leaf and root joined where the target is large.
pub(crate) async fn fact_of(protocol: &Protocol, target: &TargetKey, kind: &KindName, member: &Member) -> StoreResult<Fact> {
    let root = ShardKey::root(target.clone(), kind.clone());
    let read = protocol.engine().read_facts(&root, std::slice::from_ref(member)).await?;
    let fact = first(read.facts);
    match read.head.and_then(|h| h.level()) {
        None => Ok(fact),
        Some(level) => {
            let leaf = root.with_shard(leaf_of(member, level));
            Ok(first(protocol.engine().read_facts(&leaf, std::slice::from_ref(member)).await?.facts).join(fact))
        }
    }
}

/// The time row (at, member) of a leaf, if it is there.
pub(crate) async fn time_row(protocol: &Protocol, leaf: &ShardKey, at: Micros, member: &Member) -> StoreResult<Option<TimeRow>> {
    // The list is ordered by (time, id), later first: begin at the row before in that order. No id
    // lies between an id and the same one with a space behind it, the smallest character allowed.
    let mut after = match Member::parse(&format!("{member} ")) {
        Ok(longer) => (at, longer),
        Err(_) => (at.saturating_add(1), member.clone()), // An id of the greatest length.
    };
    loop {
        let (rows, end) = protocol.engine().page_times(leaf, Some(&after), 16).await?;
        if let Some(found) = rows.iter().find(|r| r.at == at && r.member == *member) {
            return Ok(Some(found.clone()));
        }
        match rows.last() {
            Some(last) if !end && (last.at, &last.member) > (at, member) => after = (last.at, last.member.clone()),
            _ => return Ok(None),
        }
    }
}

/// A member's ledger row; the default where there is none.
pub(crate) async fn ledger_row(protocol: &Protocol, leaf: &ShardKey, member: &Member) -> StoreResult<LedgerRow> {
    let read = protocol.engine().read_ledger(leaf, std::slice::from_ref(member)).await?;
    Ok(read.rows.into_iter().next().flatten().unwrap_or_default())
}

pub(crate) fn first(facts: Vec<Option<Fact>>) -> Fact {
    facts.into_iter().next().flatten().unwrap_or_default()
}

fn drift(shard: &ShardKey, member: Option<&Member>, cause: Cause, before: &str, after: &str) -> Drift {
    Drift {
        target: shard.target.to_string(),
        kind: shard.kind.to_string(),
        shard: shard.shard.0,
        member: member.map(Member::to_string),
        cause,
        before: before.to_owned(),
        after: after.to_owned(),
        before_total: None,
        after_total: None,
        repaired: false,
    }
}

/// What an audit corrected, as drift.
pub(crate) fn corrected(leaf: &ShardKey, before: &Counts, after: &Counts) -> Drift {
    let drift = Drift { repaired: true, ..drift(leaf, None, Cause::Count, &show(before), &show(after)) };
    drift.totals(Some(before), Some(after))
}

/// `total (choice: n, …)`.
fn show(counts: &Counts) -> String {
    let each: Vec<String> = counts.iter().map(|(choice, n)| format!("{choice}: {n}")).collect();
    if each.is_empty() { "0".to_owned() } else { format!("{} ({})", counts.total(), each.join(", ")) }
}

fn show_fact(fact: &Fact) -> String {
    if *fact == Fact::default() { "no row".to_owned() } else { format!("choice {} at {}", fact.counted(), fact.newest()) }
}
