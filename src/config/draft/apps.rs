//! A draft of `[[apps]]`: read as strictly as the document itself, and written into it.

use toml_edit::{DocumentMut, Item, Table};
use url::Url;

use super::{
    DocumentDraft, DraftError, DraftRefusal, Overridden, SET_BY_VARIABLE, TheirDocument, cannot_write,
    draft_errors, edited, judged, not_ours, splice,
};
use crate::config::apps::{self, Apps};
use crate::config::document::ConfigTable;
use crate::config::reader::{self, ProblemList};
use crate::config::settings::Config;

const KEY: &str = "apps";

/// Valid `[[apps]]`, as an administrator wants them. They may still conflict with the document that they are written
/// into.
#[derive(Debug, Clone)]
pub struct AppsEdit {
    pub(super) apps: Apps,
    /// As its author wrote it; of a draft in JSON, what it says.
    toml: DocumentMut,
    from_json: bool,
}

impl AppsEdit {
    /// Reads applications and nothing else; returns all of their problems. No application can have the host of
    /// `public_url`.
    pub(in crate::config) fn read(
        draft: DocumentDraft<'_>,
        public_url: &Url,
    ) -> Result<Self, Vec<DraftError>> {
        let (apps, problems) = read(draft.tree(KEY)?, public_url);
        let apps = problems.into_result(apps).map_err(|error| draft_errors(&error))?;
        Ok(Self { apps, toml: draft.toml(KEY)?, from_json: matches!(draft, DocumentDraft::Json(_)) })
    }

    pub(super) fn toml(&self) -> String {
        self.toml.to_string()
    }

    /// The document with this draft in it, and what is in force with that. Everything else stays.
    pub(super) fn put_into(&self, theirs: &TheirDocument<'_>) -> Result<(String, Config), DraftRefusal> {
        let text = theirs.text;
        if Overridden::by(theirs.source.environment()).apps {
            return Ok((text.to_owned(), self.overridden_by(theirs)?));
        }
        // JSON has no comments: if it says what the document says, these stay.
        if self.from_json
            && theirs.known.is_none_or(|live| live.apps == self.apps)
            && let Ok(config) = theirs.read()?
            && config.live.apps == self.apps
        {
            return Ok((text.to_owned(), config));
        }
        let merged = if !self.from_json && splice::apps_toml(text) == self.toml() {
            text.to_owned()
        } else {
            edited(text, |document| self.write(document))?
        };
        let config = judged(theirs, &merged, KEY)?;
        if config.live.apps == self.apps {
            Ok((merged, config))
        } else {
            Err(cannot_write(" without changing its meaning; write it as [[apps]] tables"))
        }
    }

    /// What a variable sets cannot be changed; a draft may be as it is shown, or as it is in force.
    fn overridden_by(&self, theirs: &TheirDocument<'_>) -> Result<Config, DraftRefusal> {
        let config = theirs.read()?.map_err(|error| not_ours(theirs.source, &error))?;
        let alone = theirs.tree()?.get(KEY).map(|entry| (KEY.to_owned(), entry.clone()));
        let (stands, _) = read(alone.into_iter().collect(), &config.settings.server.public_url);
        if self.apps == config.live.apps || self.apps == stands {
            return Ok(config);
        }
        Err(DraftRefusal::Invalid(vec![DraftError::at(KEY, SET_BY_VARIABLE.to_owned(), None)]))
    }

    /// Replaces the applications of a document by those of the draft, in the place of the first.
    fn write(&self, document: &mut DocumentMut) -> Result<(), String> {
        let fresh = !document.contains_key(KEY);
        splice::put_end(document, &self.toml, KEY);
        let above_key = text_above(document);
        let old = match document.get_mut(KEY) {
            Some(old @ Item::Value(_)) => match self.toml.get(KEY) {
                Some(new @ Item::Value(_)) => {
                    *old = new.clone();
                    return Ok(());
                }
                _ => OldApps::default(),
            },
            Some(old) => OldApps::of(old),
            None => OldApps::default(),
        };
        document.remove(KEY);
        splice::keep_hidden(document, &above_key, None);
        let mut new = self.toml.get(KEY).cloned();
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
            document.insert(KEY, new);
            if fresh {
                splice::set_end_apart(document);
            }
        }
        Ok(())
    }
}

/// The applications of a document that are replaced: where they were, and the text above them that is not theirs.
#[derive(Default)]
struct OldApps {
    position: Option<isize>,
    /// Comments that are not the applications' own (see view.rs): not shown, and kept. By the name of the application
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
            old.hidden.push((name_of(table), hidden));
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
            let name = name_of(table);
            let same = |(old, hidden): &&mut (Option<String>, String)| *old == name && !hidden.is_empty();
            let Some((_, hidden)) = self.hidden.iter_mut().find(same) else { continue };
            let hidden = std::mem::take(hidden);
            let prefix = format!("\n{hidden}{}", splice::above_all(table).trim_start_matches('\n'));
            table.decor_mut().set_prefix(prefix);
        }
        if let Some(first) = tables.iter_mut().next() {
            let own = splice::above_all(first).trim_start_matches('\n');
            let prefix = format!("{lead}{}{own}", self.all_hidden());
            first.decor_mut().set_prefix(prefix);
        }
    }
}

fn name_of(table: &Table) -> Option<String> {
    table.get("name").and_then(Item::as_str).map(str::to_owned)
}

/// The text above `apps = […]`, which is not shown; there is none above tables. It ends with an empty line, so that it
/// does not become a comment of what follows.
fn text_above(document: &DocumentMut) -> String {
    let Some((key, Item::Value(_))) = document.get_key_value(KEY) else { return String::new() };
    let above = key.leaf_decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    if above.trim().is_empty() { String::new() } else { format!("{}\n\n", above.trim_matches('\n')) }
}

fn read(root: ConfigTable, public_url: &Url) -> (Apps, ProblemList) {
    let problems = ProblemList::default();
    let apps = reader::read(root, &problems, |root| apps::read(root, public_url));
    (apps, problems)
}
