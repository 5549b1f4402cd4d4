//! Simulation, crash tests and real-input tests.

pub mod directed;
pub mod server;
pub mod sim;
