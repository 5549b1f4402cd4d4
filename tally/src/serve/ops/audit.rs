//! `GET /v1/ops/audit`: who did what and why, as pages or as one long list to keep.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use futures::{StreamExt, TryStreamExt, stream};
use ingest::http::{Problem, QueryParams};
use operator::{AuditFilter, AuditPage, Operator};
use serde_json::json;
use store::StoreError;

use super::{OpsApi, query_problem};

const NDJSON: &str = "application/x-ndjson";
/// Entries that are read at a time for an export.
const PAGE: usize = 500;

pub(super) async fn audit(State(api): State<OpsApi>, headers: HeaderMap, query: QueryParams) -> Result<Response, Problem> {
    query.only(&["operator", "action", "limit", "cursor", "format"])?;
    let operator = api.ops()?.operator.clone();
    let filter = AuditFilter { operator: query.get("operator")?, action: query.get("action")? };
    let cursor = query.get("cursor")?.map(|text| text.parse::<i64>());
    let cursor = cursor.transpose().map_err(|_| query_problem("cursor", "send `next` of the page before, or nothing"))?;
    let accepts = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).is_some_and(|v| v.contains(NDJSON));
    let export = match query.get("format")?.as_deref() {
        None => accepts,
        Some("ndjson") => true,
        Some("json") => false,
        Some(_) => return Err(query_problem("format", "json or ndjson")),
    };
    if export {
        let lines = export_lines(operator, filter, cursor);
        return Ok(([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response());
    }
    let AuditPage { entries, next } = operator.audit_page(&filter, cursor, query.limit()?).await?;
    Ok(Json(json!({ "entries": entries, "next": next.map(|at| at.to_string()) })).into_response())
}

/// Every entry from `cursor` back to the first, a line each; never more than a page in memory.
fn export_lines(
    operator: Operator,
    filter: AuditFilter,
    cursor: Option<i64>,
) -> impl futures::Stream<Item = Result<String, StoreError>> {
    let pages = stream::try_unfold(Some(cursor), move |place| {
        let (operator, filter) = (operator.clone(), filter.clone());
        async move {
            let Some(cursor) = place else { return Ok::<_, StoreError>(None) };
            let page = operator.audit_page(&filter, cursor, PAGE).await?;
            Ok(Some((page.entries, page.next.map(Some))))
        }
    });
    let lines = pages.map_ok(|entries| {
        stream::iter(entries).map(|entry| {
            let mut line = serde_json::to_string(&entry).expect("texts, numbers and JSON always serialise");
            line.push('\n');
            Ok(line)
        })
    });
    lines.try_flatten()
}
