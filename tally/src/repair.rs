//! `tally verify` and `tally rebuild`.

use std::{fmt::Write, sync::atomic::Ordering, time::Duration};

use rebuilder::{Order, Progress, Rebuilder, Report};

use crate::{
    cli::{RebuildArgs, ScopeArgs, VerifyArgs},
    client::Client,
    config::Config,
    failure::{Failure, NEGATIVE, OK},
    output::{grouped, print, print_json},
    progress::Shown,
    report,
    serve::{self, JobState, JobView, Node, Opening, OrderBody, ProgressView},
};

/// Pause between two questions about a job.
const POLL: Duration = Duration::from_millis(100);
/// Differences that are shown to people; `--json` has up to 1000.
const SHOWN: usize = 20;

/// `tally verify`.
pub async fn verify(args: VerifyArgs) -> Result<u8, Failure> {
    report::check(&args.scope.files)?;
    let report = match &args.data {
        Some(data) => {
            let flags = [("data".to_owned(), data.display().to_string())];
            let config = crate::load_config(&args.config, &flags)?;
            offline(&config, &body(&args.scope)?).await?
        }
        None => {
            let url = args.url.as_deref().unwrap_or("http://127.0.0.1:8080");
            job(&Client::new(url, 1)?, "/v1/ops/verify", &body(&args.scope)?).await?
        }
    };
    report::save(&report, &args.scope.files)?;
    show(&report, args.json)?;
    Ok(verdict(&report))
}

/// `tally rebuild`.
pub async fn rebuild(args: RebuildArgs) -> Result<u8, Failure> {
    report::check(&args.scope.files)?;
    let client = Client::new(&args.server.url, 1)?;
    let body = OrderBody { dry_run: args.dry_run, confirm: args.confirm, ..body(&args.scope)? };
    let report = job(&client, "/v1/ops/rebuild", &body).await?;
    report::save(&report, &args.scope.files)?;
    show(&report, args.json)?;
    Ok(verdict(&report))
}

/// The order as the server takes it.
fn body(args: &ScopeArgs) -> Result<OrderBody, Failure> {
    let place = match (&args.target, &args.namespace) {
        (None, _) => None,
        (Some(target), Some(namespace)) => Some((namespace.as_str(), target.as_str())),
        (Some(target), None) => {
            let both = target.split_once('/');
            Some(both.ok_or_else(|| Failure::usage("--target needs --namespace, or is given as `namespace/id`"))?)
        }
    };
    Ok(OrderBody {
        all: args.all,
        namespace: place.map(|(namespace, _)| namespace.to_owned()),
        target: place.map(|(_, target)| target.to_owned()),
        kind: args.kind.clone(),
        since: args.since.clone(),
        part: args.part.clone(),
        rate: args.rate,
        operator: args.operator.clone(),
        reason: args.reason.clone(),
        ..OrderBody::default()
    })
}

/// Opens the store here, counts what its last process journalled, and verifies.
pub async fn offline(config: &Config, body: &OrderBody) -> Result<Report, Failure> {
    let node = Node::open(config, Opening::Check).await?;
    let failed = |e: store::StoreError| Failure::unreachable(e.to_string());
    node.take_over().await.map_err(failed)?;
    let order: Order = serve::order(&node.protocol, body, false).map_err(|p| Failure::usage(p.detail))?;
    let rebuilder = Rebuilder::new(node.protocol.clone(), serve::rebuilder_settings(config));
    if let Some(why) = rebuilder.refusal(&order).await.map_err(failed)? {
        return Err(Failure::usage(why));
    }
    let progress = Progress::default();
    // A task of its own, so that it spreads over all cores.
    let run = tokio::spawn({
        let progress = progress.clone();
        async move { rebuilder.run(&order, &progress).await }
    });
    let mut bar = Shown::new(Some(0));
    let mut run = std::pin::pin!(run);
    let report = loop {
        tokio::select! {
            report = run.as_mut() => break report.expect("a panic has ended the process before"),
            () = tokio::time::sleep(POLL) => update(&mut bar, view(&progress)),
        }
    };
    bar.end();
    node.engine.close().await.map_err(failed)?;
    report.map_err(failed)
}

fn view(progress: &Progress) -> ProgressView {
    let load = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    ProgressView {
        slices_done: load(&progress.slices_done),
        slices: load(&progress.slices),
        facts: load(&progress.facts),
        drifted: load(&progress.drifted),
    }
}

/// Starts a job and waits for its report.
async fn job(client: &Client, path: &str, body: &OrderBody) -> Result<Report, Failure> {
    let body = serde_json::to_value(body).expect("texts and numbers always serialise");
    let started: JobView = client.post(path, &body).await?;
    let mut bar = Shown::new(Some(0));
    loop {
        let job: JobView = client.get(&format!("/v1/ops/jobs/{}", started.id)).await?;
        match (job.state, job.report) {
            (JobState::Running, _) => update(&mut bar, job.progress),
            (JobState::Done, Some(report)) => {
                bar.end();
                return Ok(report);
            }
            (JobState::Done, None) => return Err(Failure::unreachable("the server lost the report; run it again")),
            (JobState::Failed, _) => {
                bar.end();
                let why = job.error.unwrap_or_else(|| "without a reason".into());
                return Err(Failure::unreachable(format!("the {} failed: {why}", job.what)));
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

fn show(report: &Report, as_json: bool) -> Result<(), Failure> {
    if as_json { print_json(report) } else { print(&describe(report)) }
}

/// The exit code: 1 where something differs still.
pub fn verdict(report: &Report) -> u8 {
    if report.drifted == report.repaired { OK } else { NEGATIVE }
}

/// The report for people.
pub fn describe(report: &Report) -> String {
    let mut out = String::new();
    let seconds = Duration::from_micros(u64::try_from(report.finished - report.started).unwrap_or(0)).as_secs_f64();
    let verdict = match (report.drifted, report.repaired) {
        (n, r) if report.frozen => {
            let why = report.frozen_because.as_deref().unwrap_or("too much differs");
            let (n, r) = (grouped(n), grouped(r));
            format!(
                "{n} differences, {r} repaired, then repair stopped: {why}; look at them, then repeat it with --confirm --reason TEXT"
            )
        }
        (0, _) if report.resumed_slices > 0 => format!(
            "clean; {} of the slices had been checked by an earlier run that was cut off; run it again for all of it",
            report.resumed_slices
        ),
        (0, _) => "clean: every count, ledger, list and index equals the facts".to_owned(),
        (n, r) if n == r => format!("{} differences, all repaired", grouped(n)),
        (n, 0) => format!("{} differences; `tally rebuild` repairs them", grouped(n)),
        (n, r) => format!("{} differences, {} of them repaired", grouped(n), grouped(r)),
    };
    let _ = writeln!(out, "{} ({}): {verdict}", report.what, report.scope);
    let _ = writeln!(
        out,
        "  checked {} facts and {} index rows of {} targets in {seconds:.1} s",
        grouped(report.facts),
        grouped(report.index_rows),
        grouped(report.targets)
    );
    for drift in report.drift.iter().take(SHOWN) {
        let member = drift.member.as_ref().map(|m| format!(", member {m}")).unwrap_or_default();
        let cause = drift.cause.name();
        let mended = if drift.repaired { "  [repaired]" } else { "" };
        let _ = writeln!(
            out,
            "  {} {} shard {}{member}: {cause}: {} -> {}{mended}",
            drift.target, drift.kind, drift.shard, drift.before, drift.after
        );
    }
    if report.drifted > SHOWN as u64 {
        let _ = writeln!(out, "  and {} more; --json lists up to 1000", grouped(report.drifted - SHOWN as u64));
    }
    out
}

fn update(shown: &mut Shown, p: ProgressView) {
    shown.size(p.slices);
    shown.update(p.slices_done, || {
        if p.slices == 0 {
            return "counting what was answered before, then checking".to_owned();
        }
        let (facts, drifted) = (grouped(p.facts), grouped(p.drifted));
        format!("{facts} facts checked, {drifted} differences, {} of {} parts", p.slices_done, p.slices)
    });
}

#[cfg(test)]
mod tests {
    use rebuilder::{Cause, Drift};

    use super::*;

    #[test]
    fn the_exit_code_follows_what_still_differs() {
        let clean = Report { what: "verify".into(), facts: 5, ..Report::default() };
        assert_eq!(verdict(&clean), OK);
        let drift = Drift {
            target: "n/p1".into(),
            kind: "like".into(),
            shard: 1,
            member: None,
            cause: Cause::Counter,
            before: "3".into(),
            after: "4".into(),
            before_total: Some(3),
            after_total: Some(4),
            repaired: false,
        };
        let wrong = Report { what: "verify".into(), drifted: 1, drift: vec![drift], ..Report::default() };
        assert_eq!(verdict(&wrong), NEGATIVE);
        assert!(describe(&wrong).contains("n/p1 like shard 1: counter: 3 -> 4"), "{}", describe(&wrong));
        assert_eq!(verdict(&Report { repaired: 1, ..wrong }), OK);
    }
}
