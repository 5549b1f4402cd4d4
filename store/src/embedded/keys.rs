//! The bytes of every key: the storage map of this engine.
//!
//! | keyspace | key |
//! |---|---|
//! | facts | token, target, 0, kind, 0, shard, member (empty: head row) |
//! | ledger | token, target, 0, kind, 0, shard, then 0 (head), or 1 and member, or 2, ~at, ~member, 0xff |
//! | counters | token, target, 0, kind, 0, shard (0: the level that is shown) |
//! | by_user | token, user, 0, kind, 0, then 1 and target, or 2, ~at, ~target, 0xff |
//! | journal | lane, slot, id |
//! | small | 'l' and lane, or 'm' and the key of a meta row, or 't' or 'u' and the target or user that has a status, or 'o', a log's name, 0, at, id |
//!
//! Numbers are big-endian, signed ones with their sign flipped, so that byte order is their order.
//! The token is the first part, so that slices of a scan are key ranges of equal size. Ids hold no
//! control characters, so 0 ends them. `~` is the bitwise complement: later times and larger ids
//! come first, and the 0xff behind an id puts a longer one before its own prefix.

use std::ops::Bound;

use schema::{KindName, LaneId, Member, Micros, Shard, ShardKey, Slot, StatusKey, TargetKey, UserKey, token_of};
use xxhash_rust::xxh3::xxh3_64;

/// Section of a ledger's head row.
pub const HEAD: u8 = 0;
/// Section of rows by member (ledger) or target (index).
pub const BY_ID: u8 = 1;
/// Section of rows by time.
pub const BY_TIME: u8 = 2;

const SIGN: u64 = 1 << 63;
const TOKEN_BYTES: usize = 8;

fn ordered(n: i64) -> u64 {
    n.cast_unsigned() ^ SIGN
}

fn unordered(n: u64) -> i64 {
    (n ^ SIGN).cast_signed()
}

fn open(token: u64, text: &str, room: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(TOKEN_BYTES + text.len() + 1 + room);
    key.extend_from_slice(&token.to_be_bytes());
    key.extend_from_slice(text.as_bytes());
    key.push(0);
    key
}

/// All counters of a target.
pub fn target(target: &TargetKey) -> Vec<u8> {
    open(token_of(target), target.as_str(), 40)
}

fn in_kind(mut key: Vec<u8>, kind: &KindName) -> Vec<u8> {
    key.extend_from_slice(kind.as_str().as_bytes());
    key.push(0);
    key
}

/// The partition of a shard, in facts and in ledger.
pub fn shard(key: &ShardKey) -> Vec<u8> {
    let room = key.kind.as_str().len() + 3 + 48;
    let mut out = in_kind(open(token_of(&key.target), key.target.as_str(), room), &key.kind);
    out.extend_from_slice(&key.shard.0.to_be_bytes());
    out
}

/// A counter row; shard 0 holds the level that is shown.
pub fn counter(target: &TargetKey, kind: &KindName, shard: Shard) -> Vec<u8> {
    let mut key = in_kind(self::target(target), kind);
    key.extend_from_slice(&shard.0.to_be_bytes());
    key
}

/// The partition of a (user, kind) in the per-user index.
pub fn user(user: &UserKey, kind: &KindName) -> Vec<u8> {
    in_kind(open(xxh3_64(user.as_str().as_bytes()), user.as_str(), kind.as_str().len() + 180), kind)
}

/// `prefix` with a member behind it.
pub fn with_id(prefix: &[u8], id: &str) -> Vec<u8> {
    [prefix, id.as_bytes()].concat()
}

/// A row by id of the partition `prefix`.
pub fn by_id(prefix: &[u8], id: &str) -> Vec<u8> {
    [prefix, &[BY_ID], id.as_bytes()].concat()
}

/// A row by time of the partition `prefix`.
pub fn by_time(prefix: &[u8], at: Micros, id: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + id.len() + 10);
    key.extend_from_slice(prefix);
    key.push(BY_TIME);
    key.extend_from_slice(&(!ordered(at)).to_be_bytes());
    key.extend(id.bytes().map(|b| !b));
    key.push(0xff);
    key
}

/// Time and id of a row by time; `rest` is what follows the section byte.
pub fn parse_by_time(rest: &[u8]) -> Option<(Micros, String)> {
    let (at, id) = rest.split_first_chunk::<8>()?;
    let (&0xff, id) = id.split_last()? else { return None };
    let id = String::from_utf8(id.iter().map(|b| !b).collect()).ok()?;
    Some((unordered(!u64::from_be_bytes(*at)), id))
}

/// All entries of a slot.
pub fn slot(lane: LaneId, slot: Slot) -> Vec<u8> {
    let mut key = Vec::with_capacity(24);
    key.extend_from_slice(&lane.0.to_be_bytes());
    key.extend_from_slice(&ordered(slot).to_be_bytes());
    key
}

/// One journal entry.
pub fn entry(lane: LaneId, slot: Slot, id: u64) -> Vec<u8> {
    let mut key = self::slot(lane, slot);
    key.extend_from_slice(&id.to_be_bytes());
    key
}

/// The slot of an entry's key.
pub fn parse_slot(key: &[u8]) -> Option<Slot> {
    let slot = key.get(8..16)?;
    Some(unordered(u64::from_be_bytes(slot.try_into().ok()?)))
}

/// A lane's state.
pub fn lane(lane: LaneId) -> Vec<u8> {
    [&[b'l'][..], &lane.0.to_be_bytes()].concat()
}

/// All lanes.
pub const LANES: &[u8] = b"l";

/// The lane of a key of [`lane`].
pub fn parse_lane(key: &[u8]) -> Option<LaneId> {
    Some(LaneId(u64::from_be_bytes(key.get(1..)?.try_into().ok()?)))
}

/// A meta row, or those that begin with `key`.
pub fn meta(key: &str) -> Vec<u8> {
    [b"m", key.as_bytes()].concat()
}

/// The key of a row of [`meta`].
pub fn parse_meta(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(1..)?).ok()
}

/// The status of a target or user.
pub fn status(key: &StatusKey) -> Vec<u8> {
    match key {
        StatusKey::Target(target) => [b"t", target.as_str().as_bytes()].concat(),
        StatusKey::User(user) => [b"u", user.as_str().as_bytes()].concat(),
    }
}

/// All statuses: of targets, of users.
pub const STATUSES: [&[u8]; 2] = [b"t", b"u"];

/// All entries of a log, oldest first.
pub fn log(name: &str) -> Vec<u8> {
    [b"o", name.as_bytes(), &[0]].concat()
}

/// One entry of the log `prefix`.
pub fn log_entry(prefix: &[u8], at: Micros, id: u64) -> Vec<u8> {
    [prefix, &ordered(at).to_be_bytes(), &id.to_be_bytes()].concat()
}

/// Time and id of an entry; `rest` is what follows the log's prefix.
pub fn parse_log_entry(rest: &[u8]) -> Option<(Micros, u64)> {
    let &[at, id] = rest.as_chunks::<8>().0 else { return None };
    (rest.len() == 16).then(|| (unordered(u64::from_be_bytes(at)), u64::from_be_bytes(id)))
}

fn text_at(key: &[u8], from: usize) -> Option<(&str, usize)> {
    let rest = key.get(from..)?;
    let len = rest.iter().position(|&b| b == 0)?;
    Some((std::str::from_utf8(&rest[..len]).ok()?, from + len + 1))
}

/// The target at the beginning of a key, and where it ends.
pub fn parse_target(key: &[u8]) -> Option<(TargetKey, usize)> {
    let (text, end) = text_at(key, TOKEN_BYTES)?;
    Some((TargetKey::parse(text).ok()?, end))
}

/// Kind and shard at `from`, and where they end.
pub fn parse_kind_shard(key: &[u8], from: usize) -> Option<(KindName, Shard, usize)> {
    let (kind, end) = text_at(key, from)?;
    let shard = key.get(end..end + 2)?;
    Some((KindName::parse(kind).ok()?, Shard(u16::from_be_bytes(shard.try_into().ok()?)), end + 2))
}

/// The shard whose partition a key of facts or ledger is in, and where its prefix ends.
pub fn parse_shard(key: &[u8]) -> Option<(ShardKey, usize)> {
    let (target, end) = parse_target(key)?;
    let (kind, shard, end) = parse_kind_shard(key, end)?;
    Some((ShardKey { target, kind, shard }, end))
}

/// The partition that a key of the index is in, and where its prefix ends.
pub fn parse_user(key: &[u8]) -> Option<((UserKey, KindName), usize)> {
    let (user, end) = text_at(key, TOKEN_BYTES)?;
    let (kind, end) = text_at(key, end)?;
    Some(((UserKey::parse(user).ok()?, KindName::parse(kind).ok()?), end))
}

/// Text behind a prefix: the id of a row by id.
pub fn parse_id(rest: &[u8]) -> Option<&str> {
    std::str::from_utf8(rest).ok()
}

/// The first key behind all that begin with `prefix`.
pub fn behind(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

/// The same as the start of a range.
pub fn behind_included(prefix: &[u8]) -> Bound<Vec<u8>> {
    match behind(prefix) {
        Bound::Excluded(key) => Bound::Included(key),
        // Nothing is behind: the last key there can be is that of no row.
        _ => Bound::Included(vec![0xff; prefix.len() + 1]),
    }
}

/// Member out of a stored id.
pub fn member(text: &str) -> Option<Member> {
    Member::parse(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard_key(target: &str, shard: u16) -> ShardKey {
        ShardKey { target: TargetKey::parse(target).unwrap(), kind: KindName::parse("like").unwrap(), shard: Shard(shard) }
    }

    #[test]
    fn keys_come_apart_into_what_they_were_made_of() {
        for n in [1, 2, 255, 256, 0xffff] {
            let key = shard_key("video/ü/1", n);
            let bytes = with_id(&shard(&key), "m1");
            let (parsed, end) = parse_shard(&bytes).unwrap();
            assert_eq!((parsed, parse_id(&bytes[end..])), (key.clone(), Some("m1")));
            assert_eq!(parse_target(&bytes).unwrap().0, key.target);
            let bytes = counter(&key.target, &key.kind, key.shard);
            let end = parse_target(&bytes).unwrap().1;
            assert_eq!(parse_kind_shard(&bytes, end), Some((key.kind, key.shard, bytes.len())));
        }
        let (ada, kind) = (UserKey::parse("video/ada").unwrap(), KindName::parse("like").unwrap());
        let prefix = user(&ada, &kind);
        assert_eq!(parse_user(&by_id(&prefix, "video/v")), Some(((ada, kind), prefix.len())));
        for slot in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert_eq!(parse_slot(&entry(LaneId(7), slot, 9)), Some(slot));
        }
        assert_eq!(parse_lane(&lane(LaneId(77))), Some(LaneId(77)));
        assert_eq!(parse_meta(&meta("a/b")), Some("a/b"));
        let prefix = log("audit");
        for (at, id) in [(i64::MIN, 0), (-1, u64::MAX), (7, 9)] {
            assert_eq!(parse_log_entry(&log_entry(&prefix, at, id)[prefix.len()..]), Some((at, id)));
        }
        assert_eq!(parse_log_entry(b"12345678"), None);
    }

    #[test]
    fn rows_by_time_are_ordered_latest_and_largest_first() {
        let want = [(i64::MAX, "a"), (9, "b"), (9, "ab"), (9, "a"), (0, "é"), (0, "z"), (-1, "a"), (i64::MIN, "a")];
        let made: Vec<_> = want.iter().map(|&(at, id)| by_time(b"p", at, id)).collect();
        assert!(made.is_sorted(), "{made:?}");
        for (key, (at, id)) in made.iter().zip(want) {
            assert_eq!(parse_by_time(&key[2..]), Some((at, id.to_owned())));
        }
    }

    #[test]
    fn slots_and_entries_are_ordered_by_number() {
        let made: Vec<_> = [(i64::MIN, 0), (-1, 5), (0, 0), (0, 255), (0, 256), (1, 0), (i64::MAX, 1)]
            .iter()
            .map(|&(slot, id)| entry(LaneId(1), slot, id))
            .collect();
        assert!(made.is_sorted());
    }

    #[test]
    fn the_head_of_a_partition_is_its_first_row_and_the_end_is_behind_its_last() {
        for n in [1, 255, 0xffff] {
            let prefix = shard(&shard_key("video/v", n));
            let Bound::Excluded(end) = behind(&prefix) else { panic!("no end") };
            assert!(with_id(&prefix, "") < with_id(&prefix, "!") && with_id(&prefix, "\u{10ffff}") < end);
            assert!(by_time(&prefix, i64::MIN, "a") < end);
            if n < 0xffff {
                assert!(end <= shard(&shard_key("video/v", n + 1)));
            }
        }
        assert_eq!(behind(&[0xff, 0xff]), Bound::Unbounded);
    }

    #[test]
    fn garbage_is_no_key() {
        for bytes in [&b""[..], b"12345678", b"12345678video/v", b"12345678video/v\0like\0", b"12345678nothing\0like\0\0\x01"] {
            assert_eq!(parse_shard(bytes), None, "{bytes:?}");
        }
        assert_eq!(parse_by_time(b"12345678"), None);
        assert_eq!(parse_by_time(b"12345678abc"), None);
        assert_eq!(parse_slot(b"123456789"), None);
        assert_eq!(parse_lane(b"l123"), None);
    }

    #[test]
    fn key_bytes_are_a_storage_format() {
        let prefix = shard(&shard_key("video/v", 17));
        let mut want = xxh3_64(b"video/v").to_be_bytes().to_vec();
        want.extend_from_slice(b"video/v\0like\0\0\x11");
        assert_eq!(prefix, want);
        assert_eq!(status(&StatusKey::Target(TargetKey::parse("v/p").unwrap())), b"tv/p");
        assert_eq!(status(&StatusKey::User(UserKey::parse("v/a").unwrap())), b"uv/a");
        assert_eq!(log_entry(&log("audit"), 1, 2), b"oaudit\0\x80\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02");
        assert_eq!(&by_time(b"", 1, "a"), b"\x02\x7f\xff\xff\xff\xff\xff\xff\xfe\x9e\xff");
        assert_eq!(entry(LaneId(1), 2, 3), b"\0\0\0\0\0\0\0\x01\x80\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03");
    }
}
