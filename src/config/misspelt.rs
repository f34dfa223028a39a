//! Environment variables that would set something if they were spelt in another way: without this they would set nothing,
//! and nobody would notice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use super::document::{self, ConfigTable, ConfigValue, Environment, LEAD, PREFIX, ValueNode, may_be_ours};
use super::error::{ConfigLocation, ConfigProblem};

const EXAMPLE: &str = include_str!("../../gatehouse.example.toml");

/// The example with all of its commented-out settings: every key that there is.
pub(super) fn whole_example() -> String {
    let setting = |line: &'static str| {
        line.strip_prefix('#').filter(|rest| rest.starts_with(char::is_alphabetic) || rest.starts_with('['))
    };
    EXAMPLE.lines().map(|line| format!("{}\n", setting(line).unwrap_or(line))).collect()
}

/// The variables without those that have to be spelt in another way, which are problems.
pub(super) fn told_apart(
    root: &ConfigTable,
    environment: &[(String, String)],
    problems: &mut Vec<ConfigProblem>,
) -> Environment {
    let named = named_variables(root, environment);
    let mut is_right = |(name, value): &(String, String)| match right_name(name, value, &named) {
        None => true,
        Some(right) => {
            problems.push(misspelling(name, &right));
            false
        }
    };
    environment.iter().filter(|pair| is_right(pair)).cloned().collect()
}

fn misspelling(name: &str, right: &str) -> ConfigProblem {
    let reason = match name.to_uppercase() == right {
        true => format!("must be written in capitals: {right}"),
        false => format!("sets nothing; write {right}, or choose another name if it is for something else"),
    };
    let field = document::keys_of(right).unwrap_or_default().join(".");
    ConfigProblem { place: ConfigLocation::Variable(Arc::from(name)), field, reason }
}

/// Settings by their names with one underscore between all parts.
struct KnownNames {
    sections: BTreeSet<String>,
    tables: BTreeMap<String, String>,
    values: BTreeMap<String, String>,
}

static KNOWN: LazyLock<KnownNames> = LazyLock::new(|| {
    let mut known =
        KnownNames { sections: BTreeSet::new(), tables: BTreeMap::new(), values: BTreeMap::new() };
    if let Ok(root) = document::parse(Path::new("gatehouse.example.toml"), &whole_example()) {
        known.sections = root.keys().map(|section| section.to_uppercase()).collect();
        known.add(&root, PREFIX.trim_end_matches('_'));
    }
    known
});

impl KnownNames {
    fn add(&mut self, table: &ConfigTable, above: &str) {
        for (key, entry) in table {
            let name = format!("{above}__{}", key.to_uppercase().replace('-', "_"));
            let names = if entry.table().is_some() { &mut self.tables } else { &mut self.values };
            names.insert(collapsed(&name), name.clone());
            if let Some(inner) = entry.table() {
                self.add(inner, &name);
            }
        }
    }
}

fn collapsed(name: &str) -> String {
    let parts = name.split('_').filter(|part| !part.is_empty());
    parts.map(str::to_uppercase).collect::<Vec<_>>().join("_")
}

/// The right name of a setting, if this is another spelling of it. A name that the document uses behind `env:` is its
/// owner's.
fn right_name(name: &str, value: &str, named: &BTreeSet<String>) -> Option<String> {
    if !may_be_ours(name) || named.contains(name) {
        return None;
    }
    let one = collapsed(name);
    // Only then can it set a whole table.
    let table = || KNOWN.tables.get(&one).filter(|_| value.trim_start().starts_with('{'));
    let known = KNOWN.values.get(&one).or_else(table);
    let right = match known {
        Some(right) => right.clone(),
        // Two underscores are nobody else's, even where the key is one that its owner chooses, or mistyped.
        None => {
            let rest = name.get(LEAD.len()..)?.trim_start_matches('_').to_uppercase();
            let (section, _) = rest.split_once("__")?;
            KNOWN.sections.contains(section).then(|| format!("{PREFIX}{rest}"))?
        }
    };
    (right != name).then_some(right)
}

/// The variables that texts of the document name: `env:NAME`, also inside a template.
fn named_variables(root: &ConfigTable, environment: &[(String, String)]) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    root.values().for_each(|entry| add_named(&entry.node, &mut named));
    environment.iter().for_each(|(_, value)| add_named_in(value, &mut named));
    named
}

fn add_named(node: &ValueNode, named: &mut BTreeSet<String>) {
    match &node.value {
        ConfigValue::Text(text) | ConfigValue::Raw(text) => add_named_in(text, named),
        ConfigValue::Array(items) => items.iter().for_each(|item| add_named(item, named)),
        ConfigValue::Table(table) => table.values().for_each(|entry| add_named(&entry.node, named)),
        _ => {}
    }
}

fn add_named_in(text: &str, named: &mut BTreeSet<String>) {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    for rest in text.split("env:").skip(1) {
        let end = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        named.insert(rest[..end].to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(name: &str) -> Option<String> {
        right_name(name, "x", &BTreeSet::new())
    }

    #[test]
    fn every_spelling_of_a_setting_is_told_the_right_one() {
        for name in [
            "GATEHOUSE_SERVER__BIND",
            "GATEHOUSE_SERVER_BIND",
            "GATEHOUSE__SERVER_BIND",
            "GATEHOUSE___SERVER__BIND",
            "GATEHOUSE__server__bind",
            "gatehouse__server__bind",
            "gatehouse_server_bind",
            "Gatehouse__Server__Bind",
        ] {
            assert_eq!(right(name).as_deref(), Some("GATEHOUSE__SERVER__BIND"), "{name}");
        }
        for (name, wanted) in [
            ("GATEHOUSE_SERVER_PUBLIC_URL", "GATEHOUSE__SERVER__PUBLIC_URL"),
            ("GATEHOUSE__SERVER__PUBLIC__URL", "GATEHOUSE__SERVER__PUBLIC_URL"),
            ("GATEHOUSE_LIMITS__CUSTOM__MINE__RULES", "GATEHOUSE__LIMITS__CUSTOM__MINE__RULES"),
            ("gatehouse__limits__login_account__rules", "GATEHOUSE__LIMITS__LOGIN_ACCOUNT__RULES"),
            ("GATEHOUSE_SERVER__BIMD", "GATEHOUSE__SERVER__BIMD"),
        ] {
            assert_eq!(right(name).as_deref(), Some(wanted), "{name}");
        }
        let whole = right_name("GATEHOUSE_SESSION", "{ idle = '1h' }", &BTreeSet::new());
        assert_eq!(whole.as_deref(), Some("GATEHOUSE__SESSION"));
    }

    #[test]
    fn what_others_set_is_left_alone() {
        for name in [
            "GATEHOUSE__SERVER__BIND",
            "GATEHOUSE__SMS__GATEWAY",
            "GATEHOUSE__SESSION",
            "GATEHOUSE__SERVER__BIMD",
            "GATEHOUSE__LIMITS__CUSTOM__MINE__RULES",
            "GATEHOUSE",
            "GATEHOUSE_",
            "GATEHOUSE_SERVER",
            "GATEHOUSE_PORT",
            "GATEHOUSE_PORT_8080_TCP",
            "GATEHOUSE_PORT_8080_TCP_ADDR",
            "GATEHOUSE_PORT_8080_TCP_PROTO",
            "GATEHOUSE_SERVICE_HOST",
            "GATEHOUSE_SERVICE_PORT",
            "GATEHOUSE_SERVICE_PORT_HTTP",
            "GATEHOUSE_SERVER_SERVICE_HOST",
            "GATEHOUSE_STORE_PORT_6379_TCP",
            "GATEHOUSE_DATABASE_PORT",
            "GATEHOUSE_PUBLIC_URL",
            "GATEHOUSE_WEBHOOK_SECRET",
            "GATEHOUSE_ADMIN_TOKEN",
            "GATEHOUSEKEEPER__SERVER__BIND",
            "MY_GATEHOUSE__SERVER__BIND",
            "SERVER__BIND",
            "GÄTEHOUSE__SERVER__BIND",
        ] {
            assert_eq!(right(name), None, "{name}");
        }
        let root =
            document::parse(Path::new("x"), "a = 'env:GATEHOUSE_DATABASE_URL'\nb = ['{env:gatehouse_b}&x']");
        let named =
            named_variables(&root.unwrap(), &[("X".to_owned(), "env:GATEHOUSE_STORE_URL".to_owned())]);
        for name in ["GATEHOUSE_DATABASE_URL", "gatehouse_b", "GATEHOUSE_STORE_URL"] {
            assert!(named.contains(name) && right_name(name, "x", &named).is_none(), "{name}");
        }
        assert!(right("GATEHOUSE_DATABASE_URL").is_some());
    }

    /// Otherwise one spelling could be meant for two.
    #[test]
    fn no_two_settings_are_the_same_with_one_underscore() {
        let mut seen = BTreeSet::new();
        let root = document::parse(Path::new("x"), &whole_example()).unwrap();
        let mut tables = vec![(String::new(), root)];
        while let Some((above, table)) = tables.pop() {
            for (key, entry) in table {
                let name = format!("{above}_{}", key.replace('-', "_"));
                assert!(seen.insert(name.clone()), "{name}");
                if let ConfigValue::Table(inner) = entry.node.value {
                    tables.push((name, inner));
                }
            }
        }
        assert!(seen.len() > 100);
    }
}
