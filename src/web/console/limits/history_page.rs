//! `/admin/limits/history`: every earlier set of limits, and the rollback to one of them.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Path, Query};
use serde::Deserialize;

use crate::db::DbError;
use crate::tuning::{ChangeCursor, CurrentLimits, LimitsChange, NotWritten, SaveError};
use crate::web::console::confirm::carried::{self, FormPairs};
use crate::web::console::document::call::record_save;
use crate::web::console::document::diff;
use crate::web::console::document::draft::Controls;
use crate::web::console::guard::Admin;
use crate::web::console::limits::history_view::{ChangeRow, HistoryPage, RollbackPage, RollbackProblem};
use crate::web::kit::error_page::{ErrorKind, ErrorPage};
use crate::web::kit::flash::Flash;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::Moment;
use crate::web::kit::web_error::WebError;
use crate::web::kit::web_error::WebResult;

const HERE: &str = "/admin/limits/history";
const A_PAGE: u32 = 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HistoryQuery {
    before: String,
}

/// `GET /admin/limits/history`
pub async fn show(visit: Visit, admin: Admin, wanted: Query<HistoryQuery>, services: Shared) -> WebResult {
    let before = ChangeCursor::parse(&wanted.before);
    let here = before.as_ref().map_or_else(|| HERE.to_owned(), |before| format!("{HERE}?before={before}"));
    let later = before.is_some();
    let (rows, next) = changes(&services, &services.tuning.current(), before, A_PAGE).await?;
    let older = next.map(|next| format!("{HERE}?before={next}"));
    let page = HistoryPage::new(&visit, admin.login(), &here, rows, older, later);
    Ok(visit.page(StatusCode::OK, &page))
}

/// At most `limit` changes, each with its difference from the previous one, and the cursor of the next page.
pub async fn changes(
    services: &Services,
    current: &CurrentLimits,
    before: Option<ChangeCursor>,
    limit: u32,
) -> Result<(Vec<ChangeRow>, Option<ChangeCursor>), DbError> {
    // One more, because the last change is compared with the one before it.
    let first = before.is_none();
    let found = services.tuning.history(before, limit + 1).await?;
    let more = found.len() > limit as usize;
    let next = more.then(|| found.get(limit as usize - 1).map(LimitsChange::cursor)).flatten();
    let earlier = |index: usize| found.get(index + 1).map(whole).unwrap_or_default();
    let rows = found.iter().take(limit as usize).enumerate().map(|(index, change)| {
        let newest = first && index == 0;
        row(change, &earlier(index), newest && change.version == current.version)
    });
    Ok((rows.collect(), next))
}

/// Everything that a change put in force.
fn whole(change: &LimitsChange) -> String {
    let parts = [&change.access, &change.apps, &change.document];
    let parts: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn row(change: &LimitsChange, earlier: &str, current: bool) -> ChangeRow {
    ChangeRow {
        id: change.id.clone(),
        at: Moment(change.at),
        version: change.version.clone(),
        login: change.login.clone(),
        reason: change.reason.clone(),
        diff: diff::between(earlier, &whole(change)),
        current,
    }
}

/// `GET /admin/limits/history/{change}`: shows what a rollback would change, before it is done.
pub async fn ask(visit: Visit, admin: Admin, change: Path<String>, services: Shared) -> WebResult {
    Ok(visit.page(StatusCode::OK, &rollback_page(&visit, &services, &admin, &change).await?))
}

async fn rollback_page(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    id: &str,
) -> Result<RollbackPage, WebError> {
    let current = services.tuning.current();
    let change = services.tuning.change(id).await?.ok_or_else(|| nothing(visit, admin))?;
    let would = diff::between(&current.toml, &change.document);
    Ok(RollbackPage::new(visit, admin.login(), row(&change, "", false), would, current.version))
}

fn nothing(visit: &Visit, admin: &Admin) -> HttpResponse {
    ErrorPage::new(visit.layout(HERE, Some(admin.login())), ErrorKind::NotFound).respond(visit)
}

/// `POST /admin/limits/rollback`
pub async fn rollback(visit: Visit, admin: Admin, pairs: Form<FormPairs>, services: Shared) -> WebResult {
    let (controls, id) = (Controls::read(&pairs), carried::value(&pairs, "change").to_owned());
    let again = async |problem| {
        let page = rollback_page(&visit, &services, &admin, &id).await?;
        let status = match &problem {
            RollbackProblem::ReasonMissing | RollbackProblem::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            RollbackProblem::Stale => StatusCode::PRECONDITION_FAILED,
            RollbackProblem::Expired => StatusCode::FORBIDDEN,
        };
        Ok::<_, WebError>(visit.page(status, &page.problem(&controls.reason, problem)))
    };
    if !visit.admits_form(&controls.csrf_token) {
        admin.was_foreign(&services, visit.pattern());
        return again(RollbackProblem::Expired).await;
    }
    if controls.reason.is_empty() {
        return again(RollbackProblem::ReasonMissing).await;
    }
    let action = "/admin/limits/rollback";
    let confirmed = carried::require(&visit, &services, &admin, action, &pairs).await?;
    let answer = async {
        let (account, Controls { version, reason, .. }) = (admin.id(), &controls);
        let saved = services.tuning.rollback(&id, version, admin.by(&account), reason).await;
        let detail = serde_json::json!({ "reason": reason, "from": version, "change": id });
        record_save(&services, &admin, "limits.rollback", detail, &saved);
        Ok(match saved {
            Ok(_) => visit.see_other("/admin/limits", Some(Flash::LimitsRestored)),
            Err(SaveError::NotWritten(NotWritten::Stale { .. })) => again(RollbackProblem::Stale).await?,
            Err(SaveError::NotWritten(NotWritten::Invalid(errors))) => {
                let said: Vec<String> =
                    errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
                again(RollbackProblem::Refused(said.join("; "))).await?
            }
            Err(SaveError::NotWritten(NotWritten::Backend(reason))) => {
                again(RollbackProblem::Refused(reason)).await?
            }
            Err(SaveError::NoSuchChange) => nothing(&visit, &admin),
            Err(SaveError::Db(error)) => return Err(error.into()),
        })
    };
    let answer = answer.await;
    confirmed.finish(&visit, services.session_lasts, answer)
}
