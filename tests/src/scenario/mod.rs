//! Scenarios: faults that like counters have met in the field, tried on Tally (docs/scenarios.md).
//!
//! [`world`] is several processes over one engine in this process, [`served`] the real binary over
//! HTTP; [`oracles`] are what must hold after each scenario, written once for both.

pub mod book;
pub mod oracles;
pub mod proxy;
pub mod served;
pub mod spy;
pub mod tap;
pub mod watch;
pub mod world;

use schema::{FactKey, KindName, Member, Namespace, ShardKey, TargetKey};

/// Namespace of all scenarios.
pub const NAMESPACE: &str = "t";

/// A target's key.
pub fn target(id: &str) -> TargetKey {
    TargetKey::new(&Namespace::parse(NAMESPACE).expect("a namespace"), id).expect("an id")
}

/// A kind's name.
pub fn kind(name: &str) -> KindName {
    KindName::parse(name).expect("a kind")
}

/// A member's id.
pub fn member(id: &str) -> Member {
    Member::parse(id).expect("an id")
}

/// The root of a (target, kind).
pub fn root(id: &str, name: &str) -> ShardKey {
    ShardKey::root(target(id), kind(name))
}

/// The key of a fact.
pub fn fact(id: &str, name: &str, who: &str) -> FactKey {
    root(id, name).fact(&member(who))
}
