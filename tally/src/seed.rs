//! The one place that asks the operating system for randomness.

use rand::{TryRng, rngs::SysRng};

/// A number that no other process has.
pub fn random_id() -> u64 {
    SysRng.try_next_u64().expect("the operating system always has random numbers")
}
