//! Two tables are compared that are not in the same order: each row is hashed, and the hashes of what
//! the facts call for and of what is stored are summed by class of their key, which no order matters
//! to. Where the sums of a class are equal its rows are; the others are looked at row by row.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use schema::{ChoiceRegister, Counts, IndexRow, KindName, Micros, Shard, TargetKey};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// Differences by class. A difference of two multisets stays unseen with a chance of about 2^-128 a
/// class: both halves of a hash are summed apart, each modulo 2^64, and the seed of a run is not known
/// to those who choose the ids.
pub(crate) struct Sums {
    seed: u64,
    cells: Box<[[AtomicU64; 2]]>,
}

impl Sums {
    /// `classes` is rounded up to a power of two; 16 bytes each.
    pub fn new(classes: usize, seed: u64) -> Self {
        let cells = (0..classes.max(1).next_power_of_two()).map(|_| Default::default()).collect();
        Self { seed, cells }
    }

    /// The class of a target's or user's key.
    pub fn class(&self, key: &[u8]) -> usize {
        let hash = usize::try_from(xxh3_64_with_seed(key, self.seed)).unwrap_or(0);
        hash & (self.cells.len() - 1)
    }

    /// A row that is due.
    pub fn add(&self, class: usize, hash: u128) {
        for (cell, half) in self.cells[class].iter().zip(halves(hash)) {
            cell.fetch_add(half, Relaxed);
        }
    }

    /// A row that is stored.
    pub fn take(&self, class: usize, hash: u128) {
        for (cell, half) in self.cells[class].iter().zip(halves(hash)) {
            cell.fetch_sub(half, Relaxed);
        }
    }

    /// Whether the rows of a class are not what they should be.
    pub fn differs(&self, class: usize) -> bool {
        self.cells[class].iter().any(|cell| cell.load(Relaxed) != 0)
    }

    /// Whether some class differs.
    pub fn any(&self) -> bool {
        (0..self.cells.len()).any(|class| self.differs(class))
    }

    /// Hash of an index row.
    pub fn index(&self, text: &mut Vec<u8>, user: &[u8], kind: &KindName, target: &TargetKey, row: &IndexRow) -> u128 {
        text.clear();
        text.extend_from_slice(user);
        put(text, &[kind.as_str().as_bytes(), target.as_str().as_bytes()]);
        numbers(text, &[row.version, row.since, i64::from(row.choice)]);
        xxh3_128_with_seed(text, self.seed)
    }

    /// Hash of a counter row.
    pub fn counter(
        &self,
        text: &mut Vec<u8>,
        target: &TargetKey,
        kind: &KindName,
        shard: Shard,
        row: &schema::CounterRow,
    ) -> u128 {
        text.clear();
        put(text, &[target.as_str().as_bytes(), kind.as_str().as_bytes()]);
        text.extend_from_slice(&shard.0.to_le_bytes());
        text.extend_from_slice(&row.rank.to_le_bytes());
        numbers(text, &[row.order, row.as_of]);
        counts(text, &row.counts);
        xxh3_128_with_seed(text, self.seed)
    }

    /// Hash of a shown level.
    pub fn shown(&self, text: &mut Vec<u8>, target: &TargetKey, kind: &KindName, level: schema::Level) -> u128 {
        text.clear();
        put(text, &[target.as_str().as_bytes(), kind.as_str().as_bytes(), &[level]]);
        xxh3_128_with_seed(text, self.seed)
    }

    /// Hash of a row by time.
    pub fn time(&self, text: &mut Vec<u8>, at: Micros, id: &str, choice: u8) -> u128 {
        text.clear();
        numbers(text, &[at, i64::from(choice)]);
        text.extend_from_slice(id.as_bytes());
        xxh3_128_with_seed(text, self.seed)
    }
}

/// The key of the user behind a member of `target`, without making one.
pub(crate) fn user_of<'a>(key: &'a mut Vec<u8>, target: &TargetKey, member: &str) -> &'a [u8] {
    key.clear();
    key.extend_from_slice(target.namespace().as_bytes());
    key.push(b'/');
    key.extend_from_slice(member.as_bytes());
    key
}

/// The index row that a choice register calls for; `None`: none.
pub(crate) fn due_index(choice: ChoiceRegister) -> Option<IndexRow> {
    (choice.version > 0).then(|| choice.into())
}

fn halves(hash: u128) -> [u64; 2] {
    let bytes = hash.to_le_bytes();
    let half = |from: usize| bytes[from..from + 8].try_into().map_or(0, u64::from_le_bytes);
    [half(0), half(8)]
}

fn put(text: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        text.push(0); // In no id.
        text.extend_from_slice(part);
    }
    text.push(0);
}

fn numbers(text: &mut Vec<u8>, numbers: &[i64]) {
    for n in numbers {
        text.extend_from_slice(&n.to_le_bytes());
    }
}

fn counts(text: &mut Vec<u8>, counts: &Counts) {
    for (choice, n) in counts.iter() {
        text.push(choice);
        text.extend_from_slice(&n.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_equal_in_any_order_and_tell_any_other_row_apart() {
        let sums = Sums::new(8, 7);
        let (like, target) = (KindName::parse("like").unwrap(), TargetKey::parse("n/t").unwrap());
        let row = IndexRow { version: 5, choice: 1, since: 5 };
        let mut text = Vec::new();
        let hashes: Vec<u128> = (0..50)
            .map(|n| sums.index(&mut text, format!("n/u{n}").as_bytes(), &like, &target, &IndexRow { version: n, ..row }))
            .collect();
        hashes.iter().for_each(|&h| sums.add(3, h));
        hashes.iter().rev().for_each(|&h| sums.take(3, h));
        assert!(!sums.any());
        for other in [
            sums.index(&mut text, b"n/u1", &like, &target, &IndexRow { version: 1, choice: 2, ..row }),
            sums.index(&mut text, b"n/u1", &like, &target, &IndexRow { version: 1, since: 6, ..row }),
            sums.index(&mut text, b"n/u2", &like, &target, &IndexRow { version: 1, ..row }),
        ] {
            sums.add(3, hashes[1]);
            sums.take(3, other);
            assert!(sums.differs(3) && !sums.differs(2));
            sums.take(3, hashes[1]);
            sums.add(3, other);
        }
        // The same row twice is not the same as once.
        sums.add(3, hashes[1]);
        assert!(sums.any());
    }
}
