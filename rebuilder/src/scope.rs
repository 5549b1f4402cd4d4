//! What a run covers, and who ordered it.

use std::fmt;

use schema::{KindName, Micros, TargetKey};

/// Parts of the key space that are verified in turn, one a night.
pub const PARTS: u32 = 30;

/// What a run covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// One target; one kind of it or all.
    Target {
        /// The target.
        target: TargetKey,
        /// The kind; `None`: every configured kind.
        kind: Option<KindName>,
    },
    /// What was written since this store time; as far back as the journal reaches.
    Since(Micros),
    /// One of [`PARTS`] parts of the key space, from 0; `None`: the one verified longest ago.
    Part(Option<u32>),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Target { target, kind: None } => write!(f, "target {target}"),
            Self::Target { target, kind: Some(kind) } => write!(f, "target {target} {kind}"),
            Self::Since(at) => write!(f, "since {at}"),
            Self::Part(None) => f.write_str("part next"),
            Self::Part(Some(part)) => write!(f, "part {part}"),
        }
    }
}

/// An order to check or to rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// What to cover.
    pub scope: Scope,
    /// Whether this is `verify` or `rebuild`.
    pub rebuild: bool,
    /// A rebuild that repairs nothing.
    pub dry_run: bool,
    /// Rows per second instead of the setting; 0: as fast as it goes.
    pub rate: Option<u64>,
    /// Repair however much drift there is. Wants a reason.
    pub confirm: bool,
    /// Who ordered it.
    pub operator: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

impl Order {
    /// `verify` of `scope`: repairs nothing.
    pub fn verify(scope: Scope) -> Self {
        Self { scope, rebuild: false, dry_run: false, rate: None, confirm: false, operator: None, reason: None }
    }

    /// `rebuild` of `scope`.
    pub fn rebuild(scope: Scope) -> Self {
        Self { rebuild: true, ..Self::verify(scope) }
    }

    /// `verify`, `rebuild` or `rebuild --dry-run`.
    pub fn what(&self) -> &'static str {
        match (self.rebuild, self.dry_run) {
            (false, _) => "verify",
            (true, false) => "rebuild",
            (true, true) => "rebuild --dry-run",
        }
    }

    /// Whether it changes anything.
    pub fn mends(&self) -> bool {
        self.rebuild && !self.dry_run
    }
}
