//! `GET /api/v1/session` and `POST /api/v1/logout`

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::login::SessionToken;
use crate::web::kit::call::{UserBody, broken, signed_in};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{Edge, set};

pub async fn show(request: HttpRequest, services: Shared, edge: Data<Edge>) -> Result<HttpResponse, Problem> {
    let who = signed_in(&request, &services, &edge).await?;
    Ok(HttpResponse::Ok().json(UserBody::from(&who.account)))
}

/// 204 also where nobody was signed in: the outcome is the one that was asked for.
pub async fn logout(
    request: HttpRequest,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    edge.caller(&request)?;
    if let Some(token) = edge.session_token(request.headers()).and_then(SessionToken::parse) {
        services.sessions.end(&token).await.map_err(|error| broken(&error))?;
    }
    let mut response = HttpResponse::NoContent().finish();
    set(&mut response, edge.cookies.end_session());
    set(&mut response, edge.cookies.end_lookup());
    Ok(response)
}
