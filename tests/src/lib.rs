//! Simulation, crash tests and real-input tests.

pub mod directed;
pub mod kills;
pub mod scenario;
pub mod server;
pub mod sim;
pub mod traffic;
