//! Runs as they are stored and shown.

use schema::{KindName, Micros, Reason, StatusRow, TargetKey, UserKey};
use serde::{Deserialize, Serialize};
use store::{StoreError, StoreResult};

use crate::{Operator, Refused};

/// What a run works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "of")]
pub enum What {
    /// Members of one (target, kind).
    Members {
        /// The target.
        target: TargetKey,
        /// The kind.
        kind: KindName,
        /// How many members.
        members: u64,
    },
    /// All facts of a user, of every kind that is listed by user.
    User {
        /// The user.
        user: UserKey,
    },
    /// What an earlier run changed.
    Undo {
        /// That run.
        run: u64,
        /// How many registers it changed.
        members: u64,
    },
}

impl What {
    /// The namespace of what it works on, where it says so itself.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Members { target, .. } => Some(target.namespace()),
            Self::User { user } => Some(user.namespace()),
            Self::Undo { .. } => None,
        }
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// It waits for its turn.
    Queued,
    /// It is under way.
    Running,
    /// It has ended.
    Done,
    /// It was ended by an operator; what it had done by then stays done.
    Cancelled,
    /// It cannot be carried out; `error` says why.
    Failed,
}

/// What became of the registers so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Worked through.
    pub done: u64,
    /// Now as wanted, and not so before.
    pub changed: u64,
    /// So before.
    pub unchanged: u64,
    /// Left alone: written by somebody else since.
    pub superseded: u64,
    /// The store will never take them.
    pub refused: u64,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its number; later runs have larger ones.
    pub id: u64,
    /// Whose targets or users it changes; kept with an undo, whose own run may be forgotten before it.
    #[serde(default)]
    pub namespace: Option<String>,
    /// What it works on.
    pub what: What,
    /// Whether it hides; otherwise it shows.
    pub hides: bool,
    /// For which reason.
    pub reason: Reason,
    /// Name of the key that ordered it.
    pub key: String,
    /// The person who ordered it.
    pub operator: Option<String>,
    /// Why, in the operator's words.
    pub why: String,
    /// A ticket.
    pub ticket: Option<String>,
    /// Where it stands.
    pub state: RunState,
    /// Somebody wants it to end.
    pub cancel: bool,
    /// The status that was set with it; written again when it begins, in case that was cut off.
    pub status: Option<RunStatus>,
    /// When it was ordered, in store time.
    pub queued: Micros,
    /// When it began.
    pub started: Option<Micros>,
    /// When it ended.
    pub ended: Option<Micros>,
    /// What became of the registers; of a run under way, as far as it is known.
    pub totals: Totals,
    /// Why it failed, or what it waits for.
    pub error: Option<String>,
    /// The run that undoes it.
    pub undone_by: Option<u64>,
}

/// A user's status as a run carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStatus {
    /// Whose.
    pub user: UserKey,
    /// Its version.
    pub version: Micros,
    /// The status.
    pub status: schema::Status,
    /// The run that belongs to a suspension.
    pub run: Option<u64>,
}

impl RunStatus {
    /// The row to store.
    pub fn row(&self) -> StatusRow {
        StatusRow { version: self.version, status: self.status, run: self.run }
    }
}

impl Run {
    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, RunState::Done | RunState::Cancelled | RunState::Failed)
    }

    /// Registers that it will work through, where that is known before.
    pub fn size(&self) -> Option<u64> {
        match self.what {
            What::Members { members, .. } | What::Undo { members, .. } => Some(members),
            What::User { .. } => None,
        }
    }

    /// The log of its members, in the order that they are worked through.
    pub(crate) fn members_log(&self) -> String {
        Self::members_log_of(self.id)
    }

    pub(crate) fn members_log_of(id: u64) -> String {
        format!("hide-members/{id:016x}")
    }

    /// The log of its chunks.
    pub(crate) fn chunks_log(id: u64) -> String {
        format!("hide-chunks/{id:016x}")
    }
}

/// Runs, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPage {
    /// What was found.
    pub runs: Vec<Run>,
    /// Where to go on; `None`: this is the end.
    pub next: Option<u64>,
}

/// Runs that one page looks at for those that were asked for.
const SCANNED: usize = 1000;
/// Ids of runs that have not ended, in order.
const QUEUE: &str = "hide-queue";
/// Ids of all runs, by the time of their order.
pub(crate) const INDEX: &str = "hide-runs";

pub(crate) fn record_key(id: u64) -> String {
    format!("hide-run/{id:016x}")
}

fn damaged(what: &str, error: &serde_json::Error) -> StoreError {
    StoreError::Damaged(format!("{what}: {error}"))
}

impl Operator {
    /// One run.
    pub async fn get(&self, id: u64) -> Result<Run, Refused> {
        if let Some(run) = self.live().get(&id) {
            return Ok(run.clone());
        }
        match self.load(id).await? {
            Some(run) => Ok(run),
            None => Err(self.missing(id).await?),
        }
    }

    /// Up to `limit` runs, newest first, behind `after`, of namespaces that `wanted` takes. Looks at a
    /// bounded number of runs, so a page may be shorter, or empty, before the end.
    pub async fn list(
        &self,
        after: Option<u64>,
        limit: usize,
        wanted: impl Fn(Option<&str>) -> bool + Send + Sync,
    ) -> StoreResult<RunPage> {
        let mut page = RunPage { runs: Vec::new(), next: after };
        let mut scanned = 0;
        loop {
            let place = page.next.map(|id| (Micros::try_from(id).unwrap_or(Micros::MAX), 0));
            let (found, end) = self.0.protocol.engine().page_log(INDEX, true, place, (limit + 1).min(SCANNED)).await?;
            scanned += found.len();
            for entry in &found {
                if page.runs.len() == limit {
                    return Ok(page);
                }
                let id = entry.at.cast_unsigned();
                page.next = Some(id);
                let live = self.live().get(&id).cloned();
                let run = match live {
                    Some(run) => Some(run),
                    None => self.load(id).await?,
                };
                if let Some(run) = run
                    && wanted(self.namespace_of(&run).await?.as_deref())
                {
                    page.runs.push(run);
                }
            }
            if end {
                return Ok(RunPage { next: None, ..page });
            }
            if scanned >= SCANNED {
                return Ok(page);
            }
        }
    }

    /// Whose targets or users a run changes; `None`: not known any more.
    pub async fn namespace_of(&self, run: &Run) -> StoreResult<Option<String>> {
        let (mut namespace, mut what) = (run.namespace.clone(), run.what.clone());
        // Records of an earlier version do not say it of an undo. Each undoes an older run, so this ends.
        while let (None, What::Undo { run, .. }) = (&namespace, &what) {
            let Some(of) = self.load(*run).await? else { return Ok(None) };
            (namespace, what) = (of.namespace, of.what);
        }
        Ok(namespace.or_else(|| what.namespace().map(str::to_owned)))
    }

    pub(crate) async fn load(&self, id: u64) -> StoreResult<Option<Run>> {
        let bytes = self.0.protocol.engine().get_meta(&record_key(id)).await?;
        bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(|e| damaged(&record_key(id), &e))).transpose()
    }

    pub(crate) async fn save(&self, run: &Run) -> StoreResult<()> {
        let bytes = serde_json::to_vec(run).expect("texts and numbers always serialise");
        self.0.protocol.engine().put_meta(&record_key(run.id), &bytes).await
    }

    pub(crate) async fn save_queue(&self, ids: &[u64]) -> StoreResult<()> {
        let bytes = serde_json::to_vec(ids).expect("numbers always serialise");
        self.0.protocol.engine().put_meta(QUEUE, &bytes).await
    }

    pub(crate) async fn load_queue(&self) -> StoreResult<Vec<u64>> {
        let bytes = self.0.protocol.engine().get_meta(QUEUE).await?;
        bytes.map_or(Ok(Vec::new()), |bytes| serde_json::from_slice(&bytes).map_err(|e| damaged(QUEUE, &e)))
    }
}
