//! `/admin/apps`: who may use which application; and its editor, where a draft is tried before it is saved.

use actix_web::http::StatusCode;
use actix_web::web::Query;
use serde::Deserialize;

use super::check::checks;
use super::trial::{TrialOutcome, tried};
use super::view::{AppsEditPage, AppsPage, ShownProxy};
use crate::gate::ProxyFile;
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

/// Which file of a proxy is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AppsQuery {
    proxy: String,
    /// The name of one application; all of them, if it is empty.
    app: String,
}

/// `GET /admin/apps`
pub async fn show(visit: Visit, admin: Admin, wanted: Query<AppsQuery>, services: Shared) -> WebResult {
    let current = services.tuning.current_apps();
    let apps = &current.live.apps;
    let proxy = ProxyFile::parse(&wanted.proxy).unwrap_or(ProxyFile::Nginx);
    let only = (!wanted.app.is_empty()).then_some(wanted.app.as_str());
    let files = proxy.with_companion().map(|file| file.print(&services.server, apps, only));
    let shown = ShownProxy { proxy, app: wanted.app.clone(), files: files.collect() };
    let checks = checks(&services.accounts, apps).await?;
    Ok(visit.page(StatusCode::OK, &AppsPage::new(&visit, admin.login(), current.version, checks, shown)))
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
