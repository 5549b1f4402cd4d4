//! Shards: where a member's fact is stored. The bytes hashed here are a storage format.

use std::fmt;

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::{Member, ShardKey, TargetKey};

/// A target is small while one kind has at most this many fact rows in its root: T of the design.
pub const SMALL_LIMIT: usize = 128;
/// L of the design: a large target has `2^L` leaves.
pub const DEFAULT_LEVEL: Level = 4;
/// B of the design: streams (or queues) that carry change events.
pub const DEFAULT_BUCKETS: u16 = 64;

/// Depth of the leaves below the root, 1 to 15; shard numbers are a heap.
pub type Level = u8;

/// A partition of one (target, kind): 1 is the root, `2^L` to `2^(L+1) - 1` are leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(pub u16);

impl Default for Shard {
    fn default() -> Self {
        Self::ROOT
    }
}

impl Shard {
    /// The partition of a small target, and the head of a large one.
    pub const ROOT: Self = Self(1);

    /// Whether this is the root.
    pub fn is_root(self) -> bool {
        self == Self::ROOT
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Leaf of `member`: `2^level + top level bits of xxh3_64(member)`.
pub fn leaf_of(member: &Member, level: Level) -> Shard {
    let top = xxh3_64(member.as_str().as_bytes()) >> (64 - u32::from(level.clamp(1, 15)));
    Shard((1u16 << level.clamp(1, 15)) + u16::try_from(top).expect("at most 15 bits are left"))
}

/// All leaves of `level`, in order.
pub fn leaves(level: Level) -> impl Iterator<Item = Shard> + Clone {
    let first = 1u32 << level.clamp(1, 15);
    (first..2 * first).map(|s| Shard(u16::try_from(s).expect("below 2^16 for level <= 15")))
}

/// Bucket of a shard's change events: `xxh3_64(target 0x00 kind shard_be) mod buckets`.
pub fn bucket_of(key: &ShardKey, buckets: u16) -> u16 {
    let mut hash = Xxh3Default::new();
    hash.update(key.target.as_str().as_bytes());
    hash.update(&[0]);
    hash.update(key.kind.as_str().as_bytes());
    hash.update(&key.shard.0.to_be_bytes());
    u16::try_from(hash.digest() % u64::from(buckets.max(1))).expect("below a u16")
}

/// Place of a target's partitions in the key space, for slices of a scan.
pub fn token_of(target: &TargetKey) -> u64 {
    xxh3_64(target.as_str().as_bytes())
}
