//! `tally backup` and `tally restore`: every row of the store at one moment, while it runs.
//!
//! The copy is one snapshot of the store, so it is consistent under traffic and has everything that
//! was answered before it began; what is not counted yet is in its journal, and is counted when the
//! restored store is opened. It travels as frames, from a server or from a data directory that no
//! server has open, and is kept in parts with checksums.

mod folder;
mod frames;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rebuilder::Report;
use serde::{Deserialize, Serialize};
use store::{
    StoreError,
    clock::{Clock, SystemClock},
    embedded::{Embedded, EmbeddedSettings, RowCopy, check_block},
};

pub use folder::{FORMAT, Head, Manifest};
pub use frames::{Frames, Tag, frame};

use crate::{
    cli::{BackupArgs, RestoreArgs},
    client::Client,
    failure::{Failure, OK},
    output::{grouped, print, print_json},
    repair,
    serve::OrderBody,
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

/// What a restore did.
#[derive(Debug, Serialize)]
struct Restored {
    backup: PathBuf,
    data: PathBuf,
    rows: u64,
    started: schema::Micros,
    verify: Report,
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
    loop {
        let (rest, block) = next_block(copy).await;
        copy = rest;
        let Some((block, rows)) = block.map_err(failed)? else { break };
        writer.block(&block, rows)?;
    }
    drop(copy);
    engine.close().await.map_err(failed)?;
    writer.finish()
}

/// Takes the copy that a server sends. A body that ends early has no last frame.
async fn from_server(client: &Client, dir: &Path) -> Result<Manifest, Failure> {
    let mut body = client.stream("/v1/ops/backup").await?;
    let odd = |what: &str| Failure::unreachable(format!("the server's answer is not a backup of this version: {what}"));
    let (mut frames, mut writer, mut seen) = (Frames::default(), None, End { rows: 0, blocks: 0 });
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
                    writer = Some(tokio::task::block_in_place(move || open.block(&bytes, rows).map(|()| open))?);
                }
                (Tag::End, Some(open)) => {
                    let end: End = serde_json::from_slice(&bytes).map_err(|e| odd(&e.to_string()))?;
                    if end != seen || !frames.is_empty() {
                        return Err(odd(&format!("{} rows came, {} were sent", seen.rows, end.rows)));
                    }
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

/// `tally restore`.
pub async fn restore(args: RestoreArgs) -> Result<u8, Failure> {
    let data = &args.dir;
    if !folder::is_free(data)? {
        return Err(Failure::usage(format!("{} is not empty; restore into a new directory", data.display())));
    }
    let manifest = tokio::task::block_in_place(|| folder::check(&args.backup))?;
    write_rows(&args.backup, &manifest, data).await?;
    let flags = [("data".to_owned(), data.display().to_string())];
    let report = repair::offline(&crate::config::Config::from_flags(&flags)?, &OrderBody::default()).await?;
    let code = repair::verdict(&report);
    if args.json {
        let (backup, rows, started) = (args.backup.clone(), manifest.rows, manifest.head.started);
        print_json(&Restored { backup, data: data.clone(), rows, started, verify: report })?;
    } else {
        print(&format!(
            "{}: {} rows restored; everything answered before {} is in it\n{}",
            data.display(),
            grouped(manifest.rows),
            said(manifest.head.started),
            repair::describe(&report)
        ))?;
    }
    Ok(code)
}

/// Writes the rows beside `data` and gives them its name once all are durable: a restore that is cut
/// off leaves nothing under that name.
async fn write_rows(backup: &Path, manifest: &Manifest, data: &Path) -> Result<(), Failure> {
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push(".restoring");
    let place = data.with_file_name(name);
    if place.exists() {
        return Err(Failure::usage(format!("{} was left by a restore that was cut off; remove it", place.display())));
    }
    let io = |e: std::io::Error| Failure::unreachable(format!("cannot write {}: {e}", data.display()));
    let engine = open(&place).await?;
    let mut written = 0;
    for part in &manifest.parts {
        let bytes = fs::read(backup.join(&part.file)).map_err(io)?;
        let mut frames = Frames::default();
        frames.feed(&bytes);
        while let Some((_, block)) = frames.next()? {
            written += engine.put_block(block).await.map_err(failed)?;
        }
        if !frames.is_empty() {
            return Err(Failure::negative(format!(
                "the backup {} is damaged: {} ends in the middle of a block",
                backup.display(),
                part.file
            )));
        }
    }
    engine.close().await.map_err(failed)?;
    drop(engine);
    if written != manifest.rows {
        return Err(Failure::negative(format!(
            "the backup {} is damaged: it holds {written} rows, the manifest says {}",
            backup.display(),
            manifest.rows
        )));
    }
    fs::rename(&place, data).map_err(io)?;
    let parent = data.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(parent).and_then(|d| d.sync_all()).map_err(io)
}
