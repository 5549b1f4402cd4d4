//! Runs that hide or show: ordered, queued, carried out one at a time.

mod execute;
mod order;

pub use order::Order;
