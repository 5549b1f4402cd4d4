//! Everything that a process has, over one store, with targets that are damaged, used, or left alone.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use aggregator::{Aggregator, AggregatorSettings, MemoryBus, Sweep};
use ingest::{Ingest, IngestSettings};
use rebuilder::{Order, Progress, Rebuilder, RebuilderSettings, Report, Scope};
use schema::{FactKey, KindName, Member, Namespace, Register, ShardKey, TargetKey};
use store::{
    Protocol, Settings,
    clock::{Stopwatch, SystemClock},
    embedded::{Embedded, EmbeddedSettings},
    protocol::WriteRequest,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Facts of a small target, and of a large one, that stand throughout.
pub const SMALL: usize = 4;
pub const LARGE: usize = 40;
/// More than this many facts make a target large, with four leaves.
const LIMIT: usize = 16;
pub const LEVEL: u8 = 2;

pub struct World {
    pub protocol: Protocol,
    pub ingest: Ingest,
    pub rebuilder: Rebuilder,
    aggregator: Aggregator,
    stop: CancellationToken,
    loops: Vec<JoinHandle<()>>,
    answering: JoinHandle<()>,
    engine: Arc<Embedded>,
    _dir: tempfile::TempDir,
}

pub fn like() -> KindName {
    KindName::parse("like").unwrap()
}

pub fn target(id: &str) -> TargetKey {
    TargetKey::new(&Namespace::parse("c").unwrap(), id).unwrap()
}

pub fn root(id: &str) -> ShardKey {
    ShardKey::root(target(id), like())
}

pub fn member(i: usize) -> Member {
    Member::parse(&format!("u{i:03}")).unwrap()
}

/// As many likes as a target of this name has.
pub fn likes(id: &str) -> usize {
    if id.starts_with("large") { LARGE } else { SMALL }
}

impl World {
    /// As `tally serve` puts it together, with short slots and few slices.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Arc::new(Embedded::open(dir.path(), &EmbeddedSettings::default()).unwrap());
        let settings = Settings {
            small_limit: LIMIT,
            level: LEVEL,
            slot: Duration::from_millis(200),
            sweep_delay: Duration::from_millis(500),
            ..Settings::default()
        };
        let protocol = Protocol::new(engine.clone(), Arc::new(SystemClock::default()), settings);
        let lane = protocol.open_lane(Box::new(|| 7)).await.unwrap();
        let bus = MemoryBus::new(16, 10_000);
        let (ingest, answering) = Ingest::start(protocol.clone(), lane, bus.clone(), IngestSettings::default());
        let cache = ingest.clone();
        let aggregator =
            Aggregator::new(protocol.clone(), bus, AggregatorSettings::default()).on_counted(Arc::new(move |t| cache.forget(t)));
        let sweep = Sweep::new(protocol.clone(), Duration::from_millis(100));
        let quick = RebuilderSettings { slices: 4, ..RebuilderSettings::default() };
        let rebuilder = Rebuilder::new(protocol.clone(), quick);
        let stop = CancellationToken::new();
        let loops = vec![
            tokio::spawn({
                let (aggregator, stop) = (aggregator.clone(), stop.clone());
                async move { aggregator.run(stop).await }
            }),
            tokio::spawn({
                let stop = stop.clone();
                async move { sweep.run(stop).await }
            }),
        ];
        Self { protocol, ingest, rebuilder, aggregator, stop, loops, answering, engine, _dir: dir }
    }

    /// One member's choice; durable when it returns.
    pub async fn write(&self, id: &str, member: Member, choice: u8) {
        let key = FactKey { target: target(id), kind: like(), member };
        let request = WriteRequest { key, register: Register::Choice, value: choice, at: None };
        let written = self.ingest.write(request).await.unwrap();
        assert!(written.landed(), "{written:?}");
    }

    /// Every target is liked by as many as its name says.
    pub async fn fill(&self, ids: &[String]) {
        for some in ids.chunks(8) {
            let writes = some.iter().flat_map(|id| (0..likes(id)).map(move |i| self.write(id, member(i), 1)));
            futures::future::join_all(writes).await;
        }
        self.idle().await;
    }

    /// Everything answered so far is counted afterwards.
    pub async fn idle(&self) {
        let watch = Stopwatch::start();
        let due = self.protocol.clock().now();
        while !self.aggregator.idle() || self.protocol.complete_until().await.unwrap() <= due {
            assert!(watch.elapsed() < Duration::from_secs(60), "counting does not catch up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The number shown; `None`: none can be shown now.
    pub async fn total(&self, id: &str) -> Option<i64> {
        let counts = self.protocol.counts(&target(id), &[like()]).await.unwrap();
        counts[0].counts.as_ref().map(schema::Counts::total)
    }

    pub async fn verify(&self) -> Report {
        self.rebuilder.verify(Scope::All, &Progress::default()).await.unwrap()
    }

    /// Confirmed: so many wrong rows would otherwise only be reported.
    pub async fn rebuild(&self) -> Report {
        let order = Order {
            confirm: true,
            operator: Some("tester".into()),
            reason: Some("rows were made wrong".into()),
            ..Order::rebuild(Scope::All)
        };
        self.rebuilder.run(&order, &Progress::default()).await.unwrap()
    }

    /// Who likes it, by the list, with the time of each.
    pub async fn listed(&self, id: &str) -> BTreeMap<Member, i64> {
        let mut all = BTreeMap::new();
        let mut after = None;
        loop {
            let page = self.protocol.list(&root(id), None, after, 100).await.unwrap();
            all.extend(page.members.into_iter().map(|row| (row.member, row.at)));
            match page.next {
                Some(next) => after = Some(next),
                None => return all,
            }
        }
    }

    pub async fn end(self) {
        self.ingest.stop();
        self.answering.await.unwrap();
        self.stop.cancel();
        for task in self.loops {
            task.await.unwrap();
        }
        self.engine.close().await.unwrap();
    }
}
