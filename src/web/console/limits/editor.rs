//! `/admin/limits/edit/{limit}` and `/admin/limits/toml`: a draft, replayed on recorded traffic before it is saved.

use std::borrow::Cow;
use std::fmt::Display;
use std::iter;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Path;
use askama::Template;
use gatehouse_limiter::{CalendarUnit, Limit, LimitMode, MOST_RULES, Rule};
use rust_i18n::t;
use serde_json::{Value, json};

use super::RuleSettings;
use super::preview::{PreviewView, telling, tried};
use crate::config::{LimitName, Limits, limits_toml};
use crate::tuning::{CurrentLimits, Edit, LiveSection, PreviewProgress};
use crate::web::console::FormProblem;
use crate::web::console::document::{Act, Controls, LIMITS, TomlDraft, Trial, submitted};
use crate::web::console::guard::{AdminForm, AdminRequest};
use crate::web::console::limit_text::{about, grouped, sentences, title};
use crate::web::form::value;
use crate::web::http::extract::DOCUMENT_LIMIT;
use crate::web::http::{ErrorKind, ErrorPage, Layout, WebResult};

/// `GET /admin/limits/edit/{limit}`
pub async fn show(request: AdminRequest, name: Path<String>) -> WebResult {
    let current = request.services.tuning.current();
    let limit = current.live.limits.get(&name).ok_or_else(|| nothing(&request))?;
    let (form, controls) = (LimitForm::from(limit), Controls::at(&current.version));
    Ok(respond(&request, &current, limit, form, controls, Trial::None))
}

fn respond(
    request: &AdminRequest,
    current: &CurrentLimits,
    limit: &Limit,
    form: LimitForm,
    controls: Controls,
    preview: Trial<PreviewView>,
) -> HttpResponse {
    let layout = request.layout(format!("/admin/limits/edit/{}", limit.name()));
    let page = EditorPage {
        layout: Layout { mistaken: controls.is_mistaken(), ..layout },
        limit: limit.clone(),
        overridden: current.overridden.limit(limit.name()),
        form,
        controls,
        preview,
    };
    request.visit.page(page.controls.status(), &page)
}

fn nothing(request: &AdminRequest) -> HttpResponse {
    ErrorPage::new(request.layout("/admin/limits"), ErrorKind::NotFound).respond(&request.visit)
}

/// `POST /admin/limits/edit/{limit}`
pub async fn submit(posted: AdminForm, name: Path<String>) -> WebResult {
    let asked = asks_for_progress(&posted.pairs);
    telling(asked, |progress| submitted_form(posted, name, progress)).await
}

/// Only the script does, and only for a trial, which needs no button.
fn asks_for_progress(pairs: &[(String, String)]) -> bool {
    !value(pairs, "progress").is_empty() && value(pairs, "do").is_empty()
}

async fn submitted_form(posted: AdminForm, name: Path<String>, progress: PreviewProgress) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let current = request.services.tuning.current();
    let limit = current.live.limits.get(&name).ok_or_else(|| nothing(request))?;
    let (mut form, controls) = (LimitForm::read(pairs), Controls::read(pairs));
    let stretch = controls.stretch;
    match controls.act {
        Act::AddRule => form.rows.push(RuleRow::default()),
        Act::RemoveRule(index) if index < form.rows.len() => drop(form.rows.remove(index)),
        Act::RestoreDefault => {
            if let Some(default) = Limits::default().get(&name) {
                form = LimitForm::from(default);
            }
        }
        Act::RemoveRule(_) | Act::Try | Act::Save | Act::Delete => {}
    }
    let page = |controls, preview| respond(request, &current, limit, form.clone(), controls, preview);
    let edit = Edit::Limit(name.to_string(), form.json());
    let attempt = async |checked| tried(request, checked, stretch, progress).await;
    submitted(&posted, (&LIMITS, LIMITS.page), controls, edit, page, attempt).await
}

/// `GET /admin/limits/toml`
pub async fn show_toml(request: AdminRequest) -> WebResult {
    let current = request.services.tuning.current();
    let (toml, controls) = (LiveSection::Limits.text_in(&current.document), Controls::at(&current.version));
    let page = TomlDraft { part: &LIMITS, toml, controls };
    let layout = page.layout(&request.visit, request.admin.login());
    let all = limits_toml(&current.live.limits);
    Ok(request.visit.page(StatusCode::OK, &TomlPage { layout, page, preview: Trial::None, all }))
}

/// `POST /admin/limits/toml`
pub async fn submit_toml(posted: AdminForm<DOCUMENT_LIMIT>) -> WebResult {
    let asked = asks_for_progress(&posted.pairs);
    telling(asked, |progress| submitted_document(posted, progress)).await
}

async fn submitted_document(posted: AdminForm<DOCUMENT_LIMIT>, progress: PreviewProgress) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let sent = TomlDraft::read(&LIMITS, pairs);
    let show = |controls: Controls, preview| {
        let page = TomlDraft { controls, ..sent.clone() };
        let layout = page.layout(&request.visit, request.admin.login());
        let all = limits_toml(&request.services.live.snapshot().limits);
        request.visit.page(page.controls.status(), &TomlPage { layout, page, preview, all })
    };
    let attempt = async |checked| tried(request, checked, sent.controls.stretch, progress).await;
    submitted(&posted, (&LIMITS, LIMITS.page), sent.controls.clone(), sent.edit(), show, attempt).await
}

#[derive(Template)]
#[template(path = "pages/admin/editor.html")]
pub struct EditorPage {
    pub layout: Layout,
    pub limit: Limit,
    pub overridden: bool,
    pub form: LimitForm,
    pub controls: Controls,
    pub preview: Trial<PreviewView>,
}

impl EditorPage {
    /// The attribute of the part that gets the focus.
    fn focuses(&self, part: &str, index: impl Display) -> &'static str {
        if self.form.focus(&self.controls) == format!("{part}-{index}") { " autofocus" } else { "" }
    }

    fn may_challenge(&self) -> bool {
        LimitName::parse(self.limit.name()).is_some_and(LimitName::may_challenge)
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

    /// Each with the word for it.
    fn spans(&self) -> impl Iterator<Item = (&'static str, Cow<'static, str>)> {
        let word = |span| self.layout.locale.named_word("draft", &format!("span-{span}"));
        iter::once("window")
            .chain(CalendarUnit::ALL.map(CalendarUnit::as_str))
            .map(move |span| (span, word(span)))
    }

    fn wrong(&self, index: &usize, part: &str) -> Option<Cow<'_, str>> {
        let mistake =
            self.controls.mistakes.iter().find(|mistake| mistake.rule_part() == Some((*index, part)))?;
        Some(mistake.right(self.layout.locale).unwrap_or(Cow::Borrowed(&mistake.message)))
    }

    fn rule_label(&self, index: &usize) -> Cow<'static, str> {
        t!("draft.rule", locale = self.layout.locale.code(), number = index + 1)
    }
}

#[derive(Template)]
#[template(path = "pages/admin/toml.html")]
pub struct TomlPage {
    pub layout: Layout,
    pub page: TomlDraft,
    pub preview: Trial<PreviewView>,
    /// All limits in force.
    pub all: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRow {
    pub max: String,
    /// `window`, or a calendar unit.
    pub span: String,
    pub window: String,
    pub zone: String,
    pub then: String,
}

impl Default for RuleRow {
    fn default() -> Self {
        let text = str::to_owned;
        Self { max: text(""), span: text("window"), window: text(""), zone: text(""), then: text("block") }
    }
}

impl From<&Rule> for RuleRow {
    fn from(rule: &Rule) -> Self {
        let RuleSettings { max, window, per, timezone, then } = rule.into();
        Self {
            max: max.to_string(),
            span: per.unwrap_or("window").to_owned(),
            window: window.unwrap_or_default(),
            zone: timezone.unwrap_or_default(),
            then: then.to_owned(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitForm {
    pub monitor: bool,
    pub rows: Vec<RuleRow>,
}

impl From<&Limit> for LimitForm {
    fn from(limit: &Limit) -> Self {
        let rows = limit.rules().iter().map(RuleRow::from).collect();
        Self { monitor: limit.mode() == LimitMode::Monitor, rows }
    }
}

impl LimitForm {
    /// The rows in the order of their numbers, which have no gaps.
    pub fn read(pairs: &[(String, String)]) -> Self {
        let row = |index: usize| {
            let text = |part: &str| value(pairs, &format!("{part}-{index}")).trim().to_owned();
            let there = pairs.iter().any(|(name, _)| *name == format!("max-{index}"));
            there.then(|| RuleRow {
                max: text("max"),
                span: text("span"),
                window: text("window"),
                zone: text("zone"),
                then: text("then"),
            })
        };
        // One more than a limit allows, so that a surplus rule is reported and not lost.
        let rows = (0..gatehouse_limiter::MOST_RULES + 2).map_while(row).collect();
        Self { monitor: value(pairs, "mode") == "monitor", rows }
    }

    /// The id of the part of a rule that gets the focus: what is wrong first; then what was pressed, or what has taken its
    /// place.
    fn focus(&self, controls: &Controls) -> String {
        if let Some(mistake) = controls.mistakes.first() {
            let field = |(index, part)| format!("{}-{index}", if part == "timezone" { "zone" } else { part });
            return mistake.rule_part().map(field).unwrap_or_default();
        }
        let last = self.rows.len().saturating_sub(1);
        match controls.act {
            Act::Save | Act::Try if !controls.pressed.is_empty() => String::new(),
            _ if self.rows.is_empty() => "add-0".to_owned(),
            Act::AddRule => format!("max-{last}"),
            Act::RemoveRule(index) => format!("remove-{}", index.min(last)),
            Act::RestoreDefault => "default-0".to_owned(),
            _ => "max-0".to_owned(),
        }
    }

    /// The limit as an object. Input that is not a number is kept as typed, so that reading rejects it with a reason.
    pub fn json(&self) -> Value {
        let mode = if self.monitor { "monitor" } else { "enforce" };
        json!({ "mode": mode, "rules": self.rows.iter().map(RuleRow::json).collect::<Vec<_>>() })
    }
}

impl RuleRow {
    fn json(&self) -> Value {
        let mut rule = json!({ "max": self.max, "then": self.then });
        if let Ok(max) = self.max.parse::<i64>() {
            rule["max"] = max.into();
        }
        match (self.span.as_str(), self.zone.as_str()) {
            ("window", _) => rule["window"] = self.window.as_str().into(),
            (unit, zone) => {
                rule["per"] = unit.into();
                if !zone.is_empty() {
                    rule["timezone"] = zone.into();
                }
            }
        }
        rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Draft;
    use gatehouse_limiter::RuleAction;
    use std::time::Duration;

    fn pairs(text: &str) -> Vec<(String, String)> {
        url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
    }

    #[test]
    fn a_limit_goes_through_its_form_and_back_unchanged() {
        let text = r#"[limits.login-account]
            mode = "monitor"
            rules = [{ max = 3, window = "90s", then = "captcha" }, { max = 9, per = "month", timezone = "Asia/Shanghai" }]"#;
        let source = crate::config::ConfigSource::optional(std::path::Path::new("none"), Vec::new());
        let live = source.load().unwrap().live;
        let check = |edit: Edit| live.check(edit).unwrap().live().limits.login_account.clone();
        let limit = check(Edit::Section(LiveSection::Limits, Draft::Toml(text.to_owned())));
        let form = LimitForm::from(&limit);
        assert_eq!(check(Edit::Limit("login-account".to_owned(), form.json())), limit);
    }

    #[test]
    fn whatever_is_typed_is_kept_and_stays_one_value() {
        let form = LimitForm::read(&pairs(
            "mode=enforce&max-0=three&span-0=window&window-0=1m%22%2C+x+%3D+1&then-0=block&max-1=",
        ));
        assert_eq!(form.rows[0].max, "three");
        assert_eq!(form.rows.len(), 2);
        let rule = &form.json()["rules"][0];
        assert_eq!(rule["max"].as_str(), Some("three"));
        assert_eq!(rule["window"].as_str(), Some("1m\", x = 1"));
    }

    #[test]
    fn a_window_is_written_as_it_is_read() {
        let rule = Rule::sliding(5, Duration::from_millis(100), RuleAction::Block);
        assert_eq!(RuleRow::from(&rule).window, "100ms");
    }
}
