//! Reports of verify and rebuild as files: JSON for machines, CSV for sheets, HTML for people.

mod html;
mod page;
mod sheet;
mod verdict;

use std::path::Path;

use rebuilder::{Report, RunState};

use serde::Deserialize;

use crate::{
    cli::ReportsArgs,
    client::{Client, segment},
    failure::{Failure, OK},
    output::{grouped, print, print_json},
    repair,
    times::{said, span},
};

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// All of it, exactly.
    Json,
    /// A line for each place that differed.
    Csv,
    /// One page that needs nothing else.
    Html,
}

impl Format {
    /// By the ending of a file's name.
    pub fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("json") => Ok(Self::Json),
            Some("csv") => Ok(Self::Csv),
            Some("html") => Ok(Self::Html),
            _ => Err(Failure::usage(format!(
                "--report is `{}`, expected a name that ends in .json, .csv or .html",
                path.display()
            ))),
        }
    }

    /// For HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Html => "text/html; charset=utf-8",
        }
    }

    /// `report` in this format.
    pub fn render(self, report: &Report) -> String {
        match self {
            Self::Json => serde_json::to_string_pretty(report).expect("numbers, texts and lists always serialise") + "\n",
            Self::Csv => sheet::render(report),
            Self::Html => page::render(report),
        }
    }
}

/// Refuses names that say no format, before anything is done.
pub fn check(files: &[std::path::PathBuf]) -> Result<(), Failure> {
    files.iter().try_for_each(|file| Format::of(file).map(|_| ()))
}

/// Answer of `GET /v1/ops/reports`, as far as it is shown.
#[derive(Deserialize)]
struct Listed {
    reports: Vec<Report>,
}

/// `tally reports`.
pub async fn run(args: ReportsArgs) -> Result<u8, Failure> {
    let client = Client::new(&args.server.url, 1)?;
    if let Some(id) = &args.id {
        let report: Report = client.get(&format!("/v1/ops/reports/{}", segment(id))).await?;
        print(&args.format.map_or_else(|| repair::describe(&report), |format| format.render(&report)))?;
        return Ok(OK);
    }
    let Listed { mut reports } = client.get("/v1/ops/reports").await?;
    reports.truncate(usize::from(args.n));
    if args.json { print_json(&reports) } else { print(&list(&reports)) }?;
    Ok(OK)
}

/// A line for each run.
fn list(reports: &[Report]) -> String {
    if reports.is_empty() {
        return "no run of verify or rebuild is recorded yet\n".to_owned();
    }
    let mut out = String::new();
    for report in reports {
        let state = match report.state {
            RunState::Running => "not ended".to_owned(),
            RunState::Failed => "failed".to_owned(),
            RunState::Done if report.clean() => "clean".to_owned(),
            RunState::Done => format!("{} found, {} repaired", grouped(report.drifted), grouped(report.repaired)),
        };
        let took = if report.finished > 0 { span(report.finished - report.started) } else { "-".to_owned() };
        let Report { id, what, scope, .. } = report;
        out += &format!("{id}  {}  {what:<18} {scope:<12} {took:>8}  {state}\n", said(report.started));
    }
    out
}

/// Writes `report` to each of `files`, in the format of its name.
pub fn save(report: &Report, files: &[std::path::PathBuf]) -> Result<(), Failure> {
    for file in files {
        let text = Format::of(file)?.render(report);
        std::fs::write(file, text).map_err(|e| Failure::unreachable(format!("cannot write {}: {e}", file.display())))?;
    }
    Ok(())
}
