//! Drafts of one part of the document, from a page or a call: how they are read, saved and recorded, the editor of one as
//! TOML, and the page of a draft that came too late.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_MATCH};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::Serialize;
use serde_json::{Value, json};
use strum::{EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;

use super::guard::Admin;
use super::{LONGEST_REASON, confirm};
use crate::config::{LiveHandle, line_diff};
use crate::tuning::{DocumentDraft, DocumentEdit, DraftError, SaveError, SavedDraft};
use crate::web::form::value;
use crate::web::http::{Flash, Layout, Locale, PageRequest, Problem, Services, WebError, WebResult};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentPart {
    Limits,
    Apps,
}

/// Its names and places, and the words of its editor as keys.
pub struct PartWords {
    /// In the document.
    pub key: &'static str,
    /// Where a saved draft leads to.
    pub page: &'static str,
    /// Where all of it is edited.
    pub editor: &'static str,
    /// The name of a save in the record of events.
    pub act: &'static str,
    pub saved: Flash,
    pub title: &'static str,
    pub back: &'static str,
    pub lead: &'static str,
    pub label: &'static str,
    pub hint: &'static str,
    pub attempt: &'static str,
}

impl DocumentPart {
    pub const fn words(self) -> PartWords {
        match self {
            Self::Limits => PartWords {
                key: "limits",
                page: "/admin/limits",
                editor: "/admin/limits/toml",
                act: "limits.save",
                saved: Flash::LimitsSaved,
                title: "limit-page.as-toml",
                back: "limit-page.back",
                lead: "draft.toml-lead",
                label: "draft.toml",
                hint: "draft.toml-hint",
                attempt: "draft.try",
            },
            Self::Apps => PartWords {
                key: "apps",
                page: "/admin/apps",
                editor: "/admin/apps/edit",
                act: "apps.save",
                saved: Flash::AppsSaved,
                title: "apps-page.edit-title",
                back: "apps-page.back",
                lead: "apps-page.edit-lead",
                label: "apps-page.toml",
                hint: "apps-page.toml-hint",
                attempt: "apps-page.try",
            },
        }
    }

    pub fn read(self, live: &LiveHandle, draft: DocumentDraft<'_>) -> Result<DocumentEdit, Vec<DraftError>> {
        match self {
            Self::Limits => DocumentEdit::limits(draft),
            Self::Apps => live.read_apps(draft),
        }
    }
}

/// The button that submitted a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Act {
    /// Also the effect of Enter: it changes nothing.
    #[default]
    Try,
    Save,
    AddRule,
    RemoveRule(usize),
    RestoreDefault,
}

impl Act {
    fn parse(word: &str) -> Self {
        match word {
            "save" => Self::Save,
            "add" => Self::AddRule,
            "default" => Self::RestoreDefault,
            _ => match word.strip_prefix("remove-").and_then(|index| index.parse().ok()) {
                Some(index) => Self::RemoveRule(index),
                None => Self::Try,
            },
        }
    }
}

/// How much recorded traffic is replayed for a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, IntoStaticStr, VariantArray)]
#[strum(const_into_str)]
pub enum Stretch {
    #[strum(serialize = "1h")]
    Hour,
    #[default]
    #[strum(serialize = "24h")]
    Day,
    #[strum(serialize = "7d")]
    Week,
}

impl Stretch {
    pub const fn key(self) -> &'static str {
        match self {
            Self::Hour => "draft.hour",
            Self::Day => "draft.day",
            Self::Week => "draft.week",
        }
    }

    pub const fn hours(self) -> u64 {
        match self {
            Self::Hour => 1,
            Self::Day => 24,
            Self::Week => 7 * 24,
        }
    }
}

/// Other fields of every form with a draft.
#[derive(Debug, Clone, Default)]
pub struct Controls {
    pub act: Act,
    /// The version in force when the page was opened.
    pub version: String,
    pub reason: String,
    pub stretch: Stretch,
    /// The reason is required but missing.
    pub reason_missing: bool,
}

impl Controls {
    pub fn read(pairs: &[(String, String)]) -> Self {
        let text = |name: &str| value(pairs, name).to_owned();
        Self {
            act: Act::parse(value(pairs, "do")),
            version: text("version"),
            reason: text("reason")
                .trim()
                .chars()
                .filter(|letter| !letter.is_control())
                .take(LONGEST_REASON)
                .collect(),
            stretch: value(pairs, "stretch").parse().unwrap_or_default(),
            reason_missing: false,
        }
    }
}

impl DraftError {
    /// The rule's index and the name of its part, if the mistake is about a rule.
    pub fn rule_part(&self) -> Option<(usize, &str)> {
        let (_, rest) = self.field.rsplit_once("rules[")?;
        let (index, part) = rest.split_once(']')?;
        Some((index.parse().ok()?, part.strip_prefix('.').unwrap_or(part)))
    }

    /// The expected value, in the reader's language; None if only the message describes it.
    pub fn right(&self, locale: Locale) -> Option<Cow<'static, str>> {
        let key = match self.rule_part()?.1 {
            "max" => "draft.right-max",
            "window" => "draft.right-window",
            "timezone" => "draft.right-zone",
            "per" => "draft.right-span",
            "then" => "draft.right-then",
            _ => return None,
        };
        Some(locale.t(key))
    }
}

/// Why a draft is shown again.
#[derive(Debug, Clone, Default)]
pub enum EditorNotice {
    #[default]
    None,
    /// The form is not ours, or too old.
    Expired,
    /// Saving failed; the text is the backend's error.
    NotSaved(String),
}

/// All of a part of the document as TOML, as in the file.
#[derive(Debug, Clone)]
pub struct TomlDraft {
    pub part: DocumentPart,
    pub toml: String,
    pub controls: Controls,
    pub mistakes: Vec<DraftError>,
    pub notice: EditorNotice,
}

impl TomlDraft {
    pub const fn new(part: DocumentPart, toml: String, controls: Controls) -> Self {
        Self { part, toml, controls, mistakes: Vec::new(), notice: EditorNotice::None }
    }

    pub fn is_mistaken(&self) -> bool {
        self.controls.reason_missing || !self.mistakes.is_empty()
    }

    pub fn status(&self) -> StatusCode {
        status(&self.controls, &self.mistakes, &self.notice)
    }

    pub const fn words(&self) -> PartWords {
        self.part.words()
    }

    pub fn lines(&self) -> usize {
        self.toml.lines().count().clamp(12, 40)
    }
}

pub fn status(controls: &Controls, mistakes: &[DraftError], notice: &EditorNotice) -> StatusCode {
    match notice {
        EditorNotice::Expired => StatusCode::FORBIDDEN,
        EditorNotice::NotSaved(_) => StatusCode::SERVICE_UNAVAILABLE,
        EditorNotice::None if mistakes.is_empty() && !controls.reason_missing => StatusCode::OK,
        EditorNotice::None => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// Somebody else saved meanwhile: shows what is in force, the draft, and how to go on.
#[derive(Template)]
#[template(path = "pages/admin/stale.html")]
pub struct StalePage {
    layout: Layout,
    part: DocumentPart,
    was: String,
    now: String,
    diff: Vec<DiffLine>,
    draft: String,
    reason: String,
}

impl StalePage {
    /// `diff` leads from what is in force to the draft.
    pub fn new(
        visit: &PageRequest,
        user: &str,
        part: DocumentPart,
        controls: &Controls,
        now: String,
        diff: Vec<DiffLine>,
        draft: String,
    ) -> Self {
        let layout = visit.layout(part.words().page, Some(user));
        let Controls { version, reason, .. } = controls;
        Self { layout, part, was: version.clone(), now, diff, draft, reason: reason.clone() }
    }

    pub fn respond(&self, visit: &PageRequest) -> HttpResponse {
        visit.page(StatusCode::PRECONDITION_FAILED, self)
    }
}

pub enum Submitted {
    /// It was refused or saved.
    Answered(HttpResponse),
    Try(TomlDraft),
}

/// `page` renders the editor with the draft.
pub async fn submitted(
    part: DocumentPart,
    visit: &PageRequest,
    admin: &Admin,
    services: &Services,
    pairs: &[(String, String)],
    page: &dyn Fn(TomlDraft) -> HttpResponse,
) -> Result<Submitted, WebError> {
    // Browsers submit lines that end in CR LF.
    let toml = confirm::value(pairs, "toml").replace("\r\n", "\n");
    let draft = TomlDraft::new(part, toml, Controls::read(pairs));
    if !admin.sends_own_form(visit, services, pairs) {
        return Ok(Submitted::Answered(page(TomlDraft { notice: EditorNotice::Expired, ..draft })));
    }
    if draft.controls.act != Act::Save {
        return Ok(Submitted::Try(draft));
    }
    let again = |controls: &Controls, mistakes, notice| {
        page(TomlDraft { controls: controls.clone(), mistakes, notice, ..draft.clone() })
    };
    let saving = DraftSave { part, visit, services, admin, action: part.words().editor, pairs };
    saving.save(&draft.toml, draft.controls.clone(), &again).await.map(Submitted::Answered)
}

pub struct DraftSave<'a> {
    pub part: DocumentPart,
    pub visit: &'a PageRequest,
    pub services: &'a Services,
    pub admin: &'a Admin,
    pub action: &'a str,
    pub pairs: &'a [(String, String)],
}

impl DraftSave<'_> {
    /// `again` renders the page with the draft as typed.
    pub async fn save(
        &self,
        draft: &str,
        controls: Controls,
        again: &dyn Fn(&Controls, Vec<DraftError>, EditorNotice) -> HttpResponse,
    ) -> WebResult {
        let DraftSave { part, visit, services, admin, action, pairs } = *self;
        let toml = draft.to_owned();
        let edit = read_draft(services, admin, move |live| {
            let edit = part.read(live, DocumentDraft::Toml(&toml))?;
            live.check(&edit).map(|_| edit)
        });
        let edit = match edit.await? {
            Ok(edit) if !controls.reason.is_empty() => edit,
            edit => {
                let reason_missing = controls.reason.is_empty();
                let mistakes = edit.err().unwrap_or_default();
                return Ok(again(&Controls { reason_missing, ..controls }, mistakes, EditorNotice::None));
            }
        };
        let act = async {
            let (words, Controls { version, reason, .. }) = (part.words(), &controls);
            Ok(match save_edit(services, admin, words.act, Ok(edit), version, reason).await {
                Ok(_) => visit.see_other(words.page, Some(words.saved)),
                Err(SaveError::Stale { version, diff, .. }) => {
                    let diff = lines(&diff);
                    StalePage::new(visit, admin.login(), part, &controls, version, diff, draft.to_owned())
                        .respond(visit)
                }
                Err(SaveError::Invalid(mistakes)) => again(&controls, mistakes, EditorNotice::None),
                Err(SaveError::Backend(reason)) => {
                    again(&controls, Vec::new(), EditorNotice::NotSaved(reason))
                }
                // Only a change of the history can be missing, and none is asked for.
                Err(SaveError::NoSuchChange) => visit.see_other(words.page, None),
                Err(SaveError::Db(error)) => return Err(error.into()),
            })
        };
        confirm::confirmed(visit, services, admin, action, pairs, act).await
    }
}

/// About as long as another draft or trial takes.
pub const BUSY_RETRY: Duration = Duration::from_secs(5);
/// Of a version and of a change, in an event.
const LONGEST_NAME: usize = 32;

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "version": "5d1f0c2a9b3e", "changed": true }))]
pub struct DocumentSaved {
    version: String,
    /// Whether anything differs from before.
    changed: bool,
}

/// A draft in a body of its own.
pub enum DraftBody {
    Toml(String),
    Json(Value),
}

impl DraftBody {
    pub fn draft(&self) -> DocumentDraft<'_> {
        match self {
            Self::Toml(text) => DocumentDraft::Toml(text),
            Self::Json(value) => DocumentDraft::Json(value),
        }
    }
}

/// Reads a draft when it is the caller's turn, and not on the thread that serves everybody.
pub async fn read_draft<T: Send + 'static>(
    services: &Services,
    admin: &Admin,
    read: impl FnOnce(&LiveHandle) -> T + Send + 'static,
) -> Result<T, Problem> {
    let live = services.live.clone();
    let read = services.tuning.read_draft(&admin.reader(), move || read(&live)).await;
    read.ok_or(Problem::Unavailable { retry_after: BUSY_RETRY })
}

/// A part of the document as it was sent: one of JSON and TOML.
pub struct SentDraft {
    pub part: DocumentPart,
    pub json: Option<Value>,
    pub toml: Option<String>,
}

impl SentDraft {
    pub fn body(self) -> Result<DraftBody, Problem> {
        let key = self.part.words().key;
        match (self.json, self.toml) {
            (Some(value), None) => Ok(DraftBody::Json(value)),
            (None, Some(toml)) => Ok(DraftBody::Toml(toml)),
            (Some(_), Some(_)) => {
                Err(Problem::wrong("toml", format!("Send either toml or {key}, not both.")))
            }
            (None, None) => Err(Problem::wrong(key, format!("Missing; send {key} or toml."))),
        }
    }

    /// Replaces that part of the document.
    pub async fn save(
        self,
        services: &Services,
        admin: &Admin,
        request: &HttpRequest,
        reason: &str,
    ) -> Result<HttpResponse, Problem> {
        let seen = if_match(request, &services.tuning.version())?;
        let reason = checked_reason(reason)?;
        let (part, body) = (self.part, self.body()?);
        let edit = read_draft(services, admin, move |live| part.read(live, body.draft())).await?;
        save_response(save_edit(services, admin, part.words().act, edit, &seen, reason).await)
    }
}

/// Puts a draft in force, if it has no mistakes, and records that under the name `act`.
pub async fn save_edit(
    services: &Services,
    admin: &Admin,
    act: &str,
    edit: Result<DocumentEdit, Vec<DraftError>>,
    seen: &str,
    reason: &str,
) -> Result<SavedDraft, SaveError> {
    let saved = match edit {
        Ok(edit) => services.tuning.save(edit, seen, admin.by(&admin.id()), reason).await,
        Err(mistakes) => Err(SaveError::Invalid(mistakes)),
    };
    record_save(services, admin, act, json!({ "reason": reason, "from": seen }), &saved);
    saved
}

/// Records what somebody did, or would have done.
pub fn record_save(
    services: &Services,
    admin: &Admin,
    act: &str,
    mut detail: Value,
    saved: &Result<SavedDraft, SaveError>,
) {
    // Sent by the caller, and as long as they like: none of ours is longer than this.
    for name in ["from", "change"] {
        if let Some(text) = detail.get(name).and_then(Value::as_str).filter(|text| text.len() > LONGEST_NAME)
        {
            detail[name] = text.chars().take(LONGEST_NAME).chain(['…']).collect::<String>().into();
        }
    }
    let refused = match saved {
        Ok(saved) => {
            detail["to"] = saved.version.clone().into();
            return admin.did(services, act, &detail);
        }
        Err(SaveError::Stale { .. }) => "stale",
        Err(SaveError::Invalid(_) | SaveError::NoSuchChange) => "invalid",
        Err(SaveError::Backend(_)) => "home",
        Err(SaveError::Db(_)) => "database",
    };
    detail["why"] = refused.into();
    admin.failed(services, act, &detail);
}

pub fn save_response(saved: Result<SavedDraft, SaveError>) -> Result<HttpResponse, Problem> {
    match saved {
        Ok(SavedDraft { version, changed, .. }) => {
            let tag = etag(&version);
            Ok(HttpResponse::Ok().insert_header((ETAG, tag)).json(DocumentSaved { version, changed }))
        }
        Err(SaveError::Stale { version, diff }) => Err(Problem::PreconditionFailed { version, diff }),
        Err(SaveError::Invalid(errors)) => Err(Problem::invalid_draft(errors)),
        Err(SaveError::Backend(reason)) => Err(Problem::NotSaved { reason }),
        Err(SaveError::NoSuchChange) => {
            Err(Problem::wrong("change", "Not in the history; use an id from there."))
        }
        Err(SaveError::Db(error)) => Err(error.into()),
    }
}

/// The version that the caller has seen (RFC 9110, 13.1.1). `*` names none.
pub fn if_match(request: &HttpRequest, current: &str) -> Result<String, Problem> {
    let fields = request.headers().get_all(IF_MATCH).filter_map(|value| value.to_str().ok());
    let tags: Vec<&str> = fields
        .flat_map(|field| field.split(','))
        .filter_map(|tag| tag.trim().strip_prefix('"')?.strip_suffix('"'))
        .collect();
    let known = tags.iter().find(|tag| **tag == current).or_else(|| tags.first());
    known.map(|tag| (*tag).to_owned()).ok_or(Problem::PreconditionRequired)
}

pub fn checked_reason(text: &str) -> Result<&str, Problem> {
    let text = text.trim();
    let fits = !text.is_empty()
        && text.chars().count() <= LONGEST_REASON
        && !text.chars().any(|letter| letter.is_control() && letter != '\n');
    let wrong = || Problem::wrong("reason", format!("Give a reason of 1 to {LONGEST_REASON} characters."));
    if fits { Ok(text) } else { Err(wrong()) }
}

fn etag(version: &str) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("hexadecimal digits")
}

/// What is in force with this version.
pub fn in_force_response(version: &str, body: impl Serialize) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((ETAG, etag(version))).insert_header((CACHE_CONTROL, "no-cache")).json(body)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffLine {
    pub kind: DiffKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffKind {
    Same,
    Added,
    Removed,
    /// Omitted lines.
    Gap,
}

pub fn between(old: &str, new: &str) -> Vec<DiffLine> {
    lines(&line_diff(old, new).unified_diff().context_radius(2).to_string())
}

/// The lines of a unified diff without the names of its files.
pub fn lines(unified: &str) -> Vec<DiffLine> {
    let body = unified.lines().filter(|line| !line.starts_with("--- ") && !line.starts_with("+++ "));
    let body = body.filter(|line| !line.starts_with('\\'));
    let mut lines: Vec<DiffLine> = body.map(line).collect();
    if lines.first().is_some_and(|first| first.kind == DiffKind::Gap) {
        lines.remove(0);
    }
    lines
}

fn line(line: &str) -> DiffLine {
    let (kind, text) = match line.chars().next() {
        Some('+') => (DiffKind::Added, &line[1..]),
        Some('-') => (DiffKind::Removed, &line[1..]),
        Some('@') => (DiffKind::Gap, "…"),
        Some(' ') => (DiffKind::Same, &line[1..]),
        _ => (DiffKind::Same, line),
    };
    DiffLine { kind, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
    }

    #[test]
    fn enter_tries_and_never_saves() {
        assert_eq!(Controls::read(&pairs("max-0=3")).act, Act::Try);
        assert_eq!(Controls::read(&pairs("do=remove-2")).act, Act::RemoveRule(2));
        assert_eq!(Controls::read(&pairs("do=save&reason=+ca%00lm+")).reason, "calm");
    }

    #[test]
    fn a_mistake_is_found_at_its_field() {
        let field = "limits.custom.reply.rules[3].window".to_owned();
        let mistake = DraftError { field, message: "is not a duration".to_owned(), line: Some(4) };
        assert_eq!(mistake.rule_part(), Some((3, "window")));
        assert!(mistake.right(Locale::En).is_some());
        let field = "limits.sms-phone.rules[1]".to_owned();
        assert_eq!(DraftError { field, ..mistake }.rule_part(), Some((1, "")));
    }

    #[test]
    fn a_diff_is_shown_without_its_machinery() {
        let unified = "--- old\n+++ new\n@@ -1,2 +1,2 @@\n [limits]\n-max = 3\n+max = 5\n@@ -9 +9 @@\n+x\n\\ No newline\n";
        let shown: Vec<_> = lines(unified).into_iter().map(|line| (line.kind, line.text)).collect();
        let expected = [
            (DiffKind::Same, "[limits]"),
            (DiffKind::Removed, "max = 3"),
            (DiffKind::Added, "max = 5"),
            (DiffKind::Gap, "…"),
            (DiffKind::Added, "x"),
        ];
        assert_eq!(shown, expected.map(|(kind, text)| (kind, text.to_owned())));
    }
}
