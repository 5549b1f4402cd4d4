//! Batches on their way: sent in order by each worker, repeated until answered.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use indicatif::ProgressBar;
use serde::Deserialize;
use store::clock::Stopwatch;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{bad::BadRows, freshness::Freshness, place::Place, rows::Row};
use crate::{
    client::{CallError, Client},
    failure::Failure,
};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Longest that a server's `Retry-After` is believed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Rows of one worker with the lines that they come from.
pub struct Batch {
    /// First line; the batch's name in [`Place`].
    pub first: u64,
    /// Rows.
    pub rows: Vec<(u64, Row)>,
}

/// What became of rows, counted while the import runs.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// New states.
    pub applied: AtomicU64,
    /// It was already so.
    pub unchanged: AtomicU64,
    /// A newer fact was there.
    pub superseded: AtomicU64,
    /// Durable intents that land later.
    pub accepted: AtomicU64,
    /// Refused by the server.
    pub rejected: AtomicU64,
    /// Requests that were sent again.
    pub retries: AtomicU64,
}

impl Outcomes {
    /// Rows that have an answer.
    pub fn answered(&self) -> u64 {
        [&self.applied, &self.unchanged, &self.superseded, &self.accepted, &self.rejected]
            .iter()
            .map(|n| n.load(Ordering::Relaxed))
            .sum()
    }
}

/// Says at once that the server cannot be reached, and when it answers again; once for all workers.
#[derive(Default)]
pub struct Outage(AtomicBool);

impl Outage {
    fn begin(&self, bar: &ProgressBar, error: &CallError, patience: Duration) {
        if let CallError::Away { base, reason } = error
            && !self.0.swap(true, Ordering::Relaxed)
        {
            let seconds = patience.as_secs();
            say(bar, &format!("cannot reach {base} ({reason}); trying again for {seconds}s, end with Ctrl-C"));
        }
    }

    fn end(&self, bar: &ProgressBar) {
        if self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed) {
            say(bar, "the server answers again");
        }
    }
}

/// A line above the bar.
fn say(bar: &ProgressBar, text: &str) {
    bar.suspend(|| eprintln!("tally: {text}"));
}

/// What all workers share.
pub struct Shared {
    /// Whether the server is away, as far as it was told.
    pub outage: Outage,
    /// Lines are written above it.
    pub bar: ProgressBar,
    /// The server.
    pub client: Client,
    /// `/v1/NAMESPACE/facts`.
    pub path: String,
    /// How long the server may be away.
    pub patience: Duration,
    /// Counts.
    pub outcomes: Outcomes,
    /// Rows that are reported.
    pub bad: BadRows,
    /// Up to where.
    pub place: Place,
    /// From answer to counted.
    pub freshness: Freshness,
    /// Set by whoever finds that the import cannot go on.
    pub stop: CancellationToken,
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    outcome: String,
    #[serde(default)]
    problem: Option<Detail>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Detail {
    title: String,
    detail: String,
}

/// Sends batches until there are no more, or the import stops.
pub async fn work(shared: Arc<Shared>, mut batches: mpsc::Receiver<Batch>) -> Result<(), Failure> {
    while let Some(batch) = batches.recv().await {
        if shared.stop.is_cancelled() {
            return Ok(());
        }
        let first = batch.first;
        if let Err(failure) = send(&shared, batch.rows).await {
            shared.stop.cancel();
            return Err(failure);
        }
        shared.place.end(first);
    }
    Ok(())
}

/// One batch, to the last answer.
async fn send(shared: &Shared, mut rows: Vec<(u64, Row)>) -> Result<(), Failure> {
    let mut pause = FIRST_PAUSE;
    let mut away: Option<Stopwatch> = None;
    loop {
        let body = serde_json::json!({ "facts": rows.iter().map(|(_, row)| row).collect::<Vec<_>>() });
        let answer = shared.client.post_bytes::<Results>(&shared.path, Bytes::from(body.to_string())).await;
        let (reason, wait) = match answer {
            Ok(Results { results }) if results.len() != rows.len() => {
                return Err(Failure::unreachable(format!(
                    "the server answered {} results for {} rows",
                    results.len(),
                    rows.len()
                )));
            }
            Ok(Results { results }) => {
                shared.outage.end(&shared.bar);
                let before = rows.len();
                rows = book(shared, rows, results)?;
                if rows.is_empty() {
                    return Ok(());
                }
                if rows.len() < before {
                    (away, pause) = (None, FIRST_PAUSE); // It goes on, if slowly.
                }
                ("the store is not available".to_owned(), None)
            }
            Err(error) if error.is_transient() => {
                shared.outage.begin(&shared.bar, &error, shared.patience);
                (error.to_string(), error.retry_after())
            }
            Err(error) => return Err(error.into()),
        };
        let since = *away.get_or_insert_with(Stopwatch::start);
        if since.elapsed() >= shared.patience {
            let done = shared.place.done();
            return Err(Failure::unreachable(format!(
                "gave up after {}s: {reason}; everything up to line {done} is in, run the same import again to go on",
                shared.patience.as_secs()
            )));
        }
        shared.outcomes.retries.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(wait.unwrap_or(pause).min(MAX_RETRY_AFTER)).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Counts what is answered; returns the rows to send again.
fn book(shared: &Shared, rows: Vec<(u64, Row)>, results: Vec<Item>) -> Result<Vec<(u64, Row)>, Failure> {
    let outcomes = &shared.outcomes;
    let mut again = Vec::new();
    for ((line, row), item) in rows.into_iter().zip(results) {
        let counter = match item.outcome.as_str() {
            "applied" => &outcomes.applied,
            "unchanged" => &outcomes.unchanged,
            "superseded" => &outcomes.superseded,
            "accepted" => &outcomes.accepted,
            "rejected" => {
                let why = item.problem.unwrap_or_default();
                let why = if why.detail.is_empty() { why.title } else { why.detail };
                outcomes.rejected.fetch_add(1, Ordering::Relaxed);
                shared.bad.report(line, &format!("refused by the server: {why}"))?;
                continue;
            }
            "unavailable" | "unknown" => {
                again.push((line, row));
                continue;
            }
            other => {
                return Err(Failure::unreachable(format!("the server answered the outcome `{other}`; upgrade this command")));
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if matches!(item.outcome.as_str(), "applied" | "unchanged") {
            shared.freshness.offer(row);
        }
    }
    Ok(again)
}
