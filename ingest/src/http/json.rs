//! What is wrong with JSON or a query, in our words: which field, what is there, what belongs there.
//!
//! The parser's own messages name Rust types and quote as much of the input as somebody sends.

use super::request::short;

/// Names of fields that one message lists.
const LISTED: usize = 20;

/// The field at fault (`body` where none is named) and what is wrong with it.
pub(crate) fn fault(message: &str) -> (String, String) {
    let message = ["target type: ", "body as JSON: ", "query string: "]
        .iter()
        .find_map(|before| message.split_once(before).map(|(_, rest)| rest))
        .unwrap_or(message);
    let (what, place) = match message.rsplit_once(" at line ") {
        Some((what, place)) => (what, format!(" (line {})", short(&place.replace(" column ", ", column ")))),
        None => (message, String::new()),
    };
    // A path before the message, as `members[0]: …`.
    let (path, what) = match what.split_once(": ") {
        Some((path, rest)) if !path.contains([' ', '`', '"']) && !path.is_empty() => (Some(path), rest),
        _ => (None, what),
    };
    let mut quoted = what.split('`').skip(1).step_by(2);
    let named = |name: Option<&str>| name.map_or_else(|| "body".to_owned(), short);
    let at = |path: Option<&str>| path.filter(|p| *p != ".").map_or_else(|| "body".to_owned(), short);
    if what.starts_with("missing field") {
        let field = named(quoted.next());
        return (field.clone(), format!("`{field}` is missing"));
    }
    if what.starts_with("duplicate field") {
        let field = named(quoted.next());
        return (field.clone(), format!("`{field}` is given twice"));
    }
    if let Some(rest) = what.strip_prefix("unknown field `").or_else(|| what.strip_prefix("unknown variant `")) {
        let (sent, known) = rest.split_once("`, ").unwrap_or((rest, ""));
        // What was sent may hold anything, our own words too: so these are cut as well.
        let known: Vec<String> = known.split('`').skip(1).step_by(2).take(LISTED).map(short).collect();
        let there = if known.is_empty() { "there are none".to_owned() } else { format!("known: {}", known.join(", ")) };
        let sent = short(sent);
        return match what.starts_with("unknown field") {
            true => (sent.clone(), format!("there is no field `{sent}`; {there}")),
            false => (at(path), format!("`{sent}` is not one of them; {there}")),
        };
    }
    if let Some((found, expected)) = what.strip_prefix("invalid ").and_then(|rest| rest.rsplit_once(", expected ")) {
        let (_, found) = found.split_once(": ").unwrap_or(("", found));
        return (at(path), format!("{} where {} belongs{place}", found_word(found), expected_word(expected)));
    }
    if what.starts_with("invalid digit") || what.starts_with("cannot parse integer") || what.starts_with("number too") {
        return (at(path), "a whole number that is not too large belongs here".to_owned());
    }
    if what.starts_with("EOF") {
        return (at(path), "the JSON ends too early".to_owned());
    }
    (at(path), format!("not the JSON that belongs here{place}"))
}

/// The sort of what was sent, never the thing itself.
fn found_word(found: &str) -> &'static str {
    match found.split([' ', '`', '"']).next().unwrap_or("") {
        "string" | "str" => "a text",
        "integer" | "floating" | "number" => "a number",
        "boolean" => "true or false",
        "null" | "unit" => "null",
        "sequence" => "a list",
        "map" => "an object",
        _ => "something else",
    }
}

fn expected_word(expected: &str) -> String {
    match expected {
        "a string" | "string" | "str" | "a borrowed string" => "a text".to_owned(),
        "a boolean" | "bool" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        text if text.starts_with("struct ") => "an object".to_owned(),
        text if text.starts_with(['u', 'i', 'f']) && text[1..].chars().all(|c| c.is_ascii_digit()) => "a number".to_owned(),
        "usize" | "isize" => "a number".to_owned(),
        other => short(other),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read into")]
    struct Sample {
        name: String,
        list: Vec<u32>,
        sort: Option<Sort>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Sort {
        One,
        Two,
    }

    #[test]
    fn every_fault_is_told_in_our_words_and_no_more_of_the_input_than_a_bit() {
        let long = "x".repeat(5000);
        let cases = [
            (r#"{"list":[]}"#.to_owned(), "name", "`name` is missing"),
            (r#"{"name":"a","name":"b"}"#.to_owned(), "name", "`name` is given twice"),
            (r#"{"nme":1}"#.to_owned(), "nme", "there is no field `nme`; known: name, list, sort"),
            (r#"{"name":5}"#.to_owned(), "body", "a number where a text belongs (line 1, column 9)"),
            (r#"{"name":"a","list":"no"}"#.to_owned(), "body", "a text where a list belongs (line 1, column 23)"),
            (r#"{"name":"a","list":[-1]}"#.to_owned(), "body", "a number where a number belongs (line 1, column 22)"),
            (r#"{"name":"a","list":[],"sort":"six"}"#.to_owned(), "body", "`six` is not one of them; known: one, two"),
            ("[1]".to_owned(), "body", "a number where a text belongs (line 1, column 2)"),
            ("{".to_owned(), "body", "the JSON ends too early"),
            ("<html>".to_owned(), "body", "not the JSON that belongs here (line 1, column 1)"),
            (String::new(), "body", "the JSON ends too early"),
        ];
        for (text, field, detail) in cases {
            let error = serde_json::from_str::<Sample>(&text).unwrap_err().to_string();
            assert_eq!(fault(&error), (field.to_owned(), detail.to_owned()), "{error}");
        }
        for text in [
            format!(r#"{{"{long}":1}}"#),
            format!(r#"{{"a`, expected {long}":1}}"#),
            format!(r#"{{"name":"a","list":["{long}"]}}"#),
            format!(r#"{{"name":"a","list":[],"sort":"{long}"}}"#),
            format!(r#"{{"name":"a","list":{long}}}"#),
        ] {
            let (field, detail) = fault(&serde_json::from_str::<Sample>(&text).unwrap_err().to_string());
            assert!(field.len() < 300 && detail.len() < 1500, "{field}: {detail}");
        }
    }

    #[test]
    fn a_path_and_the_words_of_the_frame_around_are_taken_off() {
        let list = "Failed to deserialize the JSON body into the target type: members[0]: invalid type: integer `1`, expected a string \
                    at line 1 column 20";
        let wanted = ("members[0]".to_owned(), "a number where a text belongs (line 1, column 20)".to_owned());
        assert_eq!(fault(list), wanted);
        let query = "Failed to deserialize query string: missing field `namespace`";
        assert_eq!(fault(query), ("namespace".to_owned(), "`namespace` is missing".to_owned()));
        let number = "Failed to deserialize query string: n: invalid digit found in string";
        assert_eq!(fault(number), ("n".to_owned(), "a whole number that is not too large belongs here".to_owned()));
    }
}
