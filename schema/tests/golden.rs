//! The exact stored bytes. A change here is a change of the storage format: it needs a new format
//! byte and a reader for the old one, not a new expectation.

use tally_schema::{
    Audit, ChangeEvent, CounterRow, Counts, Fact, FactKey, HideChunk, HideItem, IndexRow, Intent, JournalEntry, KindName,
    LedgerHead, LedgerRow, Member, Reason, Register, RootHead, Shard, ShardKey, Status, StatusRow, TargetKey, bucket_of, codec,
    leaf_of, token_of,
};

const NOW: i64 = 1_796_075_907_993_895;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn target(id: &str) -> TargetKey {
    TargetKey::parse(id).expect("a key")
}

fn member(id: &str) -> Member {
    Member::parse(id).expect("an id")
}

fn kind(name: &str) -> KindName {
    KindName::parse(name).expect("a kind")
}

fn liked() -> Fact {
    Fact::of(Register::Choice, NOW, 1, NOW - 5)
}

fn counts() -> Counts {
    [(1, 300), (6, 2)].into_iter().collect()
}

#[test]
fn fact_bytes() {
    let hidden = liked().join(Fact::of(Register::Hide(Reason::Fraud), NOW + 1, 1, 0));
    let cases = [
        (Fact::default(), "01000000000000000000"),
        (liked(), "01fd4ea2f8040bc30c00010a000000000000"),
        (hidden, "01fd4ea2f8040bc30c00010a00000000fd50a2f8040bc30c0001"),
    ];
    for (fact, bytes) in cases {
        assert_eq!(hex(&codec::encode_fact(&fact)), bytes);
        assert_eq!(codec::decode_fact(&codec::encode_fact(&fact)), Ok(fact));
    }
}

#[test]
fn root_head_bytes() {
    let head = RootHead { level: 4, level_at: NOW, epoch: 7 };
    assert_eq!(hex(&codec::encode_root_head(&head)), "0104fd4ea2f8040bc30c000e");
    assert_eq!(codec::decode_root_head(&codec::encode_root_head(&head)), Ok(head));
}

#[test]
fn counter_bytes_begin_with_the_rank_so_that_a_tie_is_decided_by_it() {
    let row = CounterRow { order: NOW, rank: liked().rank(), counts: counts(), as_of: NOW };
    let bytes = codec::encode_counter(&row);
    assert_eq!(bytes[..16], row.rank.to_be_bytes());
    assert_eq!(hex(&bytes), "0000000000000000066185827c51270101020".to_owned() + "1fb5802" + "0604" + "fd4ea2f8040bc30c00");
    assert_eq!(codec::decode_counter(NOW, &bytes), Ok(row));
}

#[test]
fn ledger_bytes() {
    let audit = Some(Audit { pos: Some(member("u9")), sum: counts() });
    let head = LedgerHead { revision: NOW + 1, counts: counts(), complete: true, as_of: NOW, audit };
    assert_eq!(codec::decode_ledger_head(&codec::encode_ledger_head(&head)), Ok(head.clone()));
    assert_eq!(
        hex(&codec::encode_ledger_head(&head)),
        "01fd50a2f8040bc30c000201fb5802060401fd4ea2f8040bc30c000101027539 0201fb58020604".replace(' ', "")
    );
    let row = LedgerRow { revision: NOW + 1, fact: liked() };
    assert_eq!(hex(&codec::encode_ledger_row(&row)), "01fd50a2f8040bc30c00fd4ea2f8040bc30c00010a000000000000");
    assert_eq!(codec::decode_ledger_row(&codec::encode_ledger_row(&row)), Ok(row));
}

#[test]
fn index_bytes() {
    let row: IndexRow = liked().choice.into();
    assert_eq!(hex(&codec::encode_index(&row)), "01fd4ea2f8040bc30c00010a");
    assert_eq!(codec::decode_index(&codec::encode_index(&row)), Ok(row));
}

#[test]
fn journal_bytes() {
    let key = FactKey { target: target("video/p1"), kind: kind("like"), member: member("u1") };
    let intents = vec![
        Intent { key: key.clone(), register: Register::Choice, version: NOW, value: 1 },
        Intent { key, register: Register::Hide(Reason::Moderation), version: 9, value: 0 },
    ];
    let entry = JournalEntry { id: 3, intents, landed: vec![2, 3] };
    assert_eq!(
        hex(&codec::encode_journal(&entry)),
        "010302".to_owned()
            + "08766964656f2f7031046c696b65027531"
            + "00fd4ea2f8040bc30c0001"
            + "08766964656f2f7031046c696b65027531"
            + "011200"
            + "020203"
    );
    assert_eq!(codec::decode_journal(&codec::encode_journal(&entry)), Ok(entry));
}

#[test]
fn event_bytes() {
    let shard = ShardKey { target: target("video/p1"), kind: kind("like"), shard: Shard(16) };
    let event = ChangeEvent { shard, members: vec![member("u1"), member("ü")], at: NOW, traces: Vec::new() };
    assert_eq!(
        hex(&codec::encode_event(&event)),
        "0108766964656f2f7031046c696b6510020275310 2c3bcfd4ea2f8040bc30c00".replace(' ', "")
    );
    assert_eq!(codec::decode_event(&codec::encode_event(&event)), Ok(event));
}

#[test]
fn hide_bytes() {
    let members = vec![member("u1"), member("ü")];
    assert_eq!(hex(&codec::encode_members(&members)), "0102".to_owned() + "027531" + "02c3bc");
    assert_eq!(codec::decode_members(&codec::encode_members(&members)), Ok(members));
    let key = FactKey { target: target("video/p1"), kind: kind("like"), member: member("u1") };
    let items = vec![HideItem { key: key.clone(), version: NOW, changes: true }, HideItem { key, version: 9, changes: false }];
    let after = Some(("like".to_owned(), "video/p1".to_owned()));
    let chunk = HideChunk { items, pass: 1, after, before: [500, 300, 1, 2, 3] };
    assert_eq!(
        hex(&codec::encode_hide_chunk(&chunk)),
        "0102".to_owned()
            + "08766964656f2f7031046c696b65027531"
            + "fd4ea2f8040bc30c0001"
            + "08766964656f2f7031046c696b65027531"
            + "1200"
            + "01"
            + "01046c696b6508766964656f2f7031"
            + "fbf401fb2c01010203"
    );
    assert_eq!(codec::decode_hide_chunk(&codec::encode_hide_chunk(&chunk)), Ok(chunk));
    assert_eq!(codec::decode_hide_chunk(&codec::encode_hide_chunk(&HideChunk::default())), Ok(HideChunk::default()));
}

#[test]
fn status_bytes() {
    let cases = [
        (StatusRow { version: NOW, status: Status::Open, run: None }, "01fd4ea2f8040bc30c000000"),
        (StatusRow { version: NOW, status: Status::Active, run: None }, "01fd4ea2f8040bc30c000100"),
        (StatusRow { version: NOW, status: Status::Closed, run: None }, "01fd4ea2f8040bc30c000200"),
        (StatusRow { version: NOW, status: Status::Gone, run: None }, "01fd4ea2f8040bc30c000300"),
        (StatusRow { version: NOW, status: Status::Suspended, run: Some(7) }, "01fd4ea2f8040bc30c00040107"),
    ];
    for (row, bytes) in cases {
        assert_eq!(hex(&codec::encode_status(&row)), bytes);
        assert_eq!(codec::decode_status(&codec::encode_status(&row)), Ok(row));
    }
    assert!(codec::decode_status(&[1, 2, 5, 0]).is_err(), "no such status");
}

#[test]
fn cursor_bytes() {
    let bytes = codec::encode_cursor(NOW, "u1");
    assert_eq!(hex(&bytes), "01fd4ea2f8040bc30c00027531");
    assert_eq!(codec::decode_cursor(&bytes), Ok((NOW, "u1".to_owned())));
}

/// Where a fact is stored and in which bucket its events travel: the values are xxh3_64's own for
/// seed 0, so another implementation must find the same places.
#[test]
fn places() {
    assert_eq!(leaf_of(&member("u1"), 4), Shard(25));
    assert_eq!(leaf_of(&member("223789"), 4), Shard(21));
    let shard = ShardKey { target: target("higgs/88"), kind: kind("like"), shard: Shard::ROOT };
    assert_eq!(bucket_of(&shard, 64), 9);
    assert_eq!(token_of(&shard.target), 0x42ad_ff9d_822a_3cdd);
}

#[test]
fn an_unknown_format_says_so() {
    let mut bytes = codec::encode_fact(&liked());
    bytes[0] = 2;
    let error = codec::decode_fact(&bytes).expect_err("format 2");
    assert_eq!(error, codec::CodecError::Format { what: "fact", found: 2 });
    assert!(error.to_string().contains("upgrade"));
}
