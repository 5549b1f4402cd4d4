//! Likes per second under three loads, each round beside its baseline: the bare engine in process, a
//! handler that only parses and answers over HTTP.

use std::{path::Path, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{
    Times, baseline,
    clients::{Ask, Plan, drive, histogram},
    config, handler,
    load::Load,
    median, processor,
    processor::Spent,
    sizes::Sizes,
    way_name,
    world::{Listener, World},
};
use crate::{
    cli::{BenchArgs, BenchLoad, BenchWay},
    failure::Failure,
    output::{self, grouped},
};

/// One way in under one load.
#[derive(Debug, Serialize)]
pub struct Figures {
    way: &'static str,
    load: &'static str,
    clients: u32,
    /// Durable likes per second, a number for each round.
    likes_per_second: Vec<f64>,
    baseline: &'static str,
    /// The baseline's, right after each.
    baseline_per_second: Vec<f64>,
    /// Median of the rounds' ratios.
    ratio: f64,
    /// Processor time of one like, clients and counting included, in microseconds; and of the baseline's.
    cpu_us: Option<f64>,
    baseline_cpu_us: Option<f64>,
    /// Answers that were no `applied`.
    failed: u64,
    /// Time to answer at full load, all rounds.
    answer: Times,
    /// 99th percentile of each round.
    p99_ms: Vec<f64>,
    /// Mean likes of a micro-batch and of a durable commit, last round.
    micro_batch: usize,
    group: usize,
    /// Likes that waited to be counted when the last round ended.
    backlog: u64,
    /// At half of the last round's rate.
    half: Option<Half>,
    #[serde(skip)]
    times: Histogram<u64>,
    #[serde(skip)]
    spent: [Spent; 2],
}

#[derive(Debug, Serialize)]
struct Half {
    likes_per_second: f64,
    answer: Times,
    /// From answer to counted.
    freshness: Times,
}

/// What the hot load costs beside the uniform one: medians of the rounds' ratios.
#[derive(Debug, Serialize)]
pub struct Hot {
    way: &'static str,
    rate: f64,
    p99: f64,
}

/// The report.
#[derive(Debug, Serialize)]
pub struct Report {
    seconds: u64,
    rounds: u32,
    seed: u64,
    figures: Vec<Figures>,
    hot_to_uniform: Vec<Hot>,
}

pub fn load_name(load: BenchLoad) -> &'static str {
    match load {
        BenchLoad::Uniform => "uniform",
        BenchLoad::Zipf => "zipf",
        BenchLoad::Hot => "hot",
    }
}

/// Runs it.
pub async fn run(args: &BenchArgs, dir: &Path) -> Result<Report, Failure> {
    let mut figures: Vec<Figures> = Vec::new();
    let loads = [BenchLoad::Uniform, BenchLoad::Zipf, BenchLoad::Hot];
    let loads: Vec<BenchLoad> = loads.into_iter().filter(|l| args.load.is_none_or(|only| only == *l)).collect();
    for round in 0..args.rounds {
        for (i, way) in super::ways(args).into_iter().enumerate() {
            for (j, &load) in loads.iter().enumerate() {
                let at = i * loads.len() + j;
                if round == 0 {
                    figures.push(Figures::empty(args, way, load));
                }
                figures[at].round(args, dir, way, load, round).await?;
                if round + 1 == args.rounds && !args.json {
                    output::print(&figures[at].describe(at == 0))?;
                }
            }
        }
    }
    let hot_to_uniform = super::ways(args).into_iter().filter_map(|way| hot(&figures, way)).collect();
    let report = Report { seconds: args.seconds, rounds: args.rounds, seed: args.seed, figures, hot_to_uniform };
    if !args.json {
        for hot in &report.hot_to_uniform {
            output::print(&format!(
                "{}: the hot load has {:.2} of the uniform rate, and {:.2} times its p99\n",
                hot.way, hot.rate, hot.p99
            ))?;
        }
    }
    Ok(report)
}

fn hot(figures: &[Figures], way: BenchWay) -> Option<Hot> {
    let find = |load| figures.iter().find(|f| f.way == way_name(way) && f.load == load_name(load));
    let (uniform, hot) = (find(BenchLoad::Uniform)?, find(BenchLoad::Hot)?);
    let ratio = |hot: &[f64], uniform: &[f64]| median(hot.iter().zip(uniform).map(|(h, u)| h / u.max(f64::MIN_POSITIVE)));
    Some(Hot {
        way: way_name(way),
        rate: ratio(&hot.likes_per_second, &uniform.likes_per_second),
        p99: ratio(&hot.p99_ms, &uniform.p99_ms),
    })
}

impl Figures {
    fn empty(args: &BenchArgs, way: BenchWay, load: BenchLoad) -> Self {
        let (clients, baseline) = match way {
            BenchWay::InProcess => (args.clients, "bare engine"),
            BenchWay::Http => (args.http_clients, "handler that only parses and answers"),
        };
        Self {
            way: way_name(way),
            load: load_name(load),
            clients,
            likes_per_second: Vec::new(),
            baseline,
            baseline_per_second: Vec::new(),
            ratio: 0.0,
            cpu_us: None,
            baseline_cpu_us: None,
            failed: 0,
            answer: Times::from(&histogram()),
            p99_ms: Vec::new(),
            micro_batch: 0,
            group: 0,
            backlog: 0,
            half: None,
            times: histogram(),
            spent: Default::default(),
        }
    }

    async fn round(&mut self, args: &BenchArgs, dir: &Path, way: BenchWay, kind: BenchLoad, round: u32) -> Result<(), Failure> {
        let time = Duration::from_secs(args.seconds);
        let place = super::temporary_in(dir)?;
        let load = Load::new(kind, args.seed.wrapping_add(u64::from(round)));
        let config = config(args, &place.path().join("tally"))?;
        let world = World::start(&config, way).await?;
        let before = processor::used();
        let done = world.closed_loop(&load, self.clients, time).await?;
        self.spent[0].add(before, done.driven.rate * time.as_secs_f64());
        if round + 1 == args.rounds && !args.peak_only {
            world.drain().await?;
            let (half, freshness) = world.paced(&load, self.clients, time, done.driven.rate / 2.0).await?;
            self.half = Some(Half {
                likes_per_second: half.driven.rate.round(),
                answer: Times::from(&half.driven.times),
                freshness: Times::from(&freshness),
            });
        }
        world.stop().await;
        let load = Load::new(kind, args.seed.wrapping_add(u64::from(round)));
        let before = processor::used();
        let baseline = match way {
            BenchWay::InProcess => bare(&place.path().join("bare"), load, done.sizes, time).await?,
            BenchWay::Http => {
                let listener = Listener::start(handler::router(config.kinds.clone()), &config).await?;
                let plan = Plan { ask: Ask::Like, clients: self.clients, time, rate: None, offers: None };
                let driven = drive(&listener.door(), &load, plan, || ()).await?;
                listener.stop().await;
                driven.rate
            }
        };
        self.spent[1].add(before, baseline * time.as_secs_f64());
        (self.cpu_us, self.baseline_cpu_us) = (self.spent[0].each(), self.spent[1].each());
        self.times.add(&done.driven.times).expect("the same bounds");
        self.answer = Times::from(&self.times);
        self.p99_ms.push(Times::from(&done.driven.times).p99_ms);
        self.likes_per_second.push(done.driven.rate.round());
        self.baseline_per_second.push(baseline.round());
        self.failed += done.driven.failed;
        (self.micro_batch, self.group, self.backlog) = (done.sizes.micro_batch, done.sizes.group, done.backlog);
        self.ratio = median(self.likes_per_second.iter().zip(&self.baseline_per_second).map(|(a, b)| a / b.max(1.0)));
        Ok(())
    }

    fn describe(&self, first: bool) -> String {
        let number = |x: f64| grouped(x as i64);
        let cpu = |micros: Option<f64>| micros.map_or_else(|| "?".to_owned(), |us| format!("{us:.1}"));
        let all = |values: &[f64]| values.iter().map(|&v| number(v)).collect::<Vec<_>>().join(" ");
        let head = if first { "way        load      likes/s  baseline  ratio   p50 ms   p99 ms   max ms\n" } else { "" };
        let mut text = format!(
            "{head}{:<10} {:<8} {:>8} {:>9} {:>6.2} {:>8.2} {:>8.2} {:>8.1}\n\
             {:<11}rounds {} against {} of the {}; processor time of a like {} against {} µs\n\
             {:<11}{} clients, {} likes a micro-batch, {} a commit, {} failed, {} to be counted\n",
            self.way,
            self.load,
            number(median(self.likes_per_second.iter().copied())),
            number(median(self.baseline_per_second.iter().copied())),
            self.ratio,
            self.answer.p50_ms,
            self.answer.p99_ms,
            self.answer.max_ms,
            "",
            all(&self.likes_per_second),
            all(&self.baseline_per_second),
            self.baseline,
            cpu(self.cpu_us),
            cpu(self.baseline_cpu_us),
            "",
            self.clients,
            self.micro_batch,
            self.group,
            self.failed,
            grouped(self.backlog),
        );
        if let Some(half) = &self.half {
            text += &format!(
                "{:<11}at {} likes/s: answered in {:.2} ms (p99 {:.2}), counted {:.2} ms after the answer (p99 {:.2}, max {:.1})\n",
                "",
                number(half.likes_per_second),
                half.answer.p50_ms,
                half.answer.p99_ms,
                half.freshness.p50_ms,
                half.freshness.p99_ms,
                half.freshness.max_ms,
            );
        }
        text
    }
}

async fn bare(dir: &Path, load: Load, sizes: Sizes, time: Duration) -> Result<f64, Failure> {
    let dir = dir.to_owned();
    let bare = tokio::task::spawn_blocking(move || baseline::run(&dir, &load, sizes, time));
    bare.await.expect("a panic has ended the process before")
}
