//! Invariant I3, I2 and I5 on the real binary, killed two hundred times in the middle of everything.
//!
//! `KILLS` and `KILLS_SEED` choose another length and another run; a thousand and more by
//! `cargo run -p tally-tests --bin kills -- --kills 1000 --seed 1`.

use tally_tests::kills::{Aim, Settings, run};

fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a whole number"))
}

#[test]
fn two_hundred_kills_lose_nothing_and_show_no_wrong_number() {
    let (kills, seed) = (from_env("KILLS", 200), from_env("KILLS_SEED", 5));
    println!("KILLS={kills} KILLS_SEED={seed}");
    let report = run(&Settings { kills, seed, jobs: 4, verbose: false });
    println!("{report}");
    assert_eq!(report.total(), kills);
    if kills >= 200 {
        for aim in Aim::ALL {
            assert!(report.kills.get(&aim).is_some_and(|&n| n > 2), "hardly a kill was aimed at {aim:?}: {report}");
        }
        assert!(report.cut > 0, "no kill fell into the middle of a hide run: {report}");
        assert!(report.answered > 5 * kills, "too little was answered to prove anything: {report}");
        assert!(report.samples > 1000, "readers saw too little: {report}");
    }
}
