//! How the operators' runs write: by ingest, as everybody does.

use async_trait::async_trait;
use ingest::{Ingest, Mode};
use operator::Writer;
use schema::StatusKey;
use store::protocol::{WriteRequest, Written};

/// Writes by ingest; waits while the server takes no writes.
pub struct ByIngest(pub Ingest);

#[async_trait]
impl Writer for ByIngest {
    async fn write_many(&self, requests: Vec<WriteRequest>) -> Vec<Result<Written, String>> {
        if let mode @ (Mode::ReadOnly | Mode::Closed) = self.0.gate().mode() {
            return vec![Err(format!("the server is {}", mode.name())); requests.len()];
        }
        let written = self.0.write_many(requests).await;
        written.into_iter().map(|answer| answer.map_err(|refusal| refusal.to_string())).collect()
    }

    fn status_changed(&self, key: &StatusKey) {
        self.0.status_changed(key);
    }
}
