//! The places that differed, as CSV.

use rebuilder::Report;

/// A first line with names, then a line for each listed place. A cell that a spreadsheet would take
/// for a formula gets an apostrophe before it; JSON has the exact text.
pub fn render(report: &Report) -> String {
    let mut out = csv::Writer::from_writer(Vec::new());
    let names = ["target", "kind", "shard", "member", "cause", "before", "after", "before_total", "after_total", "repaired"];
    let number = |n: Option<i64>| n.map_or_else(String::new, |n| n.to_string());
    let mut write = |cells: [String; 10]| out.write_record(cells).expect("ten cells a line, into memory");
    write(names.map(str::to_owned));
    for drift in &report.drift {
        write([
            plain(&drift.target),
            plain(&drift.kind),
            drift.shard.to_string(),
            plain(drift.member.as_deref().unwrap_or_default()),
            drift.cause.name().to_owned(),
            plain(&drift.before),
            plain(&drift.after),
            number(drift.before_total),
            number(drift.after_total),
            drift.repaired.to_string(),
        ]);
    }
    let bytes = out.into_inner().expect("memory takes all that is written");
    String::from_utf8(bytes).expect("texts joined by commas")
}

fn plain(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if formula { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use rebuilder::{Cause, Drift};

    use super::*;

    #[test]
    fn cells_are_quoted_and_never_formulas() {
        let drift = Drift {
            target: "n/a \"b\", c".into(),
            kind: "like".into(),
            shard: 1,
            member: Some("=cmd|' /C calc'!A0".into()),
            cause: Cause::FactLost,
            before: "like 1".into(),
            after: "none".into(),
            before_total: Some(-1),
            after_total: None,
            repaired: false,
        };
        let report = Report { drift: vec![drift], ..Report::default() };
        let text = render(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "target,kind,shard,member,cause,before,after,before_total,after_total,repaired");
        assert_eq!(lines[1], "\"n/a \"\"b\"\", c\",like,1,'=cmd|' /C calc'!A0,fact-lost,like 1,none,-1,,false");
        assert_eq!(lines.len(), 2);
    }
}
