//! Sessions: who is signed in, a new session at every sign-in, and its end.

pub mod call;
pub mod page;

use std::future::Future;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::web::Data;
use actix_web::{Error, FromRequest, HttpRequest, HttpResponse};

use crate::config::LiveSettings;
use crate::db::DbError;
use crate::gate::{TooOld, too_old};
use crate::login::{Account, AuthenticatedSession, SessionToken, SignInClient, SignedInBy};
use crate::web::form::fields::NextFields;
use crate::web::form::notice::Notice;
use crate::web::kit::next::{AppTarget, Next};
use crate::web::kit::problem::{Problem, WebError};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::{self, Edge, Flash, Visit};

/// The signed-in user, without further checks. As a handler's argument; pages redirect everyone else to the
/// sign-in.
pub struct SignedIn(pub AuthenticatedSession);

/// A signed-in user who chose their own password.
pub struct Member(pub AuthenticatedSession);

impl FromRequest for SignedIn {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { Ok(Self(required(&request).await?)) })
    }
}

impl FromRequest for Member {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { Ok(member(&request).await?) })
    }
}

/// For a call that only sometimes needs a member.
pub async fn member(request: &HttpRequest) -> Result<Member, WebError> {
    let who = required(request).await?;
    if !who.account.must_change_password {
        return Ok(Member(who));
    }
    Err(match page_visit(request) {
        Some(visit) => visit.change_password_first(back(&visit, request)).into(),
        None => Problem::PasswordChangeRequired.into(),
    })
}

async fn required(request: &HttpRequest) -> Result<AuthenticatedSession, WebError> {
    let (services, edge) = (request.app_data::<Shared>(), request.app_data::<Data<Edge>>());
    let (Some(services), Some(edge)) = (services, edge) else { return Err(Problem::Internal.into()) };
    if let Some(who) = find(services, edge.session_token(request.headers())).await? {
        return Ok(who);
    }
    Err(match page_visit(request) {
        Some(visit) => visit.sign_in_first(back(&visit, request)).into(),
        None => Problem::Unauthenticated.into(),
    })
}

/// None for a call of the API, which gets no redirect.
fn page_visit(request: &HttpRequest) -> Option<Visit> {
    let edge = request.app_data::<Data<Edge>>()?;
    (!request.path().starts_with("/api/")).then(|| Visit::of(request, edge.clone()))
}

/// Where to return to: the page itself; for a form, the page that it stands on.
fn back<'a>(visit: &'a Visit, request: &HttpRequest) -> &'a str {
    match request.path() {
        _ if request.method().is_safe() => visit.here(),
        "/account/phone" => "/account/phone",
        "/account/phone/remove" => "/account/phone/remove",
        "/account/export" => "/account/export",
        "/account/delete" => "/account/delete",
        _ => "/account",
    }
}

async fn find(services: &Services, token: Option<&str>) -> Result<Option<AuthenticatedSession>, DbError> {
    match token.and_then(SessionToken::parse) {
        Some(token) => services.sessions.find(&token).await,
        None => Ok(None),
    }
}

/// The user of this visit, if one is signed in.
pub async fn signed_in(visit: &Visit, services: &Services) -> Result<Option<AuthenticatedSession>, DbError> {
    find(services, visit.session_token()).await
}

/// The same, for a form that stands on `page`; or the way to the sign-in, and from there to that page.
pub async fn require(
    visit: &Visit,
    services: &Services,
    page: &str,
) -> Result<AuthenticatedSession, WebError> {
    signed_in(visit, services).await?.ok_or_else(|| visit.sign_in_first(page).into())
}

/// Starts a new session with a new token, and ends the session of this browser. None if the password was
/// changed since the account was verified.
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

/// The answer to a successful sign-in; None if it is no longer valid.
pub async fn welcome(
    visit: &Visit,
    services: &Services,
    account: &Account,
    next: Option<Next>,
    flash: Option<Flash>,
    by: SignedInBy,
) -> Result<Option<HttpResponse>, DbError> {
    let renewed = renew(services, account, &visit.sign_in_client(), visit.session_token(), by).await?;
    let Some(token) = renewed else { return Ok(None) };
    let home = Next::home();
    let target = match account.must_change_password {
        true => Next::after(home.as_str(), next.filter(|next| *next != home).as_ref()),
        false => next.unwrap_or(home).as_str().to_owned(),
    };
    let mut response = visit.see_other(&target, flash);
    visit::set(&mut response, visit.cookies().session(&token.expose(), services.session_lasts));
    visit.remember_device(&mut response, account);
    Ok(Some(response))
}

/// The page for signing in, or a redirect for a user who is already signed in, recently enough for where they go: to an
/// application with a code for its host.
pub async fn unless_signed_in(
    visit: Visit,
    services: &Services,
    to: &NextFields,
    page: impl FnOnce(&Visit, Option<Next>, Notice) -> HttpResponse,
) -> Result<HttpResponse, WebError> {
    let live = visit.live(services);
    let next = to.target(&visit, &live);
    let Some(who) = signed_in(&visit, services).await? else { return Ok(page(&visit, next, Notice::None)) };
    let home = Next::home();
    if who.account.must_change_password {
        return Ok(visit.keep_flash().see_other(&Next::after(home.as_str(), next.as_ref()), None));
    }
    let leads = match next.as_ref().and_then(Next::app) {
        None => next.unwrap_or(home).as_str().to_owned(),
        Some(app) => match sign_in_anew(&visit, &live, &who, app) {
            Some(why) => return Ok(page(&visit, next, why)),
            None => let_in(services, &who, app).await?,
        },
    };
    Ok(visit.keep_flash().see_other(&leads, None))
}

/// Why somebody has to sign in anew before they use a part of an application; None if they do not.
fn sign_in_anew(
    visit: &Visit,
    live: &LiveSettings,
    who: &AuthenticatedSession,
    to: &AppTarget,
) -> Option<Notice> {
    let session = &who.session;
    // An application that is gone opens nothing.
    let Some(app) = to.to.app(&live.apps) else { return Some(Notice::SignInAgain) };
    match too_old(app, to.to.target(), session.created_at, session.verified_at, visit.now())? {
        TooOld::SignIn => Some(Notice::SignInAgain),
        TooOld::Password if who.account.password_hash.is_none() => Some(Notice::PasswordForPart),
        TooOld::Password => Some(Notice::PasswordAgain),
    }
}

/// Where the browser of a session gets one at an application's host. Without the state that it was given there, it
/// begins there.
async fn let_in(services: &Services, who: &AuthenticatedSession, to: &AppTarget) -> Result<String, DbError> {
    if to.state.is_empty() {
        return Ok(to.to.as_str().to_owned());
    }
    let code = services.gate.permit(who.session.id, &to.to, &to.state).await?;
    Ok(format!("{}/.gatehouse/callback?code={}", to.to.origin(), code.expose()))
}
