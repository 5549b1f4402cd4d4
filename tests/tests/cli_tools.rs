//! The operators' tools as the real binary: explain, export, backup and restore, settings, man pages.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    process::Output,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use serde_json::{Value, json};
use tally_tests::server::{Server, command, request, tally, tally_ok};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_fails(output: &Output, code: i32, part: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(part), "expected `{part}` in: {text}");
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn json_of(out: &str) -> Value {
    serde_json::from_str(out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

/// Sends lines of an export's shape to a server.
fn import(server: &Server, file: &Path) -> Value {
    let args = ["import", &text(file), "--format", "tally", "--url", &server.url(), "--namespace", "n", "--json"];
    json_of(&tally_ok(args))
}

/// A large target with withdrawn and hidden facts, small ones of two kinds, and ids that need care.
fn sample() -> String {
    let mut out = String::new();
    let at = |i: u64| (1_700_000_000_000_000 + i).to_string();
    let mut line = |value: Value| out += &format!("{value}\n");
    for i in 0..6000 {
        line(json!({"target": "big", "kind": "like", "user": format!("u{i}"), "choice": "like", "at": at(i)}));
    }
    for i in 0..40 {
        line(json!({"target": "big", "kind": "like", "user": format!("u{i}"), "choice": null, "at": at(10_000 + i)}));
        line(
            json!({"target": "big", "kind": "like", "user": format!("u{}", i + 100), "register": "fraud", "hidden": true, "at": at(20_000 + i)}),
        );
    }
    for (i, target) in ["p/1", "p 2", "p\"3\"", "é+%"].into_iter().enumerate() {
        let user = format!("<u&{i}>");
        line(json!({"target": target, "kind": "reaction", "user": user, "choice": "sad", "at": at(i as u64)}));
        line(json!({"target": target, "kind": "comment", "user": format!("c{i}"), "choice": "comment", "at": at(i as u64)}));
    }
    line(
        json!({"target": "p/1", "kind": "reaction", "user": "in advance", "register": "moderation", "hidden": true, "at": at(5)}),
    );
    line(json!({"target": "p/1", "kind": "reaction", "user": "shown again", "choice": "wow", "at": at(5)}));
    line(
        json!({"target": "p/1", "kind": "reaction", "user": "shown again", "register": "suspension", "hidden": false, "at": at(6)}),
    );
    out
}

fn counts(server: &Server) -> Value {
    let body = json!({"targets": ["big", "p/1", "p 2", "p\"3\"", "é+%"]}).to_string();
    let (status, mut answer) = server.request("POST", "/v1/n/counts", Some(&body)).expect("an answer");
    assert_eq!(status, 200, "{answer}");
    answer.as_object_mut().expect("an object").remove("complete_until");
    answer
}

/// The first pages of the lists, by target and by user.
fn lists(server: &Server) -> Vec<Value> {
    let paths = [
        "/v1/n/targets/big/like?limit=200",
        "/v1/n/targets/p%2F1/reaction",
        "/v1/n/users/u4711/like",
        "/v1/n/users/%3Cu%260%3E/reaction",
    ];
    let list = |path: &&str| {
        let (status, mut answer) = server.request("GET", path, None).expect("an answer");
        assert_eq!(status, 200, "{path}: {answer}");
        answer.as_object_mut().expect("an object").remove("complete_until");
        answer
    };
    paths.iter().map(list).collect()
}

#[test]
fn an_export_imported_into_an_empty_store_gives_the_same_counts_lists_and_export() {
    let folder = tempfile::tempdir().expect("a place");
    let place = |name: &str| folder.path().join(name);
    fs::write(place("in.ndjson"), sample()).expect("written");
    let first = Server::start(&place("first"), &[]);
    let summary = import(&first, &place("in.ndjson"));
    assert_eq!((summary["bad"].as_u64(), summary["rejected"].as_u64()), (Some(0), Some(0)), "{summary}");
    tally_ok(["verify", "--url", &first.url()]);
    let export = |server: &Server, name: &str, more: &[&str]| {
        let (file, url) = (text(&place(name)), server.url());
        tally_ok(["export", &file, "--namespace", "n", "--url", &url].iter().chain(more));
        fs::read(place(name)).expect("an export")
    };
    let all = export(&first, "all.ndjson", &["--all-registers"]);
    let lines: Vec<Value> = String::from_utf8(all.clone()).expect("text").lines().map(json_of).collect();
    // 6000 likes, 8 of the small targets, three about `in advance` and `shown again`, 40 hides.
    assert_eq!(lines.len(), 6000 + 8 + 3 + 40);
    assert!(!place("all.ndjson.partial").exists(), "a whole file has its name");
    let counted = export(&first, "counted.ndjson", &[]);
    assert_eq!(String::from_utf8(counted).expect("text").lines().count(), 6000 - 80 + 8 + 1);
    let likes = export(&first, "likes.ndjson", &["--kind", "comment"]);
    assert_eq!(String::from_utf8(likes).expect("text").lines().count(), 4);

    let second = Server::start(&place("second"), &[]);
    let summary = import(&second, &place("all.ndjson"));
    // What was withdrawn in the old store is withdrawn in the new one, too, which is no change there.
    let landed = summary["applied"].as_u64().zip(summary["unchanged"].as_u64()).map(|(a, u)| a + u);
    assert_eq!((landed, summary["bad"].as_u64()), (Some(lines.len() as u64), Some(0)), "{summary}");
    tally_ok(["verify", "--url", &second.url()]);
    assert_eq!(counts(&second), counts(&first));
    assert_eq!(lists(&second), lists(&first));
    assert!(export(&second, "again.ndjson", &["--all-registers"]) == all, "the second export is the first, byte for byte");
    let gz = export(&second, "again.ndjson.gz", &["--all-registers"]);
    assert!(gz.starts_with(&[0x1f, 0x8b]) && gz.len() < all.len() / 4, "{} bytes", gz.len());
    // What is compressed comes back as well, and changes nothing.
    let summary = import(&second, &place("again.ndjson.gz"));
    assert_eq!(summary["applied"].as_u64(), Some(0), "{summary}");
    assert!(second.stop().0.success());
    // The same without a server.
    tally_ok(["export", &text(&place("off.ndjson")), "--namespace", "n", "--all-registers", "--data", &text(&place("second"))]);
    assert!(fs::read(place("off.ndjson")).expect("an export") == all);

    // What only an export has is refused from anybody else's hands.
    let bad = r#"{"facts":[{"target":"p","kind":"like","user":"u","register":"fraud","hidden":true}]}"#;
    let (_, answer) = first.request("POST", "/v1/n/facts", Some(bad)).expect("an answer");
    assert_eq!(answer["results"][0]["problem"]["field"], "register", "{answer}");
    for (path, field) in [
        ("namespace=N", "namespace"),
        ("namespace=n&limit=0", "limit"),
        ("namespace=n&cursor=7b", "cursor"),
        ("namespace=n&kind=lik", "kind"),
    ] {
        let (status, answer) = first.request("GET", &format!("/v1/ops/export?{path}"), None).expect("an answer");
        assert_eq!((status, &answer["field"]), (400, &Value::from(field)), "{answer}");
    }
}

/// Likes that were answered, in order.
type Answered = Arc<Mutex<Vec<(String, String)>>>;

/// Likes one after another until `stop`.
fn traffic(address: &str, worker: usize, answered: &Answered, stop: &AtomicBool) {
    for i in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (target, user) = (format!("t{}", i % 7), format!("w{worker}-{i}"));
        let (status, answer) = request(address, "PUT", &format!("/v1/n/targets/{target}/like/{user}"), None).expect("an answer");
        assert_eq!(status, 200, "{answer}");
        answered.lock().expect("nobody panics with it").push((target, user));
    }
}

#[test]
fn a_backup_taken_under_traffic_restores_to_everything_answered_before_it_and_verifies_clean() {
    let folder = tempfile::tempdir().expect("a place");
    let place = |name: &str| folder.path().join(name);
    fs::write(place("in.ndjson"), sample()).expect("written");
    let server = Server::start(&place("data"), &[]);
    import(&server, &place("in.ndjson"));
    let (answered, stop) = (Answered::default(), Arc::new(AtomicBool::new(false)));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (address, answered, stop) = (server.address().to_owned(), answered.clone(), stop.clone());
            thread::spawn(move || traffic(&address, worker, &answered, &stop))
        })
        .collect();
    while answered.lock().expect("nobody panics with it").len() < 200 {
        thread::yield_now();
    }
    let before = answered.lock().expect("nobody panics with it").clone();
    let manifest = json_of(&tally_ok(["backup", &text(&place("copy")), "--url", &server.url(), "--json"]));
    stop.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| worker.join().expect("no request fails"));
    assert!(answered.lock().expect("nobody panics with it").len() > before.len(), "there was traffic during the copy");
    assert!(manifest["rows"].as_u64() > Some(20_000), "{manifest}");
    assert_fails(&tally(["backup", &text(&place("copy")), "--url", &server.url()]), 2, "is not empty");
    drop(server);

    let restored = json_of(&tally_ok(["restore", &text(&place("copy")), &text(&place("restored")), "--json"]));
    assert_eq!((&restored["rows"], restored["verify"]["drifted"].as_u64()), (&manifest["rows"], Some(0)), "{restored}");
    let out = tally_ok(["export", "--namespace", "n", "--data", &text(&place("restored"))]);
    let there: std::collections::BTreeSet<(String, String)> = out
        .lines()
        .map(json_of)
        .map(|line| (line["target"].as_str().expect("text").to_owned(), line["user"].as_str().expect("text").to_owned()))
        .collect();
    let lost: Vec<_> = before.iter().filter(|fact| !there.contains(fact)).collect();
    assert!(lost.is_empty(), "answered before the backup began, and not in it: {lost:?}");
    // A server on the restored data goes on, and counts are the facts.
    let server = Server::start(&place("restored"), &[]);
    let (status, _) = server.request("PUT", "/v1/n/targets/t0/like/afterwards", None).expect("an answer");
    assert_eq!(status, 200);
    tally_ok(["verify", "--url", &server.url()]);
    drop(server);

    // A copy of a directory that no server has open holds the same facts.
    tally_ok(["backup", &text(&place("cold")), "--data", &text(&place("restored"))]);
    tally_ok(["restore", &text(&place("cold")), &text(&place("thawed"))]);
    assert_fails(&tally(["restore", &text(&place("cold")), &text(&place("thawed"))]), 2, "is not empty");
}

#[test]
fn a_damaged_or_cut_off_backup_is_refused_by_name_and_nothing_is_made_of_it() {
    let folder = tempfile::tempdir().expect("a place");
    let place = |name: &str| folder.path().join(name);
    let server = Server::start(&place("data"), &[]);
    assert_eq!(server.request("PUT", "/v1/n/targets/p/like/u", None).expect("an answer").0, 200);
    tally_ok(["backup", &text(&place("copy")), "--url", &server.url()]);
    drop(server);
    let part = place("copy").join("rows-000001.part");
    let good = fs::read(&part).expect("a part");
    let restore = || tally(["restore", &text(&place("copy")), &text(&place("restored"))]);
    let mut bad = good.clone();
    *bad.last_mut().expect("not empty") ^= 0x40;
    fs::write(&part, bad).expect("written");
    assert_fails(&restore(), 1, "rows-000001.part: its bytes have changed");
    fs::write(&part, &good[..good.len() / 2]).expect("written");
    assert_fails(&restore(), 1, "rows-000001.part: it has");
    fs::remove_file(&part).expect("removed");
    assert_fails(&restore(), 1, "rows-000001.part: missing");
    fs::write(&part, &good).expect("written");
    let sums = fs::read(place("copy").join("SHA256SUMS")).expect("the sums");
    fs::remove_file(place("copy").join("SHA256SUMS")).expect("removed");
    assert_fails(&restore(), 1, "SHA256SUMS: missing: the backup was not finished");
    assert!(!place("restored").exists(), "nothing is made of a bad backup");
    assert_fails(&tally(["restore", &text(&place("nowhere")), &text(&place("restored"))]), 3, "there is no backup");
    fs::write(place("copy").join("SHA256SUMS"), sums).expect("written");
    assert!(restore().status.success());

    // A server that dies in the middle of a copy: what came is no backup.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let dying = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        assert!(stream.read(&mut [0; 1024]).expect("a request") > 0);
        let head = br#"{"format":1,"version":"0","started":7}"#;
        let length = u32::try_from(head.len()).expect("short").to_be_bytes();
        let answer = [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nH", &length[..], head, &good].concat();
        stream.write_all(&answer).expect("sent");
    });
    assert_fails(&tally(["backup", &text(&place("half")), "--url", &url]), 3, "ended the copy early");
    dying.join().expect("the listener ends");
    assert_fails(&tally(["restore", &text(&place("half")), &text(&place("none"))]), 1, "the backup was not finished");
    assert!(!place("none").exists());
}

#[test]
fn explain_says_in_words_what_holds_whether_it_is_counted_and_what_hides_it() {
    let folder = tempfile::tempdir().expect("a place");
    let place = |name: &str| folder.path().join(name);
    fs::write(place("in.ndjson"), sample()).expect("written");
    let server = Server::start(&place("data"), &[]);
    import(&server, &place("in.ndjson"));
    tally_ok(["verify", "--url", &server.url()]);
    let url = server.url();
    let explain =
        |target: &str, kind: &str, member: &str| tally_ok(["explain", target, kind, member, "--namespace", "n", "--url", &url]);
    let large = explain("big", "like", "u4711");
    assert!(large.starts_with("u4711 likes big since 2023-11-14 22:13:20.004 UTC ("), "{large}");
    assert!(large.lines().next().expect("a line").ends_with("counted; nothing pending"), "{large}");
    assert!(large.contains("large target since") && large.contains("counted in revision") && large.contains("own list: `like`"));
    let hidden = explain("big", "like", "u101");
    assert!(hidden.contains("not in the count: hidden for fraud; nothing pending"), "{hidden}");
    let withdrawn = explain("big", "like", "u7");
    assert!(withdrawn.starts_with("u7 withdrew their `like` of big at") && withdrawn.contains("not in the count"), "{withdrawn}");
    let small = explain("p/1", "reaction", "<u&0>");
    assert!(small.starts_with("<u&0> has chosen `sad` as `reaction` of p/1 since") && small.contains("small target"), "{small}");
    let nobody = explain("p/1", "like", "u1");
    assert!(nobody.starts_with("nothing was ever stored of u1 and p/1 as `like`; nothing pending"), "{nobody}");
    let comment = explain("p 2", "comment", "c1");
    assert!(!comment.contains("own list"), "a comment has no list of its own: {comment}");

    let args = ["explain", "big", "like", "u101", "--namespace", "n", "--json"].map(str::to_owned);
    let with = |more: [String; 2]| json_of(&tally_ok(args.iter().cloned().chain(more)));
    let (status, route) =
        server.request("GET", "/v1/ops/explain?namespace=n&target=big&kind=like&member=u101", None).expect("an answer");
    assert_eq!(status, 200, "{route}");
    let online = with(["--url".to_owned(), url.clone()]);
    for (part, value) in [("fact", "fact"), ("stored", "stored"), ("ledger", "ledger"), ("index", "index")] {
        assert_eq!(online[part], route[value]);
    }
    assert_eq!(online["fact"]["hides"]["fraud"]["hidden"], true, "{online}");
    assert_eq!((&online["counted"], online["pending"].as_array().map(Vec::len)), (&true.into(), Some(0)), "{online}");
    let mut registers: Vec<&str> =
        online["journal"]["intents"].as_array().expect("a list").iter().filter_map(|i| i["register"].as_str()).collect();
    // Those that are not swept come first; which are is a matter of time.
    registers.sort_unstable();
    assert_eq!(registers, ["choice", "fraud"], "{online}");

    for (query, field) in [
        ("target=p&kind=lik&member=u", "kind"),
        ("target=&kind=like&member=u", "target"),
        ("target=p&kind=like&member=", "member"),
    ] {
        let (status, answer) = server.request("GET", &format!("/v1/ops/explain?namespace=n&{query}"), None).expect("an answer");
        assert_eq!((status, &answer["field"]), (400, &Value::from(field)), "{answer}");
    }
    assert_fails(&tally(["explain", "p", "lik", "u", "--namespace", "n", "--url", &url]), 2, "did you mean `like`?");
    assert!(server.stop().0.success());
    let offline = with(["--data".to_owned(), text(&place("data"))]);
    assert_eq!(
        (&offline["fact"], &offline["ledger"], &offline["counter"]),
        (&online["fact"], &online["ledger"], &online["counter"])
    );
}

#[test]
fn config_print_names_sources_and_gives_a_file_that_is_the_same_again() {
    let folder = tempfile::tempdir().expect("a place");
    let file = folder.path().join("t.toml");
    fs::write(&file, "slot = '2s'\n[kinds.mood]\nchoices = ['good', 'bad']\n").expect("written");
    let out =
        command().args(["config", "print", "--config", &text(&file), "--set", "level=5"]).env("TALLY_BUCKETS", "9").output();
    let out = String::from_utf8(out.expect("the binary starts").stdout).expect("text");
    let line = |name: &str| out.lines().find(|l| l.starts_with(&format!("{name} ="))).unwrap_or_else(|| panic!("{name}: {out}"));
    assert!(line("slot").contains("\"2s\"") && line("slot").contains("# file"), "{out}");
    assert!(line("level").ends_with("# command line") && line("buckets").ends_with("# environment TALLY_BUCKETS"), "{out}");
    assert!(line("sweep_delay").ends_with("# default") && out.contains("[kinds.mood]"), "{out}");
    let again = folder.path().join("again.toml");
    fs::write(&again, &out).expect("written");
    let values = |out: &str| out.lines().map(|l| l.split("  #").next().unwrap_or_default().trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(values(&tally_ok(["config", "print", "--config", &text(&again)])), values(&out));

    assert!(tally_ok(["config", "check", &text(&file)]).contains("can be used; it sets: kinds, slot"));
    fs::write(&file, "slott = '2s'\n").expect("written");
    assert_fails(&tally(["config", "check", &text(&file)]), 2, "did you mean `slot`?");
    fs::write(&file, "level = 77\n").expect("written");
    assert_fails(&tally(["config", "check", &text(&file)]), 2, "`level` is 77");
    assert_fails(&tally(["config", "check", "/nowhere/t.toml"]), 2, "/nowhere/t.toml");
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    let folder = tempfile::tempdir().expect("a place");
    let help = tally_ok(["--help"]);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        // Further lines of a long description are indented more.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help" && name.chars().all(|c| c.is_ascii_lowercase()))
        .collect();
    assert!(commands.len() >= 14 && commands.contains(&"explain"), "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = tally_ok(["completions", shell]);
        for command in &commands {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    assert_fails(&tally(["completions", "csh"]), 2, "bash");
    tally_ok(["man", &text(folder.path())]);
    for command in &commands {
        let page =
            fs::read_to_string(folder.path().join(format!("tally-{command}.1"))).unwrap_or_else(|e| panic!("{command}: {e}"));
        assert!(page.contains("Examples"), "{command}");
    }
    assert!(folder.path().join("tally.1").is_file());
}

#[test]
fn reports_are_files_for_machines_sheets_and_people_and_earlier_runs_are_listed() {
    let folder = tempfile::tempdir().expect("a place");
    let place = |name: &str| folder.path().join(name);
    let server = Server::start(&place("data"), &[]);
    assert_eq!(server.request("PUT", "/v1/n/targets/p/like/u", None).expect("an answer").0, 200);
    let files = ["r.json", "r.csv", "r.html"].map(|name| text(&place(name)));
    let reason = "<b>\"why\" & so on</b>";
    let mut args = vec!["verify", "--url", "URL", "--operator", "<i>ana</i>", "--reason", reason];
    let url = server.url();
    args[2] = &url;
    args.extend(files.iter().flat_map(|file| ["--report", file]));
    tally_ok(args);
    let report = json_of(&fs::read_to_string(&files[0]).expect("a report"));
    assert_eq!(
        (&report["what"], &report["drifted"], &report["reason"]),
        (&"verify".into(), &0.into(), &reason.into()),
        "{report}"
    );
    assert!(fs::read_to_string(&files[1]).expect("a sheet").starts_with("target,kind,shard,member,cause,before,after,"));
    let page = fs::read_to_string(&files[2]).expect("a page");
    assert!(page.contains("All numbers are right") && page.contains("&lt;b&gt;&quot;why&quot; &amp; so on&lt;/b&gt;"), "{page}");
    assert!(!page.contains("<b>") && !page.contains("<i>") && !page.contains("<script"), "{page}");

    let id = report["id"].as_str().expect("an id");
    let list = tally_ok(["reports", "--url", &url]);
    assert!(list.starts_with(id) && list.contains("verify") && list.trim_end().ends_with("clean"), "{list}");
    assert!(tally_ok(["reports", id, "--url", &url]).starts_with("verify (all): clean"));
    assert_eq!(tally_ok(["reports", id, "--url", &url, "--format", "html"]), page);
    let listed = json_of(&tally_ok(["reports", "--url", &url, "--json"]));
    assert_eq!((listed.as_array().map(Vec::len), listed[0]["id"].as_str()), (Some(1), Some(id)), "{listed}");
    let (status, answer) = server.request("GET", &format!("/v1/ops/reports/{id}?format=html"), None).expect("an answer");
    assert_eq!((status, answer.as_str()), (200, Some(page.as_str())));
    let (status, answer) = server.request("GET", &format!("/v1/ops/reports/{id}?format=pdf"), None).expect("an answer");
    assert_eq!((status, &answer["field"]), (400, &"format".into()), "{answer}");
    let wrong = tally(["verify", "--url", &url, "--report", &text(&place("r.pdf"))]);
    assert_fails(&wrong, 2, "expected a name that ends in .json, .csv or .html");
}
