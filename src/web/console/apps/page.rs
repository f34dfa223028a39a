//! `/admin/apps`: who may use which application; and its editor, where a draft is tried before it is saved.

use actix_web::http::StatusCode;

use super::check::checks;
use super::trial::{TrialOutcome, tried};
use super::view::{AppsEditPage, AppsPage};
use crate::tuning::DocumentDraft;
use crate::web::console::confirm::carried::{self, FormPairs};
use crate::web::console::document::draft::{Act, Controls};
use crate::web::console::document::part::DocumentPart;
use crate::web::console::document::saving::Saving;
use crate::web::console::document::view::Word;
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
    let page = AppsEditPage::new(&visit, admin.login(), current.toml, controls);
    Ok(page.overridden(current.overridden).respond(&visit))
}

/// `POST /admin/apps/edit`
pub async fn submit(
    visit: Visit,
    admin: Admin,
    form: UnreadBody<FormPairs, DOCUMENT_LIMIT>,
    services: Shared,
) -> WebResult {
    let pairs = form.read_form().await?;
    let (part, controls) = (DocumentPart::Apps, Controls::read(&pairs));
    // Browsers submit lines that end in CR LF.
    let draft = carried::value(&pairs, "toml").replace("\r\n", "\n");
    let overridden = services.live.overridden_apps();
    let page = |controls: &Controls| {
        AppsEditPage::new(&visit, admin.login(), draft.clone(), controls.clone()).overridden(overridden)
    };
    if !visit.admits_form(&controls.csrf_token) {
        admin.was_foreign(&services, visit.pattern());
        return Ok(page(&controls).word(Word::Expired).respond(&visit));
    }
    if controls.act == Act::Save {
        let again = |controls: &Controls, mistakes, word| {
            page(controls).mistakes(mistakes).word(word).respond(&visit)
        };
        let action = part.editor();
        return Saving { part, visit: &visit, services: &services, admin: &admin, action, pairs: &pairs }
            .save(&draft, controls, &again)
            .await;
    }
    Ok(match tried(&services, DocumentDraft::Toml(&draft)).await? {
        TrialOutcome::Tried(tried) => page(&controls).trial(tried).respond(&visit),
        TrialOutcome::Busy => page(&controls).busy().respond(&visit),
        TrialOutcome::Mistaken(mistakes) => page(&controls).mistakes(mistakes).respond(&visit),
    })
}
