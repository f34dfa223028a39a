//! Drafts of one part of the document, from a page or a call: how they are read, saved and recorded, the editor of one as
//! TOML, and the page of a draft that came too late.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, ETag, EntityTag, IF_MATCH};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, IntoResponses, ToSchema};

use super::guard::{Admin, AdminForm, AdminRequest};
use super::{FormProblem, LONGEST_REASON, RecordSpan, confirm};
use crate::config::{LiveHandle, line_diff};
use crate::tuning::{CheckedEdit, Draft, DraftError, Edit, LiveSection, SaveError, SavedEdit};
use crate::unseen::is_seen_whole;
use crate::web::form::value;
use crate::web::http::{Flash, Layout, Locale, PageRequest, Problem, WebResult};

/// A live section that has an editor: its places, and the words of the editor as keys.
#[derive(Debug)]
pub struct DocumentPart {
    pub section: LiveSection,
    pub page: &'static str,
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

pub static LIMITS: DocumentPart = DocumentPart {
    section: LiveSection::Limits,
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
};
pub static APPS: DocumentPart = DocumentPart {
    section: LiveSection::Apps,
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
};

pub static FACTORS: DocumentPart = DocumentPart {
    section: LiveSection::Factors,
    page: "/admin/factors",
    editor: "/admin/factors",
    act: "factor-rules.save",
    saved: Flash::FactorsSaved,
    title: "factors-page.title",
    back: "factors-page.title",
    lead: "factors-page.lead",
    label: "factors-page.title",
    hint: "factors-page.lead",
    attempt: "factors-page.try",
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Act {
    /// The act of a form that names no button, too: it changes nothing.
    #[default]
    Try,
    Save,
    AddRule,
    RemoveRule(usize),
    RestoreDefault,
    Delete,
}

impl Act {
    fn parse(word: &str) -> Self {
        match word {
            "save" | "enter" => Self::Save,
            "add" => Self::AddRule,
            "default" => Self::RestoreDefault,
            "delete" => Self::Delete,
            _ => match word.strip_prefix("remove-").and_then(|index| index.parse().ok()) {
                Some(index) => Self::RemoveRule(index),
                None => Self::Try,
            },
        }
    }
}

/// What every form with a draft has besides it, and what is wrong with it.
#[derive(Debug, Clone, Default)]
pub struct Controls {
    pub act: Act,
    /// The button as it was sent; empty if the page is first shown.
    pub pressed: String,
    /// The version in force when the page was opened.
    pub version: String,
    pub reason: String,
    /// How much recorded traffic is replayed.
    pub stretch: RecordSpan,
    /// Why the draft is shown again.
    pub problem: Option<FormProblem>,
    pub mistakes: Vec<DraftError>,
}

impl Controls {
    /// The controls of a page that is first shown.
    pub fn at(version: &str) -> Self {
        Self { version: version.to_owned(), ..Self::default() }
    }

    pub fn read(pairs: &[(String, String)]) -> Self {
        // Names that are typed to be added are added first, as by the button beside them.
        let adds = value(pairs, "do") == "enter" && !value(pairs, "more").trim().is_empty();
        Self {
            act: if adds { Act::Try } else { Act::parse(value(pairs, "do")) },
            pressed: value(pairs, "do").to_owned(),
            version: value(pairs, "version").to_owned(),
            reason: super::reason(pairs),
            stretch: RecordSpan::parse(value(pairs, "stretch")).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// A month is more than a replay can take.
    pub fn stretches(&self) -> &'static [RecordSpan] {
        &RecordSpan::ALL[..3]
    }

    pub fn lacks_reason(&self) -> bool {
        self.problem == Some(FormProblem::ReasonMissing)
    }

    /// Whether the focus goes back to this button: unless something else is to be read first.
    pub fn returns_to(&self, button: &str) -> bool {
        self.pressed == button && self.problem.is_none() && self.mistakes.is_empty()
    }

    pub fn is_mistaken(&self) -> bool {
        self.lacks_reason() || !self.mistakes.is_empty()
    }

    pub fn status(&self) -> StatusCode {
        match &self.problem {
            Some(problem) => problem.status(),
            None if self.mistakes.is_empty() => StatusCode::OK,
            None => StatusCode::UNPROCESSABLE_ENTITY,
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

/// All of them in one line.
pub fn all_mistakes(mistakes: &[DraftError]) -> String {
    let told = mistakes.iter().map(|mistake| match mistake.field.as_str() {
        "" => mistake.message.clone(),
        field => format!("{field}: {}", mistake.message),
    });
    told.collect::<Vec<_>>().join("; ")
}

/// What trying a draft gave.
#[derive(Clone, Default)]
pub enum Trial<T> {
    #[default]
    None,
    /// Why it failed; `said` is the error's own text.
    Unable {
        key: &'static str,
        said: Option<String>,
    },
    Done(T),
}

impl<T> Trial<T> {
    pub const BUSY: Self = Self::Unable { key: "preview.busy", said: None };
}

#[derive(Debug, Clone)]
pub struct TomlDraft {
    pub part: &'static DocumentPart,
    pub toml: String,
    pub controls: Controls,
}

impl TomlDraft {
    pub fn read(part: &'static DocumentPart, pairs: &[(String, String)]) -> Self {
        // Browsers submit lines that end in CR LF.
        let toml = value(pairs, "toml").replace("\r\n", "\n");
        Self { part, toml, controls: Controls::read(pairs) }
    }

    pub fn layout(&self, visit: &PageRequest, user: &str) -> Layout {
        let layout = visit.layout(self.part.editor, Some(user));
        Layout { mistaken: self.controls.is_mistaken(), ..layout }
    }

    pub fn edit(&self) -> Edit {
        Edit::Section(self.part.section, Draft::Toml(self.toml.clone()))
    }

    pub fn lines(&self) -> usize {
        self.toml.lines().count().clamp(12, 40)
    }
}

/// Somebody else saved meanwhile: shows what is in force, the draft, and how to go on.
#[derive(Template)]
#[template(path = "pages/admin/stale.html")]
pub struct StalePage {
    pub layout: Layout,
    pub part: &'static DocumentPart,
    /// The version that the draft was made from, and the one in force.
    pub was: String,
    pub now: String,
    /// From what is in force to the draft.
    pub diff: Vec<DiffLine>,
    pub draft: String,
    pub reason: String,
}

/// A submitted draft of a section: it is saved, tried with `attempt`, or only shown again. `page` renders its editor.
pub async fn submitted<T, const LIMIT: usize>(
    posted: &AdminForm<LIMIT>,
    (part, next): (&'static DocumentPart, &str),
    controls: Controls,
    edit: Edit,
    page: impl Fn(Controls, Trial<T>) -> HttpResponse,
    attempt: impl AsyncFnOnce(CheckedEdit) -> Result<Trial<T>, Problem>,
) -> WebResult {
    if !posted.is_ours() {
        return Ok(page(Controls { problem: Some(FormProblem::Expired), ..controls }, Trial::None));
    }
    let saves = match controls.act {
        Act::AddRule | Act::RemoveRule(_) | Act::RestoreDefault => return Ok(page(controls, Trial::None)),
        Act::Save | Act::Delete => true,
        Act::Try => false,
    };
    let again = |controls| page(controls, Trial::None);
    match check(&posted.request.admin, edit).await? {
        Ok(checked) if !saves => Ok(page(controls, attempt(checked).await?)),
        Ok(checked) if !controls.reason.is_empty() => {
            save_draft(posted, (part, next), checked, controls, &again).await
        }
        checked => {
            let problem = (saves && controls.reason.is_empty()).then_some(FormProblem::ReasonMissing);
            let mistakes = checked.err().map(SaveError::into_errors).unwrap_or_default();
            Ok(again(Controls { problem, mistakes, ..controls }))
        }
    }
}

/// Saves a draft that a form sent to where it is. `again` renders the page with the draft as typed.
async fn save_draft<const LIMIT: usize>(
    posted: &AdminForm<LIMIT>,
    (part, next): (&'static DocumentPart, &str),
    checked: CheckedEdit,
    controls: Controls,
    again: &dyn Fn(Controls) -> HttpResponse,
) -> WebResult {
    let request = &posted.request;
    let AdminRequest { visit, admin, .. } = request;
    let act = Box::pin(async {
        Ok(match save_edit(admin, part.act, Ok(checked), &controls.version, &controls.reason).await {
            Ok(saved) => visit.see_other(next, Some(told(&saved, part.saved))),
            Err(SaveError::Stale { version, diff, draft }) => {
                let page = StalePage {
                    layout: request.layout(part.page),
                    part,
                    was: controls.version,
                    now: version,
                    diff: lines(&diff),
                    draft,
                    reason: controls.reason,
                };
                visit.page(StatusCode::PRECONDITION_FAILED, &page)
            }
            Err(SaveError::Invalid(mistakes)) => again(Controls { mistakes, ..controls }),
            Err(error @ SaveError::Backend(_)) => again(Controls { problem: Some(error.into()), ..controls }),
        })
    });
    confirm::confirmed(posted, act).await
}

impl From<SaveError> for FormProblem {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::Stale { .. } => Self::Stale,
            SaveError::Invalid(mistakes) => Self::Refused(all_mistakes(&mistakes)),
            SaveError::Backend(reason) => Self::NotSaved(reason),
        }
    }
}

/// What the page says after a save.
pub const fn told(saved: &SavedEdit, flash: Flash) -> Flash {
    if saved.changed { flash } else { Flash::NothingChanged }
}

/// About as long as another draft or trial takes.
pub const BUSY_RETRY: Duration = Duration::from_secs(5);
/// The longest name of a version and of a change, in an event.
const LONGEST_NAME: usize = 32;

/// The headers of every call that saves a part of the document.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes a header, which `if_match` reads")]
pub struct Precondition {
    /// The ETag of the GET of the same. 428 without it.
    #[param(rename = "If-Match", example = "\"5d1f0c2a9b3e\"")]
    if_match: String,
}

/// In force on this instance, and on all within a second.
#[derive(Serialize, ToSchema, IntoResponses)]
#[schema(example = json!({ "version": "5d1f0c2a9b3e", "changed": true }))]
#[response(status = 200, headers(("Version")))]
pub struct DocumentSaved {
    version: String,
    /// Whether anything differs from before.
    changed: bool,
}

/// Reads a draft when it is the caller's turn, and not on the thread that serves everybody.
pub async fn read_draft<T: Send + 'static>(
    admin: &Admin,
    read: impl FnOnce(&LiveHandle) -> T + Send + 'static,
) -> Result<T, Problem> {
    let live = admin.services.live.clone();
    let read = admin.services.tuning.read_draft(&admin.reader(), move || read(&live)).await;
    read.ok_or(Problem::Unavailable { retry_after: BUSY_RETRY })
}

/// Checks an edit in the document in force, when it is the caller's turn; or returns all of its mistakes.
pub async fn check(admin: &Admin, edit: Edit) -> Result<Result<CheckedEdit, SaveError>, Problem> {
    read_draft(admin, move |live| live.check(edit)).await
}

/// A section as it was sent: one of JSON and TOML.
pub struct SentDraft {
    pub part: &'static DocumentPart,
    pub json: Option<Value>,
    pub toml: Option<String>,
}

impl SentDraft {
    /// Checks it in the document in force.
    pub async fn check(self, admin: &Admin) -> Result<Result<CheckedEdit, SaveError>, Problem> {
        let section = self.part.section;
        let key = section.name();
        let draft = match (self.json, self.toml) {
            (Some(value), None) => Draft::Json(value),
            (None, Some(toml)) => Draft::Toml(toml),
            (Some(_), Some(_)) => {
                return Err(Problem::wrong("toml", format!("Send either toml or {key}, not both.")));
            }
            (None, None) => return Err(Problem::wrong(key, format!("Missing; send {key} or toml."))),
        };
        check(admin, Edit::Section(section, draft)).await
    }

    /// Replaces that section of the document.
    pub async fn save(
        self,
        admin: &Admin,
        request: &HttpRequest,
        reason: &str,
    ) -> Result<HttpResponse, Problem> {
        let seen = if_match(request, admin)?;
        let reason = checked_reason(reason)?;
        let act = self.part.act;
        let checked = self.check(admin).await?;
        save_response(save_edit(admin, act, checked, &seen, reason).await)
    }
}

/// Puts an edit in force, if it has no mistakes, and records that under the name `act`.
pub async fn save_edit(
    admin: &Admin,
    act: &str,
    checked: Result<CheckedEdit, SaveError>,
    seen: &str,
    reason: &str,
) -> Result<SavedEdit, SaveError> {
    let saved = save_unrecorded(admin, checked, seen, reason).await;
    record_save(admin, act, json!({ "reason": reason, "from": seen }), &saved);
    saved
}

/// For an act that is recorded with more.
pub async fn save_unrecorded(
    admin: &Admin,
    checked: Result<CheckedEdit, SaveError>,
    seen: &str,
    reason: &str,
) -> Result<SavedEdit, SaveError> {
    admin.services.tuning.save(checked?, seen, admin.author(reason)).await
}

/// Records what somebody did, or would have done.
pub fn record_save(admin: &Admin, act: &str, mut detail: Value, saved: &Result<SavedEdit, SaveError>) {
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
            return admin.did(act, &detail);
        }
        Err(SaveError::Stale { .. }) => "stale",
        Err(SaveError::Invalid(_)) => "invalid",
        Err(SaveError::Backend(_)) => "backend",
    };
    detail["why"] = refused.into();
    admin.failed(act, &detail);
}

pub fn save_response(saved: Result<SavedEdit, SaveError>) -> Result<HttpResponse, Problem> {
    match saved {
        Ok(SavedEdit { version, changed, .. }) => {
            Ok(HttpResponse::Ok().insert_header(etag(&version)).json(DocumentSaved { version, changed }))
        }
        Err(SaveError::Stale { version, diff, .. }) => Err(Problem::PreconditionFailed { version, diff }),
        Err(SaveError::Invalid(errors)) => Err(Problem::invalid_draft(errors)),
        Err(SaveError::Backend(reason)) => Err(Problem::NotSaved { reason }),
    }
}

/// The version that the caller has seen (RFC 9110, 13.1.1). `*` names none.
pub fn if_match(request: &HttpRequest, admin: &Admin) -> Result<String, Problem> {
    let current = admin.services.tuning.version();
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
    let fits = text.chars().count() <= LONGEST_REASON && is_seen_whole(&text.replace('\n', " "));
    let wrong = || Problem::wrong("reason", format!("Give a reason of 1 to {LONGEST_REASON} characters."));
    if fits { Ok(text) } else { Err(wrong()) }
}

fn etag(version: &str) -> ETag {
    ETag(EntityTag::new_strong(version.to_owned()))
}

/// What is in force with this version.
pub fn in_force_response(version: &str, body: impl Serialize) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header(etag(version)).insert_header((CACHE_CONTROL, "no-cache")).json(body)
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
    let mut shown: String = text.chars().take(LONGEST_LINE).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    DiffLine { kind, text: shown }
}

/// In characters. A logo is a line of up to 87,000.
const LONGEST_LINE: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
    }

    #[test]
    fn what_names_no_button_tries_and_never_saves() {
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
