//! What the calls share that save a part of the document: the version that was seen, the reason, the record, the answer.

use std::time::Duration;

use actix_web::http::header::{ETAG, HeaderValue, IF_MATCH};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::part::DocumentPart;
use crate::config::LiveHandle;
use crate::tuning::{DocumentDraft, DocumentEdit, DraftError, NotWritten, SaveError, SavedDraft};
use crate::web::console::LONGEST_REASON;
use crate::web::console::guard::Admin;
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Services;

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
        let key = self.part.key();
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
        let saved = save_edit(services, admin, edit, &seen, reason).await;
        record_save(services, admin, part.act(), json!({ "reason": reason, "from": seen }), &saved);
        save_response(saved)
    }
}

/// Puts a draft in force, if it has no mistakes.
pub async fn save_edit(
    services: &Services,
    admin: &Admin,
    edit: Result<DocumentEdit, Vec<DraftError>>,
    seen: &str,
    reason: &str,
) -> Result<SavedDraft, SaveError> {
    let edit = edit.map_err(NotWritten::Invalid)?;
    services.tuning.save(edit, seen, admin.by(&admin.id()), reason).await
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
        Err(SaveError::NotWritten(NotWritten::Stale { .. })) => "stale",
        Err(SaveError::NotWritten(NotWritten::Invalid(_)) | SaveError::NoSuchChange) => "invalid",
        Err(SaveError::NotWritten(NotWritten::Backend(_))) => "home",
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
        Err(SaveError::NotWritten(NotWritten::Stale { version, diff })) => {
            Err(Problem::PreconditionFailed { version, diff })
        }
        Err(SaveError::NotWritten(NotWritten::Invalid(errors))) => Err(Problem::invalid_draft(errors)),
        Err(SaveError::NotWritten(NotWritten::Backend(reason))) => Err(Problem::NotSaved { reason }),
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

pub fn etag(version: &str) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("hexadecimal digits")
}
