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
pub mod limits;
pub mod lookup;
pub mod messages;
pub mod overview;
pub mod permitted;
pub mod subject_link;
pub mod tokens;
pub mod words;

use crate::web::kit::layout::Layout;

/// The longest reason of a change, in characters: a sentence or two.
pub const LONGEST_REASON: usize = 500;

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
