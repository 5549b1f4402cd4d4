//! Rebuild against the bare engine: how long `verify` takes for a store, and how long the engine alone
//! needs to read the same rows, in turn; and how writes fare beside a throttled rebuild.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fjall::{Database, KeyspaceCreateOptions};
use ingest::Ingest;
use rebuilder::{Order, Progress, Rebuilder, RebuilderSettings, Scope};
use schema::{FactKey, KindName, Member, Namespace, Register, TargetKey};
use serde::Serialize;
use store::{clock::Stopwatch, protocol::WriteRequest};

use super::{Times, clients::histogram, config, load::Load, median, world::World};
use crate::{
    cli::{BenchArgs, BenchLoad, BenchWay},
    failure::Failure,
    output::{self, grouped},
    serve::{Node, Opening, rebuilder_settings},
};

/// Members of a large target.
const LARGE: u64 = 5000;
/// Members of a small one.
const SMALL: u64 = 10;
/// Likes that are under way at once while the store is filled.
const FILLERS: u64 = 256;
/// Rows per second of the throttled rebuild, unless `--set rebuild_rate` says otherwise.
const RATE: u64 = 20_000;
/// Likes per second beside it.
const WRITES: f64 = 1000.0;

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    facts: u64,
    index_rows: u64,
    /// Rows that the bare engine reads: facts, ledger, counters, index.
    rows: u64,
    /// Seconds of each round.
    bare_seconds: Vec<f64>,
    verify_seconds: Vec<f64>,
    /// Median of bare / verify.
    ratio: f64,
    facts_per_second: f64,
    likes_per_second: f64,
    rebuild_rate: u64,
    alone: Times,
    beside: Times,
    /// Median over the rounds of p99 beside a rebuild / p99 without.
    p99_ratio: f64,
}

/// Runs the command.
pub async fn run(args: &BenchArgs, dir: &Path) -> Result<Figures, Failure> {
    let data = dir.join("rebuild");
    fill(args, &data).await?;
    let mut figures = compare(args, &data).await?;
    beside(args, &data, &mut figures).await?;
    if !args.json {
        output::print(&describe(&figures))?;
    }
    Ok(figures)
}

/// Half of the likes go to small targets, half to large ones; users like about three things each.
fn like(n: u64, likes: u64) -> FactKey {
    let namespace = Namespace::parse("bench").expect("a valid namespace");
    let target = match n % 2 {
        0 => format!("large-{:06}", (n / 2) % (likes / 2 / LARGE).max(1)),
        _ => format!("small-{:09}", n / 2 / SMALL),
    };
    FactKey {
        target: TargetKey::new(&namespace, &target).expect("made of letters and digits"),
        kind: KindName::parse("like").expect("a valid kind"),
        member: Member::parse(&format!("user-{:09}", n % (likes / 3 + 1))).expect("made of letters and digits"),
    }
}

async fn fill(args: &BenchArgs, data: &Path) -> Result<(), Failure> {
    let world = World::start(&config(args, data)?, BenchWay::InProcess).await?;
    let next = Arc::new(AtomicU64::new(0));
    let mut fillers: tokio::task::JoinSet<Result<(), Failure>> = tokio::task::JoinSet::new();
    for _ in 0..FILLERS {
        let (ingest, next, likes): (Ingest, _, _) = (world.ingest().clone(), next.clone(), args.facts);
        fillers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= likes {
                    return Ok(());
                }
                let request = WriteRequest { key: like(n, likes), register: Register::Choice, value: 1, at: None };
                ingest.write(request).await.map_err(|e| Failure::unreachable(format!("a like was refused: {e:?}")))?;
            }
        });
    }
    while let Some(done) = fillers.join_next().await {
        done.expect("a panic has ended the process before")?;
    }
    world.drain().await?;
    world.stop().await;
    Ok(())
}

/// Bare scans and `verify` in turn, each on a freshly opened store.
async fn compare(args: &BenchArgs, data: &Path) -> Result<Figures, Failure> {
    let config = config(args, data)?;
    let failed = |e: store::StoreError| Failure::unreachable(e.to_string());
    let (mut bare_seconds, mut verify_seconds) = (Vec::new(), Vec::new());
    let (mut rows, mut last) = (0, rebuilder::Report::default());
    for _ in 0..args.rounds {
        let path = data.join("rows");
        let bare = tokio::task::spawn_blocking(move || scan(&path)).await;
        let (found, seconds) = bare.expect("a panic has ended the process before")?;
        rows = found;
        bare_seconds.push(seconds);
        let node = Node::open(&config, Opening::Check).await?;
        node.take_over().await.map_err(failed)?;
        let rebuilder = Rebuilder::new(node.protocol.clone(), rebuilder_settings(&config));
        let watch = Stopwatch::start();
        // In a task of its own: as the server runs it.
        let run = tokio::spawn(async move { rebuilder.verify(Scope::All, &Progress::default()).await });
        last = run.await.expect("a panic has ended the process before").map_err(failed)?;
        verify_seconds.push(watch.elapsed().as_secs_f64());
        node.engine.close().await.map_err(failed)?;
        if !last.clean() {
            return Err(Failure::negative(format!("the store is not clean: {} differences", last.drifted)));
        }
    }
    let ratios = bare_seconds.iter().zip(&verify_seconds).map(|(bare, verify)| bare / verify);
    Ok(Figures {
        facts: last.facts,
        index_rows: last.index_rows,
        rows,
        ratio: median(ratios),
        facts_per_second: last.facts as f64 / median(verify_seconds.iter().copied()),
        bare_seconds,
        verify_seconds,
        likes_per_second: WRITES,
        rebuild_rate: 0,
        alone: Times::from(&histogram()),
        beside: Times::from(&histogram()),
        p99_ratio: 0.0,
    })
}

/// Rows of the tables that a rebuild reads, and the seconds it takes to walk over them in one thread.
fn scan(path: &Path) -> Result<(u64, f64), Failure> {
    let failed = |e: fjall::Error| Failure::unreachable(format!("the baseline's store: {e}"));
    let db = Database::builder(path).cache_size(128 << 20).worker_threads(2).open().map_err(failed)?;
    let tables = ["facts", "ledger", "counters", "by_user"];
    let tables = tables.map(|name| db.keyspace(name, KeyspaceCreateOptions::default));
    let watch = Stopwatch::start();
    let mut rows = 0;
    for table in tables {
        for row in table.map_err(failed)?.iter() {
            std::hint::black_box(row.into_inner().map_err(failed)?);
            rows += 1;
        }
    }
    Ok((rows, watch.elapsed().as_secs_f64()))
}

/// Likes at a fixed rate, without and with a throttled rebuild beside them, in turn.
async fn beside(args: &BenchArgs, data: &Path, figures: &mut Figures) -> Result<(), Failure> {
    let config = config(args, data)?;
    figures.rebuild_rate = if config.rebuild_rate == 0 { RATE } else { u64::from(config.rebuild_rate) };
    let world = World::start(&config, BenchWay::InProcess).await?;
    let settings = RebuilderSettings { rate: figures.rebuild_rate, ..rebuilder_settings(&config) };
    let rebuilder = Rebuilder::new(world.protocol().clone(), settings);
    let time = Duration::from_secs(args.seconds);
    let load = Load::new(BenchLoad::Zipf, args.seed);
    let (mut alone, mut beside, mut ratios) = (histogram(), histogram(), Vec::new());
    for _ in 0..args.rounds {
        let without = world.paced(&load, args.clients, time, WRITES).await?.0.driven.times;
        let rebuilder = rebuilder.clone();
        let running = tokio::spawn(async move {
            loop {
                // The dry run reads what the other reads, and the rounds stay comparable.
                let order = Order { dry_run: true, ..Order::rebuild(Scope::All) };
                if let Err(error) = rebuilder.run(&order, &Progress::default()).await {
                    return error;
                }
            }
        });
        let with = world.paced(&load, args.clients, time, WRITES).await?.0.driven.times;
        running.abort();
        if let Ok(error) = running.await {
            return Err(Failure::unreachable(format!("the rebuild failed: {error}")));
        }
        ratios.push(with.value_at_quantile(0.99) as f64 / without.value_at_quantile(0.99).max(1) as f64);
        alone.add(&without).expect("the same bounds");
        beside.add(&with).expect("the same bounds");
    }
    world.stop().await;
    figures.likes_per_second = WRITES;
    (figures.alone, figures.beside, figures.p99_ratio) = (Times::from(&alone), Times::from(&beside), median(ratios));
    Ok(())
}

fn describe(f: &Figures) -> String {
    let all = |values: &[f64]| values.iter().map(|v| format!("{v:.2}")).collect::<Vec<_>>().join(" ");
    format!(
        "rebuild    {} facts, {} rows; bare engine {} s, verify {} s: ratio {:.2}, {} facts/s\n\
         beside     {} likes/s with a rebuild at {} rows/s: p50 {:.2} ms, p99 {:.2} ms; without: p50 {:.2} ms, p99 {:.2} ms; p99 ratio {:.2}\n",
        grouped(f.facts),
        grouped(f.rows),
        all(&f.bare_seconds),
        all(&f.verify_seconds),
        f.ratio,
        grouped(f.facts_per_second as i64),
        f.likes_per_second,
        grouped(f.rebuild_rate),
        f.beside.p50_ms,
        f.beside.p99_ms,
        f.alone.p50_ms,
        f.alone.p99_ms,
        f.p99_ratio,
    )
}
