//! `GET /v1/ops/explain`: everything that is stored about one fact.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use ingest::http::{Caller, Problem};
use serde::Deserialize;

use super::OpsApi;
use crate::explain::{Explanation, explain, key};

/// Query of `GET /v1/ops/explain`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainQuery {
    namespace: String,
    target: String,
    kind: String,
    member: String,
}

pub(super) async fn get(
    State(api): State<OpsApi>,
    caller: Caller,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Result<Json<Explanation>, Problem> {
    let ops = api.ops()?;
    let Query(q) = query.map_err(|e| Problem::unread("query", &e.body_text()))?;
    caller.in_namespace(&q.namespace)?;
    let kinds = &ops.protocol.settings().kinds;
    let key = key(kinds, &q.namespace, &q.target, &q.kind, &q.member);
    let key = key.map_err(|(field, why)| match field {
        "kind" => Problem::bad("unknown-kind", field, why),
        _ => Problem::bad("bad-id", field, why),
    })?;
    Ok(Json(explain(&ops.protocol, &key).await?))
}
