//! Settings: defaults, then a TOML file, then `TALLY_…` variables, then flags; unknown names refused.

mod effective;
mod kinds;
mod values;

use std::{collections::BTreeMap, net::SocketAddr, path::Path, path::PathBuf, time::Duration};

use effective::Given;
pub use effective::to_toml;

use ingest::http::Rate;
use schema::Kinds;
use values::Value;
pub use values::{ByteSize, LogFormat};

/// A duration as settings write it, as 200ms, 10s, 5m, 48h or 90d.
pub fn duration(text: &str) -> Option<Duration> {
    Duration::read(text).ok()
}

use crate::{failure::Failure, suggest::suggestion};

/// Prefix of the environment variables that set something.
pub const ENV_PREFIX: &str = "TALLY_";
/// Read where no `--config` names another file.
pub const DEFAULT_FILE: &str = "tally.toml";
/// Largest configuration file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// A setting as people look it up.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name in files; in the environment with `TALLY_` before it and in capitals.
    pub name: &'static str,
    /// Its default, as it would be written.
    pub default: &'static str,
    /// What it does.
    pub doc: &'static str,
}

macro_rules! settings {
    ($( #[doc = $doc:literal] $name:ident: $type:ty = $default:literal, )*) => {
        /// Every setting. `tally serve --help` lists them.
        #[derive(Debug, Clone)]
        pub struct Config {
            $( #[doc = $doc] pub $name: $type, )*
            /// What is counted; in the file `[kinds.NAME]`, in `TALLY_KINDS` the same as JSON.
            pub kinds: Kinds,
            /// Text and place of every setting that is not left at its default.
            given: BTreeMap<String, Given>,
        }

        /// Every setting that is one text; `kinds` comes besides.
        pub const KEYS: &[Key] = &[ $( Key { name: stringify!($name), default: $default, doc: $doc }, )* ];

        impl Default for Config {
            fn default() -> Self {
                Self {
                    $( $name: <$type>::read($default).expect("defaults are read by a test"), )*
                    kinds: schema::default_kinds(),
                    given: BTreeMap::new(),
                }
            }
        }

        impl Config {
            /// Sets one key from its text. `None`: there is no such key.
            fn set(&mut self, key: &str, text: &str) -> Option<Result<(), String>> {
                match key {
                    $( stringify!($name) => Some(<$type>::read(text).map(|v| self.$name = v)), )*
                    _ => None,
                }
            }
        }
    };
}

settings! {
    #[doc = "Directory of the data; made where there is none."]
    data: PathBuf = "./data",
    #[doc = "Address to listen on. Loopback only while no keys are configured; port 0 picks a free one."]
    listen: SocketAddr = "127.0.0.1:8080",
    #[doc = "File with the keys of callers, made by `tally key new`. Read again when it changes. Without it everybody may do everything."]
    keys: Option<PathBuf> = "",
    #[doc = "Whether /metrics needs no key."]
    open_metrics: bool = "false",
    #[doc = "Whether keys may be sent without TLS to an address that is not loopback: only behind a proxy that speaks TLS."]
    insecure_http: bool = "false",
    #[doc = "Certificate chain in PEM; with it and `tls_key` the listener speaks TLS. Read again when it changes."]
    tls_cert: Option<PathBuf> = "",
    #[doc = "Private key of the certificate, in PEM."]
    tls_key: Option<PathBuf> = "",
    #[doc = "What to log: error, warn, info, debug, or by module as `info,store=debug`."]
    log: String = "info,fjall=warn,lsm_tree=warn",
    #[doc = "Shape of log lines: human or json."]
    log_format: LogFormat = "human",
    #[doc = "Open connections; more wait to be accepted."]
    max_connections: usize = "1024",
    #[doc = "HTTP requests handled side by side; a further one is answered 503."]
    max_requests: usize = "4096",
    #[doc = "Requests of one key, as 200/s, or 200/s:1000 with a burst; items of a batch count each; 0 is no limit."]
    limit_key: Option<Rate> = "0",
    #[doc = "Likes of one user; withdrawing and imports are never limited by user or target."]
    limit_user: Option<Rate> = "0",
    #[doc = "Likes of one target."]
    limit_target: Option<Rate> = "0",
    #[doc = "How long a connection may take to send a request's head."]
    header_timeout: Duration = "10s",
    #[doc = "Requests that take at least so long are logged, as those that fail with 5xx are; 0s: none."]
    slow_request: Duration = "1s",
    #[doc = "How long open requests may finish after SIGTERM, at most 6s."]
    drain_timeout: Duration = "4s",
    #[doc = "T: fact rows of one target and kind before it is split into leaves. Fixed at first start."]
    small_limit: usize = "128",
    #[doc = "L: a large target has 2^L leaves. Fixed at first start."]
    level: u8 = "4",
    #[doc = "Length of a journal slot."]
    slot: Duration = "10s",
    #[doc = "How far behind now the sweep closes and counts journal slots; at least one slot."]
    sweep_delay: Duration = "30s",
    #[doc = "How long swept journal slots are kept."]
    journal_retention: Duration = "48h",
    #[doc = "How long a hide run is kept after its end, with what an undo of it needs; 0s: for ever."]
    run_retention: Duration = "90d",
    #[doc = "How long a write may try before it is answered `accepted` or `unknown`."]
    write_timeout: Duration = "5s",
    #[doc = "Queues between ingest and aggregator."]
    buckets: u16 = "64",
    #[doc = "Members that each queue holds; what does not fit is counted by the sweep."]
    event_queue: usize = "8192",
    #[doc = "Tasks that share the queues."]
    aggregator_workers: usize = "2",
    #[doc = "Shards that one of them counts side by side."]
    aggregator_parallel: usize = "256",
    #[doc = "Partitions that a rebuild or verify checks side by side."]
    rebuild_parallel: usize = "8",
    #[doc = "Rows per second that a rebuild or verify reads; 0: as fast as it goes."]
    rebuild_rate: u32 = "0",
    #[doc = "Above this share of the checked targets, in percent, a rebuild only reports until it is confirmed."]
    rebuild_freeze_percent: u8 = "1",
    #[doc = "But only if at least so many targets differ."]
    rebuild_freeze_targets: u32 = "20",
    #[doc = "One target that is wrong by more than this also stops repair; 0: never."]
    rebuild_freeze_size: u32 = "100000",
    #[doc = "Cache of the store's blocks."]
    store_cache: ByteSize = "128MiB",
    #[doc = "Writes that wait for the store's writer; more wait outside."]
    store_queue: ByteSize = "32MiB",
    #[doc = "Journal bytes that opening after a crash may have to replay."]
    store_replay: ByteSize = "64MiB",
    #[doc = "Targets whose counts are cached."]
    cache_targets: usize = "100000",
    #[doc = "How long a cached count may be answered."]
    cache_age: Duration = "1s",
}

impl Config {
    /// Reads `file` (or [`DEFAULT_FILE`] where that exists), then `environment`, then `flags`.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[(String, String)],
    ) -> Result<Self, Failure> {
        let mut config = Self::default();
        match file {
            Some(path) => config.read_file(path)?,
            None if Path::new(DEFAULT_FILE).exists() => config.read_file(Path::new(DEFAULT_FILE))?,
            None => {}
        }
        for (name, text) in environment {
            // Those of the commands that ask a server are none of a server's settings.
            if crate::client::VARIABLES.contains(&name.as_str()) {
                continue;
            }
            if let Some(key) = name.strip_prefix(ENV_PREFIX) {
                config.set_env(&name, &key.to_ascii_lowercase(), &text)?;
            }
        }
        config.set_flags(flags)?;
        Ok(config)
    }

    /// The defaults and `flags`, whatever files and environment say.
    pub fn from_flags(flags: &[(String, String)]) -> Result<Self, Failure> {
        let mut config = Self::default();
        config.set_flags(flags)?;
        Ok(config)
    }

    /// The last step: then everything must fit together.
    fn set_flags(&mut self, flags: &[(String, String)]) -> Result<(), Failure> {
        for (key, text) in flags {
            self.set_from(key, text, "command line", || format!("`{key}`"))?;
            self.given(key, text, "command line".to_owned());
        }
        self.check()
    }

    fn read_file(&mut self, path: &Path) -> Result<(), Failure> {
        let place = path.display().to_string();
        let unreadable = |e: std::io::Error| Failure::usage(format!("cannot read the configuration {place}: {e}"));
        if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_FILE {
            return Err(Failure::usage(format!("the configuration {place} is larger than 1 MiB")));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            let line = e.span().map_or(0, |s| text[..s.start.min(text.len())].matches('\n').count() + 1);
            Failure::usage(format!("{place}, line {line}: {}", e.message()))
        })?;
        for (key, value) in table {
            if key == "kinds" {
                self.kinds = kinds::from_toml(value).map_err(|e| Failure::usage(format!("{place}: {e}")))?;
                self.given("kinds", "", format!("file {place}"));
                continue;
            }
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(word) => word.to_string(),
                other => {
                    let expected =
                        format!("{place}: `{key}` is a {}, a text, a number or true/false is expected", other.type_str());
                    return Err(Failure::usage(if KEYS.iter().any(|k| k.name == key) {
                        expected
                    } else {
                        unknown(&place, &key)
                    }));
                }
            };
            self.set_from(&key, &text, &place, || format!("`{key}`"))?;
            self.given(&key, &text, format!("file {place}"));
        }
        Ok(())
    }

    fn given(&mut self, key: &str, text: &str, place: String) {
        self.given.insert(key.to_owned(), Given { text: text.to_owned(), place });
    }

    fn set_env(&mut self, variable: &str, key: &str, text: &str) -> Result<(), Failure> {
        if key == "kinds" {
            self.kinds = kinds::from_json(text).map_err(|e| Failure::usage(format!("environment: {variable}: {e}")))?;
            self.given("kinds", "", format!("environment {variable}"));
            return Ok(());
        }
        if !KEYS.iter().any(|k| k.name == key) {
            let known: Vec<String> = names().map(|n| format!("{ENV_PREFIX}{}", n.to_ascii_uppercase())).collect();
            let near = suggestion(variable, known.iter().map(String::as_str));
            return Err(Failure::usage(format!("environment: {variable} is not a setting of Tally{near}")));
        }
        self.set_from(key, text, "environment", || variable.to_owned())?;
        self.given(key, text, format!("environment {variable}"));
        Ok(())
    }

    fn set_from(&mut self, key: &str, text: &str, place: &str, shown: impl Fn() -> String) -> Result<(), Failure> {
        match self.set(key, text) {
            Some(Ok(())) => Ok(()),
            Some(Err(expected)) => Err(Failure::usage(format!("{place}: {} is `{text}`, expected {expected}", shown()))),
            None => Err(Failure::usage(unknown(place, key))),
        }
    }

    fn check(&self) -> Result<(), Failure> {
        let in_range = |key: &str, value: usize, least: usize, most: usize| {
            let refused = || Failure::usage(format!("`{key}` is {value}, it must lie in {least} to {most}"));
            if (least..=most).contains(&value) { Ok(()) } else { Err(refused()) }
        };
        in_range("max_connections", self.max_connections, 1, 100_000)?;
        in_range("max_requests", self.max_requests, 1, 1_000_000)?;
        in_range("small_limit", self.small_limit, 1, 4096)?;
        in_range("level", usize::from(self.level), 1, 10)?;
        in_range("buckets", usize::from(self.buckets), 1, 4096)?;
        in_range("event_queue", self.event_queue, 1, 1 << 20)?;
        in_range("aggregator_workers", self.aggregator_workers, 1, 64)?;
        in_range("aggregator_parallel", self.aggregator_parallel, 1, 1024)?;
        in_range("rebuild_parallel", self.rebuild_parallel, 1, 256)?;
        in_range("rebuild_freeze_percent", usize::from(self.rebuild_freeze_percent), 0, 100)?;
        in_range("cache_targets", self.cache_targets, 1, 10_000_000)?;
        let bounded = |key: &str, value: Duration, least: Duration, most: Duration| {
            let refused = || Failure::usage(format!("`{key}` is {value:?}, it must lie in {least:?} to {most:?}"));
            if (least..=most).contains(&value) { Ok(()) } else { Err(refused()) }
        };
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        bounded("header_timeout", self.header_timeout, ms(10), s(300))?;
        bounded("slow_request", self.slow_request, ms(0), s(3600))?;
        bounded("drain_timeout", self.drain_timeout, ms(0), s(6))?;
        bounded("slot", self.slot, ms(50), s(600))?;
        bounded("sweep_delay", self.sweep_delay, self.slot, s(3600))?;
        bounded("journal_retention", self.journal_retention, self.sweep_delay + self.slot, s(90 * 86_400))?;
        if !self.run_retention.is_zero() {
            bounded("run_retention", self.run_retention, s(3600), s(3650 * 86_400))?;
        }
        bounded("write_timeout", self.write_timeout, ms(10), s(60))?;
        bounded("cache_age", self.cache_age, ms(0), s(60))?;
        let bytes = |key: &str, value: ByteSize, least: u64| {
            let refused = || Failure::usage(format!("`{key}` is {} bytes, it must be at least {} MiB", value.0, least >> 20));
            if value.0 >= least { Ok(()) } else { Err(refused()) }
        };
        bytes("store_cache", self.store_cache, 8 << 20)?;
        bytes("store_queue", self.store_queue, 1 << 20)?;
        bytes("store_replay", self.store_replay, 1 << 20)
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|k| k.name).chain(["kinds"])
}

fn unknown(place: &str, key: &str) -> String {
    format!("{place}: unknown setting `{key}`{}", suggestion(key, names()))
}

/// The settings as lines of help.
pub fn describe() -> String {
    use std::fmt::Write;
    let mut out = String::from("Settings (name, default, meaning):\n");
    for key in KEYS {
        let default = if key.default.is_empty() { "\"\"" } else { key.default };
        let _ = writeln!(out, "  {:<20} {default:<15} {}", key.name, key.doc);
    }
    let _ = writeln!(
        out,
        "  {:<20} {:<15} What is counted; see below. Choices may be added at the end, never moved or removed.",
        "kinds", ""
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.toml");
        std::fs::write(&path, file).unwrap();
        let own = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
        let loaded = Config::load(Some(&path), own(env), &own(flags));
        loaded.map_err(|e| e.message.replace(&path.display().to_string(), "FILE"))
    }

    #[test]
    fn every_default_is_accepted_and_documented() {
        let config = Config::default();
        assert!(config.check().is_ok());
        for key in KEYS {
            assert!(key.doc.ends_with('.'), "{} has no sentence", key.name);
            let mut config = config.clone();
            assert_eq!(config.set(key.name, key.default), Some(Ok(())), "{}", key.name);
        }
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let file = "slot = '1s'\nlevel = 3\nbuckets = 8\n";
        let config = load(file, &[("TALLY_LEVEL", "5"), ("TALLY_BUCKETS", "9"), ("PATH", "x")], &[("buckets", "10")]).unwrap();
        assert_eq!((config.slot, config.level, config.buckets), (Duration::from_secs(1), 5, 10));
        assert_eq!(config.small_limit, Config::default().small_limit);
    }

    #[test]
    fn unknown_names_are_refused_by_name_with_a_suggestion() {
        let cases = [
            (load("sweep_dely = '1s'", &[], &[]), "FILE: unknown setting `sweep_dely`; did you mean `sweep_delay`?"),
            (load("[server]\nport = 1", &[], &[]), "FILE: unknown setting `server`"),
            (
                load("", &[("TALLY_LISTN", "x")], &[]),
                "environment: TALLY_LISTN is not a setting of Tally; did you mean `TALLY_LISTEN`?",
            ),
            (load("", &[], &[("dat", "x")]), "command line: unknown setting `dat`; did you mean `data`?"),
            (
                load("[kinds.star]\nchoices = ['star']\nby_usr = true", &[], &[]),
                "FILE: kinds.star: unknown key `by_usr`; did you mean `by_user`?",
            ),
        ];
        for (result, expected) in cases {
            assert_eq!(result.map(|_| ()), Err(expected.to_owned()));
        }
    }

    #[test]
    fn wrong_values_name_the_setting_and_what_is_expected() {
        let cases = [
            (load("slot = 10", &[], &[]), "FILE: `slot` is `10`, expected a duration, as 200ms, 10s, 5m, 48h or 90d"),
            (load("level = 99", &[], &[]), "`level` is 99, it must lie in 1 to 10"),
            (load("slot = '9s'\nsweep_delay = '1s'", &[], &[]), "`sweep_delay` is 1s, it must lie in 9s to 3600s"),
            (load("data = ['x']", &[], &[]), "FILE: `data` is a array, a text, a number or true/false is expected"),
            (load("slot = ", &[], &[]), "FILE, line 1: "),
            (
                load("", &[("TALLY_LISTEN", "8080")], &[]),
                "environment: TALLY_LISTEN is `8080`, expected an address and a port, as 127.0.0.1:8080 or [::1]:8080",
            ),
        ];
        for (result, expected) in cases {
            let error = result.map(|_| ()).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn kinds_come_from_the_file_or_the_environment() {
        let config = load("[kinds.star]\nchoices = ['one', 'two']\n[kinds.note]\nby_user = false", &[], &[]).unwrap();
        let star = config.kinds.get("star").unwrap();
        assert_eq!((star.choices.len(), star.by_user), (2, true));
        let note = config.kinds.get("note").unwrap();
        assert_eq!((note.choices.as_slice(), note.by_user), (["note".to_owned()].as_slice(), false));
        assert!(config.kinds.get("like").is_none());
        let config = load("", &[("TALLY_KINDS", r#"{"star":{"choices":["one"]}}"#)], &[]).unwrap();
        assert!(config.kinds.get("star").is_some());
        assert!(load("", &[("TALLY_KINDS", r#"{"Star":{}}"#)], &[]).is_err());
        assert!(load("kinds = {}", &[], &[]).is_err());
    }
}
