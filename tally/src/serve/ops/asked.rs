//! What the routes that change something share: who asks and why, and how a refusal is told.

use axum::{
    extract::{FromRequestParts, Path, rejection::JsonRejection},
    http::{StatusCode, request::Parts},
};
use ingest::http::Problem;
use operator::{Refused, Who};
use serde::de::DeserializeOwned;

/// Largest body that names members, in bytes: 100,000 of them, as long as they may be.
pub const MAX_MEMBERS_BYTES: usize = 16 << 20;

/// Parts of the path; what is not UTF-8 is refused as a problem.
pub struct PathPart<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathPart<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let found = Path::from_request_parts(parts, state).await;
        found.map(|Path(part)| Self(part)).map_err(|e| Problem::bad("encoding", "path", e.body_text()))
    }
}

/// Why something is asked for, as bodies say it.
pub struct Why {
    pub why: String,
    pub ticket: Option<String>,
    pub operator: Option<String>,
}

impl Why {
    /// With the name of the key that was presented.
    pub fn by(self, key: &str) -> Who {
        Who { key: key.to_owned(), operator: self.operator, why: self.why, ticket: self.ticket }
    }
}

/// Carries something out to its end, also where the caller goes away meanwhile.
pub async fn whole<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    tokio::spawn(work).await.expect("a panic has ended the process before")
}

/// A body that does not fit.
pub fn body_problem(rejection: JsonRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", &rejection.body_text()),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            let detail = "send the body as `Content-Type: application/json`";
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", detail)
        }
        _ => Problem::unread("body", &rejection.body_text()),
    }
}

/// What an operator's request is answered where it is not carried out.
pub fn refused(refused: Refused) -> Problem {
    match refused {
        Refused::Bad { field, detail } => Problem::bad("bad-order", field, detail),
        Refused::NoRun(_) => Problem::new(StatusCode::NOT_FOUND, "unknown-run", &refused.to_string()),
        Refused::Forgotten { .. } => Problem::new(StatusCode::GONE, "run-forgotten", &refused.to_string()),
        Refused::Conflict(detail) => Problem::new(StatusCode::CONFLICT, "conflict", &detail),
        Refused::Full(_) => Problem::no_capacity(&refused.to_string()),
        Refused::Store(error) => error.into(),
    }
}
