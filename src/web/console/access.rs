//! `/admin/access` and `/api/v1/admin/access`: the answers to an attack that are in force, and the forms that add and end
//! one.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Query;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use ipnet::IpNet;
use rust_i18n::t;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use strum::{EnumString, IntoStaticStr, VariantArray};
use url::form_urlencoded;
use utoipa::ToSchema;

use super::confirm;
use super::document::{
    DocumentSaved, Precondition, check, checked_reason, if_match, in_force_response, record_save, save_edit,
    save_response, save_unrecorded,
};
use super::guard::{AdminForm, AdminRequest, Permitted};
use super::limit_text::exactly;
use super::limits::history::newest_of;
use super::origins::OriginReport;
use super::{FormProblem, LONGEST_REASON};
use crate::clock::Micros;
use crate::config::{AccessDenial, AccessNetwork, AccessSettings, SmsPause, moment_text};
use crate::origins::OriginKey;
use crate::tuning::{AccessOrigin, DraftError, Edit, LiveSection, SaveError, SavedEdit};
use crate::unseen::{is_seen_whole, is_unseen};
use crate::web::form::{FormPairs, value};
use crate::web::http::describe::ChangeReason;
use crate::web::http::extract::DOCUMENT_LIMIT;
use crate::web::http::locale::{span_in_words, whole_seconds};
use crate::web::http::{
    Flash, Layout, Locale, Moment, PageRequest, Problem, ServicesData, UnreadBody, WebError, WebResult,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum AccessAnswer {
    /// Everybody solves a CAPTCHA.
    Challenge,
    /// A network is refused.
    Deny,
    /// The limits of a network are lifted.
    Allow,
    /// A prefix gets no message.
    Pause,
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

impl AccessAnswer {
    /// The field that says whom it is about; empty if it is about everybody.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Challenge => "",
            Self::Deny | Self::Allow => "network",
            Self::Pause => "prefix",
        }
    }

    /// The list in `[access]`; None if it is not in one.
    const fn list(self) -> Option<&'static str> {
        match self {
            Self::Challenge => None,
            Self::Deny => Some("deny"),
            Self::Allow => Some("allow"),
            Self::Pause => Some("pause_sms"),
        }
    }

    /// The key of an entry under which the subject stands: of `deny` it may be an origin.
    fn key_of(self, subject: &str) -> &'static str {
        match self {
            Self::Deny if OriginKey::is_meant_by(subject) => "origin",
            _ => self.field(),
        }
    }

    /// What a link or a form is about.
    fn subject_in(self, pairs: &[(String, String)]) -> &str {
        match value(pairs, self.field()) {
            "" if self == Self::Deny => value(pairs, "origin"),
            subject => subject,
        }
    }

    /// The page with its form first, filled in.
    pub fn href(self, subject: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("do", self.into_str());
        if !subject.is_empty() {
            query.append_pair(self.key_of(subject), subject);
        }
        format!("{HERE}?{}", query.finish())
    }

    pub fn key(self) -> &'static str {
        self.list().unwrap_or("challenge_everyone_until")
    }

    /// How long it may last, to choose from. An attack lasts hours; an office stays.
    pub fn spans(self) -> impl Iterator<Item = Duration> {
        let seconds: &[u64] = match self {
            Self::Challenge => &[15 * MINUTE, HOUR, 4 * HOUR, DAY],
            Self::Deny | Self::Pause => &[15 * MINUTE, HOUR, 4 * HOUR, DAY, 7 * DAY],
            Self::Allow => &[HOUR, DAY, 7 * DAY, 30 * DAY, 365 * DAY],
        };
        seconds.iter().map(|seconds| Duration::from_secs(*seconds))
    }

    /// For the record of events: `deny 203.0.113.0/24`.
    pub fn shown(self, subject: &str) -> String {
        let subject: String = subject.trim().chars().take(64).collect();
        format!("{} {subject}", self.into_str()).trim_end().to_owned()
    }

    /// `[access]` with it; the same one that is in force already ends at the new time.
    pub fn added_to(self, current: &AccessSettings, subject: &str, until: Micros, reason: &str) -> Value {
        let mut draft = self.taken_from(current, subject);
        let until = moment_text(until);
        match self.list() {
            None => draft[self.key()] = until.into(),
            Some(list) => {
                let entry =
                    json!({ (self.key_of(subject)): subject.trim(), "until": until, "reason": reason });
                draft[list].as_array_mut().expect("a list").push(entry);
            }
        }
        draft
    }

    /// `[access]` without it.
    pub fn taken_from(self, current: &AccessSettings, subject: &str) -> Value {
        let mut draft = current.json();
        match self.list() {
            None => draft[self.key()] = "".into(),
            Some(list) => {
                let (key, subject) = (self.key_of(subject), canonical(subject));
                let others = draft[list].as_array_mut().expect("a list");
                others.retain(|entry| entry[key].as_str() != Some(subject.as_str()));
            }
        }
        draft
    }
}

/// A network or an origin as it is written in what is in force: an address alone has its length behind it.
fn canonical(subject: &str) -> String {
    let subject = subject.trim();
    if let Ok(origin) = subject.parse::<OriginKey>() {
        return origin.to_string();
    }
    let network = subject.parse::<IpNet>().or_else(|_| subject.parse::<IpAddr>().map(IpNet::from));
    network.map_or_else(|_| subject.to_owned(), |network| network.to_string())
}

const HERE: &str = "/admin/access";
/// Two operators may save at the same moment: an answer is added to whatever is in force by then.
const MOST_TRIES: u32 = 3;

/// `GET /admin/access`. `?do=deny&network=203.0.113.0/24` or `?do=deny&origin=asn:64496` shows that form first, filled in.
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let value = |name| value(&query, name);
    let answer = value("do").parse::<AccessAnswer>().ok();
    page(&request, answer.map(|it| AnswerForm::chosen(it, it.subject_in(&query))), None).await
}

/// `POST /admin/access`
pub async fn submit(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let AdminRequest { visit, services, admin } = request;
    let value = |name| value(pairs, name);
    let answer = value("do").parse::<AccessAnswer>().ok();
    let form = |answer: AccessAnswer| {
        AnswerForm::typed(answer, answer.subject_in(pairs), value("span"), value("reason"))
    };
    if !posted.is_ours() {
        return page(request, answer.map(form), Some(FormProblem::Expired)).await;
    }
    let Some(answer) = answer else { return Ok(visit.see_other(HERE, None)) };
    let (mut form, subject) = (form(answer), answer.subject_in(pairs));
    let reason = form.reason.clone();
    let until = visit.now().plus(form.lasts().unwrap_or_default());
    let draft = |current: &AccessSettings| answer.added_to(current, subject, until, &reason);
    let current = visit.settings(services).access.settings().in_force(visit.now());
    form.check(visit.locale);
    if let Err(error) = check(admin, Edit::Access(draft(&current), admin.saver())).await? {
        form.refused(visit.locale, error.into_errors());
    }
    // Whoever refuses an origin has read how many honest people they refuse.
    let is_told = form.origin().is_none_or(|origin| value("told") == origin.to_string());
    if form.has_mistakes() || !is_told {
        return page(request, Some(form), None).await;
    }
    let detail = json!({ "reason": reason, "answer": answer.shown(subject), "until": moment_text(until) });
    let act = Box::pin(async {
        let problem = match save(request, ("access.save", detail), &reason, draft).await? {
            Ok(_) => return Ok(visit.see_other(HERE, Some(Flash::AccessSaved))),
            Err(SaveError::Invalid(errors)) => {
                form.refused(visit.locale, errors);
                None
            }
            Err(error) => Some(error.into()),
        };
        page(request, Some(form), problem).await
    });
    confirm::confirmed(&posted, act).await
}

/// `POST /admin/access/end`
pub async fn end(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let visit = &request.visit;
    let value = |name| value(pairs, name);
    if !posted.is_ours() {
        return page(request, None, Some(FormProblem::Expired)).await;
    }
    let Ok(answer) = value("do").parse::<AccessAnswer>() else { return Ok(visit.see_other(HERE, None)) };
    let (subject, was) = (value("subject"), value("was"));
    if request.services.live.overridden().keys_of(LiveSection::Access).any(|key| key == answer.key()) {
        const WHY: &str = "it is set by an environment variable of the server; change it there";
        return page(request, None, Some(FormProblem::NotSaved(WHY.to_owned()))).await;
    }
    let reason = t!("answers.ended-reason", locale = visit.locale.code(), it = was);
    let reason: String = reason.chars().filter(|letter| !is_unseen(*letter)).take(LONGEST_REASON).collect();
    let detail = json!({ "reason": reason, "answer": answer.shown(subject) });
    let draft = |current: &AccessSettings| answer.taken_from(current, subject);
    let act = Box::pin(async {
        match save(request, ("access.end", detail), &reason, draft).await? {
            Ok(_) => Ok(visit.see_other(HERE, Some(Flash::AccessEnded))),
            Err(error) => page(request, None, Some(error.into())).await,
        }
    });
    confirm::confirmed(&posted, act).await
}

async fn save(
    request: &AdminRequest,
    (act, mut detail): (&str, Value),
    reason: &str,
    draft: impl Fn(&AccessSettings) -> Value,
) -> Result<Result<SavedEdit, SaveError>, Problem> {
    let AdminRequest { visit, services, admin } = request;
    let mut tries = 0;
    loop {
        tries += 1;
        let current = services.tuning.current();
        let wanted = draft(&current.live.access.settings().in_force(visit.now()));
        let checked = check(admin, Edit::Access(wanted, admin.saver())).await?;
        let saved = save_unrecorded(admin, checked, &current.version, reason).await;
        let overtaken = matches!(saved, Err(SaveError::Stale { .. }));
        if !overtaken || tries == MOST_TRIES {
            detail["from"] = current.version.into();
            record_save(admin, act, detail, &saved);
            return Ok(saved);
        }
    }
}

async fn page(
    request: &AdminRequest,
    mut form: Option<AnswerForm>,
    problem: Option<FormProblem>,
) -> WebResult {
    let AdminRequest { visit, services, .. } = request;
    let now = visit.now();
    if let Some((form, origin)) = form.as_mut().and_then(|form| form.origin().map(|origin| (form, origin))) {
        form.told = Some(OriginReport::of(services, origin, now).await?);
    }
    let settings = services.live.snapshot().access.settings().in_force(now);
    let mut rows = AnswerRow::all(&settings, now, visit.locale);
    let lines: Vec<String> = rows.iter().map(|row| row.line.clone()).collect();
    for (row, origin) in rows.iter_mut().zip(services.tuning.access_origins(&lines).await?) {
        row.origin = origin;
    }
    let fixed = services.live.overridden().keys_of(LiveSection::Access).collect();
    let mut page = AccessPage::new(request.layout(HERE), rows, form, problem, fixed);
    page.saved = saved(request).await?;
    Ok(page.respond(visit))
}

/// What the reader has just put in force, or has ended.
async fn saved(request: &AdminRequest) -> Result<Vec<AnswerRow>, WebError> {
    let ended = request.visit.flash == Some(Flash::AccessEnded);
    if !ended && request.visit.flash != Some(Flash::AccessSaved) {
        return Ok(Vec::new());
    }
    let Some([before, after]) = newest_of(request).await? else { return Ok(Vec::new()) };
    let (here, there) = if ended { (before, after) } else { (after, before) };
    let Ok(config) = crate::config::parse(std::path::Path::new("history"), &here.access, &[]) else {
        return Ok(Vec::new());
    };
    let now = request.visit.now();
    let mut rows = AnswerRow::all(&config.live.access.settings().in_force(now), now, request.visit.locale);
    rows.retain(|row| !there.access.contains(&row.line));
    Ok(rows)
}

/// The longest reason of an entry, in characters.
const LONGEST_ENTRY_REASON: usize = 200;
/// An hour, unless another choice was made.
const USUAL: Duration = Duration::from_secs(60 * 60);

pub struct AnswerRow {
    pub answer: AccessAnswer,
    pub subject: String,
    pub until: Moment,
    pub left: String,
    reason: Option<String>,
    /// The entry as the history has it.
    pub line: String,
    /// The author and time of the entry; None if that is not recorded yet.
    pub origin: Option<AccessOrigin>,
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
            origin: None,
        };
        let everyone = settings.challenge_everyone_until.map(|until| {
            let line = format!("challenge_everyone_until = \"{}\"", moment_text(until));
            row(AccessAnswer::Challenge, String::new(), until, None, line)
        });
        let denied = settings
            .deny
            .iter()
            .map(|it| row(AccessAnswer::Deny, it.subject.to_string(), it.until, Some(&it.reason), it.line()));
        let allowed = settings.allow.iter().map(|it| {
            row(AccessAnswer::Allow, it.network.to_string(), it.until, Some(&it.reason), it.line())
        });
        let paused = settings
            .pause_sms
            .iter()
            .map(|it| row(AccessAnswer::Pause, it.prefix.clone(), it.until, Some(&it.reason), it.line()));
        everyone.into_iter().chain(denied).chain(paused).chain(allowed).collect()
    }

    /// Its own; if it has none, that of the change which put it in force.
    fn reason(&self) -> Option<&str> {
        let of_change = || self.origin.as_ref()?.reason.as_deref();
        self.reason.as_deref().or_else(of_change)
    }

    fn title(&self, locale: &Locale) -> Cow<'static, str> {
        match self.answer.key_of(&self.subject) {
            "origin" => locale.t("answers.is-deny-origin"),
            _ => locale.named_word("answers", &format!("is-{}", self.answer.into_str())),
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

pub struct AnswerForm {
    answer: AccessAnswer,
    subject: String,
    span: String,
    pub reason: String,
    /// What the record says of the origin that it is about.
    pub told: Option<OriginReport>,
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
            told: None,
            first: false,
            mistakes: Vec::new(),
        }
    }

    pub fn chosen(answer: AccessAnswer, subject: &str) -> Self {
        let subject = subject.chars().take(64).collect();
        Self { subject, first: true, ..Self::new(answer) }
    }

    pub fn typed(answer: AccessAnswer, subject: &str, span: &str, reason: &str) -> Self {
        let reason = reason.trim().chars().take(LONGEST_ENTRY_REASON + 1).collect();
        let span = span.chars().take(16).collect();
        Self { span, reason, ..Self::chosen(answer, subject) }
    }

    /// The origin that it refuses; None if it is about something else.
    fn origin(&self) -> Option<OriginKey> {
        (self.answer == AccessAnswer::Deny).then(|| self.subject.parse().ok())?
    }

    /// How long it lasts; None if it is no choice of this form.
    pub fn lasts(&self) -> Option<Duration> {
        self.answer.spans().find(|span| span.as_secs().to_string() == self.span)
    }

    pub fn check(&mut self, locale: Locale) {
        if self.reason.is_empty() {
            self.wrong(FormPart::Reason, locale.t("draft.reason-missing"), None);
        } else if self.reason.chars().count() > LONGEST_ENTRY_REASON || !is_seen_whole(&self.reason) {
            self.wrong(FormPart::Reason, locale.t("answers.reason-wrong"), None);
        }
        if self.lasts().is_none() {
            self.wrong(FormPart::Span, locale.t("answers.span-wrong"), None);
        }
    }

    pub fn refused(&mut self, locale: Locale, errors: Vec<DraftError>) {
        for DraftError { field, message, .. } in errors {
            let part = match field.rsplit('.').next() {
                Some("network" | "origin" | "prefix") => FormPart::Subject,
                Some("until") => FormPart::Span,
                Some("reason") => FormPart::Reason,
                _ => FormPart::Whole,
            };
            if self.mistake(part).is_some() {
                continue;
            }
            let right = match (part, self.answer) {
                (FormPart::Subject, AccessAnswer::Pause) => "answers.prefix-wrong",
                (FormPart::Subject, answer) => match answer.key_of(&self.subject) {
                    "origin" => "answers.origin-wrong",
                    _ => "answers.network-wrong",
                },
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
        self.answer.into_str()
    }

    /// What it is, what it is about, or what its button says.
    fn word(&self, locale: &Locale, part: &str) -> Cow<'static, str> {
        locale.named_word("answers", &format!("{}{part}", self.id()))
    }

    const fn subject_keys(&self) -> (&'static str, &'static str) {
        match self.answer {
            AccessAnswer::Pause => ("answers.prefix", "answers.prefix-hint"),
            AccessAnswer::Deny => ("answers.network-or-origin", "answers.network-or-origin-hint"),
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

#[derive(Template)]
#[template(path = "pages/admin/access.html")]
pub struct AccessPage {
    pub layout: Layout,
    rows: Vec<AnswerRow>,
    forms: Vec<AnswerForm>,
    problem: Option<FormProblem>,
    fixed: Vec<&'static str>,
    pub saved: Vec<AnswerRow>,
}

impl AccessPage {
    pub fn new(
        mut layout: Layout,
        rows: Vec<AnswerRow>,
        form: Option<AnswerForm>,
        problem: Option<FormProblem>,
        fixed: Vec<&'static str>,
    ) -> Self {
        let chosen = form.as_ref().map(|form| form.answer);
        layout.mistaken = form.as_ref().is_some_and(AnswerForm::has_mistakes);
        let others = AccessAnswer::VARIANTS.iter().copied().filter(|answer| Some(*answer) != chosen);
        let forms = form.into_iter().chain(others.map(AnswerForm::new)).collect();
        Self { layout, rows, forms, problem, fixed, saved: Vec::new() }
    }

    fn respond(&self, visit: &PageRequest) -> HttpResponse {
        let status = match &self.problem {
            Some(problem) => problem.status(),
            None if self.layout.mistaken => StatusCode::UNPROCESSABLE_ENTITY,
            None => StatusCode::OK,
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

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "version": "5d1f0c2a9b3e",
    "deny": [{ "network": "203.0.113.0/24", "until": "2026-12-01T18:00:00Z", "reason": "a flood of guesses" }],
    "allow": [],
    "challenge_everyone_until": "2026-12-01T12:00:00Z",
    "pause_sms": [{ "prefix": "+86138", "until": "2026-12-01T12:00:00Z", "reason": "pumping" }]
}))]
struct AccessInForce {
    /// The version, as in ETag. It covers the whole document, so it also changes when limits are saved.
    version: String,
    /// Networks and origins whose requests are refused.
    #[schema(value_type = Vec<DescribedDenial>)]
    deny: Vec<AccessDenial>,
    /// Networks for which the limits of addresses and networks are ten times as high.
    allow: Vec<AccessNetwork>,
    /// Until then everybody but known devices solves a CAPTCHA; empty: nobody does because of this.
    challenge_everyone_until: String,
    /// Prefixes of numbers that get no message.
    pause_sms: Vec<SmsPause>,
}

// An entry of `deny` in the description of the API; its comments are part of that.
#[derive(ToSchema)]
#[schema(as = AccessDenial)]
#[expect(dead_code, reason = "it says what AccessDenial is in JSON")]
struct DescribedDenial {
    /// A CIDR or one address. Not wider than an IPv4 /8 or an IPv6 /19, and no trusted proxy. Left out where there is an
    /// origin.
    network: Option<String>,
    /// `asn:` and a number, `country:` and two letters, or `list:` and a name, as the files in `[origins]` tell it. Left
    /// out where there is a network.
    origin: Option<String>,
    #[schema(format = DateTime)]
    until: String,
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
}

/// The answers to an attack that are in force
///
/// Without those that have ended.
#[utoipa::path(
    get,
    path = "/api/v1/admin/access",
    operation_id = "showAccess",
    tag = "admin",
    responses((
        status = 200,
        description = "What is in force on the instance that answers.",
        body = AccessInForce,
        headers(("Version"))
    )),
)]
pub async fn api_show(_: Permitted, services: ServicesData) -> HttpResponse {
    let current = services.tuning.current();
    let in_force = current.live.access.settings().in_force(services.audit.now());
    let AccessSettings { deny, allow, challenge_everyone_until, pause_sms } = in_force;
    let body = AccessInForce {
        version: current.version.clone(),
        deny,
        allow,
        challenge_everyone_until: challenge_everyone_until.map(moment_text).unwrap_or_default(),
        pause_sms,
    };
    in_force_response(&current.version, body)
}

/// What is left out is set to nothing.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "challenge_everyone_until": "2026-12-01T12:00:00Z", "reason": "A spray over many names."
}))]
pub struct AccessRequest {
    #[schema(value_type = Option<Vec<DescribedDenial>>)]
    deny: Option<Value>,
    #[schema(value_type = Option<Vec<AccessNetwork>>)]
    allow: Option<Value>,
    /// RFC 3339, or empty.
    #[schema(value_type = Option<String>)]
    challenge_everyone_until: Option<Value>,
    #[schema(value_type = Option<Vec<SmsPause>>)]
    pause_sms: Option<Value>,
    #[schema(value_type = ChangeReason)]
    reason: String,
}

/// Replace the answers to an attack
///
/// They replace all that were set. A new entry must end later than now, and `deny` must not contain the caller's own
/// address, nor its origin. `GET /api/v1/admin/origins/{origin}` tells how many honest people an origin has. An entry that
/// has ended is dropped. What is set by an environment variable of the server cannot be changed.
#[utoipa::path(
    put,
    path = "/api/v1/admin/access",
    operation_id = "saveAccess",
    tag = "admin",
    params(Precondition),
    request_body = AccessRequest,
    responses(DocumentSaved),
    extensions(("x-problems" = json!(["precondition-required", "precondition-failed", "not-saved"])))
)]
pub async fn api_save(
    permitted: Permitted,
    request: HttpRequest,
    wanted: UnreadBody<AccessRequest, DOCUMENT_LIMIT>,
) -> Result<HttpResponse, Problem> {
    let (admin, wanted) = permitted.read(wanted).await?;
    let seen = if_match(&request, &admin)?;
    let reason = checked_reason(&wanted.reason)?.to_owned();
    let AccessRequest { deny, allow, challenge_everyone_until, pause_sms, .. } = wanted;
    let parts = [
        ("deny", deny),
        ("allow", allow),
        ("challenge_everyone_until", challenge_everyone_until),
        ("pause_sms", pause_sms),
    ];
    let parts = parts.into_iter().filter_map(|(key, part)| Some((key.to_owned(), part?)));
    let draft = Value::Object(parts.collect::<Map<_, _>>());
    let checked = check(&admin, Edit::Access(draft, admin.saver())).await?;
    save_response(save_edit(&admin, "access.save", checked, &seen, &reason).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_added_once_and_taken_away_whole() {
        let now = Micros(1_772_366_400_000_000);
        let read = |draft: &Value| {
            let text = toml::to_string(&json!({ "access": draft })).unwrap();
            let config = crate::config::parse(std::path::Path::new("t.toml"), &text, &[]).unwrap();
            config.live.access.settings().clone()
        };
        for (answer, subject) in [
            (AccessAnswer::Challenge, ""),
            (AccessAnswer::Deny, " 203.0.113.7 "),
            (AccessAnswer::Deny, " asn:064496 "),
            (AccessAnswer::Deny, "country:de"),
            (AccessAnswer::Allow, "2001:db8::/32"),
            (AccessAnswer::Pause, "+86138"),
        ] {
            let none = AccessSettings::default();
            let once = read(&answer.added_to(&none, subject, now, "an attack"));
            let later = now.plus(Duration::from_secs(60));
            let twice = read(&answer.added_to(&once, subject, later, "it goes on"));
            assert_eq!(twice, read(&answer.added_to(&none, subject, later, "it goes on")), "{answer:?}");
            assert_eq!(read(&answer.taken_from(&twice, subject)), none, "{answer:?}");
            assert_eq!(answer.into_str().parse(), Ok(answer));
            assert!(
                answer.spans().any(|span| span == Duration::from_secs(3600)),
                "an hour is the usual choice"
            );
        }
    }
}
