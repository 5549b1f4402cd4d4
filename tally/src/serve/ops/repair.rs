//! `POST /v1/ops/verify` and `/v1/ops/rebuild`: both run as jobs. `GET /v1/ops/reports`: what they found,
//! also before this process.

use axum::{
    Json,
    body::Bytes,
    extract::{Query, State, rejection::QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use ingest::http::{Caller, Problem, QueryParams, Role};
use rebuilder::{MAX_RUNS, Order, Report, Scope};
use schema::{IdError, Namespace, TargetKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Protocol;

use super::{
    OpsApi,
    asked::{PathPart, Why, refused},
    started,
};
use crate::{config::duration, report::Format};

/// Largest throttle, in rows per second.
const MAX_RATE: u64 = 1_000_000_000;

/// Body of `POST /v1/ops/verify` and `POST /v1/ops/rebuild`; also what the command line sends.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OrderBody {
    /// Everything.
    pub all: bool,
    /// Namespace of `target`.
    pub namespace: Option<String>,
    /// One target.
    pub target: Option<String>,
    /// One kind of it.
    pub kind: Option<String>,
    /// What was written since: `2h`, or a store time in microseconds.
    pub since: Option<String>,
    /// A part of the key space: its number, or `next`.
    pub part: Option<String>,
    /// Report only.
    pub dry_run: bool,
    /// Rows per second.
    pub rate: Option<u64>,
    /// Repair however much differs.
    pub confirm: bool,
    /// Who orders it.
    pub operator: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// Longest text that is recorded of an operator or a reason, in bytes.
const MAX_TEXT: usize = 500;

pub(super) async fn verify(
    State(api): State<OpsApi>,
    caller: Caller,
    query: QueryParams,
    body: Bytes,
) -> Result<Response, Problem> {
    query.only(&[])?;
    let body = if body.is_empty() { OrderBody::default() } else { read(&body)? };
    if body.dry_run || body.confirm {
        return Err(Problem::bad("body", "dry_run", "`dry_run` and `confirm` belong to a rebuild; verify repairs nothing"));
    }
    start(&api, &caller, &body, false).await
}

pub(super) async fn rebuild(
    State(api): State<OpsApi>,
    caller: Caller,
    query: QueryParams,
    body: Bytes,
) -> Result<Response, Problem> {
    query.only(&[])?;
    start(&api, &caller, &read(&body)?, true).await
}

fn read(body: &[u8]) -> Result<OrderBody, Problem> {
    serde_json::from_slice(body).map_err(|e| Problem::unread("body", &e.to_string()))
}

async fn start(api: &OpsApi, caller: &Caller, body: &OrderBody, rebuild: bool) -> Result<Response, Problem> {
    let ops = api.ops()?.clone();
    let order = order(&ops.protocol, body, rebuild)?;
    let namespace = match &order.scope {
        Scope::Target { target, .. } => Some(target.namespace().to_owned()),
        _ => None,
    };
    match &namespace {
        Some(namespace) => caller.may(Role::Operate, namespace)?,
        None => caller.may_everywhere(Role::Operate)?,
    }
    if let Some(why) = ops.rebuilder.refusal(&order).await? {
        return Err(match order.scope {
            Scope::Target { .. } => Problem::new(StatusCode::NOT_FOUND, "unknown-target", &why),
            _ => Problem::bad("scope", "scope", why),
        });
    }
    let why = order.reason.clone().filter(|r| !r.trim().is_empty()).unwrap_or_else(|| "no reason given".to_owned());
    let who = Why { why, ticket: None, operator: order.operator.clone() }.by(&caller.name);
    let (what, asked) = (order.what(), json!({ "dry_run": order.dry_run, "confirm": order.confirm }));
    let entry = ops.operator.audit(&who, what, &order.scope.to_string(), Value::Null, asked).await.map_err(refused)?;
    let this = ops.clone();
    let job = ops.jobs.start(what, namespace.as_deref(), move |job| async move {
        this.drain().await?;
        this.rebuilder.run(&order, job.progress()).await
    });
    if let Err(running) = &job {
        ops.operator.audit_failed(&entry, &format!("job {} is running", running.id())).await;
    }
    Ok(started(caller, job))
}

/// What `body` orders.
pub fn order(protocol: &Protocol, body: &OrderBody, rebuild: bool) -> Result<Order, Problem> {
    for (name, text) in [("operator", &body.operator), ("reason", &body.reason)] {
        if text.as_ref().is_some_and(|t| t.len() > MAX_TEXT) {
            return Err(Problem::bad("body", name, format!("`{name}` has more than {MAX_TEXT} bytes")).limit(MAX_TEXT));
        }
    }
    if body.rate.is_some_and(|rate| rate > MAX_RATE) {
        return Err(Problem::bad(
            "body",
            "rate",
            format!("`rate` is at most {MAX_RATE} rows per second; 0 is as fast as it goes"),
        ));
    }
    Ok(Order {
        scope: scope(protocol, body, rebuild)?,
        rebuild,
        dry_run: body.dry_run,
        rate: body.rate,
        confirm: body.confirm,
        operator: body.operator.clone(),
        reason: body.reason.clone(),
    })
}

fn scope(protocol: &Protocol, body: &OrderBody, rebuild: bool) -> Result<Scope, Problem> {
    let given = [body.all, body.target.is_some(), body.since.is_some(), body.part.is_some()];
    let given = given.into_iter().filter(|&g| g).count();
    let alone = body.target.is_some() || (body.namespace.is_none() && body.kind.is_none());
    if given > 1 || !alone || (given == 0 && rebuild) {
        let detail = "give one of `all`: true, `since`, `part`, or `namespace` and `target` (and maybe `kind`)";
        return Err(Problem::bad("scope", "all", detail));
    }
    if let Some(target) = &body.target {
        let field = |name: &'static str| move |e: IdError| Problem::bad("bad-id", name, e);
        let namespace =
            body.namespace.as_deref().ok_or_else(|| Problem::bad("scope", "namespace", "`target` needs `namespace`"))?;
        let namespace = Namespace::parse(namespace).map_err(field("namespace"))?;
        let target = TargetKey::new(&namespace, target).map_err(field("target"))?;
        let kind = body.kind.as_deref().map(|k| super::kind_of(protocol, k)).transpose()?;
        return Ok(Scope::Target { target, kind });
    }
    if let Some(since) = &body.since {
        let ago = duration(since).and_then(|d| i64::try_from(d.as_micros()).ok()).map(|ago| protocol.clock().now() - ago);
        let at = ago.or_else(|| since.parse().ok()).filter(|&at| at >= 0);
        let expected = || Problem::bad("scope", "since", "expected as long ago as 2h or 30m, or a store time in microseconds");
        return at.map(Scope::Since).ok_or_else(expected);
    }
    match body.part.as_deref() {
        None => Ok(Scope::All),
        Some("next") => Ok(Scope::Part(None)),
        Some(part) => {
            let expected = || Problem::bad("scope", "part", "expected a number from 0 to 29, or `next`");
            part.parse().map(|n| Scope::Part(Some(n))).map_err(|_| expected())
        }
    }
}

/// The last runs, without their lists of drift; rebuilds that are not ended; when each part was verified.
/// Parts and unfinished rebuilds are everybody's, so a key for some namespaces is told of none.
pub(super) async fn reports(State(api): State<OpsApi>, caller: Caller, query: QueryParams) -> Result<Response, Problem> {
    query.only(&[])?;
    let rebuilder = &api.ops()?.rebuilder;
    let mut reports: Vec<Report> = rebuilder.reports(MAX_RUNS).await?;
    reports.retain(|r| caller.sees(r.namespace()));
    reports.iter_mut().for_each(|r| r.drift.clear());
    if !caller.sees(None) {
        return Ok(Json(json!({ "reports": reports, "unfinished": [], "parts_verified_at": [] })).into_response());
    }
    let (unfinished, parts) = (rebuilder.unfinished().await?, rebuilder.parts().await?);
    Ok(Json(json!({ "reports": reports, "unfinished": unfinished, "parts_verified_at": parts })).into_response())
}

/// Query of `GET /v1/ops/reports/{id}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportQuery {
    /// `json` (the default), `csv` or `html`.
    format: Option<Format>,
}

/// One run, with its list of drift.
pub(super) async fn report(
    State(api): State<OpsApi>,
    caller: Caller,
    PathPart(id): PathPart<String>,
    query: Result<Query<ReportQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|e| Problem::unread("query", &e.body_text()))?;
    let found = api.ops()?.rebuilder.report(&id).await?;
    let unknown = || {
        let detail = format!("the last {MAX_RUNS} runs are kept; GET /v1/ops/reports lists them");
        Problem::new(StatusCode::NOT_FOUND, "unknown-report", &detail)
    };
    let report = found.filter(|r| caller.sees(r.namespace())).ok_or_else(unknown)?;
    let format = query.format.unwrap_or(Format::Json);
    // The page holds what others wrote: a browser may run nothing and fetch nothing for it.
    let headers = [
        (header::CONTENT_TYPE, format.content_type()),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; sandbox"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, format.render(&report)).into_response())
}
