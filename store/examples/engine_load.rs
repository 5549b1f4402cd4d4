//! Loads facts through `land`, kills itself, and measures what opening again costs; and compares
//! durable facts per second with a bare fjall loop that writes the same rows in the same batches.
//!
//! ```text
//! cargo run --release -p tally-store --example engine_load -- crash DIR [FACTS]
//! cargo run --release -p tally-store --example engine_load -- ratio DIR [FACTS]
//! ```
//!
//! `DIR` must not exist; it is left behind. `FACTS` is 5,000,000 and 300,000 by default.

use std::{
    error::Error,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use schema::{
    ChoiceRegister, Fact, FactKey, IndexRow, Intent, JournalEntry, KindName, LaneId, Register, ShardKey, TargetKey, UserKey,
    codec, token_of,
};
use tally_store::{
    clock::Stopwatch,
    embedded::{Embedded, EmbeddedSettings},
    engine::{FactTable, FactWrite, FusedLanding, JournalTable, Landing, ScanTable, Slice},
};
use xxhash_rust::xxh3::xxh3_64;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const BATCH: u64 = 64;
const LANE: LaneId = LaneId(7);
const FIRST_VERSION: i64 = 1_700_000_000_000_000;

/// Fact number `n`: a skewed target, and one of a million users.
fn fact(n: u64) -> Outcome<FactWrite> {
    let random = xxh3_64(&n.to_be_bytes());
    let spread = 1 + (random >> 48) * (random >> 48) / 20_000;
    let target = TargetKey::parse(&format!("video/video-{:08}", spread))?;
    let user = UserKey::parse(&format!("video/user-{:07}", random % 1_000_000))?;
    let version = FIRST_VERSION + i64::try_from(n)?;
    Ok(FactWrite {
        shard: ShardKey::root(target, KindName::parse("like")?),
        member: user.member(),
        fact: Fact { choice: ChoiceRegister { version, choice: 1, since: version }, ..Fact::default() },
        index: Some(user),
        seen: None,
    })
}

fn batch(number: u64) -> Outcome<(JournalEntry, Vec<FactWrite>)> {
    let writes = (number * BATCH..(number + 1) * BATCH).map(fact).collect::<Outcome<Vec<_>>>()?;
    let intent = |w: &FactWrite| Intent {
        key: FactKey { target: w.shard.target.clone(), kind: w.shard.kind.clone(), member: w.member.clone() },
        register: Register::Choice,
        version: w.fact.choice.version,
        value: w.fact.choice.choice,
    };
    Ok((JournalEntry { id: number, intents: writes.iter().map(intent).collect(), landed: vec![number] }, writes))
}

/// Lands `batches`, by so many clients at once, each waiting for its own answer.
async fn load(engine: &Arc<Embedded>, batches: u64, clients: u64) -> Outcome<f64> {
    engine.register_lane(LANE, 0, 1).await?;
    let next = Arc::new(AtomicU64::new(0));
    let watch = Stopwatch::start();
    let client = |_| {
        let (engine, next) = (engine.clone(), next.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= batches {
                    return Outcome::Ok(());
                }
                let (entry, writes) = batch(number)?;
                let slot = i64::try_from(number / 1000)?;
                assert_eq!(engine.land(LANE, slot, entry, writes).await?, Landing::Landed);
            }
        })
    };
    for task in (0..clients).map(client).collect::<Vec<_>>() {
        task.await??;
    }
    Ok((batches * BATCH) as f64 / watch.elapsed().as_secs_f64())
}

/// The same rows in the same batches, each with its own fsync, and no reads.
fn bare(path: &Path, batches: u64) -> Outcome<f64> {
    let db = fjall::Database::builder(path).worker_threads(2).cache_size(128 << 20).open()?;
    let keyspace = |name| db.keyspace(name, fjall::KeyspaceCreateOptions::default);
    let (facts, by_user, journal) = (keyspace("facts")?, keyspace("by_user")?, keyspace("journal")?);
    let watch = Stopwatch::start();
    for number in 0..batches {
        let (entry, writes) = batch(number)?;
        let mut batch = db.batch().durability(Some(fjall::PersistMode::SyncData));
        for w in &writes {
            let (target, kind, member) = (w.shard.target.as_str(), w.shard.kind.as_str(), w.member.as_str());
            let token = token_of(&w.shard.target).to_be_bytes();
            let key = [&token[..], target.as_bytes(), b"\0", kind.as_bytes(), b"\0\0\x01", member.as_bytes()].concat();
            batch.insert(&facts, key, codec::encode_fact(&w.fact));
            let user = w.index.as_ref().map_or("", UserKey::as_str);
            let prefix = [&xxh3_64(user.as_bytes()).to_be_bytes()[..], user.as_bytes(), b"\0", kind.as_bytes(), b"\0"].concat();
            batch.insert(&by_user, [&prefix[..], b"\x01", target.as_bytes()].concat(), {
                codec::encode_index(&IndexRow::from(w.fact.choice))
            });
            let time = (!w.fact.choice.since).to_be_bytes();
            batch.insert(&by_user, [&prefix[..], b"\x02", &time, target.as_bytes(), b"\xff"].concat(), "");
        }
        let key = [LANE.0.to_be_bytes(), (number / 1000).to_be_bytes(), number.to_be_bytes()].concat();
        batch.insert(&journal, key, codec::encode_journal(&entry));
        batch.commit()?;
    }
    Ok((batches * BATCH) as f64 / watch.elapsed().as_secs_f64())
}

/// Largest and present resident memory of this process, in MiB, as far as the system tells.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| l.trim_start_matches(':').trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
    };
    format!("RSS {} MiB, peak {} MiB", field("VmRSS"), field("VmHWM"))
}

async fn child(dir: &Path, facts: u64) -> Outcome<()> {
    let engine = Arc::new(Embedded::open(dir, &EmbeddedSettings::default())?);
    let rate = load(&engine, facts / BATCH, 8).await?;
    println!("loaded {facts} facts at {rate:.0}/s, {}, {:?}", memory(), engine.stats());
    println!("ready");
    // Held open and unclosed, until the parent kills this process.
    std::future::pending().await
}

async fn crash(dir: &Path, facts: u64) -> Outcome<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["child".as_ref(), dir.as_os_str(), facts.to_string().as_ref()])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(child.stdout.take().ok_or("no output")?);
    for line in output.lines() {
        let line = line?;
        if line == "ready" {
            break;
        }
        println!("{line}");
    }
    child.kill()?;
    child.wait()?;
    let watch = Stopwatch::start();
    let engine = Embedded::open(dir, &EmbeddedSettings::default())?;
    println!("opened after the kill in {:.2} s, {}", watch.elapsed().as_secs_f64(), memory());
    let step = (facts / BATCH * BATCH / 1000).max(1);
    for n in (0..1000).map(|i| i * step) {
        let w = fact(n)?;
        let read = engine.read_facts(&w.shard, std::slice::from_ref(&w.member)).await?;
        let found = read.facts[0].ok_or(format!("fact {n} is lost"))?;
        assert!(found.choice.version >= w.fact.choice.version, "fact {n} is older than it was");
    }
    let watch = Stopwatch::start();
    let (mut partitions, mut from) = (0, None);
    loop {
        let page = engine.scan_facts(Slice::ALL, from.as_deref(), 10_000).await?;
        partitions += page.items.len();
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    println!("1000 facts checked; {partitions} partitions scanned in {:.2} s", watch.elapsed().as_secs_f64());
    println!("{}, {:?}", memory(), engine.stats());
    let watch = Stopwatch::start();
    engine.close().await?;
    println!("closed in {:.2} s", watch.elapsed().as_secs_f64());
    drop(engine);
    let watch = Stopwatch::start();
    let engine = Embedded::open(dir, &EmbeddedSettings::default())?;
    println!("opened after the close in {:.2} s, {:?}", watch.elapsed().as_secs_f64(), engine.stats());
    Ok(())
}

async fn ratio(dir: &Path, facts: u64) -> Outcome<()> {
    // Interleaved, so that other load on the machine meets all of them.
    for round in 0..3 {
        let raw = bare(&dir.join(format!("bare-{round}")), facts / BATCH)?;
        print!("bare {raw:.0} facts/s");
        for clients in [1, 4, 8] {
            let path = dir.join(format!("engine-{clients}-{round}"));
            let engine = Arc::new(Embedded::open(path, &EmbeddedSettings::default())?);
            let rate = load(&engine, facts / BATCH, clients).await?;
            print!(", engine with {clients} clients {rate:.0} ({:.2})", rate / raw);
            engine.close().await?;
        }
        println!();
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: engine_load crash|ratio DIR [FACTS]";
    let [mode, dir, rest @ ..] = &args[..] else { return Err(usage.into()) };
    let facts = |default| rest.first().map_or(Ok(default), |n| n.parse::<u64>());
    let dir = Path::new(dir);
    match mode.as_str() {
        "crash" => crash(dir, facts(5_000_000)?).await,
        "child" => child(dir, facts(5_000_000)?).await,
        "ratio" => ratio(dir, facts(300_000)?).await,
        _ => Err(usage.into()),
    }
}
