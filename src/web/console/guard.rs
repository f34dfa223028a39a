//! The guard before everything under `/admin` and `/api/v1/admin` for people. It decides who may read, who may
//! change something, and how everybody else is answered: pages get a page or a redirect, API calls get a
//! problem. A call may admit programs with a token, too: its row in the table says which.
//!
//! Reading takes an administrator's session whose password the holder chose. A change also takes a request
//! from our own pages or programs, and a password confirmed recently in that session.

use std::future::Future;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::{Error, FromRequest, HttpRequest, HttpResponse};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zeroize::Zeroize;

use crate::accounts::{Account, AdminScope, AuthenticatedSession, Session, SessionToken};
use crate::audit::{ConsoleActor, EventSubject, Outcome};
use crate::config::AccessSaver;
use crate::db::DbError;
use crate::tuning::ChangeAuthor;
use crate::web::console::FormProblem;
use crate::web::form::{FormPairs, value};
use crate::web::http::client::SubjectBytes;
use crate::web::http::extract::{BODY_LIMIT, UnreadBody};
use crate::web::http::row::{AccessKind, Caller, Checks, HandlerArgument, RowFacts};
use crate::web::http::{
    ClientAddress, ErrorKind, ErrorPage, Layout, Next, PageRequest, Problem, ServicesData, WebError,
    app_data, extract,
};

/// Where the password is confirmed.
pub const CONFIRM: &str = "/admin/confirm";

/// An administrator whose request passed the guard, with the services that it asks for.
pub struct Admin {
    pub account: Account,
    pub services: ServicesData,
    client: ClientAddress,
    credential: AdminCredential,
    /// Their name in the history of the limits.
    shown: String,
}

enum AdminCredential {
    Session(Box<Session>),
    /// A program's, which they made: its name with its id.
    Token(String),
}

/// An administrator's request to a page. As a handler's argument: it may read.
pub struct AdminRequest {
    pub visit: PageRequest,
    pub services: ServicesData,
    pub admin: Admin,
}

/// In the record of events by these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
enum DenialReason {
    /// No session, or an ended one.
    SignedOut,
    /// The password is a one-time password. Only changing it is allowed.
    PasswordToChange,
    /// The account must have a second factor, and did not set one up in time.
    FactorToSetUp,
    NotAdmin,
    /// The request comes from another site, or its form is not ours.
    Foreign,
    /// The password was not confirmed recently.
    Unconfirmed,
}

struct AccessDenied {
    reason: DenialReason,
    login: Option<String>,
}

impl Admin {
    /// Whether the password was confirmed recently; a program needs no password.
    pub fn is_confirmed(&self) -> bool {
        match &self.credential {
            AdminCredential::Session(session) => self.services.sessions.is_confirmed(session),
            AdminCredential::Token(_) => true,
        }
    }

    /// The session of an administrator; None for a program.
    pub fn session(&self) -> Option<&Session> {
        match &self.credential {
            AdminCredential::Session(session) => Some(session),
            AdminCredential::Token(_) => None,
        }
    }

    /// The program's token, by its name and id.
    pub fn token(&self) -> Option<&str> {
        match &self.credential {
            AdminCredential::Session(_) => None,
            AdminCredential::Token(token) => Some(token),
        }
    }

    /// The key of the lock that lets one draft be tried at a time: the program, or who is signed in.
    pub fn reader(&self) -> String {
        self.token().map_or_else(|| self.id(), str::to_owned)
    }

    /// Their address in the form that limits count.
    pub fn subject(&self) -> SubjectBytes {
        self.client.subject()
    }

    /// A program changes nothing that concerns an administrator.
    pub fn may_touch(&self, account: Option<&Account>, act: &str) -> Result<(), Problem> {
        match account {
            Some(account) if account.roles.admin && self.token().is_some() => Err(self.overreached(act)),
            _ => Ok(()),
        }
    }

    /// Records that a program wanted to do this to an administrator.
    pub fn overreached(&self, act: &str) -> Problem {
        self.refused_scope(act, "administrator")
    }

    /// Records that a program wanted to do what no scope of its token is for.
    pub fn refused_scope(&self, act: &str, why: &str) -> Problem {
        self.failed("access", &json!({ "act": act, "why": why }));
        Problem::InsufficientScope
    }

    pub fn login(&self) -> &str {
        self.account.login.as_str()
    }

    pub fn id(&self) -> String {
        self.account.id.to_string()
    }

    /// The address that they come from.
    pub const fn address(&self) -> ClientAddress {
        self.client
    }

    /// Records an action: `act` is its name, `detail` holds its details.
    pub fn did(&self, act: &str, detail: &Value) {
        self.record(act, Outcome::Ok, self.account.recorded(), detail);
    }

    /// Records an action on somebody's account.
    pub fn did_to(&self, account: &Account, act: &str, detail: &Value) {
        self.record(act, Outcome::Ok, account.recorded(), detail);
    }

    pub fn failed(&self, act: &str, detail: &Value) {
        self.record(act, Outcome::Refused, self.account.recorded(), detail);
    }

    fn record(&self, act: &str, outcome: Outcome, account: EventSubject<'_>, detail: &Value) {
        let mut detail = detail.clone();
        if let Some(token) = self.token() {
            detail["token"] = token.into();
        }
        let (id, address) = (self.id(), self.subject());
        let address = Some(EventSubject::Address(address.as_ref()));
        let who = ConsoleActor { actor: Some(&id), account: Some(account), address };
        self.services.audit.act(act, outcome, who, Some(detail.to_string()));
    }

    /// For a save of `[access]` by them now.
    pub fn saver(&self) -> AccessSaver {
        AccessSaver { address: self.address(), now: self.services.audit.now() }
    }

    /// The author as the history of the limits names them.
    pub fn author(&self, reason: &str) -> ChangeAuthor {
        ChangeAuthor { account: self.id(), login: self.shown.clone(), reason: reason.to_owned() }
    }
}

impl AdminRequest {
    /// `ours`: its form is. Where a browser is led elsewhere, it comes back to `page`.
    async fn guard(
        visit: PageRequest,
        services: &ServicesData,
        (kind, ours): (AccessKind, bool),
        page: &str,
    ) -> Result<Self, WebError> {
        let authorized =
            authorize(services, visit.session_token(), visit.client, &visit.pattern(), kind, ours).await?;
        match authorized {
            Ok(admin) => Ok(Self { visit, services: services.clone(), admin }),
            Err(denied) => Err(page_instead(&visit, &denied, page).into()),
        }
    }

    /// `here` is the path and query of the page.
    pub fn layout(&self, here: impl Into<String>) -> Layout {
        self.visit.layout(here, Some(self.admin.login()))
    }
}

/// An administrator's form. As a handler's argument. What it asks for is done by `confirm::confirmed`, or after `is_ours`:
/// a page that keeps the input says that a form is not ours. Where the row asks for a change, the sender is judged by that
/// before the handler runs.
pub struct AdminForm<const LIMIT: usize = BODY_LIMIT> {
    pub request: AdminRequest,
    pub pairs: FormPairs,
    ours: bool,
}

impl<const LIMIT: usize> AdminForm<LIMIT> {
    pub const fn is_ours(&self) -> bool {
        self.ours
    }

    /// The reason that a form of ours gives.
    pub fn reason(&self) -> Result<String, FormProblem> {
        if !self.ours {
            return Err(FormProblem::Expired);
        }
        let reason = super::reason(&self.pairs);
        if reason.is_empty() { Err(FormProblem::ReasonMissing) } else { Ok(reason) }
    }

    /// Nothing of strangers is read, and a form that keeps its body back gains nothing: it is judged once more.
    async fn admit(request: &HttpRequest, body: UnreadBody<FormPairs, LIMIT>) -> Result<Self, WebError> {
        let row = RowFacts::of(request).ok_or(Problem::Internal)?;
        let Caller::Admin(kind, _) = row.caller else { return Err(Problem::Internal.into()) };
        let (services, edge) = app_data(request)?;
        let visit = PageRequest::of(request, edge.clone());
        let page = row.page(request);
        let AdminRequest { visit, .. } =
            AdminRequest::guard(visit, services, (AccessKind::Read, false), page).await?;
        let pairs = body.read_form().await?;
        let ours = visit.admits_form(value(&pairs, "csrf_token"));
        let request = AdminRequest::guard(visit, services, (kind, ours), page).await?;
        if !ours {
            let (path, why) = (&row.path, DenialReason::Foreign.into_str());
            request.admin.failed("access", &json!({ "path": path, "why": why }));
        }
        Ok(Self { request, pairs, ours })
    }
}

impl<const LIMIT: usize> Drop for AdminForm<LIMIT> {
    /// One of the fields may be a password.
    fn drop(&mut self) {
        self.pairs.iter_mut().for_each(|(_, value)| value.zeroize());
    }
}

impl<const LIMIT: usize> HandlerArgument for AdminForm<LIMIT> {
    const CHECKS: &'static [Checks] = &[Checks::AdminForm, Checks::Form];
}

impl<const LIMIT: usize> FromRequest for AdminForm<LIMIT> {
    type Error = Error;
    type Future = GuardFuture<Self>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, body) = (request.clone(), UnreadBody::of(request, payload));
        Box::pin(async move { Ok(Self::admit(&request, body).await?) })
    }
}

fn page_instead(visit: &PageRequest, denied: &AccessDenied, page: &str) -> HttpResponse {
    match denied.reason {
        DenialReason::SignedOut => visit.sign_in_first(page),
        DenialReason::PasswordToChange => visit.change_password_first(page),
        DenialReason::FactorToSetUp => visit.set_factor_up_first(),
        DenialReason::NotAdmin => {
            let layout = visit.layout("/account", denied.login.as_deref());
            ErrorPage::new(layout, ErrorKind::Forbidden).respond(visit)
        }
        DenialReason::Foreign => {
            ErrorPage::new(visit.layout(page, None), ErrorKind::ForeignForm).respond(visit)
        }
        DenialReason::Unconfirmed => visit.see_other(&Next::after(CONFIRM, Next::parse(page).as_ref()), None),
    }
}

type GuardFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>>>>;

impl HandlerArgument for AdminRequest {
    const CHECKS: &'static [Checks] = &[Checks::AdminPage];
}

impl FromRequest for AdminRequest {
    type Error = Error;
    type Future = GuardFuture<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let (services, edge) = app_data(&request)?;
            let visit = PageRequest::of(&request, edge.clone());
            let page = visit.here().to_owned();
            Ok(Self::guard(visit, services, (AccessKind::Read, false), &page).await?)
        })
    }
}

async fn guard_call(request: &HttpRequest, kind: AccessKind) -> Result<Admin, Problem> {
    let (services, edge) = app_data(request)?;
    let (token, client) = (edge.session_token(request.headers()), ClientAddress::of(request, &edge.trusted));
    let path = request.match_pattern().unwrap_or_default();
    let authorized = authorize(services, token, client, &path, kind, edge.caller(request).is_ok()).await?;
    let problem = |denied: AccessDenied| match denied.reason {
        DenialReason::SignedOut => Problem::Unauthenticated,
        DenialReason::PasswordToChange => Problem::PasswordChangeRequired,
        DenialReason::FactorToSetUp => Problem::FactorSetupRequired,
        DenialReason::NotAdmin => Problem::Forbidden,
        DenialReason::Foreign => Problem::Csrf,
        DenialReason::Unconfirmed => Problem::ConfirmationRequired,
    };
    authorized.map_err(problem)
}

/// Decides on a request, and records a refusal. `path` is the pattern in the URL table. `ours`: it does not come from
/// another site.
async fn authorize(
    services: &ServicesData,
    token: Option<&str>,
    client: ClientAddress,
    path: &str,
    kind: AccessKind,
    ours: bool,
) -> Result<Result<Admin, AccessDenied>, DbError> {
    let found = match token.and_then(SessionToken::parse) {
        Some(token) => services.sessions.recognise(&token).await?,
        None => None,
    };
    let detail = |why: DenialReason| json!({ "path": path, "why": why.into_str() });
    let must_set_up = found.as_ref().is_some_and(AuthenticatedSession::opens_only_setup);
    let Some(AuthenticatedSession { session, account }) = found else {
        let reason = DenialReason::SignedOut;
        let address = client.subject();
        let address = Some(EventSubject::Address(address.as_ref()));
        let who = ConsoleActor { actor: None, account: None, address };
        services.audit.act("access", Outcome::Refused, who, Some(detail(reason).to_string()));
        return Ok(Err(AccessDenied { reason, login: None }));
    };
    let (shown, credential) =
        (account.login.as_str().to_owned(), AdminCredential::Session(Box::new(session)));
    let admin = Admin { account, services: services.clone(), client, credential, shown };
    let denial = match admin.denial(kind, ours, path) {
        Some(DenialReason::Foreign) if path.starts_with("/api/") => Some(DenialReason::Foreign),
        _ if must_set_up => Some(DenialReason::FactorToSetUp),
        denial => denial,
    };
    Ok(match denial {
        None => Ok(admin),
        Some(reason) => {
            admin.failed("access", &detail(reason));
            Err(AccessDenied { reason, login: Some(admin.shown) })
        }
    })
}

impl Admin {
    /// In the order that reveals least to a client without the right.
    fn denial(&self, kind: AccessKind, ours: bool, path: &str) -> Option<DenialReason> {
        let foreign = kind != AccessKind::Read && !ours;
        // A request from another site is refused for that reason, no matter whose browser sends it.
        if foreign && path.starts_with("/api/") {
            return Some(DenialReason::Foreign);
        }
        if self.account.must_change_password {
            return Some(DenialReason::PasswordToChange);
        }
        if !self.account.roles.admin {
            return Some(DenialReason::NotAdmin);
        }
        if foreign {
            return Some(DenialReason::Foreign);
        }
        (kind == AccessKind::Change && !self.is_confirmed()).then_some(DenialReason::Unconfirmed)
    }
}

/// An administrator, or a program with a token, whom the row of a call admits. As a handler's argument.
pub struct Permitted {
    admin: Admin,
    request: HttpRequest,
}

impl Permitted {
    /// For a call without a body.
    pub fn admin(self) -> Admin {
        self.admin
    }

    /// Nothing of strangers is read, and a call that keeps its body back gains nothing: it is judged once more when the body
    /// is there.
    pub async fn read<T: DeserializeOwned + 'static, const LIMIT: usize>(
        self,
        body: UnreadBody<T, LIMIT>,
    ) -> Result<(Admin, T), Problem> {
        let body = body.read().await?;
        Ok((self.judge_again().await?, body))
    }

    /// For a body that was read beside the first judgement.
    pub async fn judge_again(self) -> Result<Admin, Problem> {
        judge(&self.request).await
    }
}

async fn judge(request: &HttpRequest) -> Result<Admin, Problem> {
    let row = RowFacts::of(request).ok_or(Problem::Internal)?;
    let Caller::Admin(kind, scopes) = row.caller else { return Err(Problem::Internal) };
    // Without a scope no token opens it, as if none were sent.
    match !scopes.is_empty() && extract::sends_token(request) {
        true => by_token(request, scopes).await,
        false => guard_call(request, kind).await,
    }
}

impl HandlerArgument for Permitted {
    const CHECKS: &'static [Checks] = &[Checks::AdminCall, Checks::Call];
}

impl FromRequest for Permitted {
    type Error = Error;
    type Future = GuardFuture<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let admin = judge(&request).await?;
            Ok(Self { admin, request })
        })
    }
}

/// A token is as good as its maker: it ends when they are no administrator any more.
async fn by_token(request: &HttpRequest, scopes: &[AdminScope]) -> Result<Admin, Problem> {
    let (services, edge) = app_data(request)?;
    let client = ClientAddress::of(request, &edge.trusted);
    let bearer = extract::admit_token(request, services, client).await?;
    let maker = services.accounts.by_id(bearer.made_by).await?;
    let maker =
        maker.filter(|maker| maker.roles.admin && !maker.must_change_password && maker.disabled_at.is_none());
    let account = maker.ok_or(Problem::InvalidToken)?;
    let shown = format!("{} (token {})", account.login.as_str(), bearer.name);
    let credential = AdminCredential::Token(format!("{} ({})", bearer.name, bearer.id));
    let admin = Admin { account, services: services.clone(), client, credential, shown };
    if scopes.iter().any(|scope| bearer.scopes.open(*scope)) {
        return Ok(admin);
    }
    let path = request.match_pattern().unwrap_or_default();
    admin.failed("access", &json!({ "path": path, "why": "scope" }));
    Err(Problem::InsufficientScope)
}
