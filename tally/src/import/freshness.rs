//! From answer to counted: a few rows are asked about until the server says that they are counted.

use std::{sync::Mutex, sync::PoisonError, time::Duration};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use store::clock::Stopwatch;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::rows::Row;
use crate::client::{Client, segment};

/// Pause between two questions about one row.
const POLL: Duration = Duration::from_millis(2);
/// Pause between two rows, so that questions are a small part of the load.
const REST: Duration = Duration::from_millis(20);
/// A row that is not counted after this time is recorded with it.
const LONGEST: Duration = Duration::from_secs(60);

/// Samples of one import.
pub struct Freshness {
    offers: mpsc::Sender<(Row, Stopwatch)>,
    samples: Mutex<Histogram<u64>>,
}

/// Freshness in figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FreshnessView {
    /// Rows that were asked about.
    pub samples: u64,
    /// Half were counted within this time, in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// All.
    pub max_ms: f64,
}

#[derive(Deserialize)]
struct StateAnswer {
    counted: bool,
}

impl Freshness {
    /// Samples, and where rows come out for [`Self::sample`].
    pub fn new() -> (Self, mpsc::Receiver<(Row, Stopwatch)>) {
        let (offers, rows) = mpsc::channel(1);
        let longest = u64::try_from(LONGEST.as_micros()).expect("a minute");
        let samples = Histogram::new_with_bounds(1, longest * 2, 3).expect("constant bounds are valid");
        (Self { offers, samples: Mutex::new(samples) }, rows)
    }

    /// Takes `row`, just answered, if no other one is being asked about.
    pub fn offer(&self, row: Row) {
        if let Ok(place) = self.offers.try_reserve() {
            place.send((row, Stopwatch::start()));
        }
    }

    /// Asks about offered rows, one after the other, until `end`; the row in hand is finished.
    pub async fn sample(
        &self,
        client: &Client,
        namespace: &str,
        mut rows: mpsc::Receiver<(Row, Stopwatch)>,
        end: &CancellationToken,
    ) {
        loop {
            let next = tokio::select! {
                next = rows.recv() => next,
                () = end.cancelled() => None,
            };
            let Some((row, watch)) = next else { return };
            let path = format!("/v1/{namespace}/targets/{}/{}/{}", segment(&row.target), segment(&row.kind), segment(&row.user));
            // Errors are the workers' business; a sample more or less is nobody's.
            while let Ok(state) = client.get::<StateAnswer>(&path).await {
                let waited = watch.elapsed();
                if state.counted || waited >= LONGEST {
                    let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
                    self.samples.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(micros);
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
            tokio::time::sleep(REST).await;
        }
    }

    /// The figures; `None` without samples.
    pub fn view(&self) -> Option<FreshnessView> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = |micros: u64| f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 1000.0;
        let at = |q: f64| ms(samples.value_at_quantile(q));
        let view = FreshnessView { samples: samples.len(), p50_ms: at(0.5), p99_ms: at(0.99), max_ms: ms(samples.max()) };
        (view.samples > 0).then_some(view)
    }
}
