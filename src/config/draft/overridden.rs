//! Limits set by environment variables, which the document cannot change.

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

pub(super) fn covers(overridden: &[String], name: &str) -> bool {
    overridden.iter().any(|pattern| match pattern.as_str() {
        "*" => true,
        "custom.*" => name.starts_with("custom."),
        exact => exact == name,
    })
}
