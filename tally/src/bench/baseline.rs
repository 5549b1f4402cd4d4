//! The bare engine: the same rows in the same batch sizes straight into fjall, from one thread,
//! without reading, answering or counting anything. What Tally could not be faster than.

use std::{path::Path, time::Duration};

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use schema::{
    ChoiceRegister, Fact, FactKey, IndexRow, Intent, JournalEntry, KindName, Member, Micros, Namespace, Register, Shard,
    TargetKey, UserKey, codec, token_of,
};
use store::clock::{Clock, Stopwatch, SystemClock};

use super::{load::Load, sizes::Sizes};
use crate::failure::Failure;

/// Size of a memtable, as Tally's own engine sets it.
const MEMTABLE_BYTES: u64 = 32 << 20;
const JOURNAL_LIMIT_BYTES: u64 = 128 << 20;

/// Likes per second that the bare engine makes durable on `dir` in `time`.
pub fn run(dir: &Path, load: &Load, sizes: Sizes, time: Duration) -> Result<f64, Failure> {
    let failed = |e: fjall::Error| Failure::unreachable(format!("the baseline's store: {e}"));
    let db = Database::builder(dir)
        .cache_size(128 << 20)
        .max_journaling_size(JOURNAL_LIMIT_BYTES)
        .worker_threads(2)
        .open()
        .map_err(failed)?;
    let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
    let facts = db.keyspace("facts", options).map_err(failed)?;
    let by_user = db.keyspace("by_user", options).map_err(failed)?;
    let journal = db.keyspace("journal", options).map_err(failed)?;
    let namespace = Namespace::parse("bench").expect("a valid namespace");
    let kind = KindName::parse("like").expect("a valid kind");
    let clock = SystemClock::default();
    let mut stream = load.stream(0);
    let watch = Stopwatch::start();
    let (mut likes, mut entries) = (0_u64, 0_u64);
    while watch.elapsed() < time {
        let mut batch = db.batch().durability(Some(PersistMode::SyncData));
        let mut group = sizes.group;
        while group > 0 {
            let micro = group.min(sizes.micro_batch);
            group -= micro;
            let mut intents = Vec::with_capacity(micro);
            for _ in 0..micro {
                let like = Like::of(&namespace, &kind, stream.next(), clock.now());
                batch.insert(&facts, like.fact_key(), codec::encode_fact(&like.fact()));
                let [by_id, by_time] = like.index_keys();
                batch.insert(&by_user, by_id, codec::encode_index(&like.index()));
                batch.insert(&by_user, by_time, []);
                intents.push(like.intent());
            }
            entries += 1;
            let entry = JournalEntry { id: entries, intents, landed: vec![entries] };
            let mut key = vec![0; 16];
            key.extend_from_slice(&entries.to_be_bytes());
            batch.insert(&journal, key, codec::encode_journal(&entry));
        }
        batch.commit().map_err(failed)?;
        likes += sizes.group as u64;
    }
    Ok(likes as f64 / watch.elapsed().as_secs_f64())
}

/// One like, as rows.
struct Like {
    target: TargetKey,
    user: UserKey,
    kind: KindName,
    member: Member,
    version: Micros,
}

impl Like {
    fn of(namespace: &Namespace, kind: &KindName, (target, user): (String, String), version: Micros) -> Self {
        let target = TargetKey::new(namespace, &target).expect("made of letters and digits");
        let member = Member::parse(&user).expect("made of letters and digits");
        Self { user: UserKey::of(&target, &member), target, kind: kind.clone(), member, version }
    }

    fn key(&self) -> FactKey {
        FactKey { target: self.target.clone(), kind: self.kind.clone(), member: self.member.clone() }
    }

    fn intent(&self) -> Intent {
        Intent { key: self.key(), register: Register::Choice, version: self.version, value: 1 }
    }

    fn fact(&self) -> Fact {
        Fact::of(Register::Choice, self.version, 1, self.version)
    }

    fn index(&self) -> IndexRow {
        ChoiceRegister { version: self.version, choice: 1, since: self.version }.into()
    }

    /// token, target, 0, kind, 0, shard, member: as long as Tally's own.
    fn fact_key(&self) -> Vec<u8> {
        let token = token_of(&self.target).to_be_bytes();
        let shard = Shard::ROOT.0.to_be_bytes();
        let parts: [&[u8]; 7] = [
            &token,
            self.target.as_str().as_bytes(),
            &[0],
            self.kind.as_str().as_bytes(),
            &[0],
            &shard,
            self.member.as_str().as_bytes(),
        ];
        parts.concat()
    }

    /// token, user, 0, kind, 0, section, then the target, or time and target.
    fn index_keys(&self) -> [Vec<u8>; 2] {
        // Any hash of the user serves: the rows are spread as Tally's are.
        let token = token_of(&TargetKey::parse(self.user.as_str()).expect("a key of the same form")).to_be_bytes();
        let prefix: [&[u8]; 5] = [&token, self.user.as_str().as_bytes(), &[0], self.kind.as_str().as_bytes(), &[0]];
        let prefix = prefix.concat();
        let time = (!self.version).to_be_bytes();
        [
            [&prefix, [1].as_slice(), self.target.id().as_bytes()].concat(),
            [&prefix, [2].as_slice(), &time, self.target.id().as_bytes(), &[0xff]].concat(),
        ]
    }
}
