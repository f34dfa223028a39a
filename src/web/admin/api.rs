//! The guard as callers of the API meet it: whoever may not is told why, by a problem's name.

use actix_web::HttpRequest;

use super::{Admin, Denied, Wanted, judge};
use crate::web::api::broken;
use crate::web::problem::Problem;
use crate::web::services::Services;
use crate::web::visit::Edge;

/// For what only answers something; it may be called from anywhere.
pub async fn read(request: &HttpRequest, services: &Services, edge: &Edge) -> Result<Admin, Problem> {
    guard(request, services, edge, Wanted::Read).await
}

/// For what changes something.
pub async fn change(request: &HttpRequest, services: &Services, edge: &Edge) -> Result<Admin, Problem> {
    guard(request, services, edge, Wanted::Change { ours: edge.caller(request).is_ok() }).await
}

async fn guard(
    request: &HttpRequest,
    services: &Services,
    edge: &Edge,
    wanted: Wanted,
) -> Result<Admin, Problem> {
    let judged = judge(services, edge.session_token(request.headers()), wanted).await;
    judged.map_err(|error| broken(&error))?.map_err(|denied| match denied {
        Denied::SignedOut => Problem::Unauthenticated,
        Denied::PasswordToChange => Problem::PasswordChangeRequired,
        Denied::NotAdmin(_) => Problem::Forbidden,
        Denied::Foreign => Problem::Csrf,
        Denied::Unconfirmed => Problem::ConfirmationRequired,
    })
}
