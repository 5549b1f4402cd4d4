//! Who, newest first; and a user's own.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use schema::{Kind, Member, ShardKey, TargetKey, UserKey};
use serde::Serialize;

use super::{
    Api, PathIds, Problem, QueryParams,
    read::refuse_gone,
    request::{cursor_text, known_choice},
};
use crate::Ingest;

/// Most targets in one request.
const MAX_TARGETS: usize = 200;

#[derive(Serialize)]
struct ListedMember {
    member: String,
    choice: Option<String>,
    since: String,
}

#[derive(Serialize)]
pub(super) struct Members {
    members: Vec<ListedMember>,
    next: Option<String>,
}

pub(super) async fn members(State(api): State<Api>, path: PathIds, query: QueryParams) -> Result<Json<Members>, Problem> {
    query.only(&["limit", "cursor", "choice"])?;
    let ingest = api.ingest()?;
    let kind = path.kind(&ingest.protocol().settings().kinds)?;
    let choice = query.get("choice")?.map(|name| known_choice(kind, &name)).transpose()?;
    let after = match query.cursor()? {
        Some((at, id)) => Some((at, Member::parse(&id).map_err(|e| Problem::bad("cursor", "cursor", e))?)),
        None => None,
    };
    let limit = query.limit()?;
    let root = ShardKey::root(path.target()?, kind.name.clone());
    refuse_gone(ingest, &root.target).await?;
    let page = ingest.protocol().list(&root, choice, after, limit).await?;
    let members = page.members.into_iter().map(|row| ListedMember {
        choice: kind.choice_name(row.choice).map(str::to_owned),
        since: row.at.to_string(),
        member: row.member.into(),
    });
    Ok(Json(Members { members: members.collect(), next: page.next.map(|(at, m)| cursor_text(at, m.as_str())) }))
}

#[derive(Serialize)]
#[serde(untagged)]
enum Own {
    State {
        choice: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        since: Option<String>,
    },
    Problem {
        problem: Problem,
    },
}

#[derive(Serialize)]
struct OwnStates {
    targets: BTreeMap<String, Own>,
}

#[derive(Serialize)]
struct OwnFact {
    target: String,
    choice: Option<String>,
    since: String,
}

#[derive(Serialize)]
struct OwnFacts {
    facts: Vec<OwnFact>,
    next: Option<String>,
}

pub(super) async fn user(State(api): State<Api>, path: PathIds, query: QueryParams) -> Result<Response, Problem> {
    query.only(&["targets", "limit", "cursor"])?;
    let ingest = api.ingest()?;
    let kind = path.kind(&ingest.protocol().settings().kinds)?;
    let user = path.user()?;
    if !kind.by_user {
        let detail = format!("members of kind `{}` are not users, so it is not listed by user", kind.name);
        return Err(Problem::bad("not-by-user", "kind", detail));
    }
    match query.list("targets")? {
        None => own_facts(ingest, kind, user, &query).await,
        Some(_) if query.get("limit")?.is_some() || query.get("cursor")?.is_some() => {
            Err(Problem::bad("query", "targets", "either `targets`, or `limit` and `cursor`"))
        }
        Some(ids) => states(ingest, kind, user, &path, ids).await,
    }
}

/// "Did this user like these?"
async fn states(ingest: &Ingest, kind: &Kind, user: UserKey, path: &PathIds, ids: Vec<String>) -> Result<Response, Problem> {
    if ids.len() > MAX_TARGETS {
        let detail = format!("at most {MAX_TARGETS} targets in one request, these are {}", ids.len());
        return Err(Problem::bad("too-many", "targets", detail).limit(MAX_TARGETS));
    }
    let namespace = path.namespace()?;
    let targets = ids.iter().map(|id| TargetKey::new(&namespace, id)).collect::<Result<Vec<_>, _>>();
    let targets = targets.map_err(|e| Problem::bad("bad-id", "targets", e))?;
    let rows = ingest.protocol().user_states(&user, &kind.name, &targets).await?;
    let gone = ingest.gone(&targets).await?;
    let own = ids.into_iter().zip(rows.into_iter().zip(gone)).map(|(id, (row, gone))| {
        if gone {
            return (id, Own::Problem { problem: Problem::gone() });
        }
        let choice = row.and_then(|r| kind.choice_name(r.choice)).map(str::to_owned);
        let since = row.filter(|_| choice.is_some()).map(|r| r.since.to_string());
        (id, Own::State { choice, since })
    });
    Ok(Json(OwnStates { targets: own.collect() }).into_response())
}

async fn own_facts(ingest: &Ingest, kind: &Kind, user: UserKey, query: &QueryParams) -> Result<Response, Problem> {
    let after = match query.cursor()? {
        Some((at, id)) => {
            let target = TargetKey::parse(&format!("{}/{id}", user.namespace()));
            Some((at, target.map_err(|e| Problem::bad("cursor", "cursor", e))?))
        }
        None => None,
    };
    let page = ingest.protocol().user_list(&user, &kind.name, after, query.limit()?).await?;
    let facts = page.facts.into_iter().map(|(target, row)| OwnFact {
        target: target.id().to_owned(),
        choice: kind.choice_name(row.choice).map(str::to_owned),
        since: row.since.to_string(),
    });
    Ok(Json(OwnFacts { facts: facts.collect(), next: page.next.map(|(at, t)| cursor_text(at, t.id())) }).into_response())
}
