//! For whoever runs it: `/healthz`, `/readyz` and `/metrics`.

use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};

use crate::web::http::services::{Report, State};
use crate::web::http::{Problem, Requester, ServicesData};

/// This process answers
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "operations",
    responses((status = 200, description = "It does.", body = String, content_type = "text/plain", example = "ok\n"))
)]
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain").body("ok\n")
}

/// Whether to send traffic here, with each dependency by name
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "readyz",
    tag = "operations",
    responses(
        (status = 200, description = "Ready.", body = Report),
        (
            status = 503,
            description = "Not ready.",
            body = Report,
            example = json!({ "database": "down", "store": "up", "limits": { "version": 1, "refused": false } })
        )
    )
)]
pub async fn readyz(services: ServicesData) -> HttpResponse {
    let report = services.health.report().await;
    match report.database {
        State::Up => HttpResponse::Ok().json(report),
        State::Down => HttpResponse::ServiceUnavailable().json(report),
    }
}

/// Prometheus metrics
///
/// For the addresses in `server.metrics_from`.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "operations",
    responses(
        (status = 200, description = "In the text format.", body = String, content_type = "text/plain"),
        (status = 404, description = "For every other address.", body = String, content_type = "text/html")
    )
)]
pub async fn metrics(sender: Requester, services: ServicesData) -> Result<HttpResponse, Problem> {
    if !services.metrics_from.contains(sender.client.ip()) {
        return Err(Problem::NotFound);
    }
    services.metrics.run_upkeep();
    let kind = (CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"));
    Ok(HttpResponse::Ok().insert_header(kind).body(services.metrics.render()))
}
