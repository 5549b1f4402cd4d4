//! `tally import`: rows of a file become facts, at the times given in it.
//!
//! One thread reads, parses and deals rows out by member, so that each member's rows stay in order;
//! each worker sends one batch at a time. Every batch may be sent again: the server joins facts.

mod bad;
mod freshness;
mod place;
mod rows;
mod send;
mod source;

use std::{
    collections::{HashSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use freshness::{Freshness, FreshnessView};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use place::Place;
use rows::{Layout, Line, Row};
use send::{Batch, Outcomes, Shared};
use serde::{Deserialize, Serialize};
use source::{Next, Source};
use store::clock::Stopwatch;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{cli::ImportArgs, client::Client, failure::Failure, output};

/// Rows of one request: the API's limit.
const BATCH: usize = 500;
/// How often the state file is written and the bar drawn.
const TICK: Duration = Duration::from_millis(200);
/// Ticks between two plain lines of progress.
const TICKS_A_LINE: u64 = 25;

/// What an import did; `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Lines read, those of earlier runs under `--resume` not included.
    pub lines: u64,
    /// Lines that an earlier run had done.
    pub skipped: u64,
    /// Rows that `--where` did not want.
    pub filtered: u64,
    /// Rows that could not be used, those refused by the server included.
    pub bad: u64,
    /// Rows that have an answer.
    pub answered: u64,
    /// Rows that changed something.
    pub applied: u64,
    /// Rows that were already so.
    pub unchanged: u64,
    /// Rows older than what was there.
    pub superseded: u64,
    /// Rows that are durable and land later.
    pub accepted: u64,
    /// Rows that the server refused.
    pub rejected: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// How long it took.
    pub seconds: f64,
    /// Answered rows by second.
    pub rows_per_second: f64,
    /// From answer to counted, sampled.
    pub freshness: Option<FreshnessView>,
}

/// Counts of the reading side.
#[derive(Default)]
struct Reading {
    lines: AtomicU64,
    filtered: AtomicU64,
}

/// Runs the command.
pub async fn run(args: ImportArgs) -> Result<u8, Failure> {
    let layout = Layout::new(&args)?;
    let client = Client::new(&args.server.url, usize::from(args.parallel) + 1)?;
    let what = format!("{} {}", args.file.display(), layout.fingerprint());
    let place = Place::open(args.resume.as_deref(), what)?;
    let source = Source::open(&args.file)?;
    let bar = bar(&source);
    let (freshness, offered) = Freshness::new();
    let shared = Arc::new(Shared {
        client,
        path: format!("/v1/{}/facts", args.namespace),
        patience: Duration::from_secs(args.patience),
        outage: send::Outage::default(),
        bar: bar.clone(),
        outcomes: Outcomes::default(),
        bad: bad::BadRows::new(args.strict, bar.clone()),
        place,
        freshness,
        stop: CancellationToken::new(),
    });
    let watch = Stopwatch::start();
    let reading = Arc::new(Reading::default());
    let mut workers = tokio::task::JoinSet::new();
    let mut outs = Vec::new();
    for _ in 0..args.parallel {
        let (out, batches) = mpsc::channel(1);
        outs.push(out);
        workers.spawn(send::work(shared.clone(), batches));
    }
    let finish = CancellationToken::new();
    let sampler = tokio::spawn({
        let (shared, namespace, finish) = (shared.clone(), args.namespace.clone(), finish.clone());
        async move { shared.freshness.sample(&shared.client, &namespace, offered, &finish).await }
    });
    let shower = tokio::spawn(show(shared.clone(), bar.clone(), source.read_so_far(), finish.clone(), watch));
    let reader = tokio::task::spawn_blocking({
        let (shared, reading, header) = (shared.clone(), reading.clone(), args.header);
        move || {
            let result = Dealer::new(&layout, outs, &shared, &reading).deal(source, header);
            if result.is_err() {
                shared.stop.cancel();
            }
            result
        }
    });
    let bug = "a panic has ended the process before";
    let mut failure = None;
    while let Some(worker) = workers.join_next().await {
        failure = failure.or(worker.expect(bug).err());
    }
    let read = reader.await.expect(bug);
    finish.cancel();
    shower.await.expect(bug);
    bar.finish_and_clear();
    shared.place.save()?;
    if let Some(failure) = failure.or(read.err()) {
        return Err(failure);
    }
    let seconds = watch.elapsed().as_secs_f64();
    sampler.await.expect(bug);
    let summary = summary(&shared, &reading, seconds);
    if args.json { output::print_json(&summary) } else { output::print(&describe(&summary)) }?;
    Ok(crate::failure::OK)
}

fn bar(source: &Source) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(source.size(), ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::with_draw_target(source.size(), ProgressDrawTarget::stderr());
    let template = match source.size() {
        Some(_) => "{bar:32} {percent:>3}%  {msg}  ETA {eta}",
        None => "{spinner} {msg}",
    };
    bar.set_style(ProgressStyle::with_template(template).expect("a constant template"));
    bar
}

/// Draws the bar or writes plain lines, and keeps the state file up to date, until `finish`.
async fn show(shared: Arc<Shared>, bar: ProgressBar, read: Arc<AtomicU64>, finish: CancellationToken, watch: Stopwatch) {
    let mut ticks = 0_u64;
    loop {
        tokio::select! {
            () = finish.cancelled() => return,
            () = tokio::time::sleep(TICK) => ticks += 1,
        }
        let answered = shared.outcomes.answered();
        let rate = rate(answered, watch.elapsed().as_secs_f64());
        let text = format!("{} rows, {}/s, {} bad", output::grouped(answered), output::grouped(rate), shared.bad.count());
        bar.set_position(read.load(Ordering::Relaxed));
        if bar.is_hidden() && ticks.is_multiple_of(TICKS_A_LINE) {
            let percent = bar.length().filter(|&l| l > 0).map(|l| format!(", {}% read", bar.position() * 100 / l));
            eprintln!("{text}{}", percent.unwrap_or_default());
        }
        bar.set_message(text);
        if ticks.is_multiple_of(5) {
            let shared = shared.clone();
            let saved = tokio::task::spawn_blocking(move || shared.place.save().inspect_err(|_| shared.stop.cancel())).await;
            if let Ok(Err(failure)) = saved {
                eprintln!("tally: {failure}");
            }
        }
    }
}

fn rate(rows: u64, seconds: f64) -> u64 {
    if seconds < 0.001 {
        return 0;
    }
    (rows as f64 / seconds) as u64
}

fn summary(shared: &Shared, reading: &Reading, seconds: f64) -> Summary {
    let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
    let o = &shared.outcomes;
    let answered = o.answered();
    Summary {
        lines: load(&reading.lines),
        skipped: shared.place.start(),
        filtered: load(&reading.filtered),
        bad: shared.bad.count(),
        answered,
        applied: load(&o.applied),
        unchanged: load(&o.unchanged),
        superseded: load(&o.superseded),
        accepted: load(&o.accepted),
        rejected: load(&o.rejected),
        retries: load(&o.retries),
        seconds: (seconds * 1000.0).round() / 1000.0,
        rows_per_second: f64::from(u32::try_from(rate(answered, seconds)).unwrap_or(u32::MAX)),
        freshness: shared.freshness.view(),
    }
}

fn describe(s: &Summary) -> String {
    use std::fmt::Write;
    let n = |n: u64| output::grouped(n);
    let mut out = format!("{} rows answered in {:.1} s, {}/s\n", n(s.answered), s.seconds, n(rate(s.answered, s.seconds)));
    let all = [
        ("applied", s.applied),
        ("unchanged", s.unchanged),
        ("superseded by newer facts", s.superseded),
        ("accepted, landing later", s.accepted),
        ("bad, see above", s.bad),
        ("not wanted by --where", s.filtered),
        ("lines done by an earlier run", s.skipped),
        ("requests sent again", s.retries),
    ];
    for (what, count) in all.into_iter().filter(|(what, count)| *count > 0 || *what == "applied") {
        let _ = writeln!(out, "  {:>12} {what}", n(count));
    }
    if let Some(f) = s.freshness {
        let _ = writeln!(
            out,
            "  from answer to counted: p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms ({} rows asked about)",
            f.p50_ms, f.p99_ms, f.max_ms, f.samples
        );
    }
    out
}

/// Deals rows out to workers.
struct Dealer<'a> {
    layout: &'a Layout,
    outs: Vec<mpsc::Sender<Batch>>,
    hands: Vec<Hand>,
    shared: &'a Shared,
    reading: &'a Reading,
}

/// What is collected for one worker.
#[derive(Default)]
struct Hand {
    rows: Vec<(u64, Row)>,
    /// Members in `rows`, kept only where order matters.
    members: HashSet<u64>,
}

impl<'a> Dealer<'a> {
    fn new(layout: &'a Layout, outs: Vec<mpsc::Sender<Batch>>, shared: &'a Shared, reading: &'a Reading) -> Self {
        let hands = outs.iter().map(|_| Hand::default()).collect();
        Self { layout, outs, hands, shared, reading }
    }

    /// Reads to the end of `source`, or until the import stops.
    fn deal(mut self, mut source: Source, header: bool) -> Result<(), Failure> {
        while let Some((number, next)) = source.next()? {
            if self.shared.stop.is_cancelled() {
                return Ok(());
            }
            if number <= self.shared.place.start() {
                continue;
            }
            if number > 1 || !header {
                self.reading.lines.fetch_add(1, Ordering::Relaxed);
                let read = match next {
                    Next::Line(line) => self.layout.read(line),
                    Next::TooLong => Err(format!("longer than {} bytes", source::MAX_LINE)),
                };
                match read {
                    Ok(Line::Fact(row)) => self.add(number, row),
                    Ok(Line::Filtered) => {
                        self.reading.filtered.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(Line::Blank) => {}
                    Err(why) => self.shared.bad.report(number, &why)?,
                }
            }
            self.shared.place.read(number);
        }
        (0..self.outs.len()).for_each(|worker| self.flush(worker));
        Ok(())
    }

    fn add(&mut self, number: u64, row: Row) {
        let mut hasher = DefaultHasher::new();
        (&row.user, &row.target, &row.kind).hash(&mut hasher);
        let member = hasher.finish();
        let workers = self.outs.len() as u64;
        let worker = usize::try_from(member % workers).expect("below the number of workers");
        // Without times the order of a member's rows is all there is: no two in one request.
        let again = !self.layout.has_times() && !self.hands[worker].members.insert(member);
        if again {
            self.flush(worker);
            self.hands[worker].members.insert(member);
        }
        if self.hands[worker].rows.is_empty() {
            self.shared.place.begin(number);
        }
        self.hands[worker].rows.push((number, row));
        if self.hands[worker].rows.len() >= BATCH {
            self.flush(worker);
        }
    }

    fn flush(&mut self, worker: usize) {
        let Hand { rows, .. } = std::mem::take(&mut self.hands[worker]);
        let Some(&(first, _)) = rows.first() else { return };
        // A worker that has ended has stopped the import.
        drop(self.outs[worker].blocking_send(Batch { first, rows }));
    }
}
