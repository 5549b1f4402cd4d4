//! Facts in key order, page by page: what an export is made of. Reads only.

use std::collections::VecDeque;

use schema::{Fact, FactKey, KindName, Member, RootHead, ShardKey, TargetKey, leaves};
use serde::{Deserialize, Serialize};
use store::{Protocol, StoreResult, engine::Slice};

/// Most rows and partitions that one page looks at; it may thus be short, or empty, before the end.
const MAX_LOOKED_AT: usize = 20_000;
/// Rows that are fetched at a time from each partition.
const FETCH: usize = 128;

/// What is exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportFilter {
    /// Whose targets.
    pub namespace: String,
    /// One kind; `None`: all.
    pub kind: Option<KindName>,
}

/// Where the next page begins. Good for as long as the store lives, whatever is written meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExportPlace {
    /// The scan's place before the target that is under way; `None`: the beginning.
    scan: Option<Vec<u8>>,
    /// Member behind whom to go on in the partition found there.
    after: Option<(TargetKey, KindName, Member)>,
}

/// A page of facts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportPage {
    /// Ordered by the target's place in the key space, then kind, then member.
    pub facts: Vec<(FactKey, Fact)>,
    /// Where to go on; `None`: the end.
    pub next: Option<ExportPlace>,
}

/// A page of at least one and at most `limit` facts of `filter` from `place` on, unless much has to
/// be skipped: then it may be empty and still have a next. Each fact is as of when it is read.
pub async fn export_page(
    protocol: &Protocol,
    filter: &ExportFilter,
    place: ExportPlace,
    limit: usize,
) -> StoreResult<ExportPage> {
    let mut page = ExportPage::default();
    let ExportPlace { mut scan, mut after } = place;
    let mut left = MAX_LOOKED_AT;
    loop {
        let found = protocol.engine().scan_facts(Slice::ALL, scan.as_deref(), 1).await?;
        let Some(key) = found.items.into_iter().next() else { return Ok(page) };
        let wanted = key.shard.is_root()
            && key.target.namespace() == filter.namespace
            && filter.kind.as_ref().is_none_or(|kind| *kind == key.kind);
        left = left.saturating_sub(1);
        if wanted {
            // Another partition than the one that was under way: that one cannot vanish, so this is
            // new and before it.
            let behind = after.take_if(|(target, kind, _)| *target == key.target && *kind == key.kind).map(|(_, _, m)| m);
            let mut merge = Merge::open(protocol, key, behind).await?;
            loop {
                if page.facts.len() >= limit || left == 0 {
                    let after = merge.last.clone().map(|m| (merge.root.target.clone(), merge.root.kind.clone(), m));
                    page.next = Some(ExportPlace { scan, after });
                    return Ok(page);
                }
                let Some((member, fact)) = merge.next(protocol).await? else { break };
                left = left.saturating_sub(1);
                page.facts.push((merge.root.fact(&member), fact));
            }
        }
        match found.next {
            None => return Ok(page),
            next if left == 0 => {
                page.next = Some(ExportPlace { scan: next, after });
                return Ok(page);
            }
            next => scan = next,
        }
    }
}

/// The facts of one (target, kind) by member: its root and, where it is large, its leaves.
struct Merge {
    root: ShardKey,
    parts: Vec<Part>,
    last: Option<Member>,
}

struct Part {
    key: ShardKey,
    rows: VecDeque<(Member, Fact)>,
    after: Option<Member>,
    end: bool,
}

impl Part {
    async fn fill(&mut self, protocol: &Protocol) -> StoreResult<()> {
        if self.rows.is_empty() && !self.end {
            self.fetch(protocol).await?;
        }
        Ok(())
    }

    /// Adds rows; answers the partition's head.
    async fn fetch(&mut self, protocol: &Protocol) -> StoreResult<Option<RootHead>> {
        let page = protocol.engine().page_facts(&self.key, self.after.as_ref(), FETCH).await?;
        self.after = page.rows.last().map(|(m, _)| m.clone()).or(self.after.take());
        self.end = page.end;
        self.rows.extend(page.rows);
        Ok(page.head)
    }
}

impl Merge {
    async fn open(protocol: &Protocol, root: ShardKey, after: Option<Member>) -> StoreResult<Self> {
        let mut first = Part { key: root.clone(), rows: VecDeque::new(), after: after.clone(), end: false };
        let level = first.fetch(protocol).await?.and_then(|head| head.level());
        let leaves = level.into_iter().flat_map(leaves).map(|leaf| root.with_shard(leaf));
        let leaves = leaves.map(|key| Part { key, rows: VecDeque::new(), after: after.clone(), end: false });
        let parts = std::iter::once(first).chain(leaves).collect();
        Ok(Self { root, parts, last: after })
    }

    /// The next member with all that is stored of it.
    async fn next(&mut self, protocol: &Protocol) -> StoreResult<Option<(Member, Fact)>> {
        for part in &mut self.parts {
            part.fill(protocol).await?;
        }
        let fronts = self.parts.iter().filter_map(|part| part.rows.front());
        let Some(member) = fronts.map(|(member, _)| member).min().cloned() else { return Ok(None) };
        let mut fact = Fact::default();
        for part in &mut self.parts {
            // What a large target's root holds is an older copy, or was written there late.
            if let Some((_, copy)) = part.rows.pop_front_if(|(m, _)| *m == member) {
                fact = fact.join(copy);
            }
        }
        self.last = Some(member.clone());
        Ok(Some((member, fact)))
    }
}
