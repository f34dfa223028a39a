//! `/api/v1/admin/limits`: the limits in force, and a save of others.

use std::collections::BTreeMap;

use actix_web::http::header::{CACHE_CONTROL, ETAG};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::schema::LimitSettings;
use crate::config::{Limits, rule_json};
use crate::throttle::{Limit, LimitMode};
use crate::tuning::{CurrentLimits, Instance};
use crate::web::console::document::call::{
    DocumentSaved, SentDraft, checked_reason, etag, if_match, record_save, save_response,
};
use crate::web::console::document::part::DocumentPart;
use crate::web::console::permitted::{Permitted, ReadLimits, SaveLimits};
use crate::web::kit::describe::{ADMIN, BODY, CHANGE, ChangeReason, SCOPED};
use crate::web::kit::extract::{DOCUMENT_LIMIT, UnreadBody};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::wait::Moment;

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "version": "5d1f0c2a9b3e",
    "home": "file",
    "limits": { "sms-phone": LimitSettings::example(), "custom": {} },
    "sources": { "sms-phone": "document" },
    "toml": "[limits.sms-phone]\nrules = [{ max = 1, window = \"1m\" }]\n",
    "instances": [{
        "host": "web-1:8080", "started_at": "2026-11-21T10:00:00Z", "seen_at": "2026-11-21T10:00:05Z",
        "version": "5d1f0c2a9b3e", "applied_at": "2026-11-21T10:00:00Z", "this": true
    }]
}))]
struct LimitsInForce {
    /// As in ETag.
    version: String,
    /// What keeps the limits.
    #[schema(schema_with = super::schema::backends)]
    home: &'static str,
    /// Why that does not answer; its last answer is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    home_down: Option<String>,
    #[schema(value_type = super::schema::LimitsDocument)]
    limits: Value,
    /// Where each limit comes from, by its full name.
    #[schema(value_type = BTreeMap<String, super::schema::LimitSource>)]
    sources: BTreeMap<String, &'static str>,
    /// `[limits]` of the document, with its comments.
    toml: String,
    instances: Vec<InstanceBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<RefusedDocument>,
}

/// A newer document that is not in force.
#[derive(Serialize, ToSchema)]
struct RefusedDocument {
    #[schema(format = DateTime)]
    at: String,
    reason: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Instance)]
struct InstanceBody {
    /// The machine, and the port that it listens on.
    host: String,
    #[schema(format = DateTime)]
    started_at: String,
    #[schema(format = DateTime)]
    seen_at: String,
    /// What is in force there.
    version: String,
    #[schema(format = DateTime)]
    applied_at: String,
    /// Why a newer version is not in force there.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// The one that answers.
    this: bool,
}

impl From<Instance> for InstanceBody {
    fn from(instance: Instance) -> Self {
        let Instance { id: _, host, started_at, seen_at, version, applied_at, refused, this } = instance;
        let iso = |at| Moment(at).iso();
        let (started_at, seen_at, applied_at) = (iso(started_at), iso(seen_at), iso(applied_at));
        Self { host, started_at, seen_at, version, applied_at, refused, this }
    }
}

/// The limits in force, and on which instances
#[utoipa::path(
    get,
    path = "/api/v1/admin/limits",
    operation_id = "showLimits",
    tag = "admin",
    responses((
        status = 200,
        description = "What is in force on the instance that answers.",
        body = LimitsInForce,
        headers(("Version"))
    )),
    security(("session" = []), ("token" = ["limits:read"])),
    extensions(("x-problems" = json!([ADMIN, SCOPED])))
)]
pub async fn show(_: Permitted<ReadLimits>, services: Shared) -> Result<HttpResponse, Problem> {
    let instances = services.tuning.instances().await?;
    let current = services.tuning.current();
    let sources = sources(&current);
    let CurrentLimits { version, backend: home, backend_down: home_down, live, toml, refused, .. } = current;
    let tag = etag(&version);
    let body = LimitsInForce {
        version,
        home: home.as_str(),
        home_down,
        limits: limits_json(&live.limits),
        sources,
        toml,
        instances: instances.into_iter().map(InstanceBody::from).collect(),
        refused: refused.map(|refused| RefusedDocument {
            at: Moment(refused.at).iso(),
            reason: refused.error.to_string(),
        }),
    };
    Ok(HttpResponse::Ok().insert_header((ETAG, tag)).insert_header((CACHE_CONTROL, "no-cache")).json(body))
}

/// As a draft is sent: the owner's own under `custom`.
fn limits_json(limits: &Limits) -> Value {
    let mut all = serde_json::Map::new();
    let mut custom = serde_json::Map::new();
    for limit in limits.iter() {
        match limit.name().strip_prefix("custom.") {
            Some(own) => custom.insert(own.to_owned(), limit_json(limit)),
            None => all.insert(limit.name().to_owned(), limit_json(limit)),
        };
    }
    all.insert("custom".to_owned(), custom.into());
    all.into()
}

fn limit_json(limit: &Limit) -> Value {
    let mode = match limit.mode() {
        LimitMode::Enforce => "enforce",
        LimitMode::Monitor => "monitor",
    };
    json!({ "mode": mode, "rules": limit.rules().iter().map(rule_json).collect::<Vec<_>>() })
}

fn sources(current: &CurrentLimits) -> BTreeMap<String, &'static str> {
    let source = |name: &str| match name {
        _ if current.is_overridden(name) => "environment",
        _ if current.set.iter().any(|set| set == name) => "document",
        _ => "default",
    };
    current.live.limits.iter().map(|limit| (limit.name().to_owned(), source(limit.name()))).collect()
}

/// One of `limits` and `toml`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "limits": { "sms-phone": LimitSettings::example() }, "reason": "An attack on numbers of one operator."
}))]
pub struct LimitsRequest {
    #[schema(value_type = Option<super::schema::LimitsDocument>)]
    limits: Option<Value>,
    /// Instead of limits: `[limits.NAME]` tables, with comments.
    toml: Option<String>,
    #[schema(value_type = ChangeReason)]
    reason: String,
}

/// Replace the limits
///
/// They replace all that were set: what is left out returns to its default. Comments and order of the document are kept.
/// A limit that is set by an environment variable of the server cannot be changed.
#[utoipa::path(
    put,
    path = "/api/v1/admin/limits",
    operation_id = "saveLimits",
    tag = "admin",
    params((
        "If-Match" = String,
        Header,
        description = "The ETag of GET /api/v1/admin/limits. 428 without it.",
        example = "\"5d1f0c2a9b3e\""
    )),
    request_body = LimitsRequest,
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
pub async fn save(
    Permitted { admin, .. }: Permitted<SaveLimits>,
    request: HttpRequest,
    wanted: UnreadBody<LimitsRequest, DOCUMENT_LIMIT>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let wanted = wanted.read().await?;
    let LimitsRequest { limits: json, toml, reason } = wanted;
    SentDraft { part: DocumentPart::Limits, json, toml }.save(&services, &admin, &request, &reason).await
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
pub async fn rollback(
    Permitted { admin, .. }: Permitted<SaveLimits>,
    request: HttpRequest,
    back: UnreadBody<RollbackRequest>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let back = back.read().await?;
    let seen = if_match(&request, &services.tuning.version())?;
    let reason = checked_reason(&back.reason)?;
    let saved = services.tuning.rollback(&back.change, &seen, admin.by(&admin.id()), reason).await;
    let detail = json!({ "reason": reason, "from": seen, "change": back.change });
    record_save(&services, &admin, "limits.rollback", detail, &saved);
    save_response(saved)
}
