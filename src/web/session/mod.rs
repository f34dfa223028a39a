//! Sessions: who is signed in, a new one at every sign-in, and the end of one.

pub mod call;
pub mod page;

use actix_web::HttpResponse;

use crate::db::DbError;
use crate::login::{Account, AuthenticatedSession, SessionToken, SignInClient, SignedInBy};
use crate::web::kit::error_page::broken;
use crate::web::kit::flash::Flash;
use crate::web::kit::next::Next;
use crate::web::kit::services::Services;
use crate::web::kit::visit::{self, Visit};

/// Who makes this visit, if anyone is signed in.
pub async fn signed_in(visit: &Visit, services: &Services) -> Result<Option<AuthenticatedSession>, DbError> {
    match visit.session_token().and_then(SessionToken::parse) {
        Some(token) => services.sessions.find(&token).await,
        None => Ok(None),
    }
}

/// Whether a page that is for members is open to a visit.
pub enum Member {
    Is(Box<AuthenticatedSession>),
    /// What is answered instead.
    Not(HttpResponse),
}

/// Somebody who is signed in and has a password of their own choice. `here` is where signing in leads
/// back to.
pub async fn member(visit: &Visit, services: &Services, here: &str) -> Member {
    match signed_in(visit, services).await {
        Ok(Some(who)) if who.account.must_change_password => {
            Member::Not(visit.clone().keep_flash().see_other("/account", None))
        }
        Ok(Some(who)) => Member::Is(Box::new(who)),
        Ok(None) => Member::Not(visit.clone().keep_flash().see_other(&format!("/login?next={here}"), None)),
        Err(error) => Member::Not(broken(visit, &error)),
    }
}

/// Renews: a new token, and the one that this browser came with ends. None where the password was changed
/// since the account was verified.
pub async fn renew(
    services: &Services,
    account: &Account,
    client: &SignInClient,
    old: Option<&str>,
    by: SignedInBy,
) -> Result<Option<SessionToken>, DbError> {
    let old = old.and_then(SessionToken::parse);
    services.sessions.renew(account, client, by, old.as_ref()).await
}

/// The answer to a sign-in that succeeded; None where it does not count any more.
pub async fn welcome(
    visit: &Visit,
    services: &Services,
    account: &Account,
    next: Option<Next>,
    flash: Option<Flash>,
    by: SignedInBy,
) -> Result<Option<HttpResponse>, DbError> {
    let renewed = renew(services, account, &client(visit), visit.session_token(), by).await?;
    let Some(token) = renewed else { return Ok(None) };
    let next = if account.must_change_password { Next::home() } else { next.unwrap_or_else(Next::home) };
    let mut response = visit.see_other(next.as_str(), flash);
    visit::set(&mut response, visit.cookies().session(&token.expose(), services.session_lasts));
    visit.remember_device(&mut response, account);
    Ok(Some(response))
}

pub fn client(visit: &Visit) -> SignInClient {
    SignInClient::new(visit.client.ip(), visit.user_agent()).known_as(visit.known_devices())
}
