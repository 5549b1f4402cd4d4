//! What is remembered in the store: the last runs, and when each part was last verified.

use schema::Micros;
use serde::{Serialize, de::DeserializeOwned};
use store::{Protocol, StoreError, StoreResult};

use crate::{Report, scope::PARTS};

/// Runs that are kept.
pub const MAX_RUNS: usize = 200;
/// Runs by id, newest first: the key holds the complement.
const RUNS: &str = "rebuild/run/";
const PARTS_KEY: &str = "rebuild/parts";
/// Attempts at a conditional write before it is left to the next run.
const ATTEMPTS: u32 = 50;

/// Bytes of a stored value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers, texts and lists always serialise")
}

/// Reverse of [`encode`]; says where it could not be read.
pub(crate) fn decode<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> StoreResult<T> {
    serde_json::from_slice(bytes).map_err(|e| StoreError::Damaged(format!("{key}: {e}")))
}

fn key_of(id: &str) -> Option<String> {
    let n = u64::from_str_radix(id, 16).ok().filter(|_| id.len() == 16)?;
    Some(format!("{RUNS}{:016x}", !n))
}

/// Records a run that begins, under an id that no other has, and forgets the oldest.
pub(crate) async fn begin(protocol: &Protocol, report: &mut Report) -> StoreResult<()> {
    let engine = protocol.engine();
    for n in 0..ATTEMPTS {
        let id = format!("{:016x}", report.started.unsigned_abs() + u64::from(n));
        let key = key_of(&id).expect("made of sixteen digits");
        report.id = id;
        if engine.swap_meta(&key, None, &encode(report)).await? {
            break;
        }
    }
    let kept = engine.list_meta(RUNS, MAX_RUNS + 50).await?;
    for (key, _) in kept.iter().skip(MAX_RUNS) {
        engine.drop_meta(key).await?;
    }
    Ok(())
}

/// Records how a run stands; by comparison, as it was begun, since a row that is written in both ways
/// would be ordered by two clocks.
pub(crate) async fn keep(protocol: &Protocol, report: &Report) -> StoreResult<()> {
    let Some(key) = key_of(&report.id) else { return Ok(()) };
    for _ in 0..ATTEMPTS {
        let stored = protocol.engine().get_meta(&key).await?;
        if protocol.engine().swap_meta(&key, stored.as_deref(), &encode(report)).await? {
            return Ok(());
        }
    }
    Err(StoreError::Unavailable(format!("run {} is being recorded by others", report.id)))
}

/// The last runs, newest first.
pub(crate) async fn runs(protocol: &Protocol, limit: usize) -> StoreResult<Vec<Report>> {
    let found = protocol.engine().list_meta(RUNS, limit.min(MAX_RUNS)).await?;
    found.iter().map(|(key, bytes)| decode(key, bytes)).collect()
}

/// One run.
pub(crate) async fn run(protocol: &Protocol, id: &str) -> StoreResult<Option<Report>> {
    let Some(key) = key_of(id) else { return Ok(None) };
    protocol.engine().get_meta(&key).await?.map(|bytes| decode(&key, &bytes)).transpose()
}

/// Store time at which each part was last verified; 0: never.
pub(crate) async fn parts(protocol: &Protocol) -> StoreResult<Vec<Micros>> {
    let stored = protocol.engine().get_meta(PARTS_KEY).await?;
    let mut parts: Vec<Micros> = stored.map(|bytes| decode(PARTS_KEY, &bytes)).transpose()?.unwrap_or_default();
    parts.resize(PARTS as usize, 0);
    Ok(parts)
}

/// Remembers that `verified` (all where `None`) were verified as of `at`; never goes back.
pub(crate) async fn verified(protocol: &Protocol, part: Option<u32>, at: Micros) -> StoreResult<()> {
    for _ in 0..ATTEMPTS {
        let stored = protocol.engine().get_meta(PARTS_KEY).await?;
        let mut parts = parts(protocol).await?;
        for (n, when) in (0..).zip(&mut parts) {
            if part.is_none_or(|part| part == n) {
                *when = at.max(*when);
            }
        }
        if protocol.engine().swap_meta(PARTS_KEY, stored.as_deref(), &encode(&parts)).await? {
            break;
        }
    }
    Ok(())
}
