//! `/admin/limits`: every limit in plain words, whether it is the default, and its recent decisions.

use std::borrow::Cow;

use askama::Template;

use crate::config::{LimitName, LimitUnit};
use crate::throttle::{Limit, LimitMode};
use crate::web::console::document::diff::DiffKind;
use crate::web::console::figures::LimitUse;
use crate::web::console::limits::history_view::ChangeRow;
use crate::web::console::words::{about, grouped, sentences, title};
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;

/// A limit that is in force.
pub struct LimitCard {
    limit: Limit,
    default: bool,
    overridden: bool,
    hour: LimitUse,
}

impl LimitCard {
    pub const fn new(limit: Limit, default: bool, overridden: bool, hour: LimitUse) -> Self {
        Self { limit, default, overridden, hour }
    }

    fn name(&self) -> &str {
        self.limit.name()
    }

    fn about(&self) -> &'static str {
        about(self.limit.name())
    }

    fn watches(&self) -> bool {
        self.limit.mode() == LimitMode::Monitor
    }

    fn is_off(&self) -> bool {
        self.limit.rules().is_empty()
    }
}

/// Related limits.
struct Group<'a> {
    key: &'static str,
    id: &'static str,
    cards: Vec<&'a LimitCard>,
}

/// The section of the page that shows a limit.
fn group_of(limit: &str) -> &'static str {
    match LimitName::parse(limit).map(LimitName::unit) {
        Some(LimitUnit::SignIn | LimitUnit::Registration) => "sign-in",
        Some(LimitUnit::Attempt) => "guard",
        Some(LimitUnit::Message | LimitUnit::Guess) => "sms",
        Some(LimitUnit::Image) => "captcha",
        None => "own",
    }
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

    /// The latest changes.
    pub fn changes(mut self, changes: Vec<ChangeRow>) -> Self {
        self.changes = changes;
        self
    }

    fn groups(&self) -> Vec<Group<'_>> {
        let keys = [
            ("limit-page.sign-in", "sign-in"),
            ("limit-page.guard", "guard"),
            ("limit-page.sms", "sms"),
            ("limit-page.captcha", "captcha"),
            ("limit-page.own", "own"),
        ];
        let groups = keys.map(|(key, id)| {
            let cards = self.cards.iter().filter(|card| group_of(card.name()) == id).collect();
            Group { key, id, cards }
        });
        groups.into_iter().filter(|group| !group.cards.is_empty()).collect()
    }

    fn title(&self, card: &LimitCard) -> Cow<'static, str> {
        title(card.name(), self.layout.locale)
    }

    fn rules(&self, card: &LimitCard) -> Vec<String> {
        sentences(&card.limit, self.layout.locale)
    }

    /// What the limit did as a short list; empty if it was nothing.
    fn hour(&self, card: &LimitCard) -> Vec<(&'static str, String)> {
        let LimitUse { counted, challenged, refused, noted } = card.hour;
        let all = [
            ("limit-page.counted", counted.unwrap_or(0)),
            ("limit-page.challenged", challenged),
            ("limit-page.refused", refused),
            ("limit-page.noted", noted),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).map(|(key, count)| (key, grouped(count))).collect()
    }
}
