//! A TCP proxy that swallows answers: the request arrives and is carried out, its answer never comes.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

/// Says by the connection's number whether its answer is swallowed.
type Rule = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// A proxy on a port of its own; ends when dropped.
pub struct Proxy {
    address: String,
    stop: Arc<AtomicBool>,
    cut: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on loopback and forwards to `upstream`; one request for each connection.
    ///
    /// # Panics
    /// Where loopback has no free port.
    pub fn start(upstream: &str, swallow: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let address = listener.local_addr().expect("it is bound").to_string();
        let (stop, cut, upstream) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), upstream.to_owned());
        let rule: Arc<Rule> = Arc::new(Box::new(swallow));
        let (stopped, counted) = (stop.clone(), cut.clone());
        let thread = std::thread::spawn(move || {
            for (number, client) in (0..).zip(listener.incoming()) {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (rule, counted, upstream) = (rule.clone(), counted.clone(), upstream.clone());
                std::thread::spawn(move || {
                    let swallow = rule(number);
                    // A client or a server that goes away early ends its connection, no other.
                    if client.and_then(|client| forward(client, &upstream, swallow)).is_ok() {
                        counted.fetch_add(u64::from(swallow), Ordering::SeqCst);
                    }
                });
            }
        });
        Self { address, stop, cut, thread: Some(thread) }
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Answers that the server gave and nobody got.
    pub fn swallowed(&self) -> u64 {
        self.cut.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        if TcpStream::connect(&self.address).is_ok()
            && let Some(thread) = self.thread.take()
        {
            drop(thread.join());
        }
    }
}

/// Carries one connection. Where the answer is swallowed it is read to its end all the same: the
/// server has done what it was asked.
fn forward(mut client: TcpStream, upstream: &str, swallow: bool) -> io::Result<()> {
    let mut server = TcpStream::connect(upstream)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let up = std::thread::spawn(move || io::copy(&mut from_client, &mut to_server));
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    if !swallow {
        client.write_all(&answer)?;
    }
    client.shutdown(Shutdown::Both)?;
    drop(up.join());
    if answer.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
