//! A draft that was submitted, and how it is saved: its mistakes, the reason, the password, and what to do if somebody
//! else was faster.

use actix_web::HttpResponse;

use super::call::{read_draft, record_save, save_edit};
use super::diff;
use super::draft::{Act, Controls};
use super::part::DocumentPart;
use super::view::{EditorNotice, StalePage, TomlDraft};
use crate::tuning::{DocumentDraft, DraftError, NotWritten, SaveError};
use crate::web::console::confirm::carried;
use crate::web::console::guard::Admin;
use crate::web::kit::services::Services;
use crate::web::kit::visit::Visit;
use crate::web::kit::web_error::{WebError, WebResult};

/// A form of a TOML editor.
pub enum Submitted {
    /// It was refused or saved.
    Answered(HttpResponse),
    Try(TomlDraft),
}

/// `page` renders the editor with the draft.
pub async fn submitted(
    part: DocumentPart,
    visit: &Visit,
    admin: &Admin,
    services: &Services,
    pairs: &[(String, String)],
    page: &dyn Fn(TomlDraft) -> HttpResponse,
) -> Result<Submitted, WebError> {
    // Browsers submit lines that end in CR LF.
    let toml = carried::value(pairs, "toml").replace("\r\n", "\n");
    let draft = TomlDraft::new(part, toml, Controls::read(pairs));
    if !visit.admits_form(&draft.controls.csrf_token) {
        admin.was_foreign(services, visit.pattern());
        return Ok(Submitted::Answered(page(TomlDraft { notice: EditorNotice::Expired, ..draft })));
    }
    if draft.controls.act != Act::Save {
        return Ok(Submitted::Try(draft));
    }
    let again = |controls: &Controls, mistakes, notice| {
        page(TomlDraft { controls: controls.clone(), mistakes, notice, ..draft.clone() })
    };
    let saving = DraftSave { part, visit, services, admin, action: part.editor(), pairs };
    saving.save(&draft.toml, draft.controls.clone(), &again).await.map(Submitted::Answered)
}

/// A draft to be saved.
pub struct DraftSave<'a> {
    pub part: DocumentPart,
    pub visit: &'a Visit,
    pub services: &'a Services,
    pub admin: &'a Admin,
    /// The target of the form.
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
            live.check(&edit).map(|()| edit)
        });
        let edit = match edit.await? {
            Ok(edit) if !controls.reason.is_empty() => edit,
            edit => {
                let reason_missing = controls.reason.is_empty();
                let mistakes = edit.err().unwrap_or_default();
                return Ok(again(&Controls { reason_missing, ..controls }, mistakes, EditorNotice::None));
            }
        };
        let confirmed = carried::require(visit, services, admin, action, pairs).await?;
        let answer = async {
            let Controls { version, reason, .. } = &controls;
            let saved = save_edit(services, admin, Ok(edit), version, reason).await;
            let detail = serde_json::json!({ "reason": reason, "from": version });
            record_save(services, admin, part.act(), detail, &saved);
            Ok(match saved {
                Ok(_) => visit.see_other(part.page(), Some(part.saved())),
                Err(SaveError::NotWritten(NotWritten::Stale { version, diff, .. })) => {
                    let diff = diff::lines(&diff);
                    StalePage::new(visit, admin.login(), part, &controls, version, diff, draft.to_owned())
                        .respond(visit)
                }
                Err(SaveError::NotWritten(NotWritten::Invalid(mistakes))) => {
                    again(&controls, mistakes, EditorNotice::None)
                }
                Err(SaveError::NotWritten(NotWritten::Backend(reason))) => {
                    again(&controls, Vec::new(), EditorNotice::NotSaved(reason))
                }
                // Only a change of the history can be missing, and none is asked for.
                Err(SaveError::NoSuchChange) => visit.see_other(part.page(), None),
                Err(SaveError::Db(error)) => return Err(error.into()),
            })
        };
        confirmed.finish(visit, services.session_lasts, answer.await)
    }
}
