//! An operator over the engine in memory, driven by hand.
#![allow(dead_code, clippy::unwrap_used, reason = "shared by several test binaries; a test panics where it fails")]

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use async_trait::async_trait;
use schema::{Fact, FactKey, KindName, Member, Register, StatusKey, TargetKey, UserKey};
use store::{
    Protocol, Settings,
    clock::ManualClock,
    memory::{Faults, Memory},
    protocol::{Lane, WriteRequest, Written},
};
use tally_operator::{Operator, OperatorSettings, Who, Writer};

/// Runs that may wait.
pub const QUEUE: usize = 5;

/// Writes by the protocol, without queues between.
pub struct Direct {
    protocol: Protocol,
    lane: Arc<Lane>,
    pub told: Mutex<Vec<StatusKey>>,
}

#[async_trait]
impl Writer for Direct {
    async fn write_many(&self, requests: Vec<WriteRequest>) -> Vec<Result<Written, String>> {
        let (written, completion) = self.protocol.write(&self.lane, &requests).await;
        if let Some(completion) = completion {
            self.protocol.complete(completion).await;
        }
        written.into_iter().map(Ok).collect()
    }

    fn status_changed(&self, key: &StatusKey) {
        self.told.lock().unwrap().push(key.clone());
    }
}

pub struct World {
    pub protocol: Protocol,
    pub operator: Operator,
    pub writer: Arc<Direct>,
    pub clock: Arc<ManualClock>,
    lane: Arc<Lane>,
}

impl World {
    pub async fn new(fused: bool) -> Self {
        let engine = Arc::new(Memory::new(7, fused, Faults::none()));
        let clock = Arc::new(ManualClock::starting_at(1_700_000_000_000_000));
        let settings = Settings { small_limit: 8, level: 2, ..Settings::default() };
        let protocol = Protocol::new(engine, clock.clone(), settings);
        Self::over(protocol, clock).await
    }

    /// Another process over the same store.
    pub async fn reopened(&self) -> Self {
        Self::over(self.protocol.clone(), self.clock.clone()).await
    }

    async fn over(protocol: Protocol, clock: Arc<ManualClock>) -> Self {
        static LANES: AtomicU64 = AtomicU64::new(1);
        let lane = Arc::new(protocol.open_lane(Box::new(|| LANES.fetch_add(1, Ordering::Relaxed))).await.unwrap());
        let writer = Arc::new(Direct { protocol: protocol.clone(), lane: lane.clone(), told: Mutex::default() });
        let settings = OperatorSettings { chunk: 4, queue: QUEUE, ..OperatorSettings::default() };
        let operator = Operator::new(protocol.clone(), writer.clone(), settings);
        operator.recover().await.unwrap();
        Self { protocol, operator, writer, clock, lane }
    }

    /// Lets the run whose turn it is go on for so many awaits, and drops it; whether it had ended.
    pub async fn cut_off_after(&self, awaits: usize) -> bool {
        let mut run = pin!(self.operator.run_once());
        let mut left = awaits;
        poll_fn(|cx| {
            if run.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            if left == 0 {
                return Poll::Ready(false);
            }
            left -= 1;
            Poll::Pending
        })
        .await
    }

    /// Lets it go on until `there`, and drops it.
    pub async fn run_until(&self, there: impl AsyncFn() -> bool) {
        let mut run = pin!(self.operator.run_once());
        loop {
            let ended = poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx).is_ready())).await;
            if ended || there().await {
                return;
            }
        }
    }

    /// Carries out everything that waits, with the sweep beside it.
    pub async fn finish(&self) {
        loop {
            let mut run = pin!(self.operator.run_once());
            let mut polls = 0;
            let ended = loop {
                if let Poll::Ready(ended) = poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx))).await {
                    break ended.unwrap();
                }
                polls += 1;
                if polls % 500 == 0 {
                    self.protocol.sweep().await.unwrap();
                }
            };
            if !ended {
                return;
            }
        }
    }

    pub async fn like(&self, target: &str, user: &str) {
        self.write(target, user, Register::Choice, 1).await;
    }

    pub async fn write(&self, target: &str, user: &str, register: Register, value: u8) -> Written {
        self.write_kind(target, "like", user, register, value).await
    }

    pub async fn write_kind(&self, target: &str, kind: &str, user: &str, register: Register, value: u8) -> Written {
        let request = WriteRequest { key: key(target, kind, user), register, value, at: None };
        let (mut written, _) = self.protocol.write(&self.lane, &[request]).await;
        let written = written.pop().unwrap();
        assert!(written.landed(), "{written:?}");
        written
    }
}

pub fn key(target: &str, kind: &str, user: &str) -> FactKey {
    FactKey { target: self::target(target), kind: self::kind(kind), member: member(user) }
}

pub async fn fact(w: &World, target: &str, user: &str) -> Fact {
    w.protocol.facts(&[key(target, "like", user)]).await.unwrap()[0]
}

pub async fn all_facts(w: &World, target: &str, users: &[&str]) -> Vec<Fact> {
    let keys: Vec<FactKey> = users.iter().map(|user| key(target, "like", user)).collect();
    w.protocol.facts(&keys).await.unwrap()
}

pub fn target(id: &str) -> TargetKey {
    TargetKey::parse(&format!("video/{id}")).unwrap()
}

pub fn user(id: &str) -> UserKey {
    UserKey::parse(&format!("video/{id}")).unwrap()
}

pub fn kind(name: &str) -> KindName {
    KindName::parse(name).unwrap()
}

pub fn member(id: &str) -> Member {
    Member::parse(id).unwrap()
}

pub fn who() -> Who {
    Who { key: "local".into(), operator: Some("ada".into()), why: "bought".into(), ticket: Some("T-1".into()) }
}
