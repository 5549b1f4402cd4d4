//! Processor time: other work on the machine disturbs it far less than rates and times.

/// Clock ticks of `/proc/self/stat` in a second: USER_HZ, which is 100 for every program on Linux.
const TICKS: f64 = 100.0;

/// Processor time that this process has used in all its threads, in microseconds; `None` where the
/// system does not tell as Linux does.
pub fn used() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may hold spaces; user and system time are the 12th and 13th field behind it.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks = rest.split_whitespace().skip(11).take(2).map(|n| n.parse::<f64>().ok()).sum::<Option<f64>>()?;
    Some(ticks * 1e6 / TICKS)
}

/// Processor time of some work, over several rounds.
#[derive(Debug, Default)]
pub struct Spent {
    micros: f64,
    of: f64,
    unknown: bool,
}

impl Spent {
    /// Adds what was used since `before` for `n` pieces of work.
    pub fn add(&mut self, before: Option<f64>, n: f64) {
        match (before, used()) {
            (Some(before), Some(now)) => self.micros += now - before,
            _ => self.unknown = true,
        }
        self.of += n;
    }

    /// Microseconds for each, with a tenth.
    pub fn each(&self) -> Option<f64> {
        (!self.unknown && self.of > 0.0).then(|| (self.micros / self.of * 10.0).round() / 10.0)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time() {
        let before = used();
        let mut x = 1_u64;
        while used() == before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let mut spent = Spent::default();
        spent.add(before, 10.0);
        assert!(spent.each().is_some_and(|each| each >= 1000.0), "{spent:?}, {x}");
        spent.add(None, 1.0);
        assert_eq!(spent.each(), None);
    }
}
