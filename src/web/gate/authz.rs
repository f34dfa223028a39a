//! What a proxy asks before it passes a request on: may it pass, and who is it?

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, LOCATION};
use url::form_urlencoded;

use crate::accounts::{AppVisitor, Profile, SessionToken};
use crate::config::{AppFactor, Apps, LiveSettings};
use crate::db::DbError;
use crate::gate::{AppRequest, ReturnUrl, Scheme, Verdict, authorize};
use crate::web::gate::proxied::{AskedHost, ProxiedRequest, ProxyHeaderError};
use crate::web::gate::{GatePage, GatePageKind};
use crate::web::http::{PageRequest, Problem, Requester, ServicesData, cookies};

/// Which proxy asks, and so which answers it understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// Passes every answer but 2xx on to the browser.
    ForwardAuth,
    /// nginx makes 500 of everything but 2xx, 401 and 403.
    AuthRequest,
}

const REMOTE: [&str; 4] = ["remote-user", "remote-groups", "remote-name", "remote-email"];

pub async fn forward_auth(sender: Requester, services: ServicesData) -> HttpResponse {
    let asked = ProxiedRequest::forward_auth(sender.request(), &sender.edge.trusted);
    answer(Dialect::ForwardAuth, &sender, asked, &services).await
}

pub async fn auth_request(sender: Requester, services: ServicesData) -> HttpResponse {
    let asked = ProxiedRequest::auth_request(sender.request(), &sender.edge.trusted);
    answer(Dialect::AuthRequest, &sender, asked, &services).await
}

pub async fn ext_authz(sender: Requester, services: ServicesData) -> HttpResponse {
    let asked = ProxiedRequest::ext_authz(sender.request(), &sender.edge.trusted);
    answer(Dialect::ForwardAuth, &sender, asked, &services).await
}

async fn answer(
    dialect: Dialect,
    sender: &Requester,
    asked: Result<ProxiedRequest, ProxyHeaderError>,
    services: &ServicesData,
) -> HttpResponse {
    let asked = match asked {
        Ok(asked) => asked,
        Err(ProxyHeaderError::NoProxy) => return text(StatusCode::FORBIDDEN, &ProxyHeaderError::NoProxy),
        Err(unclear) => return text(dialect.undecided(StatusCode::BAD_REQUEST), &unclear),
    };
    let live = sender.settings(services);
    let found = live.apps.at(&asked.at.host).filter(|_| asked.at.is_allowed(sender));
    let Some((host, app)) = found else {
        return text(StatusCode::FORBIDDEN, &"no application in [[apps]] has this host, or not without TLS");
    };
    let token = cookies::only_value(sender.request().headers(), app_cookie(asked.at.scheme));
    let of_app = AppRequest { method: &asked.method, target: &asked.target };
    let visitor = match token.and_then(SessionToken::parse) {
        None => None,
        Some(token) => match services.gate.visitor(host, &token).await {
            Ok(visitor) => visitor,
            // What is public stays so.
            Err(_) if authorize(app, of_app, None, sender.now()) == Verdict::Public => None,
            Err(error) => {
                tracing::debug!(%error, "nobody can be recognised");
                return text(dialect.undecided(StatusCode::SERVICE_UNAVAILABLE), &"try again in a moment");
            }
        },
    };
    match authorize(app, of_app, visitor.as_deref(), sender.now()) {
        Verdict::Allowed => admitted(visitor.as_deref()),
        Verdict::Public => admitted(None),
        Verdict::SignInFirst => sign_in_first(dialect, sender, &asked, host, &live),
        Verdict::SetupFirst | Verdict::FactorFirst(_)
            if ProxiedRequest::shows_pages(sender.request().headers()) =>
        {
            // The sign-in leads on to what is missing, and back.
            sign_in_first(dialect, sender, &asked, host, &live)
        }
        Verdict::SetupFirst => Problem::FactorSetupRequired.respond(),
        Verdict::FactorFirst(needed) => match step_up(services, visitor.as_deref(), needed).await {
            Ok(problem) => problem.respond(),
            Err(_) => text(dialect.undecided(StatusCode::SERVICE_UNAVAILABLE), &"try again in a moment"),
        },
        Verdict::Forbidden => {
            let user = visitor.as_ref().map(|visitor| visitor.login.as_str());
            let visit = PageRequest::of(sender.request(), sender.edge.clone());
            GatePage::new(&visit, GatePageKind::Forbidden, &app.name, user, services).respond(&visit)
        }
    }
}

async fn step_up(
    services: &ServicesData,
    visitor: Option<&AppVisitor>,
    needed: AppFactor,
) -> Result<Problem, DbError> {
    let methods = match visitor {
        Some(visitor) => services.factor_verifier.factors().of(visitor.account).await?.fit_for(needed),
        None => Vec::new(),
    };
    Ok(Problem::StepUpRequired { methods })
}

impl Dialect {
    /// The answer where nothing could be decided.
    const fn undecided(self, status: StatusCode) -> StatusCode {
        match self {
            Self::ForwardAuth => status,
            Self::AuthRequest => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl AskedHost {
    /// Without TLS only while the sign-in itself has none: a cookie would be read on its way.
    pub fn is_allowed(&self, sender: &Requester) -> bool {
        self.scheme == Scheme::Https || allows_http(sender)
    }

    pub fn url(&self, target: &str, apps: &Apps, sender: &Requester) -> Option<ReturnUrl> {
        let (host, _) = apps.at(&self.host)?;
        ReturnUrl::of(self.scheme, host, target, apps, allows_http(sender))
    }
}

pub fn allows_http(sender: &Requester) -> bool {
    !sender.edge.cookies.secure
}

/// The cookie of a session at an application's host, which that host alone gets.
pub const fn app_cookie(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Https => "__Host-gh_app",
        Scheme::Http => "gh_app",
    }
}

/// Where the way to the sign-in begins, at the host of an application.
pub fn start_url(origin: &str, back: &str) -> String {
    let rd: String = form_urlencoded::byte_serialize(back.as_bytes()).collect();
    format!("{origin}/.gatehouse/start?rd={rd}")
}

/// Always with all four: a proxy that copies them replaces what the client sent.
fn admitted(visitor: Option<&AppVisitor>) -> HttpResponse {
    let mut response = HttpResponse::Ok().finish();
    let login = visitor.map_or("", |visitor| visitor.login.as_str());
    let groups = visitor.map(|visitor| visitor.groups.to_string()).unwrap_or_default();
    let profile = visitor.map(|visitor| &visitor.profile);
    let name = profile.and_then(Profile::name_text).unwrap_or(login);
    let email = profile.and_then(Profile::email_text).unwrap_or_default();
    for (header, value) in REMOTE.into_iter().zip([login, &groups, name, email]) {
        // No value has control characters, so this does not fail.
        let value =
            HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| HeaderValue::from_static(""));
        response.headers_mut().insert(HeaderName::from_static(header), value);
    }
    response
}

fn sign_in_first(
    dialect: Dialect,
    sender: &Requester,
    asked: &ProxiedRequest,
    host: &str,
    live: &LiveSettings,
) -> HttpResponse {
    let status = match (dialect, asked.method.as_str()) {
        (Dialect::AuthRequest, _) => StatusCode::UNAUTHORIZED,
        _ if !ProxiedRequest::shows_pages(sender.request().headers()) => StatusCode::UNAUTHORIZED,
        (_, "GET" | "HEAD" | "OPTIONS") => StatusCode::FOUND,
        _ => StatusCode::SEE_OTHER,
    };
    // A form that was sent cannot be sent again by an address.
    let target = if matches!(asked.method.as_str(), "GET" | "HEAD") { asked.target.as_str() } else { "/" };
    let back = asked.at.url(target, &live.apps, sender);
    let back = back.map_or_else(String::new, |back| back.as_str().to_owned());
    let start = start_url(&format!("{}://{host}", asked.at.scheme.into_str()), &back);
    HttpResponse::build(status).insert_header((LOCATION, start)).finish()
}

fn text(status: StatusCode, reason: &dyn std::fmt::Display) -> HttpResponse {
    HttpResponse::build(status)
        .content_type("text/plain; charset=utf-8")
        .body(format!("gatehouse: {reason}\n"))
}
