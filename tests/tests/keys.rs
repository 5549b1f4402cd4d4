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
    ("GET", "/v1/ops/explain", &["moderate", "operate"]),
    ("GET", "/v1/ops/export", &["operate"]),
    ("POST", "/v1/ops/hide", &["moderate"]),
    ("POST", "/v1/ops/show", &["moderate"]),
    ("GET", "/v1/ops/hide-runs", &["moderate", "operate"]),
    ("GET", "/v1/ops/hide-runs/{id}", &["moderate", "operate"]),
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

/// JSON of an answer with this status.
fn answer(server: &Server, method: &str, path: &str, token: &str, body: &str, wanted: u16) -> Value {
    let (status, answer) = ask(server, method, path, Some(token), body);
    assert_eq!(status, wanted, "{method} {path}: {answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// What a job or a run answers once it has ended.
fn ended(server: &Server, path: &str, token: &str) -> Value {
    let watch = Stopwatch::start();
    loop {
        let now = answer(server, "GET", path, token, "", 200);
        if !matches!(now["state"].as_str(), Some("running" | "queued")) {
            return now;
        }
        assert!(watch.elapsed() < Duration::from_secs(30), "{now}");
    }
}

/// Texts under `name` in the list that `path` answers.
fn listed(server: &Server, path: &str, list: &str, token: &str) -> BTreeSet<String> {
    let found = answer(server, "GET", path, token, "", 200);
    found[list].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn whoever_may_start_work_sees_that_of_their_namespaces_and_nothing_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    let root = new_key(&file, "root", "read,write,moderate,operate", "*");
    // Role and namespaces of each key, and its token.
    let keys: Vec<(&str, &str, String)> = ["operate", "moderate", "read,write"]
        .into_iter()
        .flat_map(|role| ["video", "article", "video,article", "*"].map(|namespaces| (role, namespaces)))
        .map(|(role, of)| (role, of, new_key(&file, &format!("{role} {of}"), role, of)))
        .collect();
    let key = |role: &str, of: &str| keys.iter().find(|k| (k.0, k.1) == (role, of)).unwrap().2.as_str();
    let server = Server::start(&dir.path().join("data"), &["--set", &format!("keys={}", file.display())]);
    // A path of what was made, and whose it is; `None`: everybody's.
    let mut made: Vec<(String, Option<&str>)> = Vec::new();
    for of in ["video", "article"] {
        answer(&server, "PUT", &format!("/v1/{of}/targets/p/like/u"), &root, "", 200);
        let order = format!(r#"{{"namespace":"{of}","target":"p"}}"#);
        for what in ["verify", "rebuild"] {
            let started = answer(&server, "POST", &format!("/v1/ops/{what}"), key("operate", of), &order, 202);
            let path = format!("/v1/ops/jobs/{}", started["id"].as_str().unwrap());
            let done = ended(&server, &path, key("operate", of));
            assert_eq!((&done["state"], &done["report"]["facts"]), (&"done".into(), &1.into()), "{done}");
            made.push((format!("/v1/ops/reports/{}", done["report"]["id"].as_str().unwrap()), Some(of)));
            made.push((path, Some(of)));
        }
        let order =
            format!(r#"{{"namespace":"{of}","target":"p","kind":"like","members":["u"],"reason":"fraud","why":"a test"}}"#);
        let run = answer(&server, "POST", "/v1/ops/hide", key("moderate", of), &order, 202);
        let path = format!("/v1/ops/hide-runs/{}", run["id"].as_str().unwrap());
        ended(&server, &path, key("moderate", of));
        let undo = answer(&server, "POST", &format!("{path}/undo"), key("moderate", of), r#"{"why":"a test"}"#, 202);
        assert_eq!(undo["namespace"], of, "{undo}");
        made.push((path, Some(of)));
        made.push((format!("/v1/ops/hide-runs/{}", undo["id"].as_str().unwrap()), Some(of)));
        // A suspension is ordered by `operate`, who then looks at its run.
        let body = r#"{"status":"suspended","why":"a test"}"#;
        let set = answer(&server, "PUT", &format!("/v1/ops/users/{of}/v/status"), key("operate", of), body, 200);
        made.push((format!("/v1/ops/hide-runs/{}", set["run"].as_str().unwrap()), Some(of)));
    }
    let all = answer(&server, "POST", "/v1/ops/verify", &root, r#"{"all":true}"#, 202);
    let path = format!("/v1/ops/jobs/{}", all["id"].as_str().unwrap());
    let report = ended(&server, &path, &root);
    made.push((format!("/v1/ops/reports/{}", report["report"]["id"].as_str().unwrap()), None));
    made.push((path, None));

    for (role, of, token) in &keys {
        for (list, prefix, roles) in [
            ("jobs", "/v1/ops/jobs", &["operate"][..]),
            ("reports", "/v1/ops/reports", &["operate"]),
            ("runs", "/v1/ops/hide-runs", &["moderate", "operate"]),
        ] {
            let ours: Vec<_> = made.iter().filter(|(path, _)| path.starts_with(prefix)).collect();
            assert!(ours.len() >= 4);
            let sees = |whose: &Option<&str>| *of == "*" || whose.is_some_and(|whose| of.split(',').any(|n| n == whose));
            if !roles.contains(role) {
                assert_eq!(ask(&server, "GET", prefix, Some(token), "").0, 403, "{prefix} with {role} of {of}");
                assert!(ours.iter().all(|(path, _)| ask(&server, "GET", path, Some(token), "").0 == 403), "{role} of {of}");
                continue;
            }
            let id = |path: &str| path.rsplit('/').next().unwrap().to_owned();
            let wanted: BTreeSet<String> = ours.iter().filter(|(_, whose)| sees(whose)).map(|(path, _)| id(path)).collect();
            assert_eq!(listed(&server, prefix, list, token), wanted, "{prefix} with {role} of {of}");
            for (path, whose) in ours {
                let (status, found) = ask(&server, "GET", path, Some(token), "");
                assert_eq!(status, if sees(whose) { 200 } else { 404 }, "{path} of {whose:?} with {role} of {of}: {found}");
                if !sees(whose) {
                    // As if it did not exist: word for word what is answered for a number that nobody has.
                    let nothing =
                        ask(&server, "GET", &format!("{prefix}/{}", id(path).replace(['1', '2'], "9")), Some(token), "");
                    let told = |text: &str| text.split_once("\r\n\r\n").unwrap().1.replace(char::is_numeric, "");
                    assert_eq!((nothing.0, told(&nothing.1)), (404, told(&found)), "{path}");
                }
            }
        }
        // Neither may anybody end or undo what they do not see.
        for (path, whose) in made.iter().filter(|(path, _)| path.contains("hide-runs")) {
            for verb in ["undo", "cancel"] {
                let (status, told) = ask(&server, "POST", &format!("{path}/{verb}"), Some(token), r#"{"why":""}"#);
                let sees = *of == "*" || whose.is_some_and(|whose| of.split(',').any(|n| n == whose));
                let wanted = if *role != "moderate" {
                    403
                } else if sees {
                    400
                } else {
                    404
                };
                assert_eq!(status, wanted, "{verb} of {path} with {role} of {of}: {told}");
            }
        }
    }
    // What is everybody's is told to nobody else, and a moderator may look at a fact.
    let reports = answer(&server, "GET", "/v1/ops/reports", key("operate", "video"), "", 200);
    assert_eq!((&reports["unfinished"], &reports["parts_verified_at"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    for (of, status) in [("video", 200), ("article", 403)] {
        let path = format!("/v1/ops/explain?namespace={of}&target=p&kind=like&member=v");
        let told = answer(&server, "GET", &path, key("moderate", "video"), "", status);
        if status == 200 {
            assert_eq!((&told["user_status"]["status"], &told["target_status"]["status"]), (&"suspended".into(), &"open".into()));
        }
    }
}

#[test]
fn what_another_reading_of_keys_and_certificates_changed_is_in_the_audit_log_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.toml");
    let root = new_key(&file, "root", "read,operate", "*");
    let old = new_key(&file, "old", "read", "*");
    let server = Server::start(&dir.path().join("data"), &["--set", &format!("keys={}", file.display())]);
    until(&server, &old, 200);
    let new = new_key(&file, "new", "read", "*");
    until(&server, &new, 200);
    tally_ok(["key", "revoke", "--keys", &file.display().to_string(), "old"]);
    until(&server, &old, 401);
    let watch = Stopwatch::start();
    let (entries, text) = loop {
        let (status, text) = ask(&server, "GET", "/v1/ops/audit?operator=process&action=reload-keys", Some(&root), "");
        assert_eq!(status, 200, "{text}");
        let page: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
        let entries = page["entries"].as_array().unwrap().clone();
        if entries.len() == 2 {
            break (entries, text);
        }
        assert!(watch.elapsed() < Duration::from_secs(20), "{page}");
    };
    let [last, first] = entries.as_slice() else { unreachable!() };
    assert_eq!((&first["after"]["added"], &first["after"]["keys"]), (&serde_json::json!(["new"]), &3.into()), "{first}");
    let gone = [&last["after"]["removed"], &last["after"]["changed"]];
    assert!(gone.iter().any(|names| **names == serde_json::json!(["old"])), "{last}");
    assert_eq!(last["why"], "the file has changed");
    let stored = std::fs::read_to_string(&file).unwrap();
    for secret in [&root, &old, &new].map(|token| token.rsplit('_').next().unwrap().to_owned()) {
        assert!(!text.contains(&secret));
    }
    for hash in stored.lines().filter_map(|line| line.strip_prefix("hash = ")) {
        assert!(!text.contains(hash.trim_matches('"').trim_start_matches("sha256:")), "not even a hash");
    }
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
