//! Recomputes every projection from the facts, reports what differs, and repairs it while traffic
//! goes on (invariants I2 and I7).
//!
//! The same checks serve `verify`, which repairs nothing, and `rebuild`. A suspicion is looked at
//! again before it is called drift, so that work under way raises no alarm. A repair never sets a
//! number by hand: it counts again from the facts.

mod check;
mod index;
mod repair;
mod report;
mod run;
mod settings;
mod suspect;

pub use report::{Cause, Drift, MAX_LISTED, Progress, Report};
pub use run::{Rebuilder, Scope};
pub use settings::RebuilderSettings;
