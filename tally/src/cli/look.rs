//! Arguments of the commands that look: `get`, `top`.

use clap::Args;

use super::UrlArgs;

/// `tally top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tally top --namespace higgs --kind like -n 10\n  tally top --namespace video --kind reaction -n 3 --json\n\n\
Every target is looked at, so the answer is exact and takes a moment. Equal totals are ordered by id."
)]
pub struct TopArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// Namespace of the targets
    #[arg(long)]
    pub namespace: String,
    /// What is counted
    #[arg(long, default_value = "like")]
    pub kind: String,
    /// How many targets
    #[arg(short, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub n: u32,
    /// Print JSON: [{"target":…,"total":…},…]
    #[arg(long)]
    pub json: bool,
}

/// `tally get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally get --namespace higgs 88\n  tally get --namespace video p1 p2 p3 --json")]
pub struct GetArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// Namespace of the targets
    #[arg(long)]
    pub namespace: String,
    /// Targets
    #[arg(required = true, value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub json: bool,
}
