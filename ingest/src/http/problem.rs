//! Errors as problem documents (RFC 9457).

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use store::StoreError;

use super::{retry_after, trace::Reason};
use crate::{Bar, Refusal, Refused};

/// A problem document: what was wrong, with which field, and what the limit is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// A relative URI that names the sort of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same in a few words.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong this time, and what to do.
    pub detail: String,
    /// The field, parameter or part of the path that was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The limit that was passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What only the header knows; boxed, since few problems have it and all are moved around.
    #[serde(skip)]
    header: Option<Box<InHeader>>,
}

/// What stands in the answer's header only.
#[derive(Debug, Clone, PartialEq, Eq)]
enum InHeader {
    /// Methods of the route, for `Allow`.
    Allow(String),
    /// The limit that was hit, for the `RateLimit` fields.
    Hit(Hit),
}

/// A limit on how often something may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hit {
    layer: &'static str,
    burst: u32,
    /// Seconds in which the burst is refilled.
    window: u32,
    /// Seconds until the next one is let in, at least 1.
    wait: u64,
}

impl Problem {
    /// A problem of sort `/problems/{slug}`.
    pub fn new(status: StatusCode, slug: &str, detail: &str) -> Self {
        Self {
            kind: format!("/problems/{slug}"),
            title: status.canonical_reason().unwrap_or("Problem"),
            status: status.as_u16(),
            detail: detail.to_owned(),
            field: None,
            limit: None,
            header: None,
        }
    }

    /// 401, which does not tell what was wrong with the key.
    pub fn unauthorized() -> Self {
        let detail = "send a valid key as `Authorization: Bearer …`; `tally key new` makes one";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    /// 403: the caller is known, and may not.
    pub fn forbidden(detail: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// 405, with the methods that there are.
    pub(super) fn method(known: &str) -> Self {
        let detail = "this route does not take that method";
        Self {
            header: Some(Box::new(InHeader::Allow(known.to_owned()))),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail)
        }
    }

    /// 429: the caller sends too fast; another try helps after `wait`.
    pub(super) fn limited(layer: &'static str, burst: u32, per_second: u32, wait: Duration) -> Self {
        let wait = wait.as_millis().div_ceil(1000).clamp(1, 86_400) as u64;
        let detail = format!("too many requests for this {layer}: {per_second} a second, {burst} at once; wait {wait} s");
        let hit = Hit { layer, burst, window: burst.div_ceil(per_second.max(1)).max(1), wait };
        Self {
            limit: Some(u64::from(per_second)),
            header: Some(Box::new(InHeader::Hit(hit))),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "limited", &detail)
        }
    }

    /// 400 about one field.
    pub fn bad(slug: &str, field: &str, detail: impl std::fmt::Display) -> Self {
        Self { field: Some(field.to_owned()), ..Self::new(StatusCode::BAD_REQUEST, slug, &detail.to_string()) }
    }

    /// 400 about a body, an item or a query that a parser refused with `message`: in our words.
    pub fn unread(slug: &str, message: &str) -> Self {
        let (field, detail) = super::json::fault(message);
        Self::bad(slug, &field, detail)
    }

    /// Names the limit that was passed.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit as u64);
        self
    }

    /// 503: nothing was written, and the same request may be sent again.
    pub fn not_ready(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
    }

    /// 410: what an operator has said is gone.
    pub fn gone() -> Self {
        Self::new(StatusCode::GONE, "gone", "this target is gone")
    }

    /// 503: there is no room now; nothing was written.
    pub fn no_capacity(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-capacity", &format!("no capacity now: {detail}; try again later"))
    }

    /// 503: not confirmed; the same request may be sent again.
    pub fn unknown(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unknown", &format!("{detail}; the same request may be sent again"))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoCapacity => Self::no_capacity("too many requests wait"),
            Refusal::Barred(bar) => bar.into(),
        }
    }
}

impl From<Bar> for Problem {
    fn from(bar: Bar) -> Self {
        let status = match bar {
            Bar::Gone => StatusCode::GONE,
            Bar::Closed | Bar::Suspended => StatusCode::FORBIDDEN,
        };
        Self::new(status, bar.name(), &bar.to_string())
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, refused.mode.name(), &refused.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(text) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "refused", &text),
            other => Self::not_ready(&other.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let in_header = self.header.clone();
        let reason = status.is_server_error().then(|| Reason { problem: self.kind.clone(), detail: self.detail.clone() });
        let mut answer = (status, Json(self)).into_response();
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(reason) = reason {
            answer.extensions_mut().insert(reason);
        }
        if let Some(InHeader::Allow(methods)) = in_header.as_deref() {
            let methods = HeaderValue::from_str(methods).expect("names of methods");
            answer.headers_mut().insert(header::ALLOW, methods);
        }
        if status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS {
            answer.headers_mut().insert(header::RETRY_AFTER, retry_after());
        }
        if let Some(&InHeader::Hit(Hit { layer, burst, window, wait })) = in_header.as_deref() {
            // draft-ietf-httpapi-ratelimit-headers-10.
            let policy = format!("\"{layer}\";q={burst};w={window}");
            let left = format!("\"{layer}\";r=0;t={wait}");
            let fields = [("retry-after", wait.to_string()), ("ratelimit-policy", policy), ("ratelimit", left)];
            for (name, value) in fields {
                answer.headers_mut().insert(name, HeaderValue::from_str(&value).expect("digits and constant names"));
            }
        }
        answer
    }
}
