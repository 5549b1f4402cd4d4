//! The lines of an export, and its cursors.

use std::fmt::Write;

use rebuilder::ExportPlace;
use schema::{Fact, FactKey, Kind, Kinds, Micros, Reason};
use serde::Serialize;

/// Longest cursor that is read, in characters.
const MAX_CURSOR: usize = 8 << 10;

/// One register of one fact, as `import` takes it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line<'a> {
    /// Id of the target.
    pub target: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Id of the member.
    pub user: &'a str,
    /// Lines of a choice: its name; `null` where it was withdrawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<Option<String>>,
    /// Lines of a register that hides: its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register: Option<&'a str>,
    /// Whether it hides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
    /// When, in microseconds since 1970.
    pub at: String,
}

/// The lines of `facts`: one for each counted fact, or for every register that was ever written.
pub fn lines(kinds: &Kinds, facts: &[(FactKey, Fact)], all_registers: bool) -> String {
    let mut out = String::new();
    for (key, fact) in facts {
        let kind = kinds.get(key.kind.as_str());
        let choice = fact.choice;
        if choice.version > 0 && (all_registers || fact.counted() != 0) {
            // Since when it is so; a withdrawal has its version only.
            let at = if choice.choice != 0 && choice.since > 0 { choice.since } else { choice.version };
            let choice = (choice.choice != 0).then(|| name(kind, choice.choice));
            put(&mut out, &Line { choice: Some(choice), ..line(key, at) });
        }
        for (reason, hide) in Reason::ALL.into_iter().zip(fact.hides).filter(|(_, h)| all_registers && h.version > 0) {
            let (register, hidden) = (Some(reason.name()), Some(hide.value != 0));
            put(&mut out, &Line { register, hidden, ..line(key, hide.version) });
        }
    }
    out
}

fn line(key: &FactKey, at: Micros) -> Line<'_> {
    Line {
        target: key.target.id(),
        kind: key.kind.as_str(),
        user: key.member.as_str(),
        choice: None,
        register: None,
        hidden: None,
        at: at.to_string(),
    }
}

fn put(out: &mut String, line: &Line<'_>) {
    let text = serde_json::to_string(line).expect("texts always serialise");
    let _ = writeln!(out, "{text}");
}

/// A choice without a name can only come from a damaged row; an import refuses its number.
fn name(kind: Option<&Kind>, choice: schema::Choice) -> String {
    kind.and_then(|k| k.choice_name(choice)).map_or_else(|| choice.to_string(), str::to_owned)
}

/// A place as a cursor.
pub fn text_of(place: &ExportPlace) -> String {
    let json = serde_json::to_vec(place).expect("bytes and texts always serialise");
    json.iter().fold(String::with_capacity(json.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The place of a cursor; `None`: it is none.
pub fn place_of(text: &str) -> Option<ExportPlace> {
    if text.len() > MAX_CURSOR || !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect();
    serde_json::from_slice(&bytes?).ok()
}

#[cfg(test)]
mod tests {
    use schema::{KindName, Member, Register, TargetKey, default_kinds};

    use super::*;

    #[test]
    fn each_register_is_a_line_and_only_counted_facts_are_unless_all_are_asked_for() {
        let key = |member: &str| FactKey {
            target: TargetKey::parse("video/p \"1\"").unwrap(),
            kind: KindName::parse("reaction").unwrap(),
            member: Member::parse(member).unwrap(),
        };
        let love = Fact::of(Register::Choice, 900, 2, 500);
        let hidden = love.join(Fact::of(Register::Hide(Reason::Fraud), 950, 1, 0));
        let withdrawn = Fact::of(Register::Choice, 700, 0, 0);
        let facts = [(key("a"), love), (key("b"), hidden), (key("c"), withdrawn)];
        let kinds = default_kinds();
        let one = r#"{"target":"p \"1\"","kind":"reaction","user":"a","choice":"love","at":"500"}"#;
        assert_eq!(lines(&kinds, &facts, false), format!("{one}\n"));
        let all = lines(&kinds, &facts, true);
        let expected = [
            one,
            r#"{"target":"p \"1\"","kind":"reaction","user":"b","choice":"love","at":"500"}"#,
            r#"{"target":"p \"1\"","kind":"reaction","user":"b","register":"fraud","hidden":true,"at":"950"}"#,
            r#"{"target":"p \"1\"","kind":"reaction","user":"c","choice":null,"at":"700"}"#,
        ];
        assert_eq!(all.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn cursors_come_back_and_garbage_is_none() {
        let place = ExportPlace::default();
        assert_eq!(place_of(&text_of(&place)), Some(place));
        for bad in ["", "0", "zz", "7b", "ü0", &"0".repeat(MAX_CURSOR + 2)] {
            assert_eq!(place_of(bad), None, "{bad}");
        }
    }
}
