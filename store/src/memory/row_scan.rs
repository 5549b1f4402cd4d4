//! Scans of whole tables, row by row, in the order of the partitions' names.

use schema::{KindName, LedgerHead, LedgerRow, Member, Micros, ShardKey, TargetKey};

use super::{
    State,
    cells::{Cell, Key},
    scan::{holds, shard_name},
};
use crate::engine::{FactRows, IndexRows, IndexTimeRow, LedgerRows, Slice, SlicePage, TargetCounters, TimeRow};

/// Rows by name, so that a name is a place to go on from. Names end in 0 where another text could
/// follow, which no id contains.
struct Named<T>(Vec<(String, T)>);

impl<T> Named<T> {
    /// The first `limit` behind `from`, and where to go on.
    fn page(mut self, from: Option<&[u8]>, limit: usize) -> (Vec<T>, Option<Vec<u8>>) {
        self.0.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(from) = from {
            self.0.retain(|(name, _)| name.as_bytes() > from);
        }
        let more = self.0.len() > limit.max(1);
        self.0.truncate(limit.max(1));
        let next = self.0.last().filter(|_| more).map(|(name, _)| name.clone().into_bytes());
        (self.0.into_iter().map(|(_, row)| row).collect(), next)
    }
}

/// Text whose order is that of `at`.
fn ordered(at: Micros) -> String {
    format!("{:020}", at.cast_unsigned() ^ (1 << 63))
}

enum LedgerPart {
    Head(LedgerHead),
    Row(Member, LedgerRow),
    Time(TimeRow),
}

impl State {
    fn page_of_keys(
        &self,
        name: impl Fn(&Key) -> Option<String>,
        from: Option<&[u8]>,
        limit: usize,
    ) -> (Vec<Key>, Option<Vec<u8>>) {
        let named = self.keys().into_iter().filter_map(|key| name(key).map(|n| (n, key.clone()))).collect();
        Named(named).page(from, limit)
    }

    pub(super) fn fact_rows(&mut self, slice: Slice, from: Option<&[u8]>, limit: usize) -> SlicePage<FactRows> {
        let name = |key: &Key| match key {
            Key::Fact(shard, member) if holds(slice, shard.target.as_str()) => Some(format!("{}\0{member}", shard_name(shard))),
            Key::Root(shard) if holds(slice, shard.target.as_str()) => Some(format!("{}\0", shard_name(shard))),
            _ => None,
        };
        let (keys, next) = self.page_of_keys(name, from, limit);
        let cells = self.read(&keys);
        let mut items: Vec<FactRows> = Vec::new();
        for (key, cell) in keys.into_iter().zip(cells) {
            let (Key::Fact(shard, _) | Key::Root(shard)) = &key else { continue };
            if items.last().is_none_or(|part| part.shard != *shard) {
                let place = shard_name(shard).into_bytes();
                items.push(FactRows { place, shard: shard.clone(), head: None, rows: Vec::new() });
            }
            let Some(part) = items.last_mut() else { continue };
            match (key, cell) {
                (Key::Fact(_, member), Some(Cell::Fact(fact))) => part.rows.push((member, fact)),
                (_, Some(Cell::Root(head))) => part.head = Some(head),
                _ => {}
            }
        }
        SlicePage { items, next }
    }

    pub(super) fn ledger_rows(&self, slice: Slice, from: Option<&[u8]>, limit: usize) -> SlicePage<LedgerRows> {
        let mut named: Vec<(String, (ShardKey, LedgerPart))> = Vec::new();
        for (leaf, ledger) in self.ledgers.iter().filter(|(leaf, _)| holds(slice, leaf.target.as_str())) {
            let (name, now) = (shard_name(leaf), ledger.now());
            let mut add = |text: String, part| named.push((format!("{name}\0{text}"), (leaf.clone(), part)));
            if let Some(head) = &now.head {
                add("0".into(), LedgerPart::Head(head.clone()));
            }
            now.rows.iter().for_each(|(m, row)| add(format!("1{m}"), LedgerPart::Row(m.clone(), *row)));
            for (place, &choice) in &now.times {
                let (at, member) = place.0.clone();
                add(format!("2{}{member}", ordered(at)), LedgerPart::Time(TimeRow { at, member, choice }));
            }
        }
        let (rows, next) = Named(named).page(from, limit);
        let mut items: Vec<LedgerRows> = Vec::new();
        for (leaf, row) in rows {
            if items.last().is_none_or(|part| part.leaf != leaf) {
                let place = shard_name(&leaf).into_bytes();
                items.push(LedgerRows { place, leaf, head: None, rows: Vec::new(), times: Vec::new() });
            }
            match (items.last_mut(), row) {
                (Some(part), LedgerPart::Head(head)) => part.head = Some(head),
                (Some(part), LedgerPart::Row(member, row)) => part.rows.push((member, row)),
                (Some(part), LedgerPart::Time(time)) => part.times.push(time),
                (None, _) => {}
            }
        }
        SlicePage { items, next }
    }

    pub(super) fn counter_rows(
        &mut self,
        slice: Slice,
        from: Option<&[u8]>,
        limit: usize,
    ) -> SlicePage<(TargetKey, TargetCounters)> {
        let mut targets: Vec<(String, TargetKey)> = Vec::new();
        for key in self.keys() {
            if let Key::Counter(shard) | Key::Shown(shard) = key
                && holds(slice, shard.target.as_str())
            {
                targets.push((shard.target.to_string(), shard.target.clone()));
            }
        }
        targets.sort();
        targets.dedup();
        let (targets, next) = Named(targets).page(from, limit);
        let with_rows = |target: TargetKey| {
            let counters = self.counters_of(&target);
            (target, counters)
        };
        SlicePage { items: targets.into_iter().map(with_rows).collect(), next }
    }

    pub(super) fn index_rows(&mut self, slice: Slice, from: Option<&[u8]>, limit: usize) -> SlicePage<IndexRows> {
        let name = |key: &Key| match key {
            Key::Index(user, kind, target) if holds(slice, user.as_str()) => Some(format!("{user}\0{kind}\x001{target}")),
            Key::IndexTime(user, kind, place) if holds(slice, user.as_str()) => {
                Some(format!("{user}\0{kind}\x002{}{}", ordered(place.0.0), place.0.1))
            }
            _ => None,
        };
        let (keys, next) = self.page_of_keys(name, from, limit);
        let cells = self.read(&keys);
        let mut items: Vec<IndexRows> = Vec::new();
        for (key, cell) in keys.into_iter().zip(cells) {
            let (Key::Index(user, kind, _) | Key::IndexTime(user, kind, _)) = &key else { continue };
            if items.last().is_none_or(|part| (&part.user, &part.kind) != (user, kind)) {
                let (user, kind): (_, KindName) = (user.clone(), kind.clone());
                items.push(IndexRows { user, kind, rows: Vec::new(), times: Vec::new() });
            }
            let Some(part) = items.last_mut() else { continue };
            match (key, cell) {
                (Key::Index(_, _, target), Some(Cell::Index(row))) => part.rows.push((target, row)),
                (Key::IndexTime(_, _, place), Some(_)) => {
                    let (at, target) = place.0;
                    part.times.push(IndexTimeRow { at, target });
                }
                _ => {}
            }
        }
        SlicePage { items, next }
    }
}
