//! The README's examples, as they stand there, against the real binary.

use std::{fs, path::Path, thread, time::Duration};

use serde_json::Value;
use store::clock::Stopwatch;
use tally_tests::server::{Server, tally, tally_ok};

/// How long a count may take to show what was answered before.
const COUNTED: Duration = Duration::from_secs(10);

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).expect("it is there")
}

/// Lines of the README's code blocks of one language.
fn block(readme: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = readme.split(&fence).skip(1).filter_map(|rest| rest.split_once("```"));
    blocks.flat_map(|(code, _)| code.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Whether `found` is what `example` shows; `…` stands for any text.
fn alike(example: &Value, found: &Value) -> bool {
    match (example, found) {
        (Value::String(text), Value::String(_)) if text == "…" => true,
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| alike(v, w)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(v, w)| alike(v, w)),
        _ => example == found,
    }
}

#[test]
fn every_request_is_answered_as_the_readme_shows() {
    let folder = tempfile::tempdir().expect("a place for data");
    let server = Server::start(&folder.path().join("data"), &[]);
    let lines = block(&readme(), "http");
    assert!(lines.len() >= 20 && lines.len().is_multiple_of(2), "requests and answers in turn");
    for pair in lines.chunks(2) {
        let (method, rest) = pair[0].split_once(' ').map(|(method, rest)| (method, rest.trim())).expect("a method and a path");
        let (path, body) = rest.split_once(' ').map_or((rest, None), |(path, body)| (path, Some(body)));
        let (status, answer) = pair[1].split_once(' ').expect("a status and a body");
        let answer: Value = serde_json::from_str(answer.trim()).unwrap_or_else(|error| panic!("{}: {error}", pair[1]));
        let reads = method == "GET" || path.ends_with("/counts");
        let watch = Stopwatch::start();
        loop {
            let found = server.request(method, path, body).expect("an answer");
            if found.0.to_string() == status && alike(&answer, &found.1) {
                break;
            }
            // What was answered a moment ago may not be counted yet.
            assert!(reads && watch.elapsed() < COUNTED, "{} was answered {} {}", pair[0], found.0, found.1);
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn every_command_is_in_the_readme_and_every_command_of_the_readme_exists() {
    let help = tally_ok(["--help"]);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   ")) // The rest of a long description.
        .filter_map(|line| line.split_whitespace().next())
        .filter(|&name| name != "help")
        .collect();
    assert!(commands.len() >= 7, "{help}");
    let lines = block(&readme(), "sh");
    let used: Vec<Vec<&str>> = lines.iter().filter(|l| l.starts_with("tally ")).map(|l| l.split_whitespace().collect()).collect();
    for command in &commands {
        assert!(used.iter().any(|line| line[1] == *command), "the README does not show `tally {command}`");
    }
    for line in used {
        // `tally key new` and its like have a help of their own.
        let words = line.iter().skip(1).take_while(|word| word.chars().all(|c| c.is_ascii_lowercase())).copied();
        let own: Vec<&str> = words.take(2).chain(["--help"]).collect();
        let mut help = tally(own);
        if !help.status.success() {
            help = tally([line[1], "--help"]);
        }
        assert!(help.status.success(), "{line:?}");
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        let before_comment = line.iter().take_while(|word| **word != "#");
        for flag in before_comment.filter(|word| word.starts_with('-') && word.len() > 1) {
            assert!(help.contains(flag), "`tally {}` has no {flag}", line[1]);
        }
    }
}
