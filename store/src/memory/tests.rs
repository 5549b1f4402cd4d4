//! The suite on this engine, replicated and fused, without faults.

use std::sync::Arc;

use super::{Faults, Memory};
use crate::Engine;

async fn setup_replicated() -> (Arc<dyn Engine>, String) {
    (Arc::new(Memory::new(1, false, Faults::none())), String::new())
}

async fn setup_fused() -> (Arc<dyn Engine>, String) {
    (Arc::new(Memory::new(2, true, Faults::none())), String::new())
}

crate::conformance!(replicated, setup_replicated);
crate::conformance!(fused, setup_fused);
