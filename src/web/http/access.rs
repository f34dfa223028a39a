//! Clients that `[access]` is about: those in `deny` are refused before anything else looks at their requests, and
//! those in `allow` are judged by lifted limits.
//!
//! A browser that has signed in before may come from a denied network: it may sign in by password or passkey (to its own
//! account, as the sign-in sees to) and use the account, and nothing else.

use actix_web::Error;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::Next;

use crate::accounts::SessionToken;
use crate::audit::{Action, AuditEvent, EventRule, EventSubject, Outcome};
use crate::denied::ACCESS;
use crate::web::http::client::ClientAddress;
use crate::web::http::error_page::answer;
use crate::web::http::headers::{AUTHZ, ON_HOSTS};
use crate::web::http::page::app_data;
use crate::web::http::problem::Problem;

/// Paths that answer everybody: for monitoring and for gateways, and what the page of the refusal is made of. What
/// proxies ask about an application, too: who is refused here cannot sign in, and who is signed in is spared.
const SPARED: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/favicon.ico"];
const SPARED_UNDER: [&str; 4] = ["/static/", "/sms/reports/", AUTHZ, ON_HOSTS];
/// What a browser that an account knows may reach.
const KNOWN: [&str; 17] = [
    "/",
    "/login",
    "/confirm",
    "/login/factor",
    "/logout",
    "/api/v1/captcha",
    "/api/v1/confirm",
    "/api/v1/login",
    "/api/v1/login/factor",
    "/api/v1/logout",
    "/api/v1/recovery-codes",
    "/api/v1/session",
    "/api/v1/totp",
    "/oauth/authorize",
    "/oauth/continue",
    "/oauth/consent",
    "/oauth/logout",
];
const KNOWN_UNDER: [&str; 7] = [
    "/account",
    "/admin",
    "/captcha",
    "/api/v1/account",
    "/api/v1/admin",
    "/api/v1/factors",
    "/api/v1/passkeys",
];

/// Takes a session besides, and sends only codes that prove a number to the account of that session.
const CODES: &str = "/api/v1/sms/codes";

pub async fn refuse_denied<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let Some(problem) = refusal(&request).await else {
        return next.call(request).await.map(ServiceResponse::map_into_left_body);
    };
    metrics::counter!("gatehouse_denied_requests_total").increment(1);
    record(&request);
    let answer = answer(request.request(), &problem);
    Ok(request.into_response(answer).map_into_right_body())
}

/// One row for all that a network tries in some seconds, however much that is.
fn record(request: &ServiceRequest) {
    let Ok((services, edge)) = app_data(request.request()) else { return };
    let network = ClientAddress::of(request.request(), &edge.trusted).network();
    let (audit, action) = (&services.audit, action_of(request.method(), request.path()));
    audit.record(AuditEvent {
        network: Some(EventSubject::Network(network.as_ref())),
        why: Some(EventRule::by_nobody(ACCESS)),
        ..AuditEvent::new(audit.now(), action, Outcome::Refused)
    });
}

fn action_of(method: &Method, path: &str) -> Action {
    match path {
        _ if method != Method::POST => Action::Request,
        "/login" | "/api/v1/login" => Action::SignIn,
        CODES => Action::Send,
        "/api/v1/sms/login" => Action::Guess,
        "/register" | "/api/v1/register" => Action::Register,
        _ => Action::Request,
    }
}

async fn refusal(request: &ServiceRequest) -> Option<Problem> {
    let (services, edge) = app_data(request.request()).ok()?;
    let live = services.live.snapshot();
    if live.access.settings().deny.is_empty() {
        return None;
    }
    let client = ClientAddress::of(request.request(), &edge.trusted);
    if !live.access.is_denied(client, edge.clock.now()) || is_spared(request.path()) {
        return None;
    }
    if edge.known_devices(request.headers()).is_empty() {
        return Some(Problem::Denied);
    }
    if is_open_to_known_browsers(request.path()) {
        return None;
    }
    if request.path() != CODES {
        return Some(Problem::Denied);
    }
    let Some(token) = edge.session_token(request.headers()).and_then(SessionToken::parse) else {
        return Some(Problem::Denied);
    };
    match services.sessions.recognise(&token).await {
        Ok(Some(_)) => None,
        Ok(None) => Some(Problem::Denied),
        // No client is let in because the database is out.
        Err(error) => Some(error.into()),
    }
}

fn is_spared(path: &str) -> bool {
    SPARED.contains(&path) || SPARED_UNDER.iter().any(|folder| path.starts_with(folder))
}

fn is_open_to_known_browsers(path: &str) -> bool {
    let under =
        |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    KNOWN.contains(&path) || KNOWN_UNDER.into_iter().any(under)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_browser_reaches_the_sign_in_and_the_account_and_nothing_beside_them() {
        for open in
            ["/", "/login", "/account", "/account/phone", "/admin/access", "/captcha/x.png", "/api/v1/login"]
        {
            assert!(is_open_to_known_browsers(open), "{open}");
        }
        for shut in [
            "/login/code",
            "/register",
            "/password/reset",
            "/accounts",
            "/api/v1/sms/codes",
            "/api/v1/register",
            "/api/v1/limits/reply/reserve",
            "//login",
            "/nothing",
        ] {
            assert!(!is_open_to_known_browsers(shut), "{shut}");
        }
        assert!(is_spared("/sms/reports/http") && is_spared("/static/app.css") && is_spared("/healthz"));
        assert!(!is_spared("/healthz/../login") && !is_spared("/static"));
    }
}
