//! What an operator's run is about to hide or show: recorded before it is written, so that a run
//! that was cut off repeats the same versions, and so that an undo knows exactly what was changed.

use crate::{FactKey, Micros};

/// One register of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HideItem {
    /// Which fact.
    pub key: FactKey,
    /// The version that its register gets.
    pub version: Micros,
    /// Whether the register held another value when this was decided.
    pub changes: bool,
}

/// Part of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HideChunk {
    /// What is written.
    pub items: Vec<HideItem>,
    /// A run over a user's facts: how often it has walked all of them before.
    pub pass: u8,
    /// A run over a user's facts: it goes on behind this kind and target; empty: at the beginning.
    pub after: Option<(String, String)>,
    /// Totals of the run before this chunk: done, changed, unchanged, superseded, refused.
    pub before: [u64; 5],
}
