//! Ledgers: one compare-and-set domain for each leaf, with some history for stale reads.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

use async_trait::async_trait;
use rand::RngExt;
use schema::{Choice, LedgerHead, LedgerRow, Member, Micros, ShardKey};

use super::{HISTORY, Memory, State, script::CommitFate};
use crate::{
    StoreError, StoreResult,
    engine::{CommitOutcome, LedgerCommit, LedgerPage, LedgerRead, LedgerTable, MAX_COMMIT_MEMBERS, TimeRow},
};

/// A leaf's ledger at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerState {
    /// The head.
    pub head: Option<LedgerHead>,
    /// Rows by member.
    pub rows: BTreeMap<Member, LedgerRow>,
    /// Time rows in list order, with their choice.
    pub times: BTreeMap<Reverse<(Micros, Member)>, Choice>,
}

/// The newest state last; never empty.
pub(super) struct Ledger {
    pub states: VecDeque<LedgerState>,
    /// Commits whose outcome nobody was told, and which may yet be applied.
    pub pending: Vec<LedgerCommit>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { states: VecDeque::from([LedgerState::default()]), pending: Vec::new() }
    }
}

impl Ledger {
    pub fn now(&self) -> &LedgerState {
        self.states.back().expect("never empty")
    }

    fn ago(&self, commits: usize) -> &LedgerState {
        &self.states[self.states.len().saturating_sub(1 + commits)]
    }
}

impl LedgerState {
    fn apply(&mut self, commit: &LedgerCommit) {
        for change in &commit.rows {
            if let Some(at) = change.old_time() {
                self.times.remove(&Reverse((at, change.member.clone())));
            }
        }
        for (at, member) in &commit.drop_times {
            self.times.remove(&Reverse((*at, member.clone())));
        }
        for (member, _) in &commit.drop_rows {
            self.rows.remove(member);
        }
        for change in &commit.rows {
            if let Some((at, choice)) = change.new_time() {
                self.times.insert(Reverse((at, change.member.clone())), choice);
            }
            self.rows.insert(change.member.clone(), LedgerRow { fact: change.fact, revision: commit.head.revision });
        }
        for time in &commit.put_times {
            self.times.insert(Reverse((time.at, time.member.clone())), time.choice);
        }
        self.head = Some(commit.head.clone());
    }
}

impl State {
    fn fits(&self, now: &LedgerState, commit: &LedgerCommit) -> bool {
        let head = now.head.as_ref().map(|h| h.revision) == commit.expect_revision;
        let rows = |same: &dyn Fn(Option<&schema::Fact>, Option<&schema::Fact>) -> bool| {
            let changed = commit.rows.iter().map(|c| (&c.member, c.expect.as_ref()));
            let dropped = commit.drop_rows.iter().map(|(m, f)| (m, Some(f)));
            changed.chain(dropped).all(|(m, expect)| same(now.rows.get(m).map(|r| &r.fact), expect))
        };
        #[cfg(feature = "mutations")]
        match self.commit_check {
            super::CommitCheck::Full => {}
            super::CommitCheck::Nothing => return true,
            super::CommitCheck::HeadOnly => return head,
            super::CommitCheck::VersionOnly => {
                let versions = |f: Option<&schema::Fact>| f.map(|f| (f.choice.version, f.hides.map(|h| h.version)));
                return head && rows(&|a, b| versions(a) == versions(b));
            }
        }
        head && rows(&|a, b| a == b)
    }

    fn try_apply(&mut self, leaf: &ShardKey, commit: &LedgerCommit) -> CommitOutcome {
        let mut ledger = self.ledgers.remove(leaf).unwrap_or_default();
        let outcome = if self.fits(ledger.now(), commit) {
            let mut next = ledger.now().clone();
            next.apply(commit);
            self.changes += 1;
            ledger.states.push_back(next);
            if ledger.states.len() > HISTORY {
                ledger.states.pop_front();
            }
            CommitOutcome::Applied
        } else {
            CommitOutcome::Conflict
        };
        self.ledgers.insert(leaf.clone(), ledger);
        outcome
    }

    /// A commit whose outcome is open may be finished by whoever comes next.
    pub(super) fn settle_commits(&mut self) {
        let open: Vec<ShardKey> = self.ledgers.iter().filter(|(_, l)| !l.pending.is_empty()).map(|(k, _)| k.clone()).collect();
        for leaf in open {
            if self.rng.random_bool(0.3) {
                let commit = self.ledgers.get_mut(&leaf).and_then(|l| l.pending.pop());
                if let Some(commit) = commit {
                    self.try_apply(&leaf, &commit);
                }
            }
        }
    }

    fn commit(&mut self, leaf: &ShardKey, commit: &LedgerCommit) -> StoreResult<CommitOutcome> {
        if commit.rows.len() > MAX_COMMIT_MEMBERS {
            return Err(StoreError::Refused(format!("a commit has at most {MAX_COMMIT_MEMBERS} rows")));
        }
        let unknown = Err(StoreError::Unknown("the commit was not answered".into()));
        match self.script.commits.get_mut(leaf).and_then(VecDeque::pop_front) {
            Some(CommitFate::UnknownDone) => {
                self.try_apply(leaf, commit);
                return unknown;
            }
            Some(CommitFate::UnknownLost) => return unknown,
            None => {}
        }
        if self.chance(self.faults.commit_unknown) {
            match self.rng.random_range(0..3u8) {
                0 => {}
                1 => drop(self.try_apply(leaf, commit)),
                _ => self.ledgers.entry(leaf.clone()).or_default().pending.push(commit.clone()),
            }
            return unknown;
        }
        Ok(self.try_apply(leaf, commit))
    }

    fn read_ledger(&mut self, leaf: &ShardKey, members: &[Member]) -> LedgerRead {
        let scripted = self.script.reads.get_mut(leaf).and_then(VecDeque::pop_front);
        let stale = self.faults.stale;
        let ago = |state: &mut Self, scripted: Option<usize>| match scripted {
            Some(commits) => commits,
            None if state.chance(stale) => state.rng.random_range(0..HISTORY - 1),
            None => 0,
        };
        let back: Vec<usize> = members.iter().map(|_| ago(self, scripted.map(|s| s.rows))).collect();
        let head_back = ago(self, scripted.map(|s| s.head));
        let ledger = self.ledgers.entry(leaf.clone()).or_default();
        LedgerRead {
            head: ledger.ago(head_back).head.clone(),
            rows: members.iter().zip(back).map(|(m, back)| ledger.ago(back).rows.get(m).copied()).collect(),
        }
    }
}

#[async_trait]
impl LedgerTable for Memory {
    async fn read_ledger(&self, leaf: &ShardKey, members: &[Member]) -> StoreResult<LedgerRead> {
        self.step(|state| Ok(state.read_ledger(leaf, members))).await
    }

    async fn page_ledger(&self, leaf: &ShardKey, after: Option<&Member>, limit: usize) -> StoreResult<LedgerPage> {
        // Serial reads, the head before the rows: two effects with a gap between them.
        let head = self.step(|state| state.ledgers.get(leaf).and_then(|l| l.now().head.clone())).await;
        self.step(|state| {
            let Some(ledger) = state.ledgers.get(leaf) else { return Ok(LedgerPage { head, rows: Vec::new(), end: true }) };
            let mut rest = ledger.now().rows.iter().filter(|(m, _)| after.is_none_or(|a| *m > a));
            let rows: Vec<_> = rest.by_ref().take(limit.max(1)).map(|(m, r)| (m.clone(), *r)).collect();
            Ok(LedgerPage { head, rows, end: rest.next().is_none() })
        })
        .await
    }

    async fn page_times(
        &self,
        leaf: &ShardKey,
        after: Option<&(Micros, Member)>,
        limit: usize,
    ) -> StoreResult<(Vec<TimeRow>, bool)> {
        self.step(|state| {
            let Some(ledger) = state.ledgers.get(leaf) else { return Ok((Vec::new(), true)) };
            let mut rest = ledger.now().times.iter().filter(|(Reverse(key), _)| after.is_none_or(|a| key < a));
            let taken = rest.by_ref().take(limit.max(1));
            let rows: Vec<_> =
                taken.map(|(Reverse((at, member)), &choice)| TimeRow { at: *at, member: member.clone(), choice }).collect();
            Ok((rows, rest.next().is_none()))
        })
        .await
    }

    async fn commit(&self, leaf: &ShardKey, commit: &LedgerCommit) -> StoreResult<CommitOutcome> {
        self.step(|state| state.commit(leaf, commit)).await
    }

    async fn drop_ledger(&self, leaf: &ShardKey) -> StoreResult<()> {
        self.step(|state| {
            state.changes += 1;
            state.ledgers.remove(leaf);
            Ok(())
        })
        .await
    }
}
