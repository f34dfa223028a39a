//! The token of a program that calls, from its `Authorization` header.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::header::{AUTHORIZATION, HeaderMap};

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

/// RFC 6750, 2.1; the scheme's case does not matter (RFC 9110, 11.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
}
