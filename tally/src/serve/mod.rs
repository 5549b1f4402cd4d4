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
mod tls;
mod writer;

use std::time::Duration;

pub use control::Controls;
use ingest::http::Api;
pub use jobs::{JobState, JobView, ProgressView};
pub use listen::Limits;
pub use node::{Node, Opening};
pub use ops::{ACCESS, OpsApi, OrderBody, RunView, TopEntry, order};
pub use parts::{Parts, ingest_settings, rebuilder_settings};
use prometheus::Registry;
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
    if !config.listen.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "`listen` is {}: without configured keys anybody who reaches the port may write, so only loopback is allowed \
             (127.0.0.1 or [::1]); put a proxy that checks callers in front",
            config.listen
        )));
    }
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
    let tls = Tls::load(config.tls_cert.as_deref(), config.tls_key.as_deref())?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    output::print(&format!("listening on {scheme}://{address}\n"))?;
    tracing::info!(%address, data = %config.data.display(), "listening; loopback only, because no keys are configured");
    let limits =
        Limits { connections: config.max_connections, header_timeout: config.header_timeout, drain: config.drain_timeout };
    let registry = Registry::new();
    let api = Api::new(registry.clone(), ingest_settings(config)).expect("metric names are constants that differ");
    let ops = OpsApi::default();
    let api = api.access(ACCESS);
    let router = ingest::http::router(api.clone(), ops.router()).merge(openapi::router());
    let closing = CancellationToken::new();
    if let Some(tls) = tls.clone() {
        tokio::spawn(tls.follow(closing.clone()));
    }
    let listening = tokio::spawn(listen::serve(listener, tls, router, limits, closing.clone()));
    let opened = tokio::select! {
        opened = Node::open(config, Opening::Serve) => opened?,
        () = stop.cancelled() => return Ok(()),
    };
    let parts = Parts::start(config, opened, &registry).await?;
    ops.open(parts.ops());
    api.open(parts.ingest().clone());
    tracing::info!("ready");
    stop.cancelled().await;
    tracing::info!("stopping: no new connections, finishing what is open");
    closing.cancel();
    listening.await.expect("a panic has ended the process before");
    parts.stop(CLOSE).await;
    tracing::info!("stopped");
    Ok(())
}

/// Also for the routes that are merged here.
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
