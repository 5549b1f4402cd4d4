//! The protocol under thousands of random schedules, deaths, pauses and lost writes.

use tally_tests::sim::{many::many, ops::Case, run::run, world::Fault};

/// Seeds of every test run; more by `cargo run --release -p tally-tests --bin sim -- --seeds N`.
const SEEDS: u64 = 2000;

#[test]
fn no_seed_breaks_an_invariant() {
    println!("seeds 0..{SEEDS}");
    let found = many(0, SEEDS, 2, Fault::default());
    let first: Vec<_> = found.broken.iter().take(5).collect();
    assert!(found.broken.is_empty(), "{} of {SEEDS} seeds break: {first:#?}; shrink them with the bin sim", found.broken.len());
    // The runs must have done something: most requests are answered in spite of all trouble.
    assert!(found.requests > 10 * SEEDS && found.answered > found.requests / 2, "{} of {}", found.answered, found.requests);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [3, 17, 40, 77, 123] {
        let (one, two) = (run(&Case::of(seed), Fault::default(), true), run(&Case::of(seed), Fault::default(), true));
        let differs = one.trace.iter().zip(&two.trace).position(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((one.digest, one.requests, one.answered), (two.digest, two.requests, two.answered), "seed {seed}");
        assert!(one.trace.len() > 100, "seed {seed} does nothing");
    }
}
