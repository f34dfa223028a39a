//! Who changed the limits, when and why: every earlier set of them, and the rollback to one, as pages and as calls.

use actix_web::http::StatusCode;
use actix_web::web::{Form, Path, Query};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use crate::db::DbError;
use crate::tuning::{ChangeCursor, CurrentLimits, LimitsChange, SaveError, SavedDraft};
use crate::web::console::confirm::{self, FormPairs};
use crate::web::console::document::{
    self, Controls, DiffKind, DiffLine, DocumentSaved, checked_reason, if_match, record_save, save_response,
};
use crate::web::console::guard::{Admin, Permitted, ReadLimits, SaveLimits};
use crate::web::http::describe::{ADMIN, BODY, CHANGE, ChangeReason, SCOPED};
use crate::web::http::{
    ErrorKind, ErrorPage, Flash, Layout, Moment, PageRequest, Problem, Services, ServicesData, UnreadBody,
    WebError, WebResult,
};

const HERE: &str = "/admin/limits/history";
const A_PAGE: u32 = 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HistoryQuery {
    before: String,
}

/// `GET /admin/limits/history`
pub async fn show(
    visit: PageRequest,
    admin: Admin,
    wanted: Query<HistoryQuery>,
    services: ServicesData,
) -> WebResult {
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
        diff: document::between(earlier, &whole(change)),
        current,
    }
}

/// `GET /admin/limits/history/{change}`: shows what a rollback would change, before it is done.
pub async fn ask(
    visit: PageRequest,
    admin: Admin,
    change: Path<String>,
    services: ServicesData,
) -> WebResult {
    Ok(visit.page(StatusCode::OK, &rollback_page(&visit, &services, &admin, &change).await?))
}

async fn rollback_page(
    visit: &PageRequest,
    services: &Services,
    admin: &Admin,
    id: &str,
) -> Result<RollbackPage, WebError> {
    let current = services.tuning.current();
    let change = services.tuning.change(id).await?.ok_or_else(|| nothing(visit, admin))?;
    let would = document::between(&current.limits_toml(), &change.document);
    Ok(RollbackPage::new(visit, admin.login(), row(&change, "", false), would, current.version))
}

fn nothing(visit: &PageRequest, admin: &Admin) -> HttpResponse {
    ErrorPage::new(visit.layout(HERE, Some(admin.login())), ErrorKind::NotFound).respond(visit)
}

/// Saves the limits of an earlier change again, and records that.
async fn roll_back(
    services: &Services,
    admin: &Admin,
    change: &str,
    seen: &str,
    reason: &str,
) -> Result<SavedDraft, SaveError> {
    let saved = services.tuning.rollback(change, seen, admin.by(&admin.id()), reason).await;
    let detail = json!({ "reason": reason, "from": seen, "change": change });
    record_save(services, admin, "limits.rollback", detail, &saved);
    saved
}

/// `POST /admin/limits/rollback`
pub async fn rollback(
    visit: PageRequest,
    admin: Admin,
    pairs: Form<FormPairs>,
    services: ServicesData,
) -> WebResult {
    let (controls, id) = (Controls::read(&pairs), confirm::value(&pairs, "change").to_owned());
    let again = async |problem| {
        let page = rollback_page(&visit, &services, &admin, &id).await?;
        let status = match &problem {
            RollbackProblem::ReasonMissing | RollbackProblem::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            RollbackProblem::Stale => StatusCode::PRECONDITION_FAILED,
            RollbackProblem::Expired => StatusCode::FORBIDDEN,
        };
        Ok::<_, WebError>(visit.page(status, &page.problem(&controls.reason, problem)))
    };
    if !admin.sends_own_form(&visit, &services, &pairs) {
        return again(RollbackProblem::Expired).await;
    }
    if controls.reason.is_empty() {
        return again(RollbackProblem::ReasonMissing).await;
    }
    let act = async {
        let Controls { version, reason, .. } = &controls;
        Ok(match roll_back(&services, &admin, &id, version, reason).await {
            Ok(_) => visit.see_other("/admin/limits", Some(Flash::LimitsRestored)),
            Err(SaveError::Stale { .. }) => again(RollbackProblem::Stale).await?,
            Err(SaveError::Invalid(errors)) => {
                let said: Vec<String> =
                    errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
                again(RollbackProblem::Refused(said.join("; "))).await?
            }
            Err(SaveError::Backend(reason)) => again(RollbackProblem::Refused(reason)).await?,
            Err(SaveError::NoSuchChange) => nothing(&visit, &admin),
            Err(SaveError::Db(error)) => return Err(error.into()),
        })
    };
    confirm::confirmed(&visit, &services, &admin, "/admin/limits/rollback", &pairs, act).await
}

/// One set of limits that was in force.
pub struct ChangeRow {
    pub id: String,
    pub at: Moment,
    pub version: String,
    /// None if the document was edited by hand.
    pub login: Option<String>,
    pub reason: Option<String>,
    /// The difference from the previous set.
    pub diff: Vec<DiffLine>,
    /// In force now, so there is no rollback to it.
    pub current: bool,
}

#[derive(Template)]
#[template(path = "pages/admin/history.html")]
pub struct HistoryPage {
    layout: Layout,
    changes: Vec<ChangeRow>,
    older: Option<String>,
    later: bool,
}

impl HistoryPage {
    /// `here` is the page with its query. `later`: the list does not begin with the newest change.
    pub fn new(
        visit: &PageRequest,
        user: &str,
        here: &str,
        changes: Vec<ChangeRow>,
        older: Option<String>,
        later: bool,
    ) -> Self {
        Self { layout: visit.layout(here, Some(user)), changes, older, later }
    }
}

/// Asks for a reason before a rollback to an earlier set.
#[derive(Template)]
#[template(path = "pages/admin/rollback.html")]
pub struct RollbackPage {
    layout: Layout,
    change: ChangeRow,
    /// The difference from the limits in force to that set.
    diff: Vec<DiffLine>,
    version: String,
    reason: String,
    problem: Option<RollbackProblem>,
}

pub enum RollbackProblem {
    ReasonMissing,
    /// The limits were changed since the page was opened.
    Stale,
    Expired,
    /// The set cannot be put in force; the text is the error.
    Refused(String),
}

impl RollbackPage {
    pub fn new(
        visit: &PageRequest,
        user: &str,
        change: ChangeRow,
        diff: Vec<DiffLine>,
        version: String,
    ) -> Self {
        let here = format!("/admin/limits/history/{}", change.id);
        let layout = visit.layout(here, Some(user));
        Self { layout, change, diff, version, reason: String::new(), problem: None }
    }

    pub fn problem(mut self, reason: &str, problem: RollbackProblem) -> Self {
        self.layout.mistaken = matches!(problem, RollbackProblem::ReasonMissing);
        (self.reason, self.problem) = (reason.to_owned(), Some(problem));
        self
    }
}

/// Changes on a page where nothing else is asked for, and at most.
const USUAL: u32 = 20;
const MOST: u32 = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryPageQuery {
    /// `next` of the page before.
    before: Option<String>,
    #[param(minimum = 1, maximum = 100, default = 20)]
    limit: Option<u32>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "changes": [{
    "id": "1f0c2a9b3e5d7788", "at": "2026-11-21T10:00:00Z", "version": "5d1f0c2a9b3e", "previous": "a9b3e5d1f0c2",
    "actor": "3f0e", "login": "boss", "reason": "An attack on numbers of one operator.",
    "toml": "[limits.sms-phone]\nrules = [{ max = 1, window = \"1m\" }]\n"
}] }))]
struct LimitChanges {
    changes: Vec<LimitChange>,
    /// For `before` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct LimitChange {
    id: String,
    #[schema(format = DateTime)]
    at: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    /// The id of the account; left out if the document was edited by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    /// Its name at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    toml: String,
    /// `[access]` at that time; left out if nothing was set.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    access: String,
    /// `[[apps]]` at that time; left out if there were none.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    apps: String,
}

impl From<LimitsChange> for LimitChange {
    fn from(change: LimitsChange) -> Self {
        let LimitsChange { id, at, version, previous, actor, login, reason, document, access, apps } = change;
        let (at, toml) = (Moment(at).iso(), document);
        Self { id, at, version, previous, actor, login, reason, toml, access, apps }
    }
}

/// All limits that were in force, newest first
#[utoipa::path(
    get,
    path = "/api/v1/admin/limits/history",
    operation_id = "listLimitChanges",
    tag = "admin",
    params(HistoryPageQuery),
    responses((status = 200, description = "A page of them.", body = LimitChanges)),
    security(("session" = []), ("token" = ["limits:read"])),
    extensions(("x-problems" = json!([ADMIN, SCOPED, "invalid-input"])))
)]
pub async fn api_history(
    _: Permitted<ReadLimits>,
    page: Query<HistoryPageQuery>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let before = match page.before.as_deref() {
        None | Some("") => None,
        Some(text) => Some(
            ChangeCursor::parse(text)
                .ok_or_else(|| Problem::wrong("before", "Use the value of next from the previous page."))?,
        ),
    };
    let limit = page.limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::wrong("limit", "Use 1 to 100."));
    }
    // One more than wanted says whether there is a next page.
    let found = services.tuning.history(before, limit + 1).await;
    let mut changes = found?;
    let more = changes.len() > limit as usize;
    changes.truncate(limit as usize);
    let next = changes.last().filter(|_| more).map(|last| last.cursor().to_string());
    Ok(HttpResponse::Ok()
        .json(LimitChanges { changes: changes.into_iter().map(LimitChange::from).collect(), next }))
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
    params((
        "If-Match" = String,
        Header,
        description = "The ETag of GET /api/v1/admin/limits. 428 without it.",
        example = "\"5d1f0c2a9b3e\""
    )),
    request_body = RollbackRequest,
    responses((
        status = 200,
        description = "In force on this instance, and on all within a second.",
        body = DocumentSaved,
        headers(("Version"))
    )),
    security(("session" = []), ("token" = ["limits:write"])),
    extensions(("x-problems" = json!([
        ADMIN, SCOPED, CHANGE, BODY, "precondition-required", "precondition-failed", "not-saved"
    ])))
)]
pub async fn api_rollback(
    Permitted { admin, .. }: Permitted<SaveLimits>,
    request: HttpRequest,
    back: UnreadBody<RollbackRequest>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let back = back.read().await?;
    let seen = if_match(&request, &services.tuning.version())?;
    let reason = checked_reason(&back.reason)?;
    save_response(roll_back(&services, &admin, &back.change, &seen, reason).await)
}
