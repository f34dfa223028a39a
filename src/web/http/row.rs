//! One row for each method of a URL: its handler, who may call it, what keeps the pages of other sites out, what a refused
//! network may reach, and its part of the OpenAPI document. The rows are in `routes`. A handler takes as arguments what its
//! row asks for, which is checked when the table is made, so that none is reached without.

use actix_web::http::Method;
use actix_web::web::{Bytes, Data, Json, Path, Query, route};
use actix_web::{Error, FromRequest, Handler, HttpRequest, Responder, Route, guard};
use utoipa::__dev::{SchemaReferences, Tags};
use utoipa::openapi::path::{HttpMethod, Operation};
use utoipa::openapi::{RefOr, Schema};

use crate::accounts::{AdminScope, ProgramScope};
use crate::audit::Action;
use crate::codes::Channel;
use crate::web::http::extract::UnreadBody;
use crate::web::http::page::{PageRequest, Requester};
use crate::web::http::services::Services;

/// The caller that a row admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    Anyone,
    /// Anyone, and a member for a part of what can be asked.
    MaybeMember,
    /// A session, whatever its owner has to do first.
    Session,
    /// A session whose owner chose their own password.
    Member,
    /// A browser that has taken the first step of a sign-in, by its cookie.
    HalfSignIn,
    /// An administrator; also a program with a token that has one of the scopes.
    Admin(AccessKind, &'static [AdminScope]),
    /// A program, by a token for a realm of this kind.
    Program(ProgramScope),
    /// A mail server, by a token for a guarded realm, which it may send in other header fields.
    MailServer,
    /// A program, by a token for the custom limit that the path names.
    LimitUser,
    /// A client of OpenID Connect, by its secret.
    Client,
    /// A client with an access token.
    TokenHolder,
    /// A program that signs what it sends.
    Signer,
    /// The SMS gateway, by what its reports prove.
    Gateway,
    /// A trusted proxy, for somebody at an application.
    Proxy,
    /// An address of `server.metrics_from`.
    Monitoring,
    /// A program on this machine.
    ThisMachine,
}

/// What an administrator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    Read,
    /// Try a draft, or confirm the password.
    Try,
    /// Takes a password that was confirmed recently.
    Change,
}

/// What keeps the pages of other sites from calling with somebody's cookies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It changes nothing.
    Harmless,
    /// A form of ours has a token of its browser, and says where it is from.
    Form,
    /// A call says where it is from, or is one that no form can make.
    Call,
    /// No cookie counts.
    NoCookies,
    /// It may be sent from elsewhere: why that does no harm.
    Elsewhere(&'static str),
}

/// What a client of a network in `[access] deny` may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhileDenied {
    #[default]
    Nothing,
    /// What a browser that an account knows may use.
    KnownBrowser,
    /// What a known browser may use that is signed in.
    KnownSession,
    /// For monitoring and gateways, and what the page of the refusal is made of; and what proxies ask, since who is refused
    /// here cannot sign in.
    Everybody,
}

/// What a row says to the parts that its requests pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFacts {
    /// An empty list stands for every method.
    pub methods: &'static [Method],
    pub path: String,
    pub caller: Caller,
    pub origin: Origin,
    pub while_denied: WhileDenied,
    /// Open to an account that has to set a second factor up before everything else.
    pub for_setup: bool,
    /// The page that a form stands on, if not that of its own path.
    page: Option<&'static str>,
    /// The action of the record that a refused network tried.
    pub attempts: Action,
}

/// All rows of a path, as data of its resource.
pub struct RowsHere(Vec<RowFacts>);

impl RowsHere {
    pub fn new(rows: &[Row]) -> Self {
        Self(rows.iter().map(|row| row.facts.clone()).collect())
    }
}

impl RowFacts {
    /// The row of a request; that of another method if this one has none. None for a path that is in no row.
    pub fn of(request: &HttpRequest) -> Option<&Self> {
        let RowsHere(rows) = request.app_data::<RowsHere>()?;
        rows.iter().find(|row| row.is_for(request.method())).or(rows.first())
    }

    pub fn is_for(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    /// The page that a form stands on. The form stands where it is sent to, unless the row names another.
    pub fn page<'a>(&'a self, request: &'a HttpRequest) -> &'a str {
        self.page.unwrap_or_else(|| request.path())
    }

    /// Returns the page as a path of the table.
    pub fn page_path(&self) -> &str {
        self.page.unwrap_or(&self.path)
    }
}

/// What an argument of a handler sees to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// There is a session.
    Session,
    /// There is a session of a member.
    Member,
    /// There is a session, of a member if the row says so.
    SessionOfRow,
    /// An administrator reads a page.
    AdminPage,
    /// An administrator sends a form.
    AdminForm,
    /// An administrator, or a program with a scope of the row, calls.
    AdminCall,
    /// A program has a token that opens the row.
    Program,
    /// A form is ours, or is shown again.
    Form,
    /// A call is not from the page of another site.
    Call,
    /// The body is read before the caller is judged.
    EagerBody,
}

/// An argument of a handler.
pub trait HandlerArgument {
    const CHECKS: &'static [Checks] = &[];
}

impl HandlerArgument for PageRequest {}
impl HandlerArgument for Requester {}
impl HandlerArgument for HttpRequest {}
impl HandlerArgument for Data<Services> {}
impl HandlerArgument for Bytes {}
impl HandlerArgument for Result<Bytes, Error> {}
impl<T> HandlerArgument for Path<T> {}
impl<T> HandlerArgument for Query<T> {}
impl<T, const LIMIT: usize> HandlerArgument for UnreadBody<T, LIMIT> {}

impl<T> HandlerArgument for Json<T> {
    const CHECKS: &'static [Checks] = &[Checks::EagerBody];
}

/// All arguments of a handler.
pub trait HandlerArguments: FromRequest + 'static {
    fn checks() -> Vec<Checks>;
}

/// A handler with such arguments.
pub trait RowHandler<A: HandlerArguments>: Handler<A, Output: Responder + 'static> {}

impl<A: HandlerArguments, H: Handler<A, Output: Responder + 'static>> RowHandler<A> for H {}

macro_rules! arguments {
    ($($argument:ident)*) => {
        impl<$($argument: HandlerArgument + FromRequest + 'static),*> HandlerArguments for ($($argument,)*) {
            fn checks() -> Vec<Checks> {
                [$($argument::CHECKS),*].concat()
            }
        }
    };
}

impl HandlerArguments for () {
    fn checks() -> Vec<Checks> {
        Vec::new()
    }
}

arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);

/// A call as its annotation describes it.
pub struct DescribedCall {
    pub method: HttpMethod,
    pub tags: Vec<&'static str>,
    pub operation: Operation,
    pub schemas: Vec<(String, RefOr<Schema>)>,
}

pub struct Row {
    pub facts: RowFacts,
    pub call: Option<DescribedCall>,
    /// It exists only where codes are sent by one of these; if there is none, everywhere.
    pub needs: &'static [Channel],
    /// At most so many bytes, where a handler takes them as they come.
    pub reads: Option<usize>,
    pub route: Route,
}

/// HEAD is answered as GET (RFC 9110, 9.3.2); the server leaves the body out.
const GET: &[Method] = &[Method::GET, Method::HEAD];

impl Row {
    pub fn new<A: HandlerArguments>(
        methods: &'static [Method],
        path: &str,
        caller: Caller,
        origin: Origin,
        handler: impl RowHandler<A>,
    ) -> Self {
        check(path, caller, origin, &A::checks());
        let facts = RowFacts {
            methods,
            path: path.to_owned(),
            caller,
            origin,
            while_denied: WhileDenied::default(),
            for_setup: false,
            page: None,
            attempts: Action::Request,
        };
        let route = route_of(methods, handler);
        Self { facts, call: None, needs: &[], reads: None, route }
    }

    /// What is only shown.
    pub fn get<A: HandlerArguments>(path: &str, caller: Caller, handler: impl RowHandler<A>) -> Self {
        Self::new(GET, path, caller, Origin::Harmless, handler)
    }

    /// What a form of ours does.
    pub fn form<A: HandlerArguments>(path: &str, caller: Caller, handler: impl RowHandler<A>) -> Self {
        Self::new(&[Method::POST], path, caller, Origin::Form, handler)
    }

    /// A call of the API, whose annotation has its path and method.
    pub fn call<C, H, A>(caller: Caller, handler: H) -> Self
    where
        C: utoipa::Path + SchemaReferences + Tags<'static>,
        H: RowHandler<A>,
        A: HandlerArguments,
    {
        let [method] = &C::methods()[..] else { panic!("{}: a row has one method", C::path()) };
        let (methods, origin): (&'static [Method], _) = match method {
            HttpMethod::Get => (GET, Origin::Harmless),
            HttpMethod::Post => (&[Method::POST], of_call(caller)),
            HttpMethod::Put => (&[Method::PUT], of_call(caller)),
            HttpMethod::Delete => (&[Method::DELETE], of_call(caller)),
            _ => panic!("{}: a row has another method", C::path()),
        };
        let mut schemas = Vec::new();
        C::schemas(&mut schemas);
        let call =
            DescribedCall { method: method.clone(), tags: C::tags(), operation: C::operation(), schemas };
        Self { call: Some(call), ..Self::new(methods, &C::path(), caller, origin, handler) }
    }

    /// The row with another handler, of the same methods.
    pub fn leading_to<A: HandlerArguments>(self, handler: impl RowHandler<A>) -> Self {
        Self { route: route_of(self.facts.methods, handler), ..self }
    }

    /// It exists only where codes are sent by SMS.
    pub fn with_codes(self) -> Self {
        Self { needs: &[Channel::Sms], ..self }
    }

    /// It exists only where mail is sent.
    pub fn with_mail(self) -> Self {
        Self { needs: &[Channel::Mail], ..self }
    }

    /// It exists only where codes are sent, one way or the other.
    pub fn with_codes_or_mail(self) -> Self {
        Self { needs: &Channel::ALL, ..self }
    }

    pub fn reads(self, bytes: usize) -> Self {
        Self { reads: Some(bytes), ..self }
    }

    /// Open to a browser that an account knows, from a network that is refused.
    pub const fn known(self) -> Self {
        self.while_denied(WhileDenied::KnownBrowser)
    }

    /// Open to everybody of a network that is refused.
    pub const fn spared(self) -> Self {
        self.while_denied(WhileDenied::Everybody)
    }

    pub const fn while_denied(mut self, reach: WhileDenied) -> Self {
        self.facts.while_denied = reach;
        self
    }

    /// Open to an account that has to set a second factor up before everything else.
    pub const fn for_setup(mut self) -> Self {
        self.facts.for_setup = true;
        self
    }

    /// The form stands on this page.
    pub const fn on(mut self, page: &'static str) -> Self {
        self.facts.page = Some(page);
        self
    }

    pub const fn attempts(mut self, action: Action) -> Self {
        self.facts.attempts = action;
        self
    }
}

fn route_of<A: HandlerArguments>(methods: &'static [Method], handler: impl RowHandler<A>) -> Route {
    let asked = move |method: &Method| methods.is_empty() || methods.contains(method);
    route().guard(guard::fn_guard(move |request| asked(&request.head().method))).to(handler)
}

fn of_call(caller: Caller) -> Origin {
    match caller {
        Caller::Program(_) | Caller::LimitUser | Caller::Signer => Origin::NoCookies,
        _ => Origin::Call,
    }
}

/// A handler takes what its row asks for, and nothing that another row would.
fn check(path: &str, caller: Caller, origin: Origin, checks: &[Checks]) {
    use Caller::*;
    let callers: &[Checks] = match caller {
        Session => &[Checks::Session, Checks::SessionOfRow],
        Member => &[Checks::Member, Checks::SessionOfRow],
        Admin(AccessKind::Read, []) => &[Checks::AdminPage, Checks::AdminForm, Checks::AdminCall],
        Admin(_, []) => &[Checks::AdminForm, Checks::AdminCall],
        Admin(..) => &[Checks::AdminCall],
        Program(_) | MailServer | LimitUser => &[Checks::Program],
        // The handler judges who it is.
        Anyone | MaybeMember | HalfSignIn | Client | TokenHolder | Signer | Gateway | Proxy | Monitoring
        | ThisMachine => &[],
    };
    let (origins, is_needed): (&[Checks], bool) = match origin {
        Origin::Form => (&[Checks::Form], true),
        Origin::Call => (&[Checks::Call], true),
        Origin::Harmless => (&[Checks::Call], false),
        Origin::NoCookies | Origin::Elsewhere(_) => (&[], false),
    };
    let has = |any: &[Checks]| checks.iter().any(|check| any.contains(check));
    let fits = |check: &Checks| match check {
        Checks::EagerBody => callers.is_empty(),
        check => callers.contains(check) || origins.contains(check),
    };
    let fits = checks.iter().all(fits);
    assert!(fits, "{path}: the handler checks {checks:?}, and its row says {caller:?} and {origin:?}");
    assert!(callers.is_empty() || has(callers), "{path}: no argument of the handler admits {caller:?}");
    assert!(!is_needed || has(origins), "{path}: no argument of the handler checks the origin, {origin:?}");
}
