//! `GET /v1/ops/top`: the targets with the largest totals.

use std::time::Duration;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use ingest::http::{Caller, Problem, Role};
use schema::{Namespace, TargetKey};
use serde::{Deserialize, Serialize};

use super::{Ops, OpsApi, query_problem};

/// Most targets that `top` lists.
const MAX_TOP: usize = 1000;
/// How long `top` waits for another one to end before it answers 503.
const TOP_WAIT: Duration = Duration::from_secs(20);
/// How often and how far apart `top` looks whether everything answered is counted: 5 seconds in all.
const CATCH_UP_LOOKS: u32 = 500;
const CATCH_UP_PAUSE: Duration = Duration::from_millis(10);
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

impl Ops {
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
}

/// Query of `GET /v1/ops/top`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    namespace: String,
    kind: String,
    n: Option<usize>,
}

pub(super) async fn top(
    State(api): State<OpsApi>,
    caller: Caller,
    query: Result<Query<TopQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let ops = api.ops()?;
    let Query(query) = query.map_err(|e| Problem::unread("query", &e.body_text()))?;
    let namespace = Namespace::parse(&query.namespace).map_err(|e| query_problem("namespace", e))?;
    caller.may(Role::Read, namespace.as_str())?;
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
