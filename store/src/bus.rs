//! Change events on their way from ingest to the aggregator. They may be lost, repeated and
//! reordered: the sweep finds what they missed.

use async_trait::async_trait;
use schema::ChangeEvent;

/// Where ingest publishes.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Hands events over. Not waited for by requests; what cannot be taken is dropped and counted
    /// by the implementation, and harms nothing but freshness.
    async fn publish(&self, events: Vec<ChangeEvent>);
}
