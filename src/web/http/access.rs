//! Clients that `[access]` is about: those in `deny` are refused before anything else looks at their requests, and
//! those in `allow` are judged by lifted limits.
//!
//! A browser that has signed in before may come from a denied network: it may sign in by password or passkey (to its own
//! account, as the sign-in sees to) and use the account, and nothing else.

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, HttpResponse};

use crate::accounts::SessionToken;
use crate::audit::{Action, AuditEvent, EventRule, EventSubject, Outcome};
use crate::denied::ACCESS;
use crate::web::http::client::ClientAddress;
use crate::web::http::error_page::answer;
use crate::web::http::page::{app_data, in_force};
use crate::web::http::problem::Problem;
use crate::web::http::row::{RowFacts, WhileDenied};

/// For each row of the table.
pub async fn refuse_denied<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    match refusal(request.request()).await {
        None => next.call(request).await.map(ServiceResponse::map_into_left_body),
        Some(refusal) => Ok(request.into_response(refusal).map_into_right_body()),
    }
}

/// The answer to a client of a network that is refused; None for everybody else. A path without a row is no exception.
pub async fn refusal(request: &HttpRequest) -> Option<HttpResponse> {
    let problem = judge(request).await?;
    metrics::counter!("gatehouse_denied_requests_total").increment(1);
    record(request);
    Some(answer(request, &problem))
}

/// One row for all that a network tries in some seconds, however much that is.
fn record(request: &HttpRequest) {
    let Ok((services, edge)) = app_data(request) else { return };
    let network = ClientAddress::of(request, &edge.trusted).network();
    let row = RowFacts::of(request).filter(|row| row.is_for(request.method()));
    let action = row.map_or(Action::Request, |row| row.attempts);
    let audit = &services.audit;
    audit.record(AuditEvent {
        network: Some(EventSubject::Network(network.as_ref())),
        why: Some(EventRule::by_nobody(ACCESS)),
        ..AuditEvent::new(audit.now(), action, Outcome::Refused)
    });
}

async fn judge(request: &HttpRequest) -> Option<Problem> {
    let (services, edge) = app_data(request).ok()?;
    let live = &in_force(request, services).live;
    if live.access.settings().deny.is_empty() {
        return None;
    }
    let client = ClientAddress::of(request, &edge.trusted);
    if !live.access.is_denied(client, edge.clock.now()) {
        return None;
    }
    let open = RowFacts::of(request).map(|row| row.while_denied).unwrap_or_default();
    let is_known = || !edge.known_devices(request.headers()).is_empty();
    match open {
        WhileDenied::Everybody => return None,
        WhileDenied::KnownBrowser if is_known() => return None,
        WhileDenied::KnownSession if is_known() => {}
        WhileDenied::Nothing | WhileDenied::KnownBrowser | WhileDenied::KnownSession => {
            return Some(Problem::Denied);
        }
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
