//! The operators' audit log: a change that was answered has its entry, exactly once, and nothing was
//! changed without one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    server::{Server, request},
    traffic::{NAMESPACE, get},
};

/// Targets whose status is changed. Nobody likes them.
const TARGETS: usize = 4;
/// In turn, so that each change of a target is one.
const STATUSES: [&str; 3] = ["closed", "gone", "open"];
/// How each reason of ours begins.
const OURS: &str = "kill ";

/// A change of a target's status that was sent.
struct Change {
    why: String,
    target: String,
    status: &'static str,
    before: String,
}

/// What the log must hold.
#[derive(Default)]
pub struct Audited {
    /// Reasons of what was answered, or was found in the log once.
    must: BTreeSet<String>,
    /// Reasons of what was sent without an answer and not looked for yet.
    may: BTreeSet<String>,
    /// Reasons of what was not found when it was looked for: nothing writes an entry later.
    never: BTreeSet<String>,
    /// The status of each target.
    statuses: BTreeMap<String, String>,
    /// The change that the kill cut off.
    open: Option<Change>,
    /// Changes sent so far.
    sent: usize,
}

impl Audited {
    /// Something with this reason was sent, and answered or not.
    pub fn asked(&mut self, why: &str, answered: bool) {
        let whys = if answered { &mut self.must } else { &mut self.may };
        whys.insert(why.to_owned());
    }

    /// Changes statuses one after another until the server is gone.
    pub fn change(&mut self, address: &str, kill: u64) {
        loop {
            let target = format!("quiet-{}", self.sent % TARGETS);
            let before = self.statuses.get(&target).cloned().unwrap_or_else(|| "open".to_owned());
            let at = STATUSES.iter().position(|s| *s == before).expect("one of them");
            let status = STATUSES[(at + 1) % STATUSES.len()];
            let why = format!("{OURS}{kill} change {}", self.sent);
            self.sent += 1;
            let body = json!({ "status": status, "why": why }).to_string();
            let answer = request(address, "PUT", &format!("/v1/ops/targets/{NAMESPACE}/{target}/status"), Some(&body));
            let Ok((code, answer)) = answer else {
                self.asked(&why, false);
                self.open = Some(Change { why, target, status, before });
                return;
            };
            assert!(code == 200 && answer["before"] == before.as_str(), "{why}: {target} was {before}: {code} {answer}");
            self.asked(&why, true);
            self.statuses.insert(target, status.to_owned());
        }
    }

    /// Holds the whole log against what was sent. Returns how many entries were looked for.
    pub fn check(&mut self, server: &Server) -> u64 {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for entry in entries(server) {
            if let Some(why) = entry["why"].as_str().filter(|why| why.starts_with(OURS)) {
                assert!(entry["failed"].is_null(), "nothing was to fail: {entry}");
                *found.entry(why.to_owned()).or_insert(0) += 1;
            }
        }
        let twice = found.iter().find(|(_, n)| **n > 1);
        assert_eq!(twice, None, "an entry stands more than once");
        let lost: Vec<&String> = self.must.iter().filter(|why| !found.contains_key(*why)).collect();
        assert_eq!(lost, Vec::<&String>::new(), "answered, and not in the audit log");
        for why in std::mem::take(&mut self.may) {
            let whys = if found.contains_key(&why) { &mut self.must } else { &mut self.never };
            whys.insert(why);
        }
        let strange = found.keys().find(|why| !self.must.contains(*why));
        assert_eq!(strange, None, "in the audit log, though nobody asked for it or it was not there before");
        self.check_statuses(server);
        self.must.len() as u64
    }

    /// Each status is the last that was answered, or what was cut off asked for; and then it has an entry.
    fn check_statuses(&mut self, server: &Server) {
        let open = self.open.take();
        if let Some(open) = &open {
            self.statuses.entry(open.target.clone()).or_insert_with(|| open.before.clone());
        }
        for (target, status) in &mut self.statuses {
            let found = get(server, &format!("/v1/ops/targets/{NAMESPACE}/{target}/status"));
            let found = found["status"].as_str().expect("a status");
            if found == status {
                continue;
            }
            let cut = open.as_ref().filter(|open| open.target == *target && open.status == found);
            let cut = cut.unwrap_or_else(|| panic!("{target} is {found}, it was set to {status}"));
            assert!(self.must.contains(&cut.why), "{target} became {found} without an entry in the audit log");
            found.clone_into(status);
        }
    }
}

/// The whole log, newest first, no two at the same time.
fn entries(server: &Server) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = get(server, &format!("/v1/ops/audit?limit=200{cursor}"));
        all.extend(page["entries"].as_array().expect("a list of entries").iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let times: Vec<i64> = all.iter().map(|e| e["at"].as_str().and_then(|at| at.parse().ok()).expect("a time")).collect();
    assert!(times.is_sorted_by(|a, b| a > b), "two entries of one time, or out of order: {times:?}");
    all
}
