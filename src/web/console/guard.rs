//! The guard before everything under `/admin` and `/api/v1/admin` for people. It decides who may read, who may
//! change something, and how everybody else is answered: pages get a page or a redirect, API calls get a
//! problem. `permitted.rs` lets programs in, too.
//!
//! Reading takes an administrator's session whose password the holder chose. A change also takes a request
//! from our own pages or programs, and a password confirmed recently in that session.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::web::Data;
use actix_web::{Error, FromRequest, HttpRequest, HttpResponse};
use serde_json::{Value, json};

use crate::audit::{ConsoleActor, EventSubject, Outcome};
use crate::db::DbError;
use crate::login::{Account, AuthenticatedSession, Session, SessionToken, TokenBearer};
use crate::tuning::ChangeActor;
use crate::web::kit::client::{ClientAddress, SubjectBytes};
use crate::web::kit::error_page::{ErrorKind, ErrorPage};
use crate::web::kit::next::Next;
use crate::web::kit::problem::Problem;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::{Edge, Visit};
use crate::web::kit::web_error::WebError;

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

impl From<AuthenticatedSession> for AdminIdentity {
    fn from(AuthenticatedSession { session, account }: AuthenticatedSession) -> Self {
        let shown = account.login.as_str().to_owned();
        Self { account, credential: AdminCredential::Session(Box::new(session)), shown }
    }
}

/// As a handler's argument: may also change something.
pub struct ConfirmedAdmin(pub Admin);

/// Who requests access, and to which path (its pattern in the URL table).
struct GuardedRequest<'a> {
    token: Option<&'a str>,
    client: ClientAddress,
    path: &'a str,
}

/// What a request wants to do. `ours`: it does not come from another site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    Read,
    /// Try a draft, or confirm the password.
    Try {
        ours: bool,
    },
    Change {
        ours: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl DenialReason {
    /// The name in the record of events.
    const fn as_str(self) -> &'static str {
        match self {
            Self::SignedOut => "signed-out",
            Self::PasswordToChange => "password-to-change",
            Self::NotAdmin => "not-admin",
            Self::Foreign => "foreign",
            Self::Unconfirmed => "unconfirmed",
        }
    }
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

    /// Records that a form was not ours, if the page itself reports it and keeps the input: the guard
    /// admitted the request as a read. `path` is the pattern in the URL table.
    pub fn was_foreign(&self, services: &Services, path: &str) {
        let detail = json!({ "path": path, "why": DenialReason::Foreign.as_str() });
        record(services, "access", Outcome::Refused, Some(&self.who), self.client, &detail);
    }

    /// Records an action: `act` is its name, `detail` holds its details.
    pub fn did(&self, services: &Services, act: &str, detail: &Value) {
        record(services, act, Outcome::Ok, Some(&self.who), self.client, detail);
    }

    /// Records an action that failed.
    pub fn failed(&self, services: &Services, act: &str, detail: &Value) {
        record(services, act, Outcome::Refused, Some(&self.who), self.client, detail);
    }

    /// Their name in the history of the limits.
    pub fn by<'a>(&'a self, id: &'a str) -> ChangeActor<'a> {
        ChangeActor { account: id, login: &self.who.shown }
    }
}

/// For a form that changes something. `page` is its path, and the target after signing in or confirming the
/// password.
pub async fn change(
    visit: &Visit,
    services: &Services,
    page: &str,
    csrf_token: &str,
) -> Result<Admin, WebError> {
    guard_page(visit, services, AccessKind::Change { ours: visit.admits_form(csrf_token) }, page).await
}

/// For the form at [`CONFIRM`] that confirms the password.
pub async fn confirmation(visit: &Visit, services: &Services, csrf_token: &str) -> Result<Admin, WebError> {
    guard_page(visit, services, AccessKind::Try { ours: visit.admits_form(csrf_token) }, CONFIRM).await
}

async fn guard_page(
    visit: &Visit,
    services: &Services,
    kind: AccessKind,
    page: &str,
) -> Result<Admin, WebError> {
    let request =
        GuardedRequest { token: visit.session_token(), client: visit.client, path: visit.pattern() };
    let judged = judge(services, request, kind).await?;
    judged.map_err(|denied| page_instead(visit, &denied, page).into())
}

fn page_instead(visit: &Visit, denied: &AccessDenied, page: &str) -> HttpResponse {
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

/// Records that a program's token does not reach as far as its request.
pub fn out_of_scope(services: &Services, admin: &Admin, path: &str) -> Problem {
    admin.failed(services, "access", &json!({ "path": path, "why": "scope" }));
    Problem::InsufficientScope
}

impl From<DenialReason> for Problem {
    fn from(reason: DenialReason) -> Self {
        match reason {
            DenialReason::SignedOut => Self::Unauthenticated,
            DenialReason::PasswordToChange => Self::PasswordChangeRequired,
            DenialReason::NotAdmin => Self::Forbidden,
            DenialReason::Foreign => Self::Csrf,
            DenialReason::Unconfirmed => Self::ConfirmationRequired,
        }
    }
}

type GuardFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>>>>;

impl FromRequest for Admin {
    type Error = Error;
    type Future = GuardFuture<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { guard_request(&request, |_| AccessKind::Read).await.map_err(Error::from) })
    }
}

impl FromRequest for ConfirmedAdmin {
    type Error = Error;
    type Future = GuardFuture<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { Ok(Self(guard_request(&request, |ours| AccessKind::Change { ours }).await?)) })
    }
}

/// For the API call that confirms the password.
pub async fn confirming(request: &HttpRequest) -> Result<Admin, WebError> {
    guard_request(request, |ours| AccessKind::Try { ours }).await
}

pub(super) async fn guard_request(
    request: &HttpRequest,
    kind: impl FnOnce(bool) -> AccessKind,
) -> Result<Admin, WebError> {
    let (services, edge) = (request.app_data::<Shared>(), request.app_data::<Data<Edge>>());
    let (Some(services), Some(edge)) = (services, edge) else { return Err(Problem::Internal.into()) };
    if !request.path().starts_with("/api/") {
        let visit = Visit::of(request, edge.clone());
        return guard_page(&visit, services, kind(false), visit.here()).await;
    }
    let path = request.match_pattern();
    let asked = GuardedRequest {
        token: edge.session_token(request.headers()),
        client: ClientAddress::of(request, &edge.trusted),
        path: path.as_deref().unwrap_or_default(),
    };
    let judged = judge(services, asked, kind(edge.caller(request).is_ok())).await?;
    judged.map_err(|denied| Problem::from(denied.reason).into())
}

/// Decides on a request, and records a refusal.
async fn judge(
    services: &Services,
    request: GuardedRequest<'_>,
    kind: AccessKind,
) -> Result<Result<Admin, AccessDenied>, DbError> {
    let GuardedRequest { token, client, path } = request;
    let who = match token.and_then(SessionToken::parse) {
        Some(token) => services.sessions.find(&token).await?.map(AdminIdentity::from),
        None => None,
    };
    let reason = match &who {
        None => Some(DenialReason::SignedOut),
        Some(who) => denial(services, who, kind, path),
    };
    match (reason, who) {
        (None, Some(who)) => Ok(Ok(Admin { who, client })),
        (reason, who) => {
            let reason = reason.unwrap_or(DenialReason::SignedOut);
            let detail = json!({ "path": path, "why": reason.as_str() });
            record(services, "access", Outcome::Refused, who.as_ref(), client, &detail);
            Ok(Err(AccessDenied { reason, who }))
        }
    }
}

/// In the order that reveals least to a client without the right.
fn denial(services: &Services, who: &AdminIdentity, kind: AccessKind, path: &str) -> Option<DenialReason> {
    // A request from another site is refused for that reason, no matter whose browser sends it.
    let foreign = matches!(kind, AccessKind::Try { ours: false } | AccessKind::Change { ours: false });
    if foreign && path.starts_with("/api/") {
        return Some(DenialReason::Foreign);
    }
    if who.account.must_change_password {
        return Some(DenialReason::PasswordToChange);
    }
    if !who.account.roles.admin {
        return Some(DenialReason::NotAdmin);
    }
    match kind {
        AccessKind::Read | AccessKind::Try { ours: true } => None,
        AccessKind::Try { ours: false } | AccessKind::Change { ours: false } => Some(DenialReason::Foreign),
        AccessKind::Change { ours: true } => {
            let AdminCredential::Session(session) = &who.credential else { return None };
            (!services.sessions.is_confirmed(session)).then_some(DenialReason::Unconfirmed)
        }
    }
}

fn record(
    services: &Services,
    act: &str,
    outcome: Outcome,
    who: Option<&AdminIdentity>,
    client: ClientAddress,
    detail: &Value,
) {
    let mut detail = detail.clone();
    if let Some(AdminCredential::Token(token)) = who.map(|who| &who.credential) {
        detail["token"] = token.as_str().into();
    }
    let account = who.map(|who| &who.account);
    let actor = account.map(|account| account.id.to_string());
    let address = client.subject();
    let who = ConsoleActor {
        actor: actor.as_deref(),
        account: account.map(|account| EventSubject::Account {
            id: account.id.as_bytes(),
            login: account.login.as_str(),
        }),
        address: Some(EventSubject::Address(address.as_ref())),
    };
    services.audit.act(act, outcome, who, Some(detail.to_string()));
}
