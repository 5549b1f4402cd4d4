//! Strict parsing of paths, queries and bodies: whatever is not understood is refused by name.

use std::{borrow::Cow, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, FromRequestParts, Request},
    http::{StatusCode, header, request::Parts},
};
use percent_encoding::percent_decode_str;
use schema::{Choice, FactKey, Kind, KindName, Kinds, Member, Micros, Namespace, TargetKey, UserKey, codec};
use serde::de::DeserializeOwned;

use super::Problem;

/// Largest body, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Time that a body may take to arrive: less than a whole request may take.
const BODY_TIME: Duration = Duration::from_secs(5);
/// Largest page of a list, and the usual one.
pub(crate) const MAX_LIMIT: usize = 200;
const DEFAULT_LIMIT: usize = 50;

/// Segments of the path behind `/v1/`, percent-decoded strictly; ids are kept byte for byte.
#[derive(Debug, Clone)]
pub struct PathIds(Vec<String>);

impl<S: Send + Sync> FromRequestParts<S> for PathIds {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let segments = parts.uri.path().split('/').skip(2);
        segments.map(|s| decode(s, "path").map(Cow::into_owned)).collect::<Result<_, _>>().map(Self)
    }
}

impl PathIds {
    fn segment(&self, i: usize) -> &str {
        self.0.get(i).map_or("", String::as_str)
    }

    /// Segment 0.
    pub fn namespace(&self) -> Result<Namespace, Problem> {
        Namespace::parse(self.segment(0)).map_err(|e| Problem::bad("bad-id", "namespace", e))
    }

    /// Segment 2, as a target.
    pub fn target(&self) -> Result<TargetKey, Problem> {
        TargetKey::new(&self.namespace()?, self.segment(2)).map_err(|e| Problem::bad("bad-id", "target", e))
    }

    /// Segment 2, as a user.
    pub fn user(&self) -> Result<UserKey, Problem> {
        UserKey::new(&self.namespace()?, self.segment(2)).map_err(|e| Problem::bad("bad-id", "user", e))
    }

    /// Segment 3, as a configured kind.
    pub fn kind<'a>(&self, kinds: &'a Kinds) -> Result<&'a Kind, Problem> {
        known_kind(kinds, self.segment(3))
    }

    /// Segments 2 to 4.
    pub fn fact<'a>(&self, kinds: &'a Kinds) -> Result<(FactKey, &'a Kind), Problem> {
        let kind = self.kind(kinds)?;
        let member = Member::parse(self.segment(4)).map_err(|e| Problem::bad("bad-id", "member", e))?;
        Ok((FactKey { target: self.target()?, kind: kind.name.clone(), member }, kind))
    }
}

/// A configured kind by its name.
pub(crate) fn known_kind<'a>(kinds: &'a Kinds, name: &str) -> Result<&'a Kind, Problem> {
    kinds.get(name).ok_or_else(|| {
        let known: Vec<&str> = kinds.iter().map(|k| k.name.as_str()).collect();
        Problem::bad("unknown-kind", "kind", format!("there is no kind `{}`; there are: {}", short(name), known.join(", ")))
    })
}

/// Number of a choice by its name.
pub(crate) fn known_choice(kind: &Kind, name: &str) -> Result<Choice, Problem> {
    kind.choice(name).ok_or_else(|| {
        let known = kind.choices.join(", ");
        Problem::bad("unknown-choice", "choice", format!("kind `{}` has no choice `{}`; it has: {known}", kind.name, short(name)))
    })
}

/// The choice where none is named: that of a kind with one.
pub(crate) fn only_choice(kind: &Kind) -> Result<Choice, Problem> {
    match kind.choices.as_slice() {
        [_] => Ok(1),
        many => Err(Problem::bad(
            "missing-choice",
            "choice",
            format!("kind `{}` needs a choice, one of: {}", kind.name, many.join(", ")),
        )),
    }
}

/// Query parameters, all of them known and none twice.
#[derive(Debug, Clone, Default)]
pub struct QueryParams(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for QueryParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut found: Vec<(String, String)> = Vec::new();
        for pair in parts.uri.query().unwrap_or("").split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name, "query")?.into_owned();
            if found.iter().any(|(n, _)| *n == name) {
                return Err(Problem::bad("query", &short(&name), "the parameter is given twice"));
            }
            // Kept encoded: lists are split at commas before they are decoded.
            found.push((name, value.to_owned()));
        }
        Ok(Self(found))
    }
}

impl QueryParams {
    /// Refuses every parameter that is not among `known`.
    pub fn only(&self, known: &[&str]) -> Result<(), Problem> {
        match self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) if known.is_empty() => Err(Problem::bad("query", &short(name), "this route takes no parameters")),
            Some((name, _)) => {
                Err(Problem::bad("query", &short(name), format!("unknown parameter; known: {}", known.join(", "))))
            }
        }
    }

    /// The decoded value of a parameter; `None` where it is absent or empty.
    pub fn get(&self, name: &str) -> Result<Option<String>, Problem> {
        self.raw(name).map(|v| decode_query(v, name)).transpose()
    }

    /// The values of a parameter that is a comma-separated list; a comma in a value is `%2C`.
    pub fn list(&self, name: &str) -> Result<Option<Vec<String>>, Problem> {
        self.raw(name).map(|v| v.split(',').map(|part| decode_query(part, name)).collect()).transpose()
    }

    /// `limit`: 1 to 200, 50 where it is absent.
    pub fn limit(&self) -> Result<usize, Problem> {
        // An empty one is no number either.
        let Some((_, text)) = self.0.iter().find(|(name, _)| name == "limit") else { return Ok(DEFAULT_LIMIT) };
        let limit = text.parse::<usize>().ok().filter(|n| (1..=MAX_LIMIT).contains(n));
        limit.ok_or_else(|| Problem::bad("limit", "limit", format!("a whole number from 1 to {MAX_LIMIT}")).limit(MAX_LIMIT))
    }

    /// `cursor`, as an earlier page's `next` gave it out.
    pub fn cursor(&self) -> Result<Option<(Micros, String)>, Problem> {
        let Some(text) = self.get("cursor")? else { return Ok(None) };
        let bytes = from_hex(&text).and_then(|b| codec::decode_cursor(&b).ok());
        bytes.map(Some).ok_or_else(|| {
            Problem::bad("cursor", "cursor", "not a cursor of this API: send `next` of the page before, or nothing")
        })
    }

    fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }
}

/// A cursor as text.
pub(crate) fn cursor_text(at: Micros, id: &str) -> String {
    codec::encode_cursor(at, id).iter().map(|b| format!("{b:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}

/// A JSON body of at most 1 MiB, strictly typed.
pub struct JsonBody<T>(pub T);

/// The bytes of a JSON body; empty where there is none.
pub(crate) struct RawBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let bytes = read_body(body).await?;
        if !bytes.is_empty() {
            let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
            let kind = kind.split(';').next().unwrap_or("").trim();
            if !kind.eq_ignore_ascii_case("application/json") {
                let detail = "send the body as `Content-Type: application/json`";
                return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", detail));
            }
        }
        Ok(Self(bytes))
    }
}

async fn read_body(body: Body) -> Result<Bytes, Problem> {
    let read = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, MAX_BODY_BYTES)).await;
    let slow = |_| {
        let detail = format!("the body did not arrive within {} s; nothing was written", BODY_TIME.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, "slow-body", &detail)
    };
    read.map_err(slow)?.map_err(|error| {
        let mut source: Option<&dyn std::error::Error> = Some(&error);
        while let Some(inner) = source {
            if inner.is::<http_body_util::LengthLimitError>() {
                let detail = format!("a body has at most {MAX_BODY_BYTES} bytes");
                return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", &detail).limit(MAX_BODY_BYTES);
            }
            source = inner.source();
        }
        Problem::bad("body", "body", "the body could not be read to its end")
    })
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        parse_json(&bytes).map(Self)
    }
}

/// Parses JSON; the problem says where and why it does not fit.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|e| Problem::unread("body", &e.to_string()))
}

/// Refuses a bare `+`: some clients mean a space by it and others a plus, and the ids would differ.
fn decode_query(text: &str, field: &str) -> Result<String, Problem> {
    if text.contains('+') {
        return Err(Problem::bad("encoding", field, "write `%2B` for a plus and `%20` for a space"));
    }
    decode(text, field).map(Cow::into_owned)
}

/// Percent-decodes; a `%` that two hexadecimal digits do not follow, and what is not UTF-8, is refused.
fn decode<'a>(text: &'a str, field: &str) -> Result<Cow<'a, str>, Problem> {
    let bytes = text.as_bytes();
    let bad = bytes
        .iter()
        .enumerate()
        .any(|(i, &b)| b == b'%' && !bytes.get(i + 1..i + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)));
    if bad {
        return Err(Problem::bad("encoding", field, "a `%` must be followed by two hexadecimal digits"));
    }
    percent_decode_str(text).decode_utf8().map_err(|_| Problem::bad("encoding", field, "not UTF-8 after percent-decoding"))
}

/// At most 40 characters of what a caller sent, for messages.
pub(super) fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

/// A version or time: a whole number in a string.
pub(crate) fn parse_micros(text: &str, field: &str) -> Result<Micros, Problem> {
    let parsed = text.parse::<Micros>().ok().filter(|n| *n >= 1 && text.bytes().all(|b| b.is_ascii_digit()));
    parsed.ok_or_else(|| Problem::bad("number", field, "a whole number of microseconds, at least 1, as a string"))
}

/// `kinds=a,b`, or `None` for all.
pub(crate) fn asked_kinds(kinds: &Kinds, names: Option<Vec<String>>) -> Result<Option<Vec<KindName>>, Problem> {
    names.map(|names| names.iter().map(|n| known_kind(kinds, n).map(|k| k.name.clone())).collect()).transpose()
}
