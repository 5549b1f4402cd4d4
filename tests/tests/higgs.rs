//! Real input through the real binary: the shipped sample always, the whole file where it is.
//!
//! Whole file: its authors count 328,132 edges in the retweet network, so the likes must sum to
//! exactly that.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tally_tests::server::{Server, tally_ok};

/// Sum of all likes, and the likes of target 88, the most liked one.
struct Expected {
    likes: i64,
    most: i64,
}

const SAMPLE: Expected = Expected { likes: 17_846, most: 2213 };
const WHOLE: Expected = Expected { likes: 328_132, most: 14_060 };

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_owned()
}

/// The whole file, where somebody has put it; `TALLY_HIGGS` says where else it is.
const WHOLE_FILE: &str = "../shared/data/higgs-activity_time.txt.gz";

fn import(server: &Server, file: &Path) -> String {
    let (url, file) = (server.url(), file.to_string_lossy());
    let common = ["--url", &url, "--namespace", "higgs", "--kind", "like"];
    let columns = ["--columns", "user,target,at,type", "--delimiter", " ", "--time-unit", "s", "--where", "type=RT"];
    tally_ok(["import", &file].into_iter().chain(common).chain(columns))
}

/// Likes of every target of `file`, by counting its lines: what Tally must come to as well.
fn recount(file: &Path) -> BTreeMap<String, i64> {
    let lines = BufReader::new(GzDecoder::new(File::open(file).expect("readable"))).lines();
    let mut pairs = BTreeSet::new();
    for line in lines.map(|line| line.expect("gzip is intact")) {
        let cells: Vec<&str> = line.split(' ').collect();
        if cells[3] == "RT" {
            pairs.insert((cells[1].to_owned(), cells[0].to_owned()));
        }
    }
    pairs.into_iter().fold(BTreeMap::new(), |mut likes, (target, _)| {
        *likes.entry(target).or_insert(0) += 1;
        likes
    })
}

/// Likes of `targets` as readers see them.
fn counts(server: &Server, targets: &[&String]) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for batch in targets.chunks(200) {
        let body = json!({ "targets": batch }).to_string();
        let (status, answer) = server.request("POST", "/v1/higgs/counts", Some(&body)).expect("an answer");
        assert_eq!(status, 200, "{answer}");
        for (target, counted) in answer["targets"].as_object().expect("an object") {
            counts.insert(target.clone(), counted["kinds"]["like"]["total"].as_i64().expect("a number"));
        }
    }
    counts
}

/// The ten most liked targets with their likes.
fn top(server: &Server) -> Vec<(String, i64)> {
    let url = server.url();
    let json = tally_ok(["top", "--url", &url, "--namespace", "higgs", "--kind", "like", "-n", "10", "--json"]);
    let rows: Vec<Value> = serde_json::from_str(&json).expect("a JSON list");
    let row = |v: &Value| (v["target"].as_str().expect("an id").to_owned(), v["total"].as_i64().expect("a number"));
    rows.iter().map(row).collect()
}

fn get(server: &Server, path: &str) -> Value {
    let (status, body) = server.request("GET", path, None).expect("an answer");
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Imports `file` twice into a fresh server; counts, lists and `verify` must be right after each,
/// after a restart too, and the second import must change nothing.
fn imports_exactly(file: &Path, expected: &Expected) {
    let folder = tempfile::tempdir().expect("a place for data");
    let data = folder.path().join("data");
    let server = Server::start(&data, &[]);
    println!("{}", import(&server, file));
    tally_ok(["verify", "--url", &server.url()]);

    let due = recount(file);
    assert_eq!(due.values().sum::<i64>(), expected.likes, "what the source's authors count");
    let targets: Vec<&String> = due.keys().collect();
    assert_eq!(counts(&server, &targets), due);
    let ten = top(&server);
    assert_eq!((ten.len(), ten[0].0.as_str(), ten[0].1), (10, "88", expected.most));
    assert!(ten.is_sorted_by(|a, b| a.1 >= b.1) && ten.iter().all(|(target, likes)| due[target] == *likes), "{ten:?}");
    let (list, count) = ("/v1/higgs/targets/88/like?limit=100", "/v1/higgs/targets/88");
    let (newest, most) = (get(&server, list), get(&server, count));

    println!("{}", import(&server, file));
    assert_eq!(counts(&server, &targets), due, "a second import changes nothing");
    assert_eq!(get(&server, list), newest);
    assert_eq!((&get(&server, count)["kinds"], &get(&server, count)["as_of"]), (&most["kinds"], &most["as_of"]));

    let (status, took) = server.stop();
    assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}");
    tally_ok(["verify", "--data", &data.to_string_lossy()]);
    assert_eq!(top(&Server::start(&data, &[])), ten);
}

#[test]
fn every_like_of_the_sample_is_counted_once() {
    imports_exactly(&root().join("samples/higgs-rt-20k.txt.gz"), &SAMPLE);
}

#[test]
fn every_like_of_the_whole_file_is_counted_once() {
    let file = std::env::var_os("TALLY_HIGGS").map_or_else(|| root().join(WHOLE_FILE), PathBuf::from);
    if file.is_file() {
        imports_exactly(&file, &WHOLE);
    } else {
        println!("{} is not there: only the shipped sample was imported, by the test beside this one", file.display());
    }
}
