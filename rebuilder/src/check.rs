//! Checks of one partition or target by itself, for runs that cover only some: streams facts and
//! ledger in key order side by side and names what looks wrong. Bounded memory, whatever its size.

use schema::{Fact, LedgerRow, Member, RootHead, Shard, ShardKey, TargetKey, leaf_of};
use store::{
    Protocol, StoreResult,
    engine::MAX_COMMIT_MEMBERS,
    protocol::{count, leaf_counter},
};

use crate::{
    index::missing_rows,
    suspect::{Suspect, first},
};

/// Rows that are read at a time.
const PAGE: usize = 500;
/// Most suspicions that one partition hands on at a time.
const MAX_SUSPECTS: usize = 20_000;

/// What a check of one partition saw.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Fact rows.
    pub facts: u64,
    /// Whether more looked wrong than is handed on at a time: check again after the repair.
    pub truncated: bool,
    /// Whether the leaf kept changing under the check.
    pub busy: bool,
    /// What looked wrong.
    pub suspects: Vec<Suspect>,
}

impl Checked {
    fn suspect(&mut self, suspect: Suspect) {
        if self.suspects.len() < MAX_SUSPECTS {
            self.suspects.push(suspect);
        } else {
            self.truncated = true;
        }
    }

    async fn suspect_index(&mut self, protocol: &Protocol, shard: &ShardKey, facts: &[(Member, Fact)]) -> StoreResult<()> {
        let by_user = protocol.settings().kinds.get(shard.kind.as_str()).is_some_and(|k| k.by_user);
        let missing = if by_user { missing_rows(protocol, shard, facts).await? } else { Vec::new() };
        missing.into_iter().for_each(|s| self.suspect(s));
        Ok(())
    }
}

/// The counters of one (target, kind): of a small target's page, or whether the leaves are shown and,
/// where `leaves` says so, of each leaf's head.
pub(crate) async fn check_counters(protocol: &Protocol, root: &ShardKey, leaves: bool) -> StoreResult<Vec<Suspect>> {
    // The counters first: facts only grow, so a counter read first is never rightly ahead of them.
    let counters = protocol.engine().read_counters(&root.target).await?;
    let (head, facts) = protocol.read_small(root).await?;
    let Some(level) = head.level() else {
        if facts.len() > protocol.settings().small_limit {
            return Ok(vec![Suspect::Promotion { root: root.clone() }]);
        }
        let due = protocol.small_counter(head, &facts);
        let stored = counters.row(&root.kind, Shard::ROOT);
        // Without a single row the counter is a ghost's ([`ghosts`]).
        let nothing = facts.is_empty() && (stored.is_none() || head == RootHead::default());
        let wrong = stored != Some(&due) && !nothing;
        return Ok(if wrong { vec![Suspect::Small { root: root.clone(), due: (due.order, due.rank) }] } else { Vec::new() });
    };
    let mut out = Vec::new();
    let shown = counters.shown(&root.kind);
    if shown.is_none() || shown.is_some_and(|l| schema::leaves(l).any(|leaf| counters.row(&root.kind, leaf).is_none())) {
        out.push(Suspect::Promotion { root: root.clone() });
    }
    for leaf in schema::leaves(level).filter(|_| leaves).map(|leaf| root.with_shard(leaf)) {
        let head = protocol.engine().page_ledger(&leaf, None, 1).await?.head.unwrap_or_default();
        if head.complete && counters.row(&leaf.kind, leaf.shard) != Some(&leaf_counter(&head)) {
            out.push(Suspect::LeafCounter { leaf, revision: head.revision });
        }
    }
    Ok(out)
}

/// Counter rows of (target, kind)s of `target` without any fact.
pub(crate) async fn ghosts(protocol: &Protocol, target: &TargetKey) -> StoreResult<Vec<Suspect>> {
    let engine = protocol.engine();
    let mut out = Vec::new();
    for (kind, shard, _) in engine.read_counters(target).await?.rows {
        let root = ShardKey::root(target.clone(), kind);
        let facts = engine.page_facts(&root, None, 1).await?;
        if facts.rows.is_empty() && facts.head.is_none() {
            out.push(Suspect::Ghost { shard: root.with_shard(shard) });
        }
    }
    Ok(out)
}

/// Checks the counters of a (target, kind), the index rows of a small one, and that the root of a
/// large one has been moved on.
pub(crate) async fn check_root(protocol: &Protocol, root: &ShardKey) -> StoreResult<Checked> {
    let mut out = Checked::default();
    check_counters(protocol, root, false).await?.into_iter().for_each(|s| out.suspect(s));
    let (head, facts) = protocol.read_small(root).await?;
    let Some(level) = head.level() else {
        out.facts = facts.len() as u64;
        out.suspect_index(protocol, root, &facts).await?;
        return Ok(out);
    };
    let mut after: Option<Member> = None;
    loop {
        let page = protocol.engine().page_facts(root, after.as_ref(), PAGE).await?;
        for (member, fact) in &page.rows {
            let leaf = root.with_shard(leaf_of(member, level));
            let there = first(protocol.engine().read_facts(&leaf, std::slice::from_ref(member)).await?.facts);
            if there.join(*fact) != there {
                out.suspect(Suspect::LeftInRoot { root: root.clone(), member: member.clone(), fact: *fact });
            }
        }
        if page.end {
            return Ok(out);
        }
        after = page.rows.last().map(|(m, _)| m.clone()).or(after);
    }
}

/// Names what is wrong with the list by time of a leaf, row by row.
pub(crate) async fn name_times(protocol: &Protocol, leaf: &ShardKey) -> StoreResult<Vec<Suspect>> {
    let mut out = Checked::default();
    check_times(protocol, leaf, &mut out).await?;
    name_missing_times(protocol, leaf, &mut out).await?;
    Ok(out.suspects)
}

/// Checks a leaf: every fact against its ledger row, the head against the rows, the list by time
/// against the rows, the counter against the head.
pub(crate) async fn check_leaf(protocol: &Protocol, leaf: &ShardKey) -> StoreResult<Checked> {
    let mut out = Checked::default();
    let engine = protocol.engine();
    let stored = engine.read_counters(&leaf.target).await?.row(&leaf.kind, leaf.shard).cloned();
    let first_head = engine.page_ledger(leaf, None, 1).await?.head.unwrap_or_default();
    if !first_head.complete {
        out.suspect(Suspect::NoLedger { leaf: leaf.clone() });
    }
    if first_head.complete && stored.as_ref() != Some(&leaf_counter(&first_head)) {
        out.suspect(Suspect::LeafCounter { leaf: leaf.clone(), revision: first_head.revision });
    }
    let mut rows = schema::Counts::default();
    let mut ledger = LedgerStream::new(leaf);
    let mut counted_rows: u64 = 0;
    let mut after: Option<Member> = None;
    loop {
        let page = engine.page_facts(leaf, after.as_ref(), PAGE).await?;
        out.facts += page.rows.len() as u64;
        out.suspect_index(protocol, leaf, &page.rows).await?;
        for (member, fact) in &page.rows {
            // Ledger rows before this member have no fact beside them.
            while let Some((alone, row)) = ledger.next_if(protocol, |m| m < member).await? {
                book(&mut rows, &mut counted_rows, &row);
                out.suspect(Suspect::Ahead { leaf: leaf.clone(), member: alone });
            }
            let row = ledger.next_if(protocol, |m| m == member).await?.map(|(_, row)| row).unwrap_or_default();
            book(&mut rows, &mut counted_rows, &row);
            if first_head.complete && row.fact.join(*fact) != row.fact {
                out.suspect(Suspect::Behind { leaf: leaf.clone(), member: member.clone(), fact: *fact });
            }
            if fact.join(row.fact) != *fact {
                out.suspect(Suspect::Ahead { leaf: leaf.clone(), member: member.clone() });
            }
        }
        if page.end {
            break;
        }
        after = page.rows.last().map(|(m, _)| m.clone()).or(after);
    }
    while let Some((alone, row)) = ledger.next_if(protocol, |_| true).await? {
        book(&mut rows, &mut counted_rows, &row);
        out.suspect(Suspect::Ahead { leaf: leaf.clone(), member: alone });
    }
    let listed = check_times(protocol, leaf, &mut out).await?;
    let last_head = engine.page_ledger(leaf, None, 1).await?.head.unwrap_or_default();
    if last_head.revision != first_head.revision {
        out.busy = true;
        return Ok(out);
    }
    if first_head.counts != rows {
        out.suspect(Suspect::Head { leaf: leaf.clone() });
    }
    if listed != counted_rows {
        name_missing_times(protocol, leaf, &mut out).await?;
    }
    Ok(out)
}

/// Walks the list by time; returns how many of its rows the ledger bears out.
async fn check_times(protocol: &Protocol, leaf: &ShardKey, out: &mut Checked) -> StoreResult<u64> {
    let mut valid = 0;
    let mut after = None;
    loop {
        let (times, end) = protocol.engine().page_times(leaf, after.as_ref(), PAGE).await?;
        for chunk in times.chunks(MAX_COMMIT_MEMBERS) {
            let members: Vec<Member> = chunk.iter().map(|t| t.member.clone()).collect();
            let rows = protocol.engine().read_ledger(leaf, &members).await?.rows;
            for (time, row) in chunk.iter().zip(rows) {
                let fact = row.unwrap_or_default().fact;
                if fact.counted() == time.choice && fact.choice.since == time.at {
                    valid += 1;
                } else {
                    out.suspect(Suspect::ExtraTime { leaf: leaf.clone(), at: time.at, member: time.member.clone() });
                }
            }
        }
        after = times.last().map(|t| (t.at, t.member.clone())).or(after);
        if end {
            return Ok(valid);
        }
    }
}

/// The slow way, taken only where the numbers of listed and counted rows differ.
async fn name_missing_times(protocol: &Protocol, leaf: &ShardKey, out: &mut Checked) -> StoreResult<()> {
    let mut ledger = LedgerStream::new(leaf);
    while let Some((member, row)) = ledger.next_if(protocol, |_| true).await? {
        if row.fact.counted() != 0 {
            let stored = crate::suspect::time_row(protocol, leaf, row.fact.choice.since, &member).await?;
            if stored.is_none_or(|t| t.choice != row.fact.counted()) {
                out.suspect(Suspect::MissingTime { leaf: leaf.clone(), member });
            }
        }
    }
    Ok(())
}

fn book(rows: &mut schema::Counts, counted_rows: &mut u64, row: &LedgerRow) {
    rows.add_all(&count([&row.fact]));
    *counted_rows += u64::from(row.fact.counted() != 0);
}

/// Ledger rows of a leaf in key order, a page at a time.
struct LedgerStream<'a> {
    leaf: &'a ShardKey,
    page: std::collections::VecDeque<(Member, LedgerRow)>,
    after: Option<Member>,
    end: bool,
}

impl<'a> LedgerStream<'a> {
    fn new(leaf: &'a ShardKey) -> Self {
        Self { leaf, page: std::collections::VecDeque::new(), after: None, end: false }
    }

    /// The next row if `wanted` says so of its member.
    async fn next_if(
        &mut self,
        protocol: &Protocol,
        wanted: impl Fn(&Member) -> bool,
    ) -> StoreResult<Option<(Member, LedgerRow)>> {
        if self.page.is_empty() && !self.end {
            let page = protocol.engine().page_ledger(self.leaf, self.after.as_ref(), PAGE).await?;
            self.after = page.rows.last().map(|(m, _)| m.clone()).or(self.after.take());
            self.end = page.end;
            self.page = page.rows.into();
        }
        let is_wanted = self.page.front().is_some_and(|(m, _)| wanted(m));
        Ok(if is_wanted { self.page.pop_front() } else { None })
    }
}
