//! How the text of a setting becomes its value: the same for file, environment and flags.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ingest::http::Rate;

/// A value that is written as one short text.
pub trait Value: Sized {
    /// Reads the text; the error says what is expected.
    fn read(text: &str) -> Result<Self, String>;
}

/// A number of bytes, written as `32MiB`, `128KiB` or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// Shape of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.replace('_', "").parse().map_err(|_| format!("a whole number from 0 to {}", <$type>::MAX))
            }
        }
    )*};
}

number!(u8, u16, u32, usize);

impl Value for PathBuf {
    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("a path".into()) } else { Ok(text.into()) }
    }
}

/// Empty: none.
impl Value for Option<PathBuf> {
    fn read(text: &str) -> Result<Self, String> {
        Ok((!text.is_empty()).then(|| text.into()))
    }
}

/// `0`: no limit.
impl Value for Option<Rate> {
    fn read(text: &str) -> Result<Self, String> {
        let parse = || {
            let (rate, burst) = text.split_once(':').map_or((text, None), |(rate, burst)| (rate, Some(burst)));
            let per_second = rate.trim().strip_suffix("/s")?.trim().parse().ok()?;
            let burst = burst.map_or(Some(per_second), |b| b.trim().parse().ok())?;
            Some(Rate { per_second, burst })
        };
        if text.trim() == "0" {
            return Ok(None);
        }
        parse().map(Some).ok_or_else(|| "a rate as 200/s, or 200/s:1000 with a burst of 1000; 0 is no limit".into())
    }
}

impl Value for bool {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "`true` or `false`".into())
    }
}

impl Value for String {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Value for SocketAddr {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "an address and a port, as 127.0.0.1:8080 or [::1]:8080".into())
    }
}

impl Value for LogFormat {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            _ => Err("`human` or `json`".into()),
        }
    }
}

impl Value for Duration {
    fn read(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u64); 6] =
            [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];
        with_unit(text, &UNITS).map(Self::from_micros).ok_or_else(|| "a duration, as 200ms, 10s, 5m, 48h or 90d".into())
    }
}

impl Value for ByteSize {
    fn read(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u64); 5] = [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
        with_unit(text, &UNITS).map(Self).ok_or_else(|| "a size, as 65536, 512KiB or 32MiB".into())
    }
}

/// A whole number followed by one of `units`, multiplied out.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_burst_or_are_their_own() {
        let rate = |per_second: u32, burst: u32| {
            Some(Rate { per_second: per_second.try_into().unwrap(), burst: burst.try_into().unwrap() })
        };
        assert_eq!(Option::<Rate>::read("200/s"), Ok(rate(200, 200)));
        assert_eq!(Option::<Rate>::read("5/s:20"), Ok(rate(5, 20)));
        assert_eq!(Option::<Rate>::read("0"), Ok(None));
        for bad in ["", "5", "0/s", "5/m", "5/s:0", "-1/s", "5/s:"] {
            assert!(Option::<Rate>::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_and_sizes_need_a_unit_that_is_known() {
        assert_eq!(Duration::read("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(Duration::read("10 s"), Ok(Duration::from_secs(10)));
        assert_eq!(Duration::read("48h"), Duration::read("2d"));
        for bad in ["10", "ms", "-1s", "1.5s", "1y", "99999999999999999999s", ""] {
            assert!(Duration::read(bad).is_err(), "{bad}");
        }
        assert_eq!(ByteSize::read("32MiB"), Ok(ByteSize(32 << 20)));
        assert_eq!(ByteSize::read("77"), Ok(ByteSize(77)));
        for bad in ["1MB", "x", "", "99999999999GiB"] {
            assert!(ByteSize::read(bad).is_err(), "{bad}");
        }
    }
}
