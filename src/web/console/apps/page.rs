//! `/admin/apps`: who may use which application; and its editor, where a draft is tried before it is saved.

use actix_web::http::StatusCode;

use super::check::checks;
use super::trial::{TrialOutcome, tried};
use super::view::{AppsEditPage, AppsPage};
use crate::web::console::confirm::carried::FormPairs;
use crate::web::console::document::call::DraftBody;
use crate::web::console::document::draft::Controls;
use crate::web::console::document::part::DocumentPart;
use crate::web::console::document::saving::{Submitted, submitted};
use crate::web::console::document::view::TomlDraft;
use crate::web::console::guard::Admin;
use crate::web::kit::extract::{DOCUMENT_LIMIT, UnreadBody};
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Visit;
use crate::web::kit::web_error::WebResult;

/// `GET /admin/apps`
pub async fn show(visit: Visit, admin: Admin, services: Shared) -> WebResult {
    let current = services.tuning.current_apps();
    let checks = checks(&services.accounts, &current.live.apps).await?;
    Ok(visit.page(StatusCode::OK, &AppsPage::new(&visit, admin.login(), current.version, checks)))
}

/// `GET /admin/apps/edit`
pub async fn show_editor(visit: Visit, admin: Admin, services: Shared) -> WebResult {
    let current = services.tuning.current_apps();
    let controls = Controls { version: current.version, ..Controls::default() };
    let draft = TomlDraft::new(DocumentPart::Apps, current.toml, controls);
    Ok(AppsEditPage::new(&visit, admin.login(), draft, current.overridden).respond(&visit))
}

/// `POST /admin/apps/edit`
pub async fn submit(
    visit: Visit,
    admin: Admin,
    form: UnreadBody<FormPairs, DOCUMENT_LIMIT>,
    services: Shared,
) -> WebResult {
    let pairs = form.read_form().await?;
    let overridden = services.live.overridden_apps();
    let page = |draft| AppsEditPage::new(&visit, admin.login(), draft, overridden);
    let answer = |draft| page(draft).respond(&visit);
    match submitted(DocumentPart::Apps, &visit, &admin, &services, &pairs, &answer).await? {
        Submitted::Answered(answer) => Ok(answer),
        Submitted::Try(draft) => {
            let outcome = tried(&services, &admin, DraftBody::Toml(draft.toml.clone())).await?;
            Ok(match outcome {
                TrialOutcome::Tried(tried) => page(draft).trial(tried).respond(&visit),
                TrialOutcome::Busy => page(draft).busy().respond(&visit),
                TrialOutcome::Mistaken(mistakes) => answer(TomlDraft { mistakes, ..draft }),
            })
        }
    }
}
