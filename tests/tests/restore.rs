//! `tally restore` that is killed anywhere: nothing under the data's name, and the next one succeeds.

use std::{fs, path::Path, process::Stdio, thread, time::Duration};

use store::clock::Stopwatch;
use tally_tests::server::{Server, command, tally, tally_ok};

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Files whose being there tells how far a restore is, below `DIR.restoring`.
const AIMS: [&str; 4] = ["TALLY-RESTORE", "data/LOCK", "data/TALLY", "data/rows"];

#[test]
fn a_restore_that_is_killed_anywhere_is_done_again_without_help() {
    let folder = tempfile::tempdir().expect("a place");
    let place = |name: &str| folder.path().join(name);
    let rows: String = (0..20_000).map(|i| format!("u{i},t{}\n", i % 40)).collect();
    fs::write(place("rows.csv"), rows).expect("written");
    let server = Server::start(&place("source"), &[]);
    tally_ok(["import", &text(&place("rows.csv")), "--url", &server.url(), "--namespace", "n"]);
    tally_ok(["backup", &text(&place("copy")), "--url", &server.url()]);
    drop(server);
    let (mut cut, mut cleared) = (0, 0);
    for (n, aim) in AIMS.iter().enumerate() {
        let data = place(&format!("d{n}"));
        let beside = place(&format!("d{n}.restoring"));
        let mut child = command()
            .args(["restore", &text(&place("copy")), &text(&data)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let watch = Stopwatch::start();
        while !beside.join(aim).exists() && child.try_wait().expect("a child of ours").is_none() {
            assert!(watch.elapsed() < Duration::from_secs(60), "{aim} never comes");
            thread::yield_now();
        }
        child.kill().expect("a child of ours");
        let ended = child.wait().expect("a child of ours");
        if ended.success() {
            continue;
        }
        cut += 1;
        assert!(!data.exists(), "{aim}: a name is given only to what is whole");
        let again = tally(["restore", &text(&place("copy")), &text(&data)]);
        let told = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(again.status.success(), "{aim}: {told}");
        cleared += usize::from(told.contains("cleared away"));
        assert!(data.exists() && !beside.exists(), "{aim}: nothing is left beside it");
        let lines = tally_ok(["export", "--namespace", "n", "--data", &text(&data)]);
        assert_eq!(lines.lines().count(), 20_000, "{aim}");
    }
    assert!(cut >= 2 && cleared >= 1, "{cut} were cut off, {cleared} had something to clear away");
}

#[test]
fn a_restore_that_fails_leaves_nothing_and_touches_nothing_of_others() {
    let folder = tempfile::tempdir().expect("a place");
    let place = |name: &str| folder.path().join(name);
    let server = Server::start(&place("source"), &[]);
    assert_eq!(server.request("PUT", "/v1/n/targets/p/like/u", None).expect("an answer").0, 200);
    tally_ok(["backup", &text(&place("copy")), "--url", &server.url()]);
    drop(server);
    let restore = || tally(["restore", &text(&place("copy")), &text(&place("d"))]);
    fs::create_dir(place("d.restoring")).expect("made");
    fs::write(place("d.restoring").join("mine"), "x").expect("written");
    let refused = restore();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("is in the way") && told.contains("d.restoring"), "{told}");
    assert!(place("d.restoring").join("mine").exists() && !place("d").exists());
    fs::remove_dir_all(place("d.restoring")).expect("removed");
    // An empty directory may be there already.
    fs::create_dir(place("d")).expect("made");
    assert!(restore().status.success());
    assert!(!place("d.restoring").exists());
}
