//! Tally's words as types: ids, kinds, registers, shards, events, journal intents, blobs.
//!
//! No I/O, no clock, no randomness. Everything that is stored or sent is defined here, and every
//! stored byte passes through [`codec`], whose output is held by golden tests.

pub mod codec;
mod counts;
mod fact;
mod hide;
mod ids;
mod journal;
mod kinds;
mod rows;
mod shard;
mod status;
mod trace;

pub use counts::Counts;
pub use fact::{ChoiceRegister, Fact, HideRegister, Reason, Register};
pub use hide::{HideChunk, HideItem};
pub use ids::{FactKey, IdError, MAX_ID_BYTES, MAX_NAMESPACE_BYTES, Member, Namespace, ShardKey, TargetKey, UserKey};
pub use journal::{ChangeEvent, Intent, JournalEntry, LaneId, Slot};
pub use kinds::{Choice, Kind, KindError, KindName, Kinds, MAX_CHOICES, default_kinds};
pub use rows::{Audit, CounterRow, IndexRow, LedgerHead, LedgerRow, RootHead};
pub use shard::{DEFAULT_BUCKETS, DEFAULT_LEVEL, Level, SMALL_LIMIT, Shard, bucket_of, leaf_of, leaves, token_of};
pub use status::{Status, StatusKey, StatusRow};
pub use trace::{MAX_TRACES, TRACE_LOG, TraceId, TraceParent, add_trace};

/// Microseconds since 1970, UTC: the unit of every version, `since`, `at` and `as_of`.
pub type Micros = i64;
