//! Targets that are liked in bulk, by imports and large batches, and compared with their lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    path::Path,
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use store::clock::Stopwatch;

use crate::{
    server::{Server, request},
    traffic::{NAMESPACE, get},
};

/// Largest page of a list.
const PAGE: usize = 200;

/// One target and who likes it. Nobody ever withdraws.
#[derive(Debug, Clone, Default)]
pub struct Liked {
    /// Answered.
    pub must: BTreeSet<String>,
    /// Asked for without an answer.
    pub may: BTreeSet<String>,
    /// Hidden, whether they like it or not: neither counted nor listed.
    pub hidden: BTreeSet<String>,
}

/// By target.
pub type Bulk = BTreeMap<String, Liked>;

/// Likes `target` for all of `users` in one request, and books the answers.
pub fn like(address: &str, bulk: &mut Bulk, target: &str, users: &[String]) -> std::io::Result<()> {
    let liked = bulk.entry(target.to_owned()).or_default();
    liked.may.extend(users.iter().cloned());
    let facts: Vec<Value> = users.iter().map(|user| json!({ "target": target, "user": user, "kind": "like" })).collect();
    let body = json!({ "facts": facts }).to_string();
    let (status, answer) = request(address, "POST", &format!("/v1/{NAMESPACE}/facts"), Some(&body))?;
    assert!([200, 503].contains(&status), "{status} {answer}");
    for (i, user) in users.iter().enumerate() {
        let outcome = answer["results"][i]["outcome"].as_str().unwrap_or_default();
        if ["applied", "unchanged", "accepted"].contains(&outcome) {
            liked.must.insert(user.clone());
        }
    }
    Ok(())
}

/// Writes an import of `rows` likes: half to one target, half to ten others. Returns who likes what.
pub fn write_import(path: &Path, name: &str, rows: usize) -> Bulk {
    let mut bulk = Bulk::new();
    let mut text = String::new();
    for i in 0..rows {
        let target = if i % 2 == 0 { format!("{name}-hot") } else { format!("{name}-{}", i % 10) };
        let user = format!("{name}-u{i}");
        text.push_str(&format!("{user},{target},{}\n", 1_600_000_000_000_000 + i));
        bulk.entry(target).or_default().must.insert(user);
    }
    let written = std::fs::File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.expect("room for an import's rows");
    bulk
}

/// Waits until each target's count and list are the same members, among them all that must be there
/// and are not hidden, and none that are hidden or were never sent; from then on these are known. Returns how many were compared.
pub fn check(server: &Server, bulk: &mut Bulk, patience: Duration) -> u64 {
    let watch = Stopwatch::start();
    let mut compared = 0;
    for (target, liked) in bulk.iter_mut() {
        loop {
            let listed = members(server, target);
            let counted = get(server, &format!("/v1/{NAMESPACE}/targets/{target}?kinds=like"));
            let total = counted["kinds"]["like"]["total"].as_i64();
            let due: BTreeSet<String> = liked.must.difference(&liked.hidden).cloned().collect();
            let fits = due.is_subset(&listed) && listed.is_disjoint(&liked.hidden) && total == i64::try_from(listed.len()).ok();
            if fits {
                let stranger = listed.iter().find(|m| !liked.must.contains(*m) && !liked.may.contains(*m));
                assert_eq!(stranger, None, "{target} lists somebody who never liked it");
                compared += listed.len() as u64;
                // What landed stays; what did not land by now may still, while its intent is young.
                liked.must.retain(|member| liked.hidden.contains(member));
                liked.must.extend(listed);
                break;
            }
            let missing: Vec<&String> = due.difference(&listed).take(5).collect();
            let shown: Vec<&String> = listed.intersection(&liked.hidden).take(5).collect();
            let (due, found) = (due.len(), listed.len());
            assert!(
                watch.elapsed() < patience,
                "{target}: {due} likes were answered and not hidden, {found} are listed, {total:?} counted; missing {missing:?}, \
                 hidden and listed {shown:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
    compared
}

fn members(server: &Server, target: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let page = get(server, &format!("/v1/{NAMESPACE}/targets/{target}/like?limit={PAGE}{cursor}"));
        for member in page["members"].as_array().into_iter().flatten() {
            let member = member["member"].as_str().expect("members are text").to_owned();
            assert!(all.insert(member.clone()), "{target} lists {member} twice");
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}
