//! The same in plain words.

use std::collections::BTreeMap;

use schema::{Micros, Status};

use super::view::{Explanation, FactView, IntentView, StatusView};
use crate::times::{said, span};

/// `e` with its summary and its lines.
pub(super) fn with_words(mut e: Explanation) -> Explanation {
    e.summary = summary(&e);
    e.words = lines(&e);
    e
}

fn micros(text: &str) -> Micros {
    text.parse().unwrap_or(0)
}

/// A time with its distance from now.
fn when(at: &str, now: &str) -> String {
    format!("{} ({} ago)", said(micros(at)), span(micros(now).saturating_sub(micros(at))))
}

/// What holds of the fact, and what is unusual about its target and user.
fn summary(e: &Explanation) -> String {
    let mut out = fact_summary(e);
    if e.target_status.status != Status::Open {
        out += &format!("; the target is {}", e.target_status.status.name());
    }
    if let Some(user) = e.user_status.as_ref().filter(|user| user.status != Status::Active) {
        out += &format!("; the user is {}", user.status.name());
    }
    out
}

fn status(view: &StatusView, now: &str) -> String {
    let since = view.since.as_ref().map_or_else(|| ", never set".to_owned(), |at| format!(" since {}", when(at, now)));
    let run = view.run.as_ref().map(|run| format!("; run {run} hides their facts")).unwrap_or_default();
    format!("{}{since}{run}", view.status.name())
}

fn fact_summary(e: &Explanation) -> String {
    let (member, target, kind) = (&e.member, &e.target, &e.kind);
    let Some(fact) = &e.fact else {
        let pending = if e.pending.is_empty() { "nothing pending" } else { "a change is pending" };
        return format!("nothing was ever stored of {member} and {target} as `{kind}`; {pending}");
    };
    let state = state(e, fact);
    let hidden: Vec<&str> = fact.hides.iter().filter(|(_, h)| h.hidden).map(|(reason, _)| reason.as_str()).collect();
    let counted = match (fact.choice.is_some(), hidden.is_empty(), e.counted) {
        (true, true, true) => "counted".to_owned(),
        (true, true, false) => "not known to be counted yet".to_owned(),
        (_, false, true) => format!("not in the count: hidden for {}", hidden.join(" and ")),
        (_, false, false) => format!("hidden for {}, not known to be out of the count yet", hidden.join(" and ")),
        (false, true, true) => "not in the count".to_owned(),
        (false, true, false) => "not known to be out of the count yet".to_owned(),
    };
    let pending = match e.pending.len() {
        0 => "nothing pending".to_owned(),
        1 => "one thing pending".to_owned(),
        n => format!("{n} things pending"),
    };
    format!("{state}; {counted}; {pending}")
}

fn state(e: &Explanation, fact: &FactView) -> String {
    let (member, target, kind) = (&e.member, &e.target, &e.kind);
    match (&fact.choice, &fact.since, &fact.version) {
        (Some(choice), Some(since), _) if choice == "like" && kind == "like" => {
            format!("{member} likes {target} since {}", when(since, &e.now))
        }
        (Some(choice), Some(since), _) if choice == kind => {
            format!("{member} has a `{kind}` on {target} since {}", when(since, &e.now))
        }
        (Some(choice), Some(since), _) => {
            format!("{member} has chosen `{choice}` as `{kind}` of {target} since {}", when(since, &e.now))
        }
        (_, _, Some(version)) => format!("{member} withdrew their `{kind}` of {target} at {}", when(version, &e.now)),
        _ => format!("{member} has never chosen a `{kind}` of {target}"),
    }
}

fn counts(counts: &BTreeMap<String, i64>) -> String {
    if counts.is_empty() {
        return "nobody".to_owned();
    }
    counts.iter().map(|(choice, n)| format!("{choice} {n}")).collect::<Vec<_>>().join(", ")
}

fn registers(fact: &FactView, now: &str) -> String {
    let mut parts = vec![match (&fact.choice, &fact.version) {
        (Some(choice), Some(version)) => {
            let since = fact.since.as_deref().unwrap_or("0");
            format!("choice `{choice}` since {}, written {} (version {version})", said(micros(since)), when(version, now))
        }
        (_, Some(version)) => format!("withdrawn, written {} (version {version})", when(version, now)),
        _ => "no choice".to_owned(),
    }];
    for (reason, hide) in &fact.hides {
        let what = if hide.hidden { "hidden" } else { "not hidden any more" };
        parts.push(format!("{reason}: {what} since {}", when(&hide.version, now)));
    }
    parts.join("; ")
}

fn lines(e: &Explanation) -> Vec<String> {
    let mut out = vec![e.summary.clone()];
    let mut line = |name: &str, text: String| out.push(format!("  {:<9} {text}", format!("{name}:")));
    if let Some(fact) = &e.fact {
        line("fact", registers(fact, &e.now));
    }
    line("target", status(&e.target_status, &e.now));
    if let Some(user) = &e.user_status {
        line("user", status(user, &e.now));
    }
    let s = &e.stored;
    line(
        "stored",
        match s.level {
            None => format!("small target, in its root (shard 1) with {} fact row(s) in all", s.root_rows),
            Some(level) => {
                let since = s.large_since.as_deref().unwrap_or("0");
                format!("large target since {}, in leaf {}, one of {}", said(micros(since)), s.shard, 1_u32 << level.min(15))
            }
        },
    );
    if let Some(left) = &s.left_in_root {
        line("root", format!("a copy from before the target became large: {}", registers(left, &e.now)));
    }
    if let Some(ledger) = &e.ledger {
        line(
            "ledger",
            ledger.row.as_ref().map_or_else(
                || "no row: this member is not counted here".to_owned(),
                |row| format!("{}; counted in revision {}", registers(&row.fact, &e.now), row.revision),
            ),
        );
        line(
            "head",
            ledger.head.as_ref().map_or_else(
                || "none: the leaf was never counted".to_owned(),
                |h| {
                    let whole = if h.complete { "" } else { "; being built" };
                    let audit = h.audit_at.as_ref().map(|m| format!("; a recount has come to `{m}`")).unwrap_or_default();
                    format!("revision {}, {}{whole}{audit}", h.revision, counts(&h.counts))
                },
            ),
        );
    }
    line(
        "counter",
        e.counter.as_ref().map_or_else(
            || "no row".to_owned(),
            |row| {
                let due = row.due.as_ref().filter(|due| **due != row.counts);
                let due = due.map(|due| format!("; due: {}", counts(due))).unwrap_or_default();
                format!("{} as of {}{due}", counts(&row.counts), said(micros(&row.as_of)))
            },
        ),
    );
    if let Some(index) = &e.index {
        let what = index.choice.as_ref().map_or_else(|| "withdrawn".to_owned(), |c| format!("`{c}`"));
        let agrees = if index.agrees { "as the fact" } else { "NOT as the fact" };
        line("own list", format!("{what} since {}, {agrees}", said(micros(&index.since))));
    }
    let intents = &e.journal.intents;
    let whole = if e.journal.whole { "" } else { "; more was not looked at" };
    match intents.len() {
        0 => line("journal", format!("no intent names it, in what is not swept and in recent slots{whole}")),
        n => line("journal", format!("{n} intent(s) name it{whole}")),
    }
    for intent in intents {
        out.push(format!("    {}", intent_line(intent)));
    }
    let mut line = |name: &str, text: String| out.push(format!("  {:<9} {text}", format!("{name}:")));
    for pending in &e.pending {
        line("pending", pending.clone());
    }
    line("complete", format!("every change answered before {} is counted", said(micros(&e.complete_until))));
    out
}

fn intent_line(i: &IntentView) -> String {
    let value = i.value.as_deref().unwrap_or("withdrawn");
    let landed = if i.landed { "in the fact, or superseded" } else { "NOT in the fact yet" };
    let swept = if i.swept { "swept" } else { "not swept yet" };
    format!(
        "{} = {value}, version {}, slot of {} of lane {}: {landed}, {swept}",
        i.register,
        i.version,
        said(micros(&i.slot_began)),
        i.lane
    )
}

#[cfg(test)]
mod tests {
    use schema::{Fact, FactKey, IndexRow, KindName, Member, Reason, Register, RootHead, Shard, StatusRow, TargetKey};
    use store::{Settings, protocol::Explained};

    use super::*;
    use crate::explain::view;

    fn key(kind: &str) -> FactKey {
        FactKey {
            target: TargetKey::parse("video/p1").unwrap(),
            kind: KindName::parse(kind).unwrap(),
            member: Member::parse("u1").unwrap(),
        }
    }

    fn stored(fact: Fact, counted: bool) -> Explained {
        Explained {
            now: 5_000_000,
            fact,
            counted,
            shard: Shard::ROOT,
            root: RootHead::default(),
            root_rows: 1,
            left_in_root: None,
            ledger: None,
            counter: None,
            due: None,
            shown: None,
            index: Some(IndexRow::from(fact.choice)),
            target_status: None,
            user_status: Some(None),
            intents: Vec::new(),
            journal_whole: true,
            complete_until: 4_000_000,
        }
    }

    fn summary_of(kind: &str, explained: &Explained) -> String {
        let settings = Settings::default();
        with_words(view::of(&key(kind), settings.kinds.get(kind), &settings, explained)).summary
    }

    #[test]
    fn each_state_is_said_in_one_sentence() {
        let like = Fact::of(Register::Choice, 2_000_000, 1, 1_000_000);
        let hide = Fact::of(Register::Hide(Reason::Fraud), 3_000_000, 1, 0);
        let at = "1970-01-01 00:00:01.000 UTC (4.0 s ago)";
        let cases = [
            ("like", like, true, format!("u1 likes p1 since {at}; counted; nothing pending")),
            ("like", like, false, format!("u1 likes p1 since {at}; not known to be counted yet; one thing pending")),
            (
                "like",
                like.join(hide),
                true,
                format!("u1 likes p1 since {at}; not in the count: hidden for fraud; nothing pending"),
            ),
            ("bookmark", like, true, format!("u1 has a `bookmark` on p1 since {at}; counted; nothing pending")),
            (
                "reaction",
                Fact::of(Register::Choice, 1_000_000, 2, 1_000_000),
                true,
                format!("u1 has chosen `love` as `reaction` of p1 since {at}; counted; nothing pending"),
            ),
            (
                "like",
                Fact::of(Register::Choice, 1_000_000, 0, 0),
                true,
                format!("u1 withdrew their `like` of p1 at {at}; not in the count; nothing pending"),
            ),
            (
                "like",
                hide,
                true,
                "u1 has never chosen a `like` of p1; not in the count: hidden for fraud; nothing pending".to_owned(),
            ),
            ("like", Fact::default(), false, "nothing was ever stored of u1 and p1 as `like`; nothing pending".to_owned()),
        ];
        for (kind, fact, counted, text) in cases {
            assert_eq!(summary_of(kind, &stored(fact, counted)), text);
        }
    }

    #[test]
    fn statuses_are_said_and_unusual_ones_in_the_first_sentence_too() {
        let like = Fact::of(Register::Choice, 2_000_000, 1, 1_000_000);
        let row = |status, run| Some(StatusRow { version: 4_000_000, status, run });
        let at = "since 1970-01-01 00:00:04.000 UTC (1.0 s ago)";
        let words = |explained: &Explained| {
            let settings = Settings::default();
            with_words(view::of(&key("like"), settings.kinds.get("like"), &settings, explained)).words.join("\n")
        };
        let usual = words(&stored(like, true));
        assert!(usual.contains("target:   open, never set") && usual.contains("user:     active, never set"), "{usual}");
        let of_both = Explained {
            target_status: row(Status::Gone, None),
            user_status: Some(row(Status::Suspended, Some(7))),
            ..stored(like, true)
        };
        let both = words(&of_both);
        assert!(both.lines().next().unwrap().ends_with("; the target is gone; the user is suspended"), "{both}");
        assert!(both.contains(&format!("target:   gone {at}\n")), "{both}");
        assert!(both.contains(&format!("user:     suspended {at}; run 7 hides their facts\n")), "{both}");
        let comment = words(&Explained { target_status: row(Status::Open, None), user_status: None, ..stored(like, true) });
        assert!(comment.contains(&format!("target:   open {at}")) && !comment.contains("user:"), "{comment}");
    }
}
