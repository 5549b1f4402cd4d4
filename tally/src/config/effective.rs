//! What a process would run with, and where each setting comes from.

use serde::Serialize;

use super::{Config, KEYS};

/// Endings of the names of settings whose value is a secret itself, not a path to one.
const SECRET: [&str; 4] = ["secret", "password", "token", "api_key"];
/// What is shown in the place of a secret.
const HIDDEN: &str = "(hidden)";

/// How a setting was given.
#[derive(Debug, Clone)]
pub(super) struct Given {
    /// Its text; empty for kinds.
    pub text: String,
    /// By what, as `file tally.toml`.
    pub place: String,
}

/// One setting as it is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Effective {
    /// Its name.
    pub name: String,
    /// Its value, as it would be written in a file; secrets are hidden.
    pub value: String,
    /// `default`, `file PATH`, `environment VARIABLE` or `command line`.
    pub source: String,
}

impl Config {
    /// Every setting in force, in the order of the sample file; `kinds` last, as JSON.
    pub fn effective(&self) -> Vec<Effective> {
        let source = |name: &str| self.given.get(name).map_or_else(|| "default".to_owned(), |given| given.place.clone());
        let mut out: Vec<Effective> = Vec::with_capacity(KEYS.len() + 1);
        for key in KEYS {
            let text = self.given.get(key.name).map_or(key.default, |given| given.text.as_str());
            out.push(Effective { name: key.name.to_owned(), value: shown(key.name, text), source: source(key.name) });
        }
        let kinds: Vec<&schema::Kind> = self.kinds.iter().collect();
        let kinds = serde_json::to_string(&kinds).expect("texts and lists always serialise");
        out.push(Effective { name: "kinds".to_owned(), value: kinds, source: source("kinds") });
        out
    }

    /// Settings that something else than their default decides.
    pub fn given_names(&self) -> impl Iterator<Item = &str> {
        self.given.keys().map(String::as_str)
    }
}

/// The value, or that there is one.
fn shown(name: &str, text: &str) -> String {
    let secret = SECRET.iter().any(|end| name.ends_with(end)) && !text.is_empty();
    if secret { HIDDEN.to_owned() } else { text.to_owned() }
}

/// `config` as a file that gives the same settings, with the source of each in a comment.
pub fn to_toml(config: &Config) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let all = config.effective();
    let lines: Vec<(String, &str)> = all
        .iter()
        .filter(|e| e.name != "kinds")
        .map(|e| (format!("{} = {}", e.name, toml::Value::String(e.value.clone())), e.source.as_str()))
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0).min(60);
    for (line, source) in lines {
        let _ = writeln!(out, "{line:width$}  # {source}");
    }
    let source = all.last().map_or("default", |kinds| kinds.source.as_str());
    for (i, kind) in config.kinds.iter().enumerate() {
        let note = if i == 0 { format!("  # {source}") } else { String::new() };
        let choices = toml::Value::from(kind.choices.clone());
        let _ = write!(out, "\n[kinds.{}]{note}\nchoices = {choices}\nby_user = {}\n", kind.name, kind.by_user);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_names_its_source_and_the_file_gives_the_same_settings_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.toml");
        std::fs::write(&file, "slot = '1s'\nlevel = 3\n[kinds.mood]\nchoices = ['a \"b\"', 'c']\n").unwrap();
        let environment = [("TALLY_LEVEL".to_owned(), "5".to_owned())];
        let flags = [("buckets".to_owned(), "8".to_owned())];
        let config = Config::load(Some(&file), environment, &flags).unwrap();
        let all = config.effective();
        let one = |name: &str| all.iter().find(|e| e.name == name).map(|e| (e.value.as_str(), e.source.as_str())).unwrap();
        let place = format!("file {}", file.display());
        assert_eq!(one("slot"), ("1s", place.as_str()));
        assert_eq!(one("level"), ("5", "environment TALLY_LEVEL"));
        assert_eq!(one("buckets"), ("8", "command line"));
        assert_eq!(one("data"), ("./data", "default"));
        assert_eq!(one("kinds").1, place);
        assert_eq!(all.len(), KEYS.len() + 1);

        let again = folder.path().join("again.toml");
        std::fs::write(&again, to_toml(&config)).unwrap();
        let again = Config::load(Some(&again), [], &[]).unwrap();
        let values = |c: &Config| c.effective().into_iter().map(|e| (e.name, e.value)).collect::<Vec<_>>();
        assert_eq!(values(&again), values(&config));
    }

    #[test]
    fn secrets_are_hidden_and_paths_to_secrets_are_not() {
        assert_eq!(shown("audit_password", "hunter2"), HIDDEN);
        assert_eq!(shown("audit_password", ""), "");
        assert_eq!(shown("keys_file", "/etc/keys"), "/etc/keys");
    }
}
