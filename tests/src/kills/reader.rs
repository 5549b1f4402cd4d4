//! Readers: counts at 50 Hz throughout, each held against what it may be at that moment.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use store::clock::Stopwatch;

use crate::{server::request, traffic::NAMESPACE};

/// One sample every 20 ms.
const PERIOD: Duration = Duration::from_millis(20);
/// How old a count may be that a reader is shown: the cache's age and a slow read.
const STALE: Duration = Duration::from_secs(2);

/// Least and largest number that may be shown for a target now.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Likes that are counted already, that nobody withdraws and nobody is about to hide.
    pub least: i64,
    /// Likes that were ever asked for.
    pub most: i64,
    /// Whether nobody withdraws anything: then no number is below one that was seen a while ago.
    pub grows: bool,
}

/// What a world and its reader share.
#[derive(Default)]
pub struct Watched {
    address: Mutex<Option<String>>,
    bounds: Mutex<BTreeMap<String, Bounds>>,
    wrong: Mutex<Option<String>>,
    samples: AtomicU64,
    stop: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with it")
}

impl Watched {
    /// Where the server is now.
    pub fn at(&self, address: &str) {
        *locked(&self.address) = Some(address.to_owned());
    }

    /// Sets what may be shown for `target`: before likes are sent, and after they are counted.
    pub fn bound(&self, target: &str, bounds: Bounds) {
        locked(&self.bounds).insert(target.to_owned(), bounds);
    }

    /// Raises the least number that may be shown.
    pub fn counted(&self, target: &str, least: i64) {
        if let Some(bounds) = locked(&self.bounds).get_mut(target) {
            bounds.least = bounds.least.max(least);
        }
    }

    /// What a reader saw that it should never have seen.
    pub fn wrong(&self) -> Option<String> {
        locked(&self.wrong).clone()
    }

    /// Ends the reader.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Counts that were looked at.
    pub fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Samples until it is stopped or finds something wrong.
    pub fn run(&self) {
        let watch = Stopwatch::start();
        let mut seen: BTreeMap<String, VecDeque<(Duration, i64)>> = BTreeMap::new();
        while !self.stop.load(Ordering::Relaxed) && locked(&self.wrong).is_none() {
            let began = watch.elapsed();
            if let Err(wrong) = self.sample(&watch, &mut seen) {
                *locked(&self.wrong) = Some(wrong);
            }
            thread::sleep(PERIOD.saturating_sub(watch.elapsed().saturating_sub(began)));
        }
    }

    fn sample(&self, watch: &Stopwatch, seen: &mut BTreeMap<String, VecDeque<(Duration, i64)>>) -> Result<(), String> {
        let Some(address) = locked(&self.address).clone() else { return Ok(()) };
        // The widest of the bounds before and after the answer: in between they may have been moved.
        let before = locked(&self.bounds).clone();
        let began = watch.elapsed();
        let targets: Vec<&String> = before.keys().rev().take(200).collect();
        let body = json!({ "targets": targets, "kinds": ["like"] }).to_string();
        let Ok((200, answer)) = request(&address, "POST", &format!("/v1/{NAMESPACE}/counts"), Some(&body)) else {
            return Ok(()); // It is dead or not ready.
        };
        let after = locked(&self.bounds).clone();
        for target in targets {
            let item = &answer["targets"][target];
            let (Some(least), Some(most)) = (before.get(target), after.get(target)) else { continue };
            let Some(total) = total(target, item)? else { continue };
            self.samples.fetch_add(1, Ordering::Relaxed);
            let seen = seen.entry(target.clone()).or_default();
            let mut least_now = least.least.min(most.least);
            while let Some(&(at, total)) = seen.front()
                && least.grows
                && at + STALE < began
            {
                seen.pop_front();
                self.counted(target, total);
                least_now = least_now.max(total);
            }
            if least.grows && seen.back().is_none_or(|&(_, last)| total > last) {
                seen.push_back((watch.elapsed(), total));
            }
            let most_now = least.most.max(most.most);
            if !(least_now..=most_now).contains(&total) {
                return Err(format!("{target} was shown as {total}, it must lie in {least_now} to {most_now}: {item}"));
            }
        }
        Ok(())
    }
}

/// The number shown; `None`: it says that there is none to show now.
fn total(target: &str, item: &Value) -> Result<Option<i64>, String> {
    if item["problem"].is_object() {
        return Ok(None);
    }
    let kind = &item["kinds"]["like"];
    match (kind["total"].as_i64(), item["stale"].as_bool()) {
        (Some(total), _) => {
            let sum: i64 = kind["choices"].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_i64()).sum();
            if sum == total { Ok(Some(total)) } else { Err(format!("{target}: choices are not the total: {item}")) }
        }
        (None, Some(true)) => Ok(None),
        (None, _) => Err(format!("{target} has no total and is not called stale: {item}")),
    }
}
