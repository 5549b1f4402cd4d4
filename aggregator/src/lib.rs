//! Turns change events into counts, and sweeps the journal for what events missed.
//!
//! Never adds what an event says: an event names a shard and members, and
//! [`store::Protocol::reconcile`] reads the facts (invariant I2). Losing, repeating or reordering
//! events costs freshness or work, never a number.

mod aggregator;
mod bus;
mod gauges;
mod metrics;
mod settings;
mod sweep;

pub use aggregator::{Aggregator, Round};
pub use bus::{MemoryBus, Notice};
pub use settings::AggregatorSettings;
pub use sweep::Sweep;
