//! The least that a server over HTTP could do: parse the request, answer with the JSON that Tally
//! answers with. No limits, no metrics, no store.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, Router, extract::State, routing::get};
use ingest::http::{PathIds, Problem};
use schema::Kinds;
use serde::Serialize;

#[derive(Serialize)]
struct Liked {
    outcome: &'static str,
    choice: &'static str,
    version: String,
}

#[derive(Serialize)]
struct Counted {
    target: String,
    kinds: BTreeMap<String, Kind>,
    as_of: String,
    stale: bool,
    complete_until: String,
}

#[derive(Serialize)]
struct Kind {
    total: i64,
    choices: BTreeMap<String, i64>,
}

/// Any version: what matters is its length.
const VERSION: i64 = 1_700_000_000_000_000;

/// The two routes that the clients use.
pub fn router(kinds: Kinds) -> Router {
    Router::new()
        .route("/v1/{namespace}/targets/{target}/{kind}/{member}", axum::routing::put(like))
        .route("/v1/{namespace}/targets/{target}", get(counts))
        .with_state(Arc::new(kinds))
}

async fn like(State(kinds): State<Arc<Kinds>>, path: PathIds) -> Result<Json<Liked>, Problem> {
    let (key, _) = path.fact(&kinds)?;
    // Parsed for nothing: the compiler must not leave it out.
    std::hint::black_box(key);
    Ok(Json(Liked { outcome: "applied", choice: "like", version: VERSION.to_string() }))
}

async fn counts(path: PathIds) -> Result<Json<Counted>, Problem> {
    let target = path.target()?.id().to_owned();
    // What a target has none of is left out, and the clients only like.
    let like = || "like".to_owned();
    let kinds = BTreeMap::from([(like(), Kind { total: 1, choices: BTreeMap::from([(like(), 1)]) })]);
    let at = VERSION.to_string();
    Ok(Json(Counted { target, kinds, as_of: at.clone(), stale: false, complete_until: at }))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{BodyExt, Empty};
    use hyper::{Method, Request, client::conn::http1};
    use hyper_util::rt::TokioIo;
    use serde_json::Value;

    use super::*;
    use crate::{
        bench::{
            clients::Door,
            world::{Listener, World},
        },
        cli::BenchWay,
        config::Config,
    };

    /// The answer to one request, every number and text that varies put to one side.
    async fn shape(door: &Door, method: Method, path: &str) -> Value {
        let Door::Http(address) = door else { panic!("no HTTP") };
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let mut value: Value = serde_json::from_slice(&body).unwrap();
        for name in ["version", "as_of", "complete_until"] {
            if let Some(text) = value.get_mut(name) {
                *text = Value::from(text.as_str().unwrap().len());
            }
        }
        if let Some(kinds) = value.get_mut("kinds").and_then(Value::as_object_mut) {
            for kind in kinds.values_mut() {
                kind["total"] = Value::from(0);
                kind["choices"].as_object_mut().unwrap().values_mut().for_each(|n| *n = Value::from(0));
            }
        }
        value
    }

    #[tokio::test]
    async fn the_baseline_answers_what_the_server_answers() {
        let dir = tempfile::tempdir().unwrap();
        let flags = [("data".to_owned(), dir.path().join("tally").display().to_string())];
        let config = Config::from_flags(&flags).unwrap();
        let world = World::start(&config, BenchWay::Http).await.unwrap();
        let bare = Listener::start(router(config.kinds.clone()), &config).await.unwrap();
        for (method, path) in [(Method::PUT, "/v1/bench/targets/t1/like/u1"), (Method::GET, "/v1/bench/targets/t1")] {
            let ours = shape(&world.door(), method.clone(), path).await;
            assert_eq!(shape(&bare.door(), method, path).await, ours, "{path}");
            world.drain().await.unwrap();
        }
        bare.stop().await;
        world.stop().await;
    }
}
