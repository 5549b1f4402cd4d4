//! Log lines on standard error, for people or as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::{
    config::{Config, LogFormat},
    failure::Failure,
};

/// Starts logging as configured; once in a process.
pub fn start(config: &Config) -> Result<(), Failure> {
    let filter: EnvFilter =
        config.log.parse().map_err(|e| Failure::usage(format!("`log` is `{}`, which is no log filter: {e}", config.log)))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Human => lines.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => lines.json().init(),
    }
    Ok(())
}
