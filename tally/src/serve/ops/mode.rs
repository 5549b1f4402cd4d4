//! `/v1/ops/mode`: what is let in, and which loops are paused.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
};
use ingest::{
    Mode,
    http::{Caller, Problem},
};
use serde::Deserialize;
use serde_json::json;

use super::{
    OpsApi,
    asked::{Why, body_problem, refused, whole},
};
use crate::serve::control::{Controls, Part, Paused};

/// Body of the `PUT`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModeBody {
    mode: Option<Mode>,
    #[serde(default)]
    pause: Vec<Part>,
    #[serde(default)]
    resume: Vec<Part>,
    why: String,
    ticket: Option<String>,
    operator: Option<String>,
}

pub(super) async fn get(State(api): State<OpsApi>) -> Result<Json<Controls>, Problem> {
    Ok(Json(api.ops()?.control.now()))
}

pub(super) async fn put(
    State(api): State<OpsApi>,
    caller: Caller,
    body: Result<Json<ModeBody>, JsonRejection>,
) -> Result<Json<Controls>, Problem> {
    let ops = api.ops()?.clone();
    let Json(body) = body.map_err(body_problem)?;
    if body.mode.is_none() && body.pause.is_empty() && body.resume.is_empty() {
        return Err(Problem::bad("nothing", "mode", "name a `mode`, or what to `pause` or `resume`"));
    }
    if let Some(part) = body.pause.iter().find(|part| body.resume.contains(part)) {
        return Err(Problem::bad("contradiction", "pause", format!("`{}` is to be paused and resumed", part.name())));
    }
    let who = Why { why: body.why.clone(), ticket: body.ticket, operator: body.operator }.by(&caller.name);
    let (mode, pause, resume, why) = (body.mode, body.pause, body.resume, body.why);
    let after = json!({ "mode": mode, "pause": pause, "resume": resume });
    let done = whole(async move {
        let entry = ops.operator.audit(&who, "set-mode", "this server", json!(ops.control.now()), after).await?;
        let change = move |controls: &mut Controls, now| {
            if let Some(mode) = mode {
                (controls.mode, controls.why, controls.since) = (mode, why.clone(), Some(now));
            }
            // What is paused again keeps its first reason and time.
            for part in pause {
                if !controls.paused.iter().any(|p| p.part == part) {
                    controls.paused.push(Paused { part, why: why.clone(), since: now });
                }
            }
            controls.paused.retain(|p| !resume.contains(&p.part));
        };
        let changed = ops.control.change(change).await;
        if let Err(error) = &changed {
            ops.operator.audit_failed(&entry, error).await;
        }
        Ok::<_, operator::Refused>(changed?)
    });
    Ok(Json(done.await.map_err(refused)?))
}
