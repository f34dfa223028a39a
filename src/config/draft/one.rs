//! One limit of a draft, put in the place of the one that stands there.

use toml_edit::{DocumentMut, Item, Table};

use super::DraftError;

/// The draft `toml` with the limit `name` (`login-account`, `custom.reply`) as `table` has it, a document of
/// that one table. Everything else, comments too, stays as it is; so does the place of the limit.
pub fn with_limit(toml: &str, name: &str, table: &str) -> Result<String, DraftError> {
    let mut document = parse(toml)?;
    let mut drafted = parse(table)?;
    let path: Vec<&str> = std::iter::once("limits").chain(name.splitn(2, '.')).collect();
    let Some(new) = take(drafted.as_table_mut(), &path) else { return Ok(toml.to_owned()) };
    put(document.as_table_mut(), &path, new);
    Ok(document.to_string())
}

fn parse(text: &str) -> Result<DocumentMut, DraftError> {
    text.parse().map_err(|error: toml_edit::TomlError| DraftError {
        field: String::new(),
        message: format!("is not TOML: {}", error.message()),
        line: None,
    })
}

fn take(table: &mut Table, path: &[&str]) -> Option<Table> {
    let (first, rest) = path.split_first()?;
    if rest.is_empty() {
        return table.remove(first)?.into_table().ok();
    }
    take(table.get_mut(first)?.as_table_mut()?, rest)
}

fn put(table: &mut Table, path: &[&str], new: Table) {
    let Some((first, rest)) = path.split_first() else { return };
    if !rest.is_empty() {
        let inner = table.entry(first).or_insert_with(|| {
            let mut outer = Table::new();
            outer.set_implicit(true);
            Item::Table(outer)
        });
        if let Some(inner) = as_table(inner) {
            put(inner, rest, new);
        }
        return;
    }
    // What stands there keeps its place and its comments: only what it says is replaced.
    match table.get_mut(first).and_then(as_table) {
        Some(stands) => {
            if !new.contains_key("mode") {
                stands.remove("mode");
            }
            for (key, value) in new {
                match stands.get_mut(&key) {
                    Some(old) => *old = value,
                    None => drop(stands.insert(&key, value)),
                }
            }
        }
        None => {
            let mut new = new;
            new.set_position(None);
            new.decor_mut().set_prefix("\n");
            table.insert(first, Item::Table(new));
        }
    }
}

/// Also where it is written as `{ … }`.
fn as_table(item: &mut Item) -> Option<&mut Table> {
    if item.is_inline_table() {
        let inline = std::mem::take(item);
        *item = inline.into_table().map_or_else(|same| same, Item::Table);
    }
    item.as_table_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "[limits.login-account]\nmode = \"monitor\"\nrules = []\n";

    #[test]
    fn only_that_limit_changes_and_comments_stay() {
        let toml = "# ours\n[limits.sms-phone]\nrules = []\n\n# careful\n[limits.login-account]\nrules = [{ max = 3, window = \"1m\" }]\n\n[limits.sms-total]\nrules = [] # none\n";
        let changed = with_limit(toml, "login-account", NEW).unwrap();
        let expected = "# ours\n[limits.sms-phone]\nrules = []\n\n# careful\n[limits.login-account]\nrules = []\nmode = \"monitor\"\n\n[limits.sms-total]\nrules = [] # none\n";
        assert_eq!(changed, expected);
    }

    #[test]
    fn one_that_did_not_stand_there_is_added() {
        let changed = with_limit("", "login-account", NEW).unwrap();
        assert_eq!(changed.trim_start(), NEW);
        let own = "[limits.custom.reply]\nrules = []\n";
        let changed = with_limit("[limits.sms-total]\nrules = []\n", "custom.reply", own).unwrap();
        assert_eq!(changed, format!("[limits.sms-total]\nrules = []\n\n{own}"));
    }

    #[test]
    fn a_mode_that_is_not_asked_for_any_more_goes() {
        let enforced = "[limits.login-account]\nrules = []\n";
        assert_eq!(with_limit(NEW, "login-account", enforced).unwrap(), enforced);
    }

    #[test]
    fn a_limit_written_in_one_line_is_replaced_too() {
        let toml = "limits.login-account = { rules = [], mode = \"enforce\" }\n";
        let changed: DocumentMut = with_limit(toml, "login-account", NEW).unwrap().parse().unwrap();
        assert_eq!(changed["limits"]["login-account"]["mode"].as_str(), Some("monitor"));
    }
}
