//! `/api/v1/admin/apps`: the applications in force, a save of others, and whom these would let in and keep out.

use actix_web::http::header::{CACHE_CONTROL, ETAG};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::call_body::{AppBody, AppsPreview};
use super::trial::{TrialOutcome, tried};
use crate::web::console::document::call::{BUSY_RETRY, DocumentSaved, SentDraft, etag};
use crate::web::console::document::part::DocumentPart;
use crate::web::console::permitted::{Permitted, ReadApps, SaveApps, TryApps};
use crate::web::kit::describe::{ADMIN, BODY, CHANGE, ChangeReason, SCOPED};
use crate::web::kit::extract::{DOCUMENT_LIMIT, UnreadBody};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "version": "5d1f0c2a9b3e",
    "apps": [AppBody::example()],
    "toml": "[[apps]]\nname = \"wiki\"\nhosts = [\"wiki.example\"]\n",
    "overridden": false
}))]
struct AppsInForce {
    /// As in ETag. It covers the whole document, so it also changes when limits are saved.
    version: String,
    apps: Vec<AppBody>,
    /// `[[apps]]` of the document, with its comments.
    toml: String,
    /// Whether an environment variable of the server sets them, whatever the document says.
    overridden: bool,
}

/// The applications in force
#[utoipa::path(
    get,
    path = "/api/v1/admin/apps",
    operation_id = "showApps",
    tag = "admin",
    responses((
        status = 200,
        description = "What is in force on the instance that answers.",
        body = AppsInForce,
        headers(("Version"))
    )),
    security(("session" = []), ("token" = ["limits:read"])),
    extensions(("x-problems" = json!([ADMIN, SCOPED])))
)]
pub async fn show(_: Permitted<ReadApps>, services: Shared) -> HttpResponse {
    let current = services.tuning.current_apps();
    let tag = etag(&current.version);
    let body = AppsInForce {
        version: current.version,
        apps: current.live.apps.all().iter().map(|app| AppBody::from(&**app)).collect(),
        toml: current.toml,
        overridden: current.overridden,
    };
    HttpResponse::Ok().insert_header((ETAG, tag)).insert_header((CACHE_CONTROL, "no-cache")).json(body)
}

/// One of `apps` and `toml`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "apps": [AppBody::example()], "reason": "The wiki moves behind the gate." }))]
pub struct AppsRequest {
    #[schema(value_type = Option<Vec<AppBody>>)]
    apps: Option<Value>,
    /// Instead of apps: `[[apps]]` tables, with comments.
    toml: Option<String>,
    #[schema(value_type = ChangeReason)]
    reason: String,
}

/// Replace the applications
///
/// They replace all that were set; everything else in the document stays. What is set by an environment variable of the
/// server cannot be changed.
#[utoipa::path(
    put,
    path = "/api/v1/admin/apps",
    operation_id = "saveApps",
    tag = "admin",
    params((
        "If-Match" = String,
        Header,
        description = "The ETag of GET /api/v1/admin/apps. 428 without it.",
        example = "\"5d1f0c2a9b3e\""
    )),
    request_body = AppsRequest,
    responses((
        status = 200,
        description = "In force on this instance, and on all within a second.",
        body = DocumentSaved,
        headers(("Version"))
    )),
    security(("session" = []), ("token" = ["apps:write"])),
    extensions(("x-problems" = json!([
        ADMIN, SCOPED, CHANGE, BODY, "precondition-required", "precondition-failed", "not-saved"
    ])))
)]
pub async fn save(
    Permitted { admin, .. }: Permitted<SaveApps>,
    request: HttpRequest,
    wanted: UnreadBody<AppsRequest, DOCUMENT_LIMIT>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let wanted = wanted.read().await?;
    let AppsRequest { apps, toml, reason } = wanted;
    sent(apps, toml).save(&services, &admin, &request, &reason).await
}

/// One of `apps` and `toml`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "apps": [AppBody::example()] }))]
pub struct AppsPreviewRequest {
    #[schema(value_type = Option<Vec<AppBody>>)]
    apps: Option<Value>,
    /// Instead of apps: `[[apps]]` tables.
    toml: Option<String>,
}

/// Who could get in with other applications
///
/// It compares them with those in force and changes nothing. The database counts accounts that may sign in.
#[utoipa::path(
    post,
    path = "/api/v1/admin/apps/preview",
    operation_id = "previewApps",
    tag = "admin",
    request_body = AppsPreviewRequest,
    responses((status = 200, description = "Hosts and paths for which something changes.", body = AppsPreview)),
    security(("session" = []), ("token" = ["apps:write"])),
    extensions(("x-problems" = json!([ADMIN, SCOPED, "csrf", BODY])))
)]
pub async fn preview(
    Permitted { admin, .. }: Permitted<TryApps>,
    wanted: UnreadBody<AppsPreviewRequest, DOCUMENT_LIMIT>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let wanted = wanted.read().await?;
    match tried(&services, &admin, sent(wanted.apps, wanted.toml).body()?).await? {
        TrialOutcome::Tried(tried) => Ok(HttpResponse::Ok().json(AppsPreview::from(tried))),
        TrialOutcome::Busy => Err(Problem::Unavailable { retry_after: BUSY_RETRY }),
        TrialOutcome::Mistaken(errors) => Err(Problem::invalid_draft(errors)),
    }
}

fn sent(json: Option<Value>, toml: Option<String>) -> SentDraft {
    SentDraft { part: DocumentPart::Apps, json, toml }
}
