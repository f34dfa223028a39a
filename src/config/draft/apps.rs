//! How a draft of `[[apps]]` is written into a document.

use toml_edit::{DocumentMut, Item};

use super::{APPS, splice};

/// Replaces the applications of a document by those of the draft, in the place of the first. Everything else stays.
pub(super) fn write(document: &mut DocumentMut, draft: &DocumentMut) {
    let fresh = !document.contains_key(APPS);
    splice::put_end(document, draft, APPS);
    let above_key = text_above(document);
    let old = match document.get_mut(APPS) {
        Some(old @ Item::Value(_)) => match draft.get(APPS) {
            Some(new @ Item::Value(_)) => {
                *old = new.clone();
                return;
            }
            _ => OldApps::default(),
        },
        Some(old) => OldApps::of(old),
        None => OldApps::default(),
    };
    document.remove(APPS);
    splice::keep_hidden(document, &above_key, None);
    let mut new = draft.get(APPS).cloned();
    match &mut new {
        Some(tables) if !tables.is_value() => {
            let position =
                old.position.or_else(|| splice::last_position(document.as_item()).map(|last| last + 1));
            let lead = if document.iter().next().is_none() { "" } else { "\n" };
            old.carry_into(tables, position.or(Some(0)), lead);
        }
        Some(_) | None => splice::keep_hidden(document, &old.all_hidden(), old.position),
    }
    if let Some(new) = new {
        document.insert(APPS, new);
        if fresh {
            splice::set_end_apart(document);
        }
    }
}

/// The applications of a document that are replaced: where they were, and the text above them that is not theirs.
#[derive(Default)]
struct OldApps {
    position: Option<isize>,
    /// Comments that are not the applications' own (see splice.rs): not shown, and kept. By the name of the application
    /// that they are above.
    hidden: Vec<(Option<String>, String)>,
}

impl OldApps {
    fn of(item: &mut Item) -> Self {
        let mut old = Self::default();
        let tables = match item {
            Item::ArrayOfTables(tables) => tables.iter_mut().collect(),
            Item::Table(table) => vec![table],
            Item::None | Item::Value(_) => Vec::new(),
        };
        for table in tables {
            old.position = old.position.into_iter().chain(table.position()).min();
            let mut hidden = String::new();
            let mut app = Item::Table(table.clone());
            splice::headers(&mut app, &mut |table| {
                let above = splice::above(table).0;
                if !above.trim().is_empty() {
                    hidden += above.trim_start_matches('\n');
                }
            });
            old.hidden.push((splice::text_at(table, "name").map(str::to_owned), hidden));
        }
        old
    }

    fn all_hidden(&self) -> String {
        self.hidden.iter().map(|(_, hidden)| hidden.as_str()).collect()
    }

    /// Puts the draft's tables at one position, where they keep their order. Each hidden text is above the application
    /// that has the name of the one that it was above, or above all.
    fn carry_into(mut self, new: &mut Item, position: Option<isize>, lead: &str) {
        splice::headers(new, &mut |table| table.set_position(position));
        let Item::ArrayOfTables(tables) = new else { return };
        for table in tables.iter_mut().skip(1) {
            let name = splice::text_at(table, "name");
            let same =
                |(old, hidden): &&mut (Option<String>, String)| old.as_deref() == name && !hidden.is_empty();
            let Some((_, hidden)) = self.hidden.iter_mut().find(same) else { continue };
            let hidden = std::mem::take(hidden);
            let prefix = format!("\n{hidden}{}", splice::before(table.decor()).trim_start_matches('\n'));
            table.decor_mut().set_prefix(prefix);
        }
        if let Some(first) = tables.iter_mut().next() {
            let own = splice::before(first.decor()).trim_start_matches('\n');
            let prefix = format!("{lead}{}{own}", self.all_hidden());
            first.decor_mut().set_prefix(prefix);
        }
    }
}

/// The text above `apps = […]`, which is not shown; there is none above tables. It ends with an empty line, so that it
/// does not become a comment of what follows.
fn text_above(document: &DocumentMut) -> String {
    let Some((key, Item::Value(_))) = document.get_key_value(APPS) else { return String::new() };
    let above = splice::before(key.leaf_decor());
    if above.trim().is_empty() { String::new() } else { format!("{}\n\n", above.trim_matches('\n')) }
}
