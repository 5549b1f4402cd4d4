//! Whom the likes are for: the same sequence from the same seed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::cli::BenchLoad;

/// Targets of the Zipf load.
const ZIPF_TARGETS: usize = 100_000;
const ZIPF_EXPONENT: f64 = 1.1;

/// Gives every client its own stream of likes; users are all different, so that every like counts.
#[derive(Clone)]
pub struct Load {
    kind: BenchLoad,
    seed: u64,
    next: Arc<AtomicU64>,
    /// Cumulative weights of the Zipf targets, the last is 1.
    zipf: Arc<[f64]>,
}

/// One client's stream.
pub struct Stream {
    load: Load,
    rng: ChaCha8Rng,
}

impl Load {
    /// The load `kind` from `seed`.
    pub fn new(kind: BenchLoad, seed: u64) -> Self {
        let weights = (1..=ZIPF_TARGETS).map(|rank| (rank as f64).powf(-ZIPF_EXPONENT));
        let mut sums: Vec<f64> = match kind {
            BenchLoad::Zipf => weights
                .scan(0.0, |sum, w| {
                    *sum += w;
                    Some(*sum)
                })
                .collect(),
            BenchLoad::Uniform | BenchLoad::Hot => Vec::new(),
        };
        let all = sums.last().copied().unwrap_or(1.0);
        sums.iter_mut().for_each(|s| *s /= all);
        Self { kind, seed, next: Arc::default(), zipf: sums.into() }
    }

    /// The stream of one client.
    pub fn stream(&self, client: u64) -> Stream {
        Stream { load: self.clone(), rng: ChaCha8Rng::seed_from_u64(self.seed.wrapping_mul(1_000_003).wrapping_add(client)) }
    }
}

impl Stream {
    /// Ids of the next target and user.
    pub fn next(&mut self) -> (String, String) {
        let n = self.load.next.fetch_add(1, Ordering::Relaxed);
        let target = match self.load.kind {
            BenchLoad::Uniform => format!("target-{n:09}"),
            BenchLoad::Hot => "target-hot".to_owned(),
            BenchLoad::Zipf => {
                let at: f64 = self.rng.random();
                format!("target-{:06}", self.load.zipf.partition_point(|&sum| sum < at))
            }
        };
        (target, format!("user-{n:09}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_favours_the_first_targets_and_uniform_never_repeats_one() {
        let load = Load::new(BenchLoad::Zipf, 1);
        let mut stream = load.stream(0);
        let first = (0..20_000).filter(|_| stream.next().0 == "target-000000").count();
        // 1 / (sum of rank^-1.1 over 100,000 targets) is about 0.136.
        assert!((2_300..3_200).contains(&first), "{first}");
        let mut stream = Load::new(BenchLoad::Uniform, 1).stream(0);
        let targets: std::collections::HashSet<String> = (0..1000).map(|_| stream.next().0).collect();
        assert_eq!(targets.len(), 1000);
        let mut hot = Load::new(BenchLoad::Hot, 1).stream(0);
        assert!((0..10).all(|_| hot.next().0 == "target-hot"));
    }

    #[test]
    fn the_same_seed_gives_the_same_targets() {
        let take = |seed| {
            let mut stream = Load::new(BenchLoad::Zipf, seed).stream(3);
            (0..50).map(|_| stream.next().0).collect::<Vec<_>>()
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }
}
