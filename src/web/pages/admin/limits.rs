//! `/admin/limits`: every limit in plain words, whether it is the default, and what it does just now.

use std::borrow::Cow;

use askama::Template;

use crate::throttle::{Limit, Mode};
use crate::web::pages::Layout;
use crate::web::pages::admin::diff::DiffKind;
use crate::web::pages::admin::history::ChangeRow;
use crate::web::pages::admin::words::{grouped, meaning, sentences, title};
use crate::web::visit::Visit;

/// A limit as it is in force.
pub struct LimitCard {
    limit: Limit,
    default: bool,
    overridden: bool,
    hour: Hour,
}

/// What came under a limit in the last hour.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hour {
    pub admitted: u64,
    pub challenged: u64,
    pub refused: u64,
    pub noted: u64,
}

impl LimitCard {
    pub const fn new(limit: Limit, default: bool, overridden: bool, hour: Hour) -> Self {
        Self { limit, default, overridden, hour }
    }

    fn name(&self) -> &str {
        self.limit.name()
    }

    fn about(&self) -> &'static str {
        meaning(self.limit.name()).about
    }

    fn watches(&self) -> bool {
        self.limit.mode() == Mode::Monitor
    }

    fn is_off(&self) -> bool {
        self.limit.rules().is_empty()
    }
}

/// Limits that belong together.
struct Group<'a> {
    key: &'static str,
    id: &'static str,
    cards: Vec<&'a LimitCard>,
}

#[derive(Template)]
#[template(path = "pages/admin/limits.html")]
pub struct LimitsPage {
    layout: Layout,
    version: String,
    home: String,
    cards: Vec<LimitCard>,
    changes: Vec<ChangeRow>,
}

impl LimitsPage {
    pub fn new(visit: &Visit, user: &str, version: String, home: String, cards: Vec<LimitCard>) -> Self {
        Self { layout: visit.layout("/admin/limits", Some(user)), version, home, cards, changes: Vec::new() }
    }

    /// The latest of them.
    pub fn changes(mut self, changes: Vec<ChangeRow>) -> Self {
        self.changes = changes;
        self
    }

    fn groups(&self) -> Vec<Group<'_>> {
        let group = |key, id, fits: fn(&str) -> bool| Group {
            key,
            id,
            cards: self.cards.iter().filter(|card| fits(card.name())).collect(),
        };
        let groups = [
            group("limit-page.sign-in", "sign-in", |name| {
                name.starts_with("login-") || name.starts_with("register-")
            }),
            group("limit-page.sms", "sms", |name| name.starts_with("sms-")),
            group("limit-page.captcha", "captcha", |name| name.starts_with("captcha-")),
            group("limit-page.own", "own", |name| name.starts_with("custom.")),
        ];
        groups.into_iter().filter(|group| !group.cards.is_empty()).collect()
    }

    fn title(&self, card: &LimitCard) -> Cow<'static, str> {
        title(card.name(), self.layout.locale)
    }

    fn rules(&self, card: &LimitCard) -> Vec<String> {
        sentences(&card.limit, self.layout.locale)
    }

    /// What it did, as a short list; empty where nothing came.
    fn hour(&self, card: &LimitCard) -> Vec<(&'static str, String)> {
        let Hour { admitted, challenged, refused, noted } = card.hour;
        let all = [
            ("limit-page.admitted", admitted),
            ("limit-page.challenged", challenged),
            ("limit-page.refused", refused),
            ("limit-page.noted", noted),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).map(|(key, count)| (key, grouped(count))).collect()
    }
}
