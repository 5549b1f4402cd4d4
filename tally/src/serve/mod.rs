//! `tally serve`: everything in one process, on one data directory.

mod control;
mod jobs;
pub mod listen;
mod metrics;
mod node;
mod openapi;
mod ops;
mod parts;
mod record;
mod reload;
mod tls;
mod writer;

use std::{sync::Arc, time::Duration};

pub use control::Controls;
use ingest::http::{Api, Authority};
pub use jobs::{JobState, JobView, ProgressView};
pub use listen::Limits;
pub use node::{Node, Opening};
pub use ops::{ACCESS, OpsApi, OrderBody, RunView, TopEntry, order};
pub use parts::{Parts, ingest_settings, rebuilder_settings};
use prometheus::Registry;
use reload::{ReloadMetrics, Reloaded, Watched};
use store::clock::SystemClock;
pub use tls::Tls;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::ServeArgs,
    config::{self, Config},
    failure::{Failure, OK},
    keys::KeyRing,
    logging, output,
};

/// How long the store may take to write out what it holds at the end.
const CLOSE: Duration = Duration::from_secs(2);

/// Runs the command until SIGTERM or Ctrl-C.
pub async fn run(args: ServeArgs) -> Result<u8, Failure> {
    if args.settings {
        output::print(&config::describe())?;
        return Ok(OK);
    }
    let flag = |name: &str, value: Option<String>| value.map(|v| (name.to_owned(), v));
    let flags = [flag("data", args.data), flag("listen", args.listen), flag("log_format", args.log_format)];
    let config = crate::load_config(&args.config, &flags.into_iter().flatten().collect::<Vec<_>>())?;
    may_listen(&config)?;
    logging::start(&config)?;
    let stop = CancellationToken::new();
    watch_signals(stop.clone())?;
    serve(&config, stop).await?;
    Ok(OK)
}

async fn serve(config: &Config, stop: CancellationToken) -> Result<(), Failure> {
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|e| Failure::unreachable(format!("cannot listen on {}: {e}; choose another --listen", config.listen)))?;
    let address = listener.local_addr().map_err(|e| Failure::unreachable(format!("the listener has no address: {e}")))?;
    let registry = Registry::new();
    let reloads = ReloadMetrics::register(&registry).expect("metric names are constants that differ");
    // Before anything is bound to them: a signal would end a process that does not expect it.
    let hangup = reload::hangup()?;
    let mut watched = Vec::new();
    let tls = Tls::load(config.tls_cert.as_deref(), config.tls_key.as_deref())?;
    if let (Some(tls), Some(certificate), Some(key)) = (tls.clone(), &config.tls_cert, &config.tls_key) {
        let read = move || tls.reload().map(|(before, now)| Reloaded::certificate(&before, &now));
        watched.push(Watched::new("tls", vec![certificate.clone(), key.clone()], read));
    }
    let authority = keys(config, &mut watched)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    output::print(&format!("listening on {scheme}://{address}\n"))?;
    tracing::info!(%address, data = %config.data.display(), keys = authority.is_some(), "listening");
    if authority.is_none() {
        tracing::info!("loopback only, because no keys are configured: everybody who reaches it may do everything");
    }
    let limits =
        Limits { connections: config.max_connections, header_timeout: config.header_timeout, drain: config.drain_timeout };
    let api = Api::new(registry.clone(), ingest_settings(config)).expect("metric names are constants that differ");
    let ops = OpsApi::default();
    let mut api = api.access(ACCESS);
    if let Some(authority) = authority {
        api = api.authority(authority, config.open_metrics);
    }
    let router = ingest::http::router(api.clone(), ops.router()).merge(openapi::router());
    let closing = CancellationToken::new();
    let (changes, changed) = reload::changes();
    tokio::spawn(reload::watch(watched, hangup, reloads, changes, closing.clone()));
    let listening = tokio::spawn(listen::serve(listener, tls, router, limits, closing.clone()));
    let opened = tokio::select! {
        opened = Node::open(config, Opening::Serve) => opened?,
        () = stop.cancelled() => return Ok(()),
    };
    let parts = Parts::start(config, opened, &registry).await?;
    ops.open(parts.ops());
    api.open(parts.ingest().clone());
    let recording = tokio::spawn(reload::record(parts.operator().clone(), changed));
    tracing::info!("ready");
    stop.cancelled().await;
    tracing::info!("stopping: no new connections, finishing what is open");
    closing.cancel();
    listening.await.expect("a panic has ended the process before");
    // What it waits for is in the log, too; a store that is away must not hold up the end.
    if tokio::time::timeout(CLOSE, recording).await.is_err() {
        tracing::warn!("the audit log may lack a change of keys or certificates");
    }
    parts.stop(CLOSE).await;
    tracing::info!("stopped");
    Ok(())
}

/// Without keys anybody who reaches the port may do everything, and without TLS anybody on the way reads the keys.
fn may_listen(config: &Config) -> Result<(), Failure> {
    if config.listen.ip().is_loopback() {
        return Ok(());
    }
    if config.keys.is_none() {
        return Err(Failure::usage(format!(
            "`listen` is {}: without configured keys anybody who reaches the port may write, so only loopback is allowed \
             (127.0.0.1 or [::1]); make keys with `tally key new` and set `keys`",
            config.listen
        )));
    }
    if config.tls_cert.is_none() && !config.insecure_http {
        return Err(Failure::usage(format!(
            "`listen` is {}: without TLS anybody on the way reads the keys; set `tls_cert` and `tls_key`, or `insecure_http = true` \
             where a proxy in front speaks TLS",
            config.listen
        )));
    }
    Ok(())
}

/// The keys of callers, where some are configured; the file is watched.
fn keys(config: &Config, watched: &mut Vec<Watched>) -> Result<Option<Arc<dyn Authority>>, Failure> {
    let Some(path) = &config.keys else { return Ok(None) };
    let ring = Arc::new(KeyRing::open(path, Arc::new(SystemClock::starting_at(0))).map_err(Failure::usage)?);
    let again = ring.clone();
    let read = move || again.reload().map(|changes| Reloaded::keys(&changes));
    watched.push(Watched::new("keys", vec![path.clone()], read));
    Ok(Some(ring))
}

fn watch_signals(stop: CancellationToken) -> Result<(), Failure> {
    let on = |kind| signal(kind).map_err(|e| Failure::unreachable(format!("cannot watch for signals: {e}")));
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}
