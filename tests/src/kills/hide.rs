//! Runs that hide and their undo, and what of them must stand whenever the server is killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Duration,
};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use store::clock::Stopwatch;

use crate::{
    server::Server,
    traffic::{Fact, NAMESPACE, get},
};

/// A large target whose members are hidden and shown, a few chunks at a time.
pub const HOT: &str = "hides";
/// Its members that like it from the beginning, and all that are ever hidden: some in advance.
pub const LIKED: usize = 1_300;
const MEMBERS: usize = 1_600;
/// Members of one run at least.
const LEAST: usize = 600;
/// One of the targets that clients like and unlike meanwhile, and their users: `c0-u0` and so on.
const BUSY: &str = "t1";

/// A member of [`HOT`].
pub fn name(i: usize) -> String {
    format!("h{i}")
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Order {
    /// Tells it from all others.
    pub why: String,
    target: String,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Hide(Vec<String>),
    /// The number of a run in [`Hides::runs`].
    Undo(usize),
}

struct Run {
    id: String,
    target: String,
    /// Members that it has changed.
    changed: Vec<String>,
    undone: bool,
}

/// What a member's register must be.
#[derive(Debug, Clone, Copy)]
struct Register {
    hidden: bool,
    /// The run that wrote it last.
    by: usize,
}

/// All runs of a world and what they must have left.
#[derive(Default)]
pub struct Hides {
    runs: Vec<Run>,
    registers: BTreeMap<Fact, Register>,
}

impl Hides {
    /// The next order: a group of members is hidden, or what an earlier run did is taken back.
    pub fn plan(&self, rng: &mut ChaCha8Rng, why: String, clients: usize, users: usize) -> Order {
        let open: Vec<usize> = (0..self.runs.len()).filter(|&i| !self.runs[i].undone).collect();
        if !open.is_empty() && rng.random_range(0..2) == 0 {
            let of = open[rng.random_range(0..open.len())];
            return Order { why, target: self.runs[of].target.clone(), what: What::Undo(of) };
        }
        let (target, all): (_, Vec<String>) = if rng.random_range(0..4) == 0 {
            (BUSY, (0..clients).flat_map(|c| (0..users).map(move |u| format!("c{c}-u{u}"))).collect())
        } else {
            let from = rng.random_range(0..MEMBERS - LEAST);
            (HOT, (from..rng.random_range(from + LEAST..=MEMBERS)).map(name).collect())
        };
        Order { why, target: target.to_owned(), what: What::Hide(all) }
    }

    /// Path and body of the request.
    pub fn request(&self, order: &Order) -> (String, String) {
        let why = &order.why;
        match &order.what {
            What::Undo(of) => (format!("/v1/ops/hide-runs/{}/undo", self.runs[*of].id), json!({ "why": why }).to_string()),
            What::Hide(members) => {
                let body = json!({
                    "namespace": NAMESPACE, "target": order.target, "kind": "like", "members": members,
                    "reason": "fraud", "why": why,
                });
                ("/v1/ops/hide".to_owned(), body.to_string())
            }
        }
    }

    /// Members of [`HOT`] that `order` is going to hide, and that it is going to show.
    pub fn moves(&self, order: &Order) -> (BTreeSet<String>, BTreeSet<String>) {
        let changed: BTreeSet<String> = self.outcome(order).0.into_iter().collect();
        match (&order.what, order.target == HOT) {
            (_, false) => Default::default(),
            (What::Hide(_), true) => (changed, BTreeSet::new()),
            (What::Undo(_), true) => (BTreeSet::new(), changed),
        }
    }

    /// Members whose register `order` changes, and how many it must leave alone.
    fn outcome(&self, order: &Order) -> (Vec<String>, usize) {
        let register = |member: &String| self.registers.get(&(order.target.clone(), member.clone()));
        let all = match &order.what {
            What::Hide(members) => members,
            What::Undo(of) => &self.runs[*of].changed,
        };
        let changes = |member: &&String| match &order.what {
            What::Hide(_) => register(member).is_none_or(|r| !r.hidden),
            What::Undo(of) => register(member).is_some_and(|r| r.by == *of),
        };
        let changed: Vec<String> = all.iter().filter(changes).cloned().collect();
        let left = all.len() - changed.len();
        (changed, left)
    }

    /// After a restart: the run of `order`, if there is one, ends by itself and has done what it must.
    /// Without an answer there may be none; with one (`answered`) there must be exactly one. Returns
    /// whether the kill fell into its middle, so far as this can tell: it was still under way.
    pub fn ends(&mut self, server: &Server, order: &Order, answered: bool, patience: Duration) -> bool {
        let listed = get(server, "/v1/ops/hide-runs?limit=200");
        let runs = listed["runs"].as_array().expect("a list of runs");
        let mine: Vec<&Value> = runs.iter().filter(|run| run["why"] == order.why.as_str()).collect();
        assert!(mine.len() <= 1 && (!answered || mine.len() == 1), "{}: answered: {answered}, found {mine:?}", order.why);
        let Some(id) = mine.first().map(|run| run["id"].as_str().expect("a number as text").to_owned()) else { return false };
        let cut = mine.iter().any(|run| run["state"] != "done");
        let watch = Stopwatch::start();
        let ended = loop {
            let run = get(server, &format!("/v1/ops/hide-runs/{id}"));
            if !["queued", "running"].contains(&run["state"].as_str().unwrap_or_default()) {
                break run;
            }
            assert!(watch.elapsed() < patience, "{}: the run does not end: {run}", order.why);
            thread::sleep(Duration::from_millis(5));
        };
        let (changed, left) = self.outcome(order);
        let alone = if matches!(order.what, What::Hide(_)) { "unchanged" } else { "superseded" };
        let due = (json!("done"), json!(changed.len()), json!(left));
        assert_eq!((ended["state"].clone(), ended["changed"].clone(), ended[alone].clone()), due, "{}: {ended}", order.why);
        self.apply(order, id, changed);
        cut
    }

    fn apply(&mut self, order: &Order, id: String, changed: Vec<String>) {
        let (by, hidden) = (self.runs.len(), matches!(order.what, What::Hide(_)));
        let written = match &order.what {
            What::Hide(members) => members,
            What::Undo(of) => {
                self.runs[*of].undone = true;
                &changed
            }
        };
        for member in written {
            self.registers.insert((order.target.clone(), member.clone()), Register { hidden, by });
        }
        // What an undo did is not undone here.
        self.runs.push(Run { id, target: order.target.clone(), changed, undone: !hidden });
    }

    /// Everybody who is hidden.
    pub fn hidden(&self) -> impl Iterator<Item = &Fact> {
        self.registers.iter().filter(|(_, register)| register.hidden).map(|(fact, _)| fact)
    }

    /// Those of [`HOT`].
    pub fn hidden_of_hot(&self) -> BTreeSet<String> {
        self.hidden().filter(|(target, _)| target == HOT).map(|(_, member)| member.clone()).collect()
    }
}
