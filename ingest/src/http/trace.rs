//! Following a request from outside: its trace id in the answer and in log lines, and one line for each
//! request that failed or was slow.
//!
//! A request that is not followed and goes well costs one look at its head: no id is made, nothing is
//! allocated. Ids are made when an answer needs one.

use std::{
    collections::hash_map::RandomState,
    convert::Infallible,
    hash::BuildHasher,
    num::{NonZeroU64, NonZeroU128},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, HeaderValue, Method, request::Parts},
    response::Response,
};
use schema::{TRACE_LOG, TraceId, TraceParent};
use store::clock::Stopwatch;

/// Most lines on failed and slow requests in a second: an overload must not fill the disk with them.
const LINES_A_SECOND: u32 = 20;

static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// What is known of a request's trace when it begins.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    parent: Option<TraceParent>,
    watch: Stopwatch,
}

/// The trace of a request that is followed to its commit; handlers take it as an argument.
#[derive(Clone, Copy)]
pub(super) struct Followed(pub Option<TraceId>);

/// Why a request failed, for the log line; among the extensions of an answer.
#[derive(Clone)]
pub(super) struct Reason {
    pub problem: String,
    pub detail: String,
}

/// What answers and log lines need of all requests.
pub(super) struct Tracing {
    /// Zero: no request is slow.
    slow: Duration,
    keys: RandomState,
    made: AtomicU64,
    lines: Lines,
}

impl Begun {
    /// Reads the head. A `traceparent` that is malformed, or there twice, is as none.
    pub fn of(headers: &HeaderMap) -> Self {
        let watch = Stopwatch::start();
        let mut all = headers.get_all(&TRACE_PARENT).iter();
        let parent = match (all.next(), all.next()) {
            (Some(one), None) => TraceParent::parse(one.as_bytes()),
            _ => None,
        };
        Self { parent, watch }
    }

    /// The id, if the caller records this trace and somebody reads what is logged of it.
    pub fn followed(&self) -> Option<TraceId> {
        let sampled = self.parent.filter(|p| p.sampled)?;
        tracing::enabled!(target: TRACE_LOG, tracing::Level::DEBUG).then_some(sampled.id)
    }

    pub fn elapsed(&self) -> Duration {
        self.watch.elapsed()
    }
}

impl Tracing {
    pub fn new(slow: Duration) -> Self {
        Self { slow, keys: RandomState::new(), made: AtomicU64::new(0), lines: Lines::default() }
    }

    /// The last step of every request: an answer that somebody may ask about says its trace id, and a line
    /// of the log says the same id. `route` is the template, never the path.
    pub fn end(&self, begun: Begun, method: &Method, route: &str, answer: &mut Response) {
        let (status, elapsed) = (answer.status(), begun.elapsed());
        let slow = !self.slow.is_zero() && elapsed >= self.slow;
        let sampled = begun.parent.is_some_and(|p| p.sampled);
        if status.as_u16() < 400 && !slow && !sampled {
            return;
        }
        let id = begun.parent.map_or_else(|| self.new_id(), |p| p.id);
        let followed = begun.followed().is_some();
        let ours = TraceParent { id, parent: NonZeroU64::MIN | self.random(), sampled: followed };
        let value = HeaderValue::from_str(&ours.to_string()).expect("hexadecimal digits");
        answer.headers_mut().insert(TRACE_RESPONSE.clone(), value);
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        if followed {
            tracing::debug!(target: TRACE_LOG, trace_id = %id, %method, route, status = status.as_u16(), ms, "answered");
        }
        // Not to be ready is an answer like any other: it is asked for again and again.
        let failed = status.is_server_error() && route != super::READY;
        if !failed && !slow {
            return;
        }
        let Some(left_out) = self.lines.room(self.lines.watch.elapsed().as_secs()) else { return };
        let what = if failed { "request failed" } else { "slow request" };
        let status = status.as_u16();
        match answer.extensions().get::<Reason>() {
            Some(Reason { problem, detail }) => {
                tracing::warn!(trace_id = %id, %method, route, status, ms, problem, detail, left_out, "{what}");
            }
            None => tracing::warn!(trace_id = %id, %method, route, status, ms, left_out, "{what}"),
        }
    }

    /// A new random id: a keyed hash, with keys from the system, of a number that was never used.
    fn new_id(&self) -> TraceId {
        let random = u128::from(self.random()) << 64 | u128::from(self.random());
        TraceId(NonZeroU128::MIN | random)
    }

    fn random(&self) -> u64 {
        self.keys.hash_one(self.made.fetch_add(1, Ordering::Relaxed))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Followed {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get::<TraceId>().copied()))
    }
}

/// Bounds the lines of a second.
struct Lines {
    watch: Stopwatch,
    state: Mutex<Second>,
}

#[derive(Default)]
struct Second {
    number: u64,
    lines: u32,
    left_out: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { watch: Stopwatch::start(), state: Mutex::default() }
    }
}

impl Lines {
    /// `Some`: a line may be written, after so many that were left out.
    fn room(&self, second: u64) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.number != second {
            (state.number, state.lines) = (second, 0);
        }
        if state.lines >= LINES_A_SECOND {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_second_are_bounded_and_the_next_one_says_how_many_are_missing() {
        let lines = Lines::default();
        let said: Vec<_> = (0..25).map(|_| lines.room(7)).collect();
        assert_eq!(said.iter().filter(|s| **s == Some(0)).count(), 20);
        assert_eq!(said[20..], [None; 5]);
        assert_eq!((lines.room(8), lines.room(8)), (Some(5), Some(0)));
    }

    #[test]
    fn ids_that_are_made_differ() {
        let tracing = Tracing::new(Duration::ZERO);
        let ids: std::collections::BTreeSet<_> = (0..10_000).map(|_| tracing.new_id()).collect();
        assert_eq!(ids.len(), 10_000);
    }

    #[test]
    fn a_header_that_is_there_twice_is_none() {
        let value = HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let mut headers = HeaderMap::new();
        headers.append(&TRACE_PARENT, value.clone());
        assert!(Begun::of(&headers).parent.is_some());
        headers.append(&TRACE_PARENT, value);
        assert!(Begun::of(&headers).parent.is_none());
    }
}
