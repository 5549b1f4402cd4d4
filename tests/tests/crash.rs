//! Invariant I3 on the real binary: killed under load, restarted, and every answered change is there.
//!
//! `CRASH_ROUNDS` and `CRASH_SEED` choose another length and another run.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::clock::Stopwatch;
use tally_tests::{
    server::{Server, tally_ok},
    traffic::{Book, Client, Shape, check_counts, check_facts, deal},
};

/// Clients that send at the same time; each has users of its own, so that it knows their order.
const CLIENTS: usize = 4;
/// Users of all clients are enough to make a target large.
const SHAPE: Shape = Shape { targets: 6, users: 60 };
/// Short slots, so that kills hit closing, sweeping and promotion too.
const SETTINGS: [&str; 6] = ["--set", "slot=200ms", "--set", "sweep_delay=500ms", "--set", "log=warn"];
/// How long after a restart counts may take to be complete.
const COUNTED: Duration = Duration::from_secs(20);

fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a whole number"))
}

#[test]
fn every_answered_change_survives_kill_9_under_load() {
    let (rounds, seed) = (from_env("CRASH_ROUNDS", 20), from_env("CRASH_SEED", 3));
    println!("CRASH_ROUNDS={rounds} CRASH_SEED={seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let folder = tempfile::tempdir().expect("a place for data");
    let data = folder.path().join("data");
    let mut book = Book::new();
    let mut answered = 0;
    for round in 0..rounds {
        let mut server = Server::start(&data, &SETTINGS);
        check_facts(&server, &mut book, true);
        check_counts(&server, &book, &BTreeMap::new(), COUNTED);
        if round % 5 == 0 {
            tally_ok(["verify", "--url", &server.url()]);
        }
        let goal = rng.random_range(50..800);
        let (answers, stop, address) = (AtomicU64::new(0), AtomicBool::new(false), server.address().to_owned());
        thread::scope(|scope| {
            let clients: Vec<_> = deal(&mut book, CLIENTS)
                .into_iter()
                .enumerate()
                .map(|(number, book)| {
                    let rng = ChaCha8Rng::seed_from_u64(rng.random());
                    let client = Client { address: &address, rng, number, book, shape: SHAPE, answers: &answers, stop: &stop };
                    scope.spawn(|| client.run())
                })
                .collect();
            let watch = Stopwatch::start();
            while answers.load(Ordering::Relaxed) < goal && watch.elapsed() < COUNTED {
                thread::sleep(Duration::from_millis(1));
            }
            server.kill();
            stop.store(true, Ordering::Relaxed);
            for client in clients {
                book.append(&mut client.join().expect("no client panics"));
            }
        });
        let got = answers.into_inner();
        assert!(got >= goal, "round {round}: only {got} of {goal} changes were answered\n{}", server.log());
        answered += got;
    }
    let server = Server::start(&data, &SETTINGS);
    check_facts(&server, &mut book, true);
    check_counts(&server, &book, &BTreeMap::new(), COUNTED);
    tally_ok(["verify", "--url", &server.url()]);
    let (status, took) = server.stop();
    assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}");
    tally_ok(["verify", "--data", &data.to_string_lossy()]);
    println!("{answered} changes were answered and are there after {rounds} kills");
}
