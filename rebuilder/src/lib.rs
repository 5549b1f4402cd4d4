//! Recomputes every projection from the facts, reports what differs, and repairs it while traffic
//! goes on (invariants I2 and I7).
//!
//! The same checks serve `verify`, which repairs nothing, and `rebuild`. A suspicion is looked at
//! again before it is called drift, so that work under way raises no alarm. A repair never sets a
//! number by hand: it counts again from the facts.

mod check;
mod evidence;
mod export;
mod history;
mod index;
mod join;
mod lease;
mod metrics;
mod partition;
mod repair;
mod report;
mod run;
mod scope;
mod settings;
mod shared;
mod since;
mod slice;
mod stream;
mod sums;
mod suspect;
mod throttle;
mod top;
mod whole;

pub use export::{ExportFilter, ExportPage, ExportPlace, export_page};
pub use history::MAX_RUNS;
pub use lease::Round;
pub use report::{Cause, CauseTotals, Drift, MAX_LISTED, Progress, Report, RunState};
pub use run::Rebuilder;
pub use scope::{Order, PARTS, Scope};
pub use settings::RebuilderSettings;
