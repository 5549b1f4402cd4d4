//! The HTTP API: handlers parse, call once, map. Every error is a problem document (RFC 9457).

mod auth;
mod facts;
mod json;
mod limits;
mod lists;
mod problem;
mod read;
mod request;
mod trace;
mod write;

use std::sync::{Arc, OnceLock};

use axum::{
    Json, Router,
    extract::{MatchedPath, Request, State},
    handler::Handler,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use prometheus::{Registry, TextEncoder};
use serde::Serialize;
use store::protocol::Outcome;
use tokio::sync::Semaphore;

pub use auth::{Access, Authority, Caller, Namespaces, Open, Role, Roles, Scope};
pub use problem::Problem;
pub use request::{JsonBody, MAX_BODY_BYTES, PathIds, QueryParams};

use auth::{RouteEntry, RouteTable};
use governor::clock::DefaultClock;
use limits::Limits;
pub use limits::{Rate, Rates};
use trace::{Begun, Tracing};

use crate::{Ingest, IngestSettings, metrics::HttpMetrics};

const STATE: &str = "/v1/{namespace}/targets/{target}/{kind}/{member}";
const TARGET: &str = "/v1/{namespace}/targets/{target}";
const MEMBERS: &str = "/v1/{namespace}/targets/{target}/{kind}";
const USER: &str = "/v1/{namespace}/users/{user}/{kind}";
const COUNTS: &str = "/v1/{namespace}/counts";
const FACTS: &str = "/v1/{namespace}/facts";
/// Whether the store is open and answers.
const READY: &str = "/readyz";
/// Label of requests that match no route of this module.
const OTHER: &str = "other";

/// Who may ask what, of the routes of this module.
pub const ACCESS: [Access; 8] = [
    Access::new(Method::GET, STATE, &[Role::Read], Scope::Path),
    Access::new(Method::PUT, STATE, &[Role::Write], Scope::Path),
    Access::new(Method::DELETE, STATE, &[Role::Write], Scope::Path),
    Access::new(Method::GET, TARGET, &[Role::Read], Scope::Path),
    Access::new(Method::GET, MEMBERS, &[Role::Read], Scope::Path),
    Access::new(Method::GET, USER, &[Role::Read], Scope::Path),
    Access::new(Method::POST, COUNTS, &[Role::Read], Scope::Path),
    // Facts with a time of their own need `operate`, others `write`: the handler looks.
    Access::new(Method::POST, FACTS, &[Role::Write, Role::Operate], Scope::Path),
];

/// What the routes share. It exists before the store is open; [`Self::open`] fills it.
#[derive(Clone)]
pub struct Api {
    ingest: Arc<OnceLock<Ingest>>,
    registry: Registry,
    metrics: HttpMetrics,
    room: Arc<Semaphore>,
    settings: IngestSettings,
    authority: Arc<dyn Authority>,
    /// `/metrics` is for everybody.
    open_metrics: bool,
    table: Arc<RouteTable>,
    limits: Arc<Limits>,
    tracing: Arc<Tracing>,
}

impl Api {
    /// An API whose store is not open yet: `/readyz` and all `/v1` routes answer 503. Everybody may do
    /// everything, until [`Self::authority`] says otherwise.
    pub fn new(registry: Registry, settings: IngestSettings) -> prometheus::Result<Self> {
        let metrics = HttpMetrics::default();
        metrics.register(&registry)?;
        let room = Arc::new(Semaphore::new(settings.requests.max(1)));
        let table = Arc::new(RouteTable::new(&ACCESS, &metrics));
        let authority = Arc::new(Open::default());
        let limits = Arc::new(Limits::new(settings.rates, DefaultClock::default(), &metrics));
        let tracing = Arc::new(Tracing::new(settings.slow_request));
        let (ingest, open_metrics) = (Arc::default(), false);
        Ok(Self { ingest, registry, metrics, room, settings, authority, open_metrics, table, limits, tracing })
    }

    /// Asks `authority` who a caller is; `open_metrics`: whether `/metrics` is for everybody all the same.
    #[must_use]
    pub fn authority(mut self, authority: Arc<dyn Authority>, open_metrics: bool) -> Self {
        (self.authority, self.open_metrics) = (authority, open_metrics);
        self
    }

    /// Who may ask what, of the routes of other roles that are given to [`router`].
    #[must_use]
    pub fn access(mut self, more: &[Access]) -> Self {
        self.table = Arc::new(RouteTable::new(ACCESS.iter().chain(more), &self.metrics));
        self
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
/// get the same checks, limits, metrics and error documents; who may ask them says [`Api::access`].
pub fn router(api: Api, more: Router<Api>) -> Router {
    let seen = from_fn_with_state(api.clone(), traced);
    let plain = Router::new()
        .route("/healthz", get(async || Json(Health { status: "ok" })))
        .route(READY, get(ready))
        .route("/metrics", get(metrics))
        .layer(seen.clone());
    Router::new()
        .route(STATE, put(write::put).delete(write::delete).get(read::state))
        .route(TARGET, get(read::target))
        .route(MEMBERS, get(lists::members))
        .route(USER, get(lists::user))
        .route(COUNTS, post(read::counts))
        .route(FACTS, post(facts::post))
        .merge(more)
        .layer(from_fn_with_state(api.clone(), admit))
        .merge(plain)
        .fallback(no_route.layer(seen.clone()))
        .method_not_allowed_fallback(no_method.layer(seen))
        .with_state(api)
}

async fn no_route() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no-route", "there is no such route; see the README for all of them")
}

async fn no_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this route does not take that method")
}

/// What [`admit`] does of traces, for everything that does not go through it.
async fn traced(State(api): State<Api>, route: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let (begun, method) = (Begun::of(request.headers()), request.method().clone());
    let mut answer = next.run(request).await;
    api.tracing.end(begun, &method, route.as_ref().map_or(OTHER, MatchedPath::as_str), &mut answer);
    answer
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

async fn ready(State(api): State<Api>) -> Result<Json<Health>, Problem> {
    // One small read, not from memory: a store that has stopped (a full disk) is not ready, though it was opened.
    api.ingest()?.protocol().complete_until().await?;
    Ok(Json(Health { status: "ready" }))
}

async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    if !api.open_metrics {
        api.authority.caller(auth::bearer(&headers)).ok_or_else(Problem::unauthorized)?.has(&[Role::Read])?;
    }
    let failed = |e: prometheus::Error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "metrics", &e.to_string());
    let text = TextEncoder::new().encode_to_string(&api.registry.gather()).map_err(failed)?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}

/// The one way in: limits before work, then who asks and whether they may; a line of metrics for
/// each answer.
async fn admit(State(api): State<Api>, route: Option<MatchedPath>, mut request: Request, next: Next) -> Response {
    let (begun, method) = (Begun::of(request.headers()), request.method().clone());
    if let Some(followed) = begun.followed() {
        request.extensions_mut().insert(followed);
    }
    let route = route.as_ref().map(MatchedPath::as_str);
    let entry = api.table.get(route);
    let mut answer = match admitted(&api, entry, request, next).await {
        Ok(answer) => answer,
        Err(problem) => problem.into_response(),
    };
    entry.observe(answer.status(), begun.elapsed());
    api.tracing.end(begun, &method, route.unwrap_or(OTHER), &mut answer);
    answer
}

async fn admitted(api: &Api, entry: &RouteEntry, mut request: Request, next: Next) -> Result<Response, Problem> {
    let _permit = api.room.try_acquire().map_err(|_| {
        api.metrics.limited.with_label_values(&["requests"]).inc();
        Problem::no_capacity("too many requests are being handled")
    })?;
    let caller = api.authority.caller(auth::bearer(request.headers())).ok_or_else(Problem::unauthorized)?;
    let access = entry.access(request.method())?;
    access.check(&caller, request.uri().path())?;
    if let Some(ingest) = api.ingest.get().filter(|_| !access.route.starts_with("/v1/ops/")) {
        ingest.gate().admits()?;
    }
    api.limits.key(&caller.name, 1)?;
    request.extensions_mut().insert(caller);
    let timeout = access.timeout(api.settings.request_timeout);
    tokio::time::timeout(timeout, next.run(request))
        .await
        .map_err(|_| Problem::unknown("the request took too long; whether it was carried out is not known"))
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
