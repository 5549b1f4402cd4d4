//! The suite on this engine, and what only this engine promises.

mod counted;
mod directory;
mod durability;
mod seen;

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

/// Memtables are written out after nearly every write, so that reads meet files and not memory.
async fn setup_from_files() -> (Arc<dyn Engine>, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let settings = EmbeddedSettings { replay_bytes: 4096, ..EmbeddedSettings::default() };
    let engine = Embedded::open(dir.path(), &settings).expect("a new directory");
    (Arc::new(engine), dir)
}

crate::conformance!(embedded_from_files, setup_from_files);

/// An older, smaller store would otherwise open without a word.
#[tokio::test]
async fn a_store_without_its_journal_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Embedded::open(dir.path(), &EmbeddedSettings::default()).unwrap();
    engine.close().await.unwrap();
    drop(engine);
    for entry in std::fs::read_dir(dir.path().join("rows")).unwrap().flatten() {
        if entry.path().extension().is_some_and(|x| x == "jnl") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let error = Embedded::open(dir.path(), &EmbeddedSettings::default()).unwrap_err();
    assert!(matches!(error, crate::embedded::OpenError::Damaged { .. }), "{error}");
}
