//! Arguments of `tally explain`.

use std::path::PathBuf;

use clap::Args;

/// `tally explain`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tally explain p1 like u1 --namespace video\n  tally explain p1 reaction u1 --namespace video --json\n  \
tally explain p1 like u1 --namespace video --data ./data\n\n\
Shows the fact with its registers, the statuses of its target and its user, where it is stored, how it was counted, the counter, the member's own list, the journal's \
intents that name it (at most 100, among the first 200,000 that are not swept and in the last 60 slots), and what is pending. \
Changes nothing. With --data the store is opened here, so no server may run on it."
)]
pub struct ExplainArgs {
    /// Id of the target
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// What is counted
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// Id of the user, or of the comment
    #[arg(value_name = "MEMBER")]
    pub member: String,
    /// Namespace of the target
    #[arg(long)]
    pub namespace: String,
    /// Address of the server [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub url: Option<String>,
    /// Data directory to open, with no server running
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
