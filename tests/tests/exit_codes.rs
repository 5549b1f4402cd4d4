//! What `tally --help` promises of exit codes, for every command.

use std::{collections::BTreeSet, fs, process::Command};

use tally_tests::server::{Server, command, free_address, tally_ok};

/// A command that is carried out, the same with nobody or nothing where it looks, and how that ends.
/// `@` stands for a folder of its own, `URL` for a server, `NOBODY` for an address without one.
const COMMANDS: &[(&str, &str, &str, i32)] = &[
    ("serve", "--settings", "--data /proc/none/x --listen 127.0.0.1:0", 3),
    ("import", "@/rows.csv --url URL --namespace n", "@/rows.csv --url NOBODY --namespace n --patience 0", 3),
    ("top", "--url URL --namespace n --kind like", "--url NOBODY --namespace n --kind like", 3),
    ("verify", "--url URL", "--data @/none", 3),
    ("rebuild", "--url URL --all --dry-run", "--url NOBODY --all", 3),
    ("reports", "--url URL", "--url NOBODY", 3),
    ("get", "--url URL --namespace n p1", "--url NOBODY --namespace n p1", 3),
    (
        "hide",
        "--url URL --namespace n --target p1 --reason fraud --why x u1",
        "--url NOBODY --namespace n --user u --reason fraud --why x",
        3,
    ),
    (
        "show",
        "--url URL --namespace n --target p1 --reason fraud --why x u1",
        "--url NOBODY --namespace n --user u --reason fraud --why x",
        3,
    ),
    // A number that the server does not know is the command line's fault.
    ("undo", "RUN --url URL --why x", "7 --url URL --why x", 2),
    ("runs", "--url URL", "7 --url NOBODY", 3),
    ("status", "--url URL --namespace n --target p1", "--url NOBODY --namespace n --target p1", 3),
    ("audit", "--url URL", "--url NOBODY", 3),
    ("mode", "--url URL", "--url NOBODY", 3),
    ("bench", "--help", "--url NOBODY", 3),
    ("explain", "p1 like u1 --url URL --namespace n", "p1 like u1 --data @/none --namespace n", 3),
    ("export", "@/out.ndjson --url URL --namespace n", "/proc/none/x --url URL --namespace n", 3),
    ("backup", "@/copy --url URL", "@/none --url NOBODY", 3),
    ("restore", "@/copy @/data2", "@/none @/data3", 3),
    ("config", "print", "check /proc/none/tally.toml", 2),
    ("key", "new --keys @/keys.toml --name a --roles read --namespaces *", "list --keys /proc/none/keys.toml", 3),
    ("completions", "bash", "csh", 2),
    ("man", "@/man", "/proc/none/man", 3),
];

/// Commands whose answer can be no.
const NEGATIVE: &[(&str, &str)] = &[("import", "@/bad.csv --strict --url URL --namespace n"), ("restore", "@/damaged @/data4")];

#[test]
fn every_command_ends_with_the_code_that_help_promises() {
    let folder = tempfile::tempdir().expect("a place");
    let place = |name: &str| folder.path().join(name);
    fs::write(place("rows.csv"), "u1,p1\nu2,p1\n").expect("written");
    fs::write(place("bad.csv"), "u1\n").expect("written");
    let server = Server::start(&place("data"), &[]);
    let nobody = format!("http://{}", free_address());
    let help = tally_ok(["--help"]);
    for promised in ["0 as asked", "1 the answer is no", "2 command", "3 a server", "4 a bug"] {
        assert!(help.contains(promised), "{promised}: {help}");
    }
    let commands: BTreeSet<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help" && name.chars().all(|c| c.is_ascii_lowercase()))
        .collect();
    assert_eq!(commands, COMMANDS.iter().map(|row| row.0).collect(), "add a new command to the table of this test");
    let mut run = String::new();
    let mut code = |name: &str, args: &str| {
        let args = args.split(' ').map(|arg| {
            let arg = arg.replace('@', &folder.path().display().to_string()).replace("RUN", &run);
            arg.replace("URL", &server.url()).replace("NOBODY", &nobody)
        });
        let mut asked: Command = command();
        let output = asked.arg(name).args(args.filter(|arg| !arg.is_empty())).current_dir(folder.path()).output();
        let output = output.expect("the binary starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        if name == "hide" && text.starts_with("run ") {
            run = text.trim_start_matches("run ").split(':').next().unwrap_or_default().to_owned();
        }
        (output.status.code(), text)
    };
    for (name, good, bad, wanted) in COMMANDS {
        for (args, wanted) in [(*good, 0), (*bad, *wanted), ("--no-such-flag", 2), ("--help", 0)] {
            let (got, text) = code(name, args);
            assert_eq!(got, Some(wanted), "tally {name} {args}: {text}");
        }
        if *name == "backup" {
            let (from, to) = (place("copy"), place("damaged"));
            fs::create_dir(&to).expect("made");
            for entry in fs::read_dir(from).expect("a backup").map(|entry| entry.expect("an entry")) {
                fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
            }
            fs::write(to.join("rows-000001.part"), "other bytes").expect("written");
        }
    }
    for (name, args) in NEGATIVE {
        let (got, text) = code(name, args);
        assert_eq!(got, Some(1), "tally {name} {args}: {text}");
    }
    // Drift: only a store that was written to behind the server's back has it; `tests/corruption.rs`.
}
