//! Rows per second, whoever reads them; none while an operator pauses the run.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use schema::Micros;
use store::{clock::Clock, switch::Switch};

/// How much may be read at once after a pause.
const BURST: Duration = Duration::from_millis(100);
/// Lets `rate` rows a second through, shared by all tasks of a run.
pub(crate) struct Throttle {
    clock: Arc<dyn Clock>,
    /// 0: no limit.
    rate: u64,
    /// Most rows of a page.
    page: usize,
    /// When what was let through so far is paid for.
    paid: Mutex<Micros>,
    pause: Switch,
}

impl Throttle {
    pub fn new(clock: Arc<dyn Clock>, rate: u64, page: usize) -> Self {
        Self { clock, rate, page: page.max(1), paid: Mutex::new(0), pause: Switch::default() }
    }

    /// Lets nothing through while `pause` is on.
    pub fn paused_by(self, pause: Switch) -> Self {
        Self { pause, ..self }
    }

    /// Rows to read at a time: not more than half a burst.
    pub fn page(&self) -> usize {
        match self.rate {
            0 => self.page,
            rate => usize::try_from(rate / 20).unwrap_or(self.page).clamp(1, self.page),
        }
    }

    /// Waits until `rows` that were read are paid for but for a burst.
    pub async fn take(&self, rows: usize) {
        self.pause.off().await;
        if self.rate == 0 || rows == 0 {
            return;
        }
        let burst = Micros::try_from(BURST.as_micros()).unwrap_or(0);
        let cost = u128::try_from(rows).unwrap_or(u128::MAX).saturating_mul(1_000_000) / u128::from(self.rate);
        let wait = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.now();
            *paid = (*paid).max(now).saturating_add(Micros::try_from(cost).unwrap_or(Micros::MAX));
            paid.saturating_sub(now).saturating_sub(burst)
        };
        if wait > 0 {
            self.clock.sleep(Duration::from_micros(wait.unsigned_abs())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use store::clock::ManualClock;

    use super::*;

    #[tokio::test]
    async fn a_burst_is_free_and_the_rest_takes_its_time() {
        let clock = Arc::new(ManualClock::starting_at(1_000_000));
        let throttle = Throttle::new(clock.clone(), 1000, 512);
        assert_eq!(throttle.page(), 50);
        throttle.take(100).await;
        assert_eq!(clock.now(), 1_000_000, "a tenth of a second is let through");
        for _ in 0..20 {
            throttle.take(100).await;
        }
        assert_eq!(clock.now(), 3_000_000);
        clock.advance(Duration::from_secs(60));
        throttle.take(100).await;
        throttle.take(100).await;
        assert_eq!(clock.now(), 63_100_000, "a long pause saves up no more than a burst");
        let free = Throttle::new(clock.clone(), 0, 512);
        free.take(1_000_000_000).await;
        assert_eq!((clock.now(), free.page()), (63_100_000, 512));
    }
}
