//! Writes that say what they have seen end in the same rows as writes that do not.

use std::collections::BTreeMap;

use futures::future::join_all;
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use schema::{Fact, KindName, Member, Register, Shard, ShardKey, TargetKey, UserKey};

use crate::{
    embedded::{Embedded, EmbeddedSettings},
    engine::{FactTable, FactWrite, IndexTable, Seen},
};

fn kind() -> KindName {
    KindName::parse("like").unwrap()
}

fn root(n: u32) -> ShardKey {
    ShardKey::root(TargetKey::parse(&format!("video/t{n}")).unwrap(), kind())
}

/// Facts and index rows of everything that the test writes.
async fn all_rows(engine: &Embedded, users: &[UserKey], shards: &[ShardKey]) -> String {
    let mut out = BTreeMap::new();
    for shard in shards {
        let page = engine.page_facts(shard, None, 1000).await.unwrap();
        out.insert(format!("{shard:?}"), format!("{:?}", page.rows));
    }
    let targets: Vec<TargetKey> = shards.iter().map(|s| s.target.clone()).collect();
    for user in users {
        let rows = engine.read_index(user, &kind(), &targets).await.unwrap();
        let times = engine.page_index_times(user, &kind(), None, 1000).await.unwrap();
        out.insert(user.to_string(), format!("{rows:?} {times:?}"));
    }
    format!("{out:#?}")
}

/// Reads become stale at random; groups hold many writes of the same rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_and_fresh_sights_of_a_row_change_nothing() {
    for seed in 0..20_u64 {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [with, without] = [0, 1].map(|i: usize| Embedded::open(dirs[i].path(), &EmbeddedSettings::default()).unwrap());
        let users: Vec<UserKey> = (0..4).map(|n| UserKey::parse(&format!("video/u{n}")).unwrap()).collect();
        let shards: Vec<ShardKey> = (0..3).map(root).chain([root(0).with_shard(Shard(16))]).collect();
        // What was read lately, by row; `nowhere` is what a caller may promise of a row that was never written.
        let mut sights: Vec<(ShardKey, Member, Seen)> = Vec::new();
        for _ in 0..40 {
            let writes: Vec<FactWrite> = (0..rng.random_range(1..8))
                .map(|_| {
                    let (shard, user) = (shards.choose(&mut rng).unwrap().clone(), users.choose(&mut rng).unwrap());
                    let version = rng.random_range(1..60);
                    let choice = rng.random_range(0..2);
                    let fact = Fact::of(Register::Choice, version, choice, if choice == 0 { 0 } else { version });
                    let seen: Vec<Seen> =
                        sights.iter().filter(|(s, m, _)| *s == shard && *m == user.member()).map(|s| s.2).collect();
                    let index = shard.shard.is_root().then(|| user.clone());
                    FactWrite { shard, member: user.member(), fact, index, seen: seen.choose(&mut rng).copied() }
                })
                .collect();
            let blind: Vec<FactWrite> = writes.iter().map(|w| FactWrite { seen: None, ..w.clone() }).collect();
            // Several calls at once share a group, or not.
            let (some, rest) = writes.split_at(writes.len() / 2);
            join_all([with.write_facts(some), with.write_facts(rest)]).await;
            for write in &blind {
                without.write_facts(std::slice::from_ref(write)).await;
            }
            let (shard, user) = (shards.choose(&mut rng).unwrap(), users.choose(&mut rng).unwrap());
            let read = with.read_facts(shard, &[user.member()]).await.unwrap();
            let nowhere = shard.shard.is_root() && read.facts[0].is_none();
            let seen = Seen { fact: read.facts[0], as_of: read.as_of, nowhere };
            sights.push((shard.clone(), user.member(), seen));
        }
        assert_eq!(all_rows(&with, &users, &shards).await, all_rows(&without, &users, &shards).await);
        let kept = sights.iter().filter(|(_, _, seen)| seen.as_of > 0).count();
        assert!(kept > 0, "nothing was ever seen");
    }
}
