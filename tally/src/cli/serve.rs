//! Arguments of `tally serve`.

use clap::Args;

use super::ConfigArgs;

/// `tally serve`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tally serve\n  tally serve --data /var/lib/tally --listen 127.0.0.1:9000\n  \
tally serve --config /etc/tally.toml --log-format json\n  tally serve --set slot=1s --set sweep_delay=3s\n  \
TALLY_DATA=/srv/tally tally serve\n\nSettings come from defaults, then the file, then TALLY_… variables (TALLY_SWEEP_DELAY=3s), \
then flags. Kinds are configured in the file:\n  [kinds.reaction]\n  choices = [\"like\", \"love\"]\n  by_user = true\n\n\
SIGTERM or Ctrl-C: stops accepting, finishes what is open, exits 0 within 10 seconds.")]
pub struct ServeArgs {
    /// Directory of the data [default: ./data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Shape of log lines: human or json [default: human]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// List every setting with its default and meaning, and exit
    #[arg(long)]
    pub settings: bool,
}
