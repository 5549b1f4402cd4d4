//! A count never promises more than it holds: `complete_until` comes from before it was read.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use schema::{ChangeEvent, FactKey, KindName, Member, Register, TargetKey};
use store::{
    Protocol, Settings,
    bus::EventSink,
    clock::ManualClock,
    memory::{Faults, Memory},
    protocol::WriteRequest,
};
use tally_ingest::{Ingest, IngestSettings};

/// Every event is lost: only the sweep counts.
struct Lost;

#[async_trait]
impl EventSink for Lost {
    async fn publish(&self, _: Vec<ChangeEvent>) {}
}

#[tokio::test]
async fn a_count_in_memory_keeps_the_watermark_from_before_it_was_read() {
    let clock = Arc::new(ManualClock::starting_at(1_800_000_000_000_000));
    let protocol = Protocol::new(Arc::new(Memory::new(1, true, Faults::none())), clock.clone(), Settings::default());
    let lane = protocol.open_lane(Box::new(|| 7)).await.unwrap();
    // Counts stay in memory for as long as the test takes.
    let settings = IngestSettings { cache_ttl: Duration::from_secs(3600), ..IngestSettings::default() };
    let (ingest, _) = Ingest::start(protocol.clone(), lane, Arc::new(Lost), settings);
    let target = TargetKey::parse("video/p").unwrap();
    let like = async |user: &str| {
        let key =
            FactKey { target: target.clone(), kind: KindName::parse("like").unwrap(), member: Member::parse(user).unwrap() };
        ingest.write(WriteRequest { key, register: Register::Choice, value: 1, at: None }).await.unwrap().version
    };
    let told = async || {
        let counted = ingest.counts(&target).await.unwrap();
        let total: i64 = counted.kinds.iter().filter_map(|(_, k)| k.counts.as_ref()).map(schema::Counts::total).sum();
        (total, counted.complete_until)
    };
    like("u1").await;
    clock.advance(Duration::from_secs(60));
    protocol.sweep().await.unwrap();
    assert_eq!(told().await.0, 1);
    clock.advance(Duration::from_secs(1));
    let second = like("u2").await;
    clock.advance(Duration::from_secs(60));
    protocol.sweep().await.unwrap();
    assert!(protocol.complete_until().await.unwrap() > second, "the sweep has passed the second like");
    let (total, complete_until) = told().await;
    assert!(
        total == 2 || complete_until <= second,
        "{total} is said to be complete until {complete_until}, but {second} is missing"
    );
}
