//! `/api/v1/admin/tokens`: tokens of other programs, for administrators.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Path;
use serde::{Deserialize, Serialize};

use crate::login::{NewToken, TokenEntry, TokenId, TokenScopes};
use crate::web::console::guard::Admin;
use crate::web::console::guard::ConfirmedAdmin;
use crate::web::console::tokens::{LONGEST_LIFE, about_scopes, create_token, parse_name, revoke_token};
use crate::web::kit::extract::UnreadBody;
use crate::web::kit::locale::Locale;
use crate::web::kit::message::{Field, Message};
use crate::web::kit::problem::{InputError, Problem};
use crate::web::kit::services::Shared;
use crate::web::kit::wait::Moment;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    name: String,
    /// Names of custom limits, or `*` alone.
    scopes: Vec<String>,
    /// Seconds.
    expires_in: Option<u64>,
}

#[derive(Serialize)]
struct Tokens {
    tokens: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    id: String,
    name: String,
    scopes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    made_by: Option<String>,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

impl From<TokenEntry> for Entry {
    fn from(entry: TokenEntry) -> Self {
        let iso = |at| Moment(at).iso();
        Self {
            id: entry.id.to_string(),
            name: entry.name,
            scopes: entry.scopes.names().into_iter().map(str::to_owned).collect(),
            made_by: entry.made_by,
            created_at: iso(entry.created_at),
            last_used_at: entry.last_used_at.map(iso),
            expires_at: entry.expires_at.map(iso),
        }
    }
}

#[derive(Serialize)]
struct Made {
    id: String,
    /// Told here and nowhere else.
    token: String,
}

/// `GET /admin/tokens`, newest first.
pub async fn list(_: Admin, services: Shared) -> Result<HttpResponse, Problem> {
    let tokens = services.tokens.list().await?;
    Ok(HttpResponse::Ok().json(Tokens { tokens: tokens.into_iter().map(Entry::from).collect() }))
}

/// `POST /admin/tokens`
pub async fn create(
    ConfirmedAdmin(admin): ConfirmedAdmin,
    body: UnreadBody<Wanted>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let new = parse(&body.read().await?)?;
    match create_token(&services, &admin, &new).await? {
        Some((token, id)) => {
            Ok(HttpResponse::Created().json(Made { id: id.to_string(), token: token.expose() }))
        }
        None => Err(Problem::TooManyTokens),
    }
}

/// `DELETE /admin/tokens/{id}`
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

fn parse(body: &Wanted) -> Result<NewToken, Problem> {
    let mut errors = Vec::new();
    let mut wrong = |field: &'static str, message| errors.push(InputError { field: field.into(), message });
    let said = |message: Message| message.text(Locale::En);
    let name = parse_name(&body.name).map_err(|error| wrong(Field::Name.name(), said(error))).ok();
    let scopes = TokenScopes::parse(body.scopes.iter().map(String::as_str));
    let scopes = scopes.map_err(|error| wrong(Field::Scopes.name(), said(about_scopes(error)))).ok();
    let expires_in = body.expires_in.map(Duration::from_secs);
    if expires_in.is_some_and(|span| span.is_zero() || span > LONGEST_LIFE) {
        let message = format!("Use 1 to {} seconds, or leave it out.", LONGEST_LIFE.as_secs());
        wrong("expires_in", message.into());
    }
    match (name, scopes) {
        (Some(name), Some(scopes)) if errors.is_empty() => Ok(NewToken { name, scopes, expires_in }),
        _ => Err(Problem::InvalidInput { errors }),
    }
}
