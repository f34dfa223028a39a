//! For whoever runs it: `/healthz`, `/readyz` and `/metrics`.

use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use crate::web::kit::client::ClientAddress;
use crate::web::kit::health::State;
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Edge;

/// `GET /healthz`: this process answers.
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain").body("ok\n")
}

/// `GET /readyz`: whether it should be sent traffic, each dependency by name.
pub async fn readyz(services: Shared) -> HttpResponse {
    let report = services.health.report().await;
    match report.database {
        State::Up => HttpResponse::Ok().json(report),
        State::Down => HttpResponse::ServiceUnavailable().json(report),
    }
}

/// `GET /metrics`, for those that the configuration names; there is nothing here for anyone else.
pub async fn metrics(
    request: HttpRequest,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let client = ClientAddress::of(&request, &edge.trusted);
    if !services.metrics_from.contains(client.ip()) {
        return Err(Problem::NotFound);
    }
    services.metrics.run_upkeep();
    let kind = (CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"));
    Ok(HttpResponse::Ok().insert_header(kind).body(services.metrics.render()))
}
