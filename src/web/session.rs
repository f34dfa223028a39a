//! Sessions: who is signed in, a new session at every sign-in, and its end; and the account as every call tells it.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header::LOCATION;
use actix_web::{Error, FromRequest, HttpRequest, HttpResponse, HttpResponseBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use crate::accounts::{
    Account, AuthenticatedSession, Factor, FirstFactor, Phc, Proof, SessionStart, SessionToken,
};
use crate::config::{AppFactor, BreachedAction, LiveSettings};
use crate::db::DbError;
use crate::gate::{TooOld, lacks_factor, too_old};
use crate::oidc::request_at;
use crate::web::form::{FormReach, NextFields, NoFields, Notice, OwnForm, SentForm};
use crate::web::http::next::AppTarget;
use crate::web::http::page::{Requester, set_all};
use crate::web::http::row::{Caller, Checks, HandlerArgument, RowFacts};
use crate::web::http::{
    ApiRequest, Flash, Moment, Next, PageRequest, Problem, Services, ServicesData, UnreadBody, WebContext,
    WebError, WebResult, app_data, describe,
};

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

/// A call that a member makes, with its body. Nothing of strangers is read, and a call that keeps its body back gains
/// nothing: it is judged once more when the body is there.
pub struct MemberCall<T> {
    pub who: AuthenticatedSession,
    pub call: ApiRequest,
    pub body: T,
}

impl HandlerArgument for SignedIn {
    const CHECKS: &'static [Checks] = &[Checks::Session];
}

impl HandlerArgument for Member {
    const CHECKS: &'static [Checks] = &[Checks::Member];
}

impl<T> HandlerArgument for MemberCall<T> {
    const CHECKS: &'static [Checks] = &[Checks::Member, Checks::Call];
}

impl<T: DeserializeOwned + 'static> FromRequest for MemberCall<T> {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, body) = (request.clone(), UnreadBody::<T>::of(request, payload));
        Box::pin(async move {
            ApiRequest::admit(&request)?;
            member(&request).await?;
            let body = body.read().await?;
            let Member(who) = member(&request).await?;
            Ok(Self { who, call: ApiRequest::admit(&request)?, body })
        })
    }
}

/// A form of somebody who is signed in, and that acts once. As a handler's argument.
pub struct OwnersForm(SentForm);

impl HandlerArgument for OwnersForm {
    const CHECKS: &'static [Checks] = &[Checks::Form, Checks::SessionOfRow];
}

impl FromRequest for OwnersForm {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        ready(SentForm::from_request(request, payload).into_inner().map(Self))
    }
}

impl OwnersForm {
    /// Acts once, as `SentForm::once` does. The session is looked up last: the same form before this one may have ended it.
    pub async fn once<T, A>(
        self,
        visit: PageRequest,
        services: ServicesData,
        act: impl FnOnce(PageRequest, AuthenticatedSession, T, ServicesData) -> A + 'static,
    ) -> WebResult
    where
        T: DeserializeOwned + 'static,
        A: Future<Output = WebResult> + 'static,
    {
        let act = async move |visit: PageRequest, form: T, services: ServicesData| {
            let who = owner(&visit, &services).await?;
            act(visit, who, form, services).await
        };
        self.0.once(visit, services, FormReach::AnyInstance, act).await
    }
}

/// A form of ours that a member sends. As a handler's argument; nothing of strangers is read.
pub struct MemberForm<T> {
    pub who: AuthenticatedSession,
    pub form: T,
}

impl<T> HandlerArgument for MemberForm<T> {
    const CHECKS: &'static [Checks] = &[Checks::Member, Checks::Form];
}

impl<T: DeserializeOwned> FromRequest for MemberForm<T> {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, mut payload) = (request.clone(), payload.take());
        Box::pin(async move {
            member(&request).await?;
            let OwnForm(form) = OwnForm::from_request(&request, &mut payload).await?;
            let Member(who) = member(&request).await?;
            Ok(Self { who, form })
        })
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

/// Whether its row is open to an account that has to set a second factor up before everything else.
fn is_for_setup(request: &HttpRequest) -> bool {
    RowFacts::of(request).is_some_and(|row| row.for_setup)
}

async fn required(request: &HttpRequest) -> Result<AuthenticatedSession, WebError> {
    let (services, edge) = app_data(request)?;
    if let Some(who) = find(services, edge.session_token(request.headers())).await? {
        if !who.opens_only_setup() || is_for_setup(request) {
            return Ok(who);
        }
        return Err(match page_visit(request) {
            Some(visit) => visit.set_factor_up_first().into(),
            None => Problem::FactorSetupRequired.into(),
        });
    }
    Err(match page_visit(request) {
        Some(visit) => visit.sign_in_first(back(&visit, request)).into(),
        None => Problem::Unauthenticated.into(),
    })
}

/// The page that is asked for; None for a call of the API, which gets no redirect.
fn page_visit(request: &HttpRequest) -> Option<PageRequest> {
    let edge = WebContext::of(request).ok()?;
    (!request.path().starts_with("/api/")).then(|| PageRequest::of(request, edge.clone()))
}

/// Where to return to: the page itself; for a form, the page that it stands on.
fn back<'a>(visit: &'a PageRequest, request: &'a HttpRequest) -> &'a str {
    match RowFacts::of(request) {
        Some(row) if !request.method().is_safe() => row.page(request),
        _ => visit.here(),
    }
}

/// Finds a session, even one that opens nothing but the setup of a second factor: each caller here sees to that.
async fn find(services: &Services, token: Option<&str>) -> Result<Option<AuthenticatedSession>, DbError> {
    match token.and_then(SessionToken::parse) {
        Some(token) => services.sessions.recognise(&token).await,
        None => Ok(None),
    }
}

/// The user of this visit, if one is signed in.
pub async fn signed_in(
    visit: &PageRequest,
    services: &Services,
) -> Result<Option<AuthenticatedSession>, DbError> {
    find(services, visit.session_token()).await
}

/// The session that a row of `Caller::Session` or `Caller::Member` asks for; otherwise the way to it.
pub async fn owner(visit: &PageRequest, services: &Services) -> Result<AuthenticatedSession, WebError> {
    let request = visit.request();
    let page = back(visit, request);
    let who = signed_in(visit, services).await?.ok_or_else(|| visit.sign_in_first(page))?;
    if who.opens_only_setup() && !is_for_setup(request) {
        return Err(visit.set_factor_up_first().into());
    }
    let of_member = RowFacts::of(request).is_none_or(|row| row.caller == Caller::Member);
    match who.account.must_change_password && of_member {
        true => Err(visit.change_password_first(page).into()),
        false => Ok(who),
    }
}

/// The answer with a new session and a new token, which ends the session of this browser; where the account asks for a
/// second step, `half` with a sign-in that opens nothing but that. `trusts`: this browser is not asked for it again. None
/// if the password was changed since the account was verified. A problem if the account is frozen, and stays so.
pub async fn begin(
    sender: &Requester,
    services: &Services,
    account: &Account,
    (proof, trusts): (Proof, bool),
    target: &str,
    mut whole: HttpResponse,
    half: impl FnOnce(Vec<Factor>, Duration) -> HttpResponse,
) -> Result<Option<HttpResponse>, Problem> {
    let old = sender.session_token().and_then(SessionToken::parse);
    let (first, newest) = (proof.first, proof.second.first().cloned());
    match services.sessions.begin(account, &sender.sign_in_client(), proof, old.as_ref()).await? {
        SessionStart::Begun(token) => {
            let change = sender.settings(services).login.breached_then == BreachedAction::Change;
            if change
                && account.password_lost
                && matches!(first, FirstFactor::Password | FirstFactor::PasswordFrom(_))
            {
                services.accounts.require_new_password(account).await?;
            }
            if sender.known_devices().at(account.id).is_none() {
                let (network, live) = (sender.client.masked(), sender.settings(services));
                // The owner signs in all the same.
                if let Err(error) = services.emails.tell_of_device(account.id, &network, &live).await {
                    tracing::warn!(%error, "a notice of a new device could not be written");
                }
            }
            sender.begin_session(&mut whole, &token, services.session_lasts);
            let device = sender.remember_device(&mut whole, account);
            if let Some(newest) = newest {
                let (factors, live) = (services.factor_verifier.factors(), sender.settings(services));
                factors.note_device(account.id, device, &newest).await?;
                if trusts {
                    let agent = sender.sign_in_client().user_agent;
                    factors.trust(account.id, device, (&live.factors, &agent), &newest).await?;
                }
            }
            Ok(Some(whole))
        }
        SessionStart::FactorMissing => {
            Ok(begin_half(sender, services, account, first, (target, None), half).await?)
        }
        SessionStart::Frozen => Err(Problem::AccountFrozen),
        SessionStart::Void => Ok(None),
    }
}

/// `half` with a sign-in that opens nothing but the second step, and what comes after that: a target, or a new password
/// besides. None as before.
pub async fn begin_half(
    sender: &Requester,
    services: &Services,
    account: &Account,
    first: FirstFactor,
    (target, new_password): (&str, Option<&Phc>),
    half: impl FnOnce(Vec<Factor>, Duration) -> HttpResponse,
) -> Result<Option<HttpResponse>, DbError> {
    let begun = services.half_sign_ins.begin(account, first, target, new_password).await?;
    let Some((token, lasts)) = begun else { return Ok(None) };
    let mut response = half(services.factor_verifier.factors().of(account.id).await?.methods(), lasts);
    sender.begin_half(&mut response, &token, lasts);
    Ok(Some(response))
}

/// What a program is told that has half of a sign-in.
pub fn factor_required(methods: Vec<Factor>, expires_in: Duration) -> HttpResponse {
    Problem::FactorRequired { methods, expires_in }.respond()
}

/// The answer after the session of this browser has ended.
pub async fn end(
    sender: &Requester,
    services: &Services,
    mut response: HttpResponse,
) -> Result<HttpResponse, DbError> {
    if let Some(token) = sender.session_token().and_then(SessionToken::parse) {
        services.sessions.end(&token).await?;
    }
    set_all(&mut response, sender.edge.cookies.end_session());
    Ok(response)
}

/// The page of the second step.
pub const SECOND_STEP: &str = "/login/factor";
/// Where somebody who is signed in proves it again.
pub const CONFIRM: &str = "/confirm";
pub const SET_UP: &str = "/account/factors";

/// The answer to a successful sign-in, or to its first step; None if it is no longer valid.
pub async fn welcome(
    visit: &PageRequest,
    services: &Services,
    account: &Account,
    next: Option<Next>,
    flash: Option<Flash>,
    proof: impl Into<Proof>,
) -> Result<Option<HttpResponse>, Problem> {
    let home = Next::home();
    let target = match account.must_change_password {
        true => Next::after(home.as_str(), next.filter(|next| *next != home).as_ref()),
        false => next.unwrap_or(home).as_str().to_owned(),
    };
    let (whole, half) = (visit.see_other(&target, flash), visit.see_other(SECOND_STEP, None));
    begin(visit, services, account, (proof.into(), false), &target, whole, |_, _| half).await
}

/// The page for signing in, or a redirect for a user who is already signed in, recently enough for where they go: to an
/// application with a code for its host.
pub async fn unless_signed_in(
    visit: PageRequest,
    services: &Services,
    to: &NextFields,
    page: impl FnOnce(&PageRequest, Option<Next>, Notice) -> HttpResponse,
) -> Result<HttpResponse, WebError> {
    let live = visit.live(services);
    let next = to.target(&visit, &live);
    let Some(who) = signed_in(&visit, services).await? else { return Ok(page(&visit, next, Notice::None)) };
    let home = Next::home();
    if who.opens_only_setup() {
        return Ok(visit.set_factor_up_first());
    }
    if who.account.must_change_password {
        return Ok(visit.see_other(&Next::after(home.as_str(), next.as_ref()), None));
    }
    let asked = next.as_ref().and_then(|next| request_at(next.as_str(), &live.apps));
    if asked.is_some_and(|(_, request)| request.wants_sign_in(&who, visit.now())) {
        return Ok(page(&visit, next, Notice::SignInAgain));
    }
    let leads = match next.as_ref().and_then(Next::app) {
        None => next.unwrap_or(home).as_str().to_owned(),
        Some(app) => match sign_in_anew(&visit, &live, &who, app) {
            Some(why) => return Ok(page(&visit, next, why)),
            None => match next_factor(&visit, services, &live, &who, app).await? {
                Some(first) => return Ok(first),
                None => let_in(services, &who, app).await?,
            },
        },
    };
    Ok(visit.see_other(&leads, None))
}

/// Why somebody has to sign in anew before they use a part of an application; None if they do not.
fn sign_in_anew(
    visit: &PageRequest,
    live: &LiveSettings,
    who: &AuthenticatedSession,
    to: &AppTarget,
) -> Option<Notice> {
    let session = &who.session;
    // An application that is gone opens nothing.
    let Some(app) = to.to.app(&live.apps) else { return Some(Notice::SignInAgain) };
    // The owner of an account without a password confirms by a code, which is not as good.
    let verified_at =
        who.account.password_hash.as_ref().map_or(crate::clock::Micros(0), |_| session.verified_at);
    match too_old(app, to.to.target(), session.created_at, verified_at, visit.now())? {
        TooOld::SignIn => Some(Notice::SignInAgain),
        TooOld::Password if who.account.password_hash.is_none() => Some(Notice::PasswordForPart),
        TooOld::Password => Some(Notice::PasswordAgain),
    }
}

/// Where somebody proves the second factor that an application asks for first, or sets one up.
async fn next_factor(
    visit: &PageRequest,
    services: &Services,
    live: &LiveSettings,
    who: &AuthenticatedSession,
    to: &AppTarget,
) -> Result<Option<HttpResponse>, DbError> {
    let Some(needed) = lacked(visit, live, who, to) else { return Ok(None) };
    let fit = services.factor_verifier.factors().of(who.account.id).await?.fit_for(needed);
    Ok(Some(match (fit.is_empty(), needed) {
        (false, _) => visit.see_other(&Next::to_app(to.clone()).by_way_of(CONFIRM), None),
        (true, AppFactor::Passkey) => visit.see_other_about(SET_UP, Some(Flash::AppAsksPasskey), &to.name),
        (true, _) => visit.see_other_about(SET_UP, Some(Flash::AppAsksFactor), &to.name),
    }))
}

/// What an application asks for that this session has not proved lately enough.
pub fn lacked(
    visit: &PageRequest,
    live: &LiveSettings,
    who: &AuthenticatedSession,
    to: &AppTarget,
) -> Option<AppFactor> {
    lacks_factor(to.to.app(&live.apps)?, to.to.target(), who.session.proved, visit.now())
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

/// `POST /logout`
pub async fn logout(visit: PageRequest, _: OwnForm<NoFields>, services: ServicesData) -> WebResult {
    Ok(end(&visit, &services, visit.see_other("/login", Some(Flash::SignedOut))).await?)
}

/// `GET /`
pub async fn home(_: HttpRequest) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, "/account")).finish()
}

#[derive(Serialize, ToSchema)]
#[schema(as = SignedIn, example = json!({
    "user": { "id": "b19bb51d57b40116de95f7448daf9aef", "login": "ada", "roles": ["user"] }
}))]
pub struct UserBody {
    user: User,
}

#[derive(Serialize, ToSchema)]
struct User {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    login: String,
    /// In E.164, if the account has a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
    #[schema(schema_with = describe::roles)]
    roles: Vec<&'static str>,
    /// Present if the password was handed out, or is a lost one that has to go: until it is changed, no other call works.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    must_change_password: bool,
    /// Present if others know the password: it is in the list of lost ones (`[login] breached`), or is being tried at many
    /// names. Have its owner choose another.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    password_breached: bool,
    /// Present if the password is disabled, after too many wrong ones in a row: it signs in only from browsers that
    /// were signed in before. Set another from one of them or with POST /api/v1/password/reset, or ask an administrator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    password_disabled_since: Option<String>,
}

impl From<&Account> for UserBody {
    fn from(account: &Account) -> Self {
        Self {
            user: User {
                id: account.id.to_string(),
                login: account.login.as_str().to_owned(),
                phone: account.phone.as_ref().map(|phone| phone.as_str().to_owned()),
                roles: account.roles.names(),
                must_change_password: account.must_change_password,
                password_breached: account.password_breached,
                password_disabled_since: account.password_disabled_at.map(|at| Moment(at).iso()),
            },
        }
    }
}

/// The answer to a sign-in that succeeded, or to its first step; None if it does not count any more.
pub async fn welcome_program(
    call: &ApiRequest,
    account: &Account,
    proof: impl Into<Proof>,
    mut response: HttpResponseBuilder,
) -> Result<Option<HttpResponse>, Problem> {
    let whole = response.json(UserBody::from(account));
    let (proof, target) = ((proof.into(), false), Next::home());
    begin(call, &call.services, account, proof, target.as_str(), whole, factor_required).await
}

/// Who is signed in
#[utoipa::path(
    get,
    path = "/api/v1/session",
    operation_id = "showSession",
    tag = "session",
    responses((status = 200, description = "The user of this session.", body = UserBody)),
)]
pub async fn api_show(who: SignedIn) -> HttpResponse {
    HttpResponse::Ok().json(UserBody::from(&who.0.account))
}

/// Sign out
///
/// The answer is 204 if nobody was signed in, too.
#[utoipa::path(
    post,
    path = "/api/v1/logout",
    operation_id = "signOut",
    tag = "session",
    responses((status = 204, description = "Signed out. The cookie is removed.", headers(("SessionCookie")))),
)]
pub async fn api_logout(call: ApiRequest) -> Result<HttpResponse, Problem> {
    Ok(end(&call, &call.services, HttpResponse::NoContent().finish()).await?)
}
