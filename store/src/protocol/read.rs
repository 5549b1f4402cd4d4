//! What readers are told (design, section 10): never a partial sum, never a guess.

use std::{collections::VecDeque, time::Duration};

use futures::future::{Either, join_all, select};
use schema::{
    Choice, Counts, Fact, FactKey, IndexRow, KindName, Level, Member, Micros, Shard, ShardKey, TargetKey, UserKey, leaf_of,
    leaves,
};

use super::{Protocol, build::contended, reconcile::count};
use crate::{
    StoreResult,
    engine::{TargetCounters, TimeRow},
};

/// How long a read may count on the spot before it answers that it cannot tell.
const ON_THE_SPOT: Duration = Duration::from_secs(1);
/// Rows that one page of a list may look at; a page may thus be short or empty before the end.
const MAX_SCANNED: usize = 10_000;

/// The count of one kind of a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KindCount {
    /// Members by choice; `None`: cannot be told now (a promotion without a counter is under way).
    pub counts: Option<Counts>,
    /// Newest version that was counted; 0: none.
    pub as_of: Micros,
    /// Whether the kind has any row for this target, counted or not.
    pub used: bool,
}

/// A member's own state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberState {
    /// The registers; default where nothing was ever written.
    pub fact: Fact,
    /// Proof that this very state is in the counter; `false`: not known yet.
    pub counted: bool,
}

/// A page of "who, newest first".
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberListing {
    /// Counted members.
    pub members: Vec<TimeRow>,
    /// Where the next page begins; `None`: the end. A page may be empty and still have a next.
    pub next: Option<(Micros, Member)>,
}

/// A page of a user's own facts, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserListing {
    /// Targets with the choice held for each.
    pub facts: Vec<(TargetKey, IndexRow)>,
    /// Where the next page begins; `None`: the end.
    pub next: Option<(Micros, TargetKey)>,
}

/// Time rows of one leaf, fetched as the merge asks for them.
struct LeafList {
    key: ShardKey,
    rows: VecDeque<TimeRow>,
    after: Option<(Micros, Member)>,
    end: bool,
}

impl Protocol {
    /// Counts of each of `kinds`, in order, from one read of the target's counters. A kind without
    /// a counter row but with facts is reconciled on the spot.
    pub async fn counts(&self, target: &TargetKey, kinds: &[KindName]) -> StoreResult<Vec<KindCount>> {
        let counters = self.engine.read_counters(target).await?;
        let mut out = Vec::with_capacity(kinds.len());
        for kind in kinds {
            let root = ShardKey::root(target.clone(), kind.clone());
            let count = match sum(&counters, kind) {
                Some(count) => count,
                None => self.count_on_the_spot(&root).await?,
            };
            out.push(count);
        }
        Ok(out)
    }

    async fn count_on_the_spot(&self, root: &ShardKey) -> StoreResult<KindCount> {
        let page = self.engine.page_facts(root, None, 1).await?;
        if page.rows.is_empty() && page.head.is_none_or(|h| h.level().is_none()) {
            return Ok(KindCount { counts: Some(Counts::default()), as_of: 0, used: false });
        }
        let work = Box::pin(async {
            let missing = match self.engine.read_counters(&root.target).await?.shown(&root.kind) {
                Some(level) => leaves(level).collect(),
                None => vec![Shard::ROOT],
            };
            for shard in missing {
                self.reconcile(&root.with_shard(shard), &[]).await?;
            }
            self.engine.read_counters(&root.target).await
        });
        let unknown = KindCount { counts: None, as_of: 0, used: true };
        Ok(match select(work, self.clock.sleep(ON_THE_SPOT)).await {
            Either::Left((counters, _)) => sum(&counters?, &root.kind).unwrap_or(unknown),
            Either::Right(_) => unknown,
        })
    }

    /// The count of one kind as a member must see it who has just been answered: their fact is in
    /// it, whether or not it has been counted yet. Writes nothing unless a promotion is under way.
    pub async fn count_for(&self, key: &FactKey) -> StoreResult<KindCount> {
        let root = key.shard(Shard::ROOT);
        for attempt in 0..self.settings.attempts {
            self.pause_before(attempt).await;
            let (head, facts) = self.read_small(&root).await?;
            let Some(level) = head.level() else {
                if facts.len() > self.settings.small_limit {
                    self.reconcile(&root, &[]).await?;
                    continue;
                }
                let as_of = facts.iter().map(|(_, f)| f.newest()).fold(0, Micros::max);
                let counts = count(facts.iter().map(|(_, f)| f));
                return Ok(KindCount { counts: Some(counts), as_of, used: !facts.is_empty() });
            };
            let leaf = root.with_shard(leaf_of(&key.member, level));
            let members = std::slice::from_ref(&key.member);
            let (counters, ledger, fact) = futures::join!(
                self.engine.read_counters(&key.target),
                self.engine.read_ledger(&leaf, members),
                self.state_at(&root, level, &key.member)
            );
            let (mut counters, ledger, fact) = (counters?, ledger?, fact?);
            let shown = counters.shown(&key.kind).is_some();
            let Some(head) = ledger.head.clone().filter(|h| h.complete && shown && !self.is_torn(&ledger)) else {
                self.reconcile(if shown { &leaf } else { &root }, members).await?;
                continue;
            };
            let row = ledger.rows.first().copied().flatten().unwrap_or_default();
            let mut count = super::reconcile::leaf_counter(&head);
            count.counts.add(row.fact.counted(), -1);
            count.counts.add(row.fact.join(fact).counted(), 1);
            count.as_of = count.as_of.max(fact.newest());
            counters.rows.retain(|(kind, shard, _)| *kind != key.kind || *shard != leaf.shard);
            counters.rows.push((key.kind.clone(), leaf.shard, count));
            match sum(&counters, &key.kind) {
                Some(count) => return Ok(count),
                None => return self.count_on_the_spot(&root).await,
            }
        }
        Err(contended(&root))
    }

    /// A member's registers where the target is large: its leaf's, and the root's if one is left there.
    async fn state_at(&self, root: &ShardKey, level: Level, member: &Member) -> StoreResult<Fact> {
        let members = std::slice::from_ref(member);
        let leaf = root.with_shard(leaf_of(member, level));
        let (at_leaf, at_root) = futures::join!(self.engine.read_facts(&leaf, members), self.engine.read_facts(root, members));
        let first = |facts: Vec<Option<Fact>>| facts.into_iter().next().flatten().unwrap_or_default();
        Ok(first(at_leaf?.facts).join(first(at_root?.facts)))
    }

    /// A member's own state, and whether it is proven to be counted.
    pub async fn state(&self, key: &FactKey) -> StoreResult<MemberState> {
        let root = key.shard(Shard::ROOT);
        let (head, page) = self.read_small(&root).await?;
        if let Some(level) = head.level() {
            let leaf = root.with_shard(leaf_of(&key.member, level));
            let members = std::slice::from_ref(&key.member);
            let (fact, ledger, counters) = futures::join!(
                self.state_at(&root, level, &key.member),
                self.engine.read_ledger(&leaf, members),
                self.engine.read_counters(&key.target)
            );
            let (fact, ledger, counters) = (fact?, ledger?, counters?);
            // In the ledger is not yet in the number: its counter may still have to be written, or to be shown.
            let shown = counters.row(&key.kind, leaf.shard).filter(|_| counters.shown(&key.kind).is_some());
            let counted =
                ledger.rows.first().copied().flatten().is_some_and(|row| {
                    row.fact.join(fact) == row.fact && shown.is_some_and(|counter| counter.order >= row.revision)
                });
            return Ok(MemberState { fact, counted: counted && fact != Fact::default() });
        }
        let found = page.iter().find(|(m, _)| *m == key.member).map(|(_, f)| *f);
        if page.len() > self.settings.small_limit {
            // About to be promoted: the member may lie behind the page that was read.
            let read = self.engine.read_facts(&root, std::slice::from_ref(&key.member)).await?;
            return Ok(MemberState { fact: read.facts.into_iter().next().flatten().unwrap_or_default(), counted: false });
        }
        let Some(fact) = found else { return Ok(MemberState::default()) };
        let stored = self.engine.read_counters(&key.target).await?;
        let due = self.small_counter(head, &page);
        let counted = stored.row(&key.kind, Shard::ROOT).is_some_and(|row| (row.order, row.rank) >= (due.order, due.rank));
        Ok(MemberState { fact, counted })
    }

    /// Counted members of a target, newest first (larger id first at one time), behind `after`.
    pub async fn list(
        &self,
        root: &ShardKey,
        choice: Option<Choice>,
        after: Option<(Micros, Member)>,
        limit: usize,
    ) -> StoreResult<MemberListing> {
        for attempt in 0..self.settings.attempts {
            self.pause_before(attempt).await;
            let (head, facts) = self.read_small(root).await?;
            if head.level().is_none() && facts.len() <= self.settings.small_limit {
                return Ok(list_small(&facts, choice, after.as_ref(), limit));
            }
            match self.engine.read_counters(&root.target).await?.shown(&root.kind) {
                Some(level) => return self.list_large(root, level, choice, after, limit).await,
                // The leaves are not complete yet: finish the promotion, then list from them.
                None => self.reconcile(root, &[]).await?,
            };
        }
        Err(contended(root))
    }

    async fn list_large(
        &self,
        root: &ShardKey,
        level: Level,
        choice: Option<Choice>,
        after: Option<(Micros, Member)>,
        limit: usize,
    ) -> StoreResult<MemberListing> {
        let mut lists: Vec<LeafList> = leaves(level)
            .map(|leaf| LeafList { key: root.with_shard(leaf), rows: VecDeque::new(), after: after.clone(), end: false })
            .collect();
        let page = limit / lists.len() * 2 + 4;
        let mut out = MemberListing::default();
        let mut scanned = 0;
        let mut last = after;
        loop {
            let refills = lists.iter_mut().filter(|l| l.rows.is_empty() && !l.end);
            for refilled in join_all(refills.map(|list| self.refill(list, page))).await {
                refilled?;
            }
            let newest = lists.iter_mut().filter(|l| !l.rows.is_empty()).max_by(|a, b| front(a).cmp(&front(b)));
            let Some(row) = newest.and_then(|list| list.rows.pop_front()) else { return Ok(out) };
            if out.members.len() == limit || scanned == MAX_SCANNED {
                out.next = last;
                return Ok(out);
            }
            scanned += 1;
            last = Some((row.at, row.member.clone()));
            if choice.is_none_or(|c| c == row.choice) {
                out.members.push(row);
            }
        }
    }

    async fn refill(&self, list: &mut LeafList, page: usize) -> StoreResult<()> {
        let (rows, end) = self.engine.page_times(&list.key, list.after.as_ref(), page).await?;
        list.after = rows.last().map(|r| (r.at, r.member.clone())).or(list.after.take());
        list.end = end;
        list.rows.extend(rows);
        Ok(())
    }

    /// Choices that one user holds for each of `targets` (at most 200), in order.
    pub async fn user_states(
        &self,
        user: &UserKey,
        kind: &KindName,
        targets: &[TargetKey],
    ) -> StoreResult<Vec<Option<IndexRow>>> {
        self.engine.read_index(user, kind, targets).await
    }

    /// A user's own facts of one kind, newest first, behind `after`.
    pub async fn user_list(
        &self,
        user: &UserKey,
        kind: &KindName,
        after: Option<(Micros, TargetKey)>,
        limit: usize,
    ) -> StoreResult<UserListing> {
        let mut out = UserListing::default();
        let mut after = after;
        let mut scanned = 0;
        while scanned < MAX_SCANNED {
            // One more than wanted, so that a full last page knows that it is the last.
            let (rows, end) =
                self.engine.page_index_times(user, kind, after.as_ref(), (limit - out.facts.len() + 1).min(200)).await?;
            scanned += rows.len().max(1);
            let targets: Vec<TargetKey> = rows.iter().map(|r| r.target.clone()).collect();
            let states = self.engine.read_index(user, kind, &targets).await?;
            for (row, state) in rows.into_iter().zip(states) {
                // A time row is valid only where the fact still has that `since` and a choice.
                let valid = state.filter(|s| s.since == row.at && s.choice != 0);
                if let Some(state) = valid {
                    if out.facts.len() == limit {
                        out.next = after;
                        return Ok(out);
                    }
                    out.facts.push((row.target.clone(), state));
                }
                after = Some((row.at, row.target));
            }
            if end {
                return Ok(out);
            }
        }
        out.next = after;
        Ok(out)
    }
}

fn front(list: &LeafList) -> Option<(Micros, &Member)> {
    list.rows.front().map(|r| (r.at, &r.member))
}

/// The sum that readers see; `None` where a row is missing, so that no sum is partial.
fn sum(counters: &TargetCounters, kind: &KindName) -> Option<KindCount> {
    let rows = match counters.shown(kind) {
        None => vec![counters.row(kind, Shard::ROOT)?],
        Some(level) => leaves(level).map(|leaf| counters.row(kind, leaf)).collect::<Option<Vec<_>>>()?,
    };
    let mut counts = Counts::default();
    let mut as_of = 0;
    for row in rows {
        counts.add_all(&row.counts);
        as_of = as_of.max(row.as_of);
    }
    Some(KindCount { counts: Some(counts), as_of, used: true })
}

fn list_small(facts: &[(Member, Fact)], choice: Option<Choice>, after: Option<&(Micros, Member)>, limit: usize) -> MemberListing {
    let mut rows: Vec<TimeRow> = facts
        .iter()
        .map(|(member, f)| TimeRow { at: f.choice.since, member: member.clone(), choice: f.counted() })
        .filter(|r| r.choice != 0 && choice.is_none_or(|c| c == r.choice))
        .filter(|r| after.is_none_or(|(at, member)| (r.at, &r.member) < (*at, member)))
        .collect();
    rows.sort_unstable_by(|a, b| (b.at, &b.member).cmp(&(a.at, &a.member)));
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().map(|r| (r.at, r.member.clone())) } else { None };
    MemberListing { members: rows, next }
}
