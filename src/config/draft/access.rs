//! A draft of `[access]`: what its author may not do, and how it is written into a document.

use gatehouse_limiter::middleware::ClientAddress;
use toml_edit::{Array, DocumentMut};

use super::{DraftError, EditBase, splice};
use crate::clock::Micros;
use crate::config::access::{AccessSettings, DeniedSubject, KEYS};
use crate::config::live_section::LiveSection;

/// Where the author of a new `[access]` is, and when it is saved.
#[derive(Debug, Clone, Copy)]
pub struct AccessSaver {
    pub address: ClientAddress,
    pub now: Micros,
}

/// The draft without what has ended. What was there before may have ended, and is then dropped; what is new must end
/// later, and must not refuse its author.
pub(super) fn kept(
    draft: &AccessSettings,
    base: &EditBase<'_>,
    saver: &AccessSaver,
) -> Result<AccessSettings, Vec<DraftError>> {
    let AccessSaver { address, now } = *saver;
    let (current, origins) = (base.access, base.origins.in_use());
    let mut errors = Vec::new();
    let is_own = |subject: &DeniedSubject| {
        [address.ip(), address.counted_ip()].into_iter().any(|ip| match subject {
            DeniedSubject::Network(network) => network.contains(&ip),
            DeniedSubject::Origin(key) => origins.of_address(ip).any(|origin| origin == *key),
        })
    };
    let denied = draft.deny.iter().enumerate().filter(|(_, entry)| !current.deny.contains(entry));
    for (index, entry) in denied {
        if entry.until <= now {
            errors.push(has_ended(&format!("deny[{index}].until")));
        }
        if is_own(&entry.subject) {
            errors.push(refuses_you(&format!("deny[{index}].{}", entry.subject.key())));
        }
    }
    let allowed = draft.allow.iter().enumerate().filter(|(_, entry)| !current.allow.contains(entry));
    let ended = allowed.filter(|(_, entry)| entry.until <= now);
    errors.extend(ended.map(|(index, _)| has_ended(&format!("allow[{index}].until"))));
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
    let table = splice::table(document, LiveSection::Access)?;
    for key in keys {
        let value = match wanted.value(key) {
            Some(value) => value,
            None if !table.contains_key(key) => continue,
            None if key.ends_with("_until") => "".into(),
            None => Array::new().into(),
        };
        splice::set(table, key, value);
    }
    Ok(())
}
