//! `GET /v1/ops/export`: facts as lines of JSON, a page at a time; `Link` leads to the next.

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use ingest::http::{Caller, Problem, Role};
use rebuilder::{ExportFilter, ExportPlace, export_page};
use schema::Namespace;
use serde::Deserialize;

use super::{OpsApi, query_problem};
use crate::export::{PAGE, lines, place_of, text_of};

/// Query of `GET /v1/ops/export`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    namespace: String,
    kind: Option<String>,
    #[serde(default)]
    all_registers: bool,
    cursor: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn get(
    State(api): State<OpsApi>,
    caller: Caller,
    query: Result<Query<ExportQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let ops = api.ops()?;
    let Query(query) = query.map_err(|e| Problem::unread("query", &e.body_text()))?;
    let namespace = Namespace::parse(&query.namespace).map_err(|e| query_problem("namespace", e))?;
    caller.may(Role::Operate, namespace.as_str())?;
    let kind = query.kind.as_deref().map(|kind| ops.kind(kind)).transpose()?;
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=PAGE).contains(&limit) {
        return Err(query_problem("limit", format!("`limit` is {limit}, it must lie in 1 to {PAGE}")).limit(PAGE));
    }
    let wrong = || Problem::bad("cursor", "cursor", "not a cursor of this route: follow the `Link` of the page before");
    let place = match &query.cursor {
        Some(text) => place_of(text).ok_or_else(wrong)?,
        None => ExportPlace::default(),
    };
    let filter = ExportFilter { namespace: namespace.to_string(), kind };
    let page = export_page(&ops.protocol, &filter, place, limit).await?;
    let body = lines(&ops.protocol.settings().kinds, &page.facts, query.all_registers);
    let mut answer = ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response();
    if let Some(next) = page.next {
        let kind = filter.kind.map(|kind| format!("&kind={kind}")).unwrap_or_default();
        let rest = format!("&all_registers={}&limit={limit}&cursor={}", query.all_registers, text_of(&next));
        let link = format!("</v1/ops/export?namespace={namespace}{kind}{rest}>; rel=\"next\"");
        let link = HeaderValue::try_from(link).expect("names and hexadecimal digits are a header value");
        answer.headers_mut().insert(header::LINK, link);
    }
    Ok(answer)
}
