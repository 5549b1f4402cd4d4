//! What a report comes to, in one sentence, and what each cause means.

use rebuilder::{Cause, Report, RunState};

use crate::output::grouped;

/// How a verdict is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing to do.
    Good,
    /// All is right again; somebody may want to know why.
    Mended,
    /// Somebody has to act.
    Bad,
}

/// `1 difference`, `2 differences`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { many })
}

/// Whether the run reached all of the data.
pub fn is_whole(report: &Report) -> bool {
    report.share_percent >= 99.995
}

/// A share in percent, as precise as it is meaningful; what is not all is never called 100.
pub fn percent(share: f64) -> String {
    match share {
        s if s >= 99.995 => "100 %".to_owned(),
        s if s >= 10.0 => format!("{:.1} %", s.min(99.9)),
        s if s >= 0.01 => format!("{s:.2} %"),
        s if s > 0.0 => "less than 0.01 %".to_owned(),
        _ => "none".to_owned(),
    }
}

/// The sentence, and how it is meant.
pub fn verdict(report: &Report) -> (Tone, String) {
    let found = plural(report.drifted, "difference", "differences");
    let places = plural(report.drifted_targets, "target", "targets");
    match (report.state, report.drifted, report.repaired) {
        (RunState::Running, ..) => (Tone::Bad, "The run has not ended, so nothing can be concluded from it yet.".to_owned()),
        (RunState::Failed, ..) => (Tone::Bad, "The run failed, so what it had not reached is not known.".to_owned()),
        (_, n, _) if report.frozen => {
            let rest = plural(n.saturating_sub(report.repaired), "difference remains", "differences remain");
            (
                Tone::Bad,
                format!("Repair was stopped because too much differed: {rest} until somebody confirms the repair with a reason."),
            )
        }
        (_, 0, _) if is_whole(report) => {
            (Tone::Good, "All numbers are right: every count, list and index equals the stored facts.".to_owned())
        }
        (_, 0, _) => {
            (Tone::Good, "Everything that was checked is right: counts, lists and indexes equal the stored facts.".to_owned())
        }
        (_, n, r) if n == r => {
            (Tone::Mended, format!("{found} in {places} were found, and all of it was counted again from the stored facts."))
        }
        (_, _, 0) => {
            (Tone::Bad, format!("{found} in {places} were found and not repaired; a rebuild counts again from the stored facts."))
        }
        (_, n, r) => {
            let rest = plural(n - r, "remains", "remain");
            (Tone::Bad, format!("{found} in {places} were found; {rest} after the repair and must be looked into."))
        }
    }
}

/// A cause in a few words, and what it means.
pub fn meaning(cause: Cause) -> (&'static str, &'static str) {
    match cause {
        Cause::Uncounted => ("Not counted", "Something is stored and was never counted, so a number was too low."),
        Cause::Overcounted => ("Counted too much", "Something was counted that is not stored, so a number was too high."),
        Cause::Count => ("Wrong sum", "The sum of a part of a target was not the sum of its counted rows."),
        Cause::Counter => ("Wrong number shown", "The number that readers see was not the one that had been counted."),
        Cause::Index => ("Wrong own list", "An entry in a user's own list was missing, wrong, or of something not stored."),
        Cause::Listing => ("Wrong list by time", "The list of who, newest first, was not the list of those counted."),
        Cause::FactLost => (
            "Stored fact lost",
            "The count knows something newer than what is stored: data was lost, by power failure, a restore, or a bad disk. \
             Find out why.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_one_sentence_for_each_end() {
        let done = Report { state: RunState::Done, share_percent: 100.0, ..Report::default() };
        let some = Report { drifted: 3, drifted_targets: 1, ..done.clone() };
        let cases = [
            (done.clone(), Tone::Good, "All numbers are right"),
            (Report { share_percent: 3.33, ..done.clone() }, Tone::Good, "Everything that was checked is right"),
            (Report { repaired: 3, ..some.clone() }, Tone::Mended, "3 differences in 1 target were found, and all"),
            (some.clone(), Tone::Bad, "3 differences in 1 target were found and not repaired"),
            (Report { repaired: 2, ..some.clone() }, Tone::Bad, "3 differences in 1 target were found; 1 remains"),
            (
                Report { frozen: true, ..some.clone() },
                Tone::Bad,
                "Repair was stopped because too much differed: 3 differences remain",
            ),
            (Report { state: RunState::Failed, ..done.clone() }, Tone::Bad, "The run failed"),
            (Report { state: RunState::Running, ..done }, Tone::Bad, "The run has not ended"),
        ];
        for (report, tone, text) in cases {
            let (found, sentence) = verdict(&report);
            assert!(found == tone && sentence.starts_with(text) && sentence.ends_with('.'), "{sentence}");
        }
    }

    #[test]
    fn what_is_not_all_is_never_called_a_hundred_percent() {
        let cases = [
            (100.0, "100 %"),
            (99.99, "99.9 %"),
            (33.333, "33.3 %"),
            (3.333, "3.33 %"),
            (0.001, "less than 0.01 %"),
            (0.0, "none"),
        ];
        for (share, text) in cases {
            assert_eq!(percent(share), text);
        }
    }
}
