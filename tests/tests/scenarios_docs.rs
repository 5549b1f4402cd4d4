//! docs/scenarios.md and the scenario tests name each other.

use std::{collections::BTreeSet, fs, path::Path};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

/// Names of the test functions of all scenario files.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(root().join("tests/tests")).expect("the tests") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        if !name.starts_with("scenarios_") || name == "scenarios_docs.rs" {
            continue;
        }
        let text = fs::read_to_string(&path).expect("readable");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let is_test = line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            if is_test {
                let rest = lines[at + 1..].iter().find_map(|l| l.split_once("fn ")).expect("a test function");
                names.insert(rest.1.split('(').next().expect("a name").to_owned());
            }
        }
    }
    names
}

/// `(id, rest of the row)` of each scenario in the document.
fn rows(document: &str) -> Vec<(&str, &str)> {
    let ids = document.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    ids.filter(|(id, _)| id.contains('-') && id.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-'))
        .collect()
}

#[test]
fn every_scenario_names_its_tests_or_what_it_waits_for() {
    let document = fs::read_to_string(root().join("docs/scenarios.md")).expect("the document");
    let (tests, rows) = (tests(), rows(&document));
    let ids: BTreeSet<&str> = rows.iter().map(|(id, _)| *id).collect();
    assert!(ids.len() == rows.len() && ids.len() > 60, "{} ids in {} rows", ids.len(), rows.len());
    let mut named = BTreeSet::new();
    for (id, row) in rows {
        let mine: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(!mine.is_empty() || row.contains("later: "), "{id} names no test and waits for nothing");
        let own = format!("{}_", id.to_lowercase().replace('-', "_"));
        assert!(row.contains("later: ") || mine.iter().any(|name| name.starts_with(&own)), "{id} has no test of its own");
        for name in mine {
            assert!(tests.contains(name), "{id} names `{name}`, which is not there");
            named.insert(name.to_owned());
        }
    }
    assert_eq!(tests.difference(&named).collect::<Vec<_>>(), Vec::<&String>::new(), "tests that the document does not name");
}
