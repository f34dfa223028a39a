//! Limits that environment variables set: those are not the document's to change.

use crate::config::document::{Entry, Node, Table, Value};
use crate::config::environment;

/// Their full names; `*` stands for all of them, and `custom.*` for all of the owner's own.
pub(in crate::config) fn overridden(variables: &[(String, String)]) -> Vec<String> {
    let mut names: Vec<String> = variables
        .iter()
        .filter_map(|(name, _)| {
            let keys = environment::keys_of(name)?;
            match keys.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["limits"] => Some("*".to_owned()),
                ["limits", "custom"] => Some("custom.*".to_owned()),
                ["limits", "custom", name, ..] => Some(format!("custom.{name}")),
                ["limits", name, ..] => Some(name.to_owned()),
                _ => None,
            }
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Those of `names` that `overridden` covers.
pub(super) fn among<'a>(names: &'a [String], overridden: &'a [String]) -> impl Iterator<Item = &'a str> {
    names.iter().map(String::as_str).filter(|name| covers(overridden, name))
}

pub(super) fn covers(overridden: &[String], name: &str) -> bool {
    overridden.iter().any(|pattern| match pattern.as_str() {
        "*" => true,
        "custom.*" => name.starts_with("custom."),
        exact => exact == name,
    })
}

/// Puts back into a draft what stands in the document under an overridden name.
pub(super) fn keep(name: &str, stood: &Table, draft: &mut Table) {
    match name.strip_prefix("custom.") {
        _ if name == "*" => draft.clone_from(stood),
        Some("*") => copy("custom", stood, draft),
        None => copy(name, stood, draft),
        Some(own) => {
            let none = Table::new();
            let theirs = match stood.get("custom") {
                Some(Entry { node: Node { value: Value::Table(table), .. }, .. }) => table,
                _ => &none,
            };
            if let Some(Entry { node: Node { value: Value::Table(table), .. }, .. }) = draft.get_mut("custom")
            {
                copy(own, theirs, table);
            } else if let (Some(entry), Some(custom)) = (theirs.get(own), stood.get("custom")) {
                let table = Table::from([(own.to_owned(), entry.clone())]);
                let node = Node { value: Value::Table(table), place: custom.node.place.clone() };
                draft.insert("custom".to_owned(), Entry { key: custom.key.clone(), node });
            }
        }
    }
}

fn copy(key: &str, from: &Table, to: &mut Table) {
    match from.get(key) {
        Some(entry) => drop(to.insert(key.to_owned(), entry.clone())),
        None => drop(to.remove(key)),
    }
}
