//! `tally bench`: rounds of Tally and of the bare engine in turn, so that their ratio means something
//! on a machine whose speed changes from minute to minute.

mod baseline;
mod load;
mod sizes;
mod world;

use std::{path::Path, time::Duration};

use hdrhistogram::Histogram;
use load::Load;
use serde::Serialize;
use world::World;

use crate::{
    cli::{BenchArgs, BenchLoad, BenchWay},
    config::Config,
    failure::{Failure, OK},
    output::{self, grouped},
};

/// Times in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
struct Times {
    samples: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl From<&Histogram<u64>> for Times {
    fn from(h: &Histogram<u64>) -> Self {
        let ms = |micros: u64| micros as f64 / 1000.0;
        Self {
            samples: h.len(),
            p50_ms: ms(h.value_at_quantile(0.5)),
            p99_ms: ms(h.value_at_quantile(0.99)),
            max_ms: ms(h.max()),
        }
    }
}

/// One way in under one load.
#[derive(Debug, Serialize)]
struct Figures {
    way: &'static str,
    load: &'static str,
    clients: u32,
    /// Durable likes per second, a number for each round.
    likes_per_second: Vec<f64>,
    /// The bare engine's, right after each.
    baseline_per_second: Vec<f64>,
    /// Median of the rounds' ratios.
    ratio: f64,
    /// Answers that were no `applied`.
    failed: u64,
    /// Time to answer at full load, all rounds.
    answer: Times,
    /// Mean likes of a micro-batch and of a durable commit, last round.
    micro_batch: usize,
    group: usize,
    /// Likes that waited to be counted when the last round ended.
    backlog: u64,
    /// At half of the last round's rate:
    half: Half,
}

#[derive(Debug, Serialize)]
struct Half {
    likes_per_second: f64,
    answer: Times,
    /// From answer to counted.
    freshness: Times,
}

#[derive(Debug, Serialize)]
struct Report {
    seconds: u64,
    rounds: u32,
    seed: u64,
    figures: Vec<Figures>,
}

/// Runs the command.
pub async fn run(args: BenchArgs) -> Result<u8, Failure> {
    let unusable = |e: std::io::Error| Failure::unreachable(format!("cannot make a directory for the data: {e}"));
    let temporary = match &args.dir {
        None => tempfile::tempdir(),
        Some(dir) => std::fs::create_dir_all(dir).and_then(|()| tempfile::tempdir_in(dir)),
    };
    let temporary = temporary.map_err(unusable)?;
    let ways = [BenchWay::InProcess, BenchWay::Http].into_iter().filter(|w| args.only.is_none_or(|o| o == *w));
    let mut report = Report { seconds: args.seconds, rounds: args.rounds, seed: args.seed, figures: Vec::new() };
    for way in ways {
        for load in [BenchLoad::Uniform, BenchLoad::Zipf, BenchLoad::Hot] {
            if args.load.is_none_or(|only| only == load) {
                let figures = measure(&args, temporary.path(), way, load).await?;
                if !args.json {
                    output::print(&describe(&figures, report.figures.is_empty()))?;
                }
                report.figures.push(figures);
            }
        }
    }
    if args.json {
        output::print_json(&report)?;
    }
    Ok(OK)
}

async fn measure(args: &BenchArgs, dir: &Path, way: BenchWay, kind: BenchLoad) -> Result<Figures, Failure> {
    let time = Duration::from_secs(args.seconds);
    let (way_name, clients) = match way {
        BenchWay::InProcess => ("in process", args.clients),
        BenchWay::Http => ("http", args.http_clients),
    };
    let load_name = match kind {
        BenchLoad::Uniform => "uniform",
        BenchLoad::Zipf => "zipf 1.1",
        BenchLoad::Hot => "hot",
    };
    let mut figures = Figures {
        way: way_name,
        load: load_name,
        clients,
        likes_per_second: Vec::new(),
        baseline_per_second: Vec::new(),
        ratio: 0.0,
        failed: 0,
        answer: Times::from(&world::histogram()),
        micro_batch: 0,
        group: 0,
        backlog: 0,
        half: Half {
            likes_per_second: 0.0,
            answer: Times::from(&world::histogram()),
            freshness: Times::from(&world::histogram()),
        },
    };
    let mut times = world::histogram();
    for round in 0..args.rounds {
        let unusable = |e: std::io::Error| Failure::unreachable(format!("cannot make a directory for the data: {e}"));
        let place = tempfile::tempdir_in(dir).map_err(unusable)?;
        let load = Load::new(kind, args.seed.wrapping_add(u64::from(round)));
        let world = World::start(&config(args, &place.path().join("tally"))?, way).await?;
        let done = world.closed_loop(&load, clients, time).await?;
        if round + 1 == args.rounds {
            world.drain().await?;
            let (half, freshness) = world.paced(&load, clients, time, done.rate / 2.0).await?;
            figures.half = Half {
                likes_per_second: half.rate.round(),
                answer: Times::from(&half.times),
                freshness: Times::from(&freshness),
            };
        }
        world.stop().await;
        let bare = tokio::task::spawn_blocking({
            let (place, load, sizes) = (place.path().join("bare"), Load::new(kind, args.seed), done.sizes);
            move || baseline::run(&place, &load, sizes, time)
        });
        let bare = bare.await.expect("a panic has ended the process before")?;
        times.add(&done.times).expect("the same bounds");
        figures.likes_per_second.push(done.rate.round());
        figures.baseline_per_second.push(bare.round());
        figures.failed += done.failed;
        (figures.micro_batch, figures.group, figures.backlog) = (done.sizes.micro_batch, done.sizes.group, done.backlog);
    }
    figures.answer = Times::from(&times);
    figures.ratio = median(figures.likes_per_second.iter().zip(&figures.baseline_per_second).map(|(a, b)| a / b.max(1.0)));
    Ok(figures)
}

/// The defaults and what `--set` says; no file and no environment, so that runs can be compared.
fn config(args: &BenchArgs, data: &Path) -> Result<Config, Failure> {
    let mut flags = crate::pairs(&args.set)?;
    flags.push(("data".to_owned(), data.display().to_string()));
    Config::from_flags(&flags)
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn describe(f: &Figures, first: bool) -> String {
    let number = |x: f64| grouped(x as i64);
    let all = |values: &[f64]| values.iter().map(|&v| number(v)).collect::<Vec<_>>().join(" ");
    let head = if first {
        "way        load      likes/s  baseline  ratio   p50 ms   p99 ms   max ms | at half: likes/s  fresh p50  p99 ms   max ms\n"
    } else {
        ""
    };
    format!(
        "{head}{:<10} {:<8} {:>8} {:>9} {:>6.2} {:>8.2} {:>8.2} {:>8.1} | {:>16} {:>10.2} {:>7.2} {:>8.1}\n\
         {:<20}rounds {} against {}; {} clients, {} likes a micro-batch, {} a commit, {} failed, {} to be counted at the end\n",
        f.way,
        f.load,
        number(median(f.likes_per_second.iter().copied())),
        number(median(f.baseline_per_second.iter().copied())),
        f.ratio,
        f.answer.p50_ms,
        f.answer.p99_ms,
        f.answer.max_ms,
        number(f.half.likes_per_second),
        f.half.freshness.p50_ms,
        f.half.freshness.p99_ms,
        f.half.freshness.max_ms,
        "",
        all(&f.likes_per_second),
        all(&f.baseline_per_second),
        f.clients,
        f.micro_batch,
        f.group,
        f.failed,
        grouped(f.backlog),
    )
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_one() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median([]).abs() < f64::EPSILON);
    }
}
