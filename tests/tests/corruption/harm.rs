//! Each way in which a row of a derived table can be wrong, put there through the engine's own traits.

use rebuilder::Cause;
use schema::{CounterRow, Fact, IndexRow, Member, Register, Shard, ShardKey, UserKey, leaf_of, leaves};
use store::engine::{CommitOutcome, CounterPut, IndexEntry, IndexTimeRow, LedgerCommit, RowChange, TimeRow};

use super::world::{LARGE, LEVEL, World, like, member, root, target};

/// What is done to a target. Each has one target of its own, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// A small target's counter says something else at the same order.
    SmallCounter,
    /// The same with an order from the future, so that it wins against every right one.
    SmallCounterAhead,
    /// The counter row is gone.
    SmallCounterMissing,
    /// A counter of a target that nobody ever liked.
    Ghost,
    /// Both index rows of a like are gone.
    IndexMissing,
    /// An index row says "withdrawn" at a later version.
    IndexWrong,
    /// The time row of an index row is gone.
    IndexTimeMissing,
    /// Index rows, both sections, of a like that never was.
    IndexExtra,
    /// I1: the head's counts are not its rows'.
    Head,
    /// A ledger row behind its fact.
    RowBehind,
    /// Two of them whose errors cancel in every sum.
    RowsCancel,
    /// A ledger row ahead of its fact.
    RowAhead,
    /// A ledger row without a fact.
    RowExtra,
    /// No ledger row for a fact.
    RowMissing,
    /// A counted member is not listed.
    TimeMissing,
    /// Somebody is listed who is not counted at that time.
    TimeExtra,
    /// A leaf's counter is not its head.
    LeafCounter,
    /// Two of them whose errors cancel in the sum that readers see.
    LeafCountersCancel,
    /// A leaf's counter row is gone.
    LeafCounterMissing,
    /// A leaf's whole ledger is gone.
    LedgerMissing,
    /// It is forgotten that the leaves are to be shown.
    Shown,
}

impl Harm {
    pub const ALL: [Self; 21] = [
        Self::SmallCounter,
        Self::SmallCounterAhead,
        Self::SmallCounterMissing,
        Self::Ghost,
        Self::IndexMissing,
        Self::IndexWrong,
        Self::IndexTimeMissing,
        Self::IndexExtra,
        Self::Head,
        Self::RowBehind,
        Self::RowsCancel,
        Self::RowAhead,
        Self::RowExtra,
        Self::RowMissing,
        Self::TimeMissing,
        Self::TimeExtra,
        Self::LeafCounter,
        Self::LeafCountersCancel,
        Self::LeafCounterMissing,
        Self::LedgerMissing,
        Self::Shown,
    ];

    /// Whether it is done to large targets.
    pub fn large(self) -> bool {
        self >= Self::Head
    }

    /// Whether a reader would mend it by looking: a missing counter is counted on the spot.
    pub fn mended_by_readers(self) -> bool {
        matches!(self, Self::SmallCounterMissing | Self::LeafCounterMissing | Self::Shown)
    }

    /// Whether it is two errors of one each that no sum shows.
    pub fn cancels(self) -> bool {
        matches!(self, Self::RowsCancel | Self::LeafCountersCancel)
    }

    /// What `verify` must call it.
    pub fn causes(self) -> &'static [Cause] {
        match self {
            Self::SmallCounter | Self::LeafCounter | Self::LeafCountersCancel => &[Cause::Counter],
            Self::SmallCounterAhead | Self::Ghost => &[Cause::Overcounted],
            // A row that is not there: never counted, or lost; nobody can tell.
            Self::SmallCounterMissing | Self::LeafCounterMissing | Self::Shown => &[Cause::Uncounted, Cause::Counter],
            Self::IndexMissing | Self::IndexWrong | Self::IndexTimeMissing | Self::IndexExtra => &[Cause::Index],
            Self::Head => &[Cause::Count],
            Self::RowBehind | Self::RowsCancel | Self::RowMissing | Self::LedgerMissing => &[Cause::Uncounted],
            Self::RowAhead | Self::RowExtra => &[Cause::FactLost],
            Self::TimeMissing | Self::TimeExtra => &[Cause::Listing],
        }
    }

    /// What `verify` may find besides, as a consequence.
    pub fn consequences(self) -> &'static [Cause] {
        match self {
            // Its head and its list went with it, and so did what its counter is held against.
            Self::LedgerMissing => &[Cause::Counter, Cause::Listing, Cause::Count],
            _ => &[],
        }
    }

    /// Does it to the target `id`.
    pub async fn inflict(self, w: &World, id: &str) {
        let engine = w.protocol.engine();
        let shard = root(id);
        let user = UserKey::of(&target(id), &member(1));
        match self {
            Self::SmallCounter => {
                let mut row = counter(w, &shard).await;
                row.counts.add(1, 3);
                put(w, &shard, row).await;
            }
            Self::SmallCounterAhead => {
                let mut row = counter(w, &shard).await;
                row.order += 60_000_000;
                row.counts.add(1, -1);
                put(w, &shard, row).await;
            }
            Self::SmallCounterMissing => engine.drop_counter(&shard).await.unwrap(),
            Self::Ghost => {
                let row = CounterRow { order: 1, rank: 1, counts: [(1, 37)].into_iter().collect(), as_of: 1 };
                put(w, &root(&format!("{id}-never")), row).await;
            }
            Self::IndexMissing => engine.drop_index(&user, &like(), &target(id)).await.unwrap(),
            Self::IndexWrong => {
                let row = index(w, &user, id).await;
                let row = IndexRow { version: row.version + 1_000_000, choice: 0, since: row.version + 1_000_000 };
                put_index(w, user, id, row).await;
            }
            Self::IndexTimeMissing => {
                let row = index(w, &user, id).await;
                let time = IndexTimeRow { at: row.since, target: target(id) };
                engine.drop_index_time(&user, &like(), &time).await.unwrap();
            }
            Self::IndexExtra => {
                let stranger = UserKey::of(&target(id), &Member::parse("stranger").unwrap());
                put_index(w, stranger, id, IndexRow { version: 5, choice: 1, since: 5 }).await;
            }
            Self::Shown => engine.drop_counter(&shard.with_shard(Shard(0))).await.unwrap(),
            Self::LedgerMissing => engine.drop_ledger(&leaf(id).0).await.unwrap(),
            Self::LeafCounterMissing => engine.drop_counter(&leaf(id).0).await.unwrap(),
            Self::LeafCounter => {
                let leaf = leaf(id).0;
                let mut row = counter(w, &leaf).await;
                row.counts.add(1, 5);
                put(w, &leaf, row).await;
            }
            Self::LeafCountersCancel => {
                // The smaller row would lose its tie; at a later order both win.
                for (leaf, by) in leaves(LEVEL).zip([1, -1]) {
                    let leaf = root(id).with_shard(leaf);
                    let mut row = counter(w, &leaf).await;
                    row.order += 1;
                    row.counts.add(1, by);
                    put(w, &leaf, row).await;
                }
            }
            _ => self.ledger(w, id).await,
        }
    }

    async fn ledger(self, w: &World, id: &str) {
        let (leaf, members) = leaf(id);
        let mut facts = Vec::new();
        for m in &members[..2] {
            let read = w.protocol.engine().read_ledger(&leaf, std::slice::from_ref(m)).await.unwrap();
            facts.push((m.clone(), read.rows[0].unwrap().fact));
        }
        let (first, fact) = facts[0].clone();
        let older = Fact::of(Register::Choice, fact.choice.version - 1, 0, fact.choice.version - 1);
        let head = w.protocol.engine().page_ledger(&leaf, None, 1).await.unwrap().head.unwrap();
        let mut next = head.clone();
        next.revision += 1;
        let mut commit = LedgerCommit {
            expect_revision: Some(head.revision),
            head: next,
            rows: Vec::new(),
            drop_times: Vec::new(),
            put_times: Vec::new(),
            drop_rows: Vec::new(),
        };
        match self {
            Self::Head => commit.head.counts.add(1, -2),
            Self::RowBehind => {
                commit.head.counts.add(1, -1);
                commit.rows.push(RowChange { member: first, expect: Some(fact), fact: older });
            }
            Self::RowsCancel => {
                // The second member has withdrawn since, which nobody counted.
                let (second, second_fact) = facts[1].clone();
                commit.rows.push(RowChange { member: first, expect: Some(fact), fact: older });
                let counted = Fact::of(Register::Choice, second_fact.choice.version - 1, 1, 1);
                assert_eq!(second_fact.counted(), 0, "{second} has withdrawn");
                commit.rows.push(RowChange { member: second, expect: Some(second_fact), fact: counted });
            }
            Self::RowAhead => {
                let newer = fact.join(Fact::of(Register::Choice, fact.choice.version + 10, 0, fact.choice.version + 10));
                commit.head.counts.add(1, -1);
                commit.rows.push(RowChange { member: first, expect: Some(fact), fact: newer });
            }
            Self::RowExtra => {
                let stranger = (0..).map(|i| Member::parse(&format!("x{i}")).unwrap());
                let stranger = stranger.into_iter().find(|m| leaf_of(m, LEVEL) == leaf.shard).unwrap();
                commit.head.counts.add(1, 1);
                commit.rows.push(RowChange { member: stranger, expect: None, fact });
            }
            Self::RowMissing => {
                commit.head.counts.add(1, -1);
                commit.drop_times.push((fact.choice.since, first.clone()));
                commit.drop_rows.push((first, fact));
            }
            Self::TimeMissing => commit.drop_times.push((fact.choice.since, first)),
            Self::TimeExtra => commit.put_times.push(TimeRow { at: 5, member: first, choice: 1 }),
            other => unreachable!("{other:?} is not done to a ledger"),
        }
        assert_eq!(w.protocol.engine().commit(&leaf, &commit).await, Ok(CommitOutcome::Applied));
        // The leaf's counter says what its head says: only the ledger is wrong.
        w.protocol.reconcile(&leaf, &[]).await.unwrap();
    }
}

/// The second member of a target's leaf, who has to withdraw for [`Harm::RowsCancel`].
pub fn second(id: &str) -> Member {
    leaf(id).1[1].clone()
}

/// A leaf of a large target with the most members, and these.
fn leaf(id: &str) -> (ShardKey, Vec<Member>) {
    let of = |leaf: Shard| (0..LARGE).map(member).filter(move |m| leaf_of(m, LEVEL) == leaf);
    let leaf = leaves(LEVEL).max_by_key(|&leaf| of(leaf).count()).unwrap();
    (root(id).with_shard(leaf), of(leaf).collect())
}

async fn counter(w: &World, shard: &ShardKey) -> CounterRow {
    w.protocol.engine().read_counters(&shard.target).await.unwrap().row(&shard.kind, shard.shard).unwrap().clone()
}

async fn put(w: &World, shard: &ShardKey, row: CounterRow) {
    let put = CounterPut { shard: shard.clone(), row: row.clone() };
    w.protocol.engine().put_counters(&[put]).await.into_iter().for_each(|r| r.unwrap());
    assert_eq!(counter(w, shard).await, row, "the wrong row is in place");
}

async fn index(w: &World, user: &UserKey, id: &str) -> IndexRow {
    w.protocol.engine().read_index(user, &like(), &[target(id)]).await.unwrap()[0].unwrap()
}

async fn put_index(w: &World, user: UserKey, id: &str, row: IndexRow) {
    let entry = IndexEntry { user, kind: like(), target: target(id), row };
    w.protocol.engine().put_index(&[entry]).await.into_iter().for_each(|r| r.unwrap());
}
