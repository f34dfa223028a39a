//! `/admin/limits/edit/{limit}` and `/admin/limits/toml`: drafts, previewed and saved.

use actix_web::HttpResponse;
use actix_web::web::{Form, Path};

use crate::config::Limits;
use crate::throttle::Limit;
use crate::tuning::{CurrentLimits, with_limit};
use crate::web::console::confirm::carried::FormPairs;
use crate::web::console::document::call::read_draft;
use crate::web::console::document::draft::{Act, Controls};
use crate::web::console::document::part::DocumentPart;
use crate::web::console::document::saving::{DraftSave, Submitted, submitted};
use crate::web::console::document::view::{EditorNotice, TomlDraft};
use crate::web::console::guard::Admin;
use crate::web::console::limits::draft::{LimitForm, RuleRow};
use crate::web::console::limits::edit_view::{EditorPage, TomlPage};
use crate::web::console::limits::trial::tried;
use crate::web::kit::error_page::{ErrorKind, ErrorPage};
use crate::web::kit::extract::{DOCUMENT_LIMIT, UnreadBody};
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Visit;
use crate::web::kit::web_error::WebResult;

/// `GET /admin/limits/edit/{limit}`
pub async fn show(visit: Visit, admin: Admin, name: Path<String>, services: Shared) -> WebResult {
    let current = services.tuning.current();
    let limit = current.live.limits.get(&name).ok_or_else(|| nothing(&visit, &admin))?;
    Ok(editor(&visit, &admin, &current, limit).respond(&visit))
}

fn editor(visit: &Visit, admin: &Admin, current: &CurrentLimits, limit: &Limit) -> EditorPage {
    let overridden = current.is_overridden(limit.name());
    EditorPage::new(visit, admin.login(), limit.clone(), overridden, &current.version)
}

fn nothing(visit: &Visit, admin: &Admin) -> HttpResponse {
    let layout = visit.layout("/admin/limits", Some(admin.login()));
    ErrorPage::new(layout, ErrorKind::NotFound).respond(visit)
}

/// `POST /admin/limits/edit/{limit}`
pub async fn submit(
    visit: Visit,
    admin: Admin,
    name: Path<String>,
    pairs: Form<FormPairs>,
    services: Shared,
) -> WebResult {
    let current = services.tuning.current();
    let limit = current.live.limits.get(&name).cloned().ok_or_else(|| nothing(&visit, &admin))?;
    let (mut form, controls) = (LimitForm::read(&pairs), Controls::read(&pairs));
    let page = |form: &LimitForm, controls: &Controls| {
        editor(&visit, &admin, &current, &limit).typed(form.clone(), controls.clone())
    };
    if !visit.admits_form(&controls.csrf_token) {
        admin.was_foreign(&services, visit.pattern());
        return Ok(page(&form, &controls).notice(EditorNotice::Expired).respond(&visit));
    }
    match controls.act {
        Act::AddRule => form.rows.push(RuleRow::default()),
        Act::RemoveRule(index) if index < form.rows.len() => drop(form.rows.remove(index)),
        Act::RestoreDefault => {
            if let Some(default) = Limits::default().get(&name) {
                form = LimitForm::from(default);
            }
        }
        Act::RemoveRule(_) | Act::Try | Act::Save => {}
    }
    let (toml, table, limit_name) = (current.toml.clone(), form.toml(&name), name.to_string());
    let draft = read_draft(&services, &admin, move |_| with_limit(&toml, &limit_name, &table));
    let draft = match draft.await? {
        Ok(draft) => draft,
        Err(error) => return Ok(page(&form, &controls).mistakes(vec![error]).respond(&visit)),
    };
    match controls.act {
        Act::AddRule | Act::RemoveRule(_) | Act::RestoreDefault => Ok(page(&form, &controls).respond(&visit)),
        Act::Try => Ok(match tried(&services, &admin, draft, controls.stretch).await? {
            Ok(trial) => page(&form, &controls).preview(trial).respond(&visit),
            Err(mistakes) => page(&form, &controls).mistakes(mistakes).respond(&visit),
        }),
        Act::Save => {
            let action = format!("/admin/limits/edit/{name}");
            let again = |controls: &Controls, mistakes, notice| {
                page(&form, controls).mistakes(mistakes).notice(notice).respond(&visit)
            };
            let part = DocumentPart::Limits;
            DraftSave {
                part,
                visit: &visit,
                services: &services,
                admin: &admin,
                action: &action,
                pairs: &pairs,
            }
            .save(&draft, controls, &again)
            .await
        }
    }
}

/// `GET /admin/limits/toml`
pub async fn show_toml(visit: Visit, admin: Admin, services: Shared) -> WebResult {
    let current = services.tuning.current();
    let controls = Controls { version: current.version, ..Controls::default() };
    let draft = TomlDraft::new(DocumentPart::Limits, current.toml, controls);
    Ok(TomlPage::new(&visit, admin.login(), draft).respond(&visit))
}

/// `POST /admin/limits/toml`
pub async fn submit_toml(
    visit: Visit,
    admin: Admin,
    form: UnreadBody<FormPairs, DOCUMENT_LIMIT>,
    services: Shared,
) -> WebResult {
    let pairs = form.read_form().await?;
    let page = |draft| TomlPage::new(&visit, admin.login(), draft);
    let answer = |draft| page(draft).respond(&visit);
    match submitted(DocumentPart::Limits, &visit, &admin, &services, &pairs, &answer).await? {
        Submitted::Answered(answer) => Ok(answer),
        Submitted::Try(draft) => {
            let tried = tried(&services, &admin, draft.toml.clone(), draft.controls.stretch).await?;
            Ok(match tried {
                Ok(trial) => page(draft).preview(trial).respond(&visit),
                Err(mistakes) => answer(TomlDraft { mistakes, ..draft }),
            })
        }
    }
}
