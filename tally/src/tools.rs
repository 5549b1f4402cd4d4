//! `tally config`, `tally completions` and `tally man`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{
    cli::{Cli, CompletionShell, CompletionsArgs, ConfigAction, ConfigCommand, ManArgs},
    config::{Config, to_toml},
    failure::{Failure, OK},
    output,
};

/// `tally config`.
pub fn config(command: ConfigCommand) -> Result<u8, Failure> {
    match command.action {
        ConfigAction::Print(args) => {
            let config = crate::load_config(&args.config, &[])?;
            if args.json { output::print_json(&config.effective()) } else { output::print(&to_toml(&config)) }?;
        }
        ConfigAction::Check(args) => {
            let config = Config::load(Some(&args.file), [], &[])?;
            let given: Vec<&str> = config.given_names().collect();
            let set = if given.is_empty() { "nothing; every setting is at its default".to_owned() } else { given.join(", ") };
            output::print(&format!("{} can be used; it sets: {set}\n", args.file.display()))?;
        }
    }
    Ok(OK)
}

/// `tally completions`.
pub fn completions(args: CompletionsArgs) -> Result<u8, Failure> {
    let shell = match args.shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tally", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(OK)
}

/// `tally man`.
pub fn man(args: ManArgs) -> Result<u8, Failure> {
    let unwritable = |e: std::io::Error| Failure::unreachable(format!("cannot write man pages to {}: {e}", args.dir.display()));
    std::fs::create_dir_all(&args.dir).map_err(unwritable)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(unwritable)?;
    output::print(&format!("man pages are in {}; look at one: man {0}/tally.1\n", args.dir.display()))?;
    Ok(OK)
}
