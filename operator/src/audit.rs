//! The audit log: who did what to what, why, and what it was before and after.

use schema::Micros;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{StoreError, StoreResult};

use crate::{Operator, Refused, Who};

/// Longest reason, in bytes; tickets and names of operators have a quarter of it.
pub const MAX_TEXT: usize = 1024;
const LOG: &str = "audit";
/// Entries that one page looks at for those that were asked for.
const SCANNED: usize = 2000;
/// Format that this version writes.
const FORMAT: u8 = 1;

/// One action of one operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Store time; no two entries have the same.
    #[serde(with = "as_text")]
    pub at: Micros,
    /// The name of the key that was presented.
    pub key: String,
    /// The person, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// What was done, as `hide` or `set-status`.
    pub action: String,
    /// What it was done to.
    pub on: String,
    /// The operator's reason.
    pub why: String,
    /// A ticket, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// What was so before.
    pub before: Value,
    /// What was asked for.
    pub after: Value,
    /// Set where the entry tells that an action announced by an earlier one was not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u8,
    #[serde(flatten)]
    entry: AuditEntry,
}

/// Which entries are asked for.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Those of this person or key.
    pub operator: Option<String>,
    /// Those of this action.
    pub action: Option<String>,
}

/// Entries, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditPage {
    /// What was found.
    pub entries: Vec<AuditEntry>,
    /// Where to go on; `None`: this is the end. A page may be empty before it.
    pub next: Option<Micros>,
}

impl AuditFilter {
    fn wants(&self, entry: &AuditEntry) -> bool {
        let named = |who: &String| entry.operator.as_ref() == Some(who) || entry.key == *who;
        self.operator.as_ref().is_none_or(named) && self.action.as_ref().is_none_or(|action| entry.action == *action)
    }
}

impl Who {
    /// Checks lengths, and that there is a reason.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        let short = [("operator", &self.operator), ("ticket", &self.ticket)];
        for (field, text) in short.into_iter().filter_map(|(field, text)| Some((field, text.as_ref()?))) {
            if text.is_empty() || text.len() > MAX_TEXT / 4 || text.chars().any(char::is_control) {
                return Err(Refused::bad(field, format!("1 to {} bytes without control characters", MAX_TEXT / 4)));
            }
        }
        if self.why.trim().is_empty() || self.why.len() > MAX_TEXT {
            return Err(Refused::bad("why", format!("say why, in at most {MAX_TEXT} bytes")));
        }
        Ok(())
    }
}

impl Operator {
    /// Writes an entry, durable when `Ok`. Written *before* the action, so that no action can be
    /// without one; where the action then fails, [`Self::audit_failed`] says so.
    pub async fn audit(&self, who: &Who, action: &str, on: &str, before: Value, after: Value) -> Result<AuditEntry, Refused> {
        who.check()?;
        let entry = AuditEntry {
            at: self.moment(),
            key: who.key.clone(),
            operator: who.operator.clone(),
            action: action.to_owned(),
            on: on.to_owned(),
            why: who.why.clone(),
            ticket: who.ticket.clone(),
            before,
            after,
            failed: None,
        };
        self.append(&entry).await?;
        Ok(entry)
    }

    /// Says that what `entry` announced was not carried out. A store that is away may not take it.
    pub async fn audit_failed(&self, entry: &AuditEntry, error: &(dyn std::fmt::Display + Sync)) {
        let failed = AuditEntry { at: self.moment(), failed: Some(error.to_string()), ..entry.clone() };
        if let Err(unwritten) = self.append(&failed).await {
            tracing::warn!(error = %unwritten, action = %entry.action, on = %entry.on, "the audit log could not be told of a failure");
        }
    }

    async fn append(&self, entry: &AuditEntry) -> StoreResult<()> {
        let stored = Stored { format: FORMAT, entry: entry.clone() };
        let bytes = serde_json::to_vec(&stored).expect("texts, numbers and JSON always serialise");
        self.0.protocol.engine().append_log(LOG, entry.at, 0, &bytes).await
    }

    /// Up to `limit` entries, newest first, behind `after`.
    pub async fn audit_page(&self, filter: &AuditFilter, after: Option<Micros>, limit: usize) -> StoreResult<AuditPage> {
        let mut page = AuditPage { entries: Vec::new(), next: after };
        let mut scanned = 0;
        loop {
            let want = (limit + 1).min(SCANNED);
            let (found, end) = self.0.protocol.engine().page_log(LOG, true, page.next.map(|at| (at, 0)), want).await?;
            scanned += found.len();
            for entry in found {
                if page.entries.len() == limit {
                    return Ok(page);
                }
                let stored: Stored = serde_json::from_slice(&entry.value)
                    .map_err(|e| StoreError::Damaged(format!("audit entry of {}: {e}", entry.at)))?;
                page.next = Some(entry.at);
                if filter.wants(&stored.entry) {
                    page.entries.push(stored.entry);
                }
            }
            if end {
                return Ok(AuditPage { next: None, ..page });
            }
            if scanned >= SCANNED {
                return Ok(page);
            }
        }
    }
}

/// Versions and times travel as strings.
pub(crate) mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(at: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(at)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
