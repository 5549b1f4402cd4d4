//! HTTP/1 on one listener, plain or in TLS: bounded connections, a time limit for handshakes and heads,
//! an orderly end.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::tls::Tls;

/// Pause after the system refused a connection (out of file descriptors).
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of the listener.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open connections; more wait in the system's queue.
    pub connections: usize,
    /// How long a connection may take for its handshake, and to send a request's head; idle ones are
    /// closed after it too.
    pub header_timeout: Duration,
    /// How long open requests may go on after `stop`.
    pub drain: Duration,
}

/// Serves until `stop`; then accepts nothing more, lets open requests finish for at most
/// [`Limits::drain`], and closes what is left.
pub async fn serve(listener: TcpListener, tls: Option<Tls>, router: Router, limits: Limits, stop: CancellationToken) {
    let service = TowerToHyperService::new(router);
    let places = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let (service, stop, cut) = (service.clone(), stop.clone(), cut.clone());
                let acceptor = tls.as_ref().map(Tls::acceptor);
                connections.spawn(async move {
                    let head = limits.header_timeout;
                    match acceptor {
                        None => connection(stream, service, head, stop, cut).await,
                        // A connection that ends before its handshake had asked for nothing.
                        Some(acceptor) => tokio::select! {
                            shaken = tokio::time::timeout(head, acceptor.accept(stream)) => match shaken {
                                Ok(Ok(stream)) => connection(stream, service, head, stop, cut).await,
                                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                                Err(_) => tracing::debug!("a TLS handshake took too long"),
                            },
                            () = cut.cancelled() => {}
                        },
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.drain, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "requests did not finish in time and are cut off");
        cut.cancel();
        connections.wait().await;
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.expect("this semaphore is never closed");
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, place))
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    service: TowerToHyperService<Router>,
    head: Duration,
    stop: CancellationToken,
    cut: CancellationToken,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(64 << 10);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = cut.cancelled() => return,
        }
    }
}
