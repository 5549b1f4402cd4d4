//! `tally bench`: rounds of Tally and of a baseline in turn, so that their ratio means something on a
//! machine whose speed changes from minute to minute.

mod against;
mod baseline;
mod clients;
mod handler;
mod likes;
mod load;
mod processor;
mod reads;
mod rebuild;
mod sizes;
mod sweep;
mod world;

use std::path::Path;

use hdrhistogram::Histogram;
use serde::Serialize;
use tempfile::TempDir;

use crate::{
    cli::{BenchArgs, BenchWay, BenchWhat},
    config::Config,
    failure::{Failure, OK},
    output,
};

/// Times in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
struct Times {
    samples: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl From<&Histogram<u64>> for Times {
    fn from(h: &Histogram<u64>) -> Self {
        let ms = |micros: u64| micros as f64 / 1000.0;
        Self {
            samples: h.len(),
            p50_ms: ms(h.value_at_quantile(0.5)),
            p99_ms: ms(h.value_at_quantile(0.99)),
            max_ms: ms(h.max()),
        }
    }
}

/// Runs the command.
pub async fn run(args: BenchArgs) -> Result<u8, Failure> {
    if let Some(url) = &args.url {
        return finish(&args, &against::run(&args, url).await?);
    }
    let temporary = match &args.dir {
        None => tempfile::tempdir().map_err(unusable)?,
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(unusable)?;
            temporary_in(dir)?
        }
    };
    let dir = temporary.path();
    match args.what {
        BenchWhat::Likes => finish(&args, &likes::run(&args, dir).await?),
        BenchWhat::Reads => finish(&args, &reads::run(&args, dir).await?),
        BenchWhat::Rebuild => finish(&args, &rebuild::run(&args, dir).await?),
        BenchWhat::Sweep => finish(&args, &sweep::run(&args, dir).await?),
    }
}

/// What people read is printed by then.
fn finish<T: Serialize>(args: &BenchArgs, report: &T) -> Result<u8, Failure> {
    if args.json {
        output::print_json(report)?;
    }
    Ok(OK)
}

fn unusable(error: std::io::Error) -> Failure {
    Failure::unreachable(format!("cannot make a directory for the data: {error}"))
}

fn temporary_in(dir: &Path) -> Result<TempDir, Failure> {
    tempfile::tempdir_in(dir).map_err(unusable)
}

/// The ways in that are asked for.
fn ways(args: &BenchArgs) -> Vec<BenchWay> {
    [BenchWay::InProcess, BenchWay::Http].into_iter().filter(|w| args.only.is_none_or(|only| only == *w)).collect()
}

fn way_name(way: BenchWay) -> &'static str {
    match way {
        BenchWay::InProcess => "in process",
        BenchWay::Http => "http",
    }
}

/// The defaults and what `--set` says; no file and no environment, so that runs can be compared.
fn config(args: &BenchArgs, data: &Path) -> Result<Config, Failure> {
    let mut flags = crate::pairs(&args.set)?;
    flags.push(("data".to_owned(), data.display().to_string()));
    Config::from_flags(&flags)
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_one() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median([]).abs() < f64::EPSILON);
    }
}
