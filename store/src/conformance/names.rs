//! Names that no other test uses, and shorthand for rows.

use std::sync::atomic::{AtomicU64, Ordering};

use schema::{
    ChoiceRegister, Counts, Fact, HideRegister, KindName, LaneId, Level, Member, Micros, Shard, ShardKey, TargetKey, UserKey,
    leaf_of,
};

use crate::{
    clock::{Clock, SystemClock},
    engine::FactWrite,
};

/// A text that no other test, and no other run, has.
pub fn unique(label: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{label}-{:x}-{:x}-{n}", std::process::id(), SystemClock::default().now())
}

pub fn target(label: &str) -> TargetKey {
    TargetKey::parse(&format!("conf/{}", unique(label))).expect("short and printable")
}

pub fn user(label: &str) -> UserKey {
    UserKey::parse(&format!("conf/{}", unique(label))).expect("short and printable")
}

pub fn kind(name: &str) -> KindName {
    KindName::parse(name).expect("a kind's name")
}

pub fn member(text: &str) -> Member {
    Member::parse(text).expect("a member")
}

/// Ids whose byte order is not that of their numbers, with prefixes of each other and all lengths
/// of UTF-8.
pub fn members() -> Vec<Member> {
    let mut made: Vec<Member> = ["a", "ab", "abc", "b", "é", "鐘", "🔔", "~", "z"].map(member).into();
    made.extend((0..20).map(|n| member(&format!("m{n}"))));
    made.sort();
    made
}

pub fn root(label: &str) -> ShardKey {
    ShardKey::root(target(label), kind("like"))
}

/// A leaf of a target of its own.
pub fn leaf(label: &str) -> ShardKey {
    root(label).with_shard(leaf_of(&member("a"), LEVEL))
}

pub const LEVEL: Level = 4;

pub fn shard(n: u16) -> Shard {
    Shard(n)
}

pub fn lane() -> LaneId {
    LaneId(xxhash_rust::xxh3::xxh3_64(unique("lane").as_bytes()))
}

pub fn chosen(version: Micros, choice: u8, since: Micros) -> Fact {
    Fact { choice: ChoiceRegister { version, choice, since }, ..Fact::default() }
}

/// Hidden, or not, for the reason number `which`.
pub fn hidden(which: usize, version: Micros, value: u8) -> Fact {
    let mut fact = Fact::default();
    fact.hides[which] = HideRegister { version, value };
    fact
}

pub fn write(shard: &ShardKey, member: &Member, fact: Fact) -> FactWrite {
    FactWrite { shard: shard.clone(), member: member.clone(), fact, index: None, seen: None }
}

pub fn counts(of: &[(u8, i64)]) -> Counts {
    of.iter().copied().collect()
}

/// All results are `Ok`, one for each of `n`.
#[track_caller]
pub fn all_ok(results: Vec<crate::StoreResult<()>>, n: usize) {
    assert_eq!(results, vec![Ok(()); n]);
}
