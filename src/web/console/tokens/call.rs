//! `/api/v1/admin/tokens`: tokens of other programs, for administrators.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Path;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::login::{NewToken, TokenEntry, TokenId};
use crate::web::console::guard::Admin;
use crate::web::console::guard::ConfirmedAdmin;
use crate::web::console::tokens::{
    LONGEST_LIFE, check_expiry, create_token, parse_name, parse_scopes, revoke_token,
};
use crate::web::kit::describe::{ADMIN, BODY, CHANGE};
use crate::web::kit::extract::UnreadBody;
use crate::web::kit::locale::Locale;
use crate::web::kit::message::{Field, Message};
use crate::web::kit::problem::{InputError, Problem};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::wait::Moment;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "name": "forum", "scopes": ["reply"], "expires_in": 7776000 }))]
pub struct TokenRequest {
    /// What it is shown as.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// Names of custom limits that exist, or `*` for all of them; `guard:`, `verify:` or `relay:` with a name; parts of the admin API: `limits:read`, `limits:write`,
    /// `access:write`, `apps:write`, `events:read`, `subjects:clear`, `accounts:write`, which `*` does not include.
    scopes: Vec<String>,
    /// Seconds. Without it the token does not expire. Required for parts of the admin API, and then at most 366 days.
    #[schema(minimum = 1, maximum = 316224000)]
    expires_in: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "tokens": [{
    "id": "0123456789abcdef0123456789abcdef", "name": "forum", "scopes": ["reply"], "made_by": "ada",
    "created_at": "2026-11-21T10:00:00Z"
}] }))]
struct Tokens {
    tokens: Vec<TokenBody>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Token)]
struct TokenBody {
    id: String,
    name: String,
    /// As the token was created with.
    scopes: Vec<String>,
    /// The login of its administrator; left out if that account is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_by: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    /// To within a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    last_used_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

impl From<TokenEntry> for TokenBody {
    fn from(entry: TokenEntry) -> Self {
        let iso = |at| Moment(at).iso();
        Self {
            id: entry.id.to_string(),
            name: entry.name,
            scopes: entry.scopes.names(),
            made_by: entry.made_by,
            created_at: iso(entry.created_at),
            last_used_at: entry.last_used_at.map(iso),
            expires_at: entry.expires_at.map(iso),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "id": "0123456789abcdef0123456789abcdef", "token": "ght_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
}))]
struct TokenMade {
    id: String,
    /// Shown here and nowhere else.
    token: String,
}

/// The tokens of programs, newest first
///
/// Without those that were revoked; with those that have expired.
#[utoipa::path(
    get,
    path = "/api/v1/admin/tokens",
    operation_id = "listTokens",
    tag = "admin",
    responses((status = 200, description = "At most 200 of them.", body = Tokens)),
    security(("session" = [])),
    extensions(("x-problems" = json!([ADMIN])))
)]
pub async fn list(_: Admin, services: Shared) -> Result<HttpResponse, Problem> {
    let tokens = services.tokens.list().await?;
    Ok(HttpResponse::Ok().json(Tokens { tokens: tokens.into_iter().map(TokenBody::from).collect() }))
}

/// Create a token for a program
///
/// At most 100 are valid at one time.
#[utoipa::path(
    post,
    path = "/api/v1/admin/tokens",
    operation_id = "makeToken",
    tag = "admin",
    request_body = TokenRequest,
    responses((status = 201, description = "The token, this once.", body = TokenMade)),
    security(("session" = [])),
    extensions(("x-problems" = json!([ADMIN, CHANGE, BODY, "too-many-tokens"])))
)]
pub async fn create(
    ConfirmedAdmin(admin): ConfirmedAdmin,
    body: UnreadBody<TokenRequest>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let new = parse(&services, &body.read().await?)?;
    match create_token(&services, &admin, &new).await? {
        Some((token, id)) => {
            Ok(HttpResponse::Created().json(TokenMade { id: id.to_string(), token: token.expose() }))
        }
        None => Err(Problem::TooManyTokens),
    }
}

/// Revoke a token
///
/// The instance that answers refuses it at once, the others within a second. 404 if there is no such token, or if it was
/// revoked before.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/tokens/{id}",
    operation_id = "revokeToken",
    tag = "admin",
    params(("id" = String, Path, example = "0123456789abcdef0123456789abcdef")),
    responses((status = 204, description = "Revoked.")),
    security(("session" = [])),
    extensions(("x-problems" = json!([ADMIN, CHANGE, "not-found"])))
)]
pub async fn revoke(
    ConfirmedAdmin(admin): ConfirmedAdmin,
    id: Path<String>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let id = TokenId::parse(&id).ok_or(Problem::NotFound)?;
    match revoke_token(&services, &admin, id).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::NotFound),
    }
}

fn parse(services: &Services, body: &TokenRequest) -> Result<NewToken, Problem> {
    let mut errors = Vec::new();
    let mut wrong = |field: &'static str, message| errors.push(InputError { field: field.into(), message });
    let said = |message: Message| message.text(Locale::En);
    let name = parse_name(&body.name).map_err(|error| wrong(Field::Name.name(), said(error))).ok();
    let names: Vec<&str> = body.scopes.iter().map(String::as_str).collect();
    let scopes = parse_scopes(services, &names);
    let scopes = scopes.map_err(|error| wrong(Field::Scopes.name(), said(error))).ok();
    let expires_in = body.expires_in.map(Duration::from_secs);
    if expires_in.is_some_and(|span| span.is_zero() || span > LONGEST_LIFE) {
        let message = format!("Use 1 to {} seconds, or leave it out.", LONGEST_LIFE.as_secs());
        wrong("expires_in", message.into());
    }
    if let Some(Err(error)) = scopes.as_ref().map(|scopes| check_expiry(scopes, expires_in)) {
        wrong("expires_in", said(error));
    }
    match (name, scopes) {
        (Some(name), Some(scopes)) if errors.is_empty() => Ok(NewToken { name, scopes, expires_in }),
        _ => Err(Problem::InvalidInput { errors }),
    }
}
