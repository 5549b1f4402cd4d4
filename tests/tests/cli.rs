//! The command line of the real binary: messages, exit codes, import's edges, an orderly end.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;
use tally_tests::server::{Server, command, tally, tally_ok};

/// Nobody listens on port 1 of loopback.
const NOBODY: &str = "http://127.0.0.1:1";

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the binary with a further environment and standard input.
fn run(args: &[&str], environment: &[(&str, &str)], input: &[u8]) -> Output {
    let mut command = command();
    command.args(args).envs(environment.iter().copied());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    // A command that fails early does not read its input.
    drop(child.stdin.take().expect("piped").write_all(input));
    child.wait_with_output().expect("a child of ours")
}

/// Checks exit code and a part of the one line that people get.
fn assert_fails(output: &Output, code: i32, part: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(part), "expected `{part}` in: {text}");
    assert!(!text.contains("panicked") && !text.contains("stack backtrace"), "{text}");
}

fn import(url: &str, file: &str, more: &[&str]) -> Vec<String> {
    let base = ["import", file, "--url", url, "--namespace", "n", "--json"];
    base.iter().chain(more).map(|&s| s.to_owned()).collect()
}

/// The summary of an import that must succeed.
fn imported(url: &str, file: &Path, more: &[&str]) -> Value {
    let out = tally_ok(import(url, &file.to_string_lossy(), more));
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

fn total(server: &Server, target: &str) -> Value {
    tally_ok(["verify", "--url", &server.url()]); // Everything answered is counted afterwards.
    let out = tally_ok(["get", "--url", &server.url(), "--namespace", "n", target, "--json"]);
    let answer: Value = serde_json::from_str(&out).expect("JSON");
    answer["kinds"]["like"]["total"].clone()
}

#[test]
fn help_shows_every_command_with_examples_and_the_exit_codes() {
    let help = tally_ok(["--help"]);
    for word in ["serve", "import", "top", "verify", "rebuild", "get", "bench", "Exit codes: 0 as asked", "1 the answer is no"] {
        assert!(help.contains(word), "`{word}` is not in: {help}");
    }
    for command in ["serve", "import", "top", "verify", "rebuild", "get", "bench"] {
        assert!(tally_ok([command, "--help"]).contains("Examples:"), "{command}");
    }
    let settings = tally_ok(["serve", "--settings"]);
    assert!(settings.contains("sweep_delay") && settings.contains("30s"), "{settings}");
}

#[test]
fn every_setting_of_the_sample_configuration_is_known_and_has_its_default() {
    let sample = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/tally.toml")).expect("it ships");
    let settings = tally_ok(["serve", "--settings"]);
    let keys: Vec<(&str, &str)> = sample
        .lines()
        .take_while(|line| !line.starts_with("#[kinds"))
        .filter_map(|line| line.strip_prefix('#')?.split_once(" = "))
        .filter(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect();
    let listed: Vec<&str> = settings.lines().filter(|l| l.starts_with("  ") && !l.starts_with("  kinds")).collect();
    assert_eq!(keys.len(), listed.len(), "{keys:?}\n{settings}");
    for ((key, value), line) in keys.iter().zip(listed) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words[0], words[1].trim_matches('"')), (*key, value.trim_matches('"')));
    }
    // Read as it is, and with everything in it switched on.
    let folder = tempfile::tempdir().expect("a place");
    let all: String =
        sample.lines().map(|l| l.strip_prefix('#').filter(|r| !r.starts_with(' ')).unwrap_or(l).to_owned() + "\n").collect();
    for text in [sample.as_str(), &all] {
        let file = folder.path().join("sample.toml");
        fs::write(&file, text).expect("written");
        let server = Server::start(&folder.path().join("data"), &["--config", &file.to_string_lossy()]);
        assert!(server.stop().0.success());
    }
}

#[test]
fn configuration_mistakes_are_named_with_a_suggestion_and_exit_2() {
    let folder = tempfile::tempdir().expect("a place");
    let file = folder.path().join("t.toml");
    let with_file = |text: &str| {
        fs::write(&file, text).expect("written");
        tally(["serve", "--config", &file.to_string_lossy()])
    };
    assert_fails(&with_file("sweep_dely = '1s'\n"), 2, "unknown setting `sweep_dely`; did you mean `sweep_delay`?");
    assert_fails(&with_file("slot = 5\n"), 2, "expected a duration");
    assert_fails(&with_file("slot = '1s'\nslot = '2s'\n"), 2, "t.toml, line 2");
    assert_fails(&with_file("[kinds.like]\nchoise = ['a']\n"), 2, "did you mean `choices`?");
    assert_fails(&tally(["serve", "--config", "/nowhere/t.toml"]), 2, "/nowhere/t.toml");
    assert_fails(
        &run(&["serve"], &[("TALLY_LISTN", "x")], b""),
        2,
        "TALLY_LISTN is not a setting of Tally; did you mean `TALLY_LISTEN`?",
    );
    assert_fails(&run(&["serve"], &[("TALLY_LEVEL", "77")], b""), 2, "`level` is 77");
    assert_fails(&tally(["serve", "--set", "slott=1s"]), 2, "did you mean `slot`?");
    assert_fails(&tally(["serve", "--set", "slot"]), 2, "expected as slot=1s");
    assert_fails(&tally(["serve", "--listen", "0.0.0.0:8080"]), 2, "only loopback is allowed");
    assert_fails(&tally(["serve", "--set", "log=a=b=c"]), 2, "`log`");
    assert_fails(&tally(["serv"]), 2, "similar");
}

#[test]
fn what_cannot_be_reached_or_opened_exits_3_and_bad_requests_exit_2() {
    let folder = tempfile::tempdir().expect("a place");
    assert_fails(&tally(["get", "--url", NOBODY, "--namespace", "n", "p"]), 3, "is `tally serve` running there?");
    assert_fails(&tally(["top", "--url", NOBODY, "--namespace", "n"]), 3, "cannot reach");
    assert_fails(&tally(["verify", "--url", NOBODY]), 3, "cannot reach");
    assert_fails(&tally(["get", "--url", "localhost", "--namespace", "n", "p"]), 2, "--url");
    assert_fails(&tally(["verify", "--data", "/nowhere"]), 3, "no data directory");
    assert!(!Path::new("/nowhere").exists(), "a check creates nothing");
    assert_fails(&tally(import(NOBODY, "/nowhere.csv", &[])), 3, "/nowhere.csv");

    fs::write(folder.path().join("letter.txt"), "x").expect("written");
    assert_fails(&tally(["serve", "--data", &folder.path().to_string_lossy()]), 3, "not a Tally data directory");

    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    assert_fails(&tally(["verify", "--data", &data.to_string_lossy()]), 3, "in use");
    let other = folder.path().join("other").to_string_lossy().into_owned();
    assert_fails(&tally(["serve", "--data", &other, "--listen", server.address()]), 3, "cannot listen on");
    let url = server.url();
    assert_fails(&tally(["top", "--url", &url, "--namespace", "n", "--kind", "lik"]), 2, "did you mean `like`?");
    assert_fails(&tally(["get", "--url", &url, "--namespace", "N", "p"]), 2, "namespace");
    assert_fails(&tally(["rebuild", "--url", &url, "--target", "p"]), 2, "--namespace");
    assert_fails(&tally(["rebuild", "--url", &url, "--target", "n/p", "--kind", "lik"]), 2, "did you mean `like`?");
    assert_fails(&tally(["rebuild", "--url", &url, "--target", "n/p"]), 2, "there is no target n/p");
    assert_fails(&tally(["verify", "--url", &url, "--target", "n/p"]), 2, "there is no target n/p");
    assert_fails(&tally(["rebuild", "--url", &url, "--since", "49h"]), 2, "use `part` or `all`");
    assert_fails(&tally(["rebuild", "--url", &url, "--since", "soon"]), 2, "as long ago as 2h");
    assert_fails(&tally(["rebuild", "--url", &url, "--part", "30"]), 2, "0 to 29");
    assert_fails(&tally(["rebuild", "--url", &url, "--all", "--confirm"]), 2, "--reason");
}

#[test]
fn a_store_refuses_settings_that_it_was_not_made_with_and_takes_added_choices() {
    let folder = tempfile::tempdir().expect("a place");
    let data = folder.path().join("data");
    let kinds = |text: &str| {
        let file = folder.path().join("k.toml");
        fs::write(&file, text).expect("written");
        file.to_string_lossy().into_owned()
    };
    let first = kinds("[kinds.mood]\nchoices = ['good', 'bad']\n");
    let server = Server::start(&data, &["--config", &first]);
    let (status, answer) = server.request("PUT", "/v1/n/targets/p/mood/u", Some(r#"{"choice":"bad"}"#)).expect("an answer");
    assert_eq!((status, &answer["outcome"]), (200, &"applied".into()), "{answer}");
    drop(server);
    let start = |args: &[&str]| {
        let all = ["serve", "--data", &data.to_string_lossy(), "--listen", "127.0.0.1:0"].map(str::to_owned);
        tally(all.into_iter().chain(args.iter().map(|&a| a.to_owned())))
    };
    assert_fails(&start(&["--config", &first, "--set", "level=5"]), 2, "the store was made with 4");
    assert_fails(&start(&["--config", &first, "--set", "small_limit=9"]), 2, "`small_limit` is 9");
    assert_fails(&start(&[]), 2, "kind `mood` is in the store but not configured");
    let moved = kinds("[kinds.mood]\nchoices = ['bad', 'good']\n");
    assert_fails(&start(&["--config", &moved]), 2, "choices may only be added at the end");

    let more = kinds("[kinds.mood]\nchoices = ['good', 'bad', 'odd']\n[kinds.star]\n");
    let server = Server::start(&data, &["--config", &more, "--set", "slot=1s"]);
    let (_, state) = server.request("GET", "/v1/n/targets/p/mood/u", None).expect("an answer");
    assert_eq!(state["choice"], "bad");
    tally_ok(["verify", "--url", &server.url()]);
}

#[test]
fn import_reports_bad_rows_by_line_goes_on_and_changes_nothing_the_second_time() {
    let folder = tempfile::tempdir().expect("a place");
    let server = Server::start(&folder.path().join("data"), &[]);
    let file = folder.path().join("rows.csv");
    let long = "x".repeat(200);
    fs::write(
        &file,
        format!(
            "user,target,at\nu1,p1,1000\n\nu2,p1\nu3,{long},1000\nu4,p1,soon\nu5,p1,99999999999\r\n\"u,6\",p1,1000\nu1,p1,2000\n"
        ),
    )
    .expect("written");
    let columns = ["--columns", "user,target,at", "--header", "--time-unit", "s"];
    let output = tally(import(&server.url(), &file.to_string_lossy(), &columns));
    let (text, summary) = (stderr(&output), serde_json::from_slice::<Value>(&output.stdout).expect("JSON"));
    assert!(output.status.success(), "{text}");
    for line in
        ["line 4: 2 fields, 3 columns", "line 5: `target`", "line 6: `at` is `soon`", "line 7: refused by the server: `at`"]
    {
        assert!(text.contains(line), "`{line}` is not in: {text}");
    }
    assert_eq!((&summary["bad"], &summary["answered"], &summary["rejected"]), (&4.into(), &4.into(), &1.into()), "{summary}");
    assert_eq!((&summary["applied"], &summary["unchanged"]), (&2.into(), &1.into()), "{summary}");
    assert_eq!(total(&server, "p1"), 2);
    let again = imported(&server.url(), &file, &columns);
    assert_eq!((&again["applied"], &again["bad"]), (&0.into(), &4.into()), "{again}");
    assert_eq!(total(&server, "p1"), 2);

    let strict = tally(import(&server.url(), &file.to_string_lossy(), &[&columns[..], &["--strict"]].concat()));
    assert_fails(&strict, 1, "line 4: 2 fields, 3 columns are expected; stopped, since --strict was given");
}

#[test]
fn rows_without_times_keep_each_members_order_and_an_empty_choice_withdraws() {
    let folder = tempfile::tempdir().expect("a place");
    let server = Server::start(&folder.path().join("data"), &[]);
    let mut rows = String::new();
    for user in 0..300 {
        for flip in 0..=(user % 4) {
            rows += &format!("u{user}\tp1\t{}\n", if flip % 2 == 0 { "like" } else { "" });
        }
    }
    let args = import(&server.url(), "-", &["--columns", "user,target,choice", "--delimiter", "tab"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = run(&args, &[], rows.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    // Users whose last flip is the first or third keep their like.
    assert_eq!(total(&server, "p1"), 150);
}

#[test]
fn gzip_in_members_and_ndjson_come_in_through_standard_input() {
    let folder = tempfile::tempdir().expect("a place");
    let server = Server::start(&folder.path().join("data"), &[]);
    let member = |rows: String| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(rows.as_bytes()).expect("into memory");
        out.finish().expect("into memory")
    };
    let rows =
        |from: u32| (from..from + 50).map(|u| format!("{{\"actor\":{u},\"target\":\"p1\",\"at\":1}}\n")).collect::<String>();
    let both = [member(rows(0)), member(rows(40))].concat();
    let args = import(&server.url(), "-", &["--format", "ndjson", "--columns", "user=actor,target,at", "--time-unit", "s"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = run(&args, &[], &both);
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&summary["applied"], &summary["unchanged"]), (&90.into(), &10.into()), "{summary}");
    assert_eq!(total(&server, "p1"), 90);
    assert_fails(&run(&args, &[], &both[..both.len() / 2]), 3, "the input cannot be read on");
}

/// A server of one's own words: answers each request for facts by `answer`, from its number and body.
fn answering(answer: impl Fn(usize, &Value) -> String + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let shared = Arc::new((answer, AtomicUsize::new(0)));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                while let Some(body) = body_of_next(&mut reader) {
                    let answer = shared.0(shared.1.fetch_add(1, Ordering::Relaxed), &body);
                    if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    url
}

/// Body of the next request; `None`: there is none.
fn body_of_next(reader: &mut BufReader<TcpStream>) -> Option<Value> {
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().expect("a number");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

fn http(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn import_sends_again_what_was_not_confirmed_and_gives_up_when_patience_ends() {
    let folder = tempfile::tempdir().expect("a place");
    let file = folder.path().join("rows.csv");
    fs::write(&file, "u1,p1\nu2,p1\nu3,p1\n").expect("written");
    let url = answering(|n, body| {
        let rows = body["facts"].as_array().expect("facts");
        match n {
            0 => http("503 Service Unavailable", r#"{"title":"Unavailable","detail":"the store is away"}"#),
            1 => http("429 Too Many Requests", r#"{"title":"Limit"}"#).replacen("\r\n", "\r\nRetry-After: 0\r\n", 1),
            2 => {
                let first = rows
                    .iter()
                    .enumerate()
                    .map(|(i, _)| if i == 0 { r#"{"outcome":"accepted"}"# } else { r#"{"outcome":"unavailable"}"# });
                http("200 OK", &format!("{{\"results\":[{}]}}", first.collect::<Vec<_>>().join(",")))
            }
            _ => http("200 OK", &format!("{{\"results\":[{}]}}", vec![r#"{"outcome":"superseded"}"#; rows.len()].join(","))),
        }
    });
    let summary = imported(&url, &file, &["--parallel", "1"]);
    assert_eq!(
        (&summary["accepted"], &summary["superseded"], &summary["retries"]),
        (&1.into(), &2.into(), &3.into()),
        "{summary}"
    );

    let away = answering(|_, _| http("503 Service Unavailable", r#"{"title":"Unavailable","detail":"the store is away"}"#));
    let output = tally(import(&away, &file.to_string_lossy(), &["--patience", "0"]));
    assert_fails(&output, 3, "gave up after 0s: the server answered 503: Unavailable: the store is away");
    // Nobody there: said at once, and then tried for as long as was asked for.
    let nobody = format!("http://{}", tally_tests::server::free_address());
    let output = tally(import(&nobody, &file.to_string_lossy(), &["--patience", "1"]));
    assert_fails(&output, 3, "gave up after 1s: cannot reach");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = told.lines().next().expect("a line");
    assert!(first.starts_with(&format!("tally: cannot reach {nobody} (")), "{told}");
    assert!(first.ends_with("trying again for 1s, end with Ctrl-C"), "{told}");
    let refused = answering(|_, _| http("400 Bad Request", r#"{"title":"Bad","detail":"namespace: not known"}"#));
    assert_fails(&tally(import(&refused, &file.to_string_lossy(), &[])), 2, "namespace: not known");
    let odd = answering(|_, _| http("200 OK", "<html>"));
    assert_fails(&tally(import(&odd, &file.to_string_lossy(), &[])), 3, "cannot be understood");
}

#[test]
fn an_interrupted_import_goes_on_where_its_state_file_says() {
    let folder = tempfile::tempdir().expect("a place");
    let (file, state) = (folder.path().join("rows.csv"), folder.path().join("state"));
    let rows: String = (0..3000).map(|u| format!("u{u},p{},{}\n", u % 7, u + 1)).collect();
    fs::write(&file, rows).expect("written");
    let more = ["--columns", "user,target,at", "--time-unit", "ms", "--parallel", "2", "--resume", &state.to_string_lossy()];
    // The first two requests are answered, the third is not understood: the import ends there.
    let broken = answering(|n, body| {
        let rows = body["facts"].as_array().expect("facts").len();
        match n {
            0 | 1 => http("200 OK", &format!("{{\"results\":[{}]}}", vec![r#"{"outcome":"superseded"}"#; rows].join(","))),
            _ => http("200 OK", "<html>"),
        }
    });
    assert_fails(&tally(import(&broken, &file.to_string_lossy(), &more)), 3, "cannot be understood");
    let kept: Value = serde_json::from_slice(&fs::read(&state).expect("a state file")).expect("JSON");
    let lines = kept["lines"].as_u64().expect("a number");
    assert!(lines < 3000, "{kept}");

    let server = Server::start(&folder.path().join("data"), &[]);
    let summary = imported(&server.url(), &file, &more);
    assert_eq!((&summary["skipped"], &summary["applied"]), (&lines.into(), &(3000 - lines).into()), "{summary}");
    let done = imported(&server.url(), &file, &more);
    assert_eq!((&done["skipped"], &done["answered"]), (&3000.into(), &0.into()), "{done}");
    let other = [&more[..], &["--kind", "bookmark"]].concat();
    assert_fails(&tally(import(&server.url(), &file.to_string_lossy(), &other)), 2, "choose another state file");
}

#[test]
fn rebuild_and_top_answer_for_people_and_for_programs() {
    let folder = tempfile::tempdir().expect("a place");
    let server = Server::start(&folder.path().join("data"), &[]);
    let url = server.url();
    let file = folder.path().join("rows.csv");
    fs::write(&file, (0..200).map(|u| format!("u{u},p{}\n", u % 3)).collect::<String>()).expect("written");
    imported(&url, &file, &[]);
    let verified: Value = serde_json::from_str(&tally_ok(["verify", "--url", &url, "--json"])).expect("JSON");
    assert_eq!((&verified["facts"], &verified["drifted"]), (&200.into(), &0.into()));
    let top: Value =
        serde_json::from_str(&tally_ok(["top", "--url", &url, "--namespace", "n", "--json", "-n", "2"])).expect("JSON");
    assert_eq!((&top[0]["target"], &top[0]["total"], &top[1]["target"]), (&"p0".into(), &67.into(), &"p1".into()), "{top}");
    assert!(tally_ok(["top", "--url", &url, "--namespace", "n"]).contains("67  p0"));
    assert!(tally_ok(["rebuild", "--url", &url, "--all"]).contains("clean"));
    assert!(tally_ok(["rebuild", "--url", &url, "--all", "--dry-run", "--json"]).contains("\"what\":\"rebuild --dry-run\""));
    assert!(tally_ok(["rebuild", "--url", &url, "--target", "p0", "--namespace", "n", "--kind", "like"]).contains("1 targets"));
    for scope in [&["--since", "1h"][..], &["--part", "next"], &["--target", "n/p1"]] {
        let args = ["rebuild", "--url", &url, "--operator", "ada", "--reason", "a drill"];
        assert!(tally_ok(args.into_iter().chain(scope.iter().copied())).contains("clean"), "{scope:?}");
    }
    let (status, kept) = server.request("GET", "/v1/ops/reports", None).expect("an answer");
    let scopes: Vec<&str> = kept["reports"].as_array().expect("a list").iter().filter_map(|r| r["scope"].as_str()).collect();
    assert_eq!((status, scopes.len(), scopes[0], scopes[1], scopes[3]), (200, 7, "target n/p1", "part 0", "target n/p0 like"));
    let id = kept["reports"][0]["id"].as_str().expect("an id");
    let (status, report) = server.request("GET", &format!("/v1/ops/reports/{id}"), None).expect("an answer");
    assert_eq!((status, &report["operator"], &report["reason"]), (200, &"ada".into(), &"a drill".into()));
    assert_eq!(server.request("GET", "/v1/ops/reports/0", None).expect("an answer").0, 404);
    assert!(tally_ok(["get", "--url", &url, "--namespace", "n", "p0", "p2"]).contains("like                   66"));
}

#[test]
fn sigterm_under_load_answers_what_is_open_and_exits_0_within_ten_seconds() {
    let folder = tempfile::tempdir().expect("a place");
    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let address = server.address().to_owned();
    let send = |client: usize| {
        let mut known = Vec::new();
        for n in 0.. {
            let path = format!("/v1/n/targets/p{}/like/c{client}-{n}", n % 5);
            // Once it stops, connections are refused: that is the end of the load.
            match tally_tests::server::request(&address, "PUT", &path, None) {
                Ok((200, _)) => known.push(path),
                Ok((status, answer)) => assert!(stop.load(Ordering::Relaxed) && status == 503, "{status} {answer}"),
                Err(_) if stop.load(Ordering::Relaxed) => return known,
                Err(error) => panic!("{error}"),
            }
            answered.fetch_add(1, Ordering::Relaxed);
        }
        known
    };
    // An idle connection must not hold up the end.
    let idle = TcpStream::connect(server.address()).expect("it listens");
    let known: Vec<String> = thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|client| scope.spawn(move || send(client))).collect();
        while answered.load(Ordering::Relaxed) < 500 {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        let (status, took) = server.stop();
        assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}");
        clients.into_iter().flat_map(|c| c.join().expect("no panic")).collect()
    });
    drop(idle);
    tally_ok(["verify", "--data", &data.to_string_lossy()]);
    let server = Server::start(&data, &[]);
    for path in known {
        let (_, state) = server.request("GET", &path, None).expect("an answer");
        assert_eq!(state["choice"], "like", "{path}: {state}");
    }
}

#[test]
fn a_connection_that_does_not_send_its_request_is_closed() {
    let folder = tempfile::tempdir().expect("a place");
    let server = Server::start(&folder.path().join("data"), &["--set", "header_timeout=200ms", "--set", "max_connections=2"]);
    let slow: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).expect("it listens");
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost:").expect("sent");
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
            stream
        })
        .collect();
    // Both places are taken until the slow ones are closed; then a third is served.
    let (status, _) = server.request("GET", "/healthz", None).expect("an answer");
    assert_eq!(status, 200);
    for mut stream in slow {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    }
}

#[test]
fn logs_are_json_lines_where_asked_for() {
    let folder = tempfile::tempdir().expect("a place");
    let server = Server::start(&folder.path().join("data"), &["--log-format", "json"]);
    let log = server.log();
    assert!(log.starts_with("listening on http://127.0.0.1:"), "{log}");
    let lines: Vec<Value> = log.lines().skip(1).map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
    let says = |part: &str| lines.iter().any(|l| l["fields"]["message"].as_str().is_some_and(|m| m.contains(part)));
    assert!(says("loopback only, because no keys are configured") && says("ready"), "{log}");
}
