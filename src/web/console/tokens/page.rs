//! `/admin/tokens`: lists, creates and revokes API tokens, and validates new ones.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::{Form, Query};

use crate::login::{NewToken, TokenId};
use crate::web::console::guard::{self, Admin};
use crate::web::console::tokens::DAY;
use crate::web::console::tokens::MOST_DAYS;
use crate::web::console::tokens::TokenMakingForm;
use crate::web::console::tokens::TokenRevokingForm;
use crate::web::console::tokens::check_expiry;
use crate::web::console::tokens::create_token;
use crate::web::console::tokens::parse_name;
use crate::web::console::tokens::parse_scopes;
use crate::web::console::tokens::revoke_token;
use crate::web::form::fields::FormPairs;
use crate::web::form::once::{FormReach, once};
use crate::web::kit::extract::UnreadBody;
use crate::web::kit::flash::Flash;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::web_error::WebResult;

use crate::web::console::tokens::view::{RevokePage, TokenNotice, TokensPage};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;

const HERE: &str = "/admin/tokens";
/// `GET /admin/tokens`
pub async fn show(visit: Visit, admin: Admin, services: Shared) -> WebResult {
    respond(&visit, &services, &admin, TokenNotice::None, None).await
}

/// `POST /admin/tokens`. Answers with the page itself, not with a redirect: only this answer shows the token.
pub async fn create(visit: Visit, body: UnreadBody<FormPairs>, services: Shared) -> WebResult {
    once(visit, services, body, FormReach::AnyInstance, make).await
}

async fn make(visit: Visit, form: TokenMakingForm, services: Shared) -> WebResult {
    let admin = guard::change(&visit, &services, HERE, &form.csrf_token).await?;
    let notice = match parse(&services, &form) {
        Ok(new) => match create_token(&services, &admin, &new).await? {
            Some((token, _)) => TokenNotice::Made { name: new.name, token: token.expose() },
            None => TokenNotice::Full,
        },
        Err(errors) => TokenNotice::Wrong(errors),
    };
    respond(&visit, &services, &admin, notice, Some(&form)).await
}

/// `GET /admin/tokens/revoke?id=…`: asks before a token is revoked. One that already is, is not listed either.
pub async fn ask(
    visit: Visit,
    admin: Admin,
    wanted: Query<TokenRevokingForm>,
    services: Shared,
) -> WebResult {
    let found = services.tokens.list().await?.into_iter().find(|token| token.id.to_string() == wanted.id);
    Ok(match found {
        Some(token) => visit.page(StatusCode::OK, &RevokePage::new(&visit, admin.login(), token)),
        None => visit.see_other(HERE, None),
    })
}

/// `POST /admin/tokens/revoke`. If the token is already revoked, there is nothing to do.
pub async fn revoke(visit: Visit, form: Form<TokenRevokingForm>, services: Shared) -> WebResult {
    let admin = guard::change(&visit, &services, HERE, &form.csrf_token).await?;
    if let Some(id) = TokenId::parse(&form.id) {
        revoke_token(&services, &admin, id).await?;
    }
    Ok(visit.see_other(HERE, Some(Flash::TokenRevoked)))
}

async fn respond(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    notice: TokenNotice,
    form: Option<&TokenMakingForm>,
) -> WebResult {
    let tokens = services.tokens.list().await?;
    let live = services.live.snapshot();
    let limits = live.limits.custom.keys().cloned().collect();
    let page = TokensPage::new(visit, admin.login(), tokens, limits).notice(notice);
    Ok(match form {
        Some(form) => page.typed(form).respond(visit),
        None => page.respond(visit),
    })
}

fn parse(services: &Services, form: &TokenMakingForm) -> Result<NewToken, FieldErrors> {
    let mut errors = FieldErrors::default();
    let name = errors.take(Field::Name, parse_name(&form.name));
    let names = form.scopes.split([' ', ',', '\t', '\r', '\n']).filter(|name| !name.is_empty());
    let scopes = errors.take(Field::Scopes, parse_scopes(services, &names.collect::<Vec<_>>()));
    let expires_in = errors.take(Field::ExpiresDays, parse_days(form.expires_days.trim()));
    let expiry = match (&scopes, expires_in) {
        (Some(scopes), Some(expires_in)) => check_expiry(scopes, expires_in),
        _ => Ok(()),
    };
    errors.take(Field::ExpiresDays, expiry);
    match (name, scopes, expires_in) {
        (Some(name), Some(scopes), Some(expires_in)) if errors.is_empty() => {
            Ok(NewToken { name, scopes, expires_in })
        }
        _ => Err(errors),
    }
}

fn parse_days(text: &str) -> Result<Option<Duration>, Message> {
    if text.is_empty() {
        return Ok(None);
    }
    let days = text.parse::<u32>().ok().filter(|days| (1..=MOST_DAYS).contains(days));
    days.map(|days| Some(DAY * days)).ok_or(Message::ExpiryUnfit { max: MOST_DAYS })
}
