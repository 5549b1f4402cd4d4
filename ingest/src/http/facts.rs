//! Many facts in one request: bulk writes and imports.

use axum::{Json, extract::State};
use schema::{FactKey, Kinds, Member, Micros, Namespace, Reason, Register, TargetKey};
use serde::{Deserialize, Deserializer, Serialize};
use store::protocol::{Outcome, WriteRequest};

use super::{
    Api, Caller, PathIds, Problem, QueryParams, Role, outcome_word,
    request::{RawBody, known_choice, known_kind, only_choice, parse_json, parse_micros},
    trace::Followed,
};

use crate::Refusal;

/// Most facts in one request.
const MAX_FACTS: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<T> {
    facts: Vec<T>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    target: String,
    kind: String,
    user: String,
    /// `Some(None)`: withdraw; `None`: the only choice of the kind.
    #[serde(default, deserialize_with = "present")]
    choice: Option<Option<String>>,
    /// The reason of a register that hides, instead of a choice; imports only.
    register: Option<Reason>,
    /// Whether that register hides.
    hidden: Option<bool>,
    at: Option<String>,
}

/// An item that fits, or whatever else stood in its place.
#[derive(Deserialize)]
#[serde(untagged)]
enum Loose {
    Fits(Item),
    Other(serde_json::Value),
}

impl Loose {
    fn strict(self) -> Result<Item, Problem> {
        match self {
            Self::Fits(item) => Ok(item),
            Self::Other(value) => Err(match serde_json::from_value::<Item>(value) {
                Err(error) => Problem::unread("item", &error.to_string()),
                // A `Value` keeps the last of two equal keys, so only a repeated field gets here.
                Ok(_) => Problem::bad("item", "facts", "a field is given twice in one fact; give each once"),
            }),
        }
    }
}

/// Tells `null` from "absent".
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[derive(Serialize)]
struct ItemAnswer {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

#[derive(Serialize)]
pub(super) struct Answer {
    results: Vec<ItemAnswer>,
}

pub(super) async fn post(
    State(api): State<Api>,
    caller: Caller,
    path: PathIds,
    query: QueryParams,
    Followed(trace): Followed,
    RawBody(body): RawBody,
) -> Result<Json<Answer>, Problem> {
    query.only(&[])?;
    let ingest = api.ingest()?;
    ingest.gate().admits_write(true)?;
    let namespace = path.namespace()?;
    let items = parse_items(&body)?;
    if items.len() > MAX_FACTS {
        let detail = format!("at most {MAX_FACTS} facts in one request, these are {}", items.len());
        return Err(Problem::bad("too-many", "facts", detail).limit(MAX_FACTS));
    }
    may(&caller, &items)?;
    // The request itself is counted already. Imports are an operator's: they take the time that they take.
    let now_items = items.iter().filter(|item| !is_timed(item)).count();
    api.limits.key(&caller.name, now_items.saturating_sub(1))?;
    let now = ingest.protocol().clock().now();
    let kinds = &ingest.protocol().settings().kinds;
    let parsed: Vec<Result<WriteRequest, Problem>> = items
        .into_iter()
        .map(|item| item.and_then(|i| request(kinds, &namespace, i, now)).and_then(|r| limited(&api, r)))
        .collect();
    let wanted: Vec<WriteRequest> = parsed.iter().flatten().cloned().collect();
    let mut written = ingest.write_many_traced(wanted, trace).await.into_iter();
    let results = parsed.into_iter().map(|item| match item {
        Err(problem) => ItemAnswer { outcome: "rejected", version: None, problem: Some(problem) },
        Ok(_) => match written.next() {
            Some(Ok(written)) => {
                let problem = match &written.outcome {
                    Outcome::Unavailable(text) => Some(Problem::not_ready(&format!("nothing was written: {text}"))),
                    Outcome::Unknown(text) => Some(Problem::unknown(text)),
                    Outcome::Refused(text) => Some(Problem::bad("refused", "facts", text)),
                    _ => None,
                };
                let version = problem.is_none().then(|| written.version.to_string());
                ItemAnswer { outcome: outcome_word(&written.outcome), version, problem }
            }
            Some(Err(Refusal::Barred(bar))) => ItemAnswer { outcome: "rejected", version: None, problem: Some(bar.into()) },
            Some(Err(full)) => ItemAnswer { outcome: "unavailable", version: None, problem: Some(full.into()) },
            None => ItemAnswer { outcome: "unavailable", version: None, problem: Some(Problem::no_capacity("the server stops")) },
        },
    });
    Ok(Json(Answer { results: results.collect() }))
}

/// All at once; only where that fails one by one, so that one bad item does not fail the others.
fn parse_items(body: &[u8]) -> Result<Vec<Result<Item, Problem>>, Problem> {
    if let Ok(all) = serde_json::from_slice::<Body<Item>>(body) {
        return Ok(all.facts.into_iter().map(Ok).collect());
    }
    let Body { facts } = parse_json::<Body<Loose>>(body)?;
    Ok(facts.into_iter().map(Loose::strict).collect())
}

/// A time of one's own can undo what others wrote later, so it is for operators only.
fn may(caller: &Caller, items: &[Result<Item, Problem>]) -> Result<(), Problem> {
    if items.iter().any(is_timed) {
        caller.has(&[Role::Operate])?;
    }
    if items.iter().any(|item| !is_timed(item)) { caller.has(&[Role::Write]) } else { Ok(()) }
}

fn is_timed(item: &Result<Item, Problem>) -> bool {
    item.as_ref().is_ok_and(|i| i.at.is_some())
}

fn limited(api: &Api, request: WriteRequest) -> Result<WriteRequest, Problem> {
    if request.value != 0 && request.at.is_none() {
        api.limits.like(&request.key)?;
    }
    Ok(request)
}

fn request(kinds: &Kinds, namespace: &Namespace, item: Item, now: Micros) -> Result<WriteRequest, Problem> {
    let kind = known_kind(kinds, &item.kind)?;
    let (register, value) = match (item.register, item.hidden, &item.choice) {
        (Some(reason), Some(hidden), None) if item.at.is_some() => (Register::Hide(reason), u8::from(hidden)),
        (None, None, Some(None)) => (Register::Choice, 0),
        (None, None, Some(Some(name))) => (Register::Choice, known_choice(kind, name)?),
        (None, None, None) => (Register::Choice, only_choice(kind)?),
        _ => {
            let detail = "`register` needs `hidden` and `at`, and no `choice`: it is for lines of an export";
            return Err(Problem::bad("register", "register", detail));
        }
    };
    let at = item.at.as_deref().map(|text| parse_micros(text, "at")).transpose()?;
    if at.is_some_and(|at| at > now) {
        return Err(Problem::bad("future", "at", format!("`at` is at most the server's time, now {now}")));
    }
    let key = FactKey {
        target: TargetKey::new(namespace, &item.target).map_err(|e| Problem::bad("bad-id", "target", e))?,
        kind: kind.name.clone(),
        member: Member::parse(&item.user).map_err(|e| Problem::bad("bad-id", "user", e))?,
    };
    Ok(WriteRequest { key, register, value, at })
}
