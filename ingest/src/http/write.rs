//! PUT and DELETE of one fact.

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use schema::{Choice, FactKey, Kind, Register};
use serde::{Deserialize, Serialize};
use store::protocol::{Outcome, WriteRequest};

use super::{
    Api, PathIds, Problem, QueryParams, outcome_word,
    request::{RawBody, known_choice, only_choice, parse_json},
    trace::Followed,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    choice: String,
}

#[derive(Serialize)]
struct Answer<'a> {
    outcome: &'static str,
    choice: Option<&'a str>,
    version: String,
}

pub(super) async fn put(
    State(api): State<Api>,
    uri: Uri,
    path: PathIds,
    query: QueryParams,
    followed: Followed,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    query.only(&[])?;
    let kinds = api.ingest()?.protocol().settings().kinds.clone();
    let (key, kind) = path.fact(&kinds)?;
    let choice = if body.is_empty() { only_choice(kind)? } else { known_choice(kind, &parse_json::<Wanted>(&body)?.choice)? };
    write(&api, key, kind, choice, uri.path(), followed).await
}

pub(super) async fn delete(
    State(api): State<Api>,
    uri: Uri,
    path: PathIds,
    query: QueryParams,
    followed: Followed,
    RawBody(body): RawBody,
) -> Result<Response, Problem> {
    query.only(&[])?;
    if !body.is_empty() {
        return Err(Problem::bad("body", "body", "DELETE takes no body"));
    }
    let kinds = api.ingest()?.protocol().settings().kinds.clone();
    let (key, kind) = path.fact(&kinds)?;
    write(&api, key, kind, 0, uri.path(), followed).await
}

async fn write(
    api: &Api,
    key: FactKey,
    kind: &Kind,
    choice: Choice,
    path: &str,
    Followed(trace): Followed,
) -> Result<Response, Problem> {
    api.ingest()?.gate().admits_write(false)?;
    if choice != 0 {
        api.limits.like(&key)?;
    }
    let request = WriteRequest { key, register: Register::Choice, value: choice, at: None };
    let written = api.ingest()?.write_traced(request, trace).await?;
    let status = match &written.outcome {
        Outcome::Applied | Outcome::Unchanged | Outcome::Superseded => StatusCode::OK,
        Outcome::Accepted => StatusCode::ACCEPTED,
        Outcome::Unavailable(text) => return Err(Problem::not_ready(&format!("nothing was written: {text}"))),
        Outcome::Unknown(text) => return Err(Problem::unknown(&format!("not confirmed: {text}"))),
        Outcome::Refused(text) => return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "refused", text)),
    };
    let outcome = outcome_word(&written.outcome);
    let answer = Answer { outcome, choice: kind.choice_name(choice), version: written.version.to_string() };
    let mut response = (status, Json(answer)).into_response();
    if status == StatusCode::ACCEPTED {
        // The member's own state tells version and whether it is counted.
        if let Ok(location) = HeaderValue::from_str(path) {
            response.headers_mut().insert(header::LOCATION, location);
        }
    }
    Ok(response)
}
