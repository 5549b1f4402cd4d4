//! The sample that ships with the project is what `samples/README.md` says of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples")
}

/// Rows of the sample, split at spaces.
fn rows() -> Vec<Vec<String>> {
    let file = File::open(samples().join("higgs-rt-20k.txt.gz")).expect("the sample ships with the project");
    let lines = BufReader::new(GzDecoder::new(file)).lines().map(|line| line.expect("gzip is intact"));
    lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// Distinct likers of each target.
fn likes(rows: &[Vec<String>]) -> BTreeMap<&str, usize> {
    let pairs: BTreeSet<(&str, &str)> = rows.iter().map(|row| (row[1].as_str(), row[0].as_str())).collect();
    pairs.into_iter().fold(BTreeMap::new(), |mut likes, (target, _)| {
        *likes.entry(target).or_insert(0) += 1;
        likes
    })
}

/// Cells of the table rows in the sample's README, without thousands separators.
fn documented() -> Vec<(String, usize)> {
    let text = std::fs::read_to_string(samples().join("README.md")).expect("it is there");
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let number = cells.get(1)?.replace(',', "").parse().ok()?;
        Some((cells[0].to_owned(), number))
    };
    text.lines().filter(|line| line.starts_with('|')).filter_map(row).collect()
}

#[test]
fn every_row_is_a_retweet_with_three_numbers_in_order_of_time() {
    let rows = rows();
    let time = |row: &Vec<String>| row[2].parse::<u64>().expect("seconds");
    for row in &rows {
        assert_eq!(row.len(), 4, "{row:?}");
        assert_eq!(row[3], "RT");
        assert!(row[..3].iter().all(|cell| cell.parse::<u64>().is_ok()), "{row:?}");
    }
    assert!(rows.iter().map(time).is_sorted());
    assert_eq!(rows.iter().map(time).min().map(|first| first >= 1_341_360_000), Some(true));
}

#[test]
fn figures_in_the_samples_readme_are_what_a_recount_finds() {
    let rows = rows();
    let likes = likes(&rows);
    let mut top: Vec<(&str, usize)> = likes.iter().map(|(&target, &n)| (target, n)).collect();
    top.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    let documented = documented();
    let figures: Vec<usize> = documented.iter().take(4).map(|&(_, n)| n).collect();
    let large = likes.values().filter(|&&n| n > schema::SMALL_LIMIT).count();
    assert_eq!(figures, [rows.len(), likes.values().sum(), likes.len(), large]);

    let ten: BTreeSet<(String, usize)> = documented.into_iter().skip(4).collect();
    let tenth = top[9].1;
    let counted = top.into_iter().filter(|&(_, n)| n >= tenth).map(|(target, n)| (target.to_owned(), n)).collect();
    assert_eq!(ten, counted, "the ten most liked, with everybody who shares the tenth place");
}
