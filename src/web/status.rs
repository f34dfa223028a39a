//! For whoever runs it: `/healthz`, `/readyz` and `/metrics`.

use std::future::Future;
use std::pin::Pin;

use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use crate::web::kit::client::ClientAddress;
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Edge;

/// The state of what this instance depends on.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// It answers, and takes what is written. Without it nothing works: 503.
    pub database: State,
    /// Without it sign-ins go on, with a CAPTCHA for everyone and windows of this process: 200.
    pub store: State,
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Up,
    Down,
}

#[derive(Debug, Clone, Serialize)]
pub struct Limits {
    /// One more with each change that was applied.
    pub version: u64,
    /// Whether the last change was refused; the log says why.
    pub refused: bool,
    /// Whether what they are kept in answers, where that is a service. While it does not, what it said last
    /// is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<State>,
}

/// Looks at the dependencies. Each look waits at most a second.
pub trait Health: Send + Sync {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>>;
}

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
