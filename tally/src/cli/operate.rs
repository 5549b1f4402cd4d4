//! Arguments of the operators' commands: `hide`, `show`, `undo`, `runs`, `status`, `audit`, `mode`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::UrlArgs;

/// Who asks, and why; kept in the audit log.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub why: String,
    /// A ticket, for the audit log
    #[arg(long, value_name = "ID")]
    pub ticket: Option<String>,
    /// Who you are, for the audit log
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub operator: Option<String>,
}

/// Why facts do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReasonArg {
    /// The content was removed
    Moderation,
    /// The account is suspended
    Suspension,
    /// The likes were bought
    Fraud,
}

impl ReasonArg {
    /// Name, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Moderation => "moderation",
            Self::Suspension => "suspension",
            Self::Fraud => "fraud",
        }
    }
}

/// `tally hide` and `tally show`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("of").required(true).args(["target", "user"]))]
#[command(
    after_help = "Examples:\n  tally hide --namespace video --target p1 --reason fraud --why 'bought, see ticket' --ticket T-7 u1 u2 u3\n  \
tally hide --namespace video --target p1 --reason fraud --why bought --from bots.txt\n  \
tally hide --namespace video --user u9 --reason moderation --why spam\n  \
tally show --namespace video --target p1 --reason fraud --why 'not bots' u2\n\n\
Members come from the arguments, or one a line from a file (- is standard input); at most 100,000 in one run. A member without a \
like is hidden in advance. The run goes on in the server if this command is ended; `tally undo` takes back exactly what it changed. \
Exit code 0: done; 1: some were refused, or the run was cancelled."
)]
pub struct HideArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// Namespace of the target or user
    #[arg(long)]
    pub namespace: String,
    /// The target whose members these are
    #[arg(long, value_name = "ID")]
    pub target: Option<String>,
    /// What is counted
    #[arg(long, default_value = "like", conflicts_with = "user")]
    pub kind: String,
    /// All facts of this user, of every kind
    #[arg(long, value_name = "ID", conflicts_with_all = ["members", "from"])]
    pub user: Option<String>,
    /// For which reason; each is hidden and shown apart
    #[arg(long, value_enum)]
    pub reason: ReasonArg,
    #[command(flatten)]
    pub why: WhyArgs,
    /// Members
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
    /// File with a member a line; - for standard input
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Do not wait for the end
    #[arg(long)]
    pub no_wait: bool,
    /// Print the run as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally undo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally undo 1796075907993895 --why 'wrong list'\n\n\
Only what that run changed is taken back, and only where nobody wrote it again since. The undo is a run too, and can be undone.")]
pub struct UndoArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// Number of the run
    #[arg(value_name = "RUN")]
    pub run: u64,
    #[command(flatten)]
    pub why: WhyArgs,
    /// Do not wait for the end
    #[arg(long)]
    pub no_wait: bool,
    /// Print the run as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally runs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally runs\n  tally runs 1796075907993895 --json\n  \
tally runs 1796075907993895 --cancel --why 'wrong list'\n\n\
A cancelled run keeps what it has done so far; `tally undo` takes it back.")]
pub struct RunsArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// Number of one run
    #[arg(value_name = "RUN")]
    pub run: Option<u64>,
    /// How many runs, newest first
    #[arg(short, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    pub n: u32,
    /// End that run
    #[arg(long, requires_all = ["run", "why"])]
    pub cancel: bool,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", requires = "cancel")]
    pub why: Option<String>,
    /// Who you are, for the audit log
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub operator: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally status`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("of").required(true).args(["target", "user"]))]
#[command(after_help = "Examples:\n  tally status --namespace video --target p1\n  \
tally status --namespace video --target p1 --set gone --why 'deleted by its author'\n  \
tally status --namespace video --user u9 --set suspended --why spam --ticket T-8\n\n\
Targets are open, closed (no new likes) or gone (readers are told so, too); users active or suspended. Unlike always works. \
Suspending hides all of a user's facts in the background; activating takes exactly that back.")]
pub struct StatusArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// Namespace of the target or user
    #[arg(long)]
    pub namespace: String,
    /// The target
    #[arg(long, value_name = "ID")]
    pub target: Option<String>,
    /// The user
    #[arg(long, value_name = "ID")]
    pub user: Option<String>,
    /// Set it [targets: open, closed, gone; users: active, suspended]
    #[arg(long, value_name = "STATUS", requires = "why")]
    pub set: Option<String>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT", requires = "set")]
    pub why: Option<String>,
    /// A ticket, for the audit log
    #[arg(long, value_name = "ID", requires = "set")]
    pub ticket: Option<String>,
    /// Who you are, for the audit log
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub operator: Option<String>,
    /// Do not wait for the run that hides or shows a user's facts
    #[arg(long, requires = "set")]
    pub no_wait: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `tally audit`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tally audit -n 20\n  tally audit --operator ada --action hide\n  tally audit --export > audit.ndjson\n\n\
Newest first. --export writes every entry, a JSON object a line."
)]
pub struct AuditArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// Entries of this person or key
    #[arg(long, value_name = "NAME")]
    pub operator: Option<String>,
    /// Entries of this action
    #[arg(long)]
    pub action: Option<String>,
    /// How many entries
    #[arg(short, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200), conflicts_with = "export")]
    pub n: u32,
    /// Write every entry, a JSON object a line
    #[arg(long)]
    pub export: bool,
    /// Print the page as JSON
    #[arg(long, conflicts_with = "export")]
    pub json: bool,
}

/// What a server lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Everything
    Normal,
    /// Counting waits for the sweep, bulk writes are refused
    Shed,
    /// Writes are refused
    ReadOnly,
    /// Everything is refused but health and operators
    Closed,
}

/// A loop of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PartArg {
    /// Counts what was published
    Aggregator,
    /// Counts what the journal holds
    Sweep,
    /// Repairs
    Rebuild,
}

/// `tally mode`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally mode\n  tally mode read-only --why 'moving the disk'\n  \
tally mode --pause sweep --why 'disk is slow'\n  tally mode normal --resume sweep --why done\n\n\
What is set stays set over a restart, until it is set back.")]
pub struct ModeArgs {
    #[command(flatten)]
    pub server: UrlArgs,
    /// What to let in from now on
    #[arg(value_enum, requires = "why")]
    pub mode: Option<ModeArg>,
    /// Pause a loop; may be repeated
    #[arg(long, value_enum, value_name = "PART", requires = "why")]
    pub pause: Vec<PartArg>,
    /// Let a loop go on; may be repeated
    #[arg(long, value_enum, value_name = "PART", requires = "why")]
    pub resume: Vec<PartArg>,
    /// Why, for the audit log and for whoever is refused
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
    /// Who you are, for the audit log
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    pub operator: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
