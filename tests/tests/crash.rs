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
use serde_json::{Value, json};
use store::clock::Stopwatch;
use tally_tests::server::{Server, request, tally_ok};

/// Clients that send at the same time; each has users of its own, so that it knows their order.
const CLIENTS: usize = 4;
/// Users of each client: enough to make a target large.
const USERS: usize = 60;
/// Targets; the first is the most popular by far.
const TARGETS: usize = 6;
/// Facts in one batch.
const BATCH: usize = 10;
/// Short slots, so that kills hit closing, sweeping and promotion too.
const SETTINGS: [&str; 6] = ["--set", "slot=200ms", "--set", "sweep_delay=500ms", "--set", "log=warn"];
/// How long after a restart counts may take to be complete.
const COUNTED: Duration = Duration::from_secs(20);

/// (target, user).
type Fact = (String, String);

/// What a client knows of one fact.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Liked or not, and at which version, by the last answer.
    answered: Option<(bool, i64)>,
    /// States that were asked for afterwards without getting an answer.
    in_doubt: Vec<bool>,
}

type Book = BTreeMap<Fact, Known>;

struct Client<'a> {
    address: &'a str,
    rng: ChaCha8Rng,
    number: usize,
    book: Book,
    answers: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl Client<'_> {
    /// Sends changes until the server is gone.
    fn run(mut self) -> Book {
        while !self.stop.load(Ordering::Relaxed) {
            let batch = self.rng.random_range(0..10) == 0;
            let sent = if batch { self.send_batch() } else { self.send_one() };
            if sent.is_err() {
                break; // Killed under this request: what it asked for stays in doubt.
            }
        }
        self.book
    }

    /// A fact of this client and the state to ask for: likes more often than not.
    fn choose(&mut self) -> (Fact, bool) {
        let target = if self.rng.random_range(0..2) == 0 { 0 } else { self.rng.random_range(0..TARGETS) };
        let user = self.rng.random_range(0..USERS);
        ((format!("t{target}"), format!("c{}-u{user}", self.number)), self.rng.random_range(0..4) > 0)
    }

    fn doubt(&mut self, fact: &Fact, liked: bool) {
        self.book.entry(fact.clone()).or_default().in_doubt.push(liked);
    }

    /// Books an answer that promises something.
    fn answered(&mut self, fact: &Fact, liked: bool, answer: &Value) {
        let outcome = answer["outcome"].as_str().unwrap_or_default();
        if ["applied", "unchanged"].contains(&outcome) {
            let version = version(answer).expect("a durable change has a version");
            self.book.insert(fact.clone(), Known { answered: Some((liked, version)), in_doubt: Vec::new() });
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn send_one(&mut self) -> std::io::Result<()> {
        let (fact, liked) = self.choose();
        self.doubt(&fact, liked);
        let method = if liked { "PUT" } else { "DELETE" };
        let (status, answer) = request(self.address, method, &format!("/v1/crash/targets/{}/like/{}", fact.0, fact.1), None)?;
        assert!([200, 202, 503].contains(&status), "{status} {answer}");
        self.answered(&fact, liked, &answer);
        Ok(())
    }

    fn send_batch(&mut self) -> std::io::Result<()> {
        let facts: BTreeMap<Fact, bool> = (0..BATCH).map(|_| self.choose()).collect();
        facts.iter().for_each(|(fact, &liked)| self.doubt(fact, liked));
        let item = |((target, user), liked): (&Fact, &bool)| json!({ "target": target, "user": user, "kind": "like", "choice": liked.then_some("like") });
        let body = json!({ "facts": facts.iter().map(item).collect::<Vec<_>>() }).to_string();
        let (status, answer) = request(self.address, "POST", "/v1/crash/facts", Some(&body))?;
        assert!([200, 503].contains(&status), "{status} {answer}");
        for (i, (fact, &liked)) in facts.iter().enumerate() {
            self.answered(fact, liked, &answer["results"][i]);
        }
        Ok(())
    }
}

fn version(answer: &Value) -> Option<i64> {
    answer["version"].as_str()?.parse().ok()
}

fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a whole number"))
}

fn get(server: &Server, path: &str) -> Value {
    let (status, answer) = server.request("GET", path, None).expect("an answer");
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

/// Every fact is as it was answered last, or as a later request without an answer asked for.
fn check_facts(server: &Server, book: &mut Book) {
    for ((target, user), known) in book.iter_mut() {
        let state = get(server, &format!("/v1/crash/targets/{target}/like/{user}"));
        let liked = !state["choice"].is_null();
        let found = version(&state).map(|version| (liked, version));
        let before = known.answered.map_or(0, |(_, version)| version);
        let landed_later = found.is_some_and(|(liked, version)| version > before && known.in_doubt.contains(&liked));
        assert!(found == known.answered || landed_later, "{target} {user}: {known:?}, found {state}");
        *known = Known { answered: found, in_doubt: Vec::new() };
    }
}

/// Counts become what the facts say, without a rebuild.
fn check_counts(server: &Server, book: &Book) {
    let mut due: BTreeMap<&str, i64> = BTreeMap::new();
    for ((target, _), known) in book {
        *due.entry(target).or_insert(0) += i64::from(known.answered.is_some_and(|(liked, _)| liked));
    }
    let watch = Stopwatch::start();
    for (target, likes) in due {
        loop {
            let counted = get(server, &format!("/v1/crash/targets/{target}?kinds=like"));
            if counted["kinds"]["like"]["total"] == likes {
                break;
            }
            assert!(watch.elapsed() < COUNTED, "{target} has {likes} likes, shown is {counted}");
            thread::sleep(Duration::from_millis(20));
        }
    }
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
        check_facts(&server, &mut book);
        check_counts(&server, &book);
        if round % 5 == 0 {
            tally_ok(["verify", "--url", &server.url()]);
        }
        let goal = rng.random_range(50..800);
        let (answers, stop, address) = (AtomicU64::new(0), AtomicBool::new(false), server.address().to_owned());
        thread::scope(|scope| {
            let mut parts: Vec<Book> = vec![Book::new(); CLIENTS];
            for (fact, known) in std::mem::take(&mut book) {
                let number: usize = fact.1[1..2].parse().expect("a client's number");
                parts[number].insert(fact, known);
            }
            let clients: Vec<_> = parts
                .into_iter()
                .enumerate()
                .map(|(number, book)| {
                    let rng = ChaCha8Rng::seed_from_u64(rng.random());
                    let client = Client { address: &address, rng, number, book, answers: &answers, stop: &stop };
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
    check_facts(&server, &mut book);
    check_counts(&server, &book);
    tally_ok(["verify", "--url", &server.url()]);
    let (status, took) = server.stop();
    assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}");
    tally_ok(["verify", "--data", &data.to_string_lossy()]);
    println!("{answered} changes were answered and are there after {rounds} kills");
}
