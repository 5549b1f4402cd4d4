//! A small store with a rebuilder, and ways to damage it.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]
#![allow(dead_code, reason = "each test file uses some of it")]

use std::{sync::Arc, time::Duration};

use schema::{CounterRow, Fact, FactKey, KindName, Member, Namespace, Register, Shard, ShardKey, TargetKey, leaf_of, leaves};
use store::{
    Protocol, Settings,
    clock::{Clock, SystemClock},
    embedded::{Embedded, EmbeddedSettings},
    engine::{CommitOutcome, CounterPut, LedgerCommit},
    protocol::{Lane, WriteRequest},
};
use tally_rebuilder::{Cause, Progress, Rebuilder, RebuilderSettings, Report, Scope};

pub struct World {
    pub protocol: Protocol,
    pub lane: Lane,
    pub rebuilder: Rebuilder,
    pub dir: tempfile::TempDir,
}

pub const LEVEL: u8 = 2;
pub const SMALL: usize = 4;

/// Pages of three rows: nearly every partition is read in several parts.
pub fn quick() -> RebuilderSettings {
    RebuilderSettings {
        slices: 4,
        looks: 2,
        settle: Duration::from_millis(1),
        page: 3,
        classes: 64,
        lease: Duration::from_millis(100),
        freeze_targets: 1000,
        ..RebuilderSettings::default()
    }
}

pub async fn setup() -> World {
    setup_with(quick()).await
}

pub async fn setup_with(settings: RebuilderSettings) -> World {
    setup_at(settings, Arc::new(SystemClock::default())).await
}

pub async fn setup_at(settings: RebuilderSettings, clock: Arc<dyn Clock>) -> World {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(Embedded::open(dir.path(), &EmbeddedSettings::default()).unwrap());
    let protocol = Protocol::new(engine, clock, Settings { small_limit: SMALL, level: LEVEL, ..Settings::default() });
    let lane = protocol.open_lane(Box::new(|| 7)).await.unwrap();
    World { rebuilder: Rebuilder::new(protocol.clone(), settings), protocol, lane, dir }
}

pub fn target(id: &str) -> TargetKey {
    TargetKey::new(&Namespace::parse("t").unwrap(), id).unwrap()
}

pub fn like() -> KindName {
    KindName::parse("like").unwrap()
}

pub fn root(id: &str) -> ShardKey {
    ShardKey::root(target(id), like())
}

pub fn member(id: usize) -> Member {
    Member::parse(&format!("u{id:03}")).unwrap()
}

impl World {
    /// `n` members like `id`; all of it counted.
    pub async fn liked(&self, id: &str, n: usize) -> ShardKey {
        for i in 0..n {
            self.write(id, i, 1).await;
        }
        let members: Vec<Member> = (0..n).map(member).collect();
        self.protocol.reconcile(&root(id), &members).await.unwrap();
        root(id)
    }

    pub async fn write(&self, id: &str, i: usize, value: u8) -> Shard {
        let key = FactKey { target: target(id), kind: like(), member: member(i) };
        let (written, _) =
            self.protocol.write(&self.lane, &[WriteRequest { key, register: Register::Choice, value, at: None }]).await;
        assert!(written[0].landed(), "{:?}", written[0]);
        written[0].shard
    }

    pub async fn total(&self, id: &str) -> i64 {
        let counts = self.protocol.counts(&target(id), &[like()]).await.unwrap();
        counts[0].counts.as_ref().map_or(-1, |c| c.total())
    }

    pub async fn verify(&self) -> Report {
        self.rebuilder.verify(Scope::All, &Progress::default()).await.unwrap()
    }

    /// Breakage named `cause` must be found by `verify`, left alone by a dry run, mended by
    /// `rebuild`, and be gone afterwards. Returns what the rebuild says of it.
    pub async fn assert_found_and_mended(&self, cause: Cause) -> String {
        let found = self.verify().await;
        assert!(found.drift.iter().any(|d| d.cause == cause), "{cause:?} not among {:?}", found.drift);
        let dry = self.rebuilder.rebuild(Scope::All, true, &Progress::default()).await.unwrap();
        assert_eq!((dry.drifted, dry.repaired), (found.drifted, 0), "a dry run repairs nothing");
        let mended = self.rebuilder.rebuild(Scope::All, false, &Progress::default()).await.unwrap();
        assert_eq!(mended.drifted, mended.repaired, "{:?}", mended.drift);
        assert!(mended.repaired > 0);
        let after = self.verify().await;
        assert!(after.clean(), "{:?}", after.drift);
        mended.drift.into_iter().find(|d| d.cause == cause).unwrap().after
    }

    /// A leaf of a large target that has at least two members.
    pub async fn large(&self, id: &str) -> (ShardKey, Vec<Member>) {
        let root = self.liked(id, 40).await;
        let leaf = leaves(LEVEL).max_by_key(|l| (0..40).filter(|&i| leaf_of(&member(i), LEVEL) == *l).count()).unwrap();
        let members: Vec<Member> = (0..40).map(member).filter(|m| leaf_of(m, LEVEL) == leaf).collect();
        assert!(members.len() >= 2);
        (root.with_shard(leaf), members)
    }

    /// Commits to a leaf whatever `edit` makes of an empty commit, however wrong.
    pub async fn damage(&self, leaf: &ShardKey, edit: impl FnOnce(&mut LedgerCommit)) {
        let head = self.protocol.engine().page_ledger(leaf, None, 1).await.unwrap().head.unwrap();
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
        edit(&mut commit);
        assert_eq!(self.protocol.engine().commit(leaf, &commit).await, Ok(CommitOutcome::Applied));
        self.protocol.reconcile(leaf, &[]).await.unwrap();
    }

    pub async fn counter(&self, shard: &ShardKey) -> CounterRow {
        let counters = self.protocol.engine().read_counters(&shard.target).await.unwrap();
        counters.row(&shard.kind, shard.shard).unwrap().clone()
    }

    pub async fn put_counter(&self, shard: &ShardKey, row: CounterRow) {
        let put = CounterPut { shard: shard.clone(), row };
        self.protocol.engine().put_counters(&[put]).await.into_iter().for_each(|r| r.unwrap());
    }

    pub async fn ledger_row(&self, leaf: &ShardKey, m: &Member) -> Fact {
        self.protocol.engine().read_ledger(leaf, std::slice::from_ref(m)).await.unwrap().rows[0].unwrap().fact
    }
}
