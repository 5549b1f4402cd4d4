//! `tally backup` and `tally restore`: every row of the store at one moment, while it runs.
//!
//! The copy is one snapshot of the store, so it is consistent under traffic and has everything that
//! was answered before it began; what is not counted yet is in its journal, and is counted when the
//! restored store is opened. It travels as frames, from a server or from a data directory that no
//! server has open, and is kept in parts with checksums.

mod folder;
mod frames;
mod restore;

use std::{path::Path, sync::Arc};

use serde::{Deserialize, Serialize};
use store::{
    StoreError,
    clock::{Clock, SystemClock},
    embedded::{Embedded, EmbeddedSettings, RowCopy, check_block},
};

pub use folder::{FORMAT, Head, Manifest};
pub use frames::{Frames, Tag, frame};
pub use restore::restore;

use crate::{
    cli::BackupArgs,
    client::Client,
    failure::{Failure, OK},
    output::{grouped, print, print_json},
    progress::Shown,
    times::said,
};

/// Totals of a copy; its last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Rows of all blocks.
    pub rows: u64,
    /// Blocks.
    pub blocks: u64,
}

/// The next block of a copy, read where that may block.
pub async fn next_block(copy: RowCopy) -> (RowCopy, Result<Option<(Vec<u8>, u64)>, StoreError>) {
    let read = tokio::task::spawn_blocking(move || {
        let mut copy = copy;
        let block = copy.next_block();
        (copy, block)
    });
    read.await.expect("a panic has ended the process before")
}

/// What a copy that begins now is headed by.
pub fn head(clock: &dyn Clock) -> Head {
    Head { format: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned(), started: clock.now() }
}

fn failed(error: StoreError) -> Failure {
    Failure::unreachable(error.to_string())
}

/// `tally backup`.
pub async fn backup(args: BackupArgs) -> Result<u8, Failure> {
    if !folder::is_free(&args.dir)? {
        return Err(Failure::usage(format!("{} is not empty; name a new directory for the backup", args.dir.display())));
    }
    let manifest = match &args.data {
        Some(data) => from_directory(data, &args.dir).await?,
        None => {
            let url = args.url.as_deref().unwrap_or("http://127.0.0.1:8080");
            from_server(&Client::new(url, 1)?, &args.dir).await?
        }
    };
    if args.json {
        print_json(&manifest)?;
    } else {
        print(&format!(
            "{}: {} rows, {} bytes in {} files; everything answered before {} is in it\n",
            args.dir.display(),
            grouped(manifest.rows),
            grouped(manifest.bytes),
            manifest.parts.len() + 2,
            said(manifest.head.started)
        ))?;
    }
    Ok(OK)
}

/// Opens the directory here, which locks it.
async fn from_directory(data: &Path, dir: &Path) -> Result<Manifest, Failure> {
    if !data.is_dir() {
        return Err(Failure::unreachable(format!("there is no data directory {}", data.display())));
    }
    let engine = open(data).await?;
    if engine.is_empty().map_err(failed)? {
        return Err(Failure::unreachable(format!("{} holds no data yet; start `tally serve` on it", data.display())));
    }
    let mut writer = folder::Writer::create(dir, head(&SystemClock::starting_at(0)))?;
    let mut copy = engine.copy().map_err(failed)?;
    let (mut shown, mut seen) = (Shown::new(None), Copied::default());
    loop {
        let (rest, block) = next_block(copy).await;
        copy = rest;
        let Some((block, rows)) = block.map_err(failed)? else { break };
        writer.block(&block, rows)?;
        seen.add(&mut shown, block.len(), rows);
    }
    shown.end();
    drop(copy);
    engine.close().await.map_err(failed)?;
    writer.finish()
}

/// How far a copy is.
#[derive(Default)]
struct Copied {
    rows: u64,
    bytes: u64,
}

impl Copied {
    fn add(&mut self, shown: &mut Shown, bytes: usize, rows: u64) {
        self.rows += rows;
        self.bytes += bytes as u64;
        shown.update(self.bytes, || format!("{} rows, {} bytes copied", grouped(self.rows), grouped(self.bytes)));
    }
}

/// Takes the copy that a server sends. A body that ends early has no last frame.
async fn from_server(client: &Client, dir: &Path) -> Result<Manifest, Failure> {
    let mut body = client.stream("/v1/ops/backup").await?;
    let odd = |what: &str| Failure::unreachable(format!("the server's answer is not a backup of this version: {what}"));
    let (mut frames, mut writer, mut seen) = (Frames::default(), None, End { rows: 0, blocks: 0 });
    let (mut shown, mut copied) = (Shown::new(None), Copied::default());
    while let Some(bytes) = body.next().await? {
        frames.feed(&bytes);
        while let Some((tag, bytes)) = frames.next()? {
            match (tag, writer.take()) {
                (Tag::Head, None) => {
                    let head: Head = serde_json::from_slice(&bytes).map_err(|e| odd(&e.to_string()))?;
                    if head.format != FORMAT {
                        return Err(odd(&format!("it has format {}", head.format)));
                    }
                    writer = Some(folder::Writer::create(dir, head)?);
                }
                (Tag::Block, Some(mut open)) => {
                    let rows = check_block(&bytes).map_err(|e| odd(&e.to_string()))?;
                    (seen.rows, seen.blocks) = (seen.rows + rows, seen.blocks + 1);
                    copied.add(&mut shown, bytes.len(), rows);
                    writer = Some(tokio::task::block_in_place(move || open.block(&bytes, rows).map(|()| open))?);
                }
                (Tag::End, Some(open)) => {
                    let end: End = serde_json::from_slice(&bytes).map_err(|e| odd(&e.to_string()))?;
                    if end != seen || !frames.is_empty() {
                        return Err(odd(&format!("{} rows came, {} were sent", seen.rows, end.rows)));
                    }
                    shown.end();
                    return open.finish();
                }
                _ => return Err(odd("its parts are out of order")),
            }
        }
    }
    Err(Failure::unreachable(format!(
        "the server ended the copy early, so {} is no backup; see the server's log, remove the directory, and try again",
        dir.display()
    )))
}

async fn open(data: &Path) -> Result<Arc<Embedded>, Failure> {
    let path = data.to_owned();
    let opened = tokio::task::spawn_blocking(move || Embedded::open(path, &EmbeddedSettings::default())).await;
    Ok(Arc::new(opened.expect("a panic has ended the process before").map_err(|e| Failure::unreachable(e.to_string()))?))
}
