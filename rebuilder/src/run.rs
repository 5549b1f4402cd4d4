//! Runs over the key space: `verify`, `rebuild`, `top`.

use std::{cmp::Reverse, collections::BinaryHeap, sync::atomic::Ordering};

use futures::{StreamExt, TryStreamExt, stream};
use schema::{Counts, KindName, ShardKey, TargetKey, UserKey};
use store::{Protocol, StoreError, StoreResult, engine::Slice};

use crate::{
    Drift, Progress, RebuilderSettings, Report,
    check::{Checked, check_leaf, check_root},
    index::check_user,
    repair::{drop_left_over, repair},
    suspect::{Suspect, corrected},
};

/// Partitions that are listed at a time.
const PAGE: usize = 256;
/// Where an unfinished `rebuild --all` keeps its place.
const PLACE: &str = "rebuild/all";
/// Suspects that are collected before they are looked at again, so that pauses are shared.
const MAX_HELD: usize = 10_000;

/// What a run covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// One target; one kind of it or all.
    Target {
        /// The target.
        target: TargetKey,
        /// The kind; `None`: every configured kind.
        kind: Option<KindName>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Look,
    Mend,
}

/// Recounts everything from the facts.
#[derive(Clone)]
pub struct Rebuilder {
    protocol: Protocol,
    settings: RebuilderSettings,
}

impl Rebuilder {
    /// A rebuilder over `protocol`.
    pub fn new(protocol: Protocol, settings: RebuilderSettings) -> Self {
        Self { protocol, settings }
    }

    /// Recomputes everything derived and reports every difference; repairs nothing. Work under way
    /// is given time to settle before anything is called drift.
    pub async fn verify(&self, scope: Scope, progress: &Progress) -> StoreResult<Report> {
        self.run("verify", scope, Mode::Look, progress).await
    }

    /// The same, and repairs what it finds unless `dry_run`. A run over everything that was cut off
    /// is taken up at its slice.
    pub async fn rebuild(&self, scope: Scope, dry_run: bool, progress: &Progress) -> StoreResult<Report> {
        let (what, mode) = if dry_run { ("rebuild --dry-run", Mode::Look) } else { ("rebuild", Mode::Mend) };
        self.run(what, scope, mode, progress).await
    }

    /// The `n` targets of a namespace with the largest total of `kind`, exact: every target with
    /// facts is looked at. Equal totals are ordered by id.
    pub async fn top(&self, namespace: &str, kind: &KindName, n: usize) -> StoreResult<Vec<(TargetKey, Counts)>> {
        let mut best: BinaryHeap<Reverse<(i64, Reverse<TargetKey>)>> = BinaryHeap::new();
        let mut kept = std::collections::HashMap::new();
        let mut from = None;
        loop {
            let page = self.protocol.engine().scan_facts(Slice::ALL, from.as_deref(), PAGE).await?;
            let roots =
                page.items.into_iter().filter(|k| k.shard.is_root() && k.kind == *kind && k.target.namespace() == namespace);
            let counts = stream::iter(roots.map(|key| async move {
                let counts = self.protocol.counts(&key.target, std::slice::from_ref(kind)).await?;
                Ok::<_, StoreError>((key.target, counts.into_iter().next().and_then(|c| c.counts)))
            }));
            let mut counts = counts.buffer_unordered(self.settings.parallel.max(1));
            while let Some((target, counts)) = counts.try_next().await? {
                let Some(counts) = counts.filter(|c| c.total() > 0) else { continue };
                best.push(Reverse((counts.total(), Reverse(target.clone()))));
                kept.insert(target, counts);
                if best.len() > n
                    && let Some(Reverse((_, Reverse(out)))) = best.pop()
                {
                    kept.remove(&out);
                }
            }
            drop(counts);
            match page.next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
        let order = best.into_sorted_vec().into_iter();
        Ok(order.filter_map(|Reverse((_, Reverse(target)))| kept.remove(&target).map(|c| (target, c))).collect())
    }

    async fn run(&self, what: &str, scope: Scope, mode: Mode, progress: &Progress) -> StoreResult<Report> {
        let report = Report { what: what.to_owned(), started: self.protocol.clock().now(), ..Report::default() };
        let mut run = Run { protocol: &self.protocol, settings: &self.settings, mode, report, progress, suspects: Vec::new() };
        match scope {
            Scope::Target { target, kind } => {
                progress.slices.store(1, Ordering::Relaxed);
                run.target(&target, kind).await?;
                progress.slices_done.store(1, Ordering::Relaxed);
            }
            Scope::All => run.all().await?,
        }
        progress.publish(&run.report);
        run.report.finished = self.protocol.clock().now();
        Ok(run.report)
    }
}

/// One run under way.
struct Run<'a> {
    protocol: &'a Protocol,
    settings: &'a RebuilderSettings,
    mode: Mode,
    progress: &'a Progress,
    report: Report,
    /// What looked wrong and was not looked at again yet.
    suspects: Vec<Suspect>,
}

impl Run<'_> {
    async fn all(&mut self) -> StoreResult<()> {
        let of = self.settings.slices.max(1);
        self.progress.slices.store(u64::from(of), Ordering::Relaxed);
        let engine = self.protocol.engine();
        let place = if self.mode == Mode::Mend { engine.get_meta(PLACE).await? } else { None };
        // The place is only good for the same cut of the key space.
        let place = place.and_then(|b| <[u8; 8]>::try_from(b).ok()).map(u64::from_be_bytes);
        let start = place.filter(|p| p >> 32 == u64::from(of)).map_or(0, |p| u32::try_from(p & 0xffff_ffff).unwrap_or(0));
        self.report.resumed_at_slice = start;
        for index in start..of {
            self.slice(Slice { index, of }).await?;
            if self.mode == Mode::Mend {
                let next = (u64::from(of) << 32) | u64::from(index + 1);
                engine.put_meta(PLACE, &next.to_be_bytes()).await?;
            }
            self.progress.slices_done.store(u64::from(index) + 1, Ordering::Relaxed);
        }
        if self.mode == Mode::Mend { engine.drop_meta(PLACE).await } else { Ok(()) }
    }

    async fn slice(&mut self, slice: Slice) -> StoreResult<()> {
        let engine = self.protocol.engine();
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            let page = engine.scan_facts(slice, Some(&at).filter(|a| !a.is_empty()).map(Vec::as_slice), PAGE).await?;
            self.partitions(page.items).await?;
            from = page.next;
        }
        // Before the reverse direction: what the repairs wrote is then seen as it is.
        self.settle(0).await?;
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            let page = engine.scan_counters(slice, Some(&at).filter(|a| !a.is_empty()).map(Vec::as_slice), PAGE).await?;
            for target in page.items {
                self.ghosts(&target).await?;
            }
            from = page.next;
        }
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            let page = engine.scan_ledgers(slice, Some(&at).filter(|a| !a.is_empty()).map(Vec::as_slice), PAGE).await?;
            let mut without_facts = Vec::new();
            for leaf in page.items {
                if engine.page_facts(&leaf, None, 1).await?.rows.is_empty() {
                    without_facts.push(leaf);
                }
            }
            self.partitions(without_facts).await?;
            from = page.next;
        }
        let mut from = Some(Vec::new());
        while let Some(at) = from {
            let page = engine.scan_index(slice, Some(&at).filter(|a| !a.is_empty()).map(Vec::as_slice), PAGE).await?;
            self.users(page.items).await?;
            from = page.next;
        }
        self.settle(0).await
    }

    async fn target(&mut self, target: &TargetKey, kind: Option<KindName>) -> StoreResult<()> {
        let kinds = match kind {
            Some(kind) => vec![kind],
            None => self.protocol.settings().kinds.iter().map(|k| k.name.clone()).collect(),
        };
        for kind in kinds {
            let root = ShardKey::root(target.clone(), kind);
            let level = self.protocol.read_small(&root).await?.0.level();
            let mut partitions = vec![root.clone()];
            partitions.extend(level.into_iter().flat_map(schema::leaves).map(|leaf| root.with_shard(leaf)));
            self.partitions(partitions).await?;
        }
        self.ghosts(target).await?;
        self.settle(0).await
    }

    /// Counter rows of (target, kind)s without any fact.
    async fn ghosts(&mut self, target: &TargetKey) -> StoreResult<()> {
        let engine = self.protocol.engine();
        for (kind, shard, _) in engine.read_counters(target).await?.rows {
            let root = ShardKey::root(target.clone(), kind);
            let facts = engine.page_facts(&root, None, 1).await?;
            if facts.rows.is_empty() && facts.head.is_none() {
                self.suspects.push(Suspect::Ghost { shard: root.with_shard(shard) });
            }
        }
        self.settle(MAX_HELD).await
    }

    /// Checks partitions of facts side by side.
    async fn partitions(&mut self, partitions: Vec<ShardKey>) -> StoreResult<()> {
        let protocol = self.protocol;
        let checks = stream::iter(partitions.into_iter().map(|key| async move {
            let checked = check(protocol, &key).await?;
            Ok::<_, StoreError>((key, checked))
        }));
        let mut checks = checks.buffer_unordered(self.settings.parallel.max(1));
        while let Some((key, mut checked)) = checks.try_next().await? {
            self.report.partitions += 1;
            self.report.targets += u64::from(key.shard.is_root());
            self.report.facts += checked.facts;
            while self.mode == Mode::Mend && checked.truncated {
                let before = self.report.repaired;
                self.suspects.append(&mut checked.suspects);
                self.settle(0).await?;
                if self.report.repaired == before {
                    break; // Nothing could be repaired: checking again finds the same.
                }
                checked = check(protocol, &key).await?;
            }
            self.suspects.append(&mut checked.suspects);
            self.report.busy_leaves += u64::from(checked.busy);
            if checked.busy && self.mode == Mode::Mend {
                // Not to be compared by reading alone; the audit cursor compares while it moves.
                if let Some((before, after)) = protocol.audit(&key).await?.corrected {
                    self.report.add(corrected(&key, &before, &after));
                }
            }
            self.settle(MAX_HELD).await?;
            self.progress.publish(&self.report);
        }
        Ok(())
    }

    async fn users(&mut self, users: Vec<(UserKey, KindName)>) -> StoreResult<()> {
        let protocol = self.protocol;
        let checks = stream::iter(users.into_iter().map(|(user, kind)| async move {
            let checked = check_user(protocol, &user, &kind).await?;
            Ok::<_, StoreError>((user, kind, checked))
        }));
        let mut checks = checks.buffer_unordered(self.settings.parallel.max(1));
        while let Some((user, kind, mut checked)) = checks.try_next().await? {
            self.report.index_rows += checked.rows;
            self.report.left_over += checked.left_over.len() as u64;
            if self.mode == Mode::Mend {
                drop_left_over(protocol, &user, &kind, &checked.left_over).await?;
            }
            self.suspects.append(&mut checked.suspects);
            self.settle(MAX_HELD).await?;
            self.progress.publish(&self.report);
        }
        Ok(())
    }

    /// Once more than `keep` suspects are held: looks at them again, with pauses, until they are
    /// gone or stay; then reports and repairs what stayed.
    async fn settle(&mut self, keep: usize) -> StoreResult<()> {
        if self.suspects.len() <= keep {
            return Ok(());
        }
        let mut found: Vec<(Suspect, Drift)> = Vec::new();
        let mut suspects = std::mem::take(&mut self.suspects);
        let mut unmoved = 0;
        for look in 0..self.settings.looks.max(1) {
            if look > 0 {
                self.protocol.clock().sleep(self.settings.settle).await;
            }
            let (before, protocol) = (suspects.len(), self.protocol);
            let looks = stream::iter(suspects.into_iter().map(|s| async move {
                let drift = s.look(protocol).await?;
                Ok::<_, StoreError>(drift.map(|d| (s, d)))
            }));
            found = looks.buffered(self.settings.parallel.max(1)).try_filter_map(async |found| Ok(found)).try_collect().await?;
            suspects = found.iter().map(|(s, _)| s.clone()).collect();
            unmoved = if found.len() == before { unmoved + 1 } else { 0 };
            // A repair is harmless to work under way, so a rebuild waits less for it than `verify`.
            if suspects.is_empty() || (self.mode == Mode::Mend && unmoved >= 2) {
                break;
            }
        }
        for (suspect, mut drift) in found {
            if self.mode == Mode::Mend && suspect.look(self.protocol).await?.is_some() {
                repair(self.protocol, &suspect, &drift).await?;
                drift.repaired = suspect.look(self.protocol).await?.is_none();
            } else {
                drift.repaired = self.mode == Mode::Mend; // An earlier repair has mended this too.
            }
            self.report.add(drift);
        }
        Ok(())
    }
}

async fn check(protocol: &Protocol, key: &ShardKey) -> StoreResult<Checked> {
    if key.shard.is_root() { check_root(protocol, key).await } else { check_leaf(protocol, key).await }
}
