//! The history of the limits: who changed them, when and why: every earlier set of them, and the rollback to one, as
//! pages and as calls.

use actix_web::http::StatusCode;
use actix_web::web::{Path, Query};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use crate::config::limits_toml;
use crate::db::DbError;
use crate::tuning::{ChangeCursor, CurrentLimits, LimitsChange, SaveError, SavedDraft};
use crate::web::console::confirm;
use crate::web::console::document::{
    self, Controls, DiffKind, DiffLine, DocumentSaved, Precondition, all_mistakes, checked_reason, if_match,
    record_save, save_response,
};
use crate::web::console::guard::{Admin, AdminForm, AdminRequest, Permitted};
use crate::web::console::{FormProblem, read_cursor, read_filter};
use crate::web::form::{FormPairs, value};
use crate::web::http::describe::ChangeReason;
use crate::web::http::{
    ErrorKind, ErrorPage, Flash, Layout, Problem, Services, ServicesData, UnreadBody, WebError, WebResult,
};

const HERE: &str = "/admin/limits/history";
const A_PAGE: u32 = 20;

/// `GET /admin/limits/history`
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let before = ChangeCursor::parse(value(&query, "before"));
    let here = |before: &ChangeCursor| format!("{HERE}?before={before}");
    let layout = request.layout(before.as_ref().map_or_else(|| HERE.to_owned(), here));
    let later = before.is_some();
    let current = request.services.tuning.current();
    let (changes, next) = changes(&request.services, &current, before, A_PAGE).await?;
    let page = HistoryPage { layout, changes, older: next.as_ref().map(here), later };
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// At most `limit` changes, each with its difference from the previous one, and the cursor of the next page.
pub async fn changes(
    services: &Services,
    current: &CurrentLimits,
    before: Option<ChangeCursor>,
    limit: u32,
) -> Result<(Vec<ChangeRow>, Option<ChangeCursor>), DbError> {
    let first = before.is_none();
    let (found, earlier, next) = read(services, before, limit).await?;
    let before_it = found.iter().skip(1).chain(&earlier).map(whole).chain([String::new()]);
    let diffs: Vec<_> = found
        .iter()
        .zip(before_it)
        .map(|(change, earlier)| document::between(&earlier, &whole(change)))
        .collect();
    let row = |(index, (change, diff)): (usize, (LimitsChange, Vec<DiffLine>))| {
        let current = first && index == 0 && change.version == current.version;
        ChangeRow { change, diff, current }
    };
    Ok((found.into_iter().zip(diffs).enumerate().map(row).collect(), next))
}

/// At most `limit` changes, the one before them, and the cursor of the next page, if there is one.
async fn read(
    services: &Services,
    before: Option<ChangeCursor>,
    limit: u32,
) -> Result<(Vec<LimitsChange>, Option<LimitsChange>, Option<ChangeCursor>), DbError> {
    let mut found = services.tuning.history(before, limit + 1).await?;
    let earlier = (found.len() > limit as usize).then(|| found.pop()).flatten();
    let next = earlier.as_ref().and(found.last()).map(LimitsChange::cursor);
    Ok((found, earlier, next))
}

/// The newest change of the reader's own, after the one that it followed; None if others have changed much since.
pub async fn newest_of(request: &AdminRequest) -> Result<Option<[LimitsChange; 2]>, DbError> {
    let (found, reader) = (request.services.tuning.history(None, A_PAGE).await?, request.admin.id());
    let own = found.windows(2).find(|pair| pair[0].actor.as_deref() == Some(&reader));
    Ok(own.map(|pair| [pair[1].clone(), pair[0].clone()]))
}

fn whole(change: &LimitsChange) -> String {
    let parts = [&change.access, &change.apps, &change.document];
    let parts: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

/// `GET /admin/limits/history/{change}`: shows what a rollback would change, before it is done.
pub async fn ask(request: AdminRequest, change: Path<String>) -> WebResult {
    Ok(request.visit.page(StatusCode::OK, &rollback_page(&request, &change).await?))
}

async fn rollback_page(request: &AdminRequest, id: &str) -> Result<RollbackPage, WebError> {
    let tuning = &request.services.tuning;
    let current = tuning.current();
    let change = tuning.change(id).await?.ok_or_else(|| nothing(request))?;
    Ok(RollbackPage {
        layout: request.layout(format!("{HERE}/{}", change.id)),
        diff: document::between(&limits_toml(&current.document), &change.document),
        change,
        controls: Controls::at(&current.version),
    })
}

fn nothing(request: &AdminRequest) -> HttpResponse {
    ErrorPage::new(request.layout(HERE), ErrorKind::NotFound).respond(&request.visit)
}

/// Saves the limits of an earlier change again, and records that.
async fn roll_back(admin: &Admin, change: &str, seen: &str, reason: &str) -> Result<SavedDraft, SaveError> {
    let saved = admin.services.tuning.rollback(change, seen, admin.author(reason)).await;
    let detail = json!({ "reason": reason, "from": seen, "change": change });
    record_save(admin, "limits.rollback", detail, &saved);
    saved
}

/// `POST /admin/limits/rollback`
pub async fn rollback(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let (controls, id) = (Controls::read(pairs), value(pairs, "change"));
    let again = async |problem: FormProblem| -> WebResult {
        let mut page = rollback_page(request, id).await?;
        page.layout.mistaken = problem == FormProblem::ReasonMissing;
        let status = problem.status();
        (page.controls.reason, page.controls.problem) = (controls.reason.clone(), Some(problem));
        Ok(request.visit.page(status, &page))
    };
    if !posted.is_ours() {
        return again(FormProblem::Expired).await;
    }
    if controls.reason.is_empty() {
        return again(FormProblem::ReasonMissing).await;
    }
    let act = Box::pin(async {
        match roll_back(&request.admin, id, &controls.version, &controls.reason).await {
            Ok(saved) => {
                let flash = document::told(&saved, Flash::LimitsRestored);
                Ok(request.visit.see_other("/admin/limits", Some(flash)))
            }
            Err(SaveError::Stale { .. }) => again(FormProblem::Stale).await,
            Err(SaveError::Invalid(errors)) => again(FormProblem::Refused(all_mistakes(&errors))).await,
            Err(SaveError::Backend(reason)) => again(FormProblem::Refused(reason)).await,
            Err(SaveError::NoSuchChange) => Ok(nothing(request)),
            Err(SaveError::Db(error)) => Err(error.into()),
        }
    });
    confirm::confirmed(&posted, act).await
}

pub struct ChangeRow {
    pub change: LimitsChange,
    pub diff: Vec<DiffLine>,
    /// In force now, so there is no rollback to it.
    pub current: bool,
}

#[derive(Template)]
#[template(path = "pages/admin/history.html")]
pub struct HistoryPage {
    pub layout: Layout,
    pub changes: Vec<ChangeRow>,
    pub older: Option<String>,
    /// The list does not begin with the newest change.
    pub later: bool,
}

/// Asks for a reason before a rollback to an earlier set.
#[derive(Template)]
#[template(path = "pages/admin/rollback.html")]
pub struct RollbackPage {
    pub layout: Layout,
    pub change: LimitsChange,
    pub diff: Vec<DiffLine>,
    pub controls: Controls,
}

/// Changes on a page where nothing else is asked for, and at most.
const USUAL: u32 = 20;
const MOST: u32 = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryPageQuery {
    /// `next` of the page before.
    before: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    limit: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "changes": [{
    "id": "1f0c2a9b3e5d7788", "at": "2026-11-21T10:00:00Z", "version": "5d1f0c2a9b3e", "previous": "a9b3e5d1f0c2",
    "actor": "3f0e", "login": "boss", "reason": "An attack on numbers of one operator.",
    "toml": "[limits.sms-phone]\nrules = [{ max = 1, window = \"1m\" }]\n"
}] }))]
struct LimitChanges {
    changes: Vec<LimitsChange>,
    /// For `before` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// All limits that were in force, newest first
#[utoipa::path(
    get,
    path = "/api/v1/admin/limits/history",
    operation_id = "listLimitChanges",
    tag = "admin",
    params(HistoryPageQuery),
    responses((status = 200, description = "A page of them.", body = LimitChanges)),
    extensions(("x-problems" = json!(["invalid-input"])))
)]
pub async fn api_history(
    _: Permitted,
    page: Query<HistoryPageQuery>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let before = read_cursor(page.before.as_deref(), "before", ChangeCursor::parse)?;
    let size = |text: &str| text.parse().ok().filter(|size| (1..=MOST).contains(size));
    let limit = read_filter(page.limit.as_deref(), "limit", "Use 1 to 100.", size)?;
    let (changes, _, next) = read(&services, before, limit.unwrap_or(USUAL)).await?;
    Ok(HttpResponse::Ok().json(LimitChanges { changes, next: next.map(|next| next.to_string()) }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "change": "1f0c2a9b3e5d7788", "reason": "The attack is over." }))]
pub struct RollbackRequest {
    /// The id of a change in the history.
    change: String,
    #[schema(value_type = ChangeReason)]
    reason: String,
}

/// Put limits of the history in force again
#[utoipa::path(
    post,
    path = "/api/v1/admin/limits/rollback",
    operation_id = "rollBackLimits",
    tag = "admin",
    params(Precondition),
    request_body = RollbackRequest,
    responses(DocumentSaved),
    extensions(("x-problems" = json!(["precondition-required", "precondition-failed", "not-saved"])))
)]
pub async fn api_rollback(
    permitted: Permitted,
    request: HttpRequest,
    back: UnreadBody<RollbackRequest>,
) -> Result<HttpResponse, Problem> {
    let (admin, back) = permitted.read(back).await?;
    let seen = if_match(&request, &admin)?;
    let reason = checked_reason(&back.reason)?;
    save_response(roll_back(&admin, &back.change, &seen, reason).await)
}
