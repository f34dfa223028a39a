//! `/api/v1/admin/access`: the answers to an attack that are in force, and a save of others.

use actix_web::http::header::{CACHE_CONTROL, ETAG};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::config::{AccessNetwork, AccessSettings, SmsPause, moment_text};
use crate::web::console::document::call::{
    DocumentSaved, checked_reason, etag, if_match, read_draft, record_save, save_edit, save_response,
};
use crate::web::console::permitted::{Permitted, ReadAccess, SaveAccess};
use crate::web::kit::describe::{ADMIN, BODY, CHANGE, ChangeReason, SCOPED};
use crate::web::kit::extract::{DOCUMENT_LIMIT, UnreadBody};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "version": "5d1f0c2a9b3e",
    "deny": [{ "network": "203.0.113.0/24", "until": "2026-12-01T18:00:00Z", "reason": "a flood of guesses" }],
    "allow": [],
    "challenge_everyone_until": "2026-12-01T12:00:00Z",
    "pause_sms": [{ "prefix": "+86138", "until": "2026-12-01T12:00:00Z", "reason": "pumping" }]
}))]
struct AccessInForce {
    /// As in ETag. It covers the whole document, so it also changes when limits are saved.
    version: String,
    /// Networks whose requests are refused.
    deny: Vec<NetworkBody>,
    /// Networks for which the limits of addresses and networks are ten times as high.
    allow: Vec<NetworkBody>,
    /// Until then everybody but known devices solves a CAPTCHA; empty: nobody does because of this.
    challenge_everyone_until: String,
    /// Prefixes of numbers that get no message.
    pause_sms: Vec<PauseBody>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AccessNetwork)]
struct NetworkBody {
    /// A CIDR or one address. Not wider than an IPv4 /8 or an IPv6 /19, and no trusted proxy.
    network: String,
    #[schema(format = DateTime)]
    until: String,
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = SmsPause)]
struct PauseBody {
    #[schema(pattern = "^\\+[0-9]{1,15}$")]
    prefix: String,
    #[schema(format = DateTime)]
    until: String,
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
}

impl From<AccessNetwork> for NetworkBody {
    fn from(entry: AccessNetwork) -> Self {
        let AccessNetwork { network, until, reason } = entry;
        Self { network: network.to_string(), until: moment_text(until), reason }
    }
}

impl From<SmsPause> for PauseBody {
    fn from(pause: SmsPause) -> Self {
        let SmsPause { prefix, until, reason } = pause;
        Self { prefix, until: moment_text(until), reason }
    }
}

/// The answers to an attack that are in force
///
/// Without those that have ended.
#[utoipa::path(
    get,
    path = "/api/v1/admin/access",
    operation_id = "showAccess",
    tag = "admin",
    responses((
        status = 200,
        description = "What is in force on the instance that answers.",
        body = AccessInForce,
        headers(("Version"))
    )),
    security(("session" = []), ("token" = ["limits:read"])),
    extensions(("x-problems" = json!([ADMIN, SCOPED])))
)]
pub async fn show(_: Permitted<ReadAccess>, services: Shared) -> HttpResponse {
    let current = services.tuning.current();
    let in_force = current.live.access.settings().in_force(services.audit.now());
    let AccessSettings { deny, allow, challenge_everyone_until, pause_sms } = in_force;
    let tag = etag(&current.version);
    let body = AccessInForce {
        version: current.version,
        deny: deny.into_iter().map(NetworkBody::from).collect(),
        allow: allow.into_iter().map(NetworkBody::from).collect(),
        challenge_everyone_until: challenge_everyone_until.map(moment_text).unwrap_or_default(),
        pause_sms: pause_sms.into_iter().map(PauseBody::from).collect(),
    };
    HttpResponse::Ok().insert_header((ETAG, tag)).insert_header((CACHE_CONTROL, "no-cache")).json(body)
}

/// What is left out is set to nothing.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "challenge_everyone_until": "2026-12-01T12:00:00Z", "reason": "A spray over many names."
}))]
pub struct AccessRequest {
    #[schema(value_type = Option<Vec<NetworkBody>>)]
    deny: Option<Value>,
    #[schema(value_type = Option<Vec<NetworkBody>>)]
    allow: Option<Value>,
    /// RFC 3339, or empty.
    #[schema(value_type = Option<String>)]
    challenge_everyone_until: Option<Value>,
    #[schema(value_type = Option<Vec<PauseBody>>)]
    pause_sms: Option<Value>,
    #[schema(value_type = ChangeReason)]
    reason: String,
}

/// Replace the answers to an attack
///
/// They replace all that were set. A new entry must end later than now, and `deny` must not contain the caller's own
/// address. An entry that has ended is dropped. What is set by an environment variable of the server cannot be changed.
#[utoipa::path(
    put,
    path = "/api/v1/admin/access",
    operation_id = "saveAccess",
    tag = "admin",
    params((
        "If-Match" = String,
        Header,
        description = "The ETag of GET /api/v1/admin/access. 428 without it.",
        example = "\"5d1f0c2a9b3e\""
    )),
    request_body = AccessRequest,
    responses((
        status = 200,
        description = "In force on this instance, and on all within a second.",
        body = DocumentSaved,
        headers(("Version"))
    )),
    security(("session" = []), ("token" = ["access:write"])),
    extensions(("x-problems" = json!([
        ADMIN, SCOPED, CHANGE, BODY, "precondition-required", "precondition-failed", "not-saved"
    ])))
)]
pub async fn save(
    Permitted { admin, .. }: Permitted<SaveAccess>,
    request: HttpRequest,
    wanted: UnreadBody<AccessRequest, DOCUMENT_LIMIT>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let wanted = wanted.read().await?;
    let seen = if_match(&request, &services.tuning.version())?;
    let reason = checked_reason(&wanted.reason)?.to_owned();
    let AccessRequest { deny, allow, challenge_everyone_until, pause_sms, .. } = wanted;
    let parts = [
        ("deny", deny),
        ("allow", allow),
        ("challenge_everyone_until", challenge_everyone_until),
        ("pause_sms", pause_sms),
    ];
    let parts = parts.into_iter().filter_map(|(key, part)| Some((key.to_owned(), part?)));
    let draft = Value::Object(parts.collect::<Map<_, _>>());
    let (tuning, from) = (services.tuning.clone(), admin.address());
    let edit = read_draft(&services, &admin, move |_| tuning.access_edit(&draft, from)).await?;
    let saved = save_edit(&services, &admin, edit, &seen, &reason).await;
    let detail = json!({ "reason": reason, "from": seen });
    record_save(&services, &admin, "access.save", detail, &saved);
    save_response(saved)
}
