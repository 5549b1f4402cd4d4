//! Keys, roles and namespaces on the real binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    time::Duration,
};

use serde_json::Value;
use store::clock::Stopwatch;
use tally_tests::server::{Server, command, tally, tally_ok};

/// Every route that needs a key: method, path, roles of which one is enough.
const ROUTES: &[(&str, &str, &[&str])] = &[
    ("GET", "/v1/{namespace}/targets/{target}/{kind}/{member}", &["read"]),
    ("PUT", "/v1/{namespace}/targets/{target}/{kind}/{member}", &["write"]),
    ("DELETE", "/v1/{namespace}/targets/{target}/{kind}/{member}", &["write"]),
    ("GET", "/v1/{namespace}/targets/{target}", &["read"]),
    ("GET", "/v1/{namespace}/targets/{target}/{kind}", &["read"]),
    ("GET", "/v1/{namespace}/users/{user}/{kind}", &["read"]),
    ("POST", "/v1/{namespace}/counts", &["read"]),
    ("POST", "/v1/{namespace}/facts", &["write", "operate"]),
    ("POST", "/v1/ops/verify", &["operate"]),
    ("POST", "/v1/ops/rebuild", &["operate"]),
    ("GET", "/v1/ops/reports", &["operate"]),
    ("GET", "/v1/ops/reports/{id}", &["operate"]),
    ("GET", "/v1/ops/jobs", &["operate"]),
    ("GET", "/v1/ops/jobs/{id}", &["operate"]),
    ("GET", "/v1/ops/top", &["read"]),
    ("GET", "/v1/ops/backup", &["operate"]),
    ("GET", "/v1/ops/explain", &["operate"]),
    ("GET", "/v1/ops/export", &["operate"]),
    ("POST", "/v1/ops/hide", &["moderate"]),
    ("POST", "/v1/ops/show", &["moderate"]),
    ("GET", "/v1/ops/hide-runs", &["moderate"]),
    ("GET", "/v1/ops/hide-runs/{id}", &["moderate"]),
    ("POST", "/v1/ops/hide-runs/{id}/undo", &["moderate"]),
    ("POST", "/v1/ops/hide-runs/{id}/cancel", &["moderate"]),
    ("GET", "/v1/ops/targets/{namespace}/{target}/status", &["operate"]),
    ("PUT", "/v1/ops/targets/{namespace}/{target}/status", &["operate"]),
    ("GET", "/v1/ops/users/{namespace}/{user}/status", &["operate"]),
    ("PUT", "/v1/ops/users/{namespace}/{user}/status", &["operate"]),
    ("GET", "/v1/ops/audit", &["operate"]),
    ("GET", "/v1/ops/mode", &["operate"]),
    ("PUT", "/v1/ops/mode", &["operate"]),
    ("GET", "/metrics", &["read"]),
];
/// Routes that are for everybody.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];
const ROLES: [&str; 4] = ["read", "write", "moderate", "operate"];

/// A new key; its token.
fn new_key(file: &Path, name: &str, roles: &str, namespaces: &str) -> String {
    let file = file.display().to_string();
    let made = tally_ok(["key", "new", "--keys", &file, "--name", name, "--roles", roles, "--namespaces", namespaces]);
    made.trim().to_owned()
}

/// Status and body's text.
fn ask(server: &Server, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let key = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{key}{kind}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn filled(path: &str) -> String {
    path.replace("{namespace}", "video").replace("{kind}", "like").replace("{id}", "0").replace(['{', '}'], "")
}

/// Asks until the answer has `status`: the file is read again within about a second.
fn until(server: &Server, token: &str, status: u16) {
    let watch = Stopwatch::start();
    loop {
        let (got, answer) = ask(server, "GET", "/v1/video/targets/p1", Some(token), "");
        if got == status {
            return;
        }
        assert!(watch.elapsed() < Duration::from_secs(20), "still {got}, not {status}: {answer}");
    }
}

#[test]
fn every_route_asks_for_its_role_and_no_other_will_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    let tokens: Vec<String> = ROLES.iter().map(|role| new_key(&file, role, role, "*")).collect();
    let server = Server::start(&dir.path().join("data"), &["--set", &format!("keys={}", file.display())]);
    let (_, document) = server.request("GET", "/openapi.json", None).unwrap();
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| item.as_object().unwrap().keys().map(|m| (m.to_uppercase(), path.clone())))
        .filter(|(_, path)| !OPEN.contains(&path.as_str()))
        .collect();
    let known: BTreeSet<(String, String)> = ROUTES.iter().map(|(m, p, _)| ((*m).to_owned(), (*p).to_owned())).collect();
    assert_eq!(described, known, "add a new route to the table of this test");
    for (method, path, roles) in ROUTES {
        let path = filled(path);
        let (status, answer) = ask(&server, method, &path, None, "");
        assert_eq!(status, 401, "{method} {path} without a key");
        assert!(answer.to_ascii_lowercase().contains("www-authenticate: bearer"), "{answer}");
        for (role, token) in ROLES.iter().zip(&tokens) {
            let (status, answer) = ask(&server, method, &path, Some(token), "");
            if roles.contains(role) {
                assert!(status != 401 && status != 403, "{method} {path} with {role}: {answer}");
            } else {
                assert_eq!(status, 403, "{method} {path} with {role}");
                assert!(answer.contains("/problems/forbidden") && answer.contains(roles[0]), "{answer}");
            }
        }
    }
    for path in OPEN {
        assert_eq!(ask(&server, "GET", path, None, "").0, 200, "{path}");
    }
    // A time of its own needs `operate`, and a fact of now needs `write`.
    let fact = r#"{"facts":[{"target":"p1","kind":"like","user":"u1"}]}"#;
    let import = r#"{"facts":[{"target":"p1","kind":"like","user":"u1","at":"1"}]}"#;
    for (token, body, status) in [(1, fact, 200), (1, import, 403), (3, import, 200), (3, fact, 403)] {
        let (got, answer) = ask(&server, "POST", "/v1/video/facts", Some(&tokens[token]), body);
        assert_eq!(got, status, "{answer}");
    }
}

#[test]
fn a_key_is_for_its_namespaces_only() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    let token = new_key(&file, "video", "read,write,moderate,operate", "video");
    let server = Server::start(&dir.path().join("data"), &["--set", &format!("keys={}", file.display())]);
    let like = |namespace: &str| ask(&server, "PUT", &format!("/v1/{namespace}/targets/p/like/u"), Some(&token), "").0;
    assert_eq!((like("video"), like("article")), (200, 403));
    let hide = |namespace: &str| {
        let body = format!(
            r#"{{"namespace":"{namespace}","target":"p","kind":"like","members":["u"],"reason":"fraud","why":"a test"}}"#
        );
        ask(&server, "POST", "/v1/ops/hide", Some(&token), &body)
    };
    assert_eq!(hide("video").0, 202, "{}", hide("video").1);
    assert_eq!(hide("article").0, 403);
    for path in ["/v1/ops/top?namespace=article&kind=like", "/v1/ops/export?namespace=article", "/v1/ops/users/article/u/status"]
    {
        assert_eq!(ask(&server, "GET", path, Some(&token), "").0, 403, "{path}");
    }
    // What is about all namespaces needs a key for all.
    for path in ["/v1/ops/backup", "/v1/ops/audit", "/v1/ops/mode"] {
        assert_eq!(ask(&server, "GET", path, Some(&token), "").0, 403, "{path}");
    }
    assert_eq!(ask(&server, "POST", "/v1/ops/verify", Some(&token), r#"{"all":true}"#).0, 403);
}

#[test]
fn keys_are_rotated_without_a_restart_and_are_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    let old = new_key(&file, "old", "read", "*");
    let set = format!("keys={}", file.display());
    let server = Server::start(&dir.path().join("data"), &["--set", &set, "--set", "log=debug"]);
    until(&server, &old, 200);
    let new = new_key(&file, "new", "read", "*");
    until(&server, &new, 200);
    tally_ok(["key", "revoke", "--keys", &file.display().to_string(), "old"]);
    until(&server, &old, 401);
    assert_eq!(ask(&server, "GET", "/v1/video/targets/p1", Some(&new), "").0, 200);
    // A broken file keeps the keys that are there.
    let good = std::fs::read(&file).unwrap();
    std::fs::write(&file, "[[key]]\nid = ").unwrap();
    let watch = Stopwatch::start();
    while !ask(&server, "GET", "/metrics", Some(&new), "").1.contains(r#"tally_reloads_total{result="failed",what="keys"} 1"#) {
        assert!(watch.elapsed() < Duration::from_secs(20), "the broken file is not noticed");
    }
    assert_eq!(ask(&server, "GET", "/v1/video/targets/p1", Some(&new), "").0, 200);
    std::fs::write(&file, good).unwrap();
    // The tools send a key from a file or from the environment, and say what is missing without one.
    let key = dir.path().join("new.key");
    std::fs::write(&key, &new).unwrap();
    let get = ["get", "--url", &server.url(), "--namespace", "video", "p1", "--json"];
    tally_ok(get.iter().copied().chain(["--key-file", &key.display().to_string()]));
    assert!(command().args(get).env("TALLY_KEY", &new).output().unwrap().status.success());
    let without = tally(get);
    assert_eq!(without.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&without.stderr).contains("401"));
    // Nobody finds the secret where it does not belong.
    let listed = tally_ok(["key", "list", "--keys", &file.display().to_string(), "--json"]);
    let shown: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(shown.as_array().unwrap().len(), 2);
    let config = command().args(["config", "print", "--set", &set]).env("TALLY_KEY", &new).output().unwrap();
    let config = String::from_utf8_lossy(&config.stdout).into_owned();
    let stored = std::fs::read_to_string(&file).unwrap();
    for token in [&old, &new] {
        let secret = token.rsplit('_').next().unwrap();
        for (place, text) in
            [("log", server.log()), ("list", listed.clone()), ("config", config.clone()), ("file", stored.clone())]
        {
            assert!(!text.contains(secret), "the secret is in the {place}");
        }
    }
}

#[test]
fn only_loopback_without_keys_and_no_keys_without_tls() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    new_key(&file, "k", "read", "*");
    let data = dir.path().join("data").display().to_string();
    let keys = format!("keys={}", file.display());
    let start = |set: &[&str]| {
        let sets = set.iter().flat_map(|s| ["--set", s]);
        let output = tally(["serve", "--data", &data, "--listen", "0.0.0.0:0"].into_iter().chain(sets));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = start(&[]);
    assert!(code == Some(2) && text.contains("tally key new"), "{text}");
    let (code, text) = start(&[&keys]);
    assert!(code == Some(2) && text.contains("insecure_http"), "{text}");
    let (code, text) = start(&["keys=/nowhere/keys.toml", "insecure_http=true"]);
    assert!(code == Some(2) && text.contains("/nowhere/keys.toml"), "{text}");
}
