//! The one place that turns rows into bytes and back; the only user of bincode.
//!
//! Every blob starts with a format byte, except the counter's, whose format byte follows its rank.
//! Every decoder has a limit, refuses trailing bytes, and answers garbage with an error. The exact
//! bytes are held by golden tests, so replacing bincode means reproducing them or adding a format.

use bincode::{
    Decode, Encode,
    config::{Configuration, Limit},
};

use crate::{
    Audit, ChangeEvent, ChoiceRegister, CounterRow, Counts, Fact, FactKey, HideChunk, HideItem, HideRegister, IndexRow, Intent,
    JournalEntry, KindName, LedgerHead, LedgerRow, Member, Micros, Reason, Register, RootHead, Shard, ShardKey, Status,
    StatusRow, TargetKey,
};

/// Format byte that this version writes, the same for every blob.
pub const FORMAT: u8 = 1;
/// Largest journal entry and change event, in bytes.
pub const MAX_ENTRY_BYTES: usize = 1 << 20;
/// Largest of every other blob, in bytes.
pub const MAX_ROW_BYTES: usize = 4096;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Written by a newer version, or not by Tally at all.
    #[error("{what}: format {found} is not known to this version (it knows {FORMAT}); upgrade this process")]
    Format {
        /// Which blob.
        what: &'static str,
        /// Its format byte.
        found: u8,
    },
    /// Too short, too long, or not well formed.
    #[error("{what}: damaged bytes")]
    Damaged {
        /// Which blob.
        what: &'static str,
    },
}

const fn config<const N: usize>() -> Configuration<bincode::config::LittleEndian, bincode::config::Varint, Limit<N>> {
    bincode::config::standard().with_limit::<N>()
}

fn put<T: Encode, const N: usize>(head: &[u8], body: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.len() + 48);
    out.extend_from_slice(head);
    out.push(FORMAT);
    bincode::encode_into_std_write(body, &mut out, config::<N>()).expect("plain integers, texts and lists always encode");
    out
}

fn get<T: Decode<()>, const N: usize>(what: &'static str, bytes: &[u8]) -> Result<T, CodecError> {
    let damaged = CodecError::Damaged { what };
    let (&format, body) = bytes.split_first().ok_or(damaged.clone())?;
    if format != FORMAT {
        return Err(CodecError::Format { what, found: format });
    }
    match bincode::decode_from_slice::<T, _>(body, config::<N>()) {
        Ok((value, used)) if used == body.len() => Ok(value),
        _ => Err(damaged),
    }
}

type FactWire = (i64, u8, i64, [(i64, u8); 3]);

fn fact_wire(f: &Fact) -> FactWire {
    // `since` as its distance from the version: one byte for nearly every fact.
    let back = f.choice.version.wrapping_sub(f.choice.since);
    (f.choice.version, f.choice.choice, back, f.hides.map(|h| (h.version, h.value)))
}

fn fact_of((version, choice, back, hides): FactWire) -> Fact {
    Fact {
        choice: ChoiceRegister { version, choice, since: version.wrapping_sub(back) },
        hides: hides.map(|(version, value)| HideRegister { version, value }),
    }
}

/// A fact row; also the blob that a ledger commit compares.
pub fn encode_fact(fact: &Fact) -> Vec<u8> {
    put::<_, MAX_ROW_BYTES>(&[], &fact_wire(fact))
}

/// Reverse of [`encode_fact`].
pub fn decode_fact(bytes: &[u8]) -> Result<Fact, CodecError> {
    get::<FactWire, MAX_ROW_BYTES>("fact", bytes).map(fact_of)
}

/// Row '' of a root.
pub fn encode_root_head(head: &RootHead) -> Vec<u8> {
    put::<_, MAX_ROW_BYTES>(&[], &(head.level, head.level_at, head.epoch))
}

/// Reverse of [`encode_root_head`].
pub fn decode_root_head(bytes: &[u8]) -> Result<RootHead, CodecError> {
    let (level, level_at, epoch) = get::<_, MAX_ROW_BYTES>("root head", bytes)?;
    Ok(RootHead { level, level_at, epoch })
}

type CountsWire = Vec<(u8, i64)>;

fn counts_wire(counts: &Counts) -> CountsWire {
    counts.iter().collect()
}

/// Blob of a counter row: rank (big-endian), format byte, counts, `as_of`. `order` is not in it.
pub fn encode_counter(row: &CounterRow) -> Vec<u8> {
    put::<_, MAX_ROW_BYTES>(&row.rank.to_be_bytes(), &(counts_wire(&row.counts), row.as_of))
}

/// Reverse of [`encode_counter`]; `order` is the row's write timestamp.
pub fn decode_counter(order: Micros, bytes: &[u8]) -> Result<CounterRow, CodecError> {
    let (rank, rest) = bytes.split_first_chunk::<16>().ok_or(CodecError::Damaged { what: "counter" })?;
    let (counts, as_of): (CountsWire, i64) = get::<_, MAX_ROW_BYTES>("counter", rest)?;
    Ok(CounterRow { order, rank: u128::from_be_bytes(*rank), counts: counts.into_iter().collect(), as_of })
}

/// Head row of a leaf's ledger.
pub fn encode_ledger_head(head: &LedgerHead) -> Vec<u8> {
    let audit = head.audit.as_ref().map(|a| (a.pos.as_ref().map(|m| m.as_str().to_owned()), counts_wire(&a.sum)));
    put::<_, MAX_ROW_BYTES>(&[], &(head.revision, counts_wire(&head.counts), head.complete, head.as_of, audit))
}

/// Reverse of [`encode_ledger_head`].
pub fn decode_ledger_head(bytes: &[u8]) -> Result<LedgerHead, CodecError> {
    type Wire = (i64, CountsWire, bool, i64, Option<(Option<String>, CountsWire)>);
    let (revision, counts, complete, as_of, audit): Wire = get::<_, MAX_ROW_BYTES>("ledger head", bytes)?;
    let audit = match audit {
        None => None,
        Some((pos, sum)) => {
            Some(Audit { pos: pos.map(|p| member("ledger head", &p)).transpose()?, sum: sum.into_iter().collect() })
        }
    };
    Ok(LedgerHead { revision, counts: counts.into_iter().collect(), complete, as_of, audit })
}

/// A ledger row where revision and registers share one cell (embedded engine).
pub fn encode_ledger_row(row: &LedgerRow) -> Vec<u8> {
    put::<_, MAX_ROW_BYTES>(&[], &(row.revision, fact_wire(&row.fact)))
}

/// Reverse of [`encode_ledger_row`].
pub fn decode_ledger_row(bytes: &[u8]) -> Result<LedgerRow, CodecError> {
    let (revision, fact): (i64, FactWire) = get::<_, MAX_ROW_BYTES>("ledger row", bytes)?;
    Ok(LedgerRow { revision, fact: fact_of(fact) })
}

/// Row of the per-user index.
pub fn encode_index(row: &IndexRow) -> Vec<u8> {
    put::<_, MAX_ROW_BYTES>(&[], &(row.version, row.choice, row.version.wrapping_sub(row.since)))
}

/// Reverse of [`encode_index`].
pub fn decode_index(bytes: &[u8]) -> Result<IndexRow, CodecError> {
    let (version, choice, back): (i64, u8, i64) = get::<_, MAX_ROW_BYTES>("index row", bytes)?;
    Ok(IndexRow { version, choice, since: version.wrapping_sub(back) })
}

#[derive(Encode, Decode)]
struct IntentWire {
    target: String,
    kind: String,
    member: String,
    register: u8,
    version: i64,
    value: u8,
}

/// One journal row.
pub fn encode_journal(entry: &JournalEntry) -> Vec<u8> {
    let intents: Vec<IntentWire> = entry
        .intents
        .iter()
        .map(|i| IntentWire {
            target: i.key.target.as_str().to_owned(),
            kind: i.key.kind.as_str().to_owned(),
            member: i.key.member.as_str().to_owned(),
            register: match i.register {
                Register::Choice => 0,
                Register::Hide(reason) => 1 + reason as u8,
            },
            version: i.version,
            value: i.value,
        })
        .collect();
    put::<_, MAX_ENTRY_BYTES>(&[], &(entry.id, intents, &entry.landed))
}

/// Reverse of [`encode_journal`].
pub fn decode_journal(bytes: &[u8]) -> Result<JournalEntry, CodecError> {
    const WHAT: &str = "journal entry";
    let (id, wires, landed): (u64, Vec<IntentWire>, Vec<u64>) = get::<_, MAX_ENTRY_BYTES>(WHAT, bytes)?;
    let mut intents = Vec::with_capacity(wires.len());
    for w in wires {
        let register = match w.register {
            0 => Register::Choice,
            n => Register::Hide(*Reason::ALL.get(usize::from(n) - 1).ok_or(CodecError::Damaged { what: WHAT })?),
        };
        let key = FactKey { target: target(WHAT, &w.target)?, kind: kind(WHAT, &w.kind)?, member: member(WHAT, &w.member)? };
        intents.push(Intent { key, register, version: w.version, value: w.value });
    }
    Ok(JournalEntry { id, intents, landed })
}

/// A change event, without its traces: an id that only logs know is not worth bytes.
pub fn encode_event(event: &ChangeEvent) -> Vec<u8> {
    let members: Vec<&str> = event.members.iter().map(Member::as_str).collect();
    let ShardKey { target, kind, shard } = &event.shard;
    put::<_, MAX_ENTRY_BYTES>(&[], &(target.as_str(), kind.as_str(), shard.0, members, event.at))
}

/// Reverse of [`encode_event`].
pub fn decode_event(bytes: &[u8]) -> Result<ChangeEvent, CodecError> {
    const WHAT: &str = "change event";
    type Wire = (String, String, u16, Vec<String>, i64);
    let (t, k, shard, members, at): Wire = get::<_, MAX_ENTRY_BYTES>(WHAT, bytes)?;
    if shard == 0 || members.is_empty() {
        return Err(CodecError::Damaged { what: WHAT });
    }
    let shard = ShardKey { target: target(WHAT, &t)?, kind: kind(WHAT, &k)?, shard: Shard(shard) };
    let members = members.iter().map(|m| member(WHAT, m)).collect::<Result<_, _>>()?;
    Ok(ChangeEvent { shard, members, at, traces: Vec::new() })
}

/// Status of a target or user.
pub fn encode_status(row: &StatusRow) -> Vec<u8> {
    put::<_, MAX_ROW_BYTES>(&[], &(row.version, row.status as u8, row.run))
}

/// Reverse of [`encode_status`].
pub fn decode_status(bytes: &[u8]) -> Result<StatusRow, CodecError> {
    let (version, status, run): (i64, u8, Option<u64>) = get::<_, MAX_ROW_BYTES>("status", bytes)?;
    let status = *Status::ALL.get(usize::from(status)).ok_or(CodecError::Damaged { what: "status" })?;
    Ok(StatusRow { version, status, run })
}

/// Members of a run, in the order that they are worked through.
pub fn encode_members(members: &[Member]) -> Vec<u8> {
    let members: Vec<&str> = members.iter().map(Member::as_str).collect();
    put::<_, MAX_ENTRY_BYTES>(&[], &members)
}

/// Reverse of [`encode_members`].
pub fn decode_members(bytes: &[u8]) -> Result<Vec<Member>, CodecError> {
    let members: Vec<String> = get::<_, MAX_ENTRY_BYTES>("members", bytes)?;
    members.iter().map(|m| member("members", m)).collect()
}

#[derive(Encode, Decode)]
struct HideItemWire {
    target: String,
    kind: String,
    member: String,
    version: i64,
    changes: bool,
}

/// Part of a run that hides or shows.
pub fn encode_hide_chunk(chunk: &HideChunk) -> Vec<u8> {
    let item = |i: &HideItem| HideItemWire {
        target: i.key.target.as_str().to_owned(),
        kind: i.key.kind.as_str().to_owned(),
        member: i.key.member.as_str().to_owned(),
        version: i.version,
        changes: i.changes,
    };
    let items: Vec<HideItemWire> = chunk.items.iter().map(item).collect();
    put::<_, MAX_ENTRY_BYTES>(&[], &(items, chunk.pass, &chunk.after, chunk.before))
}

/// Reverse of [`encode_hide_chunk`].
pub fn decode_hide_chunk(bytes: &[u8]) -> Result<HideChunk, CodecError> {
    const WHAT: &str = "hide chunk";
    type Wire = (Vec<HideItemWire>, u8, Option<(String, String)>, [u64; 5]);
    let (wires, pass, after, before): Wire = get::<_, MAX_ENTRY_BYTES>(WHAT, bytes)?;
    let item = |w: HideItemWire| {
        let key = FactKey { target: target(WHAT, &w.target)?, kind: kind(WHAT, &w.kind)?, member: member(WHAT, &w.member)? };
        Ok(HideItem { key, version: w.version, changes: w.changes })
    };
    Ok(HideChunk { items: wires.into_iter().map(item).collect::<Result<_, _>>()?, pass, after, before })
}

/// Place in a list ordered by (time, id): nothing of the layout, so it survives promotion.
pub fn encode_cursor(at: Micros, id: &str) -> Vec<u8> {
    put::<_, MAX_ROW_BYTES>(&[], &(at, id))
}

/// Reverse of [`encode_cursor`]; the id is one that [`Member::parse`] accepts.
pub fn decode_cursor(bytes: &[u8]) -> Result<(Micros, String), CodecError> {
    let (at, id): (i64, String) = get::<_, MAX_ROW_BYTES>("cursor", bytes)?;
    member("cursor", &id)?;
    Ok((at, id))
}

fn member(what: &'static str, text: &str) -> Result<Member, CodecError> {
    Member::parse(text).map_err(|_| CodecError::Damaged { what })
}

fn target(what: &'static str, text: &str) -> Result<TargetKey, CodecError> {
    TargetKey::parse(text).map_err(|_| CodecError::Damaged { what })
}

fn kind(what: &'static str, text: &str) -> Result<KindName, CodecError> {
    KindName::parse(text).map_err(|_| CodecError::Damaged { what })
}
