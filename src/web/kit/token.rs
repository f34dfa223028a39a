//! The token of a program that calls, from its `Authorization` header.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::custom::TokenCheck;
use crate::login::{ApiToken, TokenBearer};
use crate::web::kit::client::ClientAddress;
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Services;

/// The data of the token that was sent, if it is valid. An address that sends many invalid ones is throttled.
pub async fn admit(
    request: &HttpRequest,
    services: &Services,
    client: ClientAddress,
) -> Result<Arc<TokenBearer>, Problem> {
    let token = bearer(request.headers()).ok_or(Problem::TokenMissing)?;
    admit_text(token, services, client).await
}

/// The same, as a mail server sends it: as the password of HTTP Basic, whatever the name (RFC 7617), as a bearer
/// token, or in `X-API-Key`.
pub async fn admit_program(
    request: &HttpRequest,
    services: &Services,
    client: ClientAddress,
) -> Result<Arc<TokenBearer>, Problem> {
    let headers = request.headers();
    if let Some(token) = bearer(headers) {
        return admit_text(token, services, client).await;
    }
    let key = || Some(headers.get("x-api-key")?.to_str().ok()?.trim_matches(' ').to_owned());
    let token = basic(headers).or_else(key).ok_or(Problem::TokenMissing)?;
    admit_text(&token, services, client).await
}

async fn admit_text(
    token: &str,
    services: &Services,
    client: ClientAddress,
) -> Result<Arc<TokenBearer>, Problem> {
    let token = ApiToken::parse(token).ok_or(Problem::InvalidToken)?;
    match services.token_gate.admit(&token, client.subject().as_ref()).await? {
        TokenCheck::Good(bearer) => Ok(bearer),
        TokenCheck::Unknown => Err(Problem::InvalidToken),
        TokenCheck::TooMany { limit, retry_after } => {
            Err(Problem::Throttled { limit: limit.into(), retry_after })
        }
    }
}

/// Whether the caller shows a token rather than a session.
pub fn is_sent(request: &HttpRequest) -> bool {
    bearer(request.headers()).is_some()
}

/// RFC 6750, 2.1.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    credentials(headers, "bearer")
}

fn basic(headers: &HeaderMap) -> Option<String> {
    let text = String::from_utf8(STANDARD.decode(credentials(headers, "basic")?).ok()?).ok()?;
    text.split_once(':').map(|(_, password)| password.to_owned())
}

/// The scheme's case does not matter (RFC 9110, 11.1).
fn credentials<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case(wanted).then(|| token.trim_matches(' '))
}
