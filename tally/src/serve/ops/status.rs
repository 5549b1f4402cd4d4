//! `/v1/ops/targets/…/status` and `/v1/ops/users/…/status`.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    response::{IntoResponse, Response},
};
use ingest::http::{Caller, Problem, Role};
use operator::SetStatus;
use schema::{IdError, Namespace, Status, StatusKey, TargetKey, UserKey};
use serde::Deserialize;
use serde_json::json;

use super::{
    OpsApi,
    asked::{PathPart, Why, body_problem, refused, whole},
};

/// Body of the `PUT`s.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusBody {
    status: String,
    why: String,
    ticket: Option<String>,
    operator: Option<String>,
}

type Body = Result<Json<StatusBody>, JsonRejection>;

fn bad(field: &'static str) -> impl Fn(IdError) -> Problem {
    move |e| Problem::bad("bad-id", field, e)
}

fn target(namespace: &str, id: &str) -> Result<StatusKey, Problem> {
    let namespace = Namespace::parse(namespace).map_err(bad("namespace"))?;
    TargetKey::new(&namespace, id).map(StatusKey::Target).map_err(bad("target"))
}

fn user(namespace: &str, id: &str) -> Result<StatusKey, Problem> {
    let namespace = Namespace::parse(namespace).map_err(bad("namespace"))?;
    UserKey::new(&namespace, id).map(StatusKey::User).map_err(bad("user"))
}

fn namespace_of(key: &StatusKey) -> &str {
    match key {
        StatusKey::Target(target) => target.namespace(),
        StatusKey::User(user) => user.namespace(),
    }
}

pub(super) async fn put_target(
    State(api): State<OpsApi>,
    caller: Caller,
    PathPart((namespace, id)): PathPart<(String, String)>,
    body: Body,
) -> Result<Response, Problem> {
    put(&api, &caller, target(&namespace, &id)?, body).await
}

pub(super) async fn put_user(
    State(api): State<OpsApi>,
    caller: Caller,
    PathPart((namespace, id)): PathPart<(String, String)>,
    body: Body,
) -> Result<Response, Problem> {
    put(&api, &caller, user(&namespace, &id)?, body).await
}

pub(super) async fn get_target(
    State(api): State<OpsApi>,
    caller: Caller,
    PathPart((namespace, id)): PathPart<(String, String)>,
) -> Result<Response, Problem> {
    get(&api, &caller, target(&namespace, &id)?).await
}

pub(super) async fn get_user(
    State(api): State<OpsApi>,
    caller: Caller,
    PathPart((namespace, id)): PathPart<(String, String)>,
) -> Result<Response, Problem> {
    get(&api, &caller, user(&namespace, &id)?).await
}

async fn put(api: &OpsApi, caller: &Caller, key: StatusKey, body: Body) -> Result<Response, Problem> {
    caller.may(Role::Operate, namespace_of(&key))?;
    let operator = api.ops()?.operator.clone();
    let Json(body) = body.map_err(body_problem)?;
    let known: Vec<&str> = key.statuses().iter().map(|s| s.name()).collect();
    let unknown = || Problem::bad("unknown-status", "status", format!("one of: {}", known.join(", ")));
    let status = Status::parse(&body.status).filter(|s| key.statuses().contains(s)).ok_or_else(unknown)?;
    let who = Why { why: body.why, ticket: body.ticket, operator: body.operator }.by(&caller.name);
    let changed = whole(async move { operator.set_status(&who, &SetStatus { key, status }).await }).await.map_err(refused)?;
    Ok(Json(changed.describe()).into_response())
}

async fn get(api: &OpsApi, caller: &Caller, key: StatusKey) -> Result<Response, Problem> {
    caller.may(Role::Operate, namespace_of(&key))?;
    let row = api.ops()?.operator.status(&key).await?;
    let status = row.map_or(key.usual(), |row| row.status);
    let version = row.map(|row| row.version.to_string());
    let run = row.and_then(|row| row.run).map(|run| run.to_string());
    Ok(Json(json!({ "status": status, "version": version, "run": run })).into_response())
}
