//! What must hold after every scenario, once everything is drained:
//!
//! - O1 every counter is the number of live facts, by choice, for every target;
//! - O3 member's state, list and counter agree;
//! - O4 what was answered is there, and nothing that nobody asked for;
//! - O5 nothing is left to do, and no dead letters but those expected;
//! - O6 nothing passes by clamping: the stored rows themselves are right.
//!
//! O2, no negative number at any moment, needs an eye that looks meanwhile: [`super::watch`].

use std::collections::{BTreeMap, BTreeSet};

use rebuilder::{Progress, Rebuilder, RebuilderSettings, Scope};
use schema::{Counts, Fact, FactKey, Member, Micros, Shard, ShardKey, UserKey, leaves};
use store::{
    Protocol,
    engine::Slice,
    protocol::{count, leaf_counter},
};

use super::book::Book;

/// A page that no power of two divides.
const PAGE: usize = 7;

/// All facts, by root; root and leaves joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<ShardKey, BTreeMap<Member, Fact>>);

impl Facts {
    /// Reads all of them.
    ///
    /// # Panics
    /// Where the store does not answer.
    pub async fn read(protocol: &Protocol) -> Self {
        let mut all = Self::default();
        let mut from = None;
        loop {
            let page = protocol.engine().scan_facts(Slice::ALL, from.as_deref(), 100).await.expect("a scan");
            for shard in page.items {
                let rows = all.0.entry(shard.with_shard(Shard::ROOT)).or_default();
                let mut after: Option<Member> = None;
                loop {
                    let part = protocol.engine().page_facts(&shard, after.as_ref(), 500).await.expect("facts");
                    after = part.rows.last().map(|(m, _)| m.clone());
                    for (member, fact) in part.rows {
                        let joined = rows.entry(member).or_default();
                        *joined = joined.join(fact);
                    }
                    if part.end {
                        break;
                    }
                }
            }
            match page.next {
                Some(next) => from = Some(next),
                None => return all,
            }
        }
    }

    /// One fact; default where there is none.
    pub fn fact(&self, key: &FactKey) -> Fact {
        let rows = self.0.get(&key.shard(Shard::ROOT));
        rows.and_then(|rows| rows.get(&key.member)).copied().unwrap_or_default()
    }

    /// What the facts of a (target, kind) count.
    pub fn counts(&self, root: &ShardKey) -> Counts {
        self.0.get(root).map_or_else(Counts::default, |rows| count(rows.values()))
    }

    /// Fact rows of a (target, kind), withdrawn ones included.
    pub fn rows(&self, root: &ShardKey) -> usize {
        self.0.get(root).map_or(0, BTreeMap::len)
    }

    /// Members that count, in no particular order.
    pub fn live(&self, root: &ShardKey) -> BTreeSet<Member> {
        let rows = self.0.get(root).into_iter().flatten();
        rows.filter(|(_, fact)| fact.counted() != 0).map(|(member, _)| member.clone()).collect()
    }

    fn newest(&self) -> Micros {
        self.0.values().flat_map(BTreeMap::values).map(Fact::newest).fold(0, Micros::max)
    }
}

/// Checks O1 and O3 to O6 on a drained store; returns its facts, for what the scenario itself expects.
///
/// # Panics
/// Where one of them does not hold.
pub async fn check(protocol: &Protocol, book: &Book, dead_letters: usize) -> Facts {
    let facts = Facts::read(protocol).await;
    for (root, rows) in &facts.0 {
        check_counter(protocol, root, rows).await;
        check_list(protocol, root, rows).await;
        check_states(protocol, root, rows).await;
    }
    check_ghosts(protocol, &facts).await;
    book.check(|key| facts.fact(key));
    check_rest(protocol, &facts, dead_letters).await;
    facts
}

/// O1 by what readers are told, and O6 by what is stored.
async fn check_counter(protocol: &Protocol, root: &ShardKey, rows: &BTreeMap<Member, Fact>) {
    let due = count(rows.values());
    let told = protocol.counts(&root.target, std::slice::from_ref(&root.kind)).await.expect("counts");
    assert_eq!(told[0].counts.as_ref(), Some(&due), "O1: {root:?}");
    let stored = protocol.engine().read_counters(&root.target).await.expect("counters");
    let parts: Vec<Shard> = stored.shown(&root.kind).map_or_else(|| vec![Shard::ROOT], |level| leaves(level).collect());
    let mut sum = Counts::default();
    for shard in parts {
        let Some(row) = stored.row(&root.kind, shard) else {
            assert!(rows.is_empty(), "O6: {root:?} has no counter row for shard {shard}");
            continue;
        };
        assert!(!row.counts.any_negative(), "O6: {root:?} shard {shard} is stored as {row:?}");
        sum.add_all(&row.counts);
        if !shard.is_root() {
            let page = protocol.engine().page_ledger(&root.with_shard(shard), None, 1).await.expect("a ledger");
            let head = page.head.expect("a shown leaf has a ledger");
            assert_eq!(*row, leaf_counter(&head), "O6: {root:?} shard {shard}: counter and ledger");
        }
    }
    assert_eq!(sum, due, "O6: {root:?}: what is stored");
}

/// O3: the list, page by page, is the counted members, each once.
async fn check_list(protocol: &Protocol, root: &ShardKey, rows: &BTreeMap<Member, Fact>) {
    let page = if rows.len() > 500 { 97 } else { PAGE };
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let part = protocol.list(root, None, after, page).await.expect("a list");
        listed.extend(part.members.into_iter().map(|row| (row.at, row.member, row.choice)));
        match part.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let mut due: Vec<_> = rows.iter().filter(|(_, f)| f.counted() != 0).collect();
    due.sort_unstable_by(|a, b| (b.1.choice.since, b.0).cmp(&(a.1.choice.since, a.0)));
    let due: Vec<_> = due.into_iter().map(|(m, f)| (f.choice.since, m.clone(), f.counted())).collect();
    assert_eq!(listed, due, "O3: the list of {root:?}");
}

/// O3: each member's own state is their fact and is counted, and so says their own list.
async fn check_states(protocol: &Protocol, root: &ShardKey, rows: &BTreeMap<Member, Fact>) {
    let by_user = protocol.settings().kinds.get(root.kind.as_str()).is_some_and(|k| k.by_user);
    for (member, fact) in rows {
        let state = protocol.state(&root.fact(member)).await.expect("a state");
        assert_eq!((state.fact, state.counted), (*fact, true), "O3: {member} of {root:?}");
        if by_user {
            let user = UserKey::of(&root.target, member);
            let own = protocol.user_states(&user, &root.kind, std::slice::from_ref(&root.target)).await.expect("own states");
            let choice = own[0].map_or((0, 0), |row| (row.version, row.choice));
            assert_eq!(choice, (fact.choice.version, fact.choice.choice), "O3: {member}'s own list, {root:?}");
        }
    }
}

/// O1 the other way round: no counter stands without facts.
async fn check_ghosts(protocol: &Protocol, facts: &Facts) {
    let mut from = None;
    loop {
        let page = protocol.engine().scan_counters(Slice::ALL, from.as_deref(), 100).await.expect("a scan");
        for target in page.items {
            for (kind, shard, row) in protocol.engine().read_counters(&target).await.expect("counters").rows {
                let root = ShardKey::root(target.clone(), kind);
                assert!(facts.0.contains_key(&root), "O1: {root:?} shard {shard} is counted without facts: {row:?}");
            }
        }
        match page.next {
            Some(next) => from = Some(next),
            None => return,
        }
    }
}

/// O5: everything journalled is swept, nothing is put aside; and `verify`, which shares no code with
/// the checks above, finds nothing.
async fn check_rest(protocol: &Protocol, facts: &Facts, dead_letters: usize) {
    let last = protocol.settings().slot_of(facts.newest());
    for lane in protocol.engine().lanes().await.expect("lanes") {
        assert!(lane.retired || lane.swept_through >= last, "O5: {lane:?} is not swept through {last}");
    }
    let dead = protocol.engine().list_meta("dead/", 1000).await.expect("dead letters");
    assert_eq!(dead.len(), dead_letters, "O5: dead letters {dead:?}");
    let quick = RebuilderSettings { slices: 2, looks: 2, settle: std::time::Duration::from_millis(1), ..Default::default() };
    let report = Rebuilder::new(protocol.clone(), quick).verify(Scope::All, &Progress::default()).await.expect("verify");
    assert!(report.clean() && report.busy_leaves == 0, "O5: verify says {report:?}");
}
