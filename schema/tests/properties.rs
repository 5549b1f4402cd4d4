//! Properties of the join and the rank, and decoders fed with garbage. Proptest prints the failing
//! case and its seed.

use proptest::prelude::*;
use tally_schema::{
    ChoiceRegister, Counts, Fact, FactKey, HideRegister, IdError, Intent, JournalEntry, KindName, Member, Namespace, Reason,
    Register, Shard, TargetKey, codec, leaf_of, leaves,
};

fn choice_register() -> impl Strategy<Value = ChoiceRegister> {
    // Few versions, so that ties are common.
    (0i64..4, 0u8..4, 0i64..4).prop_map(|(version, choice, since)| {
        if version == 0 { ChoiceRegister::default() } else { ChoiceRegister { version, choice, since } }
    })
}

fn hide_register() -> impl Strategy<Value = HideRegister> {
    (0i64..4, 0u8..2).prop_map(|(version, value)| HideRegister { version, value: if version == 0 { 0 } else { value } })
}

fn fact() -> impl Strategy<Value = Fact> {
    (choice_register(), prop::array::uniform3(hide_register())).prop_map(|(choice, hides)| Fact { choice, hides })
}

fn registers(fact: &Fact) -> Vec<(i64, u8)> {
    std::iter::once(Register::Choice).chain(Reason::ALL.map(Register::Hide)).map(|r| fact.register(r)).collect()
}

/// The rank's contract holds for values below 256, as choices are.
fn grew(before: &Fact, after: &Fact) -> bool {
    registers(before).iter().zip(registers(after)).any(|(b, a)| a > *b)
}

fn any_decoder(bytes: &[u8]) {
    let _ = codec::decode_fact(bytes);
    let _ = codec::decode_root_head(bytes);
    let _ = codec::decode_counter(1, bytes);
    let _ = codec::decode_ledger_head(bytes);
    let _ = codec::decode_ledger_row(bytes);
    let _ = codec::decode_index(bytes);
    let _ = codec::decode_journal(bytes);
    let _ = codec::decode_event(bytes);
    let _ = codec::decode_cursor(bytes);
}

proptest! {
    #[test]
    fn join_is_commutative_associative_and_idempotent(a in fact(), b in fact(), c in fact()) {
        prop_assert_eq!(a.join(b), b.join(a));
        prop_assert_eq!(a.join(b).join(c), a.join(b.join(c)));
        prop_assert_eq!(a.join(a), a);
        prop_assert_eq!(a.join(Fact::default()), a);
    }

    #[test]
    fn no_register_goes_back_in_a_join(a in fact(), b in fact()) {
        for (before, after) in registers(&a).iter().zip(registers(&a.join(b))) {
            prop_assert!(after >= *before);
        }
    }

    #[test]
    fn rank_grows_strictly_whenever_a_register_grows(a in fact(), b in fact()) {
        let joined = a.join(b);
        if grew(&a, &joined) {
            prop_assert!(joined.rank() > a.rank());
        } else {
            prop_assert_eq!(joined.rank(), a.rank());
        }
        prop_assert!(joined.newest() >= a.newest());
    }

    #[test]
    fn counts_are_the_sum_of_what_was_added(adds in prop::collection::vec((0u8..5, -3i64..4), 0..20)) {
        let counts: Counts = adds.iter().copied().collect();
        for choice in 1..5 {
            let sum: i64 = adds.iter().filter(|(c, _)| *c == choice).map(|(_, n)| n).sum();
            prop_assert_eq!(counts.get(choice), sum);
        }
        prop_assert_eq!(counts.get(0), 0);
        prop_assert_eq!(counts.total(), counts.iter().map(|(_, n)| n).sum::<i64>());
    }

    #[test]
    fn every_member_has_one_leaf(id in "[ -~]{1,128}", level in 1u8..=15) {
        let leaf = leaf_of(&Member::parse(&id).unwrap(), level);
        prop_assert!(leaves(level).any(|l| l == leaf));
        prop_assert!(!leaf.is_root() && leaf != Shard(0));
    }

    #[test]
    fn ids_are_kept_byte_for_byte_or_refused(text in any::<String>()) {
        let fits = (1..=128).contains(&text.len()) && !text.chars().any(char::is_control);
        match Member::parse(&text) {
            Ok(member) => { prop_assert!(fits); prop_assert_eq!(member.as_str(), text); }
            Err(_) => prop_assert!(!fits),
        }
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        any_decoder(&bytes);
        let mut formatted = bytes;
        if let Some(first) = formatted.first_mut() {
            *first = codec::FORMAT;
            any_decoder(&formatted);
        }
        if formatted.len() > 16 {
            formatted[16] = codec::FORMAT; // A counter's format byte follows its rank.
            let _ = codec::decode_counter(1, &formatted);
        }
    }

    #[test]
    fn one_wrong_byte_is_never_a_panic(at in 0usize..200, byte in any::<u8>(), cut in 0usize..200) {
        let key = FactKey {
            target: TargetKey::parse("video/p1").unwrap(),
            kind: KindName::parse("like").unwrap(),
            member: Member::parse("u1").unwrap(),
        };
        let intent = Intent { key, register: Register::Choice, version: 1_796_075_907_993_895, value: 1 };
        let entry = JournalEntry { id: 1, intents: vec![intent; 3], landed: vec![1] };
        let mut bytes = codec::encode_journal(&entry);
        let at = at % bytes.len();
        bytes[at] = byte;
        any_decoder(&bytes);
        bytes.truncate(cut);
        any_decoder(&bytes);
    }
}

/// A length that promises far more than the bytes hold must not be believed.
#[test]
fn hostile_lengths_are_refused_before_anything_is_allocated() {
    for length in [[0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], [0xfd, 0, 0, 0, 0, 0, 1, 0, 0]] {
        let mut journal = vec![codec::FORMAT, 1];
        journal.extend_from_slice(&length);
        assert!(codec::decode_journal(&journal).is_err());
        let mut event = vec![codec::FORMAT];
        event.extend_from_slice(&length);
        assert!(codec::decode_event(&event).is_err());
        let mut head = vec![codec::FORMAT, 1];
        head.extend_from_slice(&length);
        assert!(codec::decode_ledger_head(&head).is_err());
        let mut counter = vec![0; 16];
        counter.push(codec::FORMAT);
        counter.extend_from_slice(&length);
        assert!(codec::decode_counter(1, &counter).is_err());
    }
}

#[test]
fn trailing_bytes_are_refused() {
    let mut bytes = codec::encode_fact(&Fact::default());
    bytes.push(0);
    assert!(codec::decode_fact(&bytes).is_err());
}

#[test]
fn namespaces_and_keys() {
    for bad in ["", "Video", "a/b", "a b", &"a".repeat(33)] {
        assert_eq!(Namespace::parse(bad), Err(IdError::Namespace), "{bad:?}");
    }
    let key = TargetKey::new(&Namespace::parse("video").unwrap(), "a/b c").unwrap();
    assert_eq!((key.namespace(), key.id(), key.as_str()), ("video", "a/b c", "video/a/b c"));
    assert_eq!(TargetKey::parse(key.as_str()), Ok(key));
    for bad in ["video", "video/", "/p1", "Video/p1", "video/\u{7}"] {
        assert!(TargetKey::parse(bad).is_err(), "{bad:?}");
    }
    assert_eq!(Member::parse(&"ü".repeat(65)), Err(IdError::TooLong { len: 130, max: 128 }));
}
