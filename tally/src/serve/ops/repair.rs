//! `POST /v1/ops/verify` and `/v1/ops/rebuild`: both run as jobs.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
    response::Response,
};
use ingest::http::Problem;
use rebuilder::{Report, Scope};
use schema::{IdError, Namespace, TargetKey};
use serde::Deserialize;

use super::{Ops, OpsApi, started};

/// Body of `POST /v1/ops/rebuild`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RebuildBody {
    #[serde(default)]
    all: bool,
    namespace: Option<String>,
    target: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

pub(super) async fn verify(State(api): State<OpsApi>) -> Result<Response, Problem> {
    let ops = api.ops()?.clone();
    let this = ops.clone();
    Ok(started(ops.jobs.start("verify", move |job| async move {
        this.drain().await?;
        this.rebuilder.verify(Scope::All, job.progress()).await
    })))
}

pub(super) async fn rebuild(
    State(api): State<OpsApi>,
    body: Result<Json<RebuildBody>, JsonRejection>,
) -> Result<Response, Problem> {
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

impl Ops {
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
}
