//! Slices of one rebuild, shared by all processes that work on it, and taken up again after a kill:
//! a slice belongs to the run that leased it until that is done or the lease runs out. Losing a
//! lease is harmless: two runs may check and repair one slice at the same time.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use schema::Micros;
use serde::{Deserialize, Serialize};
use store::{Protocol, StoreResult};

use crate::{
    RebuilderSettings,
    evidence::micros,
    history::{decode, encode},
};

/// Where an unfinished rebuild is kept: one for everything, one for each part.
const ROUND: &str = "rebuild/round/";
const SLICE: &str = "rebuild/slice/";
/// Rows of slices that are removed at a time.
const PAGE: usize = 1024;

/// A rebuild that was begun and has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// What it covers: `all` or `part 7`.
    pub scope: String,
    /// Store time at which it was begun.
    pub started: Micros,
    /// Slices in all.
    pub slices: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    owner: String,
    until: Micros,
    done: bool,
}

/// What to do next.
pub(crate) enum Claim {
    /// This slice is this run's now.
    Mine(u32),
    /// All that is not done belongs to others: ask again later.
    Wait,
    /// Everything is done.
    Done,
}

/// The slices of one round as one run sees them.
pub(crate) struct Leases {
    protocol: Protocol,
    owner: String,
    round: Round,
    lease: Micros,
    /// Slices found done at the beginning.
    pub resumed: u32,
    /// Slices that this run has or had.
    mine: Mutex<BTreeSet<u32>>,
}

fn round_key(scope: &str) -> String {
    format!("{ROUND}{scope}")
}

impl Leases {
    /// Joins the round of `scope` that is under way, or begins one. A round that is cut otherwise or
    /// was begun too long ago is given up.
    pub async fn join(
        protocol: &Protocol,
        settings: &RebuilderSettings,
        scope: String,
        slices: u32,
        owner: String,
    ) -> StoreResult<Self> {
        let engine = protocol.engine();
        let key = round_key(&scope);
        let round = loop {
            let now = protocol.clock().now();
            let stored = engine.get_meta(&key).await?;
            let found: Option<Round> = stored.as_deref().and_then(|bytes| serde_json::from_slice(bytes).ok());
            let fresh = |r: &Round| r.slices == slices && now.saturating_sub(r.started) < micros(settings.resume);
            if let Some(round) = found.filter(fresh) {
                break round;
            }
            let round = Round { scope: scope.clone(), started: now, slices };
            if engine.swap_meta(&key, stored.as_deref(), &encode(&round)).await? {
                break round;
            }
        };
        let (owner, lease) = (owner, micros(settings.lease));
        let mut this = Self { protocol: protocol.clone(), owner, round, lease, resumed: 0, mine: Mutex::default() };
        for n in 0..slices {
            let (_, held) = this.read(n).await?;
            this.resumed += u32::from(held.is_some_and(|h| h.done));
        }
        Ok(this)
    }

    /// The round that is worked on.
    pub fn round(&self) -> &Round {
        &self.round
    }

    fn key(&self, slice: u32) -> String {
        format!("{}{slice:06}", self.prefix())
    }

    fn prefix(&self) -> String {
        format!("{SLICE}{}/{:016x}/", self.round.scope, self.round.started)
    }

    async fn read(&self, slice: u32) -> StoreResult<(Option<Vec<u8>>, Option<Held>)> {
        let key = self.key(slice);
        let bytes = self.protocol.engine().get_meta(&key).await?;
        let held = bytes.as_deref().map(|bytes| decode(&key, bytes)).transpose()?;
        Ok((bytes, held))
    }

    fn holds(&self, slice: u32) -> bool {
        self.mine.lock().unwrap_or_else(PoisonError::into_inner).contains(&slice)
    }

    /// Takes one of `slices` that is not done and that nobody holds.
    pub async fn claim(&self, slices: std::ops::Range<u32>) -> StoreResult<Claim> {
        let stored = self.protocol.engine().get_meta(&round_key(&self.round.scope)).await?;
        if stored.as_deref() != Some(&encode(&self.round)) {
            return Ok(Claim::Done); // Another run has ended the round: its slices are forgotten.
        }
        let mut waiting = false;
        for slice in slices {
            // Another task of this run has it, or had it: it is done unless that task has failed.
            if !self.mine.lock().unwrap_or_else(PoisonError::into_inner).insert(slice) {
                continue;
            }
            let (bytes, held) = self.read(slice).await?;
            let now = self.protocol.clock().now();
            let free = held.as_ref().is_none_or(|h| !h.done && h.until <= now);
            let mine = Held { owner: self.owner.clone(), until: now.saturating_add(self.lease), done: false };
            if free && self.protocol.engine().swap_meta(&self.key(slice), bytes.as_deref(), &encode(&mine)).await? {
                return Ok(Claim::Mine(slice));
            }
            self.mine.lock().unwrap_or_else(PoisonError::into_inner).remove(&slice);
            waiting |= !held.is_some_and(|h| h.done);
        }
        Ok(if waiting { Claim::Wait } else { Claim::Done })
    }

    /// A sign of life for slices of this run; `done`: the slice is finished.
    pub async fn renew(&self, slice: u32, done: bool) -> StoreResult<()> {
        let (bytes, held) = self.read(slice).await?;
        let until = self.protocol.clock().now().saturating_add(self.lease);
        let next = Held { owner: self.owner.clone(), until, done };
        match held {
            Some(held) if held.owner == self.owner && !held.done => {
                self.protocol.engine().swap_meta(&self.key(slice), bytes.as_deref(), &encode(&next)).await?;
            }
            // Taken over meanwhile, though this run was alive: what it did is done all the same.
            Some(held) if done && !held.done => {
                self.protocol.engine().swap_meta(&self.key(slice), bytes.as_deref(), &encode(&next)).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether this run has checked a slice itself.
    pub fn did(&self, slice: u32) -> bool {
        self.holds(slice)
    }

    /// Ends the round: the next rebuild begins anew.
    pub async fn end(&self) -> StoreResult<()> {
        let engine = self.protocol.engine();
        let key = round_key(&self.round.scope);
        if engine.get_meta(&key).await?.as_deref() == Some(&encode(&self.round)) {
            engine.drop_meta(&key).await?;
        }
        loop {
            let rows = engine.list_meta(&self.prefix(), PAGE).await?;
            for (key, _) in &rows {
                engine.drop_meta(key).await?;
            }
            if rows.len() < PAGE {
                return Ok(());
            }
        }
    }
}

/// Rebuilds that were begun and have not ended.
pub(crate) async fn unfinished(protocol: &Protocol) -> StoreResult<Vec<Round>> {
    let rows = protocol.engine().list_meta(ROUND, PAGE).await?;
    rows.iter().map(|(key, bytes)| decode(key, bytes)).collect()
}
