//! The protocol under random interleavings, deaths, pauses and lost writes, all from one seed.
//!
//! [`executor`] owns scheduling and time, [`ops`] says what happens, [`world`] is a deployment of
//! two processes over the faulty engine in memory, [`checks`] holds it to the design's invariants,
//! [`run`](mod@run) puts them together.

pub mod checks;
pub mod executor;
pub mod many;
pub mod ops;
pub mod run;
pub mod shrink;
pub mod world;
