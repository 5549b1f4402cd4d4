//! The API's description against the running server: it is valid, it names every route, and every answer is as described.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tally_tests::server::Server;

/// Requests are made from this seed, so that a failure can be had again.
const SEED: &str = "20250301";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a Python tool of fixed version.
fn tool(args: &[&str]) -> Command {
    let mut command = Command::new(root().join("scripts/python_tools"));
    command.args(args);
    command
}

fn description(server: &Server) -> Value {
    let (status, document) = server.request("GET", "/openapi.json", None).unwrap();
    assert_eq!(status, 200);
    document
}

/// `(method, path)` of everything that is described.
fn described(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().unwrap();
    let of = |path: &String, item: &Value| {
        let methods = item.as_object().unwrap().keys().map(|m| (m.to_uppercase(), path.clone()));
        methods.collect::<Vec<_>>()
    };
    paths.iter().flat_map(|(path, item)| of(path, item)).collect()
}

#[test]
fn the_description_is_valid_openapi() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let document = description(&server);
    assert_eq!(document["openapi"].as_str().map(|v| &v[..4]), Some("3.1."));
    let file = dir.path().join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let checked = tool(&["openapi-spec-validator", file.to_str().unwrap()]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn every_route_that_is_described_is_there_and_takes_only_the_methods_that_are_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let all = described(&description(&server));
    for path in all.iter().map(|(_, path)| path).collect::<BTreeSet<_>>() {
        let place: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part }).collect();
        for method in ["GET", "PUT", "POST", "DELETE", "PATCH"] {
            let (status, answer) = server.request(method, &place.join("/"), None).unwrap();
            let known = all.contains(&(method.to_owned(), path.clone()));
            assert_eq!(status == 405, !known, "{method} {path}: {status} {answer}");
            assert!(answer["type"] != "/problems/no-route", "{method} {path} is described and not there");
        }
    }
}

/// Paths in the code: literals that begin as routes do.
#[test]
fn every_route_of_the_code_is_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let document = description(&server);
    let mut seen = BTreeSet::new();
    for folder in ["ingest/src/http", "tally/src/serve", "tally/src/serve/ops"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap().path()) {
            if entry.extension().is_none_or(|e| e != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&entry).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let registers = code.contains(".route(");
            for path in code.split('"').skip(1).step_by(2).filter(|p| registers && p.starts_with('/') && p.len() > 4) {
                let a_route = !path.contains("{}")
                    && path.chars().all(|c| c.is_ascii_alphanumeric() || "/{}-_.".contains(c))
                    && !path.ends_with('/');
                if a_route && !path.starts_with("/problems/") {
                    assert!(document["paths"][path].is_object(), "{}: {path} is not described", entry.display());
                    seen.insert(path.to_owned());
                }
            }
        }
    }
    let all: BTreeSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(seen, all, "what is described and what the code registers");
}

#[test]
fn every_route_of_the_readme_is_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let all = described(&description(&server));
    let fits = |template: &str, path: &str| {
        let (template, path): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
        template.len() == path.len() && template.iter().zip(&path).all(|(t, p)| t.starts_with('{') || t == p)
    };
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let ends = |c: char| c.is_whitespace() || "'\"`?),|".contains(c);
    let mut seen = 0;
    for (at, _) in readme.match_indices("/v1/") {
        let path = readme[at..].split(ends).next().unwrap().trim_end_matches(['.', '/', ';', '…', '*', '\\']);
        if path.split('/').count() < 4 {
            continue; // A word about a part of the API, not a route.
        }
        seen += 1;
        assert!(all.iter().any(|(_, template)| fits(template, path)), "README: {path} is not described");
    }
    assert!(seen > 3, "the README has no routes any more");
}

#[test]
fn every_answer_to_generated_requests_is_as_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    server.request("PUT", "/v1/shop/targets/post-1/like/anna", None).unwrap();
    println!("seed {SEED}");
    // Whether a choice fits depends on the kind, and bytes are not characters: a request that fits the description may be refused.
    let options = ["--seed", SEED, "--max-examples", "20", "--exclude-checks", "positive_data_acceptance"];
    // A closed server answers nothing else.
    let left_out = ["--exclude-operation-id", "setMode"];
    let ran = tool(&["schemathesis", "run", &format!("{}/openapi.json", server.url()), "--continue-on-failure", "--no-color"])
        .args(options)
        .args(left_out)
        .current_dir(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{text}\n{}", String::from_utf8_lossy(&ran.stderr));
    println!("{text}");
    // It goes on answering, and nothing that was generated has made it count wrongly.
    assert_eq!(server.request("GET", "/readyz", None).unwrap().0, 200);
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
