//! From outside: a trace id from the request to the commit, and the lines on what failed or was slow, in the log of the real binary.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    thread,
    time::Duration,
};

use serde_json::Value;
use store::clock::Stopwatch;
use tally_tests::server::Server;

const PATIENCE: Duration = Duration::from_secs(30);
const ROUTE: &str = "/v1/{namespace}/targets/{target}/{kind}/{member}";

fn start(dir: &Path, settings: &str, format: &str) -> Server {
    let file = dir.join("t.toml");
    std::fs::write(&file, format!("log_format = '{format}'\n{settings}\n")).unwrap();
    Server::start(&dir.join("data"), &["--config", file.to_str().unwrap()])
}

/// One request with a trace; its status, and the trace id that the answer says.
fn ask(server: &Server, method: &str, path: &str, parent: &str) -> (u16, Option<String>) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let parent = if parent.is_empty() { String::new() } else { format!("traceparent: {parent}\r\n") };
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n{parent}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let said = answer.lines().find_map(|line| line.strip_prefix("traceresponse: "));
    (answer[9..12].parse().unwrap(), said.map(|text| text.split('-').nth(1).unwrap().to_owned()))
}

/// Waits until `found` gives something of the log.
fn wait<T>(server: &Server, found: impl Fn(&str) -> Option<T>) -> T {
    let watch = Stopwatch::start();
    loop {
        let log = server.log();
        if let Some(found) = found(&log) {
            return found;
        }
        assert!(watch.elapsed() < PATIENCE, "not in the log:\n{log}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Fields of the JSON line that has this message and this trace.
fn line(log: &str, message: &str, id: &str) -> Option<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut fields = lines.map(|line| line["fields"].clone());
    fields.find(|fields| fields["message"] == message && fields["trace_id"] == id)
}

#[test]
fn a_sampled_trace_is_followed_from_the_request_to_the_commit() {
    let dir = tempfile::tempdir().unwrap();
    // Two leaves, so that a target is large after three likes.
    let server = start(dir.path(), "log = 'info,tally::trace=debug'\nsmall_limit = 2\nlevel = 1", "json");
    for user in ["a", "b", "c", "d"] {
        // A small target and, in the end, a large one: both are counted.
        let id = format!("{:032x}", 0xabc_0000_u32 + u32::from(user.as_bytes()[0]));
        let path = format!("/v1/shop/targets/post-1/like/{user}");
        assert_eq!(ask(&server, "PUT", &path, &format!("00-{id}-00f067aa0ba902b7-01")), (200, Some(id.clone())));
        let of = |message: &str| wait(&server, |log| line(log, message, &id));
        let answered = of("answered");
        assert_eq!((&answered["method"], &answered["route"], &answered["status"]), (&"PUT".into(), &ROUTE.into(), &200.into()));
        let journalled = of("journalled");
        assert_eq!(journalled["lane"].as_str().map(str::len), Some(16), "{journalled}");
        assert!(journalled["slot"].as_i64() > Some(0) && journalled["entry"].as_u64() > Some(0), "{journalled}");
        assert_eq!(journalled["writes"], 1);
        let counted = of("counted");
        assert_eq!((&counted["target"], &counted["kind"]), (&"shop/post-1".into(), &"like".into()), "{counted}");
        assert!(counted["waited_us"].as_i64() >= Some(0));
    }
    // Neither a trace that is not recorded nor a request without one leaves a line.
    let quiet = "b".repeat(32);
    assert_eq!(ask(&server, "PUT", "/v1/shop/targets/post-2/like/a", &format!("00-{quiet}-00f067aa0ba902b7-00")), (200, None));
    let counted = |id: &str| wait(&server, |log| line(log, "counted", id));
    let last = "c".repeat(32);
    ask(&server, "PUT", "/v1/shop/targets/post-2/like/a", &format!("00-{last}-00f067aa0ba902b7-01"));
    counted(&last);
    assert!(!server.log().contains(&quiet), "{}", server.log());
}

#[test]
fn by_default_nobody_is_followed_and_the_answer_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "", "json");
    let id = "d".repeat(32);
    let answer = ask(&server, "PUT", "/v1/shop/targets/post-1/like/a", &format!("00-{id}-00f067aa0ba902b7-01"));
    assert_eq!(answer, (200, Some(id.clone())));
    let (status, text) = server.request("GET", "/metrics", None).unwrap();
    assert!(status == 200 && text.as_str().unwrap().contains("tally_ingest_traced_writes_total 0"));
    assert!(!server.log().contains(&id), "{}", server.log());
}

#[test]
fn a_failed_request_has_one_line_with_the_id_of_its_answer() {
    for format in ["json", "human"] {
        let dir = tempfile::tempdir().unwrap();
        let server = start(dir.path(), "", format);
        let closed = server.request("PUT", "/v1/ops/mode", Some(r#"{"mode":"read-only","why":"a test"}"#)).unwrap();
        assert_eq!(closed.0, 200, "{closed:?}");
        let (status, id) = ask(&server, "PUT", "/v1/shop/targets/secret-id/like/a", "");
        let id = id.unwrap_or_else(|| panic!("{status} without traceresponse"));
        assert_eq!(status, 503);
        let text = wait(&server, |log| log.lines().find(|line| line.contains(&id)).map(str::to_owned));
        for part in ["request failed", ROUTE, "PUT", "503", "/problems/read-only", "WARN", "ms"] {
            assert!(text.contains(part), "{format}: no `{part}` in {text}");
        }
        assert!(!text.contains("secret-id"), "{text}");
        if format == "json" {
            let fields = line(&server.log(), "request failed", &id).unwrap();
            assert_eq!((&fields["status"], &fields["route"], &fields["left_out"]), (&503.into(), &ROUTE.into(), &0.into()));
        }
        assert_eq!(server.log().matches(&id).count(), 1);
    }
}

#[test]
fn a_slow_request_has_one_line_and_none_where_it_is_off() {
    for (settings, slow) in [("slow_request = '1us'", true), ("slow_request = '0s'", false)] {
        let dir = tempfile::tempdir().unwrap();
        let server = start(dir.path(), settings, "human");
        // Asking whether it is ready was slow too, and the lines of a second are few: then another request has one.
        let asked = || {
            let (status, id) = ask(&server, "GET", "/v1/shop/targets/post-1", "");
            assert_eq!((status, id.is_some()), (200, slow));
            id
        };
        if asked().is_some() {
            let text = wait(&server, |_| {
                let id = asked()?;
                server.log().lines().find(|line| line.contains(&id)).map(str::to_owned)
            });
            assert!(text.contains("slow request") && text.contains("/v1/{namespace}/targets/{target}") && text.contains("200"));
        } else {
            assert!(!server.log().contains("slow request"), "{}", server.log());
        }
    }
}
