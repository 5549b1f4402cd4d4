//! The operators' commands: `hide`, `show`, `undo`, `runs`, `status`, `audit`, `mode`.

use std::{
    fmt::Write,
    io::{BufRead, BufReader, Read},
    path::Path,
    time::Duration,
};

use bytes::Bytes;
use clap::ValueEnum;
use hyper::Method;
use operator::{AuditEntry, RunState};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    cli::{AuditArgs, HideArgs, ModeArgs, RunsArgs, StatusArgs, UndoArgs, WhyArgs},
    client::{CallError, Client, segment},
    failure::{Failure, NEGATIVE, OK},
    output::{grouped, print, print_json},
    progress::Shown,
    serve::{Controls, RunView},
};

/// Pause between two questions about a run.
const POLL: Duration = Duration::from_millis(100);
/// Most members of one run: the API's limit.
const MAX_MEMBERS: usize = 100_000;
/// Longest list of members that is read, in bytes.
const MAX_LIST: u64 = 16 << 20;
/// Entries of one page of an export.
const EXPORT_PAGE: usize = 200;

/// `tally hide` and `tally show`.
pub async fn hide(args: HideArgs, hides: bool) -> Result<u8, Failure> {
    let client = Client::new(&args.server.url, 1)?;
    let mut body = why(&args.why);
    body["namespace"] = json!(args.namespace);
    body["reason"] = json!(args.reason.name());
    match (&args.target, &args.user) {
        (Some(target), _) => {
            let mut members = args.members;
            if let Some(path) = &args.from {
                members.append(&mut read_members(path)?);
            }
            if members.is_empty() {
                return Err(Failure::usage("no members: name them, or give --from FILE (- for standard input)"));
            }
            if members.len() > MAX_MEMBERS {
                let text = format!("{} members, at most {MAX_MEMBERS} in one run; split the list", members.len());
                return Err(Failure::usage(text));
            }
            (body["target"], body["kind"], body["members"]) = (json!(target), json!(args.kind), json!(members));
        }
        (None, user) => body["user"] = json!(user),
    }
    let run: RunView = client.post(if hides { "/v1/ops/hide" } else { "/v1/ops/show" }, &body).await?;
    finish(&client, run, !args.no_wait, args.json).await
}

/// `tally undo`.
pub async fn undo(args: UndoArgs) -> Result<u8, Failure> {
    let client = Client::new(&args.server.url, 1)?;
    let run: RunView = client.post(&format!("/v1/ops/hide-runs/{}/undo", args.run), &why(&args.why)).await?;
    finish(&client, run, !args.no_wait, args.json).await
}

/// `tally runs`.
pub async fn runs(args: RunsArgs) -> Result<u8, Failure> {
    let client = Client::new(&args.server.url, 1)?;
    if let Some(id) = args.run {
        let run: RunView = match args.cancel {
            true => {
                let body = json!({ "why": args.why, "operator": args.operator });
                client.post(&format!("/v1/ops/hide-runs/{id}/cancel"), &body).await?
            }
            false => client.get(&format!("/v1/ops/hide-runs/{id}")).await?,
        };
        if args.json { print_json(&run) } else { print(&describe(&run)) }?;
        return Ok(OK);
    }
    #[derive(Deserialize)]
    struct Page {
        runs: Vec<RunView>,
    }
    let page: Page = client.get(&format!("/v1/ops/hide-runs?limit={}", args.n)).await?;
    if args.json {
        print_json(&page.runs)?;
    } else if page.runs.is_empty() {
        print("no runs yet\n")?;
    } else {
        print(&page.runs.iter().map(describe).collect::<String>())?;
    }
    Ok(OK)
}

/// `tally status`.
pub async fn status(args: StatusArgs) -> Result<u8, Failure> {
    let client = Client::new(&args.server.url, 1)?;
    let (sort, id) = match (&args.target, &args.user) {
        (Some(target), _) => ("targets", target),
        (None, Some(user)) => ("users", user),
        (None, None) => return Err(Failure::usage("give --target or --user")),
    };
    let path = format!("/v1/ops/{sort}/{}/{}/status", segment(&args.namespace), segment(id));
    let Some(wanted) = &args.set else {
        let answer: Value = client.get(&path).await?;
        if args.json { print_json(&answer) } else { print(&format!("{id}: {}\n", answer["status"].as_str().unwrap_or("?"))) }?;
        return Ok(OK);
    };
    let body = json!({ "status": wanted, "why": args.why, "ticket": args.ticket, "operator": args.operator });
    let answer: Value = put(&client, &path, &body).await?;
    if args.json {
        print_json(&answer)?;
    } else {
        let before = answer["before"].as_str().unwrap_or("?");
        print(&format!("{id}: {}, before {before}\n", answer["status"].as_str().unwrap_or("?")))?;
    }
    match answer["run"].as_str() {
        Some(run) if !args.no_wait => {
            let run: RunView = client.get(&format!("/v1/ops/hide-runs/{}", segment(run))).await?;
            finish(&client, run, true, args.json).await
        }
        _ => Ok(OK),
    }
}

/// `tally audit`.
pub async fn audit(args: AuditArgs) -> Result<u8, Failure> {
    let client = Client::new(&args.server.url, 1)?;
    let asked =
        |name: &str, value: &Option<String>| value.as_ref().map(|v| format!("&{name}={}", segment(v))).unwrap_or_default();
    let filter = asked("operator", &args.operator) + &asked("action", &args.action);
    #[derive(Deserialize)]
    struct Page {
        entries: Vec<AuditEntry>,
        next: Option<String>,
    }
    if args.export {
        // By pages: nothing has to be held, and a long log needs no long answer.
        let mut cursor = String::new();
        loop {
            let page: Page = client.get(&format!("/v1/ops/audit?limit={EXPORT_PAGE}{filter}{cursor}")).await?;
            for entry in &page.entries {
                print_json(entry)?;
            }
            let Some(next) = page.next else { return Ok(OK) };
            cursor = format!("&cursor={next}");
        }
    }
    let page: Value = client.get(&format!("/v1/ops/audit?limit={}{filter}", args.n)).await?;
    if args.json {
        print_json(&page)?;
        return Ok(OK);
    }
    let page: Page = serde_json::from_value(page).map_err(|e| CallError::Odd(e.to_string()))?;
    let mut out = String::new();
    for e in &page.entries {
        let who = e.operator.as_ref().map_or_else(|| e.key.clone(), |o| format!("{o} ({})", e.key));
        let ticket = e.ticket.as_ref().map(|t| format!(" [{t}]")).unwrap_or_default();
        let _ = writeln!(out, "{}  {who}  {} {}: {} -> {}; {}{ticket}", e.at, e.action, e.on, e.before, e.after, e.why);
        if let Some(failed) = &e.failed {
            let _ = writeln!(out, "  not carried out: {failed}");
        }
    }
    print(if out.is_empty() { "no entries\n" } else { &out })?;
    Ok(OK)
}

/// `tally mode`.
pub async fn mode(args: ModeArgs) -> Result<u8, Failure> {
    let client = Client::new(&args.server.url, 1)?;
    let changes = args.mode.is_some() || !args.pause.is_empty() || !args.resume.is_empty();
    let set: Controls = if changes {
        let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| value().map(|v| v.get_name().to_owned());
        let names =
            |parts: &[crate::cli::PartArg]| parts.iter().filter_map(|p| name(&|| p.to_possible_value())).collect::<Vec<_>>();
        let mode = args.mode.and_then(|m| name(&|| m.to_possible_value()));
        let (pause, resume) = (names(&args.pause), names(&args.resume));
        let body = json!({ "mode": mode, "pause": pause, "resume": resume, "why": args.why, "operator": args.operator });
        put(&client, "/v1/ops/mode", &body).await?
    } else {
        client.get("/v1/ops/mode").await?
    };
    if args.json {
        print_json(&set)?;
        return Ok(OK);
    }
    let because = |why: &str| if why.is_empty() { String::new() } else { format!(" ({why})") };
    let mut out = format!("{}{}\n", set.mode.name(), because(&set.why));
    for paused in &set.paused {
        let _ = writeln!(out, "{} is paused{}", paused.part.name(), because(&paused.why));
    }
    print(&out)?;
    Ok(OK)
}

fn why(args: &WhyArgs) -> Value {
    json!({ "why": args.why, "ticket": args.ticket, "operator": args.operator })
}

async fn put<T: DeserializeOwned>(client: &Client, path: &str, body: &Value) -> Result<T, CallError> {
    let answer = client.call(Method::PUT, path, Bytes::from(body.to_string())).await?;
    serde_json::from_slice(&answer).map_err(|e| CallError::Odd(e.to_string()))
}

/// One member a line; empty lines do not count, and a carriage return at the end is not part of an id.
fn read_members(path: &Path) -> Result<Vec<String>, Failure> {
    let failed = |e: std::io::Error| Failure::unreachable(format!("cannot read {}: {e}", path.display()));
    let source: Box<dyn Read> =
        if path == Path::new("-") { Box::new(std::io::stdin()) } else { Box::new(std::fs::File::open(path).map_err(failed)?) };
    let mut members = Vec::new();
    let mut bytes = 0;
    for line in BufReader::new(source.take(MAX_LIST + 1)).lines() {
        let line = line.map_err(failed)?;
        bytes += line.len() as u64 + 1;
        if bytes > MAX_LIST {
            return Err(Failure::usage(format!("{} is longer than {MAX_LIST} bytes; split the list", path.display())));
        }
        let member = line.strip_suffix('\r').unwrap_or(&line);
        if !member.is_empty() {
            members.push(member.to_owned());
        }
    }
    Ok(members)
}

/// Waits for a run if asked to, and shows it.
async fn finish(client: &Client, mut run: RunView, wait: bool, as_json: bool) -> Result<u8, Failure> {
    if wait {
        let mut bar = Shown::new(Some(0));
        while matches!(run.state, RunState::Queued | RunState::Running) {
            update(&mut bar, &run);
            tokio::time::sleep(POLL).await;
            run = client.get(&format!("/v1/ops/hide-runs/{}", run.id)).await?;
        }
        bar.end();
    }
    if as_json { print_json(&run) } else { print(&describe(&run)) }?;
    match run.state {
        RunState::Failed => Err(Failure::unreachable(run.error.unwrap_or_else(|| "the run failed".into()))),
        RunState::Cancelled => Ok(NEGATIVE),
        _ => Ok(if run.refused == 0 { OK } else { NEGATIVE }),
    }
}

fn describe(run: &RunView) -> String {
    let of = match (&run.user, &run.target, &run.undoes) {
        (Some(user), ..) => format!("all facts of user {user}"),
        (_, Some(target), _) => format!("{} of {target}", run.kind.as_deref().unwrap_or("facts")),
        (.., Some(undoes)) => format!("run {undoes}"),
        _ => String::new(),
    };
    let state = format!("{:?}", run.state).to_lowercase();
    let mut out = format!("run {}: {} {of} for {}: {state}", run.id, run.what, run.reason.name());
    let _ = write!(out, "; {} changed", grouped(run.changed));
    for (n, what) in [
        (run.unchanged, "were so before"),
        (run.superseded, "left alone, written again since"),
        (run.refused, "refused by the store"),
    ] {
        if n > 0 {
            let _ = write!(out, ", {} {what}", grouped(n));
        }
    }
    if let Some(error) = &run.error {
        let _ = write!(out, "; {error}");
    }
    out.push('\n');
    out
}

fn update(shown: &mut Shown, run: &RunView) {
    shown.size(run.members.unwrap_or(run.done));
    shown.update(run.done, || {
        let text = run.error.clone().unwrap_or_else(|| format!("{} changed", grouped(run.changed)));
        format!("run {}: {} done, {text}", run.id, grouped(run.done))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_a_line_each() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("members");
        std::fs::write(&path, "u1\r\n\n u 2\nü").unwrap();
        assert_eq!(read_members(&path).unwrap(), ["u1", " u 2", "ü"]);
        assert!(read_members(&dir.path().join("none")).is_err());
    }
}
