//! Everything that is stored about one fact, for whoever asks why a number is what it is. Reads only.

use schema::{
    CounterRow, Fact, FactKey, IndexRow, Intent, LaneId, LedgerHead, LedgerRow, Level, Micros, RootHead, Shard, Slot, StatusKey,
    StatusRow, UserKey, leaf_of,
};

use super::Protocol;
use crate::{StoreResult, engine::LaneState};

/// Intents that are looked at for one answer; slots behind that are left out, which the answer says.
pub const MAX_LOOKED_AT: usize = 200_000;
/// Intents that one answer holds.
pub const MAX_INTENTS: usize = 100;
/// Slots behind now that are looked at although they are swept.
pub const RECENT_SLOTS: Slot = 60;
/// Entries that are read at a time.
const PAGE: usize = 128;

/// What is stored about one fact. Not one moment's view: each part is as of its own read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Store time of the answer.
    pub now: Micros,
    /// All registers; the default where nothing was ever written.
    pub fact: Fact,
    /// Proof that these registers are in the counter; `false`: not known yet.
    pub counted: bool,
    /// The partition that the fact is read from.
    pub shard: Shard,
    /// The root's head: level and epoch.
    pub root: RootHead,
    /// Fact rows in the root, at most one more than a small target has.
    pub root_rows: usize,
    /// What the root holds of a large target's fact: left there at promotion, or written late.
    pub left_in_root: Option<Fact>,
    /// The leaf's head and this member's row in its ledger (large targets).
    pub ledger: Option<(Option<LedgerHead>, Option<LedgerRow>)>,
    /// The counter row of `shard`.
    pub counter: Option<CounterRow>,
    /// What that row is due to be, where it can be told from the page (small targets).
    pub due: Option<CounterRow>,
    /// The level that readers sum, once a promotion is through.
    pub shown: Option<Level>,
    /// The member's own index row; `None`: the kind has no users, or there is no row.
    pub index: Option<IndexRow>,
    /// What was ever said of the target.
    pub target_status: Option<StatusRow>,
    /// What was ever said of the user; outside `None`: the kind's members are no users.
    pub user_status: Option<Option<StatusRow>>,
    /// Journal intents that name this fact, oldest first within a lane, those not swept yet before
    /// the others; at most [`MAX_INTENTS`].
    pub intents: Vec<FoundIntent>,
    /// Whether every slot that is not swept was looked at to its end.
    pub journal_whole: bool,
    /// Every change answered before this store time is counted.
    pub complete_until: Micros,
}

/// An intent and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundIntent {
    /// Whose journal.
    pub lane: LaneId,
    /// Which slot of it.
    pub slot: Slot,
    /// What is written.
    pub intent: Intent,
    /// Whether the sweep is through with the slot.
    pub swept: bool,
    /// Whether the fact holds this register or a newer one.
    pub landed: bool,
}

/// What may still be looked at.
struct Search<'a> {
    key: &'a FactKey,
    fact: Fact,
    left: usize,
    found: Vec<FoundIntent>,
}

impl Protocol {
    /// Gathers what is stored about `key`. The journal is searched for at most [`MAX_LOOKED_AT`]
    /// intents: slots that are not swept first, then the last [`RECENT_SLOTS`].
    pub async fn explain(&self, key: &FactKey) -> StoreResult<Explained> {
        let root_key = key.shard(Shard::ROOT);
        let members = std::slice::from_ref(&key.member);
        let state = self.state(key).await?;
        let (root, rows) = self.read_small(&root_key).await?;
        let shard = root.level().map_or(Shard::ROOT, |level| leaf_of(&key.member, level));
        let left = if shard.is_root() { None } else { self.engine.read_facts(&root_key, members).await?.facts.pop().flatten() };
        let ledger = match shard.is_root() {
            true => None,
            false => {
                let mut read = self.engine.read_ledger(&root_key.with_shard(shard), members).await?;
                Some((read.head, read.rows.pop().flatten()))
            }
        };
        let counters = self.engine.read_counters(&key.target).await?;
        let small = shard.is_root() && !rows.is_empty() && rows.len() <= self.settings.small_limit;
        let by_user = self.settings.kinds.get(key.kind.as_str()).is_some_and(|kind| kind.by_user);
        let target_status = self.status_row(&StatusKey::Target(key.target.clone())).await?;
        let (index, user_status) = if by_user {
            let user = UserKey::of(&key.target, &key.member);
            let index = self.engine.read_index(&user, &key.kind, std::slice::from_ref(&key.target)).await?.pop().flatten();
            (index, Some(self.status_row(&StatusKey::User(user)).await?))
        } else {
            (None, None)
        };
        let mut search = Search { key, fact: state.fact, left: MAX_LOOKED_AT, found: Vec::new() };
        let journal_whole = self.search_journal(&mut search).await?;
        Ok(Explained {
            now: self.clock.now(),
            fact: state.fact,
            counted: state.counted,
            shard,
            root,
            root_rows: rows.len(),
            left_in_root: left,
            ledger,
            counter: counters.row(&key.kind, shard).cloned(),
            due: small.then(|| self.small_counter(root, &rows)),
            shown: counters.shown(&key.kind),
            index,
            target_status,
            user_status,
            intents: search.found,
            journal_whole,
            complete_until: self.complete_until().await?,
        })
    }

    /// `false`: a slot that is not swept was left out.
    async fn search_journal(&self, search: &mut Search<'_>) -> StoreResult<bool> {
        let lanes = self.engine.lanes().await?;
        let recent = self.settings.slot_of(self.clock.now()).saturating_sub(RECENT_SLOTS);
        for lane in lanes.iter().filter(|lane| !lane.retired) {
            if !self.search_slots(search, lane, lane.swept_through.saturating_add(1), Slot::MAX).await? {
                return Ok(false);
            }
        }
        for lane in &lanes {
            let to = if lane.retired { Slot::MAX } else { lane.swept_through };
            if !self.search_slots(search, lane, recent.max(lane.first), to).await? {
                break;
            }
        }
        Ok(true)
    }

    /// Looks at the slots of one lane, until nothing may be looked at any more: then `false`.
    async fn search_slots(&self, search: &mut Search<'_>, lane: &LaneState, from: Slot, to: Slot) -> StoreResult<bool> {
        let mut from = from;
        while from <= to {
            let Some(slot) = self.engine.next_slot(lane.lane, from, to).await? else { break };
            let mut after = None;
            loop {
                let (entries, end) = self.engine.read_slot(lane.lane, slot, after, PAGE).await?;
                after = entries.last().map(|e| e.id).or(after);
                for intent in entries.into_iter().flat_map(|e| e.intents) {
                    if search.left == 0 || search.found.len() == MAX_INTENTS {
                        return Ok(false);
                    }
                    search.left -= 1;
                    if intent.key == *search.key {
                        let landed = search.fact.register(intent.register) >= (intent.version, intent.value);
                        let swept = lane.retired || slot <= lane.swept_through;
                        search.found.push(FoundIntent { lane: lane.lane, slot, intent, swept, landed });
                    }
                }
                if end {
                    break;
                }
            }
            // An engine that cannot list its slots answers each in turn: there the last one ends it.
            if slot == Slot::MAX || slot > self.settings.slot_of(self.clock.now()).saturating_add(RECENT_SLOTS) {
                break;
            }
            from = slot + 1;
        }
        Ok(true)
    }
}
