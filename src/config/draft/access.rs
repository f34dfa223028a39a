//! A draft of `[access]`: what its author may not do, and how it is written into a document.

use gatehouse_limiter::middleware::ClientAddress;
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

use super::{DraftError, splice};
use crate::clock::Micros;
use crate::config::access::{AccessNetwork, AccessSettings, KEYS};
use crate::config::factors::FactorSettings;
use crate::config::reader::SectionTable;

/// The author of a new `[access]`, when it is saved, and over what.
#[derive(Debug, Clone, Copy)]
pub struct AccessSaver<'a> {
    pub current: &'a AccessSettings,
    pub address: ClientAddress,
    pub now: Micros,
}

/// The draft without what has ended. What was there before may have ended, and is then dropped; what is new must end
/// later, and must not refuse its author.
pub(super) fn kept(
    draft: &AccessSettings,
    saver: AccessSaver<'_>,
) -> Result<AccessSettings, Vec<DraftError>> {
    let AccessSaver { current, address, now } = saver;
    let mut errors = Vec::new();
    let networks = |key: &str, list: &[AccessNetwork], before: &[AccessNetwork], denies: bool| {
        let new = list.iter().enumerate().filter(|(_, entry)| !before.contains(entry));
        let wrong = new.flat_map(|(index, entry)| {
            let ended = (entry.until <= now).then(|| has_ended(&format!("{key}[{index}].until")));
            let is_in = |ip| entry.network.contains(&ip);
            let own = denies && (is_in(address.ip()) || is_in(address.counted_ip()));
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
    if errors.is_empty() { Ok(draft.in_force(now)) } else { Err(errors) }
}

fn has_ended(field: &str) -> DraftError {
    DraftError::at(field, "has passed; choose a time that is still to come".to_owned(), None)
}

fn refuses_you(field: &str) -> DraftError {
    const MESSAGE: &str = "contains the address that you save from, so that you would refuse yourself; name a smaller network, or save from elsewhere";
    DraftError::at(field, MESSAGE.to_owned(), None)
}

/// Writes the keys that do not stay. Comments and everything else stay.
pub(super) fn write(
    document: &mut DocumentMut,
    wanted: &AccessSettings,
    stays: &dyn Fn(&str) -> bool,
) -> Result<(), String> {
    let keys: Vec<_> = KEYS.into_iter().filter(|key| !stays(key)).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let table = table(document, "access")?;
    for key in keys {
        let value = match wanted.value(key) {
            Some(value) => value,
            None if !table.contains_key(key) => continue,
            None if key.ends_with("_until") => "".into(),
            None => Array::new().into(),
        };
        set(table, key, value);
    }
    Ok(())
}

/// Writes `[factors]`.
pub(super) fn write_factors(
    document: &mut DocumentMut,
    wanted: &FactorSettings,
    stays: &dyn Fn(&str) -> bool,
) -> Result<(), String> {
    let keys: Vec<_> = FactorSettings::KEYS.iter().copied().filter(|key| !stays(key)).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let table = table(document, FactorSettings::NAME)?;
    keys.into_iter().for_each(|key| set(table, key, wanted.value(key)));
    Ok(())
}

/// With the comments of the value before.
fn set(table: &mut dyn TableLike, key: &str, value: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            let decor = old.decor().clone();
            *old = value;
            *old.decor_mut() = decor;
        }
        None => drop(table.insert(key, Item::Value(value))),
    }
}

/// The table of the document; a new one is written after everything else.
fn table<'d>(document: &'d mut DocumentMut, name: &str) -> Result<&'d mut dyn TableLike, String> {
    match document.get_mut(name) {
        // [[access.deny]] without [access] has no header to write keys under.
        Some(Item::Table(table)) if !table.is_dotted() => table.set_implicit(false),
        Some(_) => {}
        None => {
            let mut table = Table::new();
            table.decor_mut().set_prefix("\n");
            document.insert(name, Item::Table(table));
            splice::set_end_apart(document);
        }
    }
    let table = document.get_mut(name).and_then(Item::as_table_like_mut);
    table.ok_or_else(|| format!("{name} in this document is not a table; write it as [{name}]"))
}
