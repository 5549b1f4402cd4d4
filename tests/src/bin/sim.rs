//! Runs the simulation over many seeds, replays one, shrinks what fails.

use std::process::ExitCode;

use clap::Parser;
use store::clock::Stopwatch;
use tally_tests::sim::{many::many, ops::Case, run::run, shrink::shrink, world::Fault};

/// Runs the real protocol over the faulty engine in memory; every decision comes from the seed.
#[derive(Parser)]
#[command(name = "sim")]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Replays one seed.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Replays a case: its JSON, as a failure prints it.
    #[arg(long, conflicts_with = "seed")]
    case: Option<String>,
    /// Prints every decision of a replay.
    #[arg(long)]
    trace: bool,
    /// Most failing seeds that are shrunk.
    #[arg(long, default_value_t = 3)]
    shrink: usize,
    /// A fault to compile in (needs `--features mutations`); prints how many seeds catch it.
    #[arg(long)]
    mutation: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let fault = match fault(args.mutation.as_deref()) {
        Ok(fault) => fault,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let case = match (&args.case, args.seed) {
        (Some(text), _) => match serde_json::from_str(text) {
            Ok(case) => Some(case),
            Err(error) => {
                eprintln!("--case is not a case: {error}");
                return ExitCode::from(2);
            }
        },
        (None, seed) => seed.map(Case::of),
    };
    match case {
        Some(case) => replay(&case, fault, args.trace),
        None => search(&args, fault),
    }
}

fn replay(case: &Case, fault: Fault, tracing: bool) -> ExitCode {
    let result = run(case, fault, tracing);
    for line in &result.trace {
        println!("{line}");
    }
    println!("seed {}: digest {:016x}, {} requests, {} answered", case.seed, result.digest, result.requests, result.answered);
    match result.broken {
        None => ExitCode::SUCCESS,
        Some(text) => {
            println!("BROKEN: {text}");
            ExitCode::FAILURE
        }
    }
}

fn search(args: &Args, fault: Fault) -> ExitCode {
    let watch = Stopwatch::start();
    let found = many(args.from, args.seeds, args.jobs, fault);
    println!(
        "seeds {}..{}: {} broken; {} requests, {} answered; {:.1} s on {} threads",
        args.from,
        args.from + args.seeds,
        found.broken.len(),
        found.requests,
        found.answered,
        watch.elapsed().as_secs_f64(),
        args.jobs
    );
    if let Some(name) = &args.mutation {
        println!("{name}: caught by {} of {} seeds", found.broken.len(), args.seeds);
        return ExitCode::from(u8::from(found.broken.is_empty()));
    }
    for (seed, text) in &found.broken {
        println!("seed {seed}: {text}");
    }
    for (seed, _) in found.broken.iter().take(args.shrink) {
        let short = shrink(&Case::of(*seed), fault);
        let text = run(&short, fault, false).broken.unwrap_or_default();
        println!("seed {seed} shrunk to {} ops: {text}", short.ops.len());
        println!("{}", serde_json::to_string(&short).expect("a case is plain data"));
    }
    ExitCode::from(u8::from(!found.broken.is_empty()))
}

#[cfg(not(feature = "mutations"))]
fn fault(name: Option<&str>) -> Result<Fault, String> {
    match name {
        None => Ok(Fault::default()),
        Some(_) => Err("no faults are compiled in: run with --features mutations".into()),
    }
}

#[cfg(feature = "mutations")]
fn fault(name: Option<&str>) -> Result<Fault, String> {
    let Some(name) = name else { return Ok(Fault::default()) };
    let all = store::protocol::Mutation::ALL;
    match all.iter().find(|(n, _)| *n == name) {
        Some(&(_, mutation)) => Ok(Fault { mutation: Some(mutation) }),
        None => Err(format!("no fault {name}; there are: {}", all.map(|(n, _)| n).join(", "))),
    }
}
