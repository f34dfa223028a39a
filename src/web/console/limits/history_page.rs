//! `/admin/limits/history`: every set of limits that was in force, and the return to one of them.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path, Query};
use serde::Deserialize;

use crate::db::DbError;
use crate::tuning::{ChangeCursor, CurrentLimits, LimitsChange, NotWritten, SaveError};
use crate::web::console::guard::{self, Admin};
use crate::web::console::limits::call::told;
use crate::web::console::limits::diff;
use crate::web::console::limits::draft::Controls;
use crate::web::console::limits::history_view::{ChangeRow, HistoryPage, RollbackPage, RollbackProblem};
use crate::web::console::lookup::password::{self, Pairs};
use crate::web::kit::error_page::broken;
use crate::web::kit::error_page::{ErrorKind, ErrorPage};
use crate::web::kit::flash::Flash;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Moment;

const HERE: &str = "/admin/limits/history";
const A_PAGE: u32 = 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Wanted {
    before: String,
}

/// `GET /admin/limits/history`
pub async fn show(visit: Visit, wanted: Query<Wanted>, services: Shared) -> HttpResponse {
    let admin = match guard::page::read(&visit, &services).await {
        Ok(admin) => admin,
        Err(response) => return response,
    };
    let before = ChangeCursor::parse(&wanted.before);
    let here = before.as_ref().map_or_else(|| HERE.to_owned(), |before| format!("{HERE}?before={before}"));
    let later = before.is_some();
    match changes(&services, &services.tuning.current(), before, A_PAGE).await {
        Ok((rows, next)) => {
            let older = next.map(|next| format!("{HERE}?before={next}"));
            let page = HistoryPage::new(&visit, admin.login(), &here, rows, older, later);
            visit.page(StatusCode::OK, &page)
        }
        Err(error) => broken(&visit, &error),
    }
}

/// At most `limit` changes, each beside the one before it, and where the next page begins.
pub async fn changes(
    services: &Services,
    current: &CurrentLimits,
    before: Option<ChangeCursor>,
    limit: u32,
) -> Result<(Vec<ChangeRow>, Option<ChangeCursor>), DbError> {
    // One more: what the last of them changed is told by the one before it.
    let first = before.is_none();
    let found = services.tuning.history(before, limit + 1).await?;
    let more = found.len() > limit as usize;
    let next = more.then(|| found.get(limit as usize - 1).map(LimitsChange::cursor)).flatten();
    let earlier = |index: usize| found.get(index + 1).map_or("", |change| change.document.as_str());
    let rows = found.iter().take(limit as usize).enumerate().map(|(index, change)| {
        let newest = first && index == 0;
        row(change, earlier(index), newest && change.version == current.version)
    });
    Ok((rows.collect(), next))
}

fn row(change: &LimitsChange, earlier: &str, current: bool) -> ChangeRow {
    ChangeRow {
        id: change.id.clone(),
        at: Moment(change.at),
        version: change.version.clone(),
        login: change.login.clone(),
        reason: change.reason.clone(),
        diff: diff::between(earlier, &change.document),
        current,
    }
}

/// `GET /admin/limits/history/{change}`: what going back would change, before it is done.
pub async fn ask(visit: Visit, change: Path<String>, services: Shared) -> HttpResponse {
    let admin = match guard::page::read(&visit, &services).await {
        Ok(admin) => admin,
        Err(response) => return response,
    };
    match rollback_page(&visit, &services, &admin, &change).await {
        Ok(page) => visit.page(StatusCode::OK, &page),
        Err(response) => response,
    }
}

async fn rollback_page(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    id: &str,
) -> Result<RollbackPage, HttpResponse> {
    let current = services.tuning.current();
    let change = services.tuning.change(id).await.map_err(|error| broken(visit, &error))?;
    let Some(change) = change else {
        return Err(
            ErrorPage::new(visit.layout(HERE, Some(admin.login())), ErrorKind::NotFound).respond(visit)
        );
    };
    let would = diff::between(&current.toml, &change.document);
    Ok(RollbackPage::new(visit, admin.login(), row(&change, "", false), would, current.version))
}

/// `POST /admin/limits/rollback`
pub async fn rollback(visit: Visit, pairs: Form<Pairs>, services: Shared) -> HttpResponse {
    let (controls, id) = (Controls::read(&pairs), password::value(&pairs, "change").to_owned());
    let admin = match guard::page::read(&visit, &services).await {
        Ok(admin) => admin,
        Err(response) => return response,
    };
    let again = async |problem| match rollback_page(&visit, &services, &admin, &id).await {
        Ok(page) => {
            let status = match &problem {
                RollbackProblem::ReasonMissing | RollbackProblem::Refused(_) => {
                    StatusCode::UNPROCESSABLE_ENTITY
                }
                RollbackProblem::Stale => StatusCode::PRECONDITION_FAILED,
                RollbackProblem::Expired => StatusCode::FORBIDDEN,
            };
            visit.page(status, &page.problem(&controls.reason, problem))
        }
        Err(response) => response,
    };
    if !visit.admits_form(&controls.csrf_token) {
        admin.was_foreign(&services, visit.pattern());
        return again(RollbackProblem::Expired).await;
    }
    if controls.reason.is_empty() {
        return again(RollbackProblem::ReasonMissing).await;
    }
    let shown = match password::shown(&visit, &services, &admin, "/admin/limits/rollback", &pairs).await {
        Ok(shown) => shown,
        Err(response) => return response,
    };
    let (account, Controls { version, reason, .. }) = (admin.id(), &controls);
    let saved = services.tuning.rollback(&id, version, admin.by(&account), reason).await;
    let detail = serde_json::json!({ "reason": reason, "from": version, "change": id });
    told(&services, &admin, "limits.rollback", detail, &saved);
    let response = match saved {
        Ok(_) => visit.see_other("/admin/limits", Some(Flash::LimitsRestored)),
        Err(SaveError::NotWritten(NotWritten::Stale { .. })) => again(RollbackProblem::Stale).await,
        Err(SaveError::NotWritten(NotWritten::Invalid(errors))) => {
            let said: Vec<String> =
                errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
            again(RollbackProblem::Refused(said.join("; "))).await
        }
        Err(SaveError::NotWritten(NotWritten::Backend(reason))) => {
            again(RollbackProblem::Refused(reason)).await
        }
        Err(SaveError::NoSuchChange) => {
            ErrorPage::new(visit.layout(HERE, Some(admin.login())), ErrorKind::NotFound).respond(&visit)
        }
        Err(SaveError::Db(error)) => broken(&visit, &error),
    };
    shown.finish(&visit, &services, response)
}
