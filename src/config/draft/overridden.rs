//! Limits, `[access]` and `[[apps]]` set by environment variables, which the document cannot change.

use crate::config::access::KEYS;
use crate::config::environment;

/// Their full names; `*` means all limits, and `custom.*` all custom limits.
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

/// The keys of `[access]` that variables set.
pub(in crate::config) fn overridden_access(variables: &[(String, String)]) -> Vec<&'static str> {
    let set = |wanted: &str| {
        variables.iter().filter_map(|(name, _)| environment::keys_of(name)).any(|keys| {
            match keys.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["access"] => true,
                ["access", key, ..] => key == wanted,
                _ => false,
            }
        })
    };
    KEYS.into_iter().filter(|key| set(key)).collect()
}

/// Whether a variable sets `[[apps]]`.
pub(in crate::config) fn overridden_apps(variables: &[(String, String)]) -> bool {
    let mut keys = variables.iter().filter_map(|(name, _)| environment::keys_of(name));
    keys.any(|keys| keys.first().is_some_and(|first| first == "apps"))
}

pub(super) fn covers(overridden: &[String], name: &str) -> bool {
    overridden.iter().any(|pattern| match pattern.as_str() {
        "*" => true,
        "custom.*" => name.starts_with("custom."),
        exact => exact == name,
    })
}
