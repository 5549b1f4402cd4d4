//! The `tally` command: the server's wiring, the tools, the benchmark.
//!
//! Layers below never see configuration files, sockets or signals; all of that is here.

mod backup;
mod bench;
mod cli;
mod client;
mod config;
mod explain;
mod export;
mod failure;
mod import;
mod keys;
mod logging;
mod look;
mod operate;
mod output;
mod progress;
mod repair;
mod report;
mod seed;
mod serve;
mod suggest;
mod times;
mod tools;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command, ConfigArgs};
use config::Config;
use failure::{Failure, OK, USAGE};

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    failure::end_at_first_panic();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version are answers, not errors; a closed pipe is nobody's fault.
            drop(answer.print());
            return ExitCode::from(if answer.use_stderr() { USAGE } else { OK });
        }
    };
    if let Err(failure) = client::access(&cli.access) {
        return report(&failure);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::unreachable(format!("cannot start threads: {error}"))),
    };
    let result = runtime.block_on(dispatch(cli.command));
    // What still runs in the background may be cut off: everything answered is durable.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => report(&failure),
    }
}

async fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Import(args) => import::run(args).await,
        Command::Top(args) => look::top(args).await,
        Command::Get(args) => look::get(args).await,
        Command::Bench(args) => bench::run(args).await,
        Command::Hide(args) => operate::hide(args, true).await,
        Command::Show(args) => operate::hide(args, false).await,
        Command::Undo(args) => operate::undo(args).await,
        Command::Runs(args) => operate::runs(args).await,
        Command::Status(args) => operate::status(args).await,
        Command::Audit(args) => operate::audit(args).await,
        Command::Mode(args) => operate::mode(args).await,
        Command::Verify(args) => repair::verify(args).await,
        Command::Rebuild(args) => repair::rebuild(args).await,
        Command::Explain(args) => explain::run(args).await,
        Command::Export(args) => export::run(args).await,
        Command::Backup(args) => backup::backup(args).await,
        Command::Restore(args) => backup::restore(args).await,
        Command::Reports(args) => report::run(args).await,
        Command::Key(args) => keys::run(args),
        Command::Config(args) => tools::config(args),
        Command::Completions(args) => tools::completions(args),
        Command::Man(args) => tools::man(args),
    }
}

fn report(failure: &Failure) -> ExitCode {
    eprintln!("tally: {failure}");
    failure.exit()
}

/// Settings from the file, the environment and the command line; `flags` win over `--set`.
fn load_config(args: &ConfigArgs, flags: &[(String, String)]) -> Result<Config, Failure> {
    let mut all = pairs(&args.set)?;
    all.extend(flags.iter().cloned());
    // A variable that is not text cannot be a setting's name or value.
    let environment = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    Config::load(args.config.as_deref(), environment, &all)
}

/// Keys and values of `--set`.
fn pairs(set: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let pair = |text: &String| {
        let (key, value) =
            text.split_once('=').ok_or_else(|| Failure::usage(format!("--set is `{text}`, expected as slot=1s")))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    set.iter().map(pair).collect()
}
