//! The suite on this engine, and what only this engine promises.

use std::sync::Arc;

use crate::{
    Engine,
    embedded::{Embedded, EmbeddedSettings},
};

async fn setup_embedded() -> (Arc<dyn Engine>, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let engine = Embedded::open(dir.path(), &EmbeddedSettings::default()).expect("a new directory");
    (Arc::new(engine), dir)
}

crate::conformance!(embedded, setup_embedded);
