//! Row-level engines, and the counting protocol written once above them.
//!
//! [`engine`] says what an engine must do; [`memory`] is one for tests, with injected faults;
//! [`embedded`] is the default, on fjall. [`protocol`] has the five verbs: write, reconcile,
//! promote, audit, sweep. Nothing here knows of HTTP, queues of requests, or configuration files.

pub mod bus;
pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod embedded;
pub mod engine;
pub mod memory;
pub mod protocol;
pub mod switch;

pub use engine::{Engine, StoreError, StoreResult};
pub use protocol::{Protocol, Settings};
