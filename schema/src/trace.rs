//! Trace context (W3C Trace Context, level 1): the id by which a caller follows one request.
//!
//! It decides nothing and is stored nowhere: it travels in memory only, and whatever does not fit is left out.

use std::num::{NonZeroU64, NonZeroU128};

/// Target of the log lines that follow a trace, at level debug: `log = "info,tally::trace=debug"` shows them.
pub const TRACE_LOG: &str = "tally::trace";
/// Most ids that travel with one change event; further ones are left out.
pub const MAX_TRACES: usize = 4;

/// The id of a trace; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub NonZeroU128);

impl std::fmt::Display for TraceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What a `traceparent` header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub id: TraceId,
    /// The caller's part of it.
    pub parent: NonZeroU64,
    /// Whether the caller records it, so that following it is worth something.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads the value of the header; `None`: it is none, and is treated as if it were not there. A version
    /// that is not known is read as far as version 00 goes, as the standard asks.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (head, rest) = value.split_at_checked(55)?;
        let [v1, v0, b'-', ..] = *head else { return None };
        let version = hex(&[v1, v0])?;
        let ends = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest[0] == b'-' };
        if version == 0xff || !ends || head[35] != b'-' || head[52] != b'-' {
            return None;
        }
        let id = TraceId(NonZeroU128::new(hex(&head[3..35])?)?);
        let parent = NonZeroU64::new(u64::try_from(hex(&head[36..52])?).ok()?)?;
        Some(Self { id, parent, sampled: hex(&head[53..55])? & 1 == 1 })
    }
}

impl std::fmt::Display for TraceParent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "00-{}-{:016x}-{:02x}", self.id, self.parent, u8::from(self.sampled))
    }
}

/// At most 32 digits; capitals are none, as the standard asks.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |sum: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(sum << 4 | u128::from(digit))
    })
}

/// Adds `id` to the ids that travel together, unless it is among them. `false`: there was no room.
pub fn add_trace(traces: &mut Vec<TraceId>, id: TraceId) -> bool {
    if traces.contains(&id) {
        return true;
    }
    let room = traces.len() < MAX_TRACES;
    if room {
        traces.push(id);
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_standards_example_is_read_and_written_as_it_is() {
        let parent = TraceParent::parse(GOOD.as_bytes()).unwrap();
        assert!(parent.sampled);
        assert_eq!(parent.to_string(), GOOD);
        assert_eq!(parent.id.to_string(), &GOOD[3..35]);
        let with = |at: usize, text: &str| format!("{}{text}{}", &GOOD[..at], &GOOD[at + text.len()..]);
        for (flags, sampled) in [("00", false), ("02", false), ("03", true), ("ff", true)] {
            assert_eq!(TraceParent::parse(with(53, flags).as_bytes()).unwrap().sampled, sampled, "{flags}");
        }
        for later in [with(0, "01"), with(0, "fe"), format!("{}-what-ever", with(0, "cc"))] {
            assert_eq!(TraceParent::parse(later.as_bytes()), Some(parent), "{later}");
        }
    }

    #[test]
    fn what_is_malformed_is_none() {
        let with = |at: usize, text: &str| format!("{}{text}{}", &GOOD[..at], &GOOD[at + text.len()..]);
        let zero = "0".repeat(32);
        let bad = [
            String::new(),
            GOOD[..54].to_owned(),
            format!("{GOOD}-"),
            format!("{GOOD}0"),
            format!(" {GOOD}"),
            format!("{}x", with(0, "01")),
            GOOD.to_ascii_uppercase(),
            with(0, "ff"),
            with(0, "0x"),
            with(2, "_"),
            with(3, &zero),
            with(35, "_"),
            with(36, &zero[..16]),
            with(52, "_"),
            with(53, "0g"),
            with(40, "é"),
        ];
        for text in bad {
            assert_eq!(TraceParent::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn ids_that_travel_together_are_few_and_each_is_there_once() {
        let id = |n| TraceId(NonZeroU128::new(n).unwrap());
        let mut traces = Vec::new();
        assert!((1..=4).all(|n| add_trace(&mut traces, id(n))));
        assert!(add_trace(&mut traces, id(4)), "it is there already");
        assert!(!add_trace(&mut traces, id(5)));
        assert_eq!(traces.len(), MAX_TRACES);
    }
}
