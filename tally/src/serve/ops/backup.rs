//! `GET /v1/ops/backup`: every row as of now, as frames, as fast as the caller takes them.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use ingest::http::{Problem, QueryParams};
use store::embedded::RowCopy;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::OpsApi;
use crate::backup::{End, Head, Tag, frame, head, next_block};

/// Blocks that are read ahead of the caller.
const AHEAD: usize = 2;
/// How long a caller may take for one block before the copy is given up: the store keeps old rows
/// for as long as one lasts.
const STALL: Duration = Duration::from_secs(60);

pub(super) async fn backup(State(api): State<OpsApi>, query: QueryParams) -> Result<Response, Problem> {
    query.only(&[])?;
    let ops = api.ops()?;
    let turn = ops.copies.clone().try_acquire_owned();
    let turn = turn.map_err(|_| Problem::no_capacity("another backup is being taken"))?;
    let head = head(&**ops.protocol.clock());
    let copy = ops.engine.copy()?;
    let (out, mut blocks) = mpsc::channel(AHEAD);
    tokio::spawn(send(copy, head, out, turn));
    let body = Body::from_stream(futures::stream::poll_fn(move |context| blocks.poll_recv(context)));
    Ok(([(header::CONTENT_TYPE, "application/vnd.tally.backup")], body).into_response())
}

type Piece = Result<Bytes, std::io::Error>;

async fn send(copy: RowCopy, head: Head, out: mpsc::Sender<Piece>, turn: OwnedSemaphorePermit) {
    let started = head.started;
    match send_all(copy, head, &out).await {
        Ok(end) => tracing::info!(rows = end.rows, blocks = end.blocks, started, "a backup was sent"),
        Err(why) => {
            tracing::warn!(%why, "a backup was cut off");
            // Makes the body end as broken, where somebody still reads it.
            drop(out.try_send(Err(std::io::Error::other(why))));
        }
    }
    drop(turn);
}

async fn send_all(mut copy: RowCopy, head: Head, out: &mpsc::Sender<Piece>) -> Result<End, String> {
    let json = |value: serde_json::Result<Vec<u8>>| value.expect("numbers and texts always serialise");
    put(out, frame(Tag::Head, &json(serde_json::to_vec(&head)))).await?;
    let mut end = End { rows: 0, blocks: 0 };
    loop {
        let (rest, block) = next_block(copy).await;
        copy = rest;
        let Some((block, rows)) = block.map_err(|e| e.to_string())? else { break };
        (end.rows, end.blocks) = (end.rows + rows, end.blocks + 1);
        put(out, frame(Tag::Block, &block)).await?;
    }
    drop(copy);
    put(out, frame(Tag::End, &json(serde_json::to_vec(&end)))).await?;
    Ok(end)
}

async fn put(out: &mpsc::Sender<Piece>, bytes: Vec<u8>) -> Result<(), String> {
    match tokio::time::timeout(STALL, out.send(Ok(bytes.into()))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("the caller has gone".to_owned()),
        Err(_) => Err(format!("the caller took nothing for {STALL:?}")),
    }
}
