//! The administrators' console.

pub mod access;
pub mod accounts;
pub mod apps;
pub mod attack;
pub mod chart;
pub mod confirm;
pub mod document;
pub mod event_search;
pub mod events;
pub mod factors;
pub mod figures;
pub mod find;
pub mod first_steps;
pub mod guard;
pub mod invitations;
pub mod limit_text;
pub mod limits;
pub mod lookup;
pub mod messages;
pub mod origins;
pub mod overview;
pub mod standing;
pub mod subject_link;
pub mod tokens;

use std::borrow::Cow;
use std::time::Duration;

use actix_web::http::StatusCode;
use url::form_urlencoded;

use crate::clock::Micros;
use crate::unseen::is_unseen;
use crate::web::console::figures::{DAY, HOUR};
use crate::web::form::value;
use crate::web::http::{Layout, Moment, Problem};

/// The longest reason of a change, in characters: a sentence or two.
pub const LONGEST_REASON: usize = 500;

/// Why a form of the console is shown again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormProblem {
    /// Too old, or not ours.
    Expired,
    ReasonMissing,
    /// What is in force was changed since the page was opened.
    Stale,
    /// It cannot be put in force; the text is the error.
    Refused(String),
    /// What keeps the document cannot be written; the text is its error.
    NotSaved(String),
}

/// The reason that a form gives; empty if it gives none.
pub fn reason(pairs: &[(String, String)]) -> String {
    let typed = value(pairs, "reason").trim().chars();
    typed.filter(|letter| !is_unseen(*letter)).take(LONGEST_REASON).collect()
}

impl FormProblem {
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Expired => StatusCode::FORBIDDEN,
            Self::ReasonMissing | Self::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Stale => StatusCode::PRECONDITION_FAILED,
            Self::NotSaved(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The last hours or days, to choose from: how much of the record a page is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordSpan {
    /// In URLs and forms.
    pub word: &'static str,
    pub key: &'static str,
    pub length: Duration,
}

impl RecordSpan {
    pub const DAY: Self = Self { word: "24h", key: "draft.day", length: DAY };
    pub const ALL: [Self; 4] = [
        Self { word: "1h", key: "draft.hour", length: HOUR },
        Self::DAY,
        Self { word: "7d", key: "draft.week", length: Duration::from_secs(7 * DAY.as_secs()) },
        Self { word: "30d", key: "event.month", length: Duration::from_secs(30 * DAY.as_secs()) },
    ];

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|span| span.word == word)
    }
}

impl Default for RecordSpan {
    fn default() -> Self {
        Self::DAY
    }
}

pub struct Choice {
    pub value: &'static str,
    pub text: Cow<'static, str>,
    pub chosen: bool,
}

impl Choice {
    const fn new(value: &'static str, text: Cow<'static, str>, chosen: bool) -> Self {
        Self { value, text, chosen }
    }
}

/// The address of a list with what it is filtered by.
fn list_href<const N: usize>(path: &str, filter: [(&'static str, Option<String>); N]) -> String {
    let pairs = filter.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
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
fn read_cursor<T>(
    text: Option<&str>,
    field: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    read_filter(text, field, "Use the value of next from the previous page.", parse)
}

/// The entries on a page of a list: 50 where nothing else is asked for.
fn read_page_size(text: Option<&str>) -> Result<u32, Problem> {
    let size = |text: &str| text.parse().ok().filter(|size| (1..=200).contains(size));
    Ok(read_filter(text, "limit", "Use 1 to 200.", size)?.unwrap_or(50))
}

pub struct ConsolePage {
    /// The key of its name.
    pub key: &'static str,
    pub href: &'static str,
    /// In `components/icons.html`.
    pub icon: &'static str,
    pub current: bool,
}

pub struct PageGroup {
    pub key: &'static str,
    pub pages: Vec<ConsolePage>,
}

type PageEntry = (&'static str, &'static str, &'static str);

/// The pages of the console: what watches, what acts, what manages.
const PAGES: [(&str, &[PageEntry]); 3] = [
    (
        "console.watch",
        &[
            ("console.overview", "/admin", "overview"),
            ("console.events", "/admin/events", "events"),
            ("console.lookup", "/admin/lookup", "lookup"),
        ],
    ),
    (
        "console.act",
        &[("console.limits", "/admin/limits", "limits"), ("console.access", "/admin/access", "access")],
    ),
    (
        "console.manage",
        &[
            ("console.accounts", "/admin/accounts", "accounts"),
            ("console.apps", "/admin/apps", "apps"),
            ("console.factors", "/admin/factors", "factors"),
            ("console.messages", "/admin/messages", "messages"),
            ("console.tokens", "/admin/tokens", "tokens"),
        ],
    ),
];

impl Layout {
    /// The current page is the one at this path, or above it. Groups and invitations belong to accounts.
    pub fn console_pages(&self) -> Vec<PageGroup> {
        let path = self.here.split('?').next().unwrap_or_default();
        let of_accounts = ["/admin/groups", "/admin/invitations"].iter().any(|of| path.starts_with(of));
        let path = if of_accounts { "/admin/accounts" } else { path };
        let within = |href: &str| path.strip_prefix(href).is_some_and(|rest| rest.starts_with('/'));
        let page = |&(key, href, icon): &PageEntry| ConsolePage {
            key,
            href,
            icon,
            current: path == href || (href != "/admin" && within(href)),
        };
        PAGES.map(|(key, pages)| PageGroup { key, pages: pages.iter().map(page).collect() }).into()
    }
}
