//! Bad input gets a 4xx with a problem document that names the field, and changes nothing.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

mod common;

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use common::{Answer, World, setup};

const STATE: &str = "/v1/video/targets/p1/like/u1";

/// Method, path, content type, body; status and field of the problem.
type Case<'a> = (&'a str, &'a str, &'a str, &'a [u8], u16, &'a str);

async fn send(w: &World, method: &str, path: &str, content_type: &str, body: &[u8]) -> Answer {
    let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path);
    if !content_type.is_empty() {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    w.send(request.body(Body::from(body.to_vec())).unwrap()).await
}

fn assert_problem(answer: &Answer, status: u16, field: &str, what: &str) {
    assert_eq!(answer.status.as_u16(), status, "{what}: {answer:?}");
    assert_eq!(answer.content_type, "application/problem+json", "{what}: {answer:?}");
    assert_eq!(answer.json["status"], status, "{what}");
    for member in ["type", "title", "detail"] {
        assert!(answer.json[member].as_str().is_some_and(|t| !t.is_empty()), "{what} has no {member}: {answer:?}");
    }
    if !field.is_empty() {
        assert_eq!(answer.json["field"], field, "{what}: {answer:?}");
    }
}

#[tokio::test]
async fn bad_paths_queries_and_methods_are_refused_by_name() {
    let w = setup().await;
    let long = "x".repeat(129);
    let cases: &[(&str, String, u16, &str)] = &[
        ("GET", "/v1/Video/targets/p1".into(), 400, "namespace"),
        ("GET", format!("/v1/{}/targets/p1", "n".repeat(33)), 400, "namespace"),
        ("PUT", format!("/v1/video/targets/{long}/like/u1"), 400, "target"),
        ("PUT", format!("/v1/video/targets/p1/like/{long}"), 400, "member"),
        ("PUT", "/v1/video/targets/p1/like/%00".into(), 400, "member"),
        ("PUT", "/v1/video/targets/p%0A1/like/u1".into(), 400, "target"),
        ("PUT", "/v1/video/targets/p1/nope/u1".into(), 400, "kind"),
        ("PUT", "/v1/video/targets/p1/reaction/u1".into(), 400, "choice"),
        ("PUT", "/v1/video/targets/p%zz/like/u1".into(), 400, "path"),
        ("PUT", "/v1/video/targets/p%F/like/u1".into(), 400, "path"),
        ("PUT", "/v1/video/targets/p%FF/like/u1".into(), 400, "path"),
        ("PUT", format!("{STATE}?force=1"), 400, "force"),
        ("GET", format!("{STATE}?counted=1"), 400, "counted"),
        ("GET", "/v1/video/targets/p1?kinds=nope".into(), 400, "kind"),
        ("GET", "/v1/video/targets/p1?after=5".into(), 400, "user"),
        ("GET", "/v1/video/targets/p1?user=u1".into(), 400, "after"),
        ("GET", "/v1/video/targets/p1?after=-5&user=u1".into(), 400, "after"),
        ("GET", "/v1/video/targets/p1?after=99999999999999999999&user=u1".into(), 400, "after"),
        ("GET", "/v1/video/targets/p1/like?limit=0".into(), 400, "limit"),
        ("GET", "/v1/video/targets/p1/like?limit=201".into(), 400, "limit"),
        ("GET", "/v1/video/targets/p1/like?limit=1e2".into(), 400, "limit"),
        ("GET", "/v1/video/targets/p1/like?limit=5&limit=6".into(), 400, "limit"),
        ("GET", "/v1/video/targets/p1/like?cursor=zz".into(), 400, "cursor"),
        ("GET", "/v1/video/targets/p1/like?cursor=02fd".into(), 400, "cursor"),
        ("GET", "/v1/video/targets/p1/like?cursor=%C3%A9%C3%A9".into(), 400, "cursor"),
        ("GET", "/v1/video/targets/p1/like?choice=love".into(), 400, "choice"),
        ("GET", "/v1/video/targets/p1/like?after=%zz".into(), 400, "after"),
        ("GET", "/v1/video/users/u1/comment".into(), 400, "kind"),
        ("GET", "/v1/video/users/u1/like?targets=p1,,p2".into(), 400, "targets"),
        ("GET", "/v1/video/users/u1/like?targets=a+b".into(), 400, "targets"),
        ("GET", "/v1/video/users/u1/like?targets=p1&limit=5".into(), 400, "targets"),
        ("GET", format!("/v1/video/users/u1/like?targets={}", vec!["p"; 201].join(",")), 400, "targets"),
        ("GET", "/v1/video".into(), 404, ""),
        ("GET", "/v2/video/targets/p1".into(), 404, ""),
        ("GET", "/v1/video/targets/a/b/c/d".into(), 404, ""),
        ("POST", STATE.into(), 405, ""),
        ("DELETE", "/v1/video/targets/p1".into(), 405, ""),
        ("GET", "/v1/video/facts".into(), 405, ""),
    ];
    for (method, path, status, field) in cases {
        let answer = send(&w, method, path, "", b"").await;
        assert_problem(&answer, *status, field, &format!("{method} {path}"));
    }
    assert_eq!(w.total("p1", "like").await, 0, "nothing was written");
}

#[tokio::test]
async fn bad_bodies_are_refused_by_name() {
    let w = setup().await;
    const JSON: &str = "application/json";
    let counts = "/v1/video/counts";
    let facts = "/v1/video/facts";
    let many = format!("{{\"targets\":[{}]}}", vec!["\"p\""; 201].join(","));
    let item = r#"{"target":"p1","kind":"like","user":"u1"}"#;
    let too_many = format!("{{\"facts\":[{}]}}", vec![item; 501].join(","));
    let huge = format!("{{\"choice\":\"{}\"}}", "x".repeat(1 << 20));
    let cases: &[Case<'_>] = &[
        ("PUT", STATE, "", br#"{"choice":"like"}"#, 415, ""),
        ("PUT", STATE, "text/plain", br#"{"choice":"like"}"#, 415, ""),
        ("PUT", STATE, JSON, b"{", 400, "body"),
        ("PUT", STATE, JSON, b"[]", 400, "body"),
        ("PUT", STATE, JSON, b"{}", 400, "choice"),
        ("PUT", STATE, JSON, br#"{"choice":"love"}"#, 400, "choice"),
        ("PUT", STATE, JSON, br#"{"choice":null}"#, 400, "body"),
        ("PUT", STATE, JSON, br#"{"choice":1}"#, 400, "body"),
        ("PUT", STATE, JSON, br#"{"choice":"like","colour":"red"}"#, 400, "colour"),
        ("PUT", STATE, JSON, br#"{"choice":"like","choice":"like"}"#, 400, "choice"),
        ("PUT", STATE, JSON, br#"{"choice":"like"} x"#, 400, "body"),
        ("PUT", STATE, JSON, br#"{"choice":"\ud800"}"#, 400, "body"),
        ("PUT", STATE, JSON, b"{\"choice\":\"\xff\"}", 400, "body"),
        ("PUT", STATE, JSON, huge.as_bytes(), 413, ""),
        ("DELETE", STATE, JSON, b"{}", 400, "body"),
        ("POST", counts, "", br#"{"targets":["p1"]}"#, 415, ""),
        ("POST", counts, JSON, b"", 400, "body"),
        ("POST", counts, JSON, br#"{"targets":"p1"}"#, 400, "body"),
        ("POST", counts, JSON, br#"{"targets":[1]}"#, 400, "body"),
        ("POST", counts, JSON, br#"{"target":["p1"]}"#, 400, "target"),
        ("POST", counts, JSON, br#"{"targets":["p1"],"kinds":["nope"]}"#, 400, "kind"),
        ("POST", counts, JSON, many.as_bytes(), 400, "targets"),
        ("POST", facts, JSON, br#"{"facts":{}}"#, 400, "body"),
        ("POST", facts, JSON, br#"{"facts":[],"dry":true}"#, 400, "dry"),
        ("POST", facts, JSON, br#"{"facts":[{"target":"p1","kind":"like","user":"u1"}"#, 400, "body"),
        ("POST", facts, JSON, too_many.as_bytes(), 400, "facts"),
        ("POST", "/v1/Bad/facts", JSON, br#"{"facts":[]}"#, 400, "namespace"),
    ];
    for (method, path, content_type, body, status, field) in cases {
        let answer = send(&w, method, path, content_type, body).await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_problem(&answer, *status, field, &format!("{method} {path} {shown}"));
    }
    assert_eq!(w.total("p1", "like").await, 0, "nothing was written");
    let limits =
        [send(&w, "POST", counts, JSON, many.as_bytes()).await, send(&w, "POST", facts, JSON, too_many.as_bytes()).await];
    assert_eq!([&limits[0].json["limit"], &limits[1].json["limit"]], [200, 500]);
}

#[tokio::test]
async fn a_fact_with_a_repeated_field_is_rejected_alone() {
    let w = setup().await;
    let body = r#"{"facts":[{"target":"p0","target":"p1","kind":"like","user":"u1"},{"target":"p2","kind":"like","user":"u1"}]}"#;
    let answer = w.post("/v1/video/facts", body).await;
    assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
    let results = &answer.json["results"];
    assert_eq!([&results[0]["outcome"], &results[1]["outcome"]], ["rejected", "applied"], "{answer:?}");
    assert_eq!(results[0]["problem"]["field"], "facts", "{answer:?}");
    assert_eq!([w.total("p0", "like").await, w.total("p1", "like").await, w.total("p2", "like").await], [0, 0, 1]);
}
