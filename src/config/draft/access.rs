//! A draft of `[access]`: read as strictly as the document itself, and written into it.

use std::net::IpAddr;

use serde_json::Value as Json;
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

use super::{
    DraftError, DraftRefusal, Overridden, SET_BY_VARIABLE, TheirDocument, cannot_write, draft_errors, edited,
    judged, splice, tree_of_json,
};
use crate::clock::Micros;
use crate::config::access::{AccessNetwork, AccessSettings, KEYS};
use crate::config::document::ConfigTable;
use crate::config::reader::{self, ProblemList};
use crate::config::settings::Config;

/// Valid `[access]`, as an administrator wants it. It may still conflict with the document that it is written into.
#[derive(Debug, Clone)]
pub struct AccessEdit {
    draft: AccessSettings,
    /// The draft without what has ended.
    kept: AccessSettings,
}

/// Who saves `[access]`, when, and over what.
#[derive(Debug, Clone, Copy)]
pub struct AccessSaver<'a> {
    pub current: &'a AccessSettings,
    pub address: IpAddr,
    pub now: Micros,
}

impl AccessEdit {
    /// Reads an object with the structure of the `[access]` table; returns all of its problems. What was there before
    /// may have ended, and is then dropped; what is new must end later, and must not refuse its author.
    pub fn read(draft: &Json, saver: AccessSaver<'_>) -> Result<Self, Vec<DraftError>> {
        let draft = parse(draft)?;
        let AccessSaver { current, address, now } = saver;
        let mut errors = Vec::new();
        let networks = |key: &str, list: &[AccessNetwork], before: &[AccessNetwork], denies: bool| {
            let new = list.iter().enumerate().filter(|(_, entry)| !before.contains(entry));
            let wrong = new.flat_map(|(index, entry)| {
                let ended = (entry.until <= now).then(|| has_ended(&format!("{key}[{index}].until")));
                let own = denies && entry.network.contains(&address);
                ended.into_iter().chain(own.then(|| refuses_you(&format!("{key}[{index}].network"))))
            });
            wrong.collect::<Vec<_>>()
        };
        errors.extend(networks("deny", &draft.deny, &current.deny, true));
        errors.extend(networks("allow", &draft.allow, &current.allow, false));
        let new = draft.pause_sms.iter().enumerate().filter(|(_, pause)| !current.pause_sms.contains(pause));
        let ended = new.filter(|(_, pause)| pause.until <= now);
        errors.extend(ended.map(|(index, _)| has_ended(&format!("pause_sms[{index}].until"))));
        let end = draft.challenge_everyone_until.filter(|end| *end <= now);
        if end.is_some() && end != current.challenge_everyone_until {
            errors.push(has_ended("challenge_everyone_until"));
        }
        let kept = draft.in_force(now);
        if errors.is_empty() { Ok(Self { draft, kept }) } else { Err(errors) }
    }

    pub const fn settings(&self) -> &AccessSettings {
        &self.kept
    }

    /// The document with this draft in it, and what is in force with that. Its comments and everything else stay.
    pub(super) fn put_into(&self, theirs: &TheirDocument<'_>) -> Result<(String, Config), DraftRefusal> {
        let fixed = Overridden::by(theirs.source.environment()).access;
        let before = match theirs.known {
            Some(live) if fixed.is_empty() => live.access.settings().clone(),
            _ => access_alone(theirs.tree()?),
        };
        let put = |wanted: &AccessSettings| {
            let merged = edited(theirs.text, |document| write(document, wanted, &before, &fixed))?;
            let config = judged(theirs, &merged, "access").map_err(with_short_fields)?;
            Ok((merged, config))
        };
        // Whole at first, so that a mistake is told at the entry as it was sent.
        let whole = put(&self.draft)?;
        let in_force = whole.1.live.access.settings();
        let errors: Vec<_> = KEYS
            .into_iter()
            .filter(|key| fixed.contains(key))
            .filter(|key| !same(key, &self.draft, in_force) && !same(key, &self.draft, &before))
            .map(|key| DraftError::at(key, SET_BY_VARIABLE.to_owned(), None))
            .collect();
        if !errors.is_empty() {
            return Err(DraftRefusal::Invalid(errors));
        }
        let (merged, config) = if self.kept == self.draft { whole } else { put(&self.kept)? };
        let means = |key: &&str| fixed.contains(key) || same(key, &self.kept, config.live.access.settings());
        if KEYS.iter().all(means) {
            Ok((merged, config))
        } else {
            Err(cannot_write(" without changing its meaning; write it as an [access] table"))
        }
    }
}

fn has_ended(field: &str) -> DraftError {
    DraftError::at(field, "has passed; choose a time that is still to come".to_owned(), None)
}

fn refuses_you(field: &str) -> DraftError {
    const MESSAGE: &str = "contains the address that you save from, so that you would refuse yourself; name a smaller network, or save from elsewhere";
    DraftError::at(field, MESSAGE.to_owned(), None)
}

/// As API and forms name fields: `deny[0].until`.
fn with_short_fields(error: DraftRefusal) -> DraftRefusal {
    match error {
        DraftRefusal::Invalid(errors) => DraftRefusal::Invalid(errors.into_iter().map(short).collect()),
        other => other,
    }
}

fn short(error: DraftError) -> DraftError {
    let field = error.field.strip_prefix("access.").unwrap_or(&error.field).to_owned();
    DraftError { field, ..error }
}

fn parse(draft: &Json) -> Result<AccessSettings, Vec<DraftError>> {
    let (settings, problems) = read(tree_of_json("access", draft));
    problems.into_result(settings).map_err(|error| draft_errors(&error).into_iter().map(short).collect())
}

/// `[access]` of a document without the variables, as far as it is valid.
pub(super) fn access_alone(root: &ConfigTable) -> AccessSettings {
    let access = root.get("access").map(|entry| ("access".to_owned(), entry.clone()));
    read(access.into_iter().collect()).0
}

fn read(root: ConfigTable) -> (AccessSettings, ProblemList) {
    let problems = ProblemList::default();
    let settings = reader::read(root, &problems, |root| {
        root.section("access", |section| AccessSettings::read(section, &[]))
    });
    (settings, problems)
}

fn same(key: &str, one: &AccessSettings, other: &AccessSettings) -> bool {
    match key {
        "deny" => one.deny == other.deny,
        "allow" => one.allow == other.allow,
        "pause_sms" => one.pause_sms == other.pause_sms,
        _ => one.challenge_everyone_until == other.challenge_everyone_until,
    }
}

/// Writes the keys that differ from `before`, except those that variables set.
fn write(
    document: &mut DocumentMut,
    wanted: &AccessSettings,
    before: &AccessSettings,
    fixed: &[&str],
) -> Result<(), String> {
    let free = || KEYS.into_iter().filter(|key| !fixed.contains(key));
    if free().all(|key| same(key, wanted, before)) {
        return Ok(());
    }
    // [[access.deny]] without [access] has no table to write into.
    if matches!(document.get("access"), Some(Item::Table(table)) if table.is_implicit() && !table.is_dotted())
    {
        document.remove("access");
        let all = KEYS.into_iter().filter_map(|key| {
            let from = if fixed.contains(&key) { before } else { wanted };
            Some((key, from.value(key)?))
        });
        let all: Vec<_> = all.collect();
        let table = table(document)?;
        all.into_iter().for_each(|(key, value)| drop(table.insert(key, Item::Value(value))));
        return Ok(());
    }
    let table = table(document)?;
    for key in free().filter(|key| !same(key, wanted, before)) {
        let nothing = || if key.ends_with("_until") { Value::from("") } else { Array::new().into() };
        let value = wanted.value(key).unwrap_or_else(nothing);
        match table.get_mut(key).and_then(Item::as_value_mut) {
            Some(old) => {
                let decor = old.decor().clone();
                *old = value;
                *old.decor_mut() = decor;
            }
            None => drop(table.insert(key, Item::Value(value))),
        }
    }
    Ok(())
}

/// The table of the document; a new one is written after everything else.
fn table(document: &mut DocumentMut) -> Result<&mut dyn TableLike, String> {
    if !document.contains_key("access") {
        let mut table = Table::new();
        table.decor_mut().set_prefix("\n");
        document.insert("access", Item::Table(table));
        splice::set_end_apart(document);
    }
    let table = document.get_mut("access").and_then(Item::as_table_like_mut);
    table.ok_or_else(|| "access in this document is not a table; write it as [access]".to_owned())
}
