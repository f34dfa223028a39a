//! The guard as callers of the API meet it: whoever may not is told why, by a problem's name.

use actix_web::HttpRequest;

use super::{Admin, Asking, Wanted, Why, judge};
use crate::web::kit::call::broken;
use crate::web::kit::client::ClientAddress;
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Services;
use crate::web::kit::visit::Edge;

/// For what only answers something; it may be called from anywhere.
pub async fn read(request: &HttpRequest, services: &Services, edge: &Edge) -> Result<Admin, Problem> {
    guard(request, services, edge, Wanted::Read).await
}

/// For the call that shows the password again.
pub async fn confirmation(request: &HttpRequest, services: &Services, edge: &Edge) -> Result<Admin, Problem> {
    guard(request, services, edge, Wanted::Confirm { ours: edge.caller(request).is_ok() }).await
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
    let path = request.match_pattern();
    let asking = Asking {
        token: edge.session_token(request.headers()),
        client: ClientAddress::of(request, &edge.trusted),
        path: path.as_deref().unwrap_or_default(),
    };
    let judged = judge(services, asking, wanted).await;
    judged.map_err(|error| broken(&error))?.map_err(|denied| match denied.why {
        Why::SignedOut => Problem::Unauthenticated,
        Why::PasswordToChange => Problem::PasswordChangeRequired,
        Why::NotAdmin => Problem::Forbidden,
        Why::Foreign => Problem::Csrf,
        Why::Unconfirmed => Problem::ConfirmationRequired,
    })
}
