//! Simulation, crash tests and real-input tests.

pub mod directed;
<<<<<<< HEAD
pub mod kills;
=======
pub mod scenario;
>>>>>>> a109913 (Scenarios that counters have met in the field, tried on Tally, with one set of oracles)
pub mod server;
pub mod sim;
pub mod traffic;
