//! Times in words.

use schema::Micros;
use time::OffsetDateTime;

/// A moment for people, to the millisecond: `2026-03-01 12:00:00.250 UTC`; a number that is no date
/// as it is.
pub fn said(at: Micros) -> String {
    match OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1000) {
        Ok(t) => format!("{} {:02}:{:02}:{:02}.{:03} UTC", t.date(), t.hour(), t.minute(), t.second(), t.millisecond()),
        Err(_) => format!("{at} µs since 1970"),
    }
}

/// A span in its largest fitting unit, as `3.2 s`, `5 min` or `2 days`; negative ones are 0.
pub fn span(micros: Micros) -> String {
    let micros = micros.max(0);
    match micros {
        0..1_000_000 => format!("{} ms", micros / 1000),
        1_000_000..60_000_000 => format!("{:.1} s", micros as f64 / 1e6),
        60_000_000..7_200_000_000 => format!("{} min", micros / 60_000_000),
        7_200_000_000..172_800_000_000 => format!("{} h", micros / 3_600_000_000),
        _ => format!("{} days", micros / 86_400_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_spans_are_said_in_words() {
        assert_eq!(said(0), "1970-01-01 00:00:00.000 UTC");
        assert_eq!(said(1_341_360_018_250_000), "2012-07-04 00:00:18.250 UTC");
        assert_eq!(said(-1), "1969-12-31 23:59:59.999 UTC");
        assert_eq!(said(Micros::MAX), "9223372036854775807 µs since 1970");
        let cases = [(-5, "0 ms"), (2_500, "2 ms"), (3_200_000, "3.2 s"), (300_000_000, "5 min"), (172_800_000_000, "2 days")];
        for (micros, text) in cases {
            assert_eq!(span(micros), text);
        }
        assert_eq!(span(7_200_000_000), "2 h");
    }
}
