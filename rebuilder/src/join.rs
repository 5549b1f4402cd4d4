//! The per-user index against the facts, over the whole key space: facts are ordered by target, the
//! index by user, so both are summed by class of users, and only classes that differ are looked at
//! row by row.

use schema::{Fact, KindName, Member, UserKey};
use store::{
    StoreResult,
    engine::{FactRows, IndexRows, Slice},
};

use crate::{
    index::{check_user, missing_rows},
    repair::drop_left_over,
    shared::{MAX_HELD, Shared},
    stream::Parts,
    sums::{Sums, due_index, user_of},
    suspect::Suspect,
};

/// Parts of a slice's facts whose kinds are indexed. What is left in a large target's root is in its
/// leaves too, so it is left out.
struct IndexedFacts<'a> {
    shared: &'a Shared,
    parts: Parts<'a, FactRows>,
    large: Option<Vec<u8>>,
}

impl<'a> IndexedFacts<'a> {
    fn new(shared: &'a Shared, slice: Slice) -> Self {
        Self { shared, parts: Parts::new(shared, slice), large: None }
    }

    async fn next(&mut self) -> StoreResult<Option<FactRows>> {
        while let Some(part) = self.parts.next().await? {
            if part.head.is_some_and(|h| h.level().is_some()) {
                self.large = Some(part.place.clone());
            }
            if self.large.as_ref() != Some(&part.place) && self.shared.is_indexed(&part.shard.kind) {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }
}

/// Adds what the facts of a slice call for: for slices that this run has not checked itself.
pub(crate) async fn add_facts(shared: &Shared, sums: &Sums, slice: Slice) -> StoreResult<()> {
    let (mut text, mut key) = (Vec::new(), Vec::new());
    let mut facts = IndexedFacts::new(shared, slice);
    while let Some(part) = facts.next().await? {
        let (kind, target) = (&part.shard.kind, &part.shard.target);
        for (member, fact) in &part.rows {
            if let Some(row) = due_index(fact.choice) {
                let user = user_of(&mut key, target, member.as_str());
                sums.add(sums.class(user), sums.index(&mut text, user, kind, target, &row));
            }
        }
    }
    Ok(())
}

/// Looks at a slice's facts whose users are of classes that differ: which index rows are missing.
pub(crate) async fn differing_facts(shared: &Shared, sums: &Sums, slice: Slice) -> StoreResult<()> {
    let mut key = Vec::new();
    let mut suspects = Vec::new();
    let mut facts = IndexedFacts::new(shared, slice);
    while let Some(part) = facts.next().await? {
        let differs = |(member, _): &(Member, Fact)| {
            let user = user_of(&mut key, &part.shard.target, member.as_str());
            sums.differs(sums.class(user))
        };
        let mut rows = part.rows;
        rows.retain({
            let mut differs = differs;
            move |row| differs(row)
        });
        shared.throttle.take(rows.len()).await;
        suspects.extend(missing_rows(&shared.protocol, &part.shard, &rows).await?);
        if suspects.len() > MAX_HELD {
            shared.settle(std::mem::take(&mut suspects)).await?;
        }
    }
    shared.settle(suspects).await
}

/// Users of one slice.
pub(crate) struct UserCheck<'a> {
    shared: &'a Shared,
    slice: Slice,
    suspects: Vec<Suspect>,
}

/// What was read of one (user, kind).
struct Seen {
    user: UserKey,
    kind: KindName,
    class: usize,
    /// Sum over the time rows that section 1 calls for, less those of section 2.
    times: u128,
}

impl<'a> UserCheck<'a> {
    pub fn new(shared: &'a Shared, slice: Slice) -> Self {
        Self { shared, slice, suspects: Vec::new() }
    }

    /// Compares the two sections of each user with each other, and takes section 1 from the sums.
    pub async fn against(mut self, sums: &Sums) -> StoreResult<()> {
        let mut text = Vec::new();
        let mut seen: Option<Seen> = None;
        let mut parts = Parts::<IndexRows>::new(self.shared, self.slice);
        while let Some(part) = parts.next().await? {
            if seen.as_ref().is_none_or(|s| s.user != part.user || s.kind != part.kind) {
                self.sections(seen.take()).await?;
            }
            let class = sums.class(part.user.as_str().as_bytes());
            let seen = seen.get_or_insert_with(|| Seen { user: part.user.clone(), kind: part.kind.clone(), class, times: 0 });
            let indexed = self.shared.is_indexed(&part.kind);
            for (target, row) in &part.rows {
                // Rows of a kind that is not indexed any more are nobody's due: looked at one by one.
                let hash = sums.index(&mut text, part.user.as_str().as_bytes(), &part.kind, target, row);
                if indexed {
                    sums.take(seen.class, hash);
                }
                if row.choice != 0 {
                    seen.times = seen.times.wrapping_add(sums.time(&mut text, row.since, target.as_str(), 0));
                }
            }
            for time in &part.times {
                seen.times = seen.times.wrapping_sub(sums.time(&mut text, time.at, time.target.as_str(), 0));
            }
            let rows = part.rows.len() as u64;
            self.shared.note(|r| r.index_rows += rows);
        }
        self.sections(seen).await?;
        self.shared.settle(std::mem::take(&mut self.suspects)).await
    }

    async fn sections(&mut self, seen: Option<Seen>) -> StoreResult<()> {
        match seen.filter(|s| s.times != 0) {
            Some(seen) => self.user(&seen.user, &seen.kind).await,
            None => Ok(()),
        }
    }

    /// Looks at the users of classes that differ, or at all where there are no sums.
    pub async fn row_by_row(mut self, sums: Option<&Sums>) -> StoreResult<()> {
        let engine = self.shared.protocol.engine().clone();
        let mut from: Option<Vec<u8>> = None;
        loop {
            let page = engine.scan_index(self.slice, from.as_deref(), 256).await?;
            for (user, kind) in page.items {
                match sums {
                    Some(sums) if !sums.differs(sums.class(user.as_str().as_bytes())) => {}
                    Some(_) => self.user(&user, &kind).await?,
                    None => {
                        let rows = self.user_rows(&user, &kind).await?;
                        self.shared.note(|r| r.index_rows += rows);
                    }
                }
            }
            from = page.next;
            if from.is_none() {
                return self.shared.settle(std::mem::take(&mut self.suspects)).await;
            }
        }
    }

    async fn user(&mut self, user: &UserKey, kind: &KindName) -> StoreResult<()> {
        self.user_rows(user, kind).await.map(|_| ())
    }

    /// Row by row; how many there are.
    async fn user_rows(&mut self, user: &UserKey, kind: &KindName) -> StoreResult<u64> {
        let checked = check_user(&self.shared.protocol, user, kind).await?;
        self.shared.throttle.take(usize::try_from(checked.rows).unwrap_or(usize::MAX)).await;
        self.shared.note(|r| r.left_over += checked.left_over.len() as u64);
        if self.shared.mends() {
            drop_left_over(&self.shared.protocol, user, kind, &checked.left_over).await?;
        }
        self.suspects.extend(checked.suspects);
        if self.suspects.len() > MAX_HELD {
            self.shared.settle(std::mem::take(&mut self.suspects)).await?;
        }
        Ok(checked.rows)
    }
}
