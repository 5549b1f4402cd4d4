//! A store that an earlier version wrote opens in this one and says the same; one of a newer format is
//! refused with what to do.
//!
//! The stores lie in `tests/fixtures`, named by the version that wrote them; each release adds its own and
//! changes none: `cargo test -p tally-tests --test upgrade -- --ignored` writes those of this version.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::{Map, Value, json};
use store::{
    clock::Stopwatch,
    embedded::{Embedded, EmbeddedSettings},
    engine::MetaTable,
};
use tally_tests::server::{Server, free_address, tally, tally_ok};

/// How long what an earlier process left in its journal may take to be counted.
const PATIENCE: Duration = Duration::from_secs(20);
/// Short slots, and runs are kept however old the store is.
const SETTINGS: [&str; 8] =
    ["--set", "slot=200ms", "--set", "sweep_delay=500ms", "--set", "run_retention=0s", "--set", "log=warn"];
/// Largest archive that is kept, in bytes.
const MOST: u64 = 100 << 10;
/// Members of the large target: more than the 128 of a small one.
const LARGE: usize = 150;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn run(command: &mut Command) {
    let done = command.status().expect("tar is everywhere");
    assert!(done.success(), "{command:?}: {done}");
}

fn ok(server: &Server, method: &str, path: &str, body: Option<&Value>) -> Value {
    let body = body.map(Value::to_string);
    let (status, answer) = server.request(method, path, body.as_deref()).expect("an answer");
    assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    answer
}

fn put(server: &Server, namespace: &str, facts: &[(&str, &str, &str, Option<&str>)]) {
    let item = |(target, kind, user, choice): &(&str, &str, &str, Option<&str>)| json!({ "target": target, "kind": kind, "user": user, "choice": choice });
    let body = json!({ "facts": facts.iter().map(item).collect::<Vec<_>>() });
    let answer = ok(server, "POST", &format!("/v1/{namespace}/facts"), Some(&body));
    let outcomes: Vec<&Value> = answer["results"].as_array().expect("results").iter().map(|r| &r["outcome"]).collect();
    assert!(outcomes.iter().all(|outcome| *outcome == "applied"), "{answer}");
}

/// Waits for the end of the run that `answer` names.
fn ended(server: &Server, answer: &Value) -> Value {
    let id = answer["id"].as_str().or(answer["run"].as_str()).expect("a run");
    let watch = Stopwatch::start();
    loop {
        let run = ok(server, "GET", &format!("/v1/ops/hide-runs/{id}"), None);
        if run["state"] == "done" {
            return run;
        }
        assert!(watch.elapsed() < PATIENCE, "{run}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Every sort of row: small and large targets, withdrawn, hidden (also in advance, also undone), several
/// kinds and namespaces, statuses, a suspended user, the audit log, a verify.
fn fill(server: &Server) {
    let users: Vec<String> = (0..LARGE).map(|i| format!("u{i}")).collect();
    let likes: Vec<_> = users.iter().map(|user| ("large", "like", user.as_str(), Some("like"))).collect();
    put(server, "video", &likes);
    let moods = [("small", "love"), ("small", "wow"), ("other", "sad")];
    let moods: Vec<_> = moods.iter().zip(&users).map(|((t, mood), user)| (*t, "reaction", user.as_str(), Some(*mood))).collect();
    put(server, "video", &moods);
    put(server, "article", &[("small", "like", "ä ö/ü", Some("like")), ("small", "bookmark", "u1", Some("bookmark"))]);
    let small = ["small", "other", "closed", "gone"].map(|target| (target, "like", "mallory", Some("like")));
    put(server, "video", &small);
    put(server, "video", &[("small", "like", "u1", Some("like")), ("small", "like", "u2", Some("like"))]);
    put(server, "video", &[("small", "like", "u2", None), ("large", "like", "u3", None)]);
    let hide = |members: &[&str], reason: &str| {
        let body = json!({
            "namespace": "video", "target": "large", "kind": "like", "members": members, "reason": reason,
            "why": "bought", "ticket": "T-1", "operator": "ada",
        });
        ended(server, &ok(server, "POST", "/v1/ops/hide", Some(&body)))
    };
    hide(&["u5", "u6", "u7", "in advance"], "fraud");
    let mistake = hide(&["u7", "u8", "u9"], "moderation");
    let undo = format!("/v1/ops/hide-runs/{}/undo", mistake["id"].as_str().expect("a number"));
    ended(server, &ok(server, "POST", &undo, Some(&json!({ "why": "a mistake", "operator": "ada" }))));
    for (place, status) in
        [("targets/video/closed", "closed"), ("targets/video/gone", "gone"), ("users/video/mallory", "suspended")]
    {
        let set = ok(server, "PUT", &format!("/v1/ops/{place}/status"), Some(&json!({ "status": status, "why": "a rule" })));
        if set["run"].is_string() {
            ended(server, &set);
        }
    }
    let job = ok(server, "POST", "/v1/ops/verify", Some(&json!({ "reason": "before it is kept" })));
    let watch = Stopwatch::start();
    while ok(server, "GET", &format!("/v1/ops/jobs/{}", job["id"].as_str().expect("an id")), None)["state"] == "running" {
        assert!(watch.elapsed() < PATIENCE, "the verify does not end");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What a killed process leaves in its journal and nowhere else for sure.
fn fill_more(server: &Server) {
    let more = ["large", "small"].map(|target| (target, "like", "late", Some("like")));
    put(server, "video", &more);
    put(server, "video", &[("large", "like", "u0", None), ("only late", "like", "late", Some("like"))]);
}

/// All pages of a list.
fn pages(server: &Server, path: &str, field: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ok(server, "GET", &format!("{path}?limit=40{cursor}"), None);
        all.extend(page[field].as_array().unwrap_or_else(|| panic!("{path}: {page}")).iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// Everything that readers and operators are told, but for what depends on the moment.
fn told(server: &Server) -> Value {
    let mut all = Map::new();
    for (namespace, target) in [
        ("video", "large"),
        ("video", "small"),
        ("video", "other"),
        ("video", "closed"),
        ("video", "only late"),
        ("article", "small"),
    ] {
        let path = format!("/v1/{namespace}/targets/{}", target.replace(' ', "%20"));
        all.insert(path.clone(), ok(server, "GET", &path, None)["kinds"].clone());
        for kind in ["like", "bookmark", "reaction"] {
            let path = format!("{path}/{kind}");
            all.insert(path.clone(), Value::Array(pages(server, &path, "members")));
        }
    }
    for path in ["/v1/video/users/mallory/like", "/v1/video/users/u1/like", "/v1/video/users/u1/reaction"] {
        all.insert(path.to_owned(), Value::Array(pages(server, path, "facts")));
    }
    let gone = server.request("GET", "/v1/video/targets/gone", None).expect("an answer");
    all.insert("/v1/video/targets/gone".to_owned(), json!(gone.0));
    let more =
        ["targets/video/closed", "targets/video/gone", "users/video/mallory"].map(|place| format!("/v1/ops/{place}/status"));
    let state = ["u5", "u7", "u8", "u3", "in%20advance"].map(|user| format!("/v1/video/targets/large/like/{user}"));
    for path in more.into_iter().chain(state) {
        all.insert(path.clone(), ok(server, "GET", &path, None));
    }
    all.insert("/v1/ops/hide-runs".to_owned(), Value::Array(pages(server, "/v1/ops/hide-runs", "runs")));
    all.insert("/v1/ops/audit".to_owned(), Value::Array(pages(server, "/v1/ops/audit", "entries")));
    // Its registers with their versions, as lines; a hash would not tell what differs.
    let export = ok(server, "GET", "/v1/ops/export?namespace=video&all_registers=true&limit=500", None);
    let lines: Vec<Value> =
        export.as_str().expect("lines").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.len() > LARGE, "{} lines", lines.len());
    all.insert("/v1/ops/export".to_owned(), Value::Array(lines));
    Value::Object(all)
}

/// Whether `found` says all that `expected` says; a later version may say more of a thing, but not of more
/// things.
fn says(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(name, expected)| found.get(name).is_some_and(|found| says(found, expected)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(found, expected)| says(found, expected))
        }
        _ => found == expected,
    }
}

/// What is told, once all is counted.
fn settled(server: &Server, due: impl Fn(&Value) -> bool) -> Value {
    let watch = Stopwatch::start();
    loop {
        let now = told(server);
        if due(&now) || watch.elapsed() > PATIENCE {
            return now;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Writes the stores of this version: one that was closed in order, and one whose server was killed with
/// changes in its journal.
#[test]
#[ignore = "writes what is checked in; for a release: cargo test -p tally-tests --test upgrade -- --ignored"]
fn make_the_stores_of_this_version() {
    let folder = tempfile::tempdir().expect("a place for data");
    let data = folder.path().join("data");
    for name in ["closed", "killed"] {
        let mut server = Server::start(&data, &["--set", "log=warn"]);
        let expected = if name == "closed" {
            fill(&server);
            let due = |now: &Value| now["/v1/video/targets/large"]["like"]["total"] == LARGE - 4;
            let expected = settled(&server, due);
            assert!(due(&expected), "{expected}");
            assert!(server.stop().0.success());
            expected
        } else {
            fill_more(&server);
            server.kill();
            let copy = folder.path().join("copy");
            run(Command::new("cp").args(["-r", "--sparse=always"]).arg(&data).arg(&copy));
            let server = Server::start(&copy, &["--set", "log=warn"]);
            let due = |now: &Value| {
                now["/v1/video/targets/only%20late"]["like"]["total"] == 1
                    && now["/v1/video/targets/large"]["like"]["total"] == LARGE - 4
            };
            let expected = settled(&server, due);
            assert!(due(&expected), "{expected}");
            tally_ok(["verify", "--url", &server.url()]);
            expected
        };
        let place = fixtures().join(format!("store-{}-{name}", env!("CARGO_PKG_VERSION")));
        fs::create_dir_all(fixtures()).expect("a folder");
        let archive = place.with_extension("tar.gz");
        let archive = archive.with_file_name(format!("{}.tar.gz", place.file_name().expect("a name").to_string_lossy()));
        run(Command::new("tar")
            .args(["--sparse", "--owner=0", "--group=0", "-czf"])
            .arg(&archive)
            .arg("-C")
            .arg(folder.path())
            .arg("data"));
        assert!(fs::metadata(&archive).expect("written").len() < MOST, "{} is too large to be kept", archive.display());
        let text = serde_json::to_string(&expected).expect("JSON").replace("},{", "},\n{") + "\n";
        fs::write(archive.to_string_lossy().replace(".tar.gz", ".json"), text).expect("room for it");
        println!("{}", archive.display());
    }
}

/// A copy of a kept store and what it must tell.
fn kept(archive: &Path) -> (tempfile::TempDir, PathBuf, Value) {
    let folder = tempfile::tempdir().expect("a place for data");
    run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()));
    let data = folder.path().join("data");
    let expected = fs::read_to_string(archive.to_string_lossy().replace(".tar.gz", ".json")).expect("beside the store");
    (folder, data, serde_json::from_str(&expected).expect("JSON"))
}

fn archives() -> Vec<PathBuf> {
    let all = fs::read_dir(fixtures()).expect("the stores that are kept").map(|entry| entry.expect("readable").path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.to_string_lossy().ends_with(".tar.gz")).collect();
    all.sort();
    assert!(all.len() >= 2, "{all:?}");
    all
}

#[test]
fn stores_of_earlier_versions_open_and_say_what_they_said() {
    for archive in archives() {
        println!("{}", archive.display());
        let (_folder, data, expected) = kept(&archive);
        let server = Server::start(&data, &SETTINGS);
        let found = settled(&server, |now| says(now, &expected));
        for (path, expected) in expected.as_object().expect("by path") {
            let found = &found[path];
            assert!(says(found, expected), "{}: {path} was {expected}, is {found}", archive.display());
        }
        tally_ok(["verify", "--url", &server.url()]);
        // It goes on: a like is counted, and what the earlier version hid is shown again by an undo.
        put(&server, "video", &[("large", "like", "new", Some("like"))]);
        let runs = pages(&server, "/v1/ops/hide-runs", "runs");
        let fraud = runs.iter().find(|run| run["reason"] == "fraud").expect("its run");
        let undo = format!("/v1/ops/hide-runs/{}/undo", fraud["id"].as_str().expect("a number"));
        let undone = ended(&server, &ok(&server, "POST", &undo, Some(&json!({ "why": "a new version" }))));
        assert_eq!(undone["changed"], 4, "{undone}");
        // u5, u6, u7 and the new one.
        let total = expected["/v1/video/targets/large"]["like"]["total"].as_u64().expect("a number") + 4;
        settled(&server, |now| now["/v1/video/targets/large"]["like"]["total"] == total);
        assert_eq!(ok(&server, "GET", "/v1/video/targets/large", None)["kinds"]["like"]["total"], total);
        assert!(server.stop().0.success());
        tally_ok(["verify", "--data", &data.to_string_lossy()]);
    }
}

/// Serving and checking refuse with exit code 3, the directory and what to do.
fn assert_refused(data: &Path) {
    let path = data.to_string_lossy();
    let serve = tally(["serve", "--listen", &free_address(), "--set", "log=error", "--data", &path]);
    let verify = tally(["verify", "--data", &path]);
    for output in [serve, verify] {
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains(&*path) && text.contains("format 2") && text.contains("upgrade this process"), "{text}");
    }
}

#[test]
fn a_directory_of_a_newer_format_is_refused_and_left_as_it_is() {
    let (_folder, data, _) = kept(&archives()[0]);
    let mark = data.join("TALLY");
    let text = fs::read_to_string(&mark).expect("the mark");
    assert!(text.contains("format 1"), "{text}");
    fs::write(&mark, text.replace("format 1", "format 2")).expect("the mark");
    assert_refused(&data);
    fs::write(&mark, text).expect("the mark");
    tally_ok(["verify", "--data", &data.to_string_lossy()]);
}

#[tokio::test]
async fn rows_of_a_newer_format_are_refused() {
    let (_folder, data, _) = kept(&archives()[0]);
    let engine = Arc::new(Embedded::open(&data, &EmbeddedSettings::default()).expect("it opens"));
    let stored = engine.get_meta("settings").await.expect("a read").expect("recorded at the first start");
    let mut settings: Value = serde_json::from_slice(&stored).expect("JSON");
    assert_eq!(settings["format"], 1);
    settings["format"] = json!(2);
    engine.put_meta("settings", settings.to_string().as_bytes()).await.expect("a write");
    drop(engine);
    assert_refused(&data);
}
