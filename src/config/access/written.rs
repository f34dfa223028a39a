//! Writes `[access]` for the document, for the history and for the API.

use jiff::Timestamp;
use serde_json::{Value as Json, json};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value};

use super::{AccessNetwork, AccessSettings, KEYS, SmsPause};
use crate::clock::Micros;

/// RFC 3339 in UTC, as exact as it is.
pub fn moment_text(at: Micros) -> String {
    Timestamp::from_microsecond(at.0).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

impl AccessNetwork {
    /// As it stands in a line of [`AccessSettings::toml`].
    pub fn line(&self) -> String {
        line(&self.network.to_string(), "network", self.until, &self.reason).to_string()
    }

    pub fn json(&self) -> Json {
        let network = self.network.to_string();
        json!({ "network": network, "until": moment_text(self.until), "reason": self.reason })
    }
}

impl SmsPause {
    /// As it stands in a line of [`AccessSettings::toml`].
    pub fn line(&self) -> String {
        line(&self.prefix, "prefix", self.until, &self.reason).to_string()
    }

    pub fn json(&self) -> Json {
        json!({ "prefix": self.prefix, "until": moment_text(self.until), "reason": self.reason })
    }
}

impl AccessSettings {
    /// The section alone; empty if nothing is set.
    pub fn toml(&self) -> String {
        let mut table = Table::new();
        for key in KEYS {
            if let Some(value) = self.value(key) {
                table.insert(key, Item::Value(value));
            }
        }
        if table.is_empty() {
            return String::new();
        }
        let mut document = DocumentMut::new();
        document.insert("access", Item::Table(table));
        document.to_string()
    }

    /// As the API takes and answers it.
    pub fn json(&self) -> Json {
        let networks = |all: &[AccessNetwork]| all.iter().map(AccessNetwork::json).collect::<Vec<_>>();
        json!({
            "deny": networks(&self.deny),
            "allow": networks(&self.allow),
            "challenge_everyone_until": self.challenge_everyone_until.map(moment_text).unwrap_or_default(),
            "pause_sms": self.pause_sms.iter().map(SmsPause::json).collect::<Vec<_>>(),
        })
    }

    /// What a key of the section is set to; None if to nothing.
    pub(in crate::config) fn value(&self, key: &str) -> Option<Value> {
        let networks = |all: &[AccessNetwork]| {
            let line = |it: &AccessNetwork| line(&it.network.to_string(), "network", it.until, &it.reason);
            list(all.iter().map(line))
        };
        match key {
            "deny" => networks(&self.deny),
            "allow" => networks(&self.allow),
            "pause_sms" => {
                list(self.pause_sms.iter().map(|it| line(&it.prefix, "prefix", it.until, &it.reason)))
            }
            _ => self.challenge_everyone_until.map(|until| moment_text(until).into()),
        }
    }
}

fn line(of: &str, key: &str, until: Micros, reason: &str) -> InlineTable {
    let mut table = InlineTable::new();
    table.insert(key, of.into());
    table.insert("until", moment_text(until).into());
    table.insert("reason", reason.into());
    table
}

/// An entry a line.
fn list(entries: impl Iterator<Item = InlineTable>) -> Option<Value> {
    let mut list: Array = entries.collect();
    list.iter_mut().for_each(|entry| entry.decor_mut().set_prefix("\n    "));
    list.set_trailing_comma(true);
    list.set_trailing("\n");
    (!list.is_empty()).then(|| list.into())
}
