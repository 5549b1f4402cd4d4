//! A small HTTP client of Tally's own API: pooled connections, bounded answers, one line for each error.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, Response, StatusCode, Uri, body::Incoming, header, http::response::Parts};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::TokioExecutor,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::failure::Failure;

/// Largest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// What is left as it is in one segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Where requests go.
#[derive(Clone)]
pub struct Client {
    base: String,
    pool: Pool<HttpConnector, Full<Bytes>>,
    timeout: Duration,
}

/// Why there is no good answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// Nothing came back.
    #[error("cannot reach {base}: {reason}; is `tally serve` running there?")]
    Away {
        /// The server's address.
        base: String,
        /// In a few words.
        reason: String,
    },
    /// The server answered with a problem.
    #[error("the server answered {}: {detail}", status.as_u16())]
    Problem {
        /// Status code.
        status: StatusCode,
        /// Title and detail of the problem document.
        detail: String,
        /// When to try again, if the server says so.
        retry_after: Option<Duration>,
    },
    /// The answer is not what this version expects.
    #[error("the answer cannot be understood ({0}); is that server a Tally of this version?")]
    Odd(String),
}

impl CallError {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Away { .. } => true,
            Self::Problem { status, .. } => {
                matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::REQUEST_TIMEOUT)
            }
            Self::Odd(_) => false,
        }
    }

    /// How long the server asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match &error {
            CallError::Problem { status, .. } if status.is_client_error() => Self::usage(error.to_string()),
            _ => Self::unreachable(error.to_string()),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Problem {
    title: String,
    detail: String,
}

impl Client {
    /// A client of the server at `url`, as `http://127.0.0.1:8080`; up to `connections` are kept open.
    pub fn new(url: &str, connections: usize) -> Result<Self, Failure> {
        let base = url.trim_end_matches('/').to_owned();
        let parsed: Option<Uri> = base.parse().ok();
        let fits = parsed.as_ref().is_some_and(|u| u.scheme_str() == Some("http") && u.host().is_some() && u.query().is_none());
        if !fits {
            return Err(Failure::usage(format!("--url is `{url}`, expected as http://127.0.0.1:8080")));
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        let pool = Pool::builder(TokioExecutor::new()).pool_max_idle_per_host(connections).build(connector);
        Ok(Self { base, pool, timeout: Duration::from_secs(60) })
    }

    /// GET; the answer's JSON.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        self.json(Method::GET, path, Bytes::new()).await
    }

    /// POST of JSON; the answer's JSON.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, CallError> {
        self.json(Method::POST, path, Bytes::from(body.to_string())).await
    }

    /// POST of ready-made JSON.
    pub async fn post_bytes<T: DeserializeOwned>(&self, path: &str, body: Bytes) -> Result<T, CallError> {
        self.json(Method::POST, path, body).await
    }

    async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, CallError> {
        let answer = self.call(method, path, body).await?;
        serde_json::from_slice(&answer).map_err(|e| CallError::Odd(e.to_string()))
    }

    /// GET whose answer is taken piece by piece, however long it is. Each piece must come within a minute.
    pub async fn stream(&self, path: &str) -> Result<Pieces, CallError> {
        let exchange = self.send(Method::GET, path, Bytes::new());
        let answer = tokio::time::timeout(self.timeout, exchange).await;
        let answer = answer.map_err(|_| self.away(format!("no answer within {:?}", self.timeout)))??;
        let (head, body) = answer.into_parts();
        if head.status.is_success() {
            return Ok(Pieces { base: self.base.clone(), body, timeout: self.timeout });
        }
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|e| self.away(e.to_string()))?.to_bytes();
        Err(problem(&head, &body))
    }

    fn away(&self, reason: String) -> CallError {
        CallError::Away { base: self.base.clone(), reason }
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>, CallError> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|e| CallError::Odd(e.to_string()))?;
        self.pool.request(request).await.map_err(|e| self.away(innermost(&e)))
    }

    /// One request; the body of a good answer.
    pub async fn call(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, CallError> {
        self.answer(method, path, body).await.map(|(_, body)| body)
    }

    /// One request; head and body of a good answer.
    pub async fn answer(&self, method: Method, path: &str, body: Bytes) -> Result<(Parts, Bytes), CallError> {
        let exchange = async {
            let (head, body) = self.send(method, path, body).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|e| self.away(e.to_string()))?.to_bytes();
            Ok::<_, CallError>((head, body))
        };
        let (head, body) = tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| self.away(format!("no answer within {:?}", self.timeout)))??;
        if head.status.is_success() { Ok((head, body)) } else { Err(problem(&head, &body)) }
    }
}

/// An answer that is taken piece by piece.
pub struct Pieces {
    base: String,
    body: Incoming,
    timeout: Duration,
}

impl Pieces {
    /// The next bytes; `None`: the answer has ended as it should.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        let away = |reason: String| CallError::Away { base: self.base.clone(), reason };
        loop {
            let frame = tokio::time::timeout(self.timeout, self.body.frame()).await;
            match frame.map_err(|_| away(format!("nothing more within {:?}", self.timeout)))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(away(format!("the answer broke off: {}", innermost(&error)))),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

/// The error that an answer describes.
fn problem(head: &Parts, body: &[u8]) -> CallError {
    let retry_after = head.headers.get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    let problem: Problem = serde_json::from_slice(body).unwrap_or_default();
    let detail = match (problem.title.is_empty(), problem.detail.is_empty()) {
        (false, false) => format!("{}: {}", problem.title, problem.detail),
        (false, true) => problem.title,
        (true, false) => problem.detail,
        (true, true) => head.status.canonical_reason().unwrap_or("an error without explanation").to_owned(),
    };
    CallError::Problem { status: head.status, detail, retry_after: retry_after.map(Duration::from_secs) }
}

/// `id` as one segment of a path.
pub fn segment(id: &str) -> String {
    utf8_percent_encode(id, SEGMENT).to_string()
}

/// The deepest cause: "connection refused" says more than "client error".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_escaped_and_bad_addresses_refused() {
        assert_eq!(segment("a/b c?é"), "a%2Fb%20c%3F%C3%A9");
        assert_eq!(segment("u-1_2.3~"), "u-1_2.3~");
        for bad in ["127.0.0.1:8080", "https://x", "http://", "http://x/?q"] {
            assert!(Client::new(bad, 1).is_err(), "{bad}");
        }
        assert!(Client::new("http://127.0.0.1:8080/", 1).is_ok());
    }
}
