//! Simulation, crash tests and real-input tests.
