//! A member's state, and counts.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use futures::{StreamExt, stream};
use schema::{Kind, KindName, Kinds, Member, Micros, Namespace, Reason, TargetKey};
use serde::{Deserialize, Serialize};
use store::protocol::KindCount;

use super::{
    Api, JsonBody, PathIds, Problem, QueryParams,
    request::{asked_kinds, parse_micros},
};
use crate::Ingest;

/// Most targets in one request.
const MAX_TARGETS: usize = 200;
/// Targets of one request that are read side by side.
const SIDE_BY_SIDE: usize = 16;

#[derive(Serialize)]
pub(super) struct MemberAnswer<'a> {
    choice: Option<String>,
    since: Option<String>,
    version: Option<String>,
    hidden: Vec<&'a str>,
    counted: bool,
}

pub(super) async fn state(
    State(api): State<Api>,
    path: PathIds,
    query: QueryParams,
) -> Result<Json<MemberAnswer<'static>>, Problem> {
    query.only(&[])?;
    let ingest = api.ingest()?;
    let kinds = &ingest.protocol().settings().kinds;
    let (key, kind) = path.fact(kinds)?;
    refuse_gone(ingest, &key.target).await?;
    let state = ingest.protocol().state(&key).await?;
    let own = state.fact.choice;
    let written = own.version > 0;
    Ok(Json(MemberAnswer {
        choice: kind.choice_name(own.choice).map(str::to_owned),
        since: (own.choice != 0).then(|| own.since.to_string()),
        version: written.then(|| own.version.to_string()),
        hidden: state.fact.hidden().map(Reason::name).collect(),
        counted: state.counted,
    }))
}

#[derive(Serialize)]
pub(super) struct KindAnswer {
    total: Option<i64>,
    choices: BTreeMap<String, i64>,
}

#[derive(Serialize)]
struct Counts {
    kinds: BTreeMap<String, KindAnswer>,
    as_of: Option<String>,
    stale: bool,
    /// How old a stale answer is.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<i64>,
}

#[derive(Serialize)]
pub(super) struct TargetAnswer {
    target: String,
    #[serde(flatten)]
    counts: Counts,
    complete_until: String,
}

pub(super) async fn target(State(api): State<Api>, path: PathIds, query: QueryParams) -> Result<Json<TargetAnswer>, Problem> {
    query.only(&["kinds", "after", "user"])?;
    let ingest = api.ingest()?;
    let kinds = &ingest.protocol().settings().kinds;
    let asked = asked_kinds(kinds, query.list("kinds")?)?;
    let target = path.target()?;
    let (counts, complete_until) = match (query.get("after")?, query.get("user")?) {
        (None, None) => cached(ingest, &target, asked.as_deref()).await?,
        (Some(after), Some(user)) => {
            parse_micros(&after, "after")?;
            let member = Member::parse(&user).map_err(|e| Problem::bad("bad-id", "user", e))?;
            refuse_gone(ingest, &target).await?;
            // Before the counts: a later watermark may cover changes that they miss.
            let complete_until = ingest.complete_until().await?;
            (for_member(ingest, kinds, &target, &member, asked).await?, complete_until)
        }
        (Some(_), None) => return Err(Problem::bad("query", "user", "`after` needs `user`: whose change is to be in the count")),
        (None, Some(_)) => return Err(Problem::bad("query", "after", "`user` needs `after`: the version of their change")),
    };
    Ok(Json(TargetAnswer { target: target.id().to_owned(), counts, complete_until: complete_until.to_string() }))
}

/// 410 for a target that is gone, whatever its facts and counters still hold.
pub(super) async fn refuse_gone(ingest: &Ingest, target: &TargetKey) -> Result<(), Problem> {
    let gone = ingest.gone(std::slice::from_ref(target)).await?;
    if gone == [true] { Err(Problem::gone()) } else { Ok(()) }
}

/// Counts from memory or the store, and up to when they are complete.
async fn cached(ingest: &Ingest, target: &TargetKey, asked: Option<&[KindName]>) -> Result<(Counts, Micros), Problem> {
    let counted = ingest.counts(target).await?;
    if counted.gone {
        return Err(Problem::gone());
    }
    let kinds = &ingest.protocol().settings().kinds;
    let age = ingest.protocol().clock().now().saturating_sub(counted.read_at) / 1_000_000;
    let mut counts = answer(kinds, counted.kinds.iter(), asked);
    counts.stale = counted.stale;
    counts.age_seconds = counted.stale.then_some(age);
    Ok((counts, counted.complete_until))
}

/// Read-your-writes: the member's own fact is in the count, counted already or not.
async fn for_member(
    ingest: &Ingest,
    kinds: &Kinds,
    target: &TargetKey,
    member: &Member,
    asked: Option<Vec<KindName>>,
) -> Result<Counts, Problem> {
    let names = asked.clone().unwrap_or_else(|| kinds.iter().map(|k| k.name.clone()).collect());
    let mut read = Vec::with_capacity(names.len());
    for kind in names {
        let key = schema::FactKey { target: target.clone(), kind: kind.clone(), member: member.clone() };
        read.push((kind, ingest.protocol().count_for(&key).await?));
    }
    Ok(answer(kinds, read.iter(), asked.as_deref()))
}

/// Kinds that have rows; those asked for by name in any case, with 0 where there is nothing.
fn answer<'a>(kinds: &Kinds, read: impl Iterator<Item = &'a (KindName, KindCount)>, asked: Option<&[KindName]>) -> Counts {
    let mut counts = Counts { kinds: BTreeMap::new(), as_of: None, stale: false, age_seconds: None };
    let mut newest: Micros = 0;
    for (name, count) in read {
        let wanted = asked.map_or(count.used, |a| a.contains(name));
        if let Some(kind) = kinds.get(name.as_str()).filter(|_| wanted) {
            newest = newest.max(count.as_of);
            counts.stale |= count.counts.is_none();
            counts.kinds.insert(name.to_string(), kind_answer(kind, count));
        }
    }
    counts.as_of = (newest > 0).then(|| newest.to_string());
    counts
}

fn kind_answer(kind: &Kind, count: &KindCount) -> KindAnswer {
    let Some(counts) = &count.counts else { return KindAnswer { total: None, choices: BTreeMap::new() } };
    let name = |choice| kind.choice_name(choice).map_or_else(|| format!("#{choice}"), str::to_owned);
    KindAnswer { total: Some(counts.total()), choices: counts.iter().map(|(choice, n)| (name(choice), n)).collect() }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CountsRequest {
    targets: Vec<String>,
    kinds: Option<Vec<String>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum CountsItem {
    Counts(Counts),
    Problem { problem: Problem },
}

#[derive(Serialize)]
pub(super) struct CountsAnswer {
    targets: BTreeMap<String, CountsItem>,
    complete_until: Option<String>,
}

pub(super) async fn counts(
    State(api): State<Api>,
    path: PathIds,
    query: QueryParams,
    JsonBody(body): JsonBody<CountsRequest>,
) -> Result<Json<CountsAnswer>, Problem> {
    query.only(&[])?;
    let ingest = api.ingest()?;
    let namespace = path.namespace()?;
    if body.targets.len() > MAX_TARGETS {
        let detail = format!("at most {MAX_TARGETS} targets in one request, these are {}", body.targets.len());
        return Err(Problem::bad("too-many", "targets", detail).limit(MAX_TARGETS));
    }
    let asked = asked_kinds(&ingest.protocol().settings().kinds, body.kinds)?;
    let mut ids = body.targets;
    ids.sort_unstable();
    ids.dedup();
    let reads = stream::iter(ids.into_iter().map(|id| {
        let (asked, namespace) = (asked.as_deref(), &namespace);
        async move {
            let (item, until) = count_one(ingest, namespace, &id, asked).await;
            (id, item, until)
        }
    }));
    let read: Vec<(String, CountsItem, Option<Micros>)> = reads.buffer_unordered(SIDE_BY_SIDE).collect().await;
    // One word for all: that of the target read longest ago; null where none was read.
    let complete_until = read.iter().filter_map(|(_, _, until)| *until).min().map(|until| until.to_string());
    let targets = read.into_iter().map(|(id, item, _)| (id, item)).collect();
    Ok(Json(CountsAnswer { targets, complete_until }))
}

/// One target's problem is its own: the others are answered.
async fn count_one(ingest: &Ingest, namespace: &Namespace, id: &str, asked: Option<&[KindName]>) -> (CountsItem, Option<Micros>) {
    let target = match TargetKey::new(namespace, id) {
        Ok(target) => target,
        Err(error) => return (CountsItem::Problem { problem: Problem::bad("bad-id", "targets", error) }, None),
    };
    match cached(ingest, &target, asked).await {
        Ok((counts, until)) => (CountsItem::Counts(counts), Some(until)),
        Err(problem) => (CountsItem::Problem { problem }, None),
    }
}
