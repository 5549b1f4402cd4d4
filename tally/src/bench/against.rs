//! Likes for a server that runs elsewhere.

use std::{net::SocketAddr, time::Duration};

use hyper::Uri;
use serde::Serialize;

use super::{
    Times,
    clients::{Ask, Door, Plan, drive},
    likes::load_name,
    load::Load,
};
use crate::{
    cli::{BenchArgs, BenchLoad},
    failure::Failure,
    output::{self, grouped},
};

/// The report.
#[derive(Debug, Serialize)]
pub struct Report {
    load: &'static str,
    clients: u32,
    /// Likes that were answered 2xx, each by another user, in namespace `bench`.
    likes: u64,
    likes_per_second: f64,
    failed: u64,
    answer: Times,
}

/// Runs it, under the hot load if none is named.
pub async fn run(args: &BenchArgs, url: &str) -> Result<Report, Failure> {
    let address = address(url).await?;
    let kind = args.load.unwrap_or(BenchLoad::Hot);
    let (load, time) = (Load::new(kind, args.seed), Duration::from_secs(args.seconds));
    let plan = Plan { ask: Ask::Like, clients: args.http_clients, time, rate: None, offers: None };
    let driven = drive(&Door::Http(address), &load, plan, || ()).await?;
    let report = Report {
        load: load_name(kind),
        clients: args.http_clients,
        likes: driven.good,
        likes_per_second: driven.rate.round(),
        failed: driven.failed,
        answer: Times::from(&driven.times),
    };
    if !args.json {
        output::print(&format!(
            "{} likes, {}/s, p50 {:.2} ms, p99 {:.2} ms, {} failed\n",
            grouped(report.likes),
            grouped(report.likes_per_second as i64),
            report.answer.p50_ms,
            report.answer.p99_ms,
            report.failed
        ))?;
    }
    Ok(report)
}

/// `http://host:port`, and nothing more.
async fn address(url: &str) -> Result<SocketAddr, Failure> {
    let odd = || Failure::usage(format!("`{url}` is no address of a server: write it as http://127.0.0.1:8080"));
    let uri: Uri = url.parse().map_err(|_| odd())?;
    if uri.scheme_str() != Some("http") || !matches!(uri.path(), "" | "/") {
        return Err(odd());
    }
    let host = uri.host().ok_or_else(odd)?.trim_matches(['[', ']']);
    let found = tokio::net::lookup_host((host, uri.port_u16().unwrap_or(80))).await;
    let mut found = found.map_err(|e| Failure::unreachable(format!("cannot resolve {host}: {e}")))?;
    found.next().ok_or_else(|| Failure::unreachable(format!("{host} has no address")))
}

#[cfg(test)]
mod tests {
    use super::address;

    #[tokio::test]
    async fn an_address_is_a_host_and_a_port_and_nothing_more() {
        assert_eq!(address("http://127.0.0.1:8080").await.unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(address("http://[::1]:9000/").await.unwrap().to_string(), "[::1]:9000");
        for odd in ["127.0.0.1:8080", "https://127.0.0.1:8080", "http://127.0.0.1:8080/v1", "http://"] {
            assert!(address(odd).await.is_err(), "{odd}");
        }
    }
}
