//! `gatehouse.example.toml` against the keys that the reader knows, as its refusals list them.

use super::{read, refusal};
use crate::config::Config;
use crate::config::misspelt::whole_example as whole;
use crate::config::source::live_names;

const EXAMPLE: &str = include_str!("../../../gatehouse.example.toml");

/// The keys of a table; `None` if there is no table of this name.
fn keys_in(table: &str) -> Option<Vec<String>> {
    let told = refusal(&format!("{table}zzzzz = 1"));
    let (_, keys) = told.lines().find_map(|line| line.split_once("allowed here: "))?;
    Some(keys.split(", ").map(|key| format!("{table}{key}")).collect())
}

/// Every key of the configuration: `server.bind`.
fn every_key() -> Vec<String> {
    let mut keys = Vec::new();
    let mut tables = vec![String::new()];
    while let Some(table) = tables.pop() {
        for key in keys_in(&table).expect("a table") {
            let below = format!("{key}.");
            if keys_in(&below).is_some() { tables.push(below) } else { keys.push(key) }
        }
    }
    keys
}

#[test]
fn the_example_is_the_defaults() {
    assert_eq!(read(EXAMPLE).expect("valid"), Config::default());
}

#[test]
fn what_the_example_comments_out_is_valid_too() {
    // It is one of two ways to name the gateways.
    let config = read(&whole().replace("\ngateway = \"outbox\"\n", "\n")).expect("valid");
    assert_eq!(config.settings.sms.gateways.len(), 2);
    assert_eq!(config.settings.server.workers, Some(4));
    assert_eq!(config.live.limits.custom.len(), 2);
}

#[test]
fn the_example_has_every_key() {
    let example: toml::Value = toml::from_str(&whole()).expect("valid");
    let has = |key: &String| key.split('.').try_fold(&example, |table, part| table.get(part)).is_some();
    let (keys, missing): (Vec<_>, Vec<_>) = every_key().into_iter().partition(has);
    assert!(keys.len() > 80, "{keys:?}");
    assert!(missing.is_empty(), "gatehouse.example.toml leaves out {missing:?}");
}

#[test]
fn the_example_tells_bounds_as_they_are() {
    let text = whole().replace("\n# ", " ");
    let mut wrong = Vec::new();
    for key in every_key().iter().filter(|key| key.contains('.') && !key.starts_with("limits.")) {
        let (section, _) = key.rsplit_once('.').expect("in a section");
        let part = text.split(&format!("\n[{section}]")).nth(1).expect("in the example");
        // A comment above a header is about its section.
        let part = part.split("\n[").next().unwrap_or_default();
        for value in ["-1", "\"0s\""] {
            let told = read(&format!("{key} = {value}")).err().map(|error| error.to_string());
            if let Some((_, bounds)) = told.as_deref().and_then(|told| told.split_once("it must be from "))
                && !part.contains(bounds)
            {
                wrong.push(format!("{key}: {bounds}"));
            }
        }
    }
    assert!(wrong.is_empty(), "gatehouse.example.toml does not tell {wrong:#?}");
}

#[test]
fn the_example_names_what_is_live() {
    let head = EXAMPLE.split("\n[server]").next().unwrap_or_default();
    for name in live_names() {
        assert!(head.contains(name.trim_matches(['[', ']'])), "{name} is live");
    }
}
