//! Clients of a real server that may die under them, and the book of what they were answered.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use store::clock::Stopwatch;

use crate::server::{Server, request};

/// Namespace of everything here.
pub const NAMESPACE: &str = "crash";
/// Facts in one batch.
const BATCH: usize = 10;

/// (target, user).
pub type Fact = (String, String);

/// What a client knows of one fact.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Liked or not, and at which version, by the last answer.
    pub answered: Option<(bool, i64)>,
    /// States that were asked for afterwards without getting an answer.
    pub in_doubt: Vec<bool>,
    /// Whether anything was sent since it was last compared with the server's state.
    pub unchecked: bool,
}

/// What is known, by fact.
pub type Book = BTreeMap<Fact, Known>;

/// How the facts of a client are chosen.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Targets `t0` and so on; the first is the most popular by far.
    pub targets: usize,
    /// Users of each client.
    pub users: usize,
}

/// One client with users of its own, so that it knows their order.
pub struct Client<'a> {
    /// `address:port` of the server.
    pub address: &'a str,
    /// Decides what it sends.
    pub rng: ChaCha8Rng,
    /// A digit, part of its users' names.
    pub number: usize,
    /// What it knows.
    pub book: Book,
    /// What it chooses from.
    pub shape: Shape,
    /// Changes answered, by all clients.
    pub answers: &'a AtomicU64,
    /// Ends it.
    pub stop: &'a AtomicBool,
}

impl Client<'_> {
    /// Sends changes until it is stopped or the server is gone.
    pub fn run(mut self) -> Book {
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
        let target = if self.rng.random_range(0..2) == 0 { 0 } else { self.rng.random_range(0..self.shape.targets) };
        let user = self.rng.random_range(0..self.shape.users);
        ((format!("t{target}"), format!("c{}-u{user}", self.number)), self.rng.random_range(0..4) > 0)
    }

    fn doubt(&mut self, fact: &Fact, liked: bool) {
        let known = self.book.entry(fact.clone()).or_default();
        known.in_doubt.push(liked);
        known.unchecked = true;
    }

    /// Books an answer that promises something.
    fn answered(&mut self, fact: &Fact, liked: bool, answer: &Value) {
        let outcome = answer["outcome"].as_str().unwrap_or_default();
        if ["applied", "unchanged"].contains(&outcome) {
            let version = version(answer).expect("a durable change has a version");
            let known = Known { answered: Some((liked, version)), in_doubt: Vec::new(), unchecked: true };
            self.book.insert(fact.clone(), known);
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn send_one(&mut self) -> std::io::Result<()> {
        let (fact, liked) = self.choose();
        self.doubt(&fact, liked);
        let method = if liked { "PUT" } else { "DELETE" };
        let path = format!("/v1/{NAMESPACE}/targets/{}/like/{}", fact.0, fact.1);
        let (status, answer) = request(self.address, method, &path, None)?;
        assert!([200, 202, 503].contains(&status), "{status} {answer}");
        self.answered(&fact, liked, &answer);
        Ok(())
    }

    fn send_batch(&mut self) -> std::io::Result<()> {
        let facts: BTreeMap<Fact, bool> = (0..BATCH).map(|_| self.choose()).collect();
        facts.iter().for_each(|(fact, &liked)| self.doubt(fact, liked));
        let item = |((target, user), liked): (&Fact, &bool)| json!({ "target": target, "user": user, "kind": "like", "choice": liked.then_some("like") });
        let body = json!({ "facts": facts.iter().map(item).collect::<Vec<_>>() }).to_string();
        let (status, answer) = request(self.address, "POST", &format!("/v1/{NAMESPACE}/facts"), Some(&body))?;
        assert!([200, 503].contains(&status), "{status} {answer}");
        for (i, (fact, &liked)) in facts.iter().enumerate() {
            self.answered(fact, liked, &answer["results"][i]);
        }
        Ok(())
    }
}

/// The version in an answer.
pub fn version(answer: &Value) -> Option<i64> {
    answer["version"].as_str()?.parse().ok()
}

/// The parts of a book that belong to each of `clients` clients.
pub fn deal(book: &mut Book, clients: usize) -> Vec<Book> {
    let mut parts: Vec<Book> = vec![Book::new(); clients];
    for (fact, known) in std::mem::take(book) {
        let number: usize = fact.1[1..2].parse().expect("a client's number");
        parts[number].insert(fact, known);
    }
    parts
}

/// A GET that must be answered 200.
pub fn get(server: &Server, path: &str) -> Value {
    let (status, answer) = server.request("GET", path, None).unwrap_or_else(|e| panic!("{path}: {e}\n{}", server.log()));
    assert_eq!(status, 200, "{path}: {answer}\n{}", server.log());
    answer
}

/// Every fact is as it was answered last, or as a later request without an answer asked for. `all`:
/// also those that nothing was sent about since the last check. Returns how many were compared.
pub fn check_facts(server: &Server, book: &mut Book, all: bool) -> usize {
    let mut compared = 0;
    for ((target, user), known) in book.iter_mut().filter(|(_, known)| all || known.unchecked) {
        let state = get(server, &format!("/v1/{NAMESPACE}/targets/{target}/like/{user}"));
        let liked = !state["choice"].is_null();
        let found = version(&state).map(|version| (liked, version));
        let before = known.answered.map_or(0, |(_, version)| version);
        let landed_later = found.is_some_and(|(liked, version)| version > before && known.in_doubt.contains(&liked));
        assert!(found == known.answered || landed_later, "{target} {user}: {known:?}, found {state}");
        *known = Known { answered: found, in_doubt: Vec::new(), unchecked: false };
        compared += 1;
    }
    compared
}

/// Counts become what the facts say, without a rebuild. `more`: likes of targets beside the book's.
pub fn check_counts(server: &Server, book: &Book, more: &BTreeMap<String, i64>, patience: Duration) {
    let mut due = more.clone();
    for ((target, _), known) in book {
        *due.entry(target.clone()).or_insert(0) += i64::from(known.answered.is_some_and(|(liked, _)| liked));
    }
    let watch = Stopwatch::start();
    for (target, likes) in due {
        loop {
            let counted = get(server, &format!("/v1/{NAMESPACE}/targets/{target}?kinds=like"));
            if counted["kinds"]["like"]["total"] == likes {
                break;
            }
            assert!(watch.elapsed() < patience, "{target} has {likes} likes, shown is {counted}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
