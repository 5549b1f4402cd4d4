//! A disk that is full, and one that may not be written: nothing answered is lost, every refusal says
//! why, and there is a way on.
//!
//! These need a small file system of their own, so the right to mount one. Where that is not given they
//! fail and say so; `TALLY_NO_MOUNT=1` leaves them out, but never where `CI` is set.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Duration,
};

use serde_json::Value;
use store::clock::Stopwatch;
use tally_tests::{
    kills::bulk::{self, Bulk},
    server::{Server, free_address, tally, tally_ok},
};

const SETTINGS: [&str; 6] = ["--set", "slot=200ms", "--set", "sweep_delay=500ms", "--set", "log=warn"];
/// How long counts may take to be complete after a start.
const COUNTED: Duration = Duration::from_secs(20);
/// Size of the file system, and what is left of it while the server fills it.
const SIZE_MIB: u64 = 24;
/// The same with ext4's own journal and tables.
const EXT4_MIB: u64 = 32;
const LEFT_MIB: u64 = 1;
/// Likes in one request.
const BATCH: usize = 200;

/// Runs a command as it is or, where that is not permitted, by sudo.
fn as_root(command: &[&str]) -> Result<(), String> {
    let run = |command: &[&str]| match Command::new(command[0]).args(&command[1..]).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("{}: {error}", command[0])),
    };
    run(command).or_else(|error| run(&[&["sudo", "-n"], command].concat()).map_err(|_| error))
}

/// What a disk is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Memory.
    Tmpfs,
    /// A file with ext4 in it on a loop device: blocks are given out late, and a journal of its own.
    Ext4,
}

/// A small file system, mounted on a folder of its own; unmounted when dropped.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// `None`: the tester wants to do without, or the machine has no loop devices; says which.
    fn mount(kind: Kind) -> Option<Self> {
        let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty() && v != "0" && v != "false");
        if set("TALLY_NO_MOUNT") && !set("CI") {
            eprintln!("left out: TALLY_NO_MOUNT is set");
            return None;
        }
        let disk = Self { folder: tempfile::tempdir().expect("a place to mount on") };
        fs::create_dir(disk.path()).expect("an empty folder");
        match kind {
            Kind::Tmpfs => {
                disk.mount_tmpfs();
                println!("tested on tmpfs");
            }
            Kind::Ext4 => {
                if let Err(why) = disk.mount_ext4() {
                    println!("not tested on ext4, only on tmpfs: {why}");
                    return None;
                }
                println!("tested on ext4 on a loop device");
            }
        }
        Some(disk)
    }

    fn mount_tmpfs(&self) {
        let (path, size) = (self.path().to_string_lossy().into_owned(), format!("size={SIZE_MIB}m,mode=1777"));
        as_root(&["mount", "-t", "tmpfs", "-o", &size, "tally-test", &path]).unwrap_or_else(|error| {
            panic!(
                "this test mounts a small tmpfs and needs the right to (root, or sudo without a password): {error}; set \
                 TALLY_NO_MOUNT=1 to leave it out"
            )
        });
    }

    /// The file is on the machine's own disk, and freed with the folder; the device with the mount.
    fn mount_ext4(&self) -> Result<(), String> {
        let (image, path) = (self.folder.path().join("image"), self.path());
        let (image, path) = (image.to_string_lossy(), path.to_string_lossy());
        let file = File::create(&*image).map_err(|e| e.to_string())?;
        file.set_len(EXT4_MIB << 20).map_err(|e| e.to_string())?;
        // Nothing is kept back for root, so that full is full for everybody.
        as_root(&["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "root_owner", &image])?;
        as_root(&["mount", "-o", "loop", &image, &path])?;
        as_root(&["chmod", "1777", &path])
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Where the server logs: not on this disk.
    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Bytes that are free.
    fn free(&self) -> u64 {
        let output = Command::new("df").args(["--output=avail", "-B1"]).arg(self.path()).output().expect("df is everywhere");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().last().and_then(|line| line.trim().parse().ok()).unwrap_or_else(|| panic!("{output:?}"))
    }

    /// Fills the disk until `left` bytes are free.
    fn fill(&self, left: u64) {
        let mut ballast = File::options().create(true).append(true).open(self.ballast()).expect("room for a name");
        while self.free() > left {
            let some = usize::try_from((self.free() - left).min(1 << 20)).expect("small");
            if ballast.write_all(&vec![7; some]).is_err() {
                return; // The last page may be less than was told.
            }
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.ballast()).expect("it is there");
    }

    fn remount(&self, how: &str) {
        let (how, path) = (format!("remount,{how}"), self.path().to_string_lossy().into_owned());
        as_root(&["mount", "-o", &how, &path]).expect("it is mounted");
    }

    fn serve(&self) -> Server {
        Server::start_logging(&self.data(), &self.log(), &SETTINGS)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a failing test may have left a process on it.
        let _ = as_root(&["umount", "-l", &self.path().to_string_lossy()]);
    }
}

/// Likes in batches until something is refused or `most` were sent; the refusal, if there was one.
fn like(server: &Server, bulk: &mut Bulk, target: &str, most: usize) -> Option<(u16, Value)> {
    for batch in 0..most.div_ceil(BATCH) {
        let users: Vec<String> = (0..BATCH).map(|i| format!("u{batch}-{i}-{}", "x".repeat(60))).collect();
        bulk::like(server.address(), bulk, target, &users).expect("an answer, whatever it is");
        let liked = &bulk[target];
        if users.iter().any(|user| !liked.must.contains(user)) {
            let put = format!("/v1/crash/targets/{target}/like/late");
            return Some(server.request("PUT", &put, None).expect("an answer"));
        }
    }
    None
}

/// Processor time that a process has used, in clock ticks of a hundredth of a second.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    // The name in brackets may hold spaces; user and system time are the 12th and 13th field behind it.
    let rest = stat.rsplit_once(')').map(|(_, rest)| rest).expect("a name in brackets");
    rest.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().expect("a number")).sum()
}

fn assert_says_why(status: u16, answer: &Value) {
    let detail = answer["detail"].as_str().unwrap_or_default().to_lowercase();
    assert_eq!(status, 503, "{answer}");
    assert!(detail.contains("no space") && detail.contains("free space"), "neither cause nor what to do: {answer}");
}

/// Exit code 3 with the path and what to do.
fn assert_refused(output: &Output, path: &Path) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{:?} {text}", output.status);
    assert!(text.contains(&*path.to_string_lossy()) && text.contains("check that it exists"), "{text}");
    assert!(!text.contains("bug"), "{text}");
}

fn serve_once(data: &Path) -> Output {
    tally(["serve", "--listen", &free_address(), "--set", "log=error", "--data", &data.to_string_lossy()])
}

/// How the server that met the full disk ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Asked,
}

fn a_full_disk(kind: Kind, end: End) {
    let Some(disk) = Disk::mount(kind) else { return };
    let mut server = disk.serve();
    let mut bulk = Bulk::new();
    assert_eq!(like(&server, &mut bulk, "before", 3 * BATCH), None, "there is room yet");
    bulk::check(&server, &mut bulk, COUNTED);
    disk.fill(LEFT_MIB << 20);
    let (status, answer) = like(&server, &mut bulk, "filling", 1_000_000).expect("the disk gets full");
    assert_says_why(status, &answer);
    println!("{end:?}: full after {} likes", bulk.values().map(|l| l.must.len()).sum::<usize>());

    // It is alive, says that it is not ready, answers at once, and does not spin.
    assert_eq!(server.request("GET", "/healthz", None).expect("an answer").0, 200);
    let (status, answer) = server.request("GET", "/readyz", None).expect("an answer");
    assert_says_why(status, &answer);
    let watch = Stopwatch::start();
    for i in 0..20 {
        let (status, answer) = server.request("PUT", &format!("/v1/crash/targets/more/like/m{i}"), None).expect("an answer");
        assert_says_why(status, &answer);
        let (status, answer) = server.request("GET", "/v1/crash/targets/before?kinds=like", None).expect("an answer");
        match status {
            // What was counted before, and nothing else; or no number at all.
            200 => assert_eq!(answer["kinds"]["like"]["total"], 3 * BATCH, "{answer}"),
            _ => assert_says_why(status, &answer),
        }
    }
    assert!(watch.elapsed() < Duration::from_secs(20), "40 answers took {:?}", watch.elapsed());
    let before = ticks(server.pid());
    thread::sleep(Duration::from_secs(2));
    let used = ticks(server.pid()) - before;
    assert!(used < 80, "{used} hundredths of a second of work in two seconds without a request");

    match end {
        End::Killed => server.kill(),
        End::Asked => {
            let log = server.log();
            let (status, took) = server.stop();
            assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}: {log}");
        }
    }
    let log = fs::read_to_string(disk.log()).expect("it is there");
    assert!(!log.contains("bug") && !log.contains("panicked"), "{log}");

    // A start on a disk without a free byte fails with a reason, or serves what is there; room made, all goes on.
    disk.fill(0);
    let output = tally(["verify", "--data", &disk.data().to_string_lossy()]);
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("space"), "{text}");
    }
    disk.make_room();
    let server = disk.serve();
    let promised: Vec<BTreeSet<String>> = bulk.values().map(|liked| liked.must.clone()).collect();
    bulk::check(&server, &mut bulk, COUNTED);
    for (liked, promised) in bulk.values().zip(promised) {
        assert!(promised.is_subset(&liked.must), "an answered like is gone");
    }
    assert_eq!(like(&server, &mut bulk, "after", BATCH), None, "there is room again");
    bulk::check(&server, &mut bulk, COUNTED);
    tally_ok(["verify", "--url", &server.url()]);
    assert!(server.stop().0.success());
    tally_ok(["verify", "--data", &disk.data().to_string_lossy()]);
}

#[test]
fn a_full_disk_loses_nothing_and_a_killed_server_goes_on_when_there_is_room() {
    a_full_disk(Kind::Tmpfs, End::Killed);
}

#[test]
fn a_full_disk_loses_nothing_and_a_server_that_is_asked_to_stops_in_order() {
    a_full_disk(Kind::Tmpfs, End::Asked);
}

#[test]
fn a_full_ext4_loses_nothing_and_a_killed_server_goes_on_when_there_is_room() {
    a_full_disk(Kind::Ext4, End::Killed);
}

#[test]
fn a_full_ext4_loses_nothing_and_a_server_that_is_asked_to_stops_in_order() {
    a_full_disk(Kind::Ext4, End::Asked);
}

fn a_first_start_on_a_full_disk(kind: Kind) {
    let Some(disk) = Disk::mount(kind) else { return };
    disk.fill(0);
    for _ in 0..2 {
        assert_refused(&serve_once(&disk.data()), &disk.data());
    }
    disk.make_room();
    let server = disk.serve();
    assert_eq!(like(&server, &mut Bulk::new(), "first", BATCH), None);
}

#[test]
fn a_first_start_on_a_full_disk_fails_with_a_reason_and_works_once_there_is_room() {
    for kind in [Kind::Tmpfs, Kind::Ext4] {
        a_first_start_on_a_full_disk(kind);
    }
}

#[test]
fn a_disk_that_may_not_be_written_is_refused_and_left_as_it_was() {
    for kind in [Kind::Tmpfs, Kind::Ext4] {
        a_read_only_disk(kind);
    }
}

fn a_read_only_disk(kind: Kind) {
    let Some(disk) = Disk::mount(kind) else { return };
    let server = disk.serve();
    let mut bulk = Bulk::new();
    assert_eq!(like(&server, &mut bulk, "kept", 2 * BATCH), None);
    bulk::check(&server, &mut bulk, COUNTED);
    assert!(server.stop().0.success());
    disk.remount("ro");
    for _ in 0..2 {
        assert_refused(&serve_once(&disk.data()), &disk.data());
        assert_refused(&tally(["verify", "--data", &disk.data().to_string_lossy()]), &disk.data());
    }
    assert_refused(&serve_once(&disk.path().join("new")), &disk.path().join("new"));
    disk.remount("rw");
    let server = disk.serve();
    bulk::check(&server, &mut bulk, COUNTED);
    assert!(server.stop().0.success());
    tally_ok(["verify", "--data", &disk.data().to_string_lossy()]);
}
