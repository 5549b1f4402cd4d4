//! `/v1/ops/hide`, `/show` and `/hide-runs`: runs that hide and show.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use ingest::http::{Caller, Problem, QueryParams, Role};
use operator::{Operator, Order, Run, RunState, What};
use schema::{Member, Namespace, Reason, TargetKey, UserKey};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    OpsApi,
    asked::{PathPart, Why, body_problem, refused, whole},
};

/// Body of `POST /v1/ops/hide` and `/show`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HideBody {
    namespace: String,
    target: Option<String>,
    kind: Option<String>,
    members: Option<Vec<String>>,
    user: Option<String>,
    reason: Reason,
    why: String,
    ticket: Option<String>,
    operator: Option<String>,
}

/// Body of `POST /v1/ops/hide-runs/{id}/undo` and `/cancel`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunBody {
    why: String,
    ticket: Option<String>,
    operator: Option<String>,
}

/// A run as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunView {
    /// Its number, for `/v1/ops/hide-runs/{id}`.
    pub id: String,
    /// `hide`, `show` or `undo`.
    pub what: String,
    /// The reason that it hides or shows for.
    pub reason: Reason,
    /// Whose targets or users it changes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub namespace: Option<String>,
    /// The target whose members these are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<String>,
    /// The kind.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kind: Option<String>,
    /// The user whose facts these are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user: Option<String>,
    /// The run that is undone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undoes: Option<String>,
    /// The run that undoes this one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undone_by: Option<String>,
    /// Name of the key that ordered it.
    pub key: String,
    /// The person who ordered it.
    pub operator: Option<String>,
    /// Why.
    pub why: String,
    /// A ticket.
    pub ticket: Option<String>,
    /// Where it stands.
    pub state: RunState,
    /// When it was ordered, begun and ended.
    pub queued: String,
    /// When it began.
    pub started: Option<String>,
    /// When it ended.
    pub ended: Option<String>,
    /// Registers that it has to work through, where that is known before.
    pub members: Option<u64>,
    /// Worked through so far.
    pub done: u64,
    /// Now as wanted, and not so before.
    pub changed: u64,
    /// So before.
    pub unchanged: u64,
    /// Left alone: written by somebody else since.
    pub superseded: u64,
    /// The store will never take them.
    pub refused: u64,
    /// Why it failed, or what it waits for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

impl RunView {
    /// The view of a run.
    pub fn of(run: Run) -> Self {
        let size = run.size();
        let (mut target, mut kind, mut user, mut undoes) = Default::default();
        let namespace = run.namespace.or_else(|| run.what.namespace().map(str::to_owned));
        let what = match run.what {
            What::Members { target: t, kind: k, .. } => {
                (target, kind) = (Some(t.id().to_owned()), Some(k.to_string()));
                if run.hides { "hide" } else { "show" }
            }
            What::User { user: u } => {
                user = Some(u.id().to_owned());
                if run.hides { "hide" } else { "show" }
            }
            What::Undo { run, .. } => {
                undoes = Some(run.to_string());
                "undo"
            }
        };
        let text = |at: Option<i64>| at.map(|at| at.to_string());
        let t = run.totals;
        Self {
            id: run.id.to_string(),
            what: what.to_owned(),
            reason: run.reason,
            namespace,
            target,
            kind,
            user,
            undoes,
            undone_by: run.undone_by.map(|id| id.to_string()),
            key: run.key,
            operator: run.operator,
            why: run.why,
            ticket: run.ticket,
            state: run.state,
            queued: run.queued.to_string(),
            started: text(run.started),
            ended: text(run.ended),
            members: size,
            done: t.done,
            changed: t.changed,
            unchanged: t.unchanged,
            superseded: t.superseded,
            refused: t.refused,
            error: run.error,
        }
    }
}

/// 202 with the run and its place.
fn ordered(run: Run) -> Response {
    let place = HeaderValue::try_from(format!("/v1/ops/hide-runs/{}", run.id)).expect("digits are a header value");
    let mut response = (StatusCode::ACCEPTED, Json(RunView::of(run))).into_response();
    response.headers_mut().insert(header::LOCATION, place);
    response
}

type Body = Result<Json<HideBody>, JsonRejection>;

pub(super) async fn hide(state: State<OpsApi>, caller: Caller, body: Body) -> Result<Response, Problem> {
    order(state, caller, body, true).await
}

pub(super) async fn show(state: State<OpsApi>, caller: Caller, body: Body) -> Result<Response, Problem> {
    order(state, caller, body, false).await
}

async fn order(State(api): State<OpsApi>, caller: Caller, body: Body, hides: bool) -> Result<Response, Problem> {
    let ops = api.ops()?;
    let Json(body) = body.map_err(body_problem)?;
    let bad = |field: &'static str| move |e: schema::IdError| Problem::bad("bad-id", field, e);
    let namespace = Namespace::parse(&body.namespace).map_err(bad("namespace"))?;
    caller.may(Role::Moderate, namespace.as_str())?;
    let order = match (body.target, body.kind, body.members, body.user) {
        (Some(target), Some(kind), Some(members), None) => Order::Members {
            target: TargetKey::new(&namespace, &target).map_err(bad("target"))?,
            kind: ops.kind(&kind)?,
            members: members.iter().map(|m| Member::parse(m).map_err(bad("members"))).collect::<Result<_, _>>()?,
        },
        (None, None, None, Some(user)) => Order::User { user: UserKey::new(&namespace, &user).map_err(bad("user"))? },
        _ => return Err(Problem::bad("scope", "target", "give either `target`, `kind` and `members`, or `user`")),
    };
    let who = Why { why: body.why, ticket: body.ticket, operator: body.operator }.by(&caller.name);
    let (operator, reason) = (ops.operator.clone(), body.reason);
    let run = whole(async move { operator.order(&who, order, reason, hides).await }).await.map_err(refused)?;
    Ok(ordered(run))
}

pub(super) async fn list(State(api): State<OpsApi>, caller: Caller, query: QueryParams) -> Result<Response, Problem> {
    query.only(&["limit", "cursor"])?;
    let cursor = query.get("cursor")?.map(|text| run_id(&text)).transpose()?;
    let page = api.ops()?.operator.list(cursor, query.limit()?, |namespace| caller.sees(namespace)).await?;
    let runs: Vec<RunView> = page.runs.into_iter().map(RunView::of).collect();
    Ok(Json(json!({ "runs": runs, "next": page.next.map(|id| id.to_string()) })).into_response())
}

pub(super) async fn get(
    State(api): State<OpsApi>,
    caller: Caller,
    PathPart(id): PathPart<String>,
) -> Result<Json<RunView>, Problem> {
    Ok(Json(RunView::of(own_run(&api.ops()?.operator, &caller, run_id(&id)?).await?)))
}

/// The run, if it is of the caller's namespaces; of others' not even that there is one.
async fn own_run(operator: &Operator, caller: &Caller, id: u64) -> Result<Run, Problem> {
    let run = operator.get(id).await.map_err(refused)?;
    let namespace = operator.namespace_of(&run).await?;
    if caller.sees(namespace.as_deref()) { Ok(run) } else { Err(refused(operator::Refused::NoRun(id))) }
}

pub(super) async fn undo(
    State(api): State<OpsApi>,
    caller: Caller,
    PathPart(id): PathPart<String>,
    body: Result<Json<RunBody>, JsonRejection>,
) -> Result<Response, Problem> {
    let operator = api.ops()?.operator.clone();
    let Json(body) = body.map_err(body_problem)?;
    let who = Why { why: body.why, ticket: body.ticket, operator: body.operator }.by(&caller.name);
    let id = run_id(&id)?;
    own_run(&operator, &caller, id).await?;
    Ok(ordered(whole(async move { operator.undo(&who, id).await }).await.map_err(refused)?))
}

pub(super) async fn cancel(
    State(api): State<OpsApi>,
    caller: Caller,
    PathPart(id): PathPart<String>,
    body: Result<Json<RunBody>, JsonRejection>,
) -> Result<Json<RunView>, Problem> {
    let operator = api.ops()?.operator.clone();
    let Json(body) = body.map_err(body_problem)?;
    let who = Why { why: body.why, ticket: body.ticket, operator: body.operator }.by(&caller.name);
    let id = run_id(&id)?;
    own_run(&operator, &caller, id).await?;
    Ok(Json(RunView::of(whole(async move { operator.cancel(&who, id).await }).await.map_err(refused)?)))
}

fn run_id(text: &str) -> Result<u64, Problem> {
    let unknown = || Problem::new(StatusCode::NOT_FOUND, "unknown-run", "there is no such run; GET /v1/ops/hide-runs lists them");
    text.parse().map_err(|_| unknown())
}
