//! Setting statuses: of targets, and of users with the run that hides their facts.

use schema::{Reason, Status, StatusKey, StatusRow, UserKey};
use serde_json::{Value, json};
use store::StoreResult;

use crate::{
    Operator, Refused, Who,
    record::{Run, RunState, RunStatus, What},
};

/// What to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetStatus {
    /// Whose status.
    pub key: StatusKey,
    /// The status.
    pub status: Status,
}

/// What was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The status before.
    pub before: Status,
    /// What is stored now.
    pub row: StatusRow,
    /// The run that hides a suspended user's facts, or takes that back.
    pub run: Option<Run>,
}

impl Operator {
    /// Sets a status; it counts at once in this process. Suspending a user also orders a run that
    /// hides all of their facts, activating one that takes back exactly what that run changed.
    pub async fn set_status(&self, who: &Who, set: &SetStatus) -> Result<Changed, Refused> {
        who.check()?;
        let SetStatus { key, status } = set;
        if !key.statuses().contains(status) {
            let known: Vec<&str> = key.statuses().iter().map(|s| s.name()).collect();
            return Err(Refused::bad("status", format!("one of: {}", known.join(", "))));
        }
        let _turn = self.0.ordering.lock().await;
        let stored = self.0.protocol.status_row(key).await?;
        let before = stored.map_or(key.usual(), |row| row.status);
        let entry = self.audit(who, "set-status", &key.to_string(), json!(before), json!(status)).await?;
        let version = self.0.protocol.next_status_version(stored);
        let changed = match key {
            StatusKey::User(user) => self.set_user(who, user, *status, stored, version).await,
            StatusKey::Target(_) => Ok((StatusRow { version, status: *status, run: None }, None)),
        };
        let done = match changed {
            Ok((row, run)) => {
                self.0.protocol.put_status(key, row).await.map(|()| Changed { before, row, run }).map_err(Refused::from)
            }
            Err(error) => Err(error),
        };
        self.0.writer.status_changed(key);
        if let Err(error) = &done {
            self.audit_failed(&entry, error).await;
        }
        done
    }

    /// The status that is stored, and the run that belongs to a suspension.
    pub async fn status(&self, key: &StatusKey) -> StoreResult<Option<StatusRow>> {
        self.0.protocol.status_row(key).await
    }

    /// Orders the run that goes with a user's status, before the status itself: the run writes the
    /// status too, so being cut off between the two leaves neither alone.
    async fn set_user(
        &self,
        who: &Who,
        user: &UserKey,
        status: Status,
        stored: Option<StatusRow>,
        version: i64,
    ) -> Result<(StatusRow, Option<Run>), Refused> {
        let suspension = stored.filter(|row| row.status == Status::Suspended).and_then(|row| row.run);
        let earlier = match suspension {
            Some(id) => match self.get(id).await {
                Err(Refused::NoRun(_) | Refused::Forgotten { .. }) => None,
                found => Some(found?),
            },
            None => None,
        };
        let carried = |run| Some(RunStatus { user: user.clone(), version, status, run });
        match (status, earlier) {
            // Suspended already: the same run, so that one activation takes all of it back.
            (Status::Suspended, Some(run)) => {
                let run = self.resume(run).await?;
                Ok((StatusRow { version, status, run: Some(run.id) }, Some(run)))
            }
            (Status::Suspended, None) => {
                self.room()?;
                let mut run = self.new_run(who, What::User { user: user.clone() }, Reason::Suspension, true, None);
                run.status = carried(Some(run.id));
                let run = self.enqueue(run, &[], None).await?;
                Ok((StatusRow { version, status, run: Some(run.id) }, Some(run)))
            }
            (_, Some(suspension)) => {
                self.room()?;
                self.mark_cancelled(suspension.id).await?;
                let what = What::Undo { run: suspension.id, members: suspension.totals.changed };
                let mut run = self.new_run(who, what, Reason::Suspension, false, carried(None));
                run.namespace = Some(user.namespace().to_owned());
                let run = self.enqueue(run, &[], Some(suspension)).await?;
                Ok((StatusRow { version, status, run: None }, Some(run)))
            }
            (_, None) => Ok((StatusRow { version, status, run: None }, None)),
        }
    }

    /// Lets a suspension's run that was ended before its time go on.
    async fn resume(&self, run: Run) -> Result<Run, Refused> {
        if !matches!(run.state, RunState::Cancelled | RunState::Failed) {
            return Ok(run);
        }
        self.room()?;
        let run = Run { state: RunState::Queued, cancel: false, ended: None, error: None, ..run };
        self.requeue(&run).await?;
        Ok(run)
    }

    /// Whether `run` hides the facts of a user who is suspended now.
    pub(crate) async fn is_suspension(&self, run: &Run) -> StoreResult<bool> {
        let Some(status) = run.status.as_ref().filter(|_| run.hides) else { return Ok(false) };
        let row = self.0.protocol.status_row(&StatusKey::User(status.user.clone())).await?;
        Ok(row.is_some_and(|row| row.run == Some(run.id)))
    }
}

impl Changed {
    /// For the API and the command line.
    pub fn describe(&self) -> Value {
        json!({
            "status": self.row.status,
            "before": self.before,
            "version": self.row.version.to_string(),
            "run": self.run.as_ref().map(|run| run.id.to_string()),
        })
    }
}
