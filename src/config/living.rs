//! The live part of a document: the contents of a backend other than the file, which apply over the rest of
//! the file.

use toml_edit::DocumentMut;

use super::captcha::CaptchaTunables;
use super::document::{ConfigTable, ConfigValue, TableEntry, ValueNode};
use super::error::{ConfigError, ConfigProblem};
use super::login::LoginTunables;
use super::reader::{ProblemList, SectionTable};
use super::sms::SmsTunables;

/// Sections with their live keys; all keys if none are listed.
pub(super) const LIVE: [(&str, &[&str]); 6] = [
    ("limits", &[]),
    ("access", &[]),
    ("apps", &[]),
    (LoginTunables::NAME, &[]),
    (CaptchaTunables::NAME, CaptchaTunables::KEYS),
    (SmsTunables::NAME, SmsTunables::KEYS),
];

fn live_keys(section: &str) -> Option<&'static [&'static str]> {
    LIVE.iter().find(|(name, _)| *name == section).map(|(_, keys)| *keys)
}

/// The file without its live part.
pub(super) fn rest(mut file: ConfigTable) -> ConfigTable {
    for (section, keys) in LIVE {
        if keys.is_empty() {
            file.remove(section);
        } else if let Some(TableEntry { node: ValueNode { value: ConfigValue::Table(table), .. }, .. }) =
            file.get_mut(section)
        {
            table.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }
    file
}

/// A live document over the rest of the file; refused if it contains settings that are not live.
pub(super) fn over(rest: &ConfigTable, document: ConfigTable) -> Result<ConfigTable, ConfigError> {
    let mut root = rest.clone();
    let problems = ProblemList::default();
    for (section, entry) in document.into_iter().take_while(|_| !problems.is_full()) {
        let Some(keys) = live_keys(&section) else {
            problems.push(foreign(&entry, section));
            continue;
        };
        let value = match entry.node.value {
            ConfigValue::Table(table) if !keys.is_empty() => table,
            value => {
                root.insert(section, TableEntry { node: ValueNode { value, ..entry.node }, ..entry });
                continue;
            }
        };
        let place = entry.node.place.clone();
        let fresh = TableEntry {
            key: entry.key,
            node: ValueNode { value: ConfigValue::Table(ConfigTable::new()), place },
        };
        let ConfigValue::Table(into) = &mut root.entry(section.clone()).or_insert(fresh).node.value else {
            continue;
        };
        for (key, inner) in value.into_iter().take_while(|_| !problems.is_full()) {
            if keys.contains(&key.as_str()) {
                into.insert(key, inner);
            } else {
                problems.push(foreign(&inner, format!("{section}.{key}")));
            }
        }
    }
    problems.into_result(root)
}

fn foreign(entry: &TableEntry, field: String) -> ConfigProblem {
    let reason =
        format!("is not live; set it in the configuration file. Allowed here: {}", live_names().join(", "));
    ConfigProblem { place: entry.key.clone(), field, reason }
}

/// The live settings as an owner writes them: `[limits]`, `captcha.ttl`.
pub(super) fn live_names() -> Vec<String> {
    let names = LIVE.iter().flat_map(|(section, keys)| {
        let whole = keys.is_empty().then(|| format!("[{section}]"));
        whole.into_iter().chain(keys.iter().map(move |key| format!("{section}.{key}")))
    });
    names.collect()
}

/// The live part of a configuration file, with its comments, with which an empty backend is filled.
pub(super) fn seed(file: &str) -> String {
    let Ok(mut document) = file.parse::<DocumentMut>() else { return String::new() };
    document.retain(|section, item| match live_keys(section) {
        None => false,
        Some([]) => true,
        Some(keys) => item.as_table_like_mut().is_some_and(|table| {
            let gone: Vec<String> = table
                .iter()
                .map(|(key, _)| key.to_owned())
                .filter(|key| !keys.contains(&key.as_str()))
                .collect();
            for key in gone {
                table.remove(&key);
            }
            !table.is_empty()
        }),
    });
    let text = document.to_string();
    match text.trim_start_matches('\n') {
        "" => NOTHING_SET.to_owned(),
        text => text.to_owned(),
    }
}

/// A document that sets nothing: an empty one may be one that is being written.
pub(super) const NOTHING_SET: &str = "# Nothing is set here: every setting has its default.\n";
