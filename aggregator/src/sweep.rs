//! The sweep's loop.

use std::time::Duration;

use futures::FutureExt;
use prometheus::Registry;
use store::{Protocol, StoreResult, protocol::SweepReport, switch::Switch};
use tokio_util::sync::CancellationToken;

use crate::metrics::SweepMetrics;

/// Closes, reads and counts journal slots, again and again.
#[derive(Clone)]
pub struct Sweep {
    protocol: Protocol,
    interval: Duration,
    pause: Switch,
    metrics: SweepMetrics,
}

impl Sweep {
    /// A pass begins `interval` after the end of the one before; half a slot is a good value.
    pub fn new(protocol: Protocol, interval: Duration) -> Self {
        let metrics = SweepMetrics::new(protocol.clock().clone());
        Self { protocol, interval, pause: Switch::default(), metrics }
    }

    /// No pass begins while `pause` is on.
    #[must_use]
    pub fn paused_by(mut self, pause: Switch) -> Self {
        self.pause = pause;
        self
    }

    /// Adds the sweep's metrics to a registry.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        self.metrics.register(registry)
    }

    /// One pass over all lanes.
    pub async fn run_once(&self) -> StoreResult<SweepReport> {
        let result = self.protocol.sweep().await;
        self.book(&result);
        result
    }

    /// Passes until `stop`. A pass that is cut off is safe: the next process begins its slot again.
    pub async fn run(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = self.pause.off() => {}
                () = stop.cancelled() => return,
            }
            let pass = self.run_once();
            let result = tokio::select! {
                result = pass => result,
                () = stop.cancelled() => return,
            };
            if let Err(error) = &result {
                tracing::warn!(%error, "the sweep stopped at an unavailable store and will go on there");
            }
            let sleep = self.protocol.clock().sleep(self.interval).fuse();
            tokio::select! {
                () = sleep => {}
                () = stop.cancelled() => {}
            }
        }
    }

    fn book(&self, result: &StoreResult<SweepReport>) {
        let m = &self.metrics;
        m.passes.inc();
        match result {
            Ok(report) => {
                m.slots.inc_by(report.slots);
                m.intents.inc_by(report.intents);
                m.rewritten.inc_by(report.rewritten);
                m.dead.inc_by(report.dead);
                m.retired.inc_by(report.retired);
                m.lags.set(report);
            }
            Err(_) => m.failures.inc(),
        }
    }
}
