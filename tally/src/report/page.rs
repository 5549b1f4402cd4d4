//! A report as one page that a manager can read: no script, nothing from elsewhere, printable.

use std::fmt::Write;

use rebuilder::{Cause, Drift, Report};

use super::{
    html::{escape, id},
    verdict::{Tone, is_whole, meaning, percent, plural, verdict},
};
use crate::{
    output::grouped,
    times::{said, span},
};

const STYLE: &str = include_str!("page.css");
/// Width of the bar of causes, in its own units.
const BAR: f64 = 720.0;

/// The page.
pub fn render(report: &Report) -> String {
    let (tone, sentence) = verdict(report);
    let (class, word) = match tone {
        Tone::Good => ("good", "Right"),
        Tone::Mended => ("mended", "Repaired"),
        Tone::Bad => ("bad", "Needs attention"),
    };
    let title = format!("{} of {}", kind_of_run(report), said(report.started));
    let mut out = String::with_capacity(16 << 10);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<header>\n<p class=\"brand\">Tally · integrity report</p>\n\
         <h1>{}</h1>\n<p class=\"when\">{}</p>\n</header>\n\
         <section class=\"verdict {class}\" aria-label=\"Verdict\">\n<p class=\"word\">{word}</p>\n<p>{}</p>\n</section>\n",
        escape(&format!("{word}: {title}")),
        escape(kind_of_run(report)),
        escape(&said(report.started)),
        escape(&sentence),
    );
    if let Some(why) = report.error.as_ref().or(report.frozen_because.as_ref()) {
        let _ = writeln!(out, "<p class=\"why\"><strong>Because:</strong> {}</p>", escape(why));
    }
    figures(&mut out, report);
    causes(&mut out, report);
    drifted(&mut out, report);
    about(&mut out, report);
    let _ = write!(
        out,
        "<footer>\n<p>Every number is derived from stored facts and can be counted again at any time; a repair counts again, \
         it never sets a number by hand.</p>\n<p>Made by Tally {}.</p>\n</footer>\n</main>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    out
}

fn kind_of_run(report: &Report) -> &'static str {
    match report.what.as_str() {
        "verify" => "Check of all derived numbers",
        "rebuild --dry-run" => "Recount, report only",
        _ => "Recount and repair",
    }
}

fn duration(report: &Report) -> String {
    if report.finished > 0 { span(report.finished.saturating_sub(report.started)) } else { "not ended".to_owned() }
}

/// The figures at the top.
fn figures(out: &mut String, report: &Report) {
    let age = match (report.oldest_part_seconds, report.parts_never_verified) {
        (_, n) if n > 0 && !is_whole(report) => format!("{} never checked", plural(u64::from(n), "part was", "parts were")),
        (Some(seconds), _) => {
            format!("oldest check {} ago", span(i64::try_from(seconds).unwrap_or(i64::MAX / 1_000_000).saturating_mul(1_000_000)))
        }
        (None, _) => "of all data".to_owned(),
    };
    let (index, targets) = (plural(report.index_rows, "list entry", "list entries"), plural(report.targets, "target", "targets"));
    let cards = [
        ("Facts checked", grouped(report.facts), format!("and {index}, of {targets}")),
        ("Share checked", percent(report.share_percent), age),
        ("Differences found", grouped(report.drifted), format!("in {}", plural(report.drifted_targets, "target", "targets"))),
        ("Repaired", grouped(report.repaired), remaining(report)),
        ("Duration", duration(report), rate(report)),
    ];
    out.push_str("<section aria-label=\"Figures\">\n<dl class=\"cards\">\n");
    for (name, value, note) in cards {
        let _ =
            writeln!(out, "<div><dt>{name}</dt><dd><strong>{}</strong><span>{}</span></dd></div>", escape(&value), escape(&note));
    }
    out.push_str("</dl>\n</section>\n");
}

fn remaining(report: &Report) -> String {
    match report.drifted.saturating_sub(report.repaired) {
        0 => "nothing remains".to_owned(),
        n => plural(n, "remains", "remain"),
    }
}

fn rate(report: &Report) -> String {
    let micros = report.finished.saturating_sub(report.started);
    let per_second = u64::try_from(micros).ok().filter(|m| *m > 0).map(|m| u128::from(report.facts) * 1_000_000 / u128::from(m));
    per_second.map_or_else(String::new, |n| format!("{} facts a second", grouped(i128::try_from(n).unwrap_or(i128::MAX))))
}

/// A bar with a part for each cause, and a table that says the same in words.
fn causes(out: &mut String, report: &Report) {
    let found: Vec<(Cause, u64, u64)> =
        report.causes.iter().filter(|(_, t)| t.found > 0).map(|(c, t)| (*c, t.found, t.repaired)).collect();
    if found.is_empty() {
        return;
    }
    let all: u64 = found.iter().map(|(_, n, _)| n).sum();
    let said: Vec<String> = found.iter().map(|(c, n, _)| format!("{} {}", meaning(*c).0, grouped(*n))).collect();
    let _ = write!(
        out,
        "<section>\n<h2>Causes</h2>\n<svg class=\"bar\" viewBox=\"0 0 {BAR} 28\" role=\"img\" aria-labelledby=\"bar-title\" \
         preserveAspectRatio=\"none\">\n<title id=\"bar-title\">Differences by cause: {}</title>\n",
        escape(&said.join(", "))
    );
    let mut x = 0.0;
    for (cause, n, _) in &found {
        let width = BAR * (*n as f64) / (all as f64);
        let _ = writeln!(
            out,
            "<rect class=\"{}\" x=\"{x:.2}\" y=\"0\" width=\"{:.2}\" height=\"28\"><title>{}: {}</title></rect>",
            cause.name(),
            (width - 2.0).max(1.0),
            meaning(*cause).0,
            grouped(*n)
        );
        x += width;
    }
    out.push_str(
        "</svg>\n<table class=\"causes\">\n<caption>Differences by cause</caption>\n<thead><tr><th scope=\"col\">Cause</th>\
         <th scope=\"col\" class=\"n\">Found</th><th scope=\"col\" class=\"n\">Repaired</th><th scope=\"col\">What it means</th></tr></thead>\n<tbody>\n",
    );
    for (cause, n, repaired) in &found {
        let (name, means) = meaning(*cause);
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\"><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"{}\" width=\"10\" height=\"10\"/></svg>{name}</th>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{means}</td></tr>",
            cause.name(),
            grouped(*n),
            grouped(*repaired)
        );
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

/// What differed, before and after.
fn drifted(out: &mut String, report: &Report) {
    if report.drift.is_empty() {
        return;
    }
    let listed = report.drift.len() as u64;
    let note = if listed < report.drifted {
        format!("The first {} of {}; all of them are counted above.", grouped(listed), grouped(report.drifted))
    } else {
        "Every place that differed.".to_owned()
    };
    let _ = write!(
        out,
        "<section>\n<h2>What differed</h2>\n<table>\n<caption>{}</caption>\n<thead><tr><th scope=\"col\">Target</th>\
         <th scope=\"col\">Kind</th><th scope=\"col\">Cause</th><th scope=\"col\">Before</th><th scope=\"col\">By the facts</th>\
         <th scope=\"col\">Repaired</th></tr></thead>\n<tbody>\n",
        escape(&note)
    );
    for drift in &report.drift {
        let member = drift.member.as_ref().map(|m| format!("<br><span class=\"who\">{}</span>", id(m))).unwrap_or_default();
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}{member}</th><td>{}</td><td>{}<br><span class=\"who\">{}</span></td><td>{}</td><td>{}</td><td>{}</td></tr>",
            id(&drift.target),
            escape(&drift.kind),
            meaning(drift.cause).0,
            escape(&place(drift)),
            escape(&drift.before),
            escape(&drift.after),
            if drift.repaired { "yes" } else { "<strong>no</strong>" }
        );
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

fn place(drift: &Drift) -> String {
    match (drift.shard, drift.size()) {
        (1, Some(size)) => format!("off by {}", grouped(size)),
        (1, None) if drift.member.is_some() => "one entry".to_owned(),
        (1, None) => "whole target".to_owned(),
        (leaf, Some(size)) => format!("part {leaf}, off by {}", grouped(size)),
        (leaf, None) => format!("part {leaf}"),
    }
}

/// Who ordered what, and how far it reached.
fn about(out: &mut String, report: &Report) {
    let not_given = || "not given".to_owned();
    let mut rows = vec![
        ("Command", report.what.clone()),
        ("Covered", if report.scope.is_empty() { not_given() } else { report.scope.clone() }),
        ("Ordered by", report.operator.clone().unwrap_or_else(not_given)),
        ("Reason", report.reason.clone().unwrap_or_else(not_given)),
        ("Started", said(report.started)),
        ("Ended", if report.finished > 0 { said(report.finished) } else { "not ended".to_owned() }),
        ("Partitions checked", grouped(report.partitions)),
    ];
    if report.confirmed {
        rows.push(("Confirmed", "yes: repaired however much differed".to_owned()));
    }
    if report.resumed_slices > 0 {
        rows.push(("Taken up again", format!("{} slices were done by an earlier run that was cut off", report.resumed_slices)));
    }
    if report.shared_slices > 0 {
        rows.push(("Shared", format!("{} slices were done by another run at the same time", report.shared_slices)));
    }
    if report.busy_leaves > 0 {
        rows.push((
            "Busy",
            format!("{} kept changing and could not be compared at one moment", plural(report.busy_leaves, "part", "parts")),
        ));
    }
    if report.left_over > 0 {
        rows.push(("Left over", format!("{} in users' lists, skipped by readers", plural(report.left_over, "row", "rows"))));
    }
    if !report.id.is_empty() {
        rows.push(("Run", report.id.clone()));
    }
    out.push_str("<section>\n<h2>About this run</h2>\n<table class=\"about\">\n<tbody>\n");
    for (name, value) in rows {
        let _ = writeln!(out, "<tr><th scope=\"row\">{name}</th><td><bdi>{}</bdi></td></tr>", escape(&value));
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

#[cfg(test)]
mod tests {
    use rebuilder::{CauseTotals, RunState};

    use super::*;

    /// A report in which every text of somebody else's tries to break out.
    pub fn hostile() -> Report {
        let evil = "\"><script>alert('x')</script><img src=x onerror=y>&\u{202e}\u{7}";
        let drift = |cause, repaired| Drift {
            target: format!("video/{evil}"),
            kind: evil.into(),
            shard: 17,
            member: Some(evil.into()),
            cause,
            before: evil.into(),
            after: evil.into(),
            before_total: Some(1_000),
            after_total: Some(998),
            repaired,
        };
        Report {
            id: evil.into(),
            what: evil.into(),
            scope: evil.into(),
            state: RunState::Done,
            error: Some(evil.into()),
            operator: Some(evil.into()),
            reason: Some(evil.into()),
            frozen_because: Some(evil.into()),
            drifted: 2,
            drifted_targets: 1,
            drift: vec![drift(Cause::Counter, true), drift(Cause::FactLost, false)],
            causes: [
                (Cause::Counter, CauseTotals { found: 1, repaired: 1 }),
                (Cause::FactLost, CauseTotals { found: 1, repaired: 0 }),
            ]
            .into(),
            ..Report::default()
        }
    }

    #[test]
    fn hostile_texts_stay_texts() {
        let page = render(&hostile());
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains('\u{7}'), "{page}");
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
        // Every `<` that is left opens or closes an element of ours.
        let ours = [
            "!doctype", "html", "head", "meta", "title", "style", "body", "main", "header", "p", "h1", "h2", "section", "strong",
            "dl", "div", "dt", "dd", "span", "svg", "rect", "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi",
            "code", "br", "footer",
        ];
        for (at, _) in page.match_indices('<') {
            let rest = page[at + 1..].trim_start_matches('/');
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '!').unwrap_or(rest.len());
            assert!(ours.contains(&&rest[..end]), "<{}", &rest[..end.min(20)]);
        }
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_names_what_was_found() {
        let page = render(&hostile());
        for elsewhere in ["http://", "https://", "src=", "href=", "url(", "@import"] {
            assert!(!page.replace("src=x", "").contains(elsewhere), "{elsewhere}");
        }
        for part in [
            "<html lang=\"en\">",
            "Differences by cause",
            "Stored fact lost",
            "part 17, off by 2",
            "role=\"img\"",
            "scope=\"row\"",
        ] {
            assert!(page.contains(part), "{part}");
        }
        let clean =
            Report { what: "verify".into(), state: RunState::Done, share_percent: 100.0, facts: 12_345, ..Report::default() };
        let page = render(&clean);
        assert!(page.contains("All numbers are right") && page.contains("12&#39;345") && !page.contains("<h2>Causes"), "{page}");
    }
}
