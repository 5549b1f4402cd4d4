//! The real server, asked over HTTP; afterwards its directory is opened here, and the oracles look at
//! the rows themselves.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use serde_json::Value;
use store::{
    Protocol, Settings,
    clock::{Stopwatch, SystemClock},
    embedded::{Embedded, EmbeddedSettings},
    engine::JournalTable,
};

use super::{
    NAMESPACE,
    book::Book,
    oracles::{self, Facts},
};
use crate::server::{Server, request};

/// How long counts may take to be what the answers say.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rows of a small target, and leaves of a large one, of the servers here.
const SMALL: usize = 8;
const LEVEL: u8 = 2;

/// A server on a directory of its own.
pub struct Served {
    server: Option<Server>,
    dir: tempfile::TempDir,
    args: Vec<String>,
}

impl Default for Served {
    fn default() -> Self {
        Self::start(&[])
    }
}

impl Served {
    /// Starts a server with short slots and early promotion, and further arguments.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a place for data");
        let (small, level) = (format!("small_limit={SMALL}"), format!("level={LEVEL}"));
        let mut all = vec!["--set", "slot=200ms", "--set", "sweep_delay=400ms", "--set", "log=warn"];
        all.extend(["--set", &small, "--set", &level]);
        all.extend(args);
        let server = Server::start(&dir.path().join("data"), &all);
        Self { server: Some(server), dir, args: all.into_iter().map(str::to_owned).collect() }
    }

    /// The server itself.
    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs until the end")
    }

    /// Stops the server as an operator does and starts it on the same directory; how long the stop took.
    ///
    /// # Panics
    /// Where it fails.
    pub fn restart(&mut self) -> Duration {
        let (status, took) = self.server.take().expect("it runs until the end").stop();
        assert!(status.success(), "{status}");
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        self.server = Some(Server::start(&self.dir.path().join("data"), &args));
        took
    }

    /// `address:port`.
    pub fn address(&self) -> &str {
        self.server().address()
    }

    /// One request: status and body.
    ///
    /// # Panics
    /// Where there is no answer.
    pub fn ask(&self, method: &str, path: &str, body: Option<&str>) -> (u16, Value) {
        ask(self.address(), method, path, body)
    }

    /// A request that must be answered 200.
    pub fn ok(&self, method: &str, path: &str) -> Value {
        let (status, answer) = self.ask(method, path, None);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// Waits until the total that the server tells is `due`.
    ///
    /// # Panics
    /// Where it is not in time.
    pub fn counted(&self, target: &str, kind: &str, due: i64) {
        let watch = Stopwatch::start();
        loop {
            let told = self.ok("GET", &format!("{}?kinds={kind}", target_path(target)));
            if told["kinds"][kind]["total"] == due {
                return;
            }
            assert!(watch.elapsed() < PATIENCE, "{target} should have {due} of {kind}, shown is {told}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Members of a list, all pages of it.
    pub fn listed(&self, target: &str, kind: &str) -> Vec<String> {
        let mut members = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.ok("GET", &format!("{}/{kind}?limit=7{cursor}", target_path(target)));
            let found = page["members"].as_array().expect("a list").iter();
            members.extend(found.map(|m| m["member"].as_str().expect("an id").to_owned()));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return members,
            }
        }
    }

    /// Stops the server, opens its directory, counts what is journalled, and checks the oracles.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn rest(mut self, dead_letters: usize) -> Facts {
        let (status, _) = self.server.take().expect("it runs until the end").stop();
        assert!(status.success(), "{status}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let data = self.dir.path().join("data");
        runtime.block_on(async move {
            let engine = Arc::new(Embedded::open(data, &EmbeddedSettings::default()).expect("the directory is free"));
            let slot = Duration::from_millis(200);
            let settings = Settings { small_limit: SMALL, level: LEVEL, slot, ..Settings::default() };
            let protocol = Protocol::new(engine.clone(), Arc::new(SystemClock::default()), settings);
            for lane in engine.lanes().await.expect("lanes") {
                protocol.retire(lane.lane).await.expect("a sweep");
            }
            oracles::check(&protocol, &Book::default(), dead_letters).await
        })
    }
}

/// One request: status and body.
///
/// # Panics
/// Where there is no answer.
pub fn ask(address: &str, method: &str, path: &str, body: Option<&str>) -> (u16, Value) {
    request(address, method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// `n` requests at the same moment, by `n` clients; the answers in their order.
///
/// # Panics
/// Where one of them does.
pub fn at_once<T: Send>(n: usize, ask: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let together = Barrier::new(n);
    thread::scope(|scope| {
        let (ask, together) = (&ask, &together);
        let clients = (0..n).map(|i| {
            scope.spawn(move || {
                together.wait();
                ask(i)
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().expect("a client's request")).collect()
    })
}

/// Path of a target.
pub fn target_path(target: &str) -> String {
    format!("/v1/{NAMESPACE}/targets/{target}")
}

/// Path of somebody's like.
pub fn like_path(target: &str, who: &str) -> String {
    format!("{}/like/{who}", target_path(target))
}
