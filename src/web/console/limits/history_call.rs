//! `GET /api/v1/admin/limits/history`: what was in force before.

use actix_web::HttpResponse;
use actix_web::web::Query;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::tuning::{ChangeCursor, LimitsChange};
use crate::web::console::permitted::{Permitted, ReadLimits};
use crate::web::kit::describe::{ADMIN, SCOPED};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::wait::Moment;

/// Changes on a page where nothing else is asked for, and at most.
const USUAL: u32 = 20;
const MOST: u32 = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryPage {
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
    params(HistoryPage),
    responses((status = 200, description = "A page of them.", body = LimitChanges)),
    security(("session" = []), ("token" = ["limits:read"])),
    extensions(("x-problems" = json!([ADMIN, SCOPED, "invalid-input"])))
)]
pub async fn history(
    _: Permitted<ReadLimits>,
    page: Query<HistoryPage>,
    services: Shared,
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
