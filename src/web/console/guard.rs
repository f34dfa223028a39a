//! The guard before everything under `/admin` and `/api/v1/admin` for people. It decides who may read, who may
//! change something, and how everybody else is answered: pages get a page or a redirect, API calls get a
//! problem. A call may admit programs with a token, too: the type of its handler's argument says which ([`Permitted`]).
//!
//! Reading takes an administrator's session whose password the holder chose. A change also takes a request
//! from our own pages or programs, and a password confirmed recently in that session.

use std::future::Future;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::web::Data;
use actix_web::{Error, FromRequest, HttpRequest, HttpResponse};
use serde_json::{Value, json};

use crate::accounts::{Account, AdminScope, AuthenticatedSession, Session, SessionToken, TokenBearer};
use crate::audit::{ConsoleActor, EventSubject, Outcome};
use crate::db::DbError;
use crate::tuning::ChangeActor;
use crate::web::form::value;
use crate::web::http::client::SubjectBytes;
use crate::web::http::{
    ClientAddress, ErrorKind, ErrorPage, Next, PageRequest, Problem, Services, ServicesData, WebContext,
    WebError, extract,
};

/// Where the password is confirmed.
pub const CONFIRM: &str = "/admin/confirm";

/// An administrator whose request passed the guard. As a handler's argument: may read.
#[derive(Debug)]
pub struct Admin {
    pub who: AdminIdentity,
    client: ClientAddress,
}

/// An administrator, and by what they are known.
#[derive(Debug)]
pub struct AdminIdentity {
    pub account: Account,
    credential: AdminCredential,
    /// Their name in the history of the limits.
    shown: String,
}

#[derive(Debug)]
enum AdminCredential {
    Session(Box<Session>),
    /// A program's, which they made: its name with its id.
    Token(String),
}

/// As a handler's argument: may also change something.
pub struct ConfirmedAdmin(pub Admin);

/// What a request wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    Read,
    /// Try a draft, or confirm the password.
    Try,
    Change,
}

/// In the record of events by these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
enum DenialReason {
    /// No session, or an ended one.
    SignedOut,
    /// The password is a one-time password. Only changing it is allowed.
    PasswordToChange,
    NotAdmin,
    /// The request comes from another site, or its form is not ours.
    Foreign,
    /// The password was not confirmed recently.
    Unconfirmed,
}

#[derive(Debug)]
struct AccessDenied {
    reason: DenialReason,
    who: Option<AdminIdentity>,
}

impl Admin {
    /// A program with a token that this administrator made.
    pub fn by_token(account: Account, token: &TokenBearer, client: ClientAddress) -> Self {
        let shown = format!("{} (token {})", account.login.as_str(), token.name);
        let credential = AdminCredential::Token(format!("{} ({})", token.name, token.id));
        Self { who: AdminIdentity { account, credential, shown }, client }
    }

    /// Whether the password was confirmed recently; a program needs no password.
    pub fn is_confirmed(&self, services: &Services) -> bool {
        match &self.who.credential {
            AdminCredential::Session(session) => services.sessions.is_confirmed(session),
            AdminCredential::Token(_) => true,
        }
    }

    /// The program's token, by its name and id.
    pub fn token(&self) -> Option<&str> {
        match &self.who.credential {
            AdminCredential::Session(_) => None,
            AdminCredential::Token(token) => Some(token),
        }
    }

    /// Of whom one draft is read at a time: the program, or who is signed in.
    pub fn reader(&self) -> String {
        self.token().map_or_else(|| self.id(), str::to_owned)
    }

    /// Their address in the form that limits count.
    pub fn subject(&self) -> SubjectBytes {
        self.client.subject()
    }

    /// A program changes nothing that concerns an administrator.
    pub fn may_touch(
        &self,
        services: &Services,
        account: Option<&Account>,
        act: &str,
    ) -> Result<(), Problem> {
        match account {
            Some(account) if account.roles.admin && self.token().is_some() => {
                Err(self.overreached(services, act))
            }
            _ => Ok(()),
        }
    }

    /// Records that a program wanted to do this to an administrator.
    pub fn overreached(&self, services: &Services, act: &str) -> Problem {
        self.failed(services, "access", &json!({ "act": act, "why": "administrator" }));
        Problem::InsufficientScope
    }

    /// Their name for pages.
    pub fn login(&self) -> &str {
        self.who.account.login.as_str()
    }

    pub fn id(&self) -> String {
        self.who.account.id.to_string()
    }

    /// The address that they come from.
    pub const fn address(&self) -> IpAddr {
        self.client.ip()
    }

    /// Whether a form is ours, for a page that reports it and keeps the input if not: the guard admitted the request as
    /// a read.
    pub fn sends_own_form(
        &self,
        visit: &PageRequest,
        services: &Services,
        pairs: &[(String, String)],
    ) -> bool {
        let ours = visit.admits_form(value(pairs, "csrf_token"));
        if !ours {
            self.was_foreign(services, &visit.pattern());
        }
        ours
    }

    /// Records that a form was not ours. `path` is the pattern in the URL table.
    pub fn was_foreign(&self, services: &Services, path: &str) {
        self.failed(services, "access", &json!({ "path": path, "why": DenialReason::Foreign.into_str() }));
    }

    /// Records an action: `act` is its name, `detail` holds its details.
    pub fn did(&self, services: &Services, act: &str, detail: &Value) {
        let account = Some(self.who.account.recorded());
        record(services, act, Outcome::Ok, Some(&self.who), account, self.client, detail);
    }

    /// Records an action on somebody's account.
    pub fn did_to(&self, services: &Services, account: &Account, act: &str, detail: &Value) {
        record(services, act, Outcome::Ok, Some(&self.who), Some(account.recorded()), self.client, detail);
    }

    pub fn failed(&self, services: &Services, act: &str, detail: &Value) {
        let account = Some(self.who.account.recorded());
        record(services, act, Outcome::Refused, Some(&self.who), account, self.client, detail);
    }

    /// Their name in the history of the limits.
    pub fn by<'a>(&'a self, id: &'a str) -> ChangeActor<'a> {
        ChangeActor { account: id, login: &self.who.shown }
    }
}

/// For a form that changes something. `page` is its path, and the target after signing in or confirming the
/// password.
pub async fn change(
    visit: &PageRequest,
    services: &Services,
    page: &str,
    csrf_token: &str,
) -> Result<Admin, WebError> {
    guard_page(visit, services, AccessKind::Change, visit.admits_form(csrf_token), page).await
}

/// For the form at [`CONFIRM`] that confirms the password.
pub async fn confirmation(
    visit: &PageRequest,
    services: &Services,
    csrf_token: &str,
) -> Result<Admin, WebError> {
    guard_page(visit, services, AccessKind::Try, visit.admits_form(csrf_token), CONFIRM).await
}

async fn guard_page(
    visit: &PageRequest,
    services: &Services,
    kind: AccessKind,
    ours: bool,
    page: &str,
) -> Result<Admin, WebError> {
    let judged = judge(services, visit.session_token(), visit.client, &visit.pattern(), kind, ours).await?;
    judged.map_err(|denied| page_instead(visit, &denied, page).into())
}

fn page_instead(visit: &PageRequest, denied: &AccessDenied, page: &str) -> HttpResponse {
    match denied.reason {
        DenialReason::SignedOut => visit.sign_in_first(page),
        DenialReason::PasswordToChange => visit.change_password_first(page),
        DenialReason::NotAdmin => {
            let user = denied.who.as_ref().map(|who| who.account.login.as_str());
            ErrorPage::new(visit.layout("/account", user), ErrorKind::Forbidden).respond(visit)
        }
        DenialReason::Foreign => {
            ErrorPage::new(visit.layout(page, None), ErrorKind::ForeignForm).respond(visit)
        }
        DenialReason::Unconfirmed => {
            visit.clone().keep_flash().see_other(&Next::after(CONFIRM, Next::parse(page).as_ref()), None)
        }
    }
}

type GuardFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>>>>;

impl FromRequest for Admin {
    type Error = Error;
    type Future = GuardFuture<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { guard_request(&request, AccessKind::Read).await.map_err(Error::from) })
    }
}

impl FromRequest for ConfirmedAdmin {
    type Error = Error;
    type Future = GuardFuture<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { Ok(Self(guard_request(&request, AccessKind::Change).await?)) })
    }
}

/// For the API call that confirms the password.
pub async fn confirming(request: &HttpRequest) -> Result<Admin, WebError> {
    guard_request(request, AccessKind::Try).await
}

async fn guard_request(request: &HttpRequest, kind: AccessKind) -> Result<Admin, WebError> {
    let (services, edge) = (request.app_data::<ServicesData>(), request.app_data::<Data<WebContext>>());
    let (Some(services), Some(edge)) = (services, edge) else { return Err(Problem::Internal.into()) };
    if !request.path().starts_with("/api/") {
        let visit = PageRequest::of(request, edge.clone());
        return guard_page(&visit, services, kind, false, visit.here()).await;
    }
    let (token, client) = (edge.session_token(request.headers()), ClientAddress::of(request, &edge.trusted));
    let path = request.match_pattern().unwrap_or_default();
    let judged = judge(services, token, client, &path, kind, edge.caller(request).is_ok()).await?;
    let problem = |denied: AccessDenied| match denied.reason {
        DenialReason::SignedOut => Problem::Unauthenticated,
        DenialReason::PasswordToChange => Problem::PasswordChangeRequired,
        DenialReason::NotAdmin => Problem::Forbidden,
        DenialReason::Foreign => Problem::Csrf,
        DenialReason::Unconfirmed => Problem::ConfirmationRequired,
    };
    judged.map_err(|denied| problem(denied).into())
}

/// Decides on a request, and records a refusal. `path` is the pattern in the URL table. `ours`: it does not come from
/// another site.
async fn judge(
    services: &Services,
    token: Option<&str>,
    client: ClientAddress,
    path: &str,
    kind: AccessKind,
    ours: bool,
) -> Result<Result<Admin, AccessDenied>, DbError> {
    let found = match token.and_then(SessionToken::parse) {
        Some(token) => services.sessions.find(&token).await?,
        None => None,
    };
    let who = found.map(|AuthenticatedSession { session, account }| {
        let shown = account.login.as_str().to_owned();
        AdminIdentity { account, credential: AdminCredential::Session(Box::new(session)), shown }
    });
    let reason = match &who {
        None => Some(DenialReason::SignedOut),
        Some(who) => denial(services, who, kind, ours, path),
    };
    match (reason, who) {
        (None, Some(who)) => Ok(Ok(Admin { who, client })),
        (reason, who) => {
            let reason = reason.unwrap_or(DenialReason::SignedOut);
            let detail = json!({ "path": path, "why": reason.into_str() });
            let account = who.as_ref().map(|who| who.account.recorded());
            record(services, "access", Outcome::Refused, who.as_ref(), account, client, &detail);
            Ok(Err(AccessDenied { reason, who }))
        }
    }
}

/// In the order that reveals least to a client without the right.
fn denial(
    services: &Services,
    who: &AdminIdentity,
    kind: AccessKind,
    ours: bool,
    path: &str,
) -> Option<DenialReason> {
    let foreign = kind != AccessKind::Read && !ours;
    // A request from another site is refused for that reason, no matter whose browser sends it.
    if foreign && path.starts_with("/api/") {
        return Some(DenialReason::Foreign);
    }
    if who.account.must_change_password {
        return Some(DenialReason::PasswordToChange);
    }
    if !who.account.roles.admin {
        return Some(DenialReason::NotAdmin);
    }
    if foreign {
        return Some(DenialReason::Foreign);
    }
    match &who.credential {
        AdminCredential::Session(session) if kind == AccessKind::Change => {
            (!services.sessions.is_confirmed(session)).then_some(DenialReason::Unconfirmed)
        }
        _ => None,
    }
}

fn record(
    services: &Services,
    act: &str,
    outcome: Outcome,
    who: Option<&AdminIdentity>,
    account: Option<EventSubject<'_>>,
    client: ClientAddress,
    detail: &Value,
) {
    let mut detail = detail.clone();
    if let Some(AdminCredential::Token(token)) = who.map(|who| &who.credential) {
        detail["token"] = token.as_str().into();
    }
    let actor = who.map(|who| who.account.id.to_string());
    let address = client.subject();
    let address = Some(EventSubject::Address(address.as_ref()));
    let who = ConsoleActor { actor: actor.as_deref(), account, address };
    services.audit.act(act, outcome, who, Some(detail.to_string()));
}

/// A part of the admin API.
pub trait AdminPart {
    /// A token needs one of these.
    const SCOPES: &'static [AdminScope];
    /// What a session needs for it.
    const KIND: AccessKind;
}

macro_rules! admin_parts {
    ($($(#[$doc:meta])* $part:ident = $kind:ident, [$($scope:ident),+];)+) => {
        $($(#[$doc])* pub struct $part;

        impl AdminPart for $part {
            const SCOPES: &'static [AdminScope] = &[$(AdminScope::$scope),+];
            const KIND: AccessKind = AccessKind::$kind;
        })+
    };
}

admin_parts! {
    ReadLimits = Read, [LimitsRead, LimitsWrite];
    TryLimits = Try, [LimitsRead, LimitsWrite];
    SaveLimits = Change, [LimitsWrite];
    ReadAccess = Read, [LimitsRead, AccessWrite];
    SaveAccess = Change, [AccessWrite];
    ReadApps = Read, [LimitsRead, AppsWrite];
    SaveApps = Change, [AppsWrite];
    /// It names accounts.
    TryApps = Try, [AppsWrite];
    ReadEvents = Read, [EventsRead];
    ReadSubjects = Read, [EventsRead, SubjectsClear];
    /// What lets somebody in again, or messages through.
    ClearSubjects = Change, [SubjectsClear];
    ReadAccounts = Read, [AccountsWrite];
    ChangeAccounts = Change, [AccountsWrite];
}

/// May make this call, or is refused.
pub struct Permitted<P> {
    pub admin: Admin,
    part: PhantomData<P>,
}

impl<P: AdminPart> FromRequest for Permitted<P> {
    type Error = Error;
    type Future = GuardFuture<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let admin = if extract::sends_token(&request) {
                by_token(&request, P::SCOPES).await
            } else {
                guard_request(&request, P::KIND).await
            };
            Ok(Self { admin: admin?, part: PhantomData })
        })
    }
}

/// A token is as good as its maker: it ends when they are no administrator any more.
async fn by_token(request: &HttpRequest, scopes: &[AdminScope]) -> Result<Admin, WebError> {
    let parts = (request.app_data::<ServicesData>(), request.app_data::<Data<WebContext>>());
    let (Some(services), Some(edge)) = parts else { return Err(Problem::Internal.into()) };
    let client = ClientAddress::of(request, &edge.trusted);
    let bearer = extract::admit_token(request, services, client).await?;
    let maker = services.accounts.by_id(bearer.made_by).await?;
    let maker =
        maker.filter(|maker| maker.roles.admin && !maker.must_change_password && maker.disabled_at.is_none());
    let admin = Admin::by_token(maker.ok_or(Problem::InvalidToken)?, &bearer, client);
    if scopes.iter().any(|scope| bearer.scopes.open(*scope)) {
        return Ok(admin);
    }
    let path = request.match_pattern().unwrap_or_default();
    admin.failed(services, "access", &json!({ "path": path, "why": "scope" }));
    Err(Problem::InsufficientScope.into())
}
