//! The protocol, written once above the engine's rows: write, reconcile, promote, audit, sweep,
//! and the reads that must agree with them. Every method may be cut off at any await.

mod audit;
mod build;
mod explain;
mod lane;
mod mutation;
mod promote;
mod read;
mod reconcile;
mod status;
mod sweep;
mod write;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use schema::{DEFAULT_LEVEL, Kinds, Level, Micros, RootHead, SMALL_LIMIT, ShardKey, Slot};

pub use audit::AuditReport;
pub use explain::{Explained, FoundIntent, MAX_INTENTS, MAX_LOOKED_AT, RECENT_SLOTS};
pub use lane::{IdSource, Lane};
#[cfg(feature = "mutations")]
pub use mutation::Mutation;
pub use read::{KindCount, MemberListing, MemberState, UserListing};
pub use reconcile::{Reconciled, count, leaf_counter};
pub use sweep::{LanesSwept, SweepReport};
pub use write::{Completion, EntryPlace, Outcome, WriteRequest, Written};

use crate::{clock::Clock, engine::Engine};

/// What the protocol needs to know; recorded in the store, so that all processes agree.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is counted.
    pub kinds: Arc<Kinds>,
    /// T: most fact rows of one kind in a root before it is promoted.
    pub small_limit: usize,
    /// L: depth of the leaves.
    pub level: Level,
    /// Length of a journal slot.
    pub slot: Duration,
    /// How far behind store time a slot is closed and swept.
    pub sweep_delay: Duration,
    /// How long a request may try before it is answered `accepted` or `unknown`.
    pub deadline: Duration,
    /// How long a lane may be silent before its process is taken for gone.
    pub lane_timeout: Duration,
    /// How long swept journal slots are kept: as far back as `rebuild since` reaches.
    pub journal_retention: Duration,
    /// Shards that a sweep or a promotion works on side by side.
    pub parallel: usize,
    /// Attempts of a reconcile before it reports that others keep winning.
    pub attempts: u32,
    /// The fault compiled in for a test.
    #[cfg(feature = "mutations")]
    pub mutation: Option<Mutation>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kinds: Arc::new(schema::default_kinds()),
            small_limit: SMALL_LIMIT,
            level: DEFAULT_LEVEL,
            slot: Duration::from_secs(10),
            sweep_delay: Duration::from_secs(30),
            deadline: Duration::from_secs(5),
            lane_timeout: Duration::from_secs(120),
            journal_retention: Duration::from_secs(48 * 3600),
            parallel: 8,
            attempts: 30,
            #[cfg(feature = "mutations")]
            mutation: None,
        }
    }
}

impl Settings {
    /// The slot of a moment of store time.
    pub fn slot_of(&self, at: Micros) -> Slot {
        at.div_euclid(self.slot_micros())
    }

    /// Store time at which `slot` ends.
    pub fn slot_end(&self, slot: Slot) -> Micros {
        (slot + 1).saturating_mul(self.slot_micros())
    }

    fn slot_micros(&self) -> Micros {
        Micros::try_from(self.slot.as_micros()).unwrap_or(Micros::MAX).max(1)
    }
}

/// What this process landed, for the fault that trusts it.
#[cfg(feature = "mutations")]
type Lately = HashMap<(schema::FactKey, schema::Register), (Micros, u8)>;

/// The protocol over one engine. Cheap to clone; has no state of its own but a hint of which
/// targets are large.
#[derive(Clone)]
pub struct Protocol {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    settings: Arc<Settings>,
    /// Heads of roots that are known to be large: a hint that saves reading them.
    large: Arc<Mutex<HashMap<ShardKey, RootHead>>>,
    #[cfg(feature = "mutations")]
    lately: Arc<Mutex<Lately>>,
}

impl Protocol {
    /// Binds the protocol to an engine and a clock.
    pub fn new(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, settings: Settings) -> Self {
        Self {
            engine,
            clock,
            settings: Arc::new(settings),
            large: Arc::default(),
            #[cfg(feature = "mutations")]
            lately: Arc::default(),
        }
    }

    /// The engine below, for scans and operational rows.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Store time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}
