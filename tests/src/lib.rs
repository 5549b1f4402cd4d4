//! Simulation, crash tests and real-input tests.

pub mod server;
