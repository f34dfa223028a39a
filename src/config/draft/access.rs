//! A draft of `[access]`: what its author may not do, and how it is written into a document.

use gatehouse_limiter::middleware::ClientAddress;
use toml_edit::{Array, DocumentMut};

use super::{DraftError, splice};
use crate::clock::Micros;
use crate::config::access::{AccessNetwork, AccessSettings, KEYS};
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
    current: &AccessSettings,
    saver: &AccessSaver,
) -> Result<AccessSettings, Vec<DraftError>> {
    let AccessSaver { address, now } = *saver;
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
