//! A small HTTP client of Tally's own API: pooled connections, bounded answers, one line for each error.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::Incoming,
    header::{self, HeaderValue},
    http::response::Parts,
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::TokioExecutor,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{cli::AccessArgs, failure::Failure};

/// Largest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// What is left as it is in one segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Environment variables of the commands that ask a server.
pub const VARIABLES: [&str; 2] = ["TALLY_KEY", "TALLY_CA"];
/// Largest file with a key, in bytes.
const MAX_KEY_FILE: u64 = 4096;

/// What every client of this process sends and trusts.
#[derive(Default)]
struct Access {
    /// `Bearer …`, marked as sensitive so that nothing prints it.
    key: Option<HeaderValue>,
    roots: Vec<CertificateDer<'static>>,
}

static ACCESS: OnceLock<Access> = OnceLock::new();

/// Reads key and certificates, once in a process, before the first client is made.
pub fn access(args: &AccessArgs) -> Result<(), Failure> {
    let key = match (&args.key_file, std::env::var_os("TALLY_KEY")) {
        (Some(file), _) => Some(read_key(file)?),
        (None, Some(key)) if !key.is_empty() => {
            Some(bearer(&key.to_string_lossy()).ok_or_else(|| Failure::usage("TALLY_KEY holds no key; see `tally key new`"))?)
        }
        _ => None,
    };
    let ca = args.ca.clone().or_else(|| std::env::var_os("TALLY_CA").filter(|v| !v.is_empty()).map(Into::into));
    let roots = ca.map_or(Ok(Vec::new()), |file| {
        let read = CertificateDer::pem_file_iter(&file).and_then(Iterator::collect);
        read.map_err(|e| Failure::usage(format!("--ca {}: no certificate in PEM: {e}", file.display())))
    })?;
    // A second call in one process (tests) changes nothing.
    drop(ACCESS.set(Access { key, roots }));
    Ok(())
}

fn read_key(file: &Path) -> Result<HeaderValue, Failure> {
    let unreadable = |e: std::io::Error| Failure::unreachable(format!("--key-file {}: {e}", file.display()));
    let length = std::fs::metadata(file).map_err(unreadable)?.len();
    let text = if length <= MAX_KEY_FILE { std::fs::read_to_string(file).map_err(unreadable)? } else { String::new() };
    bearer(&text).ok_or_else(|| Failure::usage(format!("--key-file {} holds no key; see `tally key new`", file.display())))
}

/// Nothing of a key that does not fit goes into a message.
fn bearer(key: &str) -> Option<HeaderValue> {
    let key = key.trim();
    let mut value = HeaderValue::try_from(format!("Bearer {key}")).ok().filter(|_| !key.is_empty())?;
    value.set_sensitive(true);
    Some(value)
}

/// Where requests go.
#[derive(Clone)]
pub struct Client {
    base: String,
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    key: Option<HeaderValue>,
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
        Self::with(url, connections, ACCESS.get_or_init(Access::default))
    }

    fn with(url: &str, connections: usize, access: &Access) -> Result<Self, Failure> {
        let base = url.trim_end_matches('/').to_owned();
        let parsed: Option<Uri> = base.parse().ok();
        let scheme = parsed.as_ref().and_then(Uri::scheme_str);
        let known = matches!(scheme, Some("http" | "https"));
        if !parsed.as_ref().is_some_and(|u| known && u.host().is_some() && u.query().is_none()) {
            return Err(Failure::usage(format!("--url is `{url}`, expected as http://127.0.0.1:8080 or https://tally.example")));
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        connector.enforce_http(false);
        if scheme == Some("https") && access.roots.is_empty() {
            return Err(Failure::usage(format!(
                "{base} needs --ca FILE (or TALLY_CA) with the certificate of the server, or of who signed it; the system's \
                 certificates are not used"
            )));
        }
        let tls = tls(&access.roots).map_err(|e| Failure::usage(format!("--ca: {e}")))?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector);
        let pool = Pool::builder(TokioExecutor::new()).pool_max_idle_per_host(connections).build(connector);
        Ok(Self { base, pool, key: access.key.clone(), timeout: Duration::from_secs(60) })
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
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, key);
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

fn tls(roots: &[CertificateDer<'static>]) -> Result<ClientConfig, rustls::Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone())?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(config.with_safe_default_protocol_versions()?.with_root_certificates(store).with_no_client_auth())
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
        for bad in ["127.0.0.1:8080", "ftp://x", "https://x", "http://", "http://x/?q"] {
            assert!(Client::new(bad, 1).is_err(), "{bad}");
        }
        assert!(Client::new("http://127.0.0.1:8080/", 1).is_ok());
    }

    #[test]
    fn a_key_is_sent_and_never_shown() {
        let value = bearer(" tally_1_secret\n").unwrap();
        assert_eq!(value.to_str().unwrap(), "Bearer tally_1_secret");
        assert!(!format!("{value:?}").contains("secret"));
        assert!(bearer(" \n").is_none() && bearer("a\nb").is_none());
    }

    mod over_tls {
        use axum::{Router, http::HeaderMap, routing::get};
        use tokio::{net::TcpListener, task::JoinHandle};
        use tokio_util::sync::CancellationToken;

        use super::*;
        use crate::serve::{Limits, Tls, listen};

        struct Server {
            url: String,
            stop: CancellationToken,
            tls: Tls,
            listening: JoinHandle<()>,
            dir: tempfile::TempDir,
        }

        /// Writes a new certificate for `localhost`; what clients are to trust.
        fn certify(dir: &Path) -> CertificateDer<'static> {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
            std::fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
            made.cert.der().clone()
        }

        async fn start() -> (Server, CertificateDer<'static>) {
            let dir = tempfile::tempdir().unwrap();
            let root = certify(dir.path());
            let tls = Tls::load(Some(&dir.path().join("cert.pem")), Some(&dir.path().join("key.pem"))).unwrap().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
            let router = Router::new().route("/", get(async |h: HeaderMap| format!("\"{}\"", h.contains_key("authorization"))));
            let ms = Duration::from_millis;
            let limits = Limits { connections: 8, header_timeout: ms(500), drain: ms(100) };
            let stop = CancellationToken::new();
            let listening = tokio::spawn(listen::serve(listener, Some(tls.clone()), router, limits, stop.clone()));
            (Server { url, stop, tls, listening, dir }, root)
        }

        fn client(url: &str, root: &CertificateDer<'static>) -> Client {
            let access = Access { key: bearer("k"), roots: vec![root.clone()] };
            Client::with(url, 1, &access).unwrap()
        }

        async fn end(server: Server) {
            server.stop.cancel();
            server.listening.await.unwrap();
        }

        #[tokio::test]
        async fn a_known_server_is_asked_and_an_unknown_one_is_not() {
            let (server, root) = start().await;
            assert_eq!(client(&server.url, &root).get::<String>("/").await.unwrap(), "true");
            let other = tempfile::tempdir().unwrap();
            let stranger = client(&server.url, &certify(other.path())).get::<String>("/").await;
            assert!(matches!(stranger, Err(CallError::Away { .. })), "{stranger:?}");
            // Neither does a plain request get an answer.
            let plain = client(&server.url.replace("https", "http"), &root).get::<String>("/").await;
            assert!(plain.is_err());
            // A connection that says nothing is closed, and its place is free again.
            let port = server.url.rsplit(':').next().unwrap();
            let mut silent = tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
            let read = tokio::io::AsyncReadExt::read(&mut silent, &mut [0; 1]).await;
            assert!(matches!(read, Ok(0) | Err(_)));
            assert!(Client::with(&server.url, 1, &Access::default()).is_err());
            end(server).await;
        }

        #[tokio::test]
        async fn a_new_certificate_is_used_without_a_restart_and_a_broken_one_is_not() {
            let (server, first) = start().await;
            std::fs::write(server.dir.path().join("cert.pem"), "no certificate").unwrap();
            assert!(server.tls.reload().is_err());
            assert_eq!(client(&server.url, &first).get::<String>("/").await.unwrap(), "true");
            let second = certify(server.dir.path());
            server.tls.reload().unwrap();
            assert_eq!(client(&server.url, &second).get::<String>("/").await.unwrap(), "true");
            assert!(client(&server.url, &first).get::<String>("/").await.is_err());
            end(server).await;
        }
    }
}
