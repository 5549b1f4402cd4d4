//! Ordering runs, and ending them.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use schema::{Fact, KindName, Member, Micros, Reason, TargetKey, UserKey, codec};
use serde_json::{Value, json};
use store::StoreResult;

use crate::{
    Operator, Refused, Who,
    record::{INDEX, Run, RunState, RunStatus, Totals, What},
};

/// Most members of one run.
const MAX_MEMBERS: usize = 100_000;
/// Pages of members that are stored side by side.
const SIDE_BY_SIDE: usize = 16;
/// Largest chunk: a journal entry and a log entry hold it.
const MAX_CHUNK: usize = 500;

/// What is to be hidden or shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Members of one (target, kind); those without a fact are hidden in advance.
    Members {
        /// The target.
        target: TargetKey,
        /// The kind.
        kind: KindName,
        /// The members; repeated ones count once.
        members: Vec<Member>,
    },
    /// All facts that a user has when the run comes to them.
    User {
        /// The user.
        user: UserKey,
    },
}

impl Operator {
    /// Orders a run that hides (or shows) for one reason. It is durable when `Ok`, and carried out
    /// in its turn by [`Operator::run`], also after a restart.
    pub async fn order(&self, who: &Who, order: Order, reason: Reason, hides: bool) -> Result<Run, Refused> {
        who.check()?;
        let (what, members) = self.checked(order)?;
        let _turn = self.0.ordering.lock().await;
        self.room()?;
        let run = self.new_run(who, what, reason, hides, None);
        let (action, on) = (if hides { "hide" } else { "show" }, subject(&run.what));
        let entry = self.audit(who, action, &on, Value::Null, describe(&run)).await?;
        let stored = self.enqueue(run, &members, None).await;
        if let Err(error) = &stored {
            self.audit_failed(&entry, error).await;
        }
        stored
    }

    /// Orders a run that takes back what run `id` changed, and nothing else: a register that was
    /// written again since is left alone.
    pub async fn undo(&self, who: &Who, id: u64) -> Result<Run, Refused> {
        who.check()?;
        let _turn = self.0.ordering.lock().await;
        let of = self.get(id).await?;
        if !of.has_ended() {
            return Err(Refused::Conflict(format!("run {id} has not ended; cancel it or wait, then undo it")));
        }
        if let Some(by) = of.undone_by {
            return Err(Refused::Conflict(format!("run {id} is undone by run {by}; undo that one to have it back")));
        }
        if self.is_suspension(&of).await? {
            return Err(Refused::Conflict(format!("run {id} belongs to a suspension; set that user's status to active instead")));
        }
        self.room()?;
        let mut run = self.new_run(who, What::Undo { run: id, members: of.totals.changed }, of.reason, !of.hides, None);
        run.namespace = self.namespace_of(&of).await?;
        let entry = self.audit(who, "undo", &format!("run {id}"), json!(of.totals), describe(&run)).await?;
        let stored = self.enqueue(run, &[], Some(of)).await;
        if let Err(error) = &stored {
            self.audit_failed(&entry, error).await;
        }
        stored
    }

    /// Ends a run at its next chunk. What it had done stays done; an undo takes it back.
    pub async fn cancel(&self, who: &Who, id: u64) -> Result<Run, Refused> {
        who.check()?;
        let _turn = self.0.ordering.lock().await;
        let run = self.get(id).await?;
        if run.has_ended() {
            return Err(Refused::Conflict(format!("run {id} has ended; undo it to take back what it changed")));
        }
        let entry = self.audit(who, "cancel", &format!("run {id}"), json!({"state": run.state}), json!({"cancel": true})).await?;
        let stored = self.mark_cancelled(id).await;
        if let Err(error) = &stored {
            self.audit_failed(&entry, error).await;
        }
        Ok(stored?.unwrap_or(run))
    }

    /// Asks a run to end; `None`: it has ended already.
    pub(crate) async fn mark_cancelled(&self, id: u64) -> StoreResult<Option<Run>> {
        let marked = self.live().get_mut(&id).map(|run| {
            run.cancel = true;
            run.clone()
        });
        let Some(run) = marked else { return Ok(None) };
        self.save(&run).await?;
        // It may have ended between the two: then that is what is to stay stored.
        if self.live().get(&id).is_none_or(Run::has_ended) {
            return self.load(id).await;
        }
        Ok(Some(run))
    }

    /// Loads runs that an earlier process left, in their order. Before anything else, once.
    pub async fn recover(&self) -> StoreResult<()> {
        let engine = self.0.protocol.engine();
        for log in ["audit", INDEX] {
            let newest = engine.page_log(log, true, None, 1).await?.0;
            let newest = newest.first().map_or(0, |entry| entry.at);
            self.0.last.fetch_max(newest, std::sync::atomic::Ordering::SeqCst);
        }
        for id in self.load_queue().await? {
            let Some(run) = self.load(id).await?.filter(|run| !run.has_ended()) else { continue };
            tracing::info!(run = id, state = ?run.state, "a hide run of an earlier process goes on");
            self.live().insert(id, run);
        }
        self.0.metrics.waiting.set(i64::try_from(self.live().len()).unwrap_or(i64::MAX));
        self.0.wake.notify_one();
        Ok(())
    }

    pub(crate) fn room(&self) -> Result<(), Refused> {
        let (waiting, most) = (self.live().len(), self.0.settings.queue.max(1));
        if waiting < most { Ok(()) } else { Err(Refused::Full(waiting)) }
    }

    pub(crate) fn new_run(&self, who: &Who, what: What, reason: Reason, hides: bool, status: Option<RunStatus>) -> Run {
        let queued: Micros = self.moment();
        Run {
            id: queued.unsigned_abs(),
            namespace: what.namespace().map(str::to_owned),
            what,
            hides,
            reason,
            key: who.key.clone(),
            operator: who.operator.clone(),
            why: who.why.clone(),
            ticket: who.ticket.clone(),
            state: RunState::Queued,
            cancel: false,
            status,
            queued,
            started: None,
            ended: None,
            totals: Totals::default(),
            error: None,
            undone_by: None,
        }
    }

    /// Makes a run durable and queues it; `undoes` is the run that it takes back. Until its record is
    /// stored nothing happens: an entry of the index or the queue without a record is no run. The index
    /// comes first, so that whatever is cut off behind it is found, and forgotten in time.
    pub(crate) async fn enqueue(&self, run: Run, members: &[Member], undoes: Option<Run>) -> Result<Run, Refused> {
        let engine = self.0.protocol.engine();
        let log = run.members_log();
        engine.append_log(INDEX, run.queued, 0, b"").await?;
        let pages = members.chunks(self.0.settings.chunk.clamp(1, MAX_CHUNK)).map(codec::encode_members);
        let pages: Vec<(Micros, Vec<u8>)> = (0..).zip(pages).collect();
        for group in pages.chunks(SIDE_BY_SIDE) {
            let puts: Vec<_> = group.iter().map(|(seq, bytes)| engine.append_log(&log, *seq, 0, bytes)).collect();
            try_join_all(puts).await?;
        }
        self.requeue(&run).await?;
        if let Some(of) = undoes {
            self.mark_undone(of, run.id).await?;
        }
        Ok(run)
    }

    /// Puts a run into the queue and stores it. The queue first: whoever is cut off between the two must
    /// not leave a run that waits and is in no queue.
    pub(crate) async fn requeue(&self, run: &Run) -> StoreResult<()> {
        let mut ids: Vec<u64> = self.live().keys().copied().chain([run.id]).collect();
        ids.sort_unstable();
        self.save_queue(&ids).await?;
        self.save(run).await?;
        self.live().insert(run.id, run.clone());
        self.0.metrics.waiting.set(i64::try_from(ids.len()).unwrap_or(i64::MAX));
        self.0.wake.notify_one();
        Ok(())
    }

    async fn mark_undone(&self, mut of: Run, by: u64) -> StoreResult<()> {
        let live = self.live().get_mut(&of.id).map(|run| {
            run.undone_by = Some(by);
            run.clone()
        });
        of = live.unwrap_or(Run { undone_by: Some(by), ..of });
        self.save(&of).await
    }

    fn checked(&self, order: Order) -> Result<(What, Vec<Member>), Refused> {
        match order {
            Order::User { user } => Ok((What::User { user }, Vec::new())),
            Order::Members { target, kind, members } => {
                if self.0.protocol.settings().kinds.get(kind.as_str()).is_none() {
                    return Err(Refused::bad("kind", format!("there is no kind `{kind}`")));
                }
                if members.len() > MAX_MEMBERS {
                    let detail = format!("at most {MAX_MEMBERS} in one run, these are {}; order several runs", members.len());
                    return Err(Refused::bad("members", detail));
                }
                let mut seen = BTreeSet::new();
                let members: Vec<Member> = members.into_iter().filter(|m| seen.insert(m.clone())).collect();
                if members.is_empty() {
                    return Err(Refused::bad("members", "name at least one member"));
                }
                Ok((What::Members { target, kind, members: members.len() as u64 }, members))
            }
        }
    }
}

/// What a run works on, in words.
pub(crate) fn subject(what: &What) -> String {
    match what {
        What::Members { target, kind, .. } => format!("{kind} of target {target}"),
        What::User { user } => format!("user {user}"),
        What::Undo { run, .. } => format!("run {run}"),
    }
}

pub(crate) fn describe(run: &Run) -> Value {
    json!({ "run": run.id.to_string(), "hides": run.hides, "reason": run.reason, "members": run.size() })
}

/// (version, value) that a chunk's item has before it is written.
pub(crate) fn register_of(fact: &Fact, reason: Reason) -> (Micros, u8) {
    fact.register(schema::Register::Hide(reason))
}
