//! Counts of a target that are in memory, over HTTP, beside a handler that only parses and answers.

use std::{path::Path, time::Duration};

use serde::Serialize;

use super::{
    Times,
    clients::{Ask, Plan, drive, histogram},
    config, handler,
    load::Load,
    median,
    world::{Listener, World},
};
use crate::{
    cli::{BenchArgs, BenchLoad, BenchWay},
    failure::Failure,
    output::{self, grouped},
};

/// The report.
#[derive(Debug, Serialize)]
pub struct Report {
    seconds: u64,
    clients: u32,
    /// A number for each round.
    reads_per_second: Vec<f64>,
    /// Of the handler, right after each.
    baseline_per_second: Vec<f64>,
    /// Median of the rounds' ratios.
    ratio: f64,
    failed: u64,
    answer: Times,
}

/// Runs it: the hot target has likes, and every client asks for its counts.
pub async fn run(args: &BenchArgs, dir: &Path) -> Result<Report, Failure> {
    let time = Duration::from_secs(args.seconds);
    let place = super::temporary_in(dir)?;
    let config = config(args, place.path())?;
    let load = Load::new(BenchLoad::Hot, args.seed);
    let world = World::start(&config, BenchWay::Http).await?;
    let bare = Listener::start(handler::router(config.kinds.clone()), &config).await?;
    world.closed_loop(&load, args.http_clients, Duration::from_millis(500)).await?;
    world.drain().await?;
    let (mut reads, mut baseline, mut times, mut failed) = (Vec::new(), Vec::new(), histogram(), 0);
    for _ in 0..args.rounds {
        let plan = || Plan { ask: Ask::Counts, clients: args.http_clients, time, rate: None, offers: None };
        let ours = drive(&world.door(), &load, plan(), || ()).await?;
        baseline.push(drive(&bare.door(), &load, plan(), || ()).await?.rate.round());
        reads.push(ours.rate.round());
        times.add(&ours.times).expect("the same bounds");
        failed += ours.failed;
    }
    bare.stop().await;
    world.stop().await;
    let report = Report {
        seconds: args.seconds,
        clients: args.http_clients,
        ratio: median(reads.iter().zip(&baseline).map(|(a, b): (&f64, &f64)| a / b.max(1.0))),
        reads_per_second: reads,
        baseline_per_second: baseline,
        failed,
        answer: Times::from(&times),
    };
    if !args.json {
        output::print(&format!(
            "cached counts over HTTP, {} clients: {}/s, {:.2} of the {}/s of a handler that only parses and answers; \
             p50 {:.2} ms, p99 {:.2} ms, {} failed\n",
            report.clients,
            grouped(median(report.reads_per_second.iter().copied()) as i64),
            report.ratio,
            grouped(median(report.baseline_per_second.iter().copied()) as i64),
            report.answer.p50_ms,
            report.answer.p99_ms,
            report.failed,
        ))?;
    }
    Ok(report)
}
