//! `/admin/limits/edit/{limit}` and `/admin/limits/toml`: a draft, replayed on recorded traffic before it is
//! saved.

use std::borrow::Cow;

use actix_web::HttpResponse;
use askama::Template;
use rust_i18n::t;

use crate::config::LimitName;
use crate::throttle::{Limit, MOST_RULES};
use crate::tuning::DraftError;
use crate::web::console::document::draft::{Controls, Stretch};
use crate::web::console::document::view::{EditorNotice, TomlDraft, status};
use crate::web::console::limits::draft::{LimitForm, RuleRow};
use crate::web::console::limits::preview::Trial;
use crate::web::console::words::{about, sentences, title};
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;

/// The form of one limit.
#[derive(Template)]
#[template(path = "pages/admin/editor.html")]
pub struct EditorPage {
    layout: Layout,
    limit: Limit,
    overridden: bool,
    /// Whether a rule may ask for a CAPTCHA.
    captcha: bool,
    form: LimitForm,
    controls: Controls,
    mistakes: Vec<DraftError>,
    preview: Trial,
    notice: EditorNotice,
}

impl EditorPage {
    pub fn new(visit: &Visit, user: &str, limit: Limit, overridden: bool, version: &str) -> Self {
        let captcha = LimitName::parse(limit.name()).is_some_and(LimitName::may_challenge);
        Self {
            layout: visit.layout(format!("/admin/limits/edit/{}", limit.name()), Some(user)),
            form: LimitForm::from(&limit),
            overridden,
            captcha,
            limit,
            controls: Controls { version: version.to_owned(), ..Controls::default() },
            mistakes: Vec::new(),
            preview: Trial::None,
            notice: EditorNotice::None,
        }
    }

    pub fn typed(mut self, form: LimitForm, controls: Controls) -> Self {
        self.layout.mistaken |= controls.reason_missing;
        (self.form, self.controls) = (form, controls);
        self
    }

    pub fn mistakes(mut self, mistakes: Vec<DraftError>) -> Self {
        self.layout.mistaken |= !mistakes.is_empty();
        self.mistakes = mistakes;
        self
    }

    pub fn preview(mut self, preview: Trial) -> Self {
        self.preview = preview;
        self
    }

    pub fn notice(mut self, notice: EditorNotice) -> Self {
        self.notice = notice;
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        visit.page(status(&self.controls, &self.mistakes, &self.notice), self)
    }

    fn title(&self) -> Cow<'static, str> {
        title(self.limit.name(), self.layout.locale)
    }

    fn about(&self) -> &'static str {
        about(self.limit.name())
    }

    fn in_force(&self) -> Vec<String> {
        sentences(&self.limit, self.layout.locale)
    }

    fn rows(&self) -> Vec<(usize, &RuleRow)> {
        self.form.rows.iter().enumerate().collect()
    }

    /// Limits that the owner defined have no default.
    fn has_default(&self) -> bool {
        !self.limit.name().starts_with("custom.")
    }

    fn full(&self) -> bool {
        self.form.rows.len() >= MOST_RULES
    }

    fn spans(&self) -> [(&'static str, &'static str); 7] {
        [
            ("window", "draft.span-window"),
            ("minute", "draft.span-minute"),
            ("hour", "draft.span-hour"),
            ("day", "draft.span-day"),
            ("week", "draft.span-week"),
            ("month", "draft.span-month"),
            ("year", "draft.span-year"),
        ]
    }

    /// The mistake in a part of a rule, shown next to it.
    fn wrong(&self, index: &usize, part: &str) -> Option<Cow<'_, str>> {
        let mistake = self.mistakes.iter().find(|mistake| mistake.rule_part() == Some((*index, part)))?;
        Some(mistake.right(self.layout.locale).unwrap_or(Cow::Borrowed(&mistake.message)))
    }

    fn rule_label(&self, index: &usize) -> Cow<'static, str> {
        t!("draft.rule", locale = self.layout.locale.code(), number = index + 1)
    }
}

/// All limits as TOML, as in the file.
#[derive(Template)]
#[template(path = "pages/admin/toml.html")]
pub struct TomlPage {
    layout: Layout,
    page: TomlDraft,
    preview: Trial,
}

impl TomlPage {
    pub fn new(visit: &Visit, user: &str, page: TomlDraft) -> Self {
        let mut layout = visit.layout(page.part.editor(), Some(user));
        layout.mistaken = page.is_mistaken();
        Self { layout, page, preview: Trial::None }
    }

    pub fn preview(mut self, preview: Trial) -> Self {
        self.preview = preview;
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        visit.page(self.page.status(), self)
    }
}
