//! The administrators' console.

pub mod access;
pub mod accounts;
pub mod apps;
pub mod attack;
pub mod chart;
pub mod confirm;
pub mod document;
pub mod events;
pub mod figures;
pub mod guard;
pub mod limit_text;
pub mod limits;
pub mod lookup;
pub mod messages;
pub mod overview;
pub mod subject_link;
pub mod tokens;

use crate::clock::Micros;
use crate::web::http::{Layout, Moment, Problem};

/// The longest reason of a change, in characters: a sentence or two.
pub const LONGEST_REASON: usize = 500;

/// One option of a filter.
pub struct Choice {
    pub value: &'static str,
    /// The locale key of its name.
    pub key: &'static str,
    pub chosen: bool,
}

impl Choice {
    const fn new(value: &'static str, key: &'static str, chosen: bool) -> Self {
        Self { value, key, chosen }
    }
}

/// For templates, which show a moment in several forms.
pub const fn moment(at: &Micros) -> Moment {
    Moment(*at)
}

/// What stands in a filter of a call; empty is not there.
fn read_filter<T>(
    text: Option<&str>,
    field: &'static str,
    help: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    match text.filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => parse(text).map(Some).ok_or_else(|| Problem::wrong(field, help)),
    }
}

/// Where a page of a list begins.
fn read_after<T>(text: Option<&str>, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Problem> {
    read_filter(text, "after", "Use the value of next from the previous page.", parse)
}

/// The entries on a page of a list: 50 where nothing else is asked for.
fn read_page_size(limit: Option<u32>) -> Result<u32, Problem> {
    let limit = limit.unwrap_or(50);
    if (1..=200).contains(&limit) { Ok(limit) } else { Err(Problem::wrong("limit", "Use 1 to 200.")) }
}

/// One page of the console, for its navigation.
pub struct Tab {
    pub key: &'static str,
    pub href: &'static str,
    pub current: bool,
}

const TABS: [(&str, &str); 9] = [
    ("console.overview", "/admin"),
    ("console.limits", "/admin/limits"),
    ("console.access", "/admin/access"),
    ("console.apps", "/admin/apps"),
    ("console.lookup", "/admin/lookup"),
    ("console.accounts", "/admin/accounts"),
    ("console.messages", "/admin/messages"),
    ("console.events", "/admin/events"),
    ("console.tokens", "/admin/tokens"),
];

impl Layout {
    /// The pages of the console. The current one is the page at this path, or above it.
    pub fn tabs(&self) -> Vec<Tab> {
        let path = self.here.split('?').next().unwrap_or_default();
        let within = |href: &str| path.strip_prefix(href).is_some_and(|rest| rest.starts_with('/'));
        let tab = |(key, href): (&'static str, &'static str)| Tab {
            key,
            href,
            current: path == href || (href != "/admin" && within(href)),
        };
        TABS.into_iter().map(tab).collect()
    }
}
