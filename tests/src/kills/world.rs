//! One data directory and its kills.

use std::{
    path::PathBuf,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::clock::Stopwatch;

use super::{
    Aim, Report,
    audit::Audited,
    bulk::{self, Bulk},
    hide::{self, Hides},
    reader::{Bounds, Watched},
};
use crate::{
    server::{Server, command, free_address, request, tally_ok},
    traffic::{Book, Client, NAMESPACE, Shape, check_counts, check_facts, deal},
};

/// Clients that send at the same time.
const CLIENTS: usize = 2;
/// What they choose from.
const SHAPE: Shape = Shape { targets: 6, users: 40 };
/// Changes answered before the moment from which a kill's delay counts.
const ANSWERED: u64 = 10;
/// Likes that stand throughout on one target that nobody else likes, and on the most popular one.
const STEADY: usize = 150;
/// Likes of a growing target before and with the batch that makes it large.
const BEFORE: usize = 120;
const WITH: usize = 170;
/// Rows of an import: a few requests.
const ROWS: usize = 1_500;
/// New likes of the target whose members are hidden, with each kill that hides.
const LATE: usize = 20;
/// How long after a restart counts may take to be complete.
const COUNTED: Duration = Duration::from_secs(20);
/// Kills between two checks of everything.
const ALL_EVERY: u64 = 12;
/// Short slots, so that kills hit closing, sweeping and promotion too; a cache that is hardly there,
/// so that readers see what the store says.
const SETTINGS: [&str; 8] = ["--set", "slot=200ms", "--set", "sweep_delay=500ms", "--set", "log=warn", "--set", "cache_age=20ms"];

struct World {
    name: String,
    rng: ChaCha8Rng,
    mending: bool,
    folder: tempfile::TempDir,
    address: String,
    server: Option<Server>,
    watched: Arc<Watched>,
    book: Book,
    bulk: Bulk,
    /// Targets of `bulk` that changed since they were compared.
    unchecked: Bulk,
    hides: Hides,
    audited: Audited,
    /// Members of the hidden target that like it so far.
    likers: usize,
    report: Report,
    /// Kill points so far.
    log: Vec<String>,
}

/// Runs one world to its end.
pub fn run(number: usize, kills: u64, seed: u64, verbose: bool) -> Report {
    // Every fourth has rebuilds; in the others nothing may ever be repaired.
    let mending = number % 4 == 3;
    let watched = Arc::new(Watched::default());
    let reader = thread::spawn({
        let watched = watched.clone();
        move || watched.run()
    });
    let mut world = World {
        name: format!("world {number}"),
        rng: ChaCha8Rng::seed_from_u64(seed),
        mending,
        folder: tempfile::tempdir().expect("a place for data"),
        address: free_address(),
        server: None,
        watched,
        book: Book::new(),
        bulk: Bulk::new(),
        unchecked: Bulk::new(),
        hides: Hides::default(),
        audited: Audited::default(),
        likers: 0,
        report: Report::default(),
        log: Vec::new(),
    };
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.play(kills, verbose)));
    world.watched.stop();
    let read = reader.join();
    if let Err(panic) = done {
        eprintln!("{} (seed {seed}) broke after these kills:\n{}", world.name, world.log.join("\n"));
        std::panic::resume_unwind(panic);
    }
    read.expect("the reader does not panic");
    world.report.samples = world.watched.samples();
    world.report
}

impl World {
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn play(&mut self, kills: u64, verbose: bool) {
        self.prepare();
        for kill in 1..=kills {
            let aim = Aim::draw(&mut self.rng, self.mending);
            let delay = aim.delay(&mut self.rng);
            let point = format!("{} kill {kill}: {aim:?} after {:.1} ms", self.name, delay.as_secs_f64() * 1000.0);
            if verbose {
                println!("{point}");
            }
            self.log.push(point);
            self.kill(kill, aim, delay);
            *self.report.kills.entry(aim).or_insert(0) += 1;
            self.check(kill.is_multiple_of(ALL_EVERY));
        }
        self.end();
    }

    /// Likes that stand from the beginning, counted before the first kill.
    fn prepare(&mut self) {
        self.up();
        for (target, more) in [("steady", 0), ("t0", CLIENTS * SHAPE.users)] {
            let users: Vec<String> = (0..STEADY).map(|i| format!("s{i}")).collect();
            bulk::like(&self.address, &mut self.unchecked, target, &users).expect("an answer");
            assert_eq!(self.unchecked[target].must.len(), STEADY);
            if more > 0 {
                // Its list has the clients' likes too; `check_counts` holds it against the book.
                self.unchecked.remove(target);
            }
            let (least, most) = (0, i64::try_from(STEADY + more).expect("small"));
            self.watched.bound(target, Bounds { least, most, grows: more == 0 });
        }
        self.counts();
        let steady = i64::try_from(STEADY).expect("small");
        self.watched.counted("steady", steady);
        self.watched.counted("t0", steady);
        if !self.mending {
            while self.likers < hide::LIKED {
                self.like_hidden(hide::LIKED.div_ceil(3));
            }
        }
        self.check(true);
    }

    /// So many more members like the target whose members are hidden, some of whom are hidden already.
    fn like_hidden(&mut self, more: usize) {
        let users: Vec<String> = (self.likers..self.likers + more).map(hide::name).collect();
        self.likers += more;
        // Also what was compared before changes again.
        if let Some(liked) = self.bulk.remove(hide::HOT) {
            self.unchecked.insert(hide::HOT.to_owned(), liked);
        }
        bulk::like(&self.address, &mut self.unchecked, hide::HOT, &users).expect("an answer");
        assert_eq!(self.unchecked[hide::HOT].must.len(), self.likers, "answered before the kill");
    }

    /// A running server, started where there is none.
    fn up(&mut self) -> &Server {
        if self.server.is_none() {
            self.server = Some(Server::start_at(&self.data(), &self.address, &SETTINGS));
            self.watched.at(&self.address);
        }
        self.server.as_ref().expect("just started")
    }

    fn down(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill();
        }
    }

    /// One kill, with what it is aimed at under way.
    fn kill(&mut self, number: u64, aim: Aim, delay: Duration) {
        match aim {
            Aim::StartUp => {
                self.down();
                let mut server = Server::spawn(&self.data(), &self.address, &SETTINGS);
                thread::sleep(delay);
                server.kill();
            }
            Aim::Traffic => self.under_traffic(delay, |_| {}),
            Aim::Promotion => {
                let target = format!("grows-{number}");
                let users: Vec<String> = (0..WITH).map(|i| format!("g{i}")).collect();
                self.up();
                let most = i64::try_from(WITH).expect("small");
                self.watched.bound(&target, Bounds { least: 0, most, grows: true });
                bulk::like(&self.address, &mut self.unchecked, &target, &users[..BEFORE]).expect("an answer");
                assert_eq!(self.unchecked[&target].must.len(), BEFORE, "answered before the kill");
                let (address, mut bulk) = (self.address.clone(), std::mem::take(&mut self.unchecked));
                thread::scope(|scope| {
                    // In parts, so that some are answered and others are not.
                    let sending = scope.spawn(|| {
                        for users in users[BEFORE..].chunks(10) {
                            if bulk::like(&address, &mut bulk, &target, users).is_err() {
                                break;
                            }
                        }
                    });
                    self.under_traffic(delay, |_| {});
                    sending.join().expect("no client panics");
                });
                self.unchecked = bulk;
            }
            Aim::ImportServer | Aim::ImportClient => self.import(number, aim, delay),
            Aim::Verify | Aim::Rebuild => {
                let what = if aim == Aim::Verify { "verify" } else { "rebuild" };
                let why = format!("kill {number} {what}");
                self.under_traffic(delay, |server| {
                    let body = serde_json::json!({ "all": true, "reason": why }).to_string();
                    let (status, answer) = server.request("POST", &format!("/v1/ops/{what}"), Some(&body)).expect("an answer");
                    assert_eq!(status, 202, "{answer}");
                });
                self.audited.asked(&why, true);
            }
            Aim::Hide => self.hide(number, delay),
            Aim::Audit => {
                let mut audited = std::mem::take(&mut self.audited);
                self.audited = self.beside_kill(delay, move |address| {
                    audited.change(address, number);
                    audited
                });
            }
        }
    }

    /// Members are hidden, or shown again by an undo; the kill falls on the order or on its run, which
    /// then ends by itself.
    fn hide(&mut self, number: u64, delay: Duration) {
        self.up();
        let why = format!("kill {number} hide");
        let order = self.hides.plan(&mut self.rng, why.clone(), CLIENTS, SHAPE.users);
        let (path, body) = self.hides.request(&order);
        // What readers may see from here on: more by those who like it now or are shown, less by those hidden.
        let (hides, shows) = self.hides.moves(&order);
        let number = |n: usize| i64::try_from(n).expect("small");
        let due = self.due_of_hot();
        let (least, most) = (number(due.saturating_sub(hides.len())), number(due + LATE + shows.len()));
        self.watched.bound(hide::HOT, Bounds { least, most, grows: false });
        self.like_hidden(LATE);
        let answer = self.beside_kill(delay, move |address| request(address, "POST", &path, Some(&body)).ok());
        if let Some((status, answer)) = &answer {
            assert_eq!(*status, 202, "{answer}");
        }
        self.audited.asked(&why, answer.is_some());
        self.up();
        let cut = self.hides.ends(self.server.as_ref().expect("it is up"), &order, answer.is_some(), COUNTED);
        self.report.cut += u64::from(cut);
        self.unchecked.get_mut(hide::HOT).expect("liked just now").hidden = self.hides.hidden_of_hot();
    }

    /// Likes that are counted of the target whose members are hidden, once everything is.
    fn due_of_hot(&self) -> usize {
        let hidden = self.hides.hidden_of_hot();
        (0..self.likers).filter(|&i| !hidden.contains(&hide::name(i))).count()
    }

    /// Does `work` beside traffic; the kill falls `delay` after it begins.
    fn beside_kill<T: Send>(&mut self, delay: Duration, work: impl FnOnce(&str) -> T + Send) -> T {
        let (go, told) = mpsc::channel::<()>();
        let address = self.address.clone();
        thread::scope(|scope| {
            let working = scope.spawn(move || {
                // Without a word the world has ended before.
                told.recv().ok().map(|()| work(&address))
            });
            self.under_traffic(delay, move |_| go.send(()).expect("it waits for this"));
            let done = working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done.expect("it was told to begin")
        })
    }

    /// Clients send, then `begin`, and `delay` after that the server is killed.
    fn under_traffic(&mut self, delay: Duration, begin: impl FnOnce(&Server)) {
        self.up();
        let (answers, stop, address) = (AtomicU64::new(0), AtomicBool::new(false), self.address.clone());
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| self.rng.random()).collect();
        let mut book = std::mem::take(&mut self.book);
        thread::scope(|scope| {
            let parts = deal(&mut book, CLIENTS).into_iter().zip(seeds).enumerate();
            let clients: Vec<_> = parts
                .map(|(number, (book, seed))| {
                    let rng = ChaCha8Rng::seed_from_u64(seed);
                    let client = Client { address: &address, rng, number, book, shape: SHAPE, answers: &answers, stop: &stop };
                    scope.spawn(|| client.run())
                })
                .collect();
            // However slow the machine is, there is traffic under each kill.
            let watch = Stopwatch::start();
            while answers.load(Ordering::Relaxed) < ANSWERED && watch.elapsed() < COUNTED {
                thread::sleep(Duration::from_millis(1));
            }
            begin(self.server.as_ref().expect("it is up"));
            thread::sleep(delay);
            self.down();
            stop.store(true, Ordering::Relaxed);
            for client in clients {
                book.append(&mut client.join().expect("no client panics"));
            }
        });
        self.book = book;
        self.report.answered += answers.into_inner();
    }

    /// An import in whose middle the server or the importing process is killed, and which ends well.
    fn import(&mut self, number: u64, aim: Aim, delay: Duration) {
        let name = format!("import-{number}");
        let (file, state) = (self.folder.path().join(format!("{name}.csv")), self.folder.path().join(format!("{name}.state")));
        let rows = bulk::write_import(&file, &name, ROWS);
        for (target, liked) in &rows {
            let most = i64::try_from(liked.must.len()).expect("small");
            self.watched.bound(target, Bounds { least: 0, most, grows: true });
        }
        let url = self.up().url();
        let import = || {
            let mut import = command();
            import.arg("import").arg(&file).arg("--resume").arg(&state);
            import.args(["--url", &url, "--namespace", NAMESPACE, "--columns", "user,target,at", "--parallel", "2"]);
            import.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts")
        };
        let mut running = import();
        if aim == Aim::ImportClient {
            thread::sleep(delay);
            running.kill().expect("a child of ours");
            running.wait().expect("a child of ours");
            running = import();
        } else {
            self.under_traffic(delay, |_| {});
            self.up();
        }
        ends_well(running);
        self.unchecked.extend(rows);
    }

    /// What was answered is there; counts and lists become it by themselves.
    fn check(&mut self, all: bool) {
        self.up();
        let server = self.server.as_ref().expect("it is up");
        check_facts(server, &mut self.book, all);
        self.report.audited = self.audited.check(server);
        if all {
            self.report.bulk += bulk::check(server, &mut self.unchecked, COUNTED);
            self.bulk.append(&mut self.unchecked);
            self.counts();
            if self.bulk.contains_key(hide::HOT) {
                let due = i64::try_from(self.due_of_hot()).expect("small");
                self.watched.bound(hide::HOT, Bounds { least: due, most: due, grows: false });
            }
        }
        if let Some(wrong) = self.watched.wrong() {
            panic!("a reader: {wrong}");
        }
    }

    fn counts(&mut self) {
        let steady = i64::try_from(STEADY).expect("small");
        let more = [("steady".to_owned(), steady), ("t0".to_owned(), steady)].into();
        // What is hidden does not count, whatever its member has chosen.
        let mut shown = self.book.clone();
        for fact in self.hides.hidden() {
            if let Some(known) = shown.get_mut(fact) {
                known.answered = None;
            }
        }
        check_counts(self.server.as_ref().expect("it is up"), &shown, &more, COUNTED);
    }

    fn end(&mut self) {
        self.unchecked.append(&mut self.bulk);
        self.check(true);
        let server = self.server.take().expect("it is up");
        tally_ok(["verify", "--url", &server.url()]);
        let watch = Stopwatch::start();
        let (status, _) = server.stop();
        assert!(status.success() && watch.elapsed() < Duration::from_secs(10), "{status} after {:?}", watch.elapsed());
        tally_ok(["verify", "--data", &self.data().to_string_lossy()]);
        if let Some(wrong) = self.watched.wrong() {
            panic!("a reader: {wrong}");
        }
    }
}

fn ends_well(child: Child) {
    let output = child.wait_with_output().expect("a child of ours");
    assert!(output.status.success(), "the import ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}
