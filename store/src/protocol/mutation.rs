//! Faults that a test can compile in (feature `mutations`), each a short cut that the design
//! forbids. Without the feature `mutant!` is always false, and compiled away.

/// A forbidden short cut. Those that concern how a commit compares ([`Self::NoCas`],
/// [`Self::HeadOnly`], [`Self::VersionOnly`]) are carried out by the test engine.
#[cfg(feature = "mutations")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A request that finds the wanted state writes nothing.
    SkipNoop,
    /// The same, only where this process landed that state a moment ago.
    SkipSecond,
    /// Hiding and the member's own choice share one register.
    OneRegister,
    /// The sweep does not close slots, ingest does not look.
    NoClose,
    /// Facts are written without a journal.
    NoJournal,
    /// Ledger commits are not conditional.
    NoCas,
    /// The ledger keeps choices but no versions.
    NoVersions,
    /// Commits are conditional on the head, not on the rows that they replace.
    HeadOnly,
    /// They are conditional on the rows' versions, not on what was chosen.
    VersionOnly,
    /// A head older than the rows read beside it is believed.
    RowBlind,
    /// A small target's counter is ordered by its newest version alone.
    MaxRank,
    /// That order leaves out what was chosen.
    BareRank,
    /// A leaf without a head is begun with the members at hand.
    PartialLeaf,
    /// A wrong counter row is repaired without raising its order.
    SameOrder,
    /// A promoted target is shown before its leaves are complete.
    FlagFirst,
    /// A reconcile of a promoted root does not move what it finds there.
    NoForward,
    /// Reconcile writes the counter only after a commit of its own.
    NoFinalPut,
}

#[cfg(feature = "mutations")]
impl Mutation {
    /// All of them, by the names that commands take.
    pub const ALL: [(&'static str, Self); 17] = [
        ("skip-noop", Self::SkipNoop),
        ("skip-second", Self::SkipSecond),
        ("one-register", Self::OneRegister),
        ("no-close", Self::NoClose),
        ("no-journal", Self::NoJournal),
        ("no-cas", Self::NoCas),
        ("no-versions", Self::NoVersions),
        ("head-only", Self::HeadOnly),
        ("version-only", Self::VersionOnly),
        ("row-blind", Self::RowBlind),
        ("max-rank", Self::MaxRank),
        ("bare-rank", Self::BareRank),
        ("partial-leaf", Self::PartialLeaf),
        ("same-order", Self::SameOrder),
        ("flag-first", Self::FlagFirst),
        ("no-forward", Self::NoForward),
        ("no-final-put", Self::NoFinalPut),
    ];
}

/// Whether the fault is switched on: always `false` without the feature.
#[cfg(feature = "mutations")]
macro_rules! mutant {
    ($protocol:expr, $fault:ident) => {
        $protocol.settings.mutation == Some($crate::protocol::Mutation::$fault)
    };
}

#[cfg(not(feature = "mutations"))]
macro_rules! mutant {
    ($protocol:expr, $fault:ident) => {
        $crate::protocol::mutation::never()
    };
}

/// No fault is compiled in.
#[cfg(not(feature = "mutations"))]
pub(super) const fn never() -> bool {
    false
}

pub(super) use mutant;
