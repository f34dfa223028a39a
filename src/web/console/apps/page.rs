//! `/admin/apps`: who may use which application; and its editor, where a draft is tried before it is saved.

use actix_web::http::StatusCode;

use super::check::checks;
use super::view::{AppsEditPage, AppsPage, AppsTrialView};
use crate::db::DbError;
use crate::web::console::confirm::carried::{self, FormPairs};
use crate::web::console::document::draft::{Act, Controls, Mistake};
use crate::web::console::document::part::DocumentPart;
use crate::web::console::document::saving::Saving;
use crate::web::console::document::view::Word;
use crate::web::console::guard::Admin;
use crate::web::kit::extract::{DOCUMENT_LIMIT, UnreadBody};
use crate::web::kit::services::{Services, Shared};
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
    Ok(match tried(&services, &draft).await? {
        Ok(trial) => page(&controls).trial(trial).respond(&visit),
        Err(mistakes) => page(&controls).mistakes(mistakes).respond(&visit),
    })
}

/// Whom a draft would let in and keep out, or all of its mistakes.
async fn tried(services: &Services, draft: &str) -> Result<Result<AppsTrialView, Vec<Mistake>>, DbError> {
    let after = match services.tuning.parse_apps(draft) {
        Ok(apps) => apps,
        Err(errors) => return Ok(Err(errors.into_iter().map(Mistake::from).collect())),
    };
    let before = services.live.snapshot();
    let trial = services.gate.compare(&services.accounts, &before.apps, &after).await?;
    Ok(Ok(AppsTrialView::new(trial, checks(&services.accounts, &after).await?)))
}
