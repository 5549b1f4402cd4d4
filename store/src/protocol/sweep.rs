//! The sweep (design, section 7): closes journal slots and makes sure that every intent in them has
//! landed and is counted. It is the safety net under the change events, and their replacement.

use std::collections::{BTreeMap, HashSet};

use futures::{StreamExt, stream};
use schema::{Fact, JournalEntry, LaneId, Member, Micros, Shard, ShardKey, Slot, leaf_of};

use super::{Protocol, mutation::mutant};
use crate::{
    StoreError, StoreResult,
    engine::{FactWrite, IndexEntry, LaneState, MAX_COMMIT_MEMBERS},
};

/// Journal entries that are read and worked on at a time.
const SWEEP_PAGE: usize = 512;
/// Slots behind "now" that a process with a clock error may still have used.
const CLOCK_SLACK: Slot = 2;

/// What one pass of the sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// Lanes looked at.
    pub lanes: u64,
    /// Lanes whose process was gone, now closed, swept and retired.
    pub retired: u64,
    /// Slots that held entries.
    pub slots: u64,
    /// Intents found in them.
    pub intents: u64,
    /// Facts that had not landed and were written.
    pub rewritten: u64,
    /// Intents that the store refused, put aside as dead letters.
    pub dead: u64,
    /// Every change answered before this store time is counted.
    pub complete_until: Micros,
    /// Lanes whose process gave a sign of life lately.
    pub live: LanesSwept,
    /// Lanes whose process is silent, and that are not retired yet.
    pub gone: LanesSwept,
}

/// How far some lanes are swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LanesSwept {
    /// How many there are.
    pub lanes: u64,
    /// Every intent in them from before this store time is counted; `None`: there are none.
    pub until: Option<Micros>,
}

/// All that the journal wants of one member.
#[derive(Default)]
struct Wanted {
    /// Registers of the intents, joined; `since` is 0 and decided at landing.
    registers: Fact,
    /// Whether some entry was not completed, so that index rows may be missing.
    index_in_doubt: bool,
}

impl Protocol {
    /// One pass over all lanes: every slot that ended at least `sweep_delay` ago is closed, read and
    /// counted. Lanes that were silent for `lane_timeout` are closed to the end and retired.
    /// An unavailable store stops a lane at its slot; the error is returned after the other lanes.
    pub async fn sweep(&self) -> StoreResult<SweepReport> {
        let now = self.clock.now();
        let delay = micros(self.settings.sweep_delay);
        self.sweep_until(self.settings.slot_of(now.saturating_sub(delay)) - 1).await
    }

    /// The same through slot `through`, whatever its age: `slot_of(now)` counts everything that was
    /// answered so far. Slots that have not ended are read but stay open: were they closed, later
    /// answers of the same moment would stand in slots behind the watermark that claims them.
    pub async fn sweep_until(&self, through: Slot) -> StoreResult<SweepReport> {
        let mut report = SweepReport::default();
        let mut failure = None;
        for lane in self.engine.lanes().await? {
            report.lanes += 1;
            let result = match lane.retired {
                true => self.forget_old(&lane).await,
                false => self.sweep_lane(&lane, through, &mut report).await,
            };
            failure = failure.or(result.err());
        }
        // The time first: without a lane it is the bound, and a lane may be registered meanwhile.
        let now = self.clock.now();
        let lanes = self.engine.lanes().await?;
        report.complete_until = self.bound(&lanes, now);
        for lane in lanes.iter().filter(|l| !l.retired) {
            let silent = now.saturating_sub(lane.seen) > micros(self.settings.lane_timeout);
            let sort = if silent { &mut report.gone } else { &mut report.live };
            let until = self.settings.slot_end(lane.swept_through);
            sort.lanes += 1;
            sort.until = Some(sort.until.map_or(until, |other| other.min(until)));
        }
        failure.map_or(Ok(report), Err)
    }

    /// Closes a lane to the end, sweeps all of it, and retires it: for processes known to be gone
    /// (an embedded store was opened, so no earlier process of it lives).
    pub async fn retire(&self, lane: LaneId) -> StoreResult<SweepReport> {
        let mut report = SweepReport::default();
        if let Some(state) = self.engine.lanes().await?.into_iter().find(|l| l.lane == lane && !l.retired) {
            self.retire_lane(&state, &mut report).await?;
        }
        Ok(report)
    }

    async fn sweep_lane(&self, lane: &LaneState, through: Slot, report: &mut SweepReport) -> StoreResult<()> {
        if self.clock.now().saturating_sub(lane.seen) > micros(self.settings.lane_timeout) {
            return self.retire_lane(lane, report).await;
        }
        let ended = through.min(self.settings.slot_of(self.clock.now()) - 1);
        if ended > lane.swept_through {
            if !mutant!(self, NoClose) {
                // Before anything is read: an entry that comes later finds its slot closed.
                self.engine.close(lane.lane, ended).await?;
            }
            self.sweep_slots(lane, ended, report).await?;
            self.drop_old(lane).await?;
        }
        let mut from = ended.max(lane.swept_through) + 1;
        while through > ended && from <= through + CLOCK_SLACK {
            let Some(slot) = self.engine.next_slot(lane.lane, from, through + CLOCK_SLACK).await? else { break };
            self.sweep_slot(lane.lane, slot, report).await?;
            from = slot + 1;
        }
        Ok(())
    }

    async fn retire_lane(&self, lane: &LaneState, report: &mut SweepReport) -> StoreResult<()> {
        self.engine.close(lane.lane, Slot::MAX).await?;
        // Entries that count saw an open slot before this close, so none lies further ahead.
        let used = if lane.closed_through == Slot::MAX { lane.swept_through } else { lane.closed_through };
        // This clock may be behind the one that the gone process had when it was last seen.
        let seen = self.settings.slot_of(lane.seen.saturating_add(micros(self.settings.lane_timeout)));
        let last = self.settings.slot_of(self.clock.now()).max(used).max(seen) + CLOCK_SLACK;
        self.sweep_slots(lane, last, report).await?;
        self.engine.retire_lane(lane.lane).await?;
        report.retired += 1;
        Ok(())
    }

    async fn sweep_slots(&self, lane: &LaneState, through: Slot, report: &mut SweepReport) -> StoreResult<()> {
        let mut from = lane.swept_through.saturating_add(1);
        while from <= through {
            let Some(slot) = self.engine.next_slot(lane.lane, from, through).await? else { break };
            self.sweep_slot(lane.lane, slot, report).await?;
            self.engine.set_swept(lane.lane, slot).await?;
            from = slot + 1;
        }
        self.engine.set_swept(lane.lane, through).await
    }

    async fn sweep_slot(&self, lane: LaneId, slot: Slot, report: &mut SweepReport) -> StoreResult<()> {
        let mut after = None;
        let mut found = false;
        loop {
            let (entries, end) = self.engine.read_slot(lane, slot, after, SWEEP_PAGE).await?;
            after = entries.last().map(|e| e.id).or(after);
            found |= !entries.is_empty();
            self.sweep_entries((lane, slot), &entries, report).await?;
            if end {
                report.slots += u64::from(found);
                return Ok(());
            }
        }
    }

    /// Lands and counts what `entries` want, shard by shard.
    async fn sweep_entries(
        &self,
        (lane, slot): (LaneId, Slot),
        entries: &[JournalEntry],
        report: &mut SweepReport,
    ) -> StoreResult<()> {
        let landed: HashSet<u64> = entries.iter().flat_map(|e| e.landed.iter().copied()).collect();
        let mut groups: BTreeMap<ShardKey, BTreeMap<Member, Wanted>> = BTreeMap::new();
        for entry in entries {
            report.intents += entry.intents.len() as u64;
            for intent in &entry.intents {
                let root = intent.key.shard(Shard::ROOT);
                let wanted = groups.entry(root).or_default().entry(intent.key.member.clone()).or_default();
                wanted.registers = wanted.registers.join(Fact::of(intent.register, intent.version, intent.value, 0));
                wanted.index_in_doubt |= !landed.contains(&entry.id);
            }
        }
        let work = groups.into_iter().map(|(root, wanted)| async move {
            let result = self.sweep_target(&root, wanted).await;
            (root, result)
        });
        let mut results = stream::iter(work).buffer_unordered(self.settings.parallel.max(1));
        let mut away = None;
        // The other targets are counted whatever becomes of one.
        while let Some((root, result)) = results.next().await {
            match result {
                Ok((rewritten, dead)) => {
                    report.rewritten += rewritten;
                    report.dead += dead;
                    if dead > 0 {
                        // The journal's place is what a followed request and its dead letter have in common.
                        tracing::error!(%lane, slot, dead, target = %root.target, kind = %root.kind, "dead letters of this journal slot");
                    }
                }
                // These rows will not get better by waiting, and one target must not stop the lane.
                Err(error @ (StoreError::Refused(_) | StoreError::Damaged(_))) => {
                    report.dead += 1;
                    let (target, kind) = (&root.target, &root.kind);
                    tracing::error!(%error, %lane, slot, %target, %kind, "not swept: put aside as a dead letter");
                    let key = format!("dead/{}/{}", root.target, root.kind);
                    self.engine.put_meta(&key, error.to_string().as_bytes()).await?;
                }
                Err(error) => away = away.or(Some(error)),
            }
        }
        away.map_or(Ok(()), Err)
    }

    /// One (target, kind): (facts written again, dead letters).
    async fn sweep_target(&self, root: &ShardKey, wanted: BTreeMap<Member, Wanted>) -> StoreResult<(u64, u64)> {
        let wanted: Vec<(Member, Wanted)> = wanted.into_iter().collect();
        let (mut rewritten, mut dead) = (0, 0);
        let mut by_shard: BTreeMap<Shard, Vec<Member>> = BTreeMap::new();
        for chunk in wanted.chunks(MAX_COMMIT_MEMBERS) {
            let members: Vec<Member> = chunk.iter().map(|(m, _)| m.clone()).collect();
            let read = self.engine.read_facts(root, &members).await?;
            match read.head.and_then(|h| h.level()) {
                None => {
                    let (written, refused) = self.land(root, chunk, &read.facts).await?;
                    rewritten += written;
                    dead += refused;
                    by_shard.entry(Shard::ROOT).or_default().extend(members);
                }
                Some(level) => {
                    let mut leaves: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
                    for (i, member) in members.iter().enumerate() {
                        leaves.entry(leaf_of(member, level)).or_default().push(i);
                    }
                    for (leaf, at) in leaves {
                        let key = root.with_shard(leaf);
                        let wanted: Vec<&(Member, Wanted)> = at.iter().map(|&i| &chunk[i]).collect();
                        let (written, refused) = self.sweep_leaf(&key, &wanted, by_shard.entry(leaf).or_default()).await?;
                        rewritten += written;
                        dead += refused;
                    }
                    // A promotion that was cut off is finished, and what somebody still wrote to the
                    // root is moved on.
                    let left = members.iter().zip(&read.facts).filter(|(_, f)| f.is_some()).map(|(m, _)| m.clone());
                    by_shard.entry(Shard::ROOT).or_default().extend(left);
                }
            }
        }
        // A leaf of which everything is proven has its counter already.
        by_shard.retain(|shard, members| shard.is_root() || !members.is_empty());
        for (shard, members) in by_shard {
            self.reconcile(&root.with_shard(shard), &members).await?;
        }
        Ok((rewritten, dead))
    }

    /// Members of one leaf. A ledger row at or past the intent proves that it landed and is counted,
    /// so that only the others' facts are read. The counter is written all the same, from the head
    /// that was read *with* those rows: another read might bring an older head, whose counter would
    /// lose, while the proven rows are not asked about again.
    async fn sweep_leaf(
        &self,
        leaf: &ShardKey,
        wanted: &[&(Member, Wanted)],
        count: &mut Vec<Member>,
    ) -> StoreResult<(u64, u64)> {
        let members: Vec<Member> = wanted.iter().map(|(m, _)| m.clone()).collect();
        let ledger = self.read_whole(leaf, &members).await?;
        let head = ledger.head.filter(|h| h.complete);
        let mut open = Vec::new();
        for (&(member, want), row) in wanted.iter().zip(&ledger.rows) {
            let counted = head.is_some() && row.is_some_and(|r| covers(&r.fact, &want.registers));
            if !counted || want.index_in_doubt {
                open.push((member.clone(), Wanted { registers: want.registers, index_in_doubt: want.index_in_doubt }));
            }
            if !counted {
                count.push(member.clone());
            }
        }
        if let Some(head) = head.filter(|_| !mutant!(self, NoFinalPut)) {
            self.put_leaf_counter(leaf, &head).await?;
        }
        let open_members: Vec<Member> = open.iter().map(|(m, _)| m.clone()).collect();
        if open.is_empty() {
            return Ok((0, 0));
        }
        let facts = self.engine.read_facts(leaf, &open_members).await?.facts;
        self.land(leaf, &open, &facts).await
    }

    /// Writes facts that are older than their intents, and index rows that are in doubt.
    async fn land(&self, shard: &ShardKey, wanted: &[(Member, Wanted)], facts: &[Option<Fact>]) -> StoreResult<(u64, u64)> {
        let mut writes = Vec::new();
        let mut index = Vec::new();
        for ((member, want), fact) in wanted.iter().zip(facts) {
            let fact = fact.unwrap_or_default();
            let user = self.index_user(&shard.fact(member));
            if !covers(&fact, &want.registers) {
                writes.push(FactWrite {
                    shard: shard.clone(),
                    member: member.clone(),
                    fact: landing(&want.registers),
                    index: user,
                    seen: None,
                });
            } else if let Some(user) = user.filter(|_| want.index_in_doubt && fact.choice.version > 0) {
                let (kind, target) = (shard.kind.clone(), shard.target.clone());
                index.push(IndexEntry { user, kind, target, row: fact.choice.into() });
            }
        }
        let mut dead = 0;
        for chunk in writes.chunks(MAX_COMMIT_MEMBERS) {
            match self.write_all(chunk).await {
                Ok(()) => {}
                Err(StoreError::Refused(_)) => dead += self.land_one_by_one(chunk).await?,
                Err(error) => return Err(error),
            }
        }
        for result in if index.is_empty() { Vec::new() } else { self.engine.put_index(&index).await } {
            result?;
        }
        Ok((writes.len() as u64 - dead, dead))
    }

    /// After a refusal: the refused ones become dead letters, the others land.
    async fn land_one_by_one(&self, writes: &[FactWrite]) -> StoreResult<u64> {
        let mut dead = 0;
        for write in writes {
            match self.write_all(std::slice::from_ref(write)).await {
                Ok(()) => {}
                Err(StoreError::Refused(reason)) => {
                    dead += 1;
                    let key =
                        format!("dead/{}/{}/{}/{}", write.shard.target, write.shard.kind, write.member, write.fact.newest());
                    tracing::error!(%reason, %key, "the store refused a fact; it is put aside as a dead letter");
                    self.engine.put_meta(&key, &schema::codec::encode_fact(&write.fact)).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(dead)
    }

    /// Every change answered before this store time is counted: the bound of staleness that readers
    /// are given. Without a lane it is store time minus the sweep's delay.
    pub async fn complete_until(&self) -> StoreResult<Micros> {
        // The time first: without a lane it is the bound, and a lane may be registered meanwhile.
        let now = self.clock.now();
        Ok(self.bound(&self.engine.lanes().await?, now))
    }

    fn bound(&self, lanes: &[LaneState], now: Micros) -> Micros {
        let lowest = lanes.iter().filter(|l| !l.retired).map(|l| self.settings.slot_end(l.swept_through)).min();
        lowest.map_or(now.saturating_sub(micros(self.settings.sweep_delay)), |end| end.min(now))
    }

    async fn drop_old(&self, lane: &LaneState) -> StoreResult<()> {
        let kept_from = self.settings.slot_of(self.clock.now().saturating_sub(micros(self.settings.journal_retention)));
        if kept_from > lane.first && lane.swept_through >= kept_from {
            self.engine.drop_slots(lane.lane, kept_from).await
        } else {
            Ok(())
        }
    }

    async fn forget_old(&self, lane: &LaneState) -> StoreResult<()> {
        let kept_from = self.settings.slot_of(self.clock.now().saturating_sub(micros(self.settings.journal_retention)));
        if lane.swept_through >= kept_from {
            return Ok(());
        }
        self.engine.drop_slots(lane.lane, Slot::MAX).await?;
        self.engine.forget_lane(lane.lane).await
    }
}

/// Whether `fact` has every register that `wanted` has, at that version and value or a newer one.
fn covers(fact: &Fact, wanted: &Fact) -> bool {
    let mut joined = fact.join(*wanted);
    // The intent does not know `since`; it decides nothing here.
    joined.choice.since = fact.choice.since;
    joined == *fact
}

/// The registers to write for an intent that has not landed. Its own request may yet write the same
/// version, with a `since` that this process cannot know, after this slot is done with: the largest
/// that it can be makes that write change nothing.
fn landing(wanted: &Fact) -> Fact {
    let mut out = *wanted;
    out.choice.since = if out.choice.choice == 0 { 0 } else { out.choice.version };
    out
}

fn micros(duration: std::time::Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}
