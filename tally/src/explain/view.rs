//! What is stored about one fact, as JSON.

use std::collections::BTreeMap;

use schema::{Choice, Counts, Fact, FactKey, Kind, Micros, Reason, Register, Status, StatusRow};
use serde::{Deserialize, Serialize};
use store::{
    Settings,
    protocol::{Explained, FoundIntent},
};

/// Microseconds as text: JSON numbers would lose digits in some readers.
type MicrosText = String;

/// The answer of `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// In one sentence: what holds, whether it is counted, what is pending.
    pub summary: String,
    /// The same at length, a line each; the first is the summary.
    pub words: Vec<String>,
    /// Whose ids these are.
    pub namespace: String,
    /// Id of the target.
    pub target: String,
    /// What is counted.
    pub kind: String,
    /// Id of the member.
    pub member: String,
    /// Store time of the answer.
    pub now: MicrosText,
    /// The registers; `null`: nothing was ever written.
    pub fact: Option<FactView>,
    /// Proof that this very state is in the counter; `false`: not known yet.
    pub counted: bool,
    /// What is still to be done, in words; empty: nothing.
    pub pending: Vec<String>,
    /// Where the fact is stored.
    pub stored: StoredView,
    /// The leaf's ledger (large targets).
    pub ledger: Option<LedgerView>,
    /// The counter row of the fact's shard; `null`: there is none.
    pub counter: Option<CounterView>,
    /// The member's own list; `null`: the kind has no users, or there is no row.
    pub index: Option<IndexView>,
    /// What an operator has said of the target.
    pub target_status: StatusView,
    /// What an operator has said of the user; `null`: the kind's members are no users.
    pub user_status: Option<StatusView>,
    /// What the journal says of this fact.
    pub journal: JournalView,
    /// Every change answered before this store time is counted.
    pub complete_until: MicrosText,
}

/// The registers of a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactView {
    /// What the member picked; `null`: withdrawn, or never picked.
    pub choice: Option<String>,
    /// When the choice last changed; `null` where there is none.
    pub since: Option<MicrosText>,
    /// Version of the choice; `null`: only hidden in advance.
    pub version: Option<MicrosText>,
    /// Registers that hide, those that were ever written.
    pub hides: BTreeMap<String, HideView>,
}

/// One register that hides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HideView {
    /// Whether it hides.
    pub hidden: bool,
    /// Its version.
    pub version: MicrosText,
}

/// Where a fact is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredView {
    /// `small`: one partition; `large`: leaves.
    pub layout: String,
    /// 1: the root; 16 and more: a leaf.
    pub shard: u16,
    /// Depth of the leaves of a large target.
    pub level: Option<u8>,
    /// Level that readers sum; a promotion is under way where it is not `level`.
    pub shown_level: Option<u8>,
    /// When the target became large.
    pub large_since: Option<MicrosText>,
    /// Fact rows in the root, as far as they are read: one more than a small target has.
    pub root_rows: usize,
    /// Raised by each repair of the counter of a small target.
    pub epoch: MicrosText,
    /// What the root still holds of a large target's fact.
    pub left_in_root: Option<FactView>,
}

/// A leaf's ledger, as far as it concerns the member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerView {
    /// The head; `null`: the leaf was never counted.
    pub head: Option<HeadView>,
    /// The member's row; `null`: not counted yet.
    pub row: Option<LedgerRowView>,
}

/// Head of a leaf's ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadView {
    /// Grows with each commit.
    pub revision: MicrosText,
    /// Whether all facts of the leaf are in it.
    pub complete: bool,
    /// Counted rows by choice.
    pub counts: BTreeMap<String, i64>,
    /// Newest version that was counted.
    pub as_of: MicrosText,
    /// Member up to which a recount under way has come.
    pub audit_at: Option<String>,
}

/// The member's ledger row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRowView {
    /// The registers as they were counted.
    #[serde(flatten)]
    pub fact: FactView,
    /// Revision of the commit that counted them.
    pub revision: MicrosText,
}

/// A counter row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterView {
    /// What decides which of two rows wins.
    pub order: MicrosText,
    /// Breaks ties of `order`.
    pub rank: String,
    /// Members by choice.
    pub counts: BTreeMap<String, i64>,
    /// Newest version that was counted.
    pub as_of: MicrosText,
    /// Counts that the row is due to have, where they can be told at once (small targets).
    pub due: Option<BTreeMap<String, i64>>,
}

/// The row in the member's own list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexView {
    /// The choice; `null`: withdrawn.
    pub choice: Option<String>,
    /// Its place in the list.
    pub since: MicrosText,
    /// Its version.
    pub version: MicrosText,
    /// Whether it is the fact's.
    pub agrees: bool,
}

/// A status as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusView {
    /// `open`, `closed` or `gone`; `active` or `suspended`.
    pub status: Status,
    /// Since when, in store time; `null`: never set.
    pub since: Option<MicrosText>,
    /// The hide run of a suspension.
    pub run: Option<String>,
}

impl StatusView {
    fn of(row: Option<StatusRow>, usual: Status) -> Self {
        Self {
            status: row.map_or(usual, |row| row.status),
            since: row.map(|row| text(row.version)),
            run: row.and_then(|row| row.run).map(|run| run.to_string()),
        }
    }
}

/// What the journal says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalView {
    /// Intents that name this fact, at most 100: in slots that are not swept, and in recent ones.
    pub intents: Vec<IntentView>,
    /// Whether every slot that is not swept was looked at to its end.
    pub whole: bool,
}

/// An intent that names the fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentView {
    /// The process that journalled it.
    pub lane: String,
    /// Number of the slot.
    pub slot: i64,
    /// When the slot began, as store time.
    pub slot_began: MicrosText,
    /// `choice`, `moderation`, `suspension` or `fraud`.
    pub register: String,
    /// Name of the choice (`null` withdraws), or `hidden`/`shown`.
    pub value: Option<String>,
    /// The version that it gives.
    pub version: MicrosText,
    /// Whether the fact holds it, or something newer.
    pub landed: bool,
    /// Whether the sweep is through with the slot.
    pub swept: bool,
}

/// Name of a choice, or its number where the kind does not have it.
fn name(kind: Option<&Kind>, choice: Choice) -> String {
    kind.and_then(|k| k.choice_name(choice)).map_or_else(|| choice.to_string(), str::to_owned)
}

fn counts(kind: Option<&Kind>, counts: &Counts) -> BTreeMap<String, i64> {
    counts.iter().map(|(choice, n)| (name(kind, choice), n)).collect()
}

fn text(at: Micros) -> MicrosText {
    at.to_string()
}

fn fact(kind: Option<&Kind>, fact: &Fact) -> FactView {
    let choice = fact.choice;
    let hides = Reason::ALL.iter().zip(fact.hides).filter(|(_, hide)| hide.version > 0);
    let hide = |(reason, hide): (&Reason, schema::HideRegister)| {
        (reason.name().to_owned(), HideView { hidden: hide.value != 0, version: text(hide.version) })
    };
    FactView {
        choice: (choice.choice != 0).then(|| name(kind, choice.choice)),
        since: (choice.choice != 0).then(|| text(choice.since)),
        version: (choice.version > 0).then(|| text(choice.version)),
        hides: hides.map(hide).collect(),
    }
}

fn intent(kind: Option<&Kind>, settings: &Settings, found: &FoundIntent) -> IntentView {
    let (register, value) = match (found.intent.register, found.intent.value) {
        (Register::Choice, 0) => ("choice", None),
        (Register::Choice, choice) => ("choice", Some(name(kind, choice))),
        (Register::Hide(reason), 0) => (reason.name(), Some("shown".to_owned())),
        (Register::Hide(reason), _) => (reason.name(), Some("hidden".to_owned())),
    };
    IntentView {
        lane: found.lane.to_string(),
        slot: found.slot,
        slot_began: text(settings.slot_end(found.slot.saturating_sub(1))),
        register: register.to_owned(),
        value,
        version: text(found.intent.version),
        landed: found.landed,
        swept: found.swept,
    }
}

/// The view of `explained`, still without words.
pub(super) fn of(key: &FactKey, kind: Option<&Kind>, settings: &Settings, explained: &Explained) -> Explanation {
    let e = explained;
    let level = e.root.level();
    let is_written = e.fact != Fact::default();
    Explanation {
        summary: String::new(),
        words: Vec::new(),
        namespace: key.target.namespace().to_owned(),
        target: key.target.id().to_owned(),
        kind: key.kind.to_string(),
        member: key.member.to_string(),
        now: text(e.now),
        fact: is_written.then(|| fact(kind, &e.fact)),
        counted: e.counted,
        pending: pending(explained),
        stored: StoredView {
            layout: if level.is_some() { "large" } else { "small" }.to_owned(),
            shard: e.shard.0,
            level,
            shown_level: e.shown,
            large_since: level.map(|_| text(e.root.level_at)),
            root_rows: e.root_rows,
            epoch: text(e.root.epoch),
            left_in_root: e.left_in_root.as_ref().map(|f| fact(kind, f)),
        },
        ledger: e.ledger.as_ref().map(|(head, row)| LedgerView {
            head: head.as_ref().map(|h| HeadView {
                revision: text(h.revision),
                complete: h.complete,
                counts: counts(kind, &h.counts),
                as_of: text(h.as_of),
                audit_at: h.audit.as_ref().map(|a| a.pos.as_ref().map(ToString::to_string).unwrap_or_default()),
            }),
            row: row.as_ref().map(|r| LedgerRowView { fact: fact(kind, &r.fact), revision: text(r.revision) }),
        }),
        counter: e.counter.as_ref().map(|row| CounterView {
            order: text(row.order),
            rank: row.rank.to_string(),
            counts: counts(kind, &row.counts),
            as_of: text(row.as_of),
            due: e.due.as_ref().map(|due| counts(kind, &due.counts)),
        }),
        index: e.index.as_ref().map(|row| IndexView {
            choice: (row.choice != 0).then(|| name(kind, row.choice)),
            since: text(row.since),
            version: text(row.version),
            agrees: *row == schema::IndexRow::from(e.fact.choice),
        }),
        target_status: StatusView::of(e.target_status, Status::Open),
        user_status: e.user_status.map(|row| StatusView::of(row, Status::Active)),
        journal: JournalView {
            intents: e.intents.iter().map(|found| intent(kind, settings, found)).collect(),
            whole: e.journal_whole,
        },
        complete_until: text(e.complete_until),
    }
}

/// What is still to be done before this fact is at rest.
fn pending(e: &Explained) -> Vec<String> {
    let mut out = Vec::new();
    let waiting = e.intents.iter().filter(|i| !i.landed).count();
    if waiting > 0 {
        out.push(format!("{waiting} journalled change(s) are not in the fact yet: the sweep writes them"));
    }
    if e.fact != Fact::default() && !e.counted {
        out.push("this state is not proven to be counted yet: its change event or the sweep counts it".to_owned());
    }
    if let Some(level) = e.root.level()
        && e.shown != Some(level)
    {
        out.push("the target is becoming large: readers see its leaves once all of them are counted".to_owned());
    }
    if let Some(left) = e.left_in_root.filter(|left| left.join(e.fact) != e.fact) {
        out.push(format!("the root holds a newer copy (version {}): it is moved to the leaf", left.newest()));
    }
    if !e.journal_whole {
        out.push("not known in full: the journal holds more that is not swept than was looked at".to_owned());
    }
    out
}
