//! Tally's words as types: ids, kinds, registers, shards, events, journal intents, blobs.
//!
//! No I/O, no clock, no randomness. Everything that is stored or sent is defined here, and every
//! stored byte passes through [`codec`], whose output is held by golden tests.

pub mod codec;
mod counts;
mod fact;
mod ids;
mod journal;
mod kinds;
mod rows;
mod shard;

pub use counts::Counts;
pub use fact::{ChoiceRegister, Fact, HideRegister, Reason, Register};
pub use ids::{FactKey, IdError, Member, Namespace, ShardKey, TargetKey, UserKey, MAX_ID_BYTES, MAX_NAMESPACE_BYTES};
pub use journal::{ChangeEvent, Intent, JournalEntry, LaneId, Slot};
pub use kinds::{default_kinds, Choice, Kind, KindError, KindName, Kinds, MAX_CHOICES};
pub use rows::{Audit, CounterRow, IndexRow, LedgerHead, LedgerRow, RootHead};
pub use shard::{bucket_of, leaf_of, leaves, token_of, Level, Shard, DEFAULT_BUCKETS, DEFAULT_LEVEL, SMALL_LIMIT};

/// Microseconds since 1970, UTC: the unit of every version, `since`, `at` and `as_of`.
pub type Micros = i64;
