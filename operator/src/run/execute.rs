//! Carrying runs out.
//!
//! A chunk is decided, recorded with the versions that its registers get, and then written at those
//! versions. So it may be cut off anywhere and repeated as it is; and an undo, which writes one
//! version above, applies exactly where the register still is what this run made of it.

use std::time::Duration;

use schema::{FactKey, HideChunk, HideItem, KindName, Member, Micros, Register, TargetKey, UserKey, codec};
use store::{
    StoreError, StoreResult,
    protocol::{Outcome, WriteRequest},
};

use super::order::register_of;
use crate::{
    Operator,
    record::{Run, RunState, Totals, What},
};

/// Longest step of a wait, so that an order to end is heard.
const STEP: Duration = Duration::from_millis(100);

/// Where a run stands.
struct Place {
    seq: Micros,
    pass: u8,
    /// Walks over a user's facts go on behind this.
    after: Option<(KindName, TargetKey)>,
    totals: Totals,
    /// Recorded and maybe not written.
    open: Option<HideChunk>,
}

/// What a source has next.
struct Next {
    keys: Vec<FactKey>,
    after: Option<(KindName, TargetKey)>,
    /// Versions that an undo answers to, for each key.
    answers: Option<Vec<Micros>>,
}

impl Operator {
    /// Carries out runs as they are ordered; does not end. Dropping it is safe at any moment: the
    /// next process goes on.
    pub async fn run(&self) {
        let mut pause = self.0.settings.first_pause;
        loop {
            match self.run_once().await {
                Ok(true) => pause = self.0.settings.first_pause,
                Ok(false) => self.0.wake.notified().await,
                Err(error) => {
                    tracing::warn!(%error, "a hide run waits for the store");
                    self.0.protocol.clock().sleep(pause).await;
                    pause = (pause * 2).min(self.0.settings.max_pause);
                }
            }
        }
    }

    /// Carries out the run whose turn it is, to its end; `false`: there is none. After an error it
    /// may be called again.
    pub async fn run_once(&self) -> StoreResult<bool> {
        let first = self.live().values().next().cloned();
        let Some(run) = first else { return Ok(false) };
        let id = run.id;
        match self.carry_out(run).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_transient() || matches!(error, StoreError::Stopped(_)) => {
                self.update(id, |run| run.error = Some(error.to_string()));
                Err(error)
            }
            Err(error) => {
                tracing::error!(run = id, %error, "a hide run failed");
                self.update(id, |run| run.error = Some(error.to_string()));
                self.end(id, RunState::Failed).await?;
                Ok(true)
            }
        }
    }

    async fn carry_out(&self, mut run: Run) -> StoreResult<()> {
        if let Some(status) = &run.status {
            // Whoever ordered this may have been cut off before it was written.
            let key = schema::StatusKey::User(status.user.clone());
            self.0.protocol.put_status(&key, status.row()).await?;
            self.0.writer.status_changed(&key);
        }
        let now = self.0.protocol.clock().now();
        if run.state == RunState::Queued {
            // An order to end at this moment must not be overwritten by an older record.
            let _turn = self.0.ordering.lock().await;
            let begun = self.update(run.id, |run| (run.state, run.started) = (RunState::Running, Some(now)));
            run = begun.unwrap_or(run);
            self.save(&run).await?;
        }
        let mut place = self.place(&run).await?;
        if let Some(chunk) = place.open.take() {
            self.write(&run, &chunk, &mut place).await?;
        }
        loop {
            if self.wants_end(run.id) {
                return self.end(run.id, RunState::Cancelled).await;
            }
            let began = self.0.protocol.clock().now();
            let Some(next) = self.next(&run, &place).await? else {
                if self.walks_again(&run, &place) {
                    if self.settled(&run).await? {
                        (place.pass, place.after) = (place.pass + 1, None);
                    }
                    continue;
                }
                return self.end(run.id, RunState::Done).await;
            };
            let chunk = self.decide(&run, &place, next).await?;
            place.after.clone_from(&after_of(&chunk)?);
            if !chunk.items.is_empty() {
                place.seq += 1;
                self.0
                    .protocol
                    .engine()
                    .append_log(&Run::chunks_log(run.id), place.seq, 0, &codec::encode_hide_chunk(&chunk))
                    .await?;
                self.write(&run, &chunk, &mut place).await?;
                self.rest(self.0.protocol.clock().now().saturating_sub(began)).await;
            }
        }
    }

    /// Where an interrupted run was: at its last recorded chunk, which is written again as it is.
    async fn place(&self, run: &Run) -> StoreResult<Place> {
        let newest = self.0.protocol.engine().page_log(&Run::chunks_log(run.id), true, None, 1).await?.0.pop();
        let Some(entry) = newest else {
            return Ok(Place { seq: -1, pass: 0, after: None, totals: Totals::default(), open: None });
        };
        let chunk = read_chunk(&entry.value)?;
        let [done, changed, unchanged, superseded, refused] = chunk.before;
        let totals = Totals { done, changed, unchanged, superseded, refused };
        Ok(Place { seq: entry.at, pass: chunk.pass, after: after_of(&chunk)?, totals, open: Some(chunk) })
    }

    /// What comes behind `place`; `None`: this walk has ended.
    async fn next(&self, run: &Run, place: &Place) -> StoreResult<Option<Next>> {
        let engine = self.0.protocol.engine();
        let seq = place.seq + 1;
        let behind = Some((seq - 1, u64::MAX));
        match &run.what {
            What::Members { target, kind, .. } => {
                let page = engine.page_log(&run.members_log(), false, behind, 1).await?.0.pop();
                let Some(page) = page else { return Ok(None) };
                let members = codec::decode_members(&page.value).map_err(|e| StoreError::Damaged(e.to_string()))?;
                let key = |member: Member| FactKey { target: target.clone(), kind: kind.clone(), member };
                Ok(Some(Next { keys: members.into_iter().map(key).collect(), after: None, answers: None }))
            }
            What::Undo { run: of, .. } => {
                let page = engine.page_log(&Run::chunks_log(*of), false, behind, 1).await?.0.pop();
                let Some(page) = page else { return Ok(None) };
                // Also those that were so before: an empty chunk is none, and the places must agree.
                let items = read_chunk(&page.value)?.items;
                let (keys, answers) = items.into_iter().map(|i| (i.key, if i.changes { i.version } else { 0 })).unzip();
                Ok(Some(Next { keys, after: None, answers: Some(answers) }))
            }
            What::User { user } => self.next_of_user(user, place.after.clone()).await,
        }
    }

    /// The next facts of a user that hold a choice, kind by kind.
    async fn next_of_user(&self, user: &UserKey, after: Option<(KindName, TargetKey)>) -> StoreResult<Option<Next>> {
        let engine = self.0.protocol.engine();
        let kinds: Vec<KindName> =
            self.0.protocol.settings().kinds.iter().filter(|k| k.by_user).map(|k| k.name.clone()).collect();
        let (mut i, mut behind) = match after {
            Some((kind, target)) => (kinds.iter().position(|k| *k == kind).unwrap_or(kinds.len()), Some(target)),
            None => (0, None),
        };
        while let Some(kind) = kinds.get(i) {
            let (rows, _) = engine.page_index(user, kind, behind.as_ref(), self.0.settings.chunk.clamp(1, 500)).await?;
            let Some((last, _)) = rows.last() else {
                (i, behind) = (i + 1, None);
                continue;
            };
            let after = Some((kind.clone(), last.clone()));
            let key = |target: TargetKey| FactKey { target, kind: kind.clone(), member: user.member() };
            let keys = rows.into_iter().filter(|(_, row)| row.choice != 0).map(|(target, _)| key(target)).collect();
            return Ok(Some(Next { keys, after, answers: None }));
        }
        Ok(None)
    }

    /// Gives each register its version and says whether it changes.
    async fn decide(&self, run: &Run, place: &Place, next: Next) -> StoreResult<HideChunk> {
        let Next { keys, after, answers } = next;
        let value = u8::from(run.hides);
        let items = match answers {
            // One above what the other run wrote: whatever was written since is newer, and stays.
            Some(answers) => keys
                .into_iter()
                .zip(answers)
                .map(|(key, version)| HideItem { key, version: version.saturating_add(1), changes: version > 0 })
                .collect(),
            None => {
                let facts = self.0.protocol.facts(&keys).await?;
                let now = self.0.protocol.clock().now();
                let item = |(key, fact): (FactKey, schema::Fact)| {
                    let (before, value_before) = register_of(&fact, run.reason);
                    let version = now.max(before.saturating_add(1));
                    HideItem { key, version, changes: value_before != value }
                };
                // A later walk looks for what the first one could not see.
                let wanted = |item: &HideItem| place.pass == 0 || item.changes;
                keys.into_iter().zip(facts).map(item).filter(wanted).collect()
            }
        };
        let t = place.totals;
        let after = after.map(|(kind, target)| (kind.as_str().to_owned(), target.as_str().to_owned()));
        let before = [t.done, t.changed, t.unchanged, t.superseded, t.refused];
        Ok(HideChunk { items, pass: place.pass, after, before })
    }

    /// Writes a recorded chunk, again and again at the same versions, until the store has it all.
    async fn write(&self, run: &Run, chunk: &HideChunk, place: &mut Place) -> StoreResult<()> {
        let undo = matches!(run.what, What::Undo { .. });
        let request = |item: &HideItem| WriteRequest {
            key: item.key.clone(),
            register: Register::Hide(run.reason),
            value: u8::from(run.hides),
            at: Some(item.version),
        };
        // What the other run had not changed is not touched.
        let mut open: Vec<usize> = (0..chunk.items.len()).filter(|&i| !undo || chunk.items[i].changes).collect();
        let mut totals = Totals { done: chunk.items.len() as u64, ..Totals::default() };
        totals.done -= if undo { (chunk.items.len() - open.len()) as u64 } else { 0 };
        let mut pause = self.0.settings.first_pause;
        while !open.is_empty() {
            let requests = open.iter().map(|&i| request(&chunk.items[i])).collect();
            let answers = self.0.writer.write_many(requests).await;
            let mut waits = None;
            let mut again = Vec::new();
            for (&i, answer) in open.iter().zip(answers) {
                let tally = match answer.map(|written| written.outcome) {
                    Ok(Outcome::Superseded) => &mut totals.superseded,
                    Ok(Outcome::Refused(text)) => {
                        tracing::warn!(run = run.id, key = ?chunk.items[i].key, %text, "the store refuses a register");
                        &mut totals.refused
                    }
                    Ok(Outcome::Applied | Outcome::Unchanged | Outcome::Accepted) if chunk.items[i].changes => {
                        &mut totals.changed
                    }
                    Ok(Outcome::Applied | Outcome::Unchanged | Outcome::Accepted) => &mut totals.unchanged,
                    Ok(Outcome::Unavailable(text) | Outcome::Unknown(text)) | Err(text) => {
                        waits = Some(text);
                        again.push(i);
                        continue;
                    }
                };
                *tally += 1;
            }
            open = again;
            if let Some(text) = waits {
                self.update(run.id, |run| run.error = Some(format!("waits: {text}")));
                self.0.protocol.clock().sleep(pause).await;
                pause = (pause * 2).min(self.0.settings.max_pause);
            }
        }
        self.0.metrics.chunk([totals.changed, totals.unchanged, totals.superseded, totals.refused]);
        let sum = &mut place.totals;
        sum.done += totals.done;
        sum.changed += totals.changed;
        sum.unchanged += totals.unchanged;
        sum.superseded += totals.superseded;
        sum.refused += totals.refused;
        let sum = *sum;
        self.update(run.id, |run| (run.totals, run.error) = (sum, None));
        Ok(())
    }

    async fn rest(&self, took: Micros) {
        let took = Duration::from_micros(took.unsigned_abs());
        self.0.protocol.clock().sleep(took.saturating_mul(self.0.settings.rest).min(self.0.settings.max_pause)).await;
    }

    /// A suspension walks twice: requests that were admitted before it may still have been landing.
    fn walks_again(&self, run: &Run, place: &Place) -> bool {
        run.status.is_some() && run.hides && place.pass == 0
    }

    /// Whether everything that was admitted before the status counted has landed; waits a step.
    async fn settled(&self, run: &Run) -> StoreResult<bool> {
        let protocol = &self.0.protocol;
        let since = run.status.as_ref().map_or(0, |status| status.version);
        let wait = self.0.settings.status_age + protocol.settings().deadline;
        let until = since.saturating_add(Micros::try_from(wait.as_micros()).unwrap_or(Micros::MAX));
        // Where journal and facts are two steps, what was answered `accepted` is landed by the sweep.
        let landed = protocol.engine().fused().is_some() || protocol.complete_until().await? >= until;
        if landed && protocol.clock().now() >= until {
            return Ok(true);
        }
        protocol.clock().sleep(STEP).await;
        Ok(false)
    }

    fn wants_end(&self, id: u64) -> bool {
        self.live().get(&id).is_none_or(|run| run.cancel)
    }

    /// Changes a run that has not ended.
    fn update(&self, id: u64, change: impl FnOnce(&mut Run)) -> Option<Run> {
        let mut live = self.live();
        let run = live.get_mut(&id)?;
        change(run);
        Some(run.clone())
    }

    /// Stores the end of a run, and takes it out of the queue.
    async fn end(&self, id: u64, state: RunState) -> StoreResult<()> {
        let _turn = self.0.ordering.lock().await;
        let now = self.0.protocol.clock().now();
        let Some(run) = self.live().get(&id).cloned() else { return Ok(()) };
        let ended = Run { state, ended: Some(now), ..run };
        self.save(&ended).await?;
        let rest: Vec<u64> = self.live().keys().copied().filter(|live| *live != id).collect();
        self.save_queue(&rest).await?;
        self.live().remove(&id);
        let word = match state {
            RunState::Cancelled => "cancelled",
            RunState::Failed => "failed",
            _ => "done",
        };
        self.0.metrics.runs.with_label_values(&[word]).inc();
        self.0.metrics.waiting.set(i64::try_from(rest.len()).unwrap_or(i64::MAX));
        let t = ended.totals;
        tracing::info!(
            run = id,
            done = t.done,
            changed = t.changed,
            superseded = t.superseded,
            refused = t.refused,
            "hide run {word}"
        );
        // Its chunks name everybody: the list is not needed again. A loss here costs space only.
        if let (What::Members { .. }, Err(error)) = (&ended.what, self.0.protocol.engine().drop_log(&ended.members_log()).await) {
            tracing::debug!(run = id, %error, "the members of a run that has ended stay stored");
        }
        Ok(())
    }
}

fn read_chunk(bytes: &[u8]) -> StoreResult<HideChunk> {
    codec::decode_hide_chunk(bytes).map_err(|e| StoreError::Damaged(e.to_string()))
}

fn after_of(chunk: &HideChunk) -> StoreResult<Option<(KindName, TargetKey)>> {
    let Some((kind, target)) = &chunk.after else { return Ok(None) };
    let parsed = KindName::parse(kind).ok().zip(TargetKey::parse(target).ok());
    parsed.map(Some).ok_or_else(|| StoreError::Damaged("hide chunk: its place".into()))
}
