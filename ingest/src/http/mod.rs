//! The HTTP API: handlers parse, call once, map. Every error is a problem document (RFC 9457).

mod facts;
mod lists;
mod problem;
mod read;
mod request;
mod write;

use std::sync::{Arc, OnceLock};

use axum::{
    Json, Router,
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use prometheus::{Registry, TextEncoder};
use serde::Serialize;
use store::{clock::Stopwatch, protocol::Outcome};
use tokio::sync::Semaphore;

pub use problem::Problem;
pub use request::{JsonBody, MAX_BODY_BYTES, PathIds, QueryParams};

use crate::{Ingest, IngestSettings, metrics::HttpMetrics};

const STATE: &str = "/v1/{namespace}/targets/{target}/{kind}/{member}";
const TARGET: &str = "/v1/{namespace}/targets/{target}";
const MEMBERS: &str = "/v1/{namespace}/targets/{target}/{kind}";
const USER: &str = "/v1/{namespace}/users/{user}/{kind}";
const COUNTS: &str = "/v1/{namespace}/counts";
const FACTS: &str = "/v1/{namespace}/facts";
/// Label of requests that match no route of this module.
const OTHER: &str = "other";

/// Route templates, as metric labels.
pub(crate) const ROUTES: [&str; 7] = [STATE, TARGET, MEMBERS, USER, COUNTS, FACTS, OTHER];

/// What the routes share. It exists before the store is open; [`Self::open`] fills it.
#[derive(Clone)]
pub struct Api {
    ingest: Arc<OnceLock<Ingest>>,
    registry: Registry,
    metrics: HttpMetrics,
    room: Arc<Semaphore>,
    settings: IngestSettings,
}

impl Api {
    /// An API whose store is not open yet: `/readyz` and all `/v1` routes answer 503.
    pub fn new(registry: Registry, settings: IngestSettings) -> prometheus::Result<Self> {
        let metrics = HttpMetrics::default();
        metrics.register(&registry)?;
        let room = Arc::new(Semaphore::new(settings.requests.max(1)));
        Ok(Self { ingest: Arc::default(), registry, metrics, room, settings })
    }

    /// The store is open and recovered: answer from now on. The first call counts.
    pub fn open(&self, ingest: Ingest) {
        let _ = self.ingest.set(ingest);
    }

    /// The ingest role, once the store is open.
    pub fn ingest(&self) -> Result<&Ingest, Problem> {
        self.ingest.get().ok_or_else(|| Problem::not_ready("the store is being opened; ask /readyz, and try again"))
    }
}

/// All routes of ingest, `/healthz`, `/readyz` and `/metrics`. `more` are routes of other roles that
/// get the same limits, metrics and error documents.
pub fn router(api: Api, more: Router<Api>) -> Router {
    Router::new()
        .route(STATE, put(write::put).delete(write::delete).get(read::state))
        .route(TARGET, get(read::target))
        .route(MEMBERS, get(lists::members))
        .route(USER, get(lists::user))
        .route(COUNTS, post(read::counts))
        .route(FACTS, post(facts::post))
        .merge(more)
        .layer(from_fn_with_state(api.clone(), admit))
        .route("/healthz", get(async || Json(Health { status: "ok" })))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(async || {
            Problem::new(StatusCode::NOT_FOUND, "no-route", "there is no such route; see the README for all of them")
        })
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this route does not take that method")
        })
        .with_state(api)
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

async fn ready(State(api): State<Api>) -> Result<Json<Health>, Problem> {
    // One small read: a store that has stopped (a full disk) is not ready, though it was opened.
    api.ingest()?.complete_until().await?;
    Ok(Json(Health { status: "ready" }))
}

async fn metrics(State(api): State<Api>) -> Response {
    match TextEncoder::new().encode_to_string(&api.registry.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "metrics", &error.to_string()).into_response(),
    }
}

/// Limits before work, and one line of metrics for each answer.
async fn admit(State(api): State<Api>, route: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let watch = Stopwatch::start();
    let open = api.ingest.get().map_or(Ok(()), |ingest| ingest.gate().admits());
    let answer = match (open, api.room.try_acquire()) {
        (Err(refused), _) => Problem::from(refused).into_response(),
        (Ok(()), Err(_)) => Problem::no_capacity("too many requests are being handled").into_response(),
        (Ok(()), Ok(_permit)) => match tokio::time::timeout(api.settings.request_timeout, next.run(request)).await {
            Ok(answer) => answer,
            Err(_) => Problem::unknown("the request took too long; whether it was carried out is not known").into_response(),
        },
    };
    let route = route.as_ref().map_or(OTHER, MatchedPath::as_str);
    let route = ROUTES.into_iter().find(|r| *r == route).unwrap_or(OTHER);
    let class = match answer.status().as_u16() {
        429 => "429",
        400..=499 => "4xx",
        500.. => "5xx",
        _ => "2xx",
    };
    api.metrics.requests.with_label_values(&[route, class]).inc();
    api.metrics.seconds.with_label_values(&[route]).observe(watch.elapsed().as_secs_f64());
    answer
}

/// The word that answers use for an outcome.
pub(crate) fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Applied => "applied",
        Outcome::Unchanged => "unchanged",
        Outcome::Superseded => "superseded",
        Outcome::Accepted => "accepted",
        Outcome::Unavailable(_) => "unavailable",
        Outcome::Unknown(_) => "unknown",
        Outcome::Refused(_) => "rejected",
    }
}

/// Seconds until a retry may help, for `Retry-After`.
fn retry_after() -> HeaderValue {
    HeaderValue::from_static("1")
}
