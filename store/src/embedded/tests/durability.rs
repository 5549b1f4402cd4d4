//! What survives, and what happens to writes when the disk does not take them.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use schema::{FactKey, Intent, JournalEntry, KindName, LaneId, Register, ShardKey, TargetKey, UserKey};

use crate::{
    StoreError,
    embedded::{Embedded, EmbeddedSettings, keys, rows::Table},
    engine::{
        CommitOutcome, CounterPut, CounterTable, FactTable, FactWrite, FusedLanding, IndexTable, JournalTable, Landing,
        LedgerCommit, LedgerTable, MetaTable, RowChange,
    },
};

const LANE: LaneId = LaneId(5);
const DIR: &str = "TALLY_TEST_DIR";

fn open(path: &Path) -> Embedded {
    Embedded::open(path, &EmbeddedSettings::default()).unwrap()
}

fn kind() -> KindName {
    KindName::parse("like").unwrap()
}

/// Landing number `n`: three facts of targets of its own.
fn landing(n: u64) -> (JournalEntry, Vec<FactWrite>) {
    let user = UserKey::parse(&format!("video/u{n}")).unwrap();
    let write = |i| {
        let version = 1 + n as i64;
        FactWrite {
            shard: ShardKey::root(TargetKey::parse(&format!("video/t{n}-{i}")).unwrap(), kind()),
            member: user.member(),
            fact: schema::Fact::of(Register::Choice, version, 1, version),
            index: Some(user.clone()),
            seen: None,
        }
    };
    let writes: Vec<_> = (0..3).map(write).collect();
    let intent = |w: &FactWrite| Intent {
        key: FactKey { target: w.shard.target.clone(), kind: kind(), member: w.member.clone() },
        register: Register::Choice,
        version: 1 + n as i64,
        value: 1,
    };
    (JournalEntry { id: n, intents: writes.iter().map(intent).collect(), landed: vec![n] }, writes)
}

/// How many of the landing's seven rows are there.
async fn found(engine: &Embedded, n: u64) -> usize {
    let (entry, writes) = landing(n);
    let mut found = 0;
    for w in &writes {
        let read = engine.read_facts(&w.shard, std::slice::from_ref(&w.member)).await.unwrap();
        found += usize::from(read.facts == [Some(w.fact)]);
        let user = w.index.as_ref().unwrap();
        let index = engine.read_index(user, &kind(), std::slice::from_ref(&w.shard.target)).await.unwrap();
        found += usize::from(index == [Some(w.fact.choice.into())]);
    }
    let (entries, _) = engine.read_slot(LANE, 1, n.checked_sub(1), 1).await.unwrap();
    found + usize::from(entries == [entry])
}

#[tokio::test]
async fn everything_is_there_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    engine.register_lane(LANE, 1, 1).await.unwrap();
    let (entry, writes) = landing(1);
    assert_eq!(engine.land(LANE, 1, entry, writes.clone()).await, Ok(Landing::Landed));
    let leaf = writes[0].shard.with_shard(schema::Shard(16));
    let head = schema::LedgerHead { revision: 9, complete: true, ..Default::default() };
    let row = RowChange { member: writes[0].member.clone(), expect: None, fact: writes[0].fact };
    let commit =
        LedgerCommit { expect_revision: None, head, rows: vec![row], drop_times: vec![], put_times: vec![], drop_rows: vec![] };
    assert_eq!(engine.commit(&leaf, &commit).await, Ok(CommitOutcome::Applied));
    let counter = schema::CounterRow { order: 9, rank: 0, counts: [(1, 1)].into_iter().collect(), as_of: 2 };
    assert_eq!(engine.put_counters(&[CounterPut { shard: leaf.clone(), row: counter }]).await, [Ok(())]);
    engine.raise_shown(&writes[0].shard, 4).await.unwrap();
    engine.raise_root_head(&writes[0].shard, schema::RootHead { level: 4, level_at: 3, epoch: 0 }).await.unwrap();
    engine.put_meta("k", b"v").await.unwrap();
    let all = async |engine: &Embedded| {
        (
            engine.page_facts(&writes[0].shard, None, 9).await.unwrap(),
            engine.page_ledger(&leaf, None, 9).await.unwrap(),
            engine.page_times(&leaf, None, 9).await.unwrap(),
            engine.read_counters(&leaf.target).await.unwrap(),
            engine.lanes().await.unwrap(),
            engine.get_meta("k").await.unwrap(),
            found(engine, 1).await,
        )
    };
    let before = all(&engine).await;
    assert_eq!((before.1.rows.len(), before.2.0.len(), before.6), (1, 1, 7));
    engine.close().await.unwrap();
    drop(engine);
    let engine = open(dir.path());
    assert_eq!(all(&engine).await, before);
    // Once more, this time by dropping alone.
    drop(engine);
    assert_eq!(all(&open(dir.path())).await, before);
}

#[tokio::test]
async fn a_closed_engine_answers_that_it_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    engine.close().await.unwrap();
    engine.close().await.unwrap();
    let stopped = |e: StoreError| assert!(matches!(e, StoreError::Stopped(_)), "{e}");
    stopped(engine.put_meta("k", b"v").await.unwrap_err());
    stopped(engine.get_meta("k").await.unwrap_err());
    stopped(engine.lanes().await.unwrap_err());
    let (entry, writes) = landing(1);
    stopped(engine.land(LANE, 1, entry, writes.clone()).await.unwrap_err());
    for result in engine.write_facts(&writes).await {
        stopped(result.unwrap_err());
    }
}

/// This test binary again, running one of the child tests below.
fn child(name: &str, dir: &Path) -> Child {
    // Without its own disposition the signal for a file over its limit would end the child.
    Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("embedded::tests::durability::{name}"), "--ignored", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Numbers that the child says were answered, until `enough` or its end. The harness's own lines
/// are skipped.
fn answered(child: &mut Child, enough: usize) -> (Vec<u64>, Vec<String>) {
    let (mut numbers, mut said) = (Vec::new(), Vec::new());
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        match line.strip_prefix("ok ").and_then(|n| n.parse().ok()) {
            Some(n) => numbers.push(n),
            None => said.push(line),
        }
        if numbers.len() >= enough {
            break;
        }
    }
    (numbers, said)
}

fn say(line: String) {
    // One write for a line, past the harness's capture.
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "child of killing_the_process_loses_no_answered_landing"]
async fn child_lands_until_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let engine = Arc::new(open(Path::new(&dir)));
    engine.register_lane(LANE, 1, 1).await.unwrap();
    let first = engine.get_meta("first").await.unwrap().map_or(0, |v| u64::from_be_bytes(v.try_into().unwrap()));
    let tasks = (0..8u64).map(|task| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for round in 0.. {
                let n = first + round * 8 + task;
                let (entry, writes) = landing(n);
                assert_eq!(engine.land(LANE, 1, entry, writes).await, Ok(Landing::Landed));
                say(format!("ok {n}"));
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// Four kills of one directory, each while eight tasks land: what was answered is there whole, and
/// what was not is there whole or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_the_process_loses_no_answered_landing() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for round in 0..4u64 {
        let first = round * 1_000_000;
        let engine = open(dir.path());
        engine.put_meta("first", &first.to_be_bytes()).await.unwrap();
        drop(engine);
        let mut child = child("child_lands_until_killed", dir.path());
        let (numbers, said) = answered(&mut child, 300);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(numbers.len(), 300, "{said:?}");
        all.extend(numbers);
        let engine = open(dir.path());
        for &n in &all {
            assert_eq!(found(&engine, n).await, 7, "landing {n}");
        }
        for n in first..first + 400 {
            assert!([0, 7].contains(&found(&engine, n).await), "landing {n} is torn");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "child of a_disk_that_takes_no_more_stops_the_store"]
async fn child_lands_until_the_disk_takes_no_more() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let engine = open(Path::new(&dir));
    engine.register_lane(LANE, 1, 1).await.unwrap();
    for n in 0..20 {
        let (entry, writes) = landing(n);
        assert_eq!(engine.land(LANE, 1, entry, writes).await, Ok(Landing::Landed));
        say(format!("ok {n}"));
    }
    // No file of this process may grow, or be written, beyond its first byte.
    let limit = Command::new("prlimit").args(["--fsize=1", "--pid", &std::process::id().to_string()]).status();
    assert!(limit.unwrap().success());
    for n in 20..40 {
        let (entry, writes) = landing(n);
        match engine.land(LANE, 1, entry, writes).await {
            Ok(_) => say(format!("ok {n}")),
            Err(StoreError::Stopped(reason)) => say(format!("stopped: {reason}")),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(matches!(engine.get_meta("k").await, Err(StoreError::Stopped(_))));
    assert!(matches!(engine.put_meta("k", b"v").await, Err(StoreError::Stopped(_))));
    assert!(matches!(engine.close().await, Err(StoreError::Stopped(_))));
    say("the end".into());
}

/// The limit on the size of a file stands for a full disk: writing fails in the middle.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_disk_that_takes_no_more_stops_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = child("child_lands_until_the_disk_takes_no_more", dir.path());
    let (numbers, said) = answered(&mut child, usize::MAX);
    assert!(child.wait().unwrap().success(), "{said:?}");
    assert!(said.iter().any(|line| line.contains("the end")), "{said:?}");
    assert_eq!(said.iter().filter(|line| line.contains("stopped: I/O error")).count(), 20, "{said:?}");
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    let engine = open(dir.path());
    for n in numbers {
        assert_eq!(found(&engine, n).await, 7, "landing {n}");
    }
    for n in 20..40 {
        assert!([0, 7].contains(&found(&engine, n).await), "landing {n} is torn");
    }
}

/// The damaged row is named, its landing writes nothing, and its neighbours in the queue are not
/// affected.
#[tokio::test]
async fn a_damaged_row_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    engine.register_lane(LANE, 1, 1).await.unwrap();
    let (entry, writes) = landing(1);
    let key = keys::with_id(&keys::shard(&writes[1].shard), writes[1].member.as_str());
    engine.rows.keyspace(Table::Facts).insert(key, b"\x01garbage").unwrap();
    let damaged = |e: StoreError| assert!(matches!(&e, StoreError::Damaged(at) if at.contains("video/t1-1")), "{e}");
    damaged(engine.read_facts(&writes[1].shard, std::slice::from_ref(&writes[1].member)).await.unwrap_err());
    damaged(engine.land(LANE, 1, entry, writes.clone()).await.unwrap_err());
    let facts =
        async |i: usize| engine.read_facts(&writes[i].shard, std::slice::from_ref(&writes[i].member)).await.unwrap().facts;
    assert_eq!((facts(0).await, facts(2).await), (vec![None], vec![None]));
    assert_eq!(engine.read_slot(LANE, 1, None, 9).await, Ok((vec![], true)));
    let mut results = engine.write_facts(&writes).await;
    damaged(results.remove(1).unwrap_err());
    assert_eq!(results, [Ok(()), Ok(())]);
    assert_eq!((facts(0).await, facts(2).await), (vec![Some(writes[0].fact)], vec![Some(writes[2].fact)]));
    let (entry, writes) = landing(2);
    assert_eq!(engine.land(LANE, 1, entry, writes).await, Ok(Landing::Landed));
}

/// More entries than one job removes, before and after opening again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_many_slots_leaves_none_and_reaches_late_entries() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(open(dir.path()));
    engine.register_lane(LANE, 0, 1).await.unwrap();
    let writers = (0..50u64).map(|task| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for id in (0..100).map(|i| task * 100 + i) {
                engine.append(LANE, (id / 40) as i64, &JournalEntry { id, ..Default::default() }).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    engine.drop_slots(LANE, 124).await.unwrap();
    assert_eq!(engine.next_slot(LANE, 0, 1000).await, Ok(Some(124)));
    engine.append(LANE, 3, &JournalEntry { id: 1, ..Default::default() }).await.unwrap();
    engine.drop_slots(LANE, 125).await.unwrap();
    drop(engine);
    // What came late, behind where dropping had got to, goes with the first drop after opening.
    let engine = open(dir.path());
    assert_eq!(engine.next_slot(LANE, 0, 1000).await, Ok(Some(3)));
    engine.drop_slots(LANE, 125).await.unwrap();
    assert_eq!(engine.next_slot(LANE, 0, 1000).await, Ok(None));
}

/// Bounds below any useful value, and more callers than the queue has room for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_smallest_bounds_only_slow_it_down() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        EmbeddedSettings { cache_bytes: 1 << 20, replay_bytes: 1, queue_bytes: 0, group_rows: 0, group_bytes: 0, workers: 0 };
    let engine = Arc::new(Embedded::open(dir.path(), &settings).unwrap());
    engine.register_lane(LANE, 1, 1).await.unwrap();
    let tasks = (0..100u64).map(|n| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let (entry, writes) = landing(n);
            engine.land(LANE, 1, entry, writes).await
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap(), Ok(Landing::Landed));
    }
    for n in 0..100 {
        assert_eq!(found(&engine, n).await, 7);
    }
    let stats = engine.stats();
    assert_eq!((stats.queued, stats.jobs), (0, 101));
    assert!(stats.groups >= 101 && stats.rows >= 100 * 10 && stats.disk_bytes > 0, "{stats:?}");
}

/// Up to the size that is refused, an entry can be read back.
#[tokio::test]
async fn an_entry_that_could_not_be_read_back_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    engine.register_lane(LANE, 1, 1).await.unwrap();
    let target = TargetKey::parse(&format!("video/{}", "t".repeat(128))).unwrap();
    let (mut taken, mut refused) = (0, usize::MAX);
    let entry = |len: usize, short: bool| {
        let target = if short { TargetKey::parse("v/t").unwrap() } else { target.clone() };
        let key = FactKey { target, kind: kind(), member: schema::Member::parse("m").unwrap() };
        let intent = Intent { key, register: Register::Choice, version: i64::MAX, value: 1 };
        JournalEntry { id: len as u64, intents: vec![intent; len], landed: vec![] }
    };
    for short in [false, true] {
        let (mut low, mut high) = (1, 100_000);
        while low + 1 < high {
            let len = (low + high) / 2;
            let one = entry(len, short);
            match engine.append(LANE, 1, &one).await {
                Ok(()) => {
                    let (read, _) = engine.read_slot(LANE, 1, Some(len as u64 - 1), 1).await.unwrap();
                    assert_eq!(read, [one]);
                    low = len;
                }
                Err(StoreError::Refused(_)) => high = len,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(matches!(engine.land(LANE, 1, entry(high, short), vec![]).await, Err(StoreError::Refused(_))));
        (taken, refused) = (taken.max(low), refused.min(high));
    }
    assert!(taken > 5000 && refused < 10_000, "{taken} and {refused}");
}
