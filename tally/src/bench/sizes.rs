//! How large the batches were in which Tally wrote, so that the baseline writes in the same.

/// Mean sizes of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Likes of one journal entry.
    pub micro_batch: usize,
    /// Likes of one durable commit.
    pub group: usize,
}

impl Sizes {
    /// From totals of a round.
    pub fn of(likes: u64, micro_batches: u64, groups: u64) -> Self {
        let mean = |of: u64| usize::try_from(likes.div_ceil(of.max(1))).unwrap_or(usize::MAX).max(1);
        let group = mean(groups);
        Self { micro_batch: mean(micro_batches).min(group), group }
    }
}

#[cfg(test)]
mod tests {
    use super::Sizes;

    #[test]
    fn means_are_at_least_one_and_a_micro_batch_is_not_larger_than_its_group() {
        assert_eq!(Sizes::of(1000, 100, 10), Sizes { micro_batch: 10, group: 100 });
        assert_eq!(Sizes::of(0, 0, 0), Sizes { micro_batch: 1, group: 1 });
        assert_eq!(Sizes::of(1000, 1, 10), Sizes { micro_batch: 100, group: 100 });
    }
}
