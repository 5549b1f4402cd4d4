//! Properties of [`CounterTable`](crate::engine::CounterTable).

use schema::{CounterRow, ShardKey, codec};

use super::{Subject, names::*};
use crate::engine::{CounterPut, TargetCounters};

fn row(order: i64, rank: u128, n: i64) -> CounterRow {
    CounterRow { order, rank, counts: counts(&[(1, n)]), as_of: order }
}

async fn put(engine: &Subject, shard: &ShardKey, row: &CounterRow) {
    all_ok(engine.put_counters(&[CounterPut { shard: shard.clone(), row: row.clone() }]).await, 1);
}

async fn read(engine: &Subject, shard: &ShardKey) -> Option<CounterRow> {
    engine.read_counters(&shard.target).await.expect("read").row(&shard.kind, shard.shard).cloned()
}

/// Pairs in both orders: by order, then by rank, then by the rest of the blob.
pub async fn the_counter_with_the_larger_order_then_blob_wins(engine: Subject) {
    let tie = [row(5, 7, 1), row(5, 7, 2)];
    let larger = usize::from(codec::encode_counter(&tie[0]) < codec::encode_counter(&tie[1]));
    let [a, b] = tie;
    let (smaller, larger) = if larger == 1 { (a, b) } else { (b, a) };
    // Ranks beyond a byte and beyond a u64, which byte order must put right.
    let pairs = [
        (row(4, 99, 9), row(5, 1, 1)),
        (row(255, 9, 9), row(256, 0, 1)),
        (row(5, 255, 9), row(5, 256, 1)),
        (row(5, u128::from(u64::MAX), 9), row(5, 1 << 64, 1)),
        (smaller, larger),
    ];
    for (loser, winner) in &pairs {
        for order in [[loser, winner, loser], [winner, loser, winner]] {
            let shard = root("lww");
            for row in order {
                put(&engine, &shard, row).await;
            }
            assert_eq!(read(&engine, &shard).await.as_ref(), Some(winner));
        }
    }
}

/// Kinds, root and leaves of one target, and nothing of its neighbours.
pub async fn counters_of_a_target_are_read_together(engine: Subject) {
    let base = root("together");
    let of = |k: &str, n: u16| ShardKey { target: base.target.clone(), kind: kind(k), shard: shard(n) };
    let mine = [of("comment", 1), of("like", 1), of("like", 16), of("like", 0xffff), of("like2", 1)];
    let longer = schema::TargetKey::parse(&format!("{}x", base.target)).expect("a target");
    let puts: Vec<_> = (1i64..)
        .zip(mine.iter().cloned().chain([ShardKey::root(longer, kind("like"))]))
        .map(|(n, shard)| CounterPut { shard, row: row(n, 0, n) })
        .collect();
    all_ok(engine.put_counters(&puts).await, 6);
    engine.raise_shown(&of("like", 1), 4).await.expect("raise");
    let found = engine.read_counters(&base.target).await.expect("read");
    assert_eq!((found.rows.len(), &found.shown), (5, &vec![(kind("like"), 4)]));
    for put in &puts[..5] {
        assert_eq!(found.row(&put.shard.kind, put.shard.shard), Some(&put.row), "{put:?}");
    }
    assert_eq!(engine.read_counters(&root("none").target).await.expect("read"), TargetCounters::default());
    assert_eq!(engine.put_counters(&[]).await, vec![]);
}

/// Lower and equal levels, later, change nothing.
pub async fn the_larger_shown_level_wins(engine: Subject) {
    let root = root("shown");
    for (level, want) in [(2, 2), (4, 4), (3, 4), (4, 4)] {
        engine.raise_shown(&root, level).await.expect("raise");
        let found = engine.read_counters(&root.target).await.expect("read");
        assert_eq!((found.shown(&root.kind), found.shown(&kind("other"))), (Some(want), None));
    }
}

/// Only the row that was named; an older row may stand afterwards.
pub async fn a_dropped_counter_is_gone(engine: Subject) {
    let (one, other) = (root("drop"), leaf("drop"));
    let other = one.with_shard(other.shard);
    put(&engine, &one, &row(5, 0, 5)).await;
    put(&engine, &other, &row(6, 0, 6)).await;
    for _ in 0..2 {
        engine.drop_counter(&one).await.expect("drop");
        assert_eq!((read(&engine, &one).await, read(&engine, &other).await), (None, Some(row(6, 0, 6))));
    }
}

/// Eight tasks put rows of their own order for one shard at once.
pub async fn racing_counter_writes_keep_the_newest(engine: Subject) {
    let shard = root("race");
    let tasks = (0..8).map(|task| {
        let (engine, shard) = (engine.clone(), shard.clone());
        tokio::spawn(async move {
            for round in 0..12 {
                let order = 1 + (task * 37 + round * 53) % 96;
                put(&engine, &shard, &row(order, 0, order)).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a task");
    }
    let newest = (0..8).flat_map(|t| (0..12).map(move |r| 1 + (t * 37 + r * 53) % 96)).max().expect("some");
    assert_eq!(read(&engine, &shard).await, Some(row(newest, 0, newest)));
}
