//! What is under way when a kill falls.

use std::time::Duration;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// What a kill is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aim {
    /// The server, before it is ready.
    StartUp,
    /// The server under likes and unlikes.
    Traffic,
    /// The server while a target crosses the number of facts that makes it large.
    Promotion,
    /// The server under an import, which then goes on by itself.
    ImportServer,
    /// The importing process, which is then run again.
    ImportClient,
    /// The server in a verify, which reads facts, ledgers and counters and repairs nothing.
    Verify,
    /// The server under an order to hide members or to undo that, or in the run that carries it out.
    Hide,
    /// The server under changes of statuses, each of which leaves an entry in the operators' audit log.
    Audit,
    /// The server in a rebuild. Only in worlds of their own: a rebuild would hide what others left.
    Rebuild,
}

impl Aim {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::StartUp,
        Self::Traffic,
        Self::Promotion,
        Self::ImportServer,
        Self::ImportClient,
        Self::Verify,
        Self::Hide,
        Self::Audit,
        Self::Rebuild,
    ];
    /// Aims of a world in which nothing may ever be repaired.
    const PLAIN: [Self; 8] = [
        Self::StartUp,
        Self::Traffic,
        Self::Promotion,
        Self::ImportServer,
        Self::ImportClient,
        Self::Verify,
        Self::Hide,
        Self::Audit,
    ];
    /// Aims of a world with rebuilds.
    const MENDING: [Self; 4] = [Self::Rebuild, Self::Rebuild, Self::Traffic, Self::Promotion];

    /// The next aim of a world.
    pub fn draw(rng: &mut ChaCha8Rng, mending: bool) -> Self {
        let aims: &[Self] = if mending { &Self::MENDING } else { &Self::PLAIN };
        aims[rng.random_range(0..aims.len())]
    }

    /// How long after its beginning the kill falls.
    pub fn delay(self, rng: &mut ChaCha8Rng) -> Duration {
        // About as long as each takes on a slow machine, so that some fall behind its end.
        let longest = match self {
            Self::StartUp => 60_000,
            Self::Traffic => 250_000,
            Self::Promotion => 40_000,
            Self::ImportServer | Self::ImportClient | Self::Audit => 150_000,
            Self::Verify | Self::Rebuild | Self::Hide => 120_000,
        };
        Duration::from_micros(rng.random_range(0..longest))
    }
}
