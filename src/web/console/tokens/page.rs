//! `/admin/tokens`: tokens of other programs, listed, made and revoked; and what is asked of a new one.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Form;
use serde_json::json;

use crate::db::DbError;
use crate::login::{ApiToken, NewToken, ScopesError, TokenId, TokenScopes};
use crate::web::console::guard::{self, Admin};
use crate::web::kit::error_page::broken;
use crate::web::kit::flash::Flash;
use crate::web::kit::message::{Field, FieldErrors, Message};
use serde::Deserialize;

use crate::web::console::tokens::view::{Saying, TokensPage};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;

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

/// `POST /admin/tokens/revoke`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TokenRevokingForm {
    pub id: String,
    pub csrf_token: String,
}

const HERE: &str = "/admin/tokens";
const LONGEST_NAME: usize = 100;
/// Ten years.
const MOST_DAYS: u32 = 3660;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub const LONGEST_LIFE: Duration = Duration::from_secs(MOST_DAYS as u64 * DAY.as_secs());

/// `GET /admin/tokens`
pub async fn show(visit: Visit, services: Shared) -> HttpResponse {
    match guard::page::read(&visit, &services).await {
        Ok(admin) => respond(&visit, &services, &admin, Saying::Nothing, None).await,
        Err(response) => response,
    }
}

/// `POST /admin/tokens`. Answers with the page itself and no redirection: the token is told in this answer
/// and nowhere else.
pub async fn create(visit: Visit, form: Form<TokenMakingForm>, services: Shared) -> HttpResponse {
    let admin = match guard::page::change(&visit, &services, HERE, &form.csrf_token).await {
        Ok(admin) => admin,
        Err(response) => return response,
    };
    let saying = match parse(&form) {
        Ok(new) => match make(&services, &admin, &new).await {
            Ok(Some((token, _))) => Saying::Made { name: new.name, token: token.expose() },
            Ok(None) => Saying::Full,
            Err(error) => return broken(&visit, &error),
        },
        Err(errors) => Saying::Wrong(errors),
    };
    respond(&visit, &services, &admin, saying, Some(&form)).await
}

/// Makes one and records that. None where there are as many as there may be.
pub async fn make(
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

/// Revokes one and records that. False where there is none.
pub async fn end(services: &Services, admin: &Admin, id: TokenId) -> Result<bool, DbError> {
    let revoked = services.tokens.revoke(id, admin.who.account.id).await?;
    if revoked {
        admin.did(services, "token.revoke", &json!({ "token": id.to_string() }));
    }
    Ok(revoked)
}

/// `POST /admin/tokens/revoke`. One that was revoked meanwhile is as well revoked as any.
pub async fn revoke(visit: Visit, form: Form<TokenRevokingForm>, services: Shared) -> HttpResponse {
    let admin = match guard::page::change(&visit, &services, HERE, &form.csrf_token).await {
        Ok(admin) => admin,
        Err(response) => return response,
    };
    if let Some(id) = TokenId::parse(&form.id)
        && let Err(error) = end(&services, &admin, id).await
    {
        return broken(&visit, &error);
    }
    visit.see_other(HERE, Some(Flash::TokenRevoked))
}

async fn respond(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    saying: Saying,
    form: Option<&TokenMakingForm>,
) -> HttpResponse {
    let tokens = match services.tokens.list().await {
        Ok(tokens) => tokens,
        Err(error) => return broken(visit, &error),
    };
    let live = services.live.snapshot();
    let limits = live.limits.custom.keys().cloned().collect();
    let page = TokensPage::new(visit, admin.login(), tokens, limits).saying(saying);
    match form {
        Some(form) => page.typed(form).respond(visit),
        None => page.respond(visit),
    }
}

fn parse(form: &TokenMakingForm) -> Result<NewToken, FieldErrors> {
    let mut errors = FieldErrors::default();
    let name = errors.take(Field::Name, parse_name(&form.name));
    let names = form.scopes.split([' ', ',', '\t', '\r', '\n']).filter(|name| !name.is_empty());
    let scopes = errors.take(Field::Scopes, TokenScopes::parse(names).map_err(about_scopes));
    let expires_in = errors.take(Field::ExpiresDays, parse_days(form.expires_days.trim()));
    match (name, scopes, expires_in) {
        (Some(name), Some(scopes), Some(expires_in)) => Ok(NewToken { name, scopes, expires_in }),
        _ => Err(errors),
    }
}

pub fn parse_name(text: &str) -> Result<String, Message> {
    let name = text.trim();
    let fits = (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    if fits { Ok(name.to_owned()) } else { Err(Message::NameUnfit { max: LONGEST_NAME }) }
}

pub const fn about_scopes(error: ScopesError) -> Message {
    match error {
        ScopesError::Empty => Message::ScopesMissing,
        ScopesError::TooMany => Message::ScopesTooMany { max: crate::login::MOST_SCOPES },
        ScopesError::NoName => Message::ScopesUnfit,
    }
}

fn parse_days(text: &str) -> Result<Option<Duration>, Message> {
    if text.is_empty() {
        return Ok(None);
    }
    let days = text.parse::<u32>().ok().filter(|days| (1..=MOST_DAYS).contains(days));
    days.map(|days| Some(DAY * days)).ok_or(Message::ExpiryUnfit { max: MOST_DAYS })
}
