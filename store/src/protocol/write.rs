//! Writing facts (design, section 5): read, journal, version, write.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use futures::future::join_all;
use schema::{Fact, FactKey, Intent, JournalEntry, Micros, Register, RootHead, Shard, ShardKey, Slot, UserKey, leaf_of};

use super::{Lane, Protocol, mutation::mutant};
use crate::{
    StoreError, StoreResult,
    engine::{FactWrite, FusedLanding, Landing, MAX_COMMIT_MEMBERS, Seen},
};

/// How long a level counts as young: as long as some request may still have the root in hand.
const LEVEL_SETTLES: Micros = 600 * 1_000_000;
/// Most (target, kind)s that are remembered as large.
const MAX_KNOWN_LARGE: usize = 65_536;
/// First pause before a failed store call is repeated; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// One register of one fact to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRequest {
    /// Which fact.
    pub key: FactKey,
    /// Which register.
    pub register: Register,
    /// The choice (0 withdraws), or 1/0 for hidden or not.
    pub value: u8,
    /// Imports only: when it happened, as version and `since`; at most the store's time.
    pub at: Option<Micros>,
}

/// What a request was answered; the promises are those of the design's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Durable at its version, and different from before.
    Applied,
    /// It was already so; durable at its (new) version.
    Unchanged,
    /// An import met a newer fact and changed nothing.
    Superseded,
    /// The intent is durable; the sweep will land it unless a newer one supersedes it.
    Accepted,
    /// Nothing was written; may be sent again.
    Unavailable(String),
    /// Not confirmed; may be sent again.
    Unknown(String),
    /// The store will never take this row.
    Refused(String),
}

/// The answer to one [`WriteRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// What became of it.
    pub outcome: Outcome,
    /// Version of the register that the answer speaks of; 0 where nothing is promised.
    pub version: Micros,
    /// The fact as this request leaves it, as far as it could be read.
    pub fact: Fact,
    /// Where it was written; the change event's shard.
    pub shard: Shard,
    /// The journal entry that holds its intent, where one is durable.
    pub journalled: Option<EntryPlace>,
}

impl Written {
    /// Whether a change event is due: the fact is in the store.
    pub fn landed(&self) -> bool {
        matches!(self.outcome, Outcome::Applied | Outcome::Unchanged)
    }

    /// An answer that promises nothing.
    pub fn failed(outcome: Outcome) -> Self {
        Self { outcome, version: 0, fact: Fact::default(), shard: Shard::ROOT, journalled: None }
    }
}

/// A journal entry whose facts have all landed: tell the sweep, after the answers have gone out.
#[derive(Debug)]
#[must_use = "hand it to Protocol::complete, or the sweep writes index rows again"]
pub struct Completion {
    slot: Slot,
    lane: schema::LaneId,
    entry: JournalEntry,
}

/// A fact as read before it is written.
#[derive(Debug, Clone, Copy, Default)]
struct Current {
    shard: Shard,
    fact: Fact,
    /// The row of that shard alone.
    seen: Option<Seen>,
}

/// A request with everything that was decided about it.
struct Planned {
    version: Micros,
    outcome: Outcome,
    /// `None`: nothing needs to be written.
    write: Option<FactWrite>,
    fact: Fact,
    shard: Shard,
}

/// Where a journal entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPlace {
    /// The lane of the process that wrote it.
    pub lane: schema::LaneId,
    /// The slot of that lane.
    pub slot: Slot,
    /// The entry's number.
    pub id: u64,
}

impl Protocol {
    /// Writes registers of *different* facts: the caller serialises its requests for one
    /// (target, kind, member). One answer for each request, in order, by the deadline.
    pub async fn write(&self, lane: &Lane, requests: &[WriteRequest]) -> (Vec<Written>, Option<Completion>) {
        let deadline = self.clock.now().saturating_add(i64::try_from(self.settings.deadline.as_micros()).unwrap_or(i64::MAX));
        match self.engine.fused() {
            Some(fused) => (self.write_fused(fused, lane, requests, deadline).await, None),
            None => self.write_apart(lane, requests, deadline).await,
        }
    }

    /// Adds the completion row. Its loss costs the sweep some work, nothing else.
    pub async fn complete(&self, done: Completion) {
        if let Err(error) = self.engine.append(done.lane, done.slot, &done.entry).await {
            tracing::debug!(%error, "completion row not written; the sweep writes index rows again");
        }
    }

    /// One writer: read, decide, then journal and land in one atomic step.
    async fn write_fused(
        &self,
        fused: &dyn FusedLanding,
        lane: &Lane,
        requests: &[WriteRequest],
        deadline: Micros,
    ) -> Vec<Written> {
        let current = match self.until(deadline, || self.read_current(requests)).await {
            Ok(current) => current,
            Err(error) => return requests.iter().map(|_| Written::failed(Outcome::Unavailable(error.to_string()))).collect(),
        };
        let now = self.clock.now();
        let planned: Vec<Planned> = requests.iter().zip(current).map(|(r, c)| self.plan(r, c, now)).collect();
        let writes: Vec<FactWrite> = planned.iter().filter_map(|p| p.write.clone()).collect();
        let landed = if writes.is_empty() {
            Ok(None)
        } else {
            let intents = intents(requests, &planned);
            let id = lane.next_entry();
            // Shared with the attempts below; the smallest value means that no slot was found closed.
            let closed = AtomicI64::new(Slot::MIN);
            self.until(deadline, || {
                let (writes, intents) = (writes.clone(), intents.clone());
                let (lane_id, slot) = (lane.id(), self.open_slot(Some(closed.load(Ordering::Relaxed))));
                let closed = &closed;
                async move {
                    match fused.land(lane_id, slot, JournalEntry { id, intents, landed: vec![id] }, writes).await? {
                        Landing::Landed => Ok(Some(EntryPlace { lane: lane_id, slot, id })),
                        Landing::SlotClosed(through) if through < Slot::MAX => {
                            closed.store(through, Ordering::Relaxed);
                            Err(StoreError::Unavailable("the journal slot was closed".into()))
                        }
                        Landing::SlotClosed(_) | Landing::LaneGone => {
                            self.renew_lane(lane, lane_id).await?;
                            Err(StoreError::Unavailable("the journal lane was retired".into()))
                        }
                    }
                }
            })
            .await
        };
        self.remember(requests, &planned);
        planned.into_iter().map(|p| p.answer(landed.clone())).collect()
    }

    /// Many writers: read and journal side by side, then the facts.
    async fn write_apart(&self, lane: &Lane, requests: &[WriteRequest], deadline: Micros) -> (Vec<Written>, Option<Completion>) {
        let mut requests: Vec<WriteRequest> = requests.to_vec();
        if mutant!(self, OneRegister) {
            requests.iter_mut().filter(|r| r.register != Register::Choice).for_each(|r| {
                r.register = Register::Choice;
                r.value = 0;
            });
        }
        let requests = requests.as_slice();
        let first = self.clock.now();
        let intend = |version: &dyn Fn(usize) -> Micros, which: &dyn Fn(usize) -> bool| -> Vec<Intent> {
            let all = requests.iter().enumerate().filter(|(i, _)| which(*i));
            all.map(|(i, r)| Intent { key: r.key.clone(), register: r.register, version: version(i), value: r.value }).collect()
        };
        let provisional = |i: usize| requests[i].at.unwrap_or(first);
        // A fault that decides before it journals has to read before it journals.
        let early = mutant!(self, SkipNoop) || mutant!(self, SkipSecond);
        let (current, journalled) = if early {
            let current = self.until(deadline, || self.read_current(requests)).await;
            let skip: Vec<bool> = match &current {
                Ok(current) => requests.iter().zip(current).map(|(r, c)| self.plan(r, *c, first).write.is_none()).collect(),
                Err(_) => vec![false; requests.len()],
            };
            let intents = intend(&provisional, &|i| !skip[i]);
            (current, self.journal(lane, intents, deadline).await)
        } else {
            let intents = intend(&provisional, &|_| true);
            futures::join!(self.until(deadline, || self.read_current(requests)), self.journal(lane, intents, deadline))
        };
        let mut entries = match journalled {
            Ok(entry) => vec![entry],
            Err(error) => {
                let outcome = match error {
                    StoreError::Unknown(text) => Outcome::Unknown(text),
                    StoreError::Refused(text) => Outcome::Refused(text),
                    other => Outcome::Unavailable(other.to_string()),
                };
                return (requests.iter().map(|_| Written::failed(outcome.clone())).collect(), None);
            }
        };
        let Ok(current) = current else {
            // The intents are durable: the sweep lands them at these versions.
            let journalled = entries.first().copied();
            let accepted = |i| Written { version: provisional(i), journalled, ..Written::failed(Outcome::Accepted) };
            return ((0..requests.len()).map(accepted).collect(), None);
        };
        let mut planned: Vec<Planned> = requests.iter().zip(current).map(|(r, c)| self.plan(r, c, first)).collect();
        let moved = |planned: &[Planned], i: usize| planned[i].write.is_some() && planned[i].version != provisional(i);
        let again = intend(&|i| planned[i].version, &|i| moved(&planned, i));
        let mut unsure = None;
        if !again.is_empty() {
            match self.journal(lane, again, deadline).await {
                Ok(entry) => entries.push(entry),
                Err(error) => unsure = Some(error),
            }
        }
        if let Some(error) = unsure {
            // Without its intent a write must not happen: its answer could not be kept.
            for (i, p) in planned.iter_mut().enumerate() {
                if p.write.is_some() && p.version != provisional(i) {
                    p.write = None;
                    p.outcome = Outcome::Unknown(error.to_string());
                }
            }
        }
        let results = self.land_apart(&planned, deadline).await;
        self.remember(requests, &planned);
        let whole = results.iter().all(Option::is_none) && planned.iter().all(|p| !matches!(p.outcome, Outcome::Unknown(_)));
        // What was moved has its intent in the second entry.
        let places: Vec<Option<EntryPlace>> =
            (0..planned.len()).map(|i| if moved(&planned, i) { entries.get(1) } else { entries.first() }.copied()).collect();
        let answers = planned.into_iter().zip(results).zip(places).map(|((p, error), place)| p.answer_journalled(error, place));
        let answers: Vec<Written> = answers.collect();
        let completion = entries.last().filter(|_| whole && !mutant!(self, NoJournal)).map(|last| Completion {
            slot: last.slot,
            lane: last.lane,
            entry: JournalEntry {
                id: lane.next_entry(),
                intents: Vec::new(),
                // Only entries of the completion's own slot can be named in it.
                landed: entries.iter().filter(|e| e.slot == last.slot && e.lane == last.lane).map(|e| e.id).collect(),
            },
        });
        (answers, completion)
    }

    /// Writes what is planned, repeating the same versions until the deadline. For each request the
    /// last error, `None` where it landed or needed no write.
    async fn land_apart(&self, planned: &[Planned], deadline: Micros) -> Vec<Option<StoreError>> {
        let mut errors: Vec<Option<StoreError>> = vec![None; planned.len()];
        let mut open: Vec<usize> = (0..planned.len()).filter(|&i| planned[i].write.is_some()).collect();
        let mut pause = FIRST_PAUSE;
        while !open.is_empty() {
            let writes: Vec<FactWrite> = open.iter().filter_map(|&i| planned[i].write.clone()).collect();
            for (&i, result) in open.iter().zip(self.engine.write_facts(&writes).await) {
                errors[i] = result.err();
            }
            open.retain(|&i| errors[i].as_ref().is_some_and(StoreError::is_transient));
            if open.is_empty() || self.clock.now() >= deadline {
                break;
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
        errors
    }

    /// Makes intents durable in an open slot of the lane.
    async fn journal(&self, lane: &Lane, intents: Vec<Intent>, deadline: Micros) -> StoreResult<EntryPlace> {
        let mut slot = self.open_slot(None);
        let entry = JournalEntry { id: lane.next_entry(), intents, landed: Vec::new() };
        if mutant!(self, NoJournal) || entry.intents.is_empty() {
            return Ok(EntryPlace { lane: lane.id(), slot, id: entry.id });
        }
        let mut stands = false;
        loop {
            let id = lane.id();
            let appended = self.until(deadline, || self.engine.append(id, slot, &entry)).await;
            appended.map_err(|e| if stands { unknown(e) } else { e })?;
            stands = true;
            if mutant!(self, NoClose) {
                return Ok(EntryPlace { lane: id, slot, id: entry.id });
            }
            // The entry stands. It counts only if the sweep has not closed the slot before.
            match self.until(deadline, || self.engine.closed_through(id)).await.map_err(unknown)? {
                Some(through) if through < slot => return Ok(EntryPlace { lane: id, slot, id: entry.id }),
                Some(through) if through < Slot::MAX => slot = self.open_slot(Some(through)),
                _ => {
                    self.until(deadline, || self.renew_lane(lane, id)).await.map_err(unknown)?;
                    slot = self.open_slot(None);
                }
            }
            if self.clock.now() >= deadline {
                return Err(StoreError::Unknown("no open journal slot was found in time".into()));
            }
        }
    }

    /// Decides version, outcome and write of one request from what was read.
    fn plan(&self, request: &WriteRequest, current: Current, now: Micros) -> Planned {
        let Current { shard, fact, seen } = current;
        let (before, value_before) = fact.register(request.register);
        let version = request.at.unwrap_or(now.max(before.saturating_add(1)));
        let done = |outcome, version, write: Option<FactWrite>| {
            let after = write.as_ref().map_or(fact, |w| fact.join(w.fact));
            Planned { version, outcome, write, fact: after, shard }
        };
        if request.at.is_some() && before > 0 && (before, value_before) >= (version, request.value) {
            // The join would change nothing, now or later: quorum reads saw the newer register.
            let same = (before, value_before) == (version, request.value);
            return done(if same { Outcome::Unchanged } else { Outcome::Superseded }, before, None);
        }
        let same = value_before == request.value;
        if same && (mutant!(self, SkipNoop) || mutant!(self, SkipSecond) && self.landed_lately(request, now)) {
            return done(Outcome::Unchanged, before, None);
        }
        // A repeated choice keeps its place in every list. A withdrawn one has none: where it ties with
        // a choice of the same version, the larger of each field is then still what that one wrote.
        let since = match request.value {
            0 => 0,
            _ if same && before > 0 && request.register == Register::Choice => fact.choice.since,
            _ => version,
        };
        let written = Fact::of(request.register, version, request.value, since);
        let write = FactWrite {
            shard: request.key.shard(shard),
            member: request.key.member.clone(),
            fact: written,
            index: self.index_user(&request.key).filter(|_| request.register == Register::Choice),
            seen,
        };
        done(if same { Outcome::Unchanged } else { Outcome::Applied }, version, Some(write))
    }

    /// The user whose list holds this fact, if its kind is listed by user.
    pub(super) fn index_user(&self, key: &FactKey) -> Option<UserKey> {
        let listed = self.settings.kinds.get(key.kind.as_str()).is_some_and(|k| k.by_user);
        listed.then(|| UserKey::of(&key.target, &key.member))
    }

    /// Reads every request's fact where it is now, one query for each (target, kind) and leaf.
    async fn read_current(&self, requests: &[WriteRequest]) -> StoreResult<Vec<Current>> {
        let mut groups: BTreeMap<(&schema::TargetKey, &schema::KindName), Vec<usize>> = BTreeMap::new();
        for (i, r) in requests.iter().enumerate() {
            groups.entry((&r.key.target, &r.key.kind)).or_default().push(i);
        }
        let mut out = vec![Current::default(); requests.len()];
        let chunks: Vec<Vec<usize>> =
            groups.into_values().flat_map(|g| g.chunks(MAX_COMMIT_MEMBERS).map(<[usize]>::to_vec).collect::<Vec<_>>()).collect();
        let reads = join_all(chunks.iter().map(|chunk| self.read_group(requests, chunk))).await;
        for (chunk, read) in chunks.iter().zip(reads) {
            for (&i, current) in chunk.iter().zip(read?) {
                out[i] = current;
            }
        }
        Ok(out)
    }

    /// Registers as they are stored now, one for each key, in order.
    pub async fn facts(&self, keys: &[FactKey]) -> StoreResult<Vec<Fact>> {
        let ask = |key: &FactKey| WriteRequest { key: key.clone(), register: Register::Choice, value: 0, at: None };
        let asked: Vec<WriteRequest> = keys.iter().map(ask).collect();
        Ok(self.read_current(&asked).await?.into_iter().map(|current| current.fact).collect())
    }

    /// Facts of one (target, kind), at most 99.
    async fn read_group(&self, requests: &[WriteRequest], chunk: &[usize]) -> StoreResult<Vec<Current>> {
        let root = requests[chunk[0]].key.shard(Shard::ROOT);
        let members: Vec<_> = chunk.iter().map(|&i| requests[i].key.member.clone()).collect();
        let known = self.known_large(&root).filter(|head| self.clock.now() - head.level_at > LEVEL_SETTLES);
        let (head, at_root, as_of) = match known {
            Some(head) => (head, vec![None; members.len()], 0),
            None => {
                let read = self.engine.read_facts(&root, &members).await?;
                (read.head.unwrap_or_default(), read.facts, read.as_of)
            }
        };
        let Some(level) = head.level() else {
            let here = |fact: Option<Fact>| {
                let seen = Some(Seen { fact, as_of, nowhere: fact.is_none() });
                Current { shard: Shard::ROOT, fact: fact.unwrap_or_default(), seen }
            };
            return Ok(at_root.into_iter().map(here).collect());
        };
        self.know_large(&root, head);
        let leaf =
            |(m, fact): (_, Option<Fact>)| Current { shard: leaf_of(m, level), fact: fact.unwrap_or_default(), seen: None };
        let mut out: Vec<Current> = members.iter().zip(at_root).map(leaf).collect();
        let mut by_leaf: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        for (i, current) in out.iter().enumerate() {
            by_leaf.entry(current.shard).or_default().push(i);
        }
        let reads = join_all(by_leaf.iter().map(|(&leaf, at)| {
            let wanted: Vec<_> = at.iter().map(|&i| members[i].clone()).collect();
            let key = root.with_shard(leaf);
            async move { self.engine.read_facts(&key, &wanted).await }
        }))
        .await;
        for (at, read) in by_leaf.values().zip(reads) {
            let read = read?;
            for (&i, fact) in at.iter().zip(read.facts) {
                let joined = out[i].fact.join(fact.unwrap_or_default());
                // Rows of a root that has settled are all in its leaves.
                let nowhere = joined == Fact::default();
                out[i] = Current { fact: joined, seen: Some(Seen { fact, as_of: read.as_of, nowhere }), ..out[i] };
            }
        }
        Ok(out)
    }

    fn known_large(&self, root: &ShardKey) -> Option<RootHead> {
        self.large.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(root).copied()
    }

    fn know_large(&self, root: &ShardKey, head: RootHead) {
        let mut large = self.large.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if large.len() >= MAX_KNOWN_LARGE && !large.contains_key(root) {
            large.clear(); // A hint only: it is learned again.
        }
        large.insert(root.clone(), head);
    }

    /// Repeats a call that may be repeated, with growing pauses, until it succeeds, fails for good,
    /// or the deadline has passed.
    pub(super) async fn until<T, F, G>(&self, deadline: Micros, mut call: G) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
        G: FnMut() -> F,
    {
        let mut pause = FIRST_PAUSE;
        let mut doubt = false;
        loop {
            let error = match call().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            doubt |= matches!(error, StoreError::Unknown(_));
            if !error.is_transient() || self.clock.now() >= deadline {
                // One unknown try is enough for the whole to be unknown.
                return Err(if doubt { unknown(error) } else { error });
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    #[cfg(not(feature = "mutations"))]
    fn remember(&self, _: &[WriteRequest], _: &[Planned]) {}

    #[cfg(feature = "mutations")]
    fn remember(&self, requests: &[WriteRequest], planned: &[Planned]) {
        let mut lately = self.lately.lock().expect("no panic while held");
        for (r, p) in requests.iter().zip(planned).filter(|(_, p)| p.write.is_some()) {
            lately.insert((r.key.clone(), r.register), (p.version, r.value));
        }
    }

    /// Whether this process landed the wanted state a moment ago (for the fault `skip-second`).
    #[cfg(feature = "mutations")]
    fn landed_lately(&self, request: &WriteRequest, now: Micros) -> bool {
        let lately = self.lately.lock().expect("no panic while held");
        lately.get(&(request.key.clone(), request.register)).is_some_and(|&(at, v)| v == request.value && now - at <= 60_000_000)
    }

    #[cfg(not(feature = "mutations"))]
    fn landed_lately(&self, _: &WriteRequest, _: Micros) -> bool {
        false
    }
}

impl Planned {
    /// The answer where journal and facts are one step: nothing is promised on an error.
    fn answer(self, landed: StoreResult<Option<EntryPlace>>) -> Written {
        let outcome = match landed {
            Err(error) if self.write.is_some() => match error {
                StoreError::Unknown(text) => Outcome::Unknown(text),
                StoreError::Refused(text) => Outcome::Refused(text),
                other => Outcome::Unavailable(other.to_string()),
            },
            landed => {
                let journalled = landed.ok().flatten().filter(|_| self.write.is_some());
                return Written { outcome: self.outcome, version: self.version, fact: self.fact, shard: self.shard, journalled };
            }
        };
        Written { fact: self.fact, shard: self.shard, ..Written::failed(outcome) }
    }

    /// The answer where the intent is already durable: what did not land is `accepted`.
    fn answer_journalled(self, error: Option<StoreError>, journalled: Option<EntryPlace>) -> Written {
        let outcome = match error {
            None => self.outcome,
            Some(StoreError::Refused(text)) => Outcome::Refused(text),
            Some(_) => Outcome::Accepted,
        };
        Written { outcome, version: self.version, fact: self.fact, shard: self.shard, journalled }
    }
}

fn intents(requests: &[WriteRequest], planned: &[Planned]) -> Vec<Intent> {
    let written = requests.iter().zip(planned).filter(|(_, p)| p.write.is_some());
    written.map(|(r, p)| Intent { key: r.key.clone(), register: r.register, version: p.version, value: r.value }).collect()
}

/// After an append that may stand, every failure leaves the whole unknown.
fn unknown(error: StoreError) -> StoreError {
    match error {
        StoreError::Refused(_) | StoreError::Unknown(_) => error,
        other => StoreError::Unknown(other.to_string()),
    }
}
