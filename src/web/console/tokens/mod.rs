//! `/admin/tokens`: API tokens for other programs.

pub mod call;
pub mod page;
pub mod view;

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::db::DbError;
use crate::login::{ApiToken, NewToken, ScopesError, TokenId, TokenScopes};
use crate::web::console::guard::Admin;
use crate::web::kit::message::Message;
use crate::web::kit::services::Services;

/// `POST /admin/tokens`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TokenMakingForm {
    pub name: String,
    /// Separated by spaces or commas.
    pub scopes: String,
    pub expires_days: String,
    pub csrf_token: String,
}

/// `GET` and `POST /admin/tokens/revoke`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TokenRevokingForm {
    pub id: String,
    pub csrf_token: String,
}

const LONGEST_NAME: usize = 100;
/// Ten years.
const MOST_DAYS: u32 = 3660;
/// Of a token for the admin API.
const MOST_ADMIN_DAYS: u32 = 366;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LONGEST_LIFE: Duration = Duration::from_secs(MOST_DAYS as u64 * DAY.as_secs());

/// Creates a token and records that. None if the maximum number of tokens exists.
async fn create_token(
    services: &Services,
    admin: &Admin,
    new: &NewToken,
) -> Result<Option<(ApiToken, TokenId)>, DbError> {
    let made = services.tokens.create(new, admin.who.account.id).await?;
    if let Some((_, id)) = &made {
        let expires_in = new.expires_in.map(|span| span.as_secs());
        let detail = json!({ "token": id.to_string(), "name": new.name, "scopes": new.scopes.names(), "expires_in": expires_in });
        admin.did(services, "token.create", &detail);
    }
    Ok(made)
}

/// Revokes a token and records that. False if there is none.
async fn revoke_token(services: &Services, admin: &Admin, id: TokenId) -> Result<bool, DbError> {
    let revoked = services.tokens.revoke(id, admin.who.account.id).await?;
    if revoked {
        admin.did(services, "token.revoke", &json!({ "token": id.to_string() }));
    }
    Ok(revoked)
}

fn parse_name(text: &str) -> Result<String, Message> {
    let name = text.trim();
    let fits = (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    if fits { Ok(name.to_owned()) } else { Err(Message::NameUnfit { max: LONGEST_NAME }) }
}

/// A token that opens a part of the admin API expires within a year.
fn check_expiry(scopes: &TokenScopes, expires_in: Option<Duration>) -> Result<(), Message> {
    let fits = expires_in.is_some_and(|span| span <= DAY * MOST_ADMIN_DAYS);
    if fits || !scopes.open_any() { Ok(()) } else { Err(Message::ExpiryRequired { max: MOST_ADMIN_DAYS }) }
}

/// The scopes of a new token. A limit has to be configured first: a name of none would open nothing.
fn parse_scopes(services: &Services, names: &[&str]) -> Result<TokenScopes, Message> {
    let live = services.live.snapshot();
    let limits: Vec<&str> = live.limits.custom.keys().map(String::as_str).collect();
    TokenScopes::requested(names, &limits).map_err(about_scopes)
}

fn about_scopes(error: ScopesError) -> Message {
    match error {
        ScopesError::Empty => Message::ScopesMissing,
        ScopesError::TooMany => Message::ScopesTooMany { max: crate::login::MOST_SCOPES },
        ScopesError::NoName => Message::ScopesUnfit,
        ScopesError::Unknown { typed, nearest } => Message::ScopeUnknown { typed, nearest },
        ScopesError::TooManyRealms | ScopesError::TooManyPrograms => Message::ScopesRealms,
    }
}
