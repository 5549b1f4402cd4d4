//! Runs that hide or show: ordered, queued, carried out one at a time.

mod execute;
mod order;
mod retain;

pub use order::Order;
