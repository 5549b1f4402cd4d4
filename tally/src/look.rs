//! `tally get` and `tally top`.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::{
    cli::{GetArgs, TopArgs},
    client::{Client, segment},
    failure::{Failure, OK},
    output::{grouped, print, print_json},
    serve::TopEntry,
};

/// Targets of one request: the API's limit.
const MAX_TARGETS: usize = 200;

/// `tally top`.
pub async fn top(args: TopArgs) -> Result<u8, Failure> {
    let client = Client::new(&args.server.url, 1)?;
    let (namespace, kind, n) = (segment(&args.namespace), segment(&args.kind), args.n);
    let found: Vec<TopEntry> = client.get(&format!("/v1/ops/top?namespace={namespace}&kind={kind}&n={n}")).await?;
    if args.json {
        print_json(&found)?;
        return Ok(OK);
    }
    let mut out = format!("{:>4}  {:>12}  target\n", "", args.kind);
    for (i, entry) in found.iter().enumerate() {
        let _ = write!(out, "{:>4}  {:>12}  {}", i + 1, grouped(entry.total), entry.target);
        if entry.choices.len() > 1 {
            let choices: Vec<String> = entry.choices.iter().map(|(c, n)| format!("{c} {}", grouped(*n))).collect();
            let _ = write!(out, "  ({})", choices.join(", "));
        }
        out.push('\n');
    }
    if found.is_empty() {
        out = format!("no target of namespace `{}` has a {}\n", args.namespace, args.kind);
    }
    print(&out)?;
    Ok(OK)
}

/// `tally get`.
pub async fn get(args: GetArgs) -> Result<u8, Failure> {
    if args.targets.len() > MAX_TARGETS {
        return Err(Failure::usage(format!("{} targets, at most {MAX_TARGETS} at a time", args.targets.len())));
    }
    let client = Client::new(&args.server.url, 1)?;
    let namespace = segment(&args.namespace);
    if let [target] = args.targets.as_slice() {
        let answer: Value = client.get(&format!("/v1/{namespace}/targets/{}", segment(target))).await?;
        if args.json { print_json(&answer) } else { print(&describe(target, &answer)) }?;
        return Ok(OK);
    }
    let answer: Value = client.post(&format!("/v1/{namespace}/counts"), &json!({ "targets": args.targets })).await?;
    if args.json {
        print_json(&answer)?;
        return Ok(OK);
    }
    let lines: Vec<String> = args.targets.iter().map(|t| describe(t, &answer["targets"][t.as_str()])).collect();
    print(&lines.concat())?;
    Ok(OK)
}

/// One target for people: every kind with its total, and its choices where there are several.
fn describe(target: &str, answer: &Value) -> String {
    let mut out = format!("{target}\n");
    let kinds = answer["kinds"].as_object();
    let mut shown = 0;
    for (kind, counts) in kinds.into_iter().flatten() {
        let total = counts["total"].as_i64().map_or_else(|| "not known now".to_owned(), grouped);
        let choices: Vec<String> = counts["choices"]
            .as_object()
            .filter(|c| c.len() > 1)
            .into_iter()
            .flatten()
            .map(|(choice, n)| format!("{choice} {}", n.as_i64().map_or_else(|| "?".to_owned(), grouped)))
            .collect();
        let choices = if choices.is_empty() { String::new() } else { format!("  ({})", choices.join(", ")) };
        let _ = writeln!(out, "  {kind:<12} {total:>12}{choices}");
        shown += 1;
    }
    if shown == 0 {
        out.push_str("  nothing is counted yet\n");
    }
    if answer["stale"].as_bool() == Some(true) {
        out.push_str("  stale: the store was not reached just now\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_shown_by_kind_and_choice_and_unknown_is_not_zero() {
        let answer = json!({"kinds": {
            "like": {"total": 12345, "choices": {"like": 12345}},
            "reaction": {"total": 3, "choices": {"love": 1, "sad": 2}},
            "bookmark": {"total": null},
        }, "stale": true});
        let text = describe("p1", &answer);
        assert!(text.contains("like               12'345\n"), "{text}");
        assert!(text.contains("(love 1, sad 2)") && text.contains("not known now") && text.contains("stale"), "{text}");
        assert!(describe("p2", &json!({"kinds": {}})).contains("nothing is counted yet"));
    }
}
