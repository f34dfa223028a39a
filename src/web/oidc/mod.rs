//! The provider of OpenID Connect: what browsers are led to, and what clients call. Its errors are those of RFC 6749.

pub mod authorize;
pub mod discovery;
pub mod keys;
pub mod logout;
pub mod token;
pub mod userinfo;

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, HeaderValue, ORIGIN, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use actix_web::{HttpRequest, HttpResponse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use url::form_urlencoded;
use zeroize::Zeroizing;

use crate::accounts::GrantHolder;
use crate::clock::Micros;
use crate::config::{App, EmailSource, LiveSettings, OidcClient};
use crate::db::DbError;
use crate::gate::{Verdict, authorize_client};
use crate::mail::Mailbox;
use crate::oidc::{OAuthError, Parameters};
use crate::web::http::locale::whole_seconds;
use crate::web::http::page::in_force;
use crate::web::http::{Requester, Services, ServicesData, WebError, WebResult};

/// An error as JSON (RFC 6749, 5.2).
fn refused(status: StatusCode, error: OAuthError) -> HttpResponse {
    let mut response = HttpResponse::build(status)
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(json!({ "error": error.code, "error_description": error.description }));
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Basic realm=\"Gatehouse\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    response
}

fn bad(error: OAuthError) -> HttpResponse {
    refused(StatusCode::BAD_REQUEST, error)
}

/// What was sent and is wrong, in an answer about it: the name of its events, and the error.
#[derive(Clone, Copy)]
struct WrongCall {
    what: &'static str,
    code: &'static str,
}

fn about(wrong: WrongCall, mut answer: HttpResponse) -> HttpResponse {
    answer.extensions_mut().insert(wrong);
    answer
}

/// Answers the call of a client, never with a page. What is wrong counts at its address, and past that limit is told to
/// wait; what is right is never refused. Where a wrong token is no error, it stays none (RFC 7009, 7662).
async fn answered(
    sender: &Requester,
    services: &Services,
    call: impl AsyncFnOnce(&LiveSettings) -> WebResult,
) -> HttpResponse {
    let live = sender.live(services);
    let mut answer = match call(&live).await {
        Ok(answer) => answer,
        Err(WebError::Answer(answer)) => *answer,
        Err(WebError::Problem(_)) => not_now(),
    };
    let wrong = answer.extensions().get::<WrongCall>().copied();
    if let Some(WrongCall { what, code }) = wrong {
        let (address, network) = (sender.client.subject(), sender.client.network());
        let client = (address.as_ref(), network.as_ref());
        let refusal = services.wrong_calls.count(&live.limits.oidc_address, what, client).await;
        if let Some(refusal) = refusal.filter(|_| !answer.status().is_success()) {
            let error =
                OAuthError::new(code, "It is wrong, and so were too many others from this address: wait.");
            answer = refused(StatusCode::TOO_MANY_REQUESTS, error);
            let wait = HeaderValue::from(whole_seconds(refusal.retry_after));
            answer.headers_mut().insert(RETRY_AFTER, wait);
        }
    }
    readable(sender.request(), &live, answer)
}

/// A moment later it will be answered.
fn not_now() -> HttpResponse {
    let error = OAuthError::new("temporarily_unavailable", "Send the same request again in a moment.");
    refused(StatusCode::SERVICE_UNAVAILABLE, error)
}

/// The client that a request is from (RFC 6749, 2.3): by HTTP Basic, or by the fields of the form.
async fn authenticated<'a>(
    services: &Services,
    live: &'a LiveSettings,
    request: &HttpRequest,
    parameters: &Parameters,
) -> Result<(&'a Arc<App>, &'a OidcClient), WebError> {
    let wrong = || {
        let error = OAuthError::new("invalid_client", "No client has this id and secret.");
        let answer = refused(StatusCode::UNAUTHORIZED, error);
        WebError::from(about(WrongCall { what: "secret", code: error.code }, answer))
    };
    let (id, secret) = (parameters.get("client_id"), parameters.get("client_secret"));
    let wrong_form = |error| WebError::from(bad(error));
    let (id, secret) = (id.map_err(wrong_form)?, secret.map_err(wrong_form)?);
    let basic =
        request.headers().get("authorization").map(|sent| basic(sent).ok_or_else(wrong)).transpose()?;
    let (id, secrets) = match &basic {
        Some(_) if secret.is_some() => {
            return Err(
                bad(OAuthError::invalid("Send the secret once: by HTTP Basic or in the form.")).into()
            );
        }
        Some(sent) if id.is_some_and(|id| !sent.ids.iter().any(|known| known == id)) => {
            return Err(bad(OAuthError::invalid("client_id is not that of HTTP Basic.")).into());
        }
        Some(sent) => {
            let known = sent.ids.iter().find(|id| live.apps.client(id).is_some()).ok_or_else(wrong)?;
            (known.as_str(), sent.secrets.iter().map(|secret| secret.as_str()).collect())
        }
        None => (id.ok_or_else(wrong)?, secret.into_iter().collect::<Vec<_>>()),
    };
    let (app, client) = live.apps.client(id).ok_or_else(wrong)?;
    let proved = match client.is_public() {
        // A form may have an empty one; of HTTP Basic too.
        true => secrets.iter().all(|secret| secret.is_empty()),
        false if client.has_stored_secret() => {
            services.client_secrets.match_any(&client.client_id, &secrets).await?
        }
        false => secrets.iter().any(|secret| client.secret_matches(secret.as_bytes())),
    };
    if proved { Ok((app, client)) } else { Err(wrong()) }
}

/// The credentials as they were sent, and decoded: both are encoded before (RFC 6749, 2.3.1), which not every client
/// does.
struct BasicCredentials {
    ids: [String; 2],
    secrets: [Zeroizing<String>; 2],
}

fn basic(sent: &HeaderValue) -> Option<BasicCredentials> {
    let (scheme, encoded) = sent.to_str().ok()?.split_once(' ')?;
    let decoded = STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let text = Zeroizing::new(String::from_utf8(decoded).ok()?);
    let (id, secret) = text.split_once(':')?;
    let plain = |text: &str| {
        let pair = form_urlencoded::parse(text.as_bytes()).next();
        pair.filter(|(_, value)| value.is_empty())
            .map_or_else(|| text.to_owned(), |(name, _)| name.into_owned())
    };
    let secrets = [Zeroizing::new(secret.to_owned()), Zeroizing::new(plain(secret))];
    Some(BasicCredentials { ids: [id.to_owned(), plain(id)], secrets })
}

/// Whether whose a grant is may still use its client: judged each time that it is used.
fn admits(app: &App, holder: &GrantHolder, now: Micros) -> bool {
    authorize_client(app, &holder.visitor, now) == Verdict::Allowed
}

/// For a client that is told what owners have confirmed: that address in place of the one of the profile.
async fn tell_address(
    services: &Services,
    client: &OidcClient,
    holder: &mut GrantHolder,
) -> Result<(), DbError> {
    if client.email == EmailSource::Verified {
        let address = services.emails.of(holder.visitor.account).await?;
        holder.visitor.profile.confirm(address.as_ref().map(Mailbox::as_str));
    }
    Ok(())
}

/// Lets scripts of clients' sites read the answer ; no cookies count here.
fn readable(request: &HttpRequest, live: &LiveSettings, mut response: HttpResponse) -> HttpResponse {
    response.headers_mut().append(VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = request.headers().get(ORIGIN)
        && origin.to_str().is_ok_and(|origin| is_clients(live, origin))
    {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    response
}

fn is_clients(live: &LiveSettings, origin: &str) -> bool {
    let mut clients = live.apps.all().iter().filter_map(|app| app.oidc.as_ref());
    clients.any(|client| client.origins().any(|known| known == origin))
}

/// What a browser asks before a script may call.
pub async fn preflight(request: HttpRequest, services: ServicesData) -> HttpResponse {
    let response = HttpResponse::NoContent()
        .insert_header((ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"))
        .insert_header((ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type"))
        .insert_header((ACCESS_CONTROL_MAX_AGE, "3600"))
        .finish();
    readable(&request, &in_force(&request, &services).live, response)
}
