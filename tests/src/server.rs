//! The real binary, started, asked, stopped and killed as an operator would.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;
use store::clock::Stopwatch;

/// How long a server may take to become ready, and to stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(20);

/// The binary under test: what `TEST_BINARY` names, or the release build below `target`.
pub fn binary() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/tally");
    let path = std::env::var_os("TEST_BINARY").map_or_else(built, PathBuf::from);
    assert!(path.is_file(), "{} is not there; build it first: cargo build --release -p tally", path.display());
    path
}

/// The binary with nothing on standard input, and no setting from the tester's own environment.
pub fn command() -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TALLY_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command of the binary to its end.
pub fn tally<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    command().args(args).output().expect("the binary starts")
}

/// The same, for commands that must succeed: standard output.
pub fn tally_ok<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    let output = tally(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A free port of loopback.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("loopback has free ports").to_string()
}

/// A running `tally serve`; killed when dropped.
pub struct Server {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Server {
    /// Starts a server on `data` and a free port of loopback, with further arguments; returns once
    /// it is ready. Its log goes to a file beside the data.
    pub fn start(data: &Path, args: &[&str]) -> Self {
        Self::start_logging(data, &data.with_extension("log"), args)
    }

    /// The same with its log somewhere else, as where the data have a disk of their own.
    pub fn start_logging(data: &Path, log: &Path, args: &[&str]) -> Self {
        for _ in 0..5 {
            // Another process may take the port between this and the start: then again.
            let mut server = Self::spawn_logging(data, log, &free_address(), args);
            if server.wait_until_ready() {
                return server;
            }
        }
        panic!("the server does not start:\n{}", std::fs::read_to_string(log).unwrap_or_default());
    }

    /// The same at an address that clients know already, as after a crash.
    pub fn start_at(data: &Path, address: &str, args: &[&str]) -> Self {
        let watch = Stopwatch::start();
        loop {
            let mut server = Self::spawn(data, address, args);
            if server.wait_until_ready() {
                return server;
            }
            // A connection of somebody else's may have been given the port: it ends soon.
            assert!(watch.elapsed() < PATIENCE, "the server does not start at {address}:\n{}", server.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts the process and waits for nothing.
    pub fn spawn(data: &Path, address: &str, args: &[&str]) -> Self {
        Self::spawn_logging(data, &data.with_extension("log"), address, args)
    }

    fn spawn_logging(data: &Path, log: &Path, address: &str, args: &[&str]) -> Self {
        let out = File::options().create(true).append(true).open(log).expect("a log beside the data");
        let child = command()
            .args(["serve", "--data"])
            .arg(data)
            .args(["--listen", address])
            .args(args)
            .stdout(out.try_clone().expect("a second handle of the log"))
            .stderr(out)
            .spawn()
            .expect("the binary starts");
        Self { child, address: address.to_owned(), log: log.to_path_buf() }
    }

    /// `true`: ready; `false`: it has ended.
    pub fn wait_until_ready(&mut self) -> bool {
        let watch = Stopwatch::start();
        while self.child.try_wait().expect("a child of ours").is_none() {
            if self.request("GET", "/readyz", None).is_ok_and(|(status, _)| status == 200) {
                return true;
            }
            assert!(watch.elapsed() < PATIENCE, "not ready after {PATIENCE:?}:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// `http://address:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `address:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it as a crash would (SIGKILL), and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }

    /// Asks it to stop (SIGTERM); its exit status and how long it took.
    pub fn stop(mut self) -> (ExitStatus, Duration) {
        let watch = Stopwatch::start();
        let sent = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().expect("kill is everywhere");
        assert!(sent.success());
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return (status, watch.elapsed());
            }
            assert!(watch.elapsed() < PATIENCE, "not stopped after {PATIENCE:?}:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// One request on a connection of its own: status and body (null where there is none, a string
    /// where it is not JSON).
    pub fn request(&self, method: &str, path: &str, body: Option<&str>) -> io::Result<(u16, Value)> {
        request(&self.address, method, path, body)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// One HTTP/1.1 request on a connection of its own.
pub fn request(address: &str, method: &str, path: &str, body: Option<&str>) -> io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let body = body.unwrap_or_default();
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{kind}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP answer: {answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(bad)?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(bad)?;
    let body = match body {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    Ok((status, body))
}
