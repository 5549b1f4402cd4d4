//! `/v1/ops`: verify, rebuild, top. Long work runs as jobs; ask for its progress.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use aggregator::Aggregator;
use axum::{
    Json, Router,
    extract::{Path, State, rejection::JsonRejection},
    extract::{Query, rejection::QueryRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use ingest::http::Problem;
use rebuilder::{Rebuilder, Report, Scope};
use schema::{IdError, KindName, LaneId, Namespace, TargetKey};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Protocol, StoreResult};
use tokio::sync::Semaphore;

use super::{
    jobs::{Job, Jobs},
    node,
};

/// Most targets that `top` lists.
const MAX_TOP: usize = 1000;
/// How long `top` waits for another one to end before it answers 503.
const TOP_WAIT: Duration = Duration::from_secs(20);
/// How often and how far apart `top` looks whether everything answered is counted: 5 seconds in all.
const CATCH_UP_LOOKS: u32 = 500;
const CATCH_UP_PAUSE: Duration = Duration::from_millis(10);
/// Attempts at counting everything that was answered before a verify begins.
const DRAIN_ATTEMPTS: u32 = 5;

/// What the routes need. Cheap to clone.
#[derive(Clone)]
pub struct Ops {
    protocol: Protocol,
    rebuilder: Rebuilder,
    jobs: Jobs,
    /// Lanes of earlier processes, counted before a verify calls anything drift.
    left: Arc<[LaneId]>,
    /// One full scan for `top` at a time.
    scans: Arc<Semaphore>,
    aggregator: Aggregator,
}

/// A target in the answer of `top`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TopEntry {
    /// Its id, without the namespace.
    pub target: String,
    /// Members counted for any choice.
    pub total: i64,
    /// By choice.
    pub choices: std::collections::BTreeMap<String, i64>,
}

/// Where the routes find what they need, once the store is open.
#[derive(Clone, Default)]
pub struct OpsApi(Arc<OnceLock<Ops>>);

impl OpsApi {
    /// The store is open: answer from now on. The first call counts.
    pub fn open(&self, ops: Ops) {
        self.0.get_or_init(|| ops);
    }

    /// The routes, all below `/v1/ops`.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/v1/ops/verify", post(verify))
            .route("/v1/ops/rebuild", post(rebuild))
            .route("/v1/ops/jobs", get(jobs))
            .route("/v1/ops/jobs/{id}", get(job))
            .route("/v1/ops/top", get(top))
            .with_state(self.clone())
    }

    fn ops(&self) -> Result<&Ops, Problem> {
        self.0.get().ok_or_else(|| Problem::not_ready("the store is being opened; ask /readyz, and try again"))
    }
}

fn query_problem(field: &str, detail: impl std::fmt::Display) -> Problem {
    Problem::bad("query", field, detail)
}

impl Ops {
    /// Routes over `protocol` and `rebuilder`.
    pub fn new(protocol: Protocol, rebuilder: Rebuilder, aggregator: Aggregator, left: &[LaneId]) -> Self {
        let scans = Arc::new(Semaphore::new(1));
        Self { protocol, rebuilder, jobs: Jobs::default(), left: left.into(), scans, aggregator }
    }

    /// Lets what was answered just now be counted, so that nobody who writes and then asks is a step
    /// behind. Under steady traffic there is always something: then it waits no longer than this.
    async fn caught_up(&self) {
        for _ in 0..CATCH_UP_LOOKS {
            if self.aggregator.idle() {
                return;
            }
            tokio::time::sleep(CATCH_UP_PAUSE).await;
        }
    }

    /// Everything answered so far is counted afterwards, whatever became of its event.
    async fn drain(&self) -> StoreResult<()> {
        node::take_over(&self.protocol, &self.left).await?;
        let mut attempt = 1;
        loop {
            let now = self.protocol.settings().slot_of(self.protocol.clock().now());
            match self.protocol.sweep_until(now).await {
                Err(error) if error.is_transient() && attempt < DRAIN_ATTEMPTS => {
                    attempt += 1;
                    self.protocol.clock().sleep(Duration::from_millis(200)).await;
                }
                other => return other.map(|_| ()),
            }
        }
    }

    fn scope(&self, body: &RebuildBody) -> Result<Scope, Problem> {
        match (&body.target, &body.namespace, body.all) {
            (None, None, true) if body.kind.is_none() => Ok(Scope::All),
            (Some(target), Some(namespace), false) => {
                let field = |name: &'static str| move |e: IdError| Problem::bad("bad-id", name, e);
                let namespace = Namespace::parse(namespace).map_err(field("namespace"))?;
                let target = TargetKey::new(&namespace, target).map_err(field("target"))?;
                let kind = body.kind.as_deref().map(|k| self.kind(k)).transpose()?;
                Ok(Scope::Target { target, kind })
            }
            _ => Err(Problem::bad("scope", "all", "give either `all`: true, or `namespace` and `target` (and maybe `kind`)")),
        }
    }

    fn kind(&self, name: &str) -> Result<KindName, Problem> {
        let kinds = &self.protocol.settings().kinds;
        let known = || kinds.iter().map(|k| k.name.as_str());
        let unknown = || {
            let near = crate::suggest::suggestion(name, known());
            Problem::bad("unknown-kind", "kind", format!("there is no kind `{name}`{near}"))
        };
        kinds.get(name).map(|k| k.name.clone()).ok_or_else(unknown)
    }
}

/// Body of `POST /v1/ops/rebuild`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RebuildBody {
    #[serde(default)]
    all: bool,
    namespace: Option<String>,
    target: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

/// Query of `GET /v1/ops/top`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopQuery {
    namespace: String,
    kind: String,
    n: Option<usize>,
}

async fn verify(State(api): State<OpsApi>) -> Result<Response, Problem> {
    let ops = api.ops()?.clone();
    let this = ops.clone();
    Ok(started(ops.jobs.start("verify", move |job| async move {
        this.drain().await?;
        this.rebuilder.verify(Scope::All, job.progress()).await
    })))
}

async fn rebuild(State(api): State<OpsApi>, body: Result<Json<RebuildBody>, JsonRejection>) -> Result<Response, Problem> {
    let ops = api.ops()?.clone();
    let Json(body) = body.map_err(|e| Problem::bad("body", "body", e.body_text()))?;
    let scope = ops.scope(&body)?;
    let (this, what) = (ops.clone(), if body.dry_run { "rebuild --dry-run" } else { "rebuild" });
    Ok(started(ops.jobs.start(what, move |job| async move {
        this.drain().await?;
        let report: Report = this.rebuilder.rebuild(scope, body.dry_run, job.progress()).await?;
        Ok(report)
    })))
}

/// 202 with the job and its place, or 409 with the one that runs.
fn started(job: Result<Arc<Job>, Arc<Job>>) -> Response {
    match job {
        Ok(job) => {
            let place = HeaderValue::try_from(format!("/v1/ops/jobs/{}", job.id())).expect("digits are a header value");
            let mut response = (StatusCode::ACCEPTED, Json(job.view(false))).into_response();
            response.headers_mut().insert(header::LOCATION, place);
            response
        }
        Err(running) => {
            let detail = format!("job {} is running; wait for it (GET /v1/ops/jobs/{0}) and try again", running.id());
            Problem::new(StatusCode::CONFLICT, "busy", &detail).into_response()
        }
    }
}

async fn jobs(State(api): State<OpsApi>) -> Result<Response, Problem> {
    let ops = api.ops()?;
    let jobs: Vec<_> = ops.jobs.all().iter().map(|j| j.view(false)).collect();
    Ok(Json(json!({ "jobs": jobs })).into_response())
}

async fn job(State(api): State<OpsApi>, Path(id): Path<String>) -> Result<Response, Problem> {
    let job = id.parse().ok().and_then(|id| api.ops().map(|ops| ops.jobs.get(id)).transpose()).transpose()?;
    let unknown = || {
        let detail = "only the last jobs of this process are remembered; GET /v1/ops/jobs lists them";
        Problem::new(StatusCode::NOT_FOUND, "unknown-job", detail)
    };
    job.map(|j| Json(j.view(true)).into_response()).ok_or_else(unknown)
}

async fn top(State(api): State<OpsApi>, query: Result<Query<TopQuery>, QueryRejection>) -> Result<Response, Problem> {
    let ops = api.ops()?;
    let Query(query) = query.map_err(|e| query_problem("query", e.body_text()))?;
    let namespace = Namespace::parse(&query.namespace).map_err(|e| query_problem("namespace", e))?;
    let name = ops.kind(&query.kind)?;
    let n = query.n.unwrap_or(10);
    if !(1..=MAX_TOP).contains(&n) {
        return Err(query_problem("n", format!("`n` is {n}, it must lie in 1 to {MAX_TOP}")).limit(MAX_TOP));
    }
    let turn = tokio::time::timeout(TOP_WAIT, ops.scans.acquire()).await;
    let _turn = turn.map_err(|_| Problem::no_capacity("another `top` is still scanning"))?;
    ops.caught_up().await;
    let found = ops.rebuilder.top(namespace.as_str(), &name, n).await?;
    let kind = ops.protocol.settings().kinds.get(name.as_str());
    let shown = |(target, counts): (TargetKey, schema::Counts)| TopEntry {
        target: target.id().to_owned(),
        total: counts.total(),
        choices: counts.iter().map(|(c, n)| (choice_name(kind, c), n)).collect(),
    };
    Ok(Json(found.into_iter().map(shown).collect::<Vec<_>>()).into_response())
}

/// A choice without a name can only come from a damaged row; its number says more than nothing.
fn choice_name(kind: Option<&schema::Kind>, choice: schema::Choice) -> String {
    kind.and_then(|k| k.choice_name(choice)).map_or_else(|| choice.to_string(), str::to_owned)
}
