//! What the documents say stays true: commands exist, links lead somewhere, nothing is left out.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Longest source file and document; one idea each fits in far less.
const MAX_LINES: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_owned()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every text file that the project ships, by its path below the root.
fn texts() -> Vec<(PathBuf, String)> {
    let (mut texts, mut folders) = (Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the project").map(|entry| entry.expect("readable")) {
            let (path, name) = (entry.path(), entry.file_name());
            let ours = !["target", "data", ".git", "__pycache__"].contains(&name.to_string_lossy().as_ref());
            match entry.file_type().expect("known") {
                kind if kind.is_dir() && ours => folders.push(path),
                kind if kind.is_file() && ours => {
                    if let Ok(text) = fs::read_to_string(&path) {
                        texts.push((path.strip_prefix(root()).expect("below the root").to_owned(), text));
                    }
                }
                _ => {}
            }
        }
    }
    assert!(texts.len() > 50, "the project was not found: {} files", texts.len());
    texts
}

fn documents() -> Vec<(PathBuf, String)> {
    texts().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "md")).collect()
}

/// Lines of the fenced code blocks of a document.
fn code_lines(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if inside {
            lines.push(line.trim());
        }
    }
    lines
}

/// Targets of a document's links, those to other places and within the page left out.
fn links(text: &str) -> Vec<&str> {
    let ends = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
    let targets = ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://") && !target.starts_with('#')).collect()
}

#[test]
fn the_readmes_first_two_commands_exist_and_can_be_run() {
    let readme = read("README.md");
    let commands: Vec<&str> = code_lines(&readme).into_iter().filter(|line| line.starts_with("./")).collect();
    assert_eq!(
        commands.iter().take(2).map(|c| c.split_whitespace().next()).collect::<Vec<_>>(),
        [Some("./demo"), Some("./test")]
    );
    for command in commands {
        let file = command.split_whitespace().next().expect("not empty");
        let mode = fs::metadata(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}")).permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{file} is not executable");
    }
}

#[test]
fn continuous_integration_runs_the_readmes_test_command() {
    assert!(read(".ci/run").lines().any(|line| line.contains(" ./test")));
    assert!(read(".github/workflows/ci.yml").contains("bash .ci/run"));
}

#[test]
fn workflow_actions_are_pinned_to_a_commit() {
    for line in read(".github/workflows/ci.yml").lines().filter(|line| line.contains("uses:")) {
        let pin = line.split_once('@').map(|(_, pin)| pin.split_whitespace().next().unwrap_or_default());
        assert!(pin.is_some_and(|p| p.len() == 40 && p.chars().all(|c| c.is_ascii_hexdigit())), "{line}");
    }
}

#[test]
fn links_lead_to_files() {
    let mut found = 0;
    for (path, text) in documents() {
        for target in links(&text) {
            let file = target.split('#').next().unwrap_or_default();
            let there = root().join(path.parent().expect("a file")).join(file);
            assert!(there.exists(), "{}: {target} leads nowhere", path.display());
            found += 1;
        }
    }
    assert!(found > 10, "only {found} links were found");
}

/// A path that a document or a comment names in backticks is there.
#[test]
fn named_paths_are_there() {
    let tops: BTreeSet<String> = fs::read_dir(root())
        .expect("the root")
        .map(|e| e.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    let mut found = 0;
    for (path, text) in documents() {
        for quoted in text.split('`').skip(1).step_by(2) {
            let named = quoted.trim_end_matches('/');
            let is_path = named.contains('/') && !named.contains([' ', '*', '{', '<', '\n', ':']);
            let top = named.split('/').next().unwrap_or_default();
            if is_path && tops.contains(top) && !["data", "target"].contains(&top) {
                assert!(root().join(named).exists(), "{}: `{named}` is not there", path.display());
                found += 1;
            }
        }
    }
    assert!(found > 10, "only {found} paths were found");
}

#[test]
fn every_crate_and_decision_is_in_architecture() {
    let architecture = read("ARCHITECTURE.md");
    let manifest = read("Cargo.toml");
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).expect("one line of members");
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    assert!(members.len() >= 7);
    for member in members {
        assert!(architecture.contains(&format!("`{member}`")), "ARCHITECTURE.md does not mention the crate `{member}`");
    }
    for decision in fs::read_dir(root().join("docs/adr")).expect("the decisions") {
        let name = decision.expect("readable").file_name().to_string_lossy().into_owned();
        assert!(architecture.contains(&name), "ARCHITECTURE.md does not link docs/adr/{name}");
    }
}

#[test]
fn every_invariant_names_its_tests() {
    let architecture = read("ARCHITECTURE.md");
    for number in 1..=7 {
        let row = architecture.lines().find(|line| line.starts_with(&format!("| **I{number}**")));
        let row = row.unwrap_or_else(|| panic!("I{number} has no row"));
        assert!(row.matches('`').count() >= 2, "I{number} names no test: {row}");
    }
}

/// Tests that ARCHITECTURE.md names as `file.rs::name` exist under that name.
#[test]
fn named_tests_are_there() {
    let architecture = read("ARCHITECTURE.md");
    let mut found = 0;
    for quoted in architecture.split('`').skip(1).step_by(2) {
        if let Some((file, name)) = quoted.split_once(".rs::") {
            assert!(read(format!("{file}.rs")).contains(&format!("fn {name}(")), "{quoted} is not there");
            found += 1;
        }
    }
    assert!(found >= 7, "only {found} tests are named");
}

#[test]
fn the_changelog_has_this_version() {
    let manifest = read("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = ")).expect("a workspace version");
    assert!(read("CHANGELOG.md").contains(&format!("## [{}]", version.trim_matches('"'))));
}

/// Nothing points to the machine that something was written on, or to what only its author can see.
#[test]
fn nothing_names_private_places() {
    let at = |folder: &str| format!("/{folder}/");
    let mut words: Vec<String> = ["root", "home", "work", "Users"].map(at).into();
    words.push(format!("{}/{}", "shared", "reference"));
    words.push(format!("{}{}", "DESIGN", ".md"));
    words.push(format!("{} {}", "issue", "#"));
    let bait = words.iter().map(|word| format!("see {word}3")).collect::<Vec<_>>();
    let named = |text: &str| words.iter().find(|word| text.contains(*word)).cloned();
    assert!(bait.iter().all(|text| named(text).is_some()), "the search itself works");
    for (path, text) in texts() {
        assert_eq!(named(&text), None, "{}", path.display());
    }
}

#[test]
fn files_are_short() {
    for (path, text) in texts() {
        let generated = ["Cargo.lock", "LICENSE"].iter().any(|name| path.ends_with(name));
        let lines = text.lines().count();
        assert!(generated || lines <= MAX_LINES, "{} has {lines} lines; {MAX_LINES} is the limit", path.display());
    }
}

/// bincode is used in one module, as docs/adr/0005-bincode.md promises.
#[test]
fn bincode_stays_in_the_codec_module() {
    let users: Vec<PathBuf> = texts()
        .into_iter()
        .filter(|(path, text)| path.extension().is_some_and(|e| e == "rs") && text.contains("bincode::"))
        .map(|(path, _)| path)
        .filter(|path| !path.ends_with("tests/tests/docs.rs"))
        .collect();
    assert_eq!(users, [PathBuf::from("schema/src/codec.rs")]);
}
