//! Runs that once broke an invariant, shrunk: pasted from what the bin `sim` prints.

use tally_tests::sim::{ops::Case, run::run, world::Fault};

/// Each with what it found.
const CASES: [(&str, &str); 2] = [
    (
        "a like and an unlike of one version: `since` came from the unlike, and no index row by time had it",
        r#"{"seed":41,"ops":[{"aggregate":{"p":0}},{"aggregate":{"p":1}},{"sweep":{"p":0,"drain":false}},{"write":{"p":0,"items":[{"target":1,"kind":0,"member":2,"reg":"fraud","value":1}],"events":"lost"}},{"write":{"p":1,"items":[{"target":1,"kind":0,"member":2,"reg":"fraud","value":0},{"target":0,"kind":0,"member":0,"reg":"choice","value":1},{"target":1,"kind":0,"member":1,"reg":"choice","value":0}],"events":"once"}},{"write":{"p":1,"items":[{"target":1,"kind":1,"member":0,"reg":"moderation","value":0}],"events":"once"}},{"write":{"p":1,"items":[{"target":0,"kind":0,"member":1,"reg":"choice","value":1}],"events":"once"}},{"write":{"p":0,"items":[{"target":0,"kind":0,"member":1,"reg":"choice","value":0},{"target":0,"kind":0,"member":0,"reg":"choice","value":1},{"target":1,"kind":0,"member":2,"reg":"choice","value":1}],"events":"once"}},{"write":{"p":1,"items":[{"target":0,"kind":0,"member":2,"reg":"choice","value":0},{"target":0,"kind":0,"member":0,"reg":"suspension","value":0},{"target":1,"kind":0,"member":1,"reg":"choice","value":1},{"target":1,"kind":0,"member":3,"reg":"choice","value":1}],"events":"lost"}},{"steps":{"n":20}},{"write":{"p":0,"items":[{"target":1,"kind":2,"member":1,"reg":"choice","value":0}],"events":"lost"}},{"write":{"p":1,"items":[{"target":0,"kind":2,"member":0,"reg":"suspension","value":1}],"events":"once"}},{"aggregate":{"p":0}},{"write":{"p":1,"items":[{"target":1,"kind":0,"member":1,"reg":"choice","value":1}],"events":"once"}},{"write":{"p":0,"items":[{"target":1,"kind":0,"member":1,"reg":"choice","value":0}],"events":"once"}}]}"#,
    ),
    (
        "the same beside an import, where both were written into a leaf",
        r#"{"seed":430,"ops":[{"write":{"p":0,"items":[{"target":1,"kind":0,"member":2,"reg":"choice","value":1},{"target":0,"kind":0,"member":0,"reg":"moderation","value":1}],"events":"twice"}},{"stray":{"p":0,"target":0,"kind":0,"members":[1],"root":true}},{"write":{"p":1,"items":[{"target":0,"kind":0,"member":1,"reg":"choice","value":0}],"events":"lost"}},{"write":{"p":0,"items":[{"target":0,"kind":0,"member":3,"reg":"moderation","value":0}],"events":"once"}},{"write":{"p":1,"items":[{"target":1,"kind":0,"member":0,"reg":"choice","value":1,"ago":5641}],"events":"once"}},{"write":{"p":1,"items":[{"target":0,"kind":0,"member":0,"reg":"suspension","value":1}],"events":"once"}},{"write":{"p":0,"items":[{"target":0,"kind":0,"member":0,"reg":"suspension","value":0}],"events":"once"}},{"write":{"p":1,"items":[{"target":1,"kind":1,"member":2,"reg":"choice","value":1,"ago":2384}],"events":"lost"}},{"steps":{"n":60}},{"write":{"p":1,"items":[{"target":1,"kind":0,"member":0,"reg":"choice","value":1}],"events":"lost"}},{"write":{"p":0,"items":[{"target":1,"kind":0,"member":0,"reg":"choice","value":0},{"target":1,"kind":0,"member":1,"reg":"choice","value":0},{"target":1,"kind":0,"member":2,"reg":"choice","value":0}],"events":"once"}}]}"#,
    ),
];

#[test]
fn what_once_broke_holds() {
    for (what, text) in CASES {
        let case: Case = serde_json::from_str(text).expect("a case, as it was printed");
        assert_eq!(run(&case, Fault::default(), false).broken, None, "{what}: {text}");
    }
}
