//! Throughput and answer times while the offered load rises from a tenth of the peak to above it.

use std::{path::Path, time::Duration};

use serde::Serialize;

use super::{Times, config, likes::load_name, load::Load, way_name, world::World};
use crate::{
    cli::{BenchArgs, BenchLoad, BenchWay},
    failure::Failure,
    output::{self, grouped},
};

/// Offered rates, in percent of the peak.
const STEPS: [u32; 11] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110];

/// One offered rate.
#[derive(Debug, Serialize)]
struct Step {
    percent: u32,
    offered_per_second: f64,
    likes_per_second: f64,
    failed: u64,
    /// From when the like was due.
    answer: Times,
    /// From answer to counted.
    freshness: Times,
}

/// One way in.
#[derive(Debug, Serialize)]
pub struct Curve {
    way: &'static str,
    load: &'static str,
    clients: u32,
    /// Likes per second of a closed loop before.
    peak_per_second: f64,
    steps: Vec<Step>,
}

/// The report.
#[derive(Debug, Serialize)]
pub struct Report {
    seconds: u64,
    curves: Vec<Curve>,
}

/// Runs it, under the Zipf load if none is named.
pub async fn run(args: &BenchArgs, dir: &Path) -> Result<Report, Failure> {
    let kind = args.load.unwrap_or(BenchLoad::Zipf);
    let mut curves = Vec::new();
    for way in super::ways(args) {
        curves.push(curve(args, dir, way, kind).await?);
    }
    Ok(Report { seconds: args.seconds, curves })
}

async fn curve(args: &BenchArgs, dir: &Path, way: BenchWay, kind: BenchLoad) -> Result<Curve, Failure> {
    let time = Duration::from_secs(args.seconds);
    let clients = match way {
        BenchWay::InProcess => args.clients,
        BenchWay::Http => args.http_clients,
    };
    let place = super::temporary_in(dir)?;
    let world = World::start(&config(args, place.path())?, way).await?;
    let load = Load::new(kind, args.seed);
    let peak = world.closed_loop(&load, clients, time).await?.driven.rate;
    let mut steps = Vec::new();
    if !args.json {
        let peak = grouped(peak as i64);
        output::print(&format!(
            "{}, {}, {clients} clients, peak {peak}/s\n  load  offered/s  likes/s   p50 ms   p99 ms  fresh p99 ms\n",
            way_name(way),
            load_name(kind)
        ))?;
    }
    for percent in STEPS {
        world.drain().await?;
        let offered = peak * f64::from(percent) / 100.0;
        let (round, freshness) = world.paced(&load, clients, time, offered).await?;
        let step = Step {
            percent,
            offered_per_second: offered.round(),
            likes_per_second: round.driven.rate.round(),
            failed: round.driven.failed,
            answer: Times::from(&round.driven.times),
            freshness: Times::from(&freshness),
        };
        if !args.json {
            output::print(&format!(
                "{:>5}% {:>10} {:>8} {:>8.2} {:>8.2} {:>13.2}\n",
                percent,
                grouped(step.offered_per_second as i64),
                grouped(step.likes_per_second as i64),
                step.answer.p50_ms,
                step.answer.p99_ms,
                step.freshness.p99_ms,
            ))?;
        }
        steps.push(step);
    }
    world.stop().await;
    Ok(Curve { way: way_name(way), load: load_name(kind), clients, peak_per_second: peak.round(), steps })
}
