//! `tally key new|list|revoke`.

use std::path::Path;

use serde_json::json;
use store::clock::{Clock, SystemClock};

use super::{
    file::{KeyFile, Lock, StoredKey, time_text, too_open},
    token,
};
use crate::{
    cli::{KeyAction, KeyCommand, KeyNewArgs},
    failure::{Failure, OK},
    output::{print, print_json},
    seed,
};

/// Runs the command.
pub fn run(command: KeyCommand) -> Result<u8, Failure> {
    match command.action {
        KeyAction::New(args) => new(&args),
        KeyAction::List(args) => list(&args.keys, args.json),
        KeyAction::Revoke(args) => revoke(&args.keys, &args.key, args.delete),
    }
}

fn load(path: &Path) -> Result<KeyFile, Failure> {
    if let Some(warning) = too_open(path) {
        eprintln!("tally: {warning}");
    }
    KeyFile::load(path).map(|(file, _)| file).map_err(Failure::unreachable)
}

fn new(args: &KeyNewArgs) -> Result<u8, Failure> {
    let _lock = Lock::take(&args.keys).map_err(Failure::unreachable)?;
    let mut file = if args.keys.exists() { load(&args.keys)? } else { KeyFile::default() };
    if file.keys.iter().any(|k| k.name == args.name && !k.disabled) {
        return Err(Failure::usage(format!("there is a key `{}` already; revoke it first, or choose another name", args.name)));
    }
    let token = token::new(seed::random_id);
    let now = SystemClock::starting_at(0).now();
    let key = StoredKey {
        id: token::id(token.reveal()).expect("made just now").to_owned(),
        name: args.name.clone(),
        hash: token::hash_text(&token::hash(token.reveal())),
        namespaces: args.namespaces.clone(),
        roles: args.roles.clone(),
        created: time_text(now),
        expires: args.days.map(|days| time_text(now + i64::from(days) * 86_400_000_000)),
        disabled: false,
    };
    key.check().map_err(Failure::usage)?;
    if file.keys.iter().any(|k| k.id == key.id) {
        return Err(Failure::unreachable("the new id is taken; run it again"));
    }
    file.keys.push(key.clone());
    file.save(&args.keys).map_err(Failure::unreachable)?;
    if args.json {
        print_json(&json!({ "id": key.id, "name": key.name, "token": token.reveal(), "expires": key.expires }))?;
    } else {
        eprintln!("key `{}` is in {}; this is its token, shown only now:", key.name, args.keys.display());
        print(&format!("{}\n", token.reveal()))?;
    }
    Ok(OK)
}

fn list(path: &Path, as_json: bool) -> Result<u8, Failure> {
    let file = load(path)?;
    if as_json {
        let shown = |k: &StoredKey| {
            json!({ "id": k.id, "name": k.name, "namespaces": k.namespaces, "roles": k.roles,
                    "created": k.created, "expires": k.expires, "disabled": k.disabled })
        };
        print_json(&file.keys.iter().map(shown).collect::<Vec<_>>())?;
        return Ok(OK);
    }
    let mut out = String::new();
    for key in &file.keys {
        use std::fmt::Write;
        let state = match (&key.expires, key.disabled) {
            (_, true) => "  revoked".to_owned(),
            (Some(at), false) => format!("  until {at}"),
            (None, false) => String::new(),
        };
        let (roles, namespaces) = (key.roles.join(","), key.namespaces.join(","));
        let _ = writeln!(out, "{}  {:<24} {roles:<28} {namespaces:<16} {}{state}", key.id, key.name, key.created);
    }
    print(&out)?;
    Ok(OK)
}

fn revoke(path: &Path, key: &str, delete: bool) -> Result<u8, Failure> {
    let _lock = Lock::take(path).map_err(Failure::unreachable)?;
    let mut file = load(path)?;
    let asked = |k: &StoredKey| (k.name == key && !k.disabled) || k.id == key;
    if !file.keys.iter().any(asked) {
        return Err(Failure::usage(format!("no key in force has the name or id `{key}`; `tally key list` shows them")));
    }
    if delete {
        file.keys.retain(|k| !asked(k));
    } else {
        file.keys.iter_mut().filter(|k| asked(k)).for_each(|k| k.disabled = true);
    }
    file.save(path).map_err(Failure::unreachable)?;
    print(&format!("`{key}` is refused from now on; a running server notices within about a second\n"))?;
    Ok(OK)
}
