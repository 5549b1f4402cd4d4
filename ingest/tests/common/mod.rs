//! A running API on an embedded store in a temporary directory, asked without a network.
#![allow(dead_code, clippy::unwrap_used, reason = "shared by several test binaries; a test panics where it fails")]

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header},
};
use http_body_util::BodyExt;
use prometheus::Registry;
use schema::ChangeEvent;
use serde_json::Value;
use store::{
    Protocol, Settings,
    bus::EventSink,
    clock::SystemClock,
    embedded::{Embedded, EmbeddedSettings},
};
use tally_ingest::{Ingest, IngestSettings, http};
use tower::ServiceExt;

/// Counts at once what ingest publishes, as the aggregator of the same process does a little later.
struct CountAtOnce {
    protocol: Protocol,
    ingest: OnceLock<Ingest>,
}

#[async_trait]
impl EventSink for CountAtOnce {
    async fn publish(&self, events: Vec<ChangeEvent>) {
        for event in events {
            self.protocol.reconcile(&event.shard, &event.members).await.unwrap();
            if let Some(ingest) = self.ingest.get() {
                ingest.forget(&event.shard.target);
            }
        }
    }
}

pub struct World {
    pub ingest: Ingest,
    pub registry: Registry,
    router: Router,
    _dir: tempfile::TempDir,
}

/// An answer, with its body parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: StatusCode,
    pub content_type: String,
    pub retry_after: Option<String>,
    pub trace_response: Option<String>,
    pub json: Value,
}

pub async fn setup() -> World {
    setup_with(Settings { small_limit: 8, level: 2, ..Settings::default() }, IngestSettings::default()).await
}

pub async fn setup_with(settings: Settings, ingest_settings: IngestSettings) -> World {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(Embedded::open(dir.path(), &EmbeddedSettings::default()).unwrap());
    let protocol = Protocol::new(engine, Arc::new(SystemClock::default()), settings);
    let lane = protocol.open_lane(Box::new(|| 7)).await.unwrap();
    let sink = Arc::new(CountAtOnce { protocol: protocol.clone(), ingest: OnceLock::new() });
    let (ingest, _) = Ingest::start(protocol, lane, sink.clone(), ingest_settings.clone());
    let _ = sink.ingest.set(ingest.clone());
    let registry = Registry::new();
    let api = http::Api::new(registry.clone(), ingest_settings).unwrap();
    ingest.register(&registry).unwrap();
    api.open(ingest.clone());
    World { ingest, registry, router: http::router(api, Router::new()), _dir: dir }
}

impl World {
    pub async fn send(&self, request: Request<Body>) -> Answer {
        ask(&self.router, request).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub async fn put(&self, path: &str) -> Answer {
        self.send(Request::put(path).body(Body::empty()).unwrap()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Request::delete(path).body(Body::empty()).unwrap()).await
    }

    pub async fn put_json(&self, path: &str, body: &str) -> Answer {
        let request = Request::put(path).header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub async fn post(&self, path: &str, body: &str) -> Answer {
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json; charset=utf-8");
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    /// Waits until a member's state is proven to be counted, as a client may.
    pub async fn counted(&self, path: &str) {
        while self.get(path).await.json["counted"] != true {
            tokio::task::yield_now().await;
        }
    }

    /// The total of one kind once it is counted: reads with the version of the last change.
    pub async fn total(&self, target: &str, kind: &str) -> i64 {
        let answer = self.get(&format!("/v1/video/targets/{target}?kinds={kind}&after=1&user=nobody")).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        answer.json["kinds"][kind]["total"].as_i64().unwrap()
    }
}

pub async fn ask(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let header = |name| response.headers().get(name).map(|v: &header::HeaderValue| v.to_str().unwrap().to_owned());
    let trace_response = response.headers().get("traceresponse").map(|v| v.to_str().unwrap().to_owned());
    let (status, content_type, retry_after) =
        (response.status(), header(header::CONTENT_TYPE).unwrap_or_default(), header(header::RETRY_AFTER));
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let json = serde_json::from_slice(&bytes).unwrap_or(Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Answer { status, content_type, retry_after, trace_response, json }
}
