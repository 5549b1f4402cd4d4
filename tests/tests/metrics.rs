//! The table of metrics in docs/metrics.md against `/metrics` of the running server.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use tally_tests::server::Server;

/// Type and labels by name.
type Table = BTreeMap<String, (String, BTreeSet<String>)>;

/// Rows `| `name` | type | labels | … |`.
fn documented() -> Table {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md")).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        let labels = cells[3].split(',').map(|label| label.trim().trim_matches('`').to_owned()).filter(|label| !label.is_empty());
        assert!(cells.len() == 7 && !cells[4].is_empty() && !cells[5].is_empty(), "{name} has an empty cell");
        Some((name.to_owned(), (cells[2].to_owned(), labels.collect())))
    };
    page.lines().filter_map(row).collect()
}

/// What a scrape shows. A histogram's bounds are not a label of it.
fn served(text: &str) -> Table {
    let mut table = Table::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, sort) = rest.split_once(' ').unwrap();
            table.insert(name.to_owned(), (sort.to_owned(), BTreeSet::new()));
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let name = of_histogram.filter(|base| table.contains_key(*base)).unwrap_or(name);
            let inside = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(inside, _)| inside);
            let labels = inside.split("\",").filter_map(|pair| pair.split_once('=')).map(|(label, _)| label.trim().to_owned());
            table.get_mut(name).unwrap().1.extend(labels.filter(|label| label != "le"));
        }
    }
    table
}

#[test]
fn every_metric_is_there_at_start_and_in_the_table_with_its_type_and_labels() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let (status, text) = server.request("GET", "/metrics", None).unwrap();
    assert_eq!(status, 200);
    let (documented, served) = (documented(), served(text.as_str().unwrap()));
    for (name, found) in &served {
        assert_eq!(Some(found), documented.get(name), "{name}: as served, and as docs/metrics.md has it");
    }
    for name in documented.keys() {
        assert!(served.contains_key(name), "{name} is in docs/metrics.md; the server does not have it at start");
    }
    assert!(served.len() > 40);
}
