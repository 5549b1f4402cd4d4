//! Counts by choice.

use crate::Choice;

/// How many members are counted for each choice; choices with 0 are left out, so that equal
/// counts are equal values. Signed, so that a wrong stored value stays visible as what it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Counts(Vec<(Choice, i64)>);

impl Counts {
    /// Adds `difference` members to `choice`; choice 0 (nothing) is not counted.
    pub fn add(&mut self, choice: Choice, difference: i64) {
        if choice == 0 || difference == 0 {
            return;
        }
        match self.0.binary_search_by_key(&choice, |&(c, _)| c) {
            Ok(i) => {
                // Saturating: wrapping would turn a damaged row into a plausible number.
                self.0[i].1 = self.0[i].1.saturating_add(difference);
                if self.0[i].1 == 0 {
                    self.0.remove(i);
                }
            }
            Err(i) => self.0.insert(i, (choice, difference)),
        }
    }

    /// Adds every count of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for &(choice, n) in &other.0 {
            self.add(choice, n);
        }
    }

    /// Members counted for `choice`.
    pub fn get(&self, choice: Choice) -> i64 {
        self.0.binary_search_by_key(&choice, |&(c, _)| c).map_or(0, |i| self.0[i].1)
    }

    /// Members counted for any choice.
    pub fn total(&self) -> i64 {
        self.0.iter().fold(0, |sum, &(_, n)| sum.saturating_add(n))
    }

    /// Choices that have a count, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Choice, i64)> + '_ {
        self.0.iter().copied()
    }

    /// Whether some count is below zero: never true of counts made from facts.
    pub fn any_negative(&self) -> bool {
        self.0.iter().any(|&(_, n)| n < 0)
    }
}

impl FromIterator<(Choice, i64)> for Counts {
    fn from_iter<I: IntoIterator<Item = (Choice, i64)>>(iter: I) -> Self {
        let mut counts = Self::default();
        for (choice, n) in iter {
            counts.add(choice, n);
        }
        counts
    }
}
