//! `[kinds.NAME]` of the configuration.

use std::collections::BTreeMap;

use schema::{Kind, KindName, Kinds};
use serde::Deserialize;

use crate::suggest::suggestion;

const KEYS: [&str; 2] = ["choices", "by_user"];

/// What may be said of one kind.
#[derive(Deserialize)]
struct Entry {
    /// Names of the choices, in order; one with the kind's own name where absent.
    choices: Option<Vec<String>>,
    /// Whether members are users, so that what they hold is listed under them.
    #[serde(default = "yes")]
    by_user: bool,
}

fn yes() -> bool {
    true
}

/// From the file's `kinds` table.
pub fn from_toml(value: toml::Value) -> Result<Kinds, String> {
    let toml::Value::Table(table) = value else { return Err("`kinds` must be tables: [kinds.NAME]".into()) };
    let mut entries = BTreeMap::new();
    for (name, value) in table {
        refuse_unknown(&name, value.as_table().into_iter().flat_map(|t| t.keys().map(String::as_str)))?;
        let entry: Entry = value.try_into().map_err(|e: toml::de::Error| format!("kinds.{name}: {}", e.message()))?;
        entries.insert(name, entry);
    }
    build(entries)
}

/// From `TALLY_KINDS`: an object of the same shape.
pub fn from_json(text: &str) -> Result<Kinds, String> {
    let table: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|e| format!("expected JSON as {{\"like\":{{\"choices\":[\"like\"]}}}}: {e}"))?;
    let mut entries = BTreeMap::new();
    for (name, value) in table {
        refuse_unknown(&name, value.as_object().into_iter().flat_map(|t| t.keys().map(String::as_str)))?;
        entries.insert(name.clone(), serde_json::from_value(value).map_err(|e| format!("kinds.{name}: {e}"))?);
    }
    build(entries)
}

fn refuse_unknown<'a>(name: &str, mut keys: impl Iterator<Item = &'a str>) -> Result<(), String> {
    match keys.find(|k| !KEYS.contains(k)) {
        Some(key) => Err(format!("kinds.{name}: unknown key `{key}`{}", suggestion(key, KEYS))),
        None => Ok(()),
    }
}

fn build(entries: BTreeMap<String, Entry>) -> Result<Kinds, String> {
    if entries.is_empty() {
        return Err("`kinds` is empty: leave it out for the default kinds".into());
    }
    let mut kinds = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let choices = entry.choices.unwrap_or_else(|| vec![name.clone()]);
        kinds.push(Kind { name: KindName::parse(&name).map_err(|e| e.to_string())?, choices, by_user: entry.by_user });
    }
    Kinds::new(kinds).map_err(|e| e.to_string())
}
