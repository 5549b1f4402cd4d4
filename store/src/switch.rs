//! A switch that pauses a loop while it is on.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

/// Off at first; all clones are one switch.
#[derive(Debug, Clone, Default)]
pub struct Switch(Arc<(AtomicBool, Notify)>);

impl Switch {
    /// Whether it is on now.
    pub fn is_on(&self) -> bool {
        self.0.0.load(Ordering::SeqCst)
    }

    /// Switches.
    pub fn set(&self, on: bool) {
        self.0.0.store(on, Ordering::SeqCst);
        self.0.1.notify_waiters();
    }

    /// Waits until it is off; at once where it is.
    pub async fn off(&self) {
        while self.is_on() {
            let mut told = std::pin::pin!(self.0.1.notified());
            // Listening before looking again: a change between the two is not missed.
            told.as_mut().enable();
            if self.is_on() {
                told.await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_goes_on_once_it_is_off() {
        let switch = Switch::default();
        switch.off().await;
        switch.set(true);
        let waiting = tokio::spawn({
            let switch = switch.clone();
            async move { switch.off().await }
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(switch.is_on() && !waiting.is_finished());
        switch.set(false);
        waiting.await.unwrap();
    }
}
