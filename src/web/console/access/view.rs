//! `/admin/access`: the answers in force, and the four forms.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;

use crate::clock::Micros;
use crate::config::{AccessNetwork, AccessSettings, moment_text};
use crate::tuning::{AccessOrigin, DraftError};
use crate::web::console::access::answer::AccessAnswer;
use crate::web::console::words::exactly;
use crate::web::kit::layout::Layout;
use crate::web::kit::locale::Locale;
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::{Moment, span_in_words, whole_seconds};

/// The longest reason of an entry, in characters.
const LONGEST_REASON: usize = 200;
/// An hour, unless another choice was made.
const USUAL: Duration = Duration::from_secs(60 * 60);

/// An answer in force.
pub struct AnswerRow {
    pub answer: AccessAnswer,
    /// A network or a prefix; empty: everybody.
    pub subject: String,
    pub until: Moment,
    pub left: String,
    pub reason: Option<String>,
    /// As the history has it.
    pub line: String,
    /// None if the document was edited by hand.
    pub login: Option<String>,
    pub since: Option<Moment>,
}

impl AnswerRow {
    /// Everything in force, the widest first.
    pub fn all(settings: &AccessSettings, now: Micros, locale: Locale) -> Vec<Self> {
        let row = |answer, subject: String, until: Micros, reason: Option<&str>, line: String| Self {
            answer,
            subject,
            until: Moment(until),
            left: span_in_words(whole_seconds(until.since(now)), locale),
            reason: reason.map(str::to_owned),
            line,
            login: None,
            since: None,
        };
        let network = |answer| {
            move |it: &AccessNetwork| {
                row(answer, it.network.to_string(), it.until, Some(&it.reason), it.line())
            }
        };
        let everyone = settings.challenge_everyone_until.map(|until| {
            let line = format!("challenge_everyone_until = \"{}\"", moment_text(until));
            row(AccessAnswer::Challenge, String::new(), until, None, line)
        });
        let denied = settings.deny.iter().map(network(AccessAnswer::Deny));
        let allowed = settings.allow.iter().map(network(AccessAnswer::Allow));
        let paused = settings
            .pause_sms
            .iter()
            .map(|it| row(AccessAnswer::Pause, it.prefix.clone(), it.until, Some(&it.reason), it.line()));
        everyone.into_iter().chain(denied).chain(paused).chain(allowed).collect()
    }

    pub fn set_by(&mut self, origin: Option<AccessOrigin>) {
        let Some(AccessOrigin { at, login, reason }) = origin else { return };
        self.since = Some(Moment(at));
        self.login = login;
        if self.reason.is_none() {
            self.reason = reason;
        }
    }

    fn was(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }

    /// To the form that changes its end.
    fn change(&self) -> String {
        let value: String = url::form_urlencoded::byte_serialize(self.subject.as_bytes()).collect();
        match self.answer.field() {
            "" => format!("/admin/access?do={}", self.answer.as_str()),
            field => format!("/admin/access?do={}&{field}={value}", self.answer.as_str()),
        }
    }

    const fn title(&self) -> &'static str {
        match self.answer {
            AccessAnswer::Challenge => "answers.is-challenge",
            AccessAnswer::Deny => "answers.is-deny",
            AccessAnswer::Allow => "answers.is-allow",
            AccessAnswer::Pause => "answers.is-pause",
        }
    }

    const fn tone(&self) -> &'static str {
        match self.answer {
            AccessAnswer::Allow => "good",
            AccessAnswer::Challenge => "warn",
            AccessAnswer::Deny | AccessAnswer::Pause => "bad",
        }
    }
}

/// The part of a form that a mistake is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormPart {
    Subject,
    Span,
    Reason,
    Whole,
}

/// A mistake: what would be right, and what the configuration says, which is in English.
struct FormMistake {
    part: FormPart,
    right: Cow<'static, str>,
    said: Option<String>,
}

/// The form of one answer.
pub struct AnswerForm {
    answer: AccessAnswer,
    subject: String,
    span: String,
    pub reason: String,
    /// It is shown first, and has the focus.
    first: bool,
    mistakes: Vec<FormMistake>,
}

impl AnswerForm {
    fn new(answer: AccessAnswer) -> Self {
        let span = USUAL.as_secs().to_string();
        Self {
            answer,
            subject: String::new(),
            span,
            reason: String::new(),
            first: false,
            mistakes: Vec::new(),
        }
    }

    /// The one that a link leads to.
    pub fn chosen(answer: AccessAnswer, subject: &str) -> Self {
        let subject = subject.chars().take(64).collect();
        Self { subject, first: true, ..Self::new(answer) }
    }

    pub fn typed(answer: AccessAnswer, subject: &str, span: &str, reason: &str) -> Self {
        let reason = reason.trim().chars().take(LONGEST_REASON + 1).collect();
        let span = span.chars().take(16).collect();
        Self { span, reason, ..Self::chosen(answer, subject) }
    }

    /// None if it is no choice of this form.
    pub fn lasts(&self) -> Option<Duration> {
        self.answer.spans().find(|span| span.as_secs().to_string() == self.span)
    }

    /// Finds what only the form knows.
    pub fn check(&mut self, locale: Locale) {
        if self.reason.is_empty() {
            self.wrong(FormPart::Reason, locale.t("draft.reason-missing"), None);
        } else if self.reason.chars().count() > LONGEST_REASON || self.reason.chars().any(char::is_control) {
            self.wrong(FormPart::Reason, locale.t("answers.reason-wrong"), None);
        }
        if self.lasts().is_none() {
            self.wrong(FormPart::Span, locale.t("answers.span-wrong"), None);
        }
    }

    /// Takes the mistakes that the configuration finds.
    pub fn refused(&mut self, locale: Locale, errors: Vec<DraftError>) {
        for DraftError { field, message, .. } in errors {
            let part = match field.rsplit('.').next() {
                Some("network" | "prefix") => FormPart::Subject,
                Some("until") => FormPart::Span,
                Some("reason") => FormPart::Reason,
                _ => FormPart::Whole,
            };
            if self.mistake(part).is_some() {
                continue;
            }
            let right = match (part, self.answer) {
                (FormPart::Subject, AccessAnswer::Pause) => "answers.prefix-wrong",
                (FormPart::Subject, _) => "answers.network-wrong",
                (FormPart::Span, _) => "answers.span-wrong",
                (FormPart::Reason, _) => "answers.reason-wrong",
                (FormPart::Whole, _) => "answers.refused",
            };
            self.wrong(part, locale.t(right), Some(message));
        }
    }

    fn wrong(&mut self, part: FormPart, right: Cow<'static, str>, said: Option<String>) {
        self.mistakes.push(FormMistake { part, right, said });
    }

    pub fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    fn mistake(&self, part: FormPart) -> Option<&FormMistake> {
        self.mistakes.iter().find(|mistake| mistake.part == part)
    }

    fn id(&self) -> &'static str {
        self.answer.as_str()
    }

    fn keys(&self) -> (&'static str, &'static str, &'static str) {
        match self.answer {
            AccessAnswer::Challenge => {
                ("answers.challenge", "answers.challenge-about", "answers.challenge-do")
            }
            AccessAnswer::Deny => ("answers.deny", "answers.deny-about", "answers.deny-do"),
            AccessAnswer::Allow => ("answers.allow", "answers.allow-about", "answers.allow-do"),
            AccessAnswer::Pause => ("answers.pause", "answers.pause-about", "answers.pause-do"),
        }
    }

    const fn subject_keys(&self) -> (&'static str, &'static str) {
        match self.answer {
            AccessAnswer::Pause => ("answers.prefix", "answers.prefix-hint"),
            _ => ("answers.network", "answers.network-hint"),
        }
    }

    fn spans(&self, locale: &Locale) -> Vec<(String, String, bool)> {
        let option = |span: Duration| {
            let value = span.as_secs().to_string();
            let chosen = value == self.span;
            (value, exactly(span, *locale), chosen)
        };
        self.answer.spans().map(option).collect()
    }

    /// The part that gets the focus: the first mistake, or what has to be typed.
    fn focus(&self) -> Option<FormPart> {
        let typed = || match self.answer.field() {
            "" => FormPart::Reason,
            _ if self.subject.is_empty() => FormPart::Subject,
            _ => FormPart::Reason,
        };
        let wrong = [FormPart::Subject, FormPart::Span, FormPart::Reason];
        let wrong = wrong.into_iter().find(|part| self.mistake(*part).is_some());
        self.first.then(|| wrong.unwrap_or_else(typed))
    }

    fn focuses(&self, part: FormPart) -> bool {
        self.focus() == Some(part)
    }
}

/// Why a form is shown again.
pub enum PageWord {
    None,
    /// The form is not ours, or too old.
    Expired,
    /// Others saved at the same moment, again and again.
    Stale,
    /// What keeps the document cannot be written; the text is its error.
    NotSaved(String),
}

#[derive(Template)]
#[template(path = "pages/admin/access.html")]
pub struct AccessPage {
    layout: Layout,
    rows: Vec<AnswerRow>,
    forms: Vec<AnswerForm>,
    word: PageWord,
    /// The keys that environment variables set.
    fixed: Vec<&'static str>,
}

impl AccessPage {
    /// `form` is shown first.
    pub fn new(
        visit: &Visit,
        user: &str,
        rows: Vec<AnswerRow>,
        form: Option<AnswerForm>,
        word: PageWord,
        fixed: Vec<&'static str>,
    ) -> Self {
        let chosen = form.as_ref().map(|form| form.answer);
        let mut layout = visit.layout("/admin/access", Some(user));
        layout.mistaken = form.as_ref().is_some_and(AnswerForm::has_mistakes);
        let others = AccessAnswer::ALL.into_iter().filter(|answer| Some(*answer) != chosen);
        let forms = form.into_iter().chain(others.map(AnswerForm::new)).collect();
        Self { layout, rows, forms, word, fixed }
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        let status = match self.word {
            PageWord::Expired => StatusCode::FORBIDDEN,
            PageWord::Stale => StatusCode::PRECONDITION_FAILED,
            PageWord::NotSaved(_) => StatusCode::SERVICE_UNAVAILABLE,
            PageWord::None if self.forms.iter().any(AnswerForm::has_mistakes) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            PageWord::None => StatusCode::OK,
        };
        visit.page(status, self)
    }

    fn has_first(&self) -> bool {
        self.forms.first().is_some_and(|form| form.first)
    }

    fn fixed_keys(&self) -> String {
        self.fixed.join(", ")
    }
}
