//! `/v1/ops`: verify, rebuild, top. Long work runs as jobs; ask for its progress.

mod asked;
mod audit;
mod backup;
mod explain;
mod export;
mod hide;
mod mode;
mod repair;
mod status;
#[cfg(test)]
mod tests;
mod top;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use aggregator::Aggregator;
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use ingest::http::{Access, Caller, Problem, QueryParams, Role, Scope};
use operator::Operator;
use rebuilder::Rebuilder;
use schema::{KindName, LaneId};
use serde_json::json;
use store::{Protocol, StoreResult, embedded::Embedded};
use tokio::sync::Semaphore;

use asked::PathPart;
pub use hide::RunView;
pub use repair::{OrderBody, order};
pub use top::TopEntry;

use super::{
    control::Control,
    jobs::{Job, Jobs},
    node,
};

/// Attempts at counting everything that was answered before a verify begins.
const DRAIN_ATTEMPTS: u32 = 5;

/// Roles of which one is enough to look at runs and at what is stored of a fact: whoever hides needs
/// to see what it does, and a suspension is set by `operate` and hides by a run.
pub(super) const LOOK: &[Role] = &[Role::Moderate, Role::Operate];

/// Who may ask what. A route or method that is not here is refused to everybody.
pub const ACCESS: &[Access] = &[
    Access::new(Method::POST, "/v1/ops/verify", &[Role::Operate], Scope::Handler),
    Access::new(Method::POST, "/v1/ops/rebuild", &[Role::Operate], Scope::Handler),
    Access::new(Method::GET, "/v1/ops/reports", &[Role::Operate], Scope::Handler),
    Access::new(Method::GET, "/v1/ops/reports/{id}", &[Role::Operate], Scope::Handler),
    Access::new(Method::GET, "/v1/ops/jobs", &[Role::Operate], Scope::Handler),
    Access::new(Method::GET, "/v1/ops/jobs/{id}", &[Role::Operate], Scope::Handler),
    Access::new(Method::GET, "/v1/ops/top", &[Role::Read], Scope::Handler).slow(),
    Access::new(Method::GET, "/v1/ops/backup", &[Role::Operate], Scope::All),
    Access::new(Method::GET, "/v1/ops/explain", LOOK, Scope::Handler),
    Access::new(Method::GET, "/v1/ops/export", &[Role::Operate], Scope::Handler).slow(),
    Access::new(Method::POST, "/v1/ops/hide", &[Role::Moderate], Scope::Handler),
    Access::new(Method::POST, "/v1/ops/show", &[Role::Moderate], Scope::Handler),
    Access::new(Method::GET, "/v1/ops/hide-runs", LOOK, Scope::Handler),
    Access::new(Method::GET, "/v1/ops/hide-runs/{id}", LOOK, Scope::Handler),
    Access::new(Method::POST, "/v1/ops/hide-runs/{id}/undo", &[Role::Moderate], Scope::Handler),
    Access::new(Method::POST, "/v1/ops/hide-runs/{id}/cancel", &[Role::Moderate], Scope::Handler),
    Access::new(Method::GET, "/v1/ops/targets/{namespace}/{target}/status", &[Role::Operate], Scope::Handler),
    Access::new(Method::PUT, "/v1/ops/targets/{namespace}/{target}/status", &[Role::Operate], Scope::Handler),
    Access::new(Method::GET, "/v1/ops/users/{namespace}/{user}/status", &[Role::Operate], Scope::Handler),
    Access::new(Method::PUT, "/v1/ops/users/{namespace}/{user}/status", &[Role::Operate], Scope::Handler),
    Access::new(Method::GET, "/v1/ops/audit", &[Role::Operate], Scope::All),
    Access::new(Method::GET, "/v1/ops/mode", &[Role::Operate], Scope::All),
    Access::new(Method::PUT, "/v1/ops/mode", &[Role::Operate], Scope::All),
];

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
    engine: Arc<Embedded>,
    /// One backup at a time: each keeps old rows in the store.
    copies: Arc<Semaphore>,
    operator: Operator,
    control: Arc<Control>,
}

/// Where the routes find what they need, once the store is open.
#[derive(Clone, Default)]
pub struct OpsApi(Arc<OnceLock<Ops>>);

impl OpsApi {
    /// The store is open: answer from now on. The first call counts.
    pub fn open(&self, ops: Ops) {
        self.0.get_or_init(|| ops);
    }

    /// The routes, all below `/v1/ops`. [`ACCESS`] says who may ask them.
    pub fn router<S>(&self) -> Router<S> {
        Router::new()
            .route("/v1/ops/verify", post(repair::verify))
            .route("/v1/ops/rebuild", post(repair::rebuild))
            .route("/v1/ops/reports", get(repair::reports))
            .route("/v1/ops/reports/{id}", get(repair::report))
            .route("/v1/ops/jobs", get(jobs))
            .route("/v1/ops/jobs/{id}", get(job))
            .route("/v1/ops/top", get(top::top))
            .route("/v1/ops/backup", get(backup::backup))
            .route("/v1/ops/explain", get(explain::get))
            .route("/v1/ops/export", get(export::get))
            .route("/v1/ops/hide", post(hide::hide).layer(DefaultBodyLimit::max(asked::MAX_MEMBERS_BYTES)))
            .route("/v1/ops/show", post(hide::show).layer(DefaultBodyLimit::max(asked::MAX_MEMBERS_BYTES)))
            .route("/v1/ops/hide-runs", get(hide::list))
            .route("/v1/ops/hide-runs/{id}", get(hide::get))
            .route("/v1/ops/hide-runs/{id}/undo", post(hide::undo))
            .route("/v1/ops/hide-runs/{id}/cancel", post(hide::cancel))
            .route("/v1/ops/targets/{namespace}/{target}/status", get(status::get_target).put(status::put_target))
            .route("/v1/ops/users/{namespace}/{user}/status", get(status::get_user).put(status::put_user))
            .route("/v1/ops/audit", get(audit::audit))
            .route("/v1/ops/mode", get(mode::get).put(mode::put))
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
    pub fn new(
        protocol: Protocol,
        rebuilder: Rebuilder,
        aggregator: Aggregator,
        engine: Arc<Embedded>,
        operator: Operator,
        control: Arc<Control>,
        left: &[LaneId],
    ) -> Self {
        let [scans, copies] = [1, 1].map(|at_once| Arc::new(Semaphore::new(at_once)));
        let (jobs, left) = (Jobs::default(), left.into());
        Self { protocol, rebuilder, jobs, left, scans, aggregator, engine, copies, operator, control }
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

    fn kind(&self, name: &str) -> Result<KindName, Problem> {
        kind_of(&self.protocol, name)
    }
}

/// A configured kind by name.
fn kind_of(protocol: &Protocol, name: &str) -> Result<KindName, Problem> {
    let kinds = &protocol.settings().kinds;
    let known = || kinds.iter().map(|k| k.name.as_str());
    let unknown = || {
        let near = crate::suggest::suggestion(name, known());
        Problem::bad("unknown-kind", "kind", format!("there is no kind `{name}`{near}"))
    };
    kinds.get(name).map(|k| k.name.clone()).ok_or_else(unknown)
}

/// 202 with the job and its place, or 409 with the one that runs, where the caller may know of it.
fn started(caller: &Caller, job: Result<Arc<Job>, Arc<Job>>) -> Response {
    match job {
        Ok(job) => {
            let place = HeaderValue::try_from(format!("/v1/ops/jobs/{}", job.id())).expect("digits are a header value");
            let mut response = (StatusCode::ACCEPTED, Json(job.view(false))).into_response();
            response.headers_mut().insert(header::LOCATION, place);
            response
        }
        Err(running) => {
            let detail = match caller.sees(running.namespace()) {
                true => format!("job {} is running; wait for it (GET /v1/ops/jobs/{0}) and try again", running.id()),
                false => "another job is running; try again later".to_owned(),
            };
            Problem::new(StatusCode::CONFLICT, "busy", &detail).into_response()
        }
    }
}

async fn jobs(State(api): State<OpsApi>, caller: Caller, query: QueryParams) -> Result<Response, Problem> {
    query.only(&[])?;
    let ops = api.ops()?;
    let jobs: Vec<_> = ops.jobs.all().iter().filter(|j| caller.sees(j.namespace())).map(|j| j.view(false)).collect();
    Ok(Json(json!({ "jobs": jobs })).into_response())
}

async fn job(
    State(api): State<OpsApi>,
    caller: Caller,
    PathPart(id): PathPart<String>,
    query: QueryParams,
) -> Result<Response, Problem> {
    query.only(&[])?;
    let job = id.parse().ok().and_then(|id| api.ops().map(|ops| ops.jobs.get(id)).transpose()).transpose()?;
    let unknown = || {
        let detail = "only the last jobs of this process are remembered; GET /v1/ops/jobs lists them";
        Problem::new(StatusCode::NOT_FOUND, "unknown-job", detail)
    };
    // Of others' not even that there is one.
    job.filter(|j| caller.sees(j.namespace())).map(|j| Json(j.view(true)).into_response()).ok_or_else(unknown)
}
