//! The gate: what proxies ask for each request to an application, and what browsers ask for at an application's host.

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::HOST;
use actix_web::middleware::Next;
use actix_web::{Error, HttpResponse};
use askama::Template;

use crate::gate::Scheme;
use crate::web::http::client::is_by_proxy;
use crate::web::http::headers::{AUTHZ, ON_HOSTS};
use crate::web::http::page::in_force;
use crate::web::http::{Layout, PageRequest, Services, app_data};

pub mod authz;
pub mod host;
mod proxied;

/// At the host of an application nothing else of ours is there: no page that could be taken for one of the application,
/// and none whose cookies its scripts could use.
pub async fn keep_apart<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    if is_ours(&request) {
        return next.call(request).await.map(ServiceResponse::map_into_left_body);
    }
    let nothing =
        HttpResponse::NotFound().content_type("text/plain; charset=utf-8").body("Nothing is here.\n");
    Ok(request.into_response(nothing).map_into_right_body())
}

fn is_ours(request: &ServiceRequest) -> bool {
    let path = request.path();
    let Ok((services, edge)) = app_data(request.request()) else { return true };
    let live = &in_force(request.request(), services).live;
    if live.apps.is_empty() || path.starts_with(AUTHZ) || path.starts_with(ON_HOSTS) {
        return true;
    }
    let headers = request.headers();
    let of_app = |name: &str| {
        let lines = headers.get_all(name).filter_map(|line| line.to_str().ok());
        let mut hosts = lines.flat_map(|line| line.split(',')).map(str::trim);
        let schemes = [Scheme::Https, Scheme::Http];
        hosts.any(|host| schemes.iter().any(|it| live.apps.at(it.without_own_port(host)).is_some()))
    };
    let by_proxy = is_by_proxy(request.peer_addr(), &edge.trusted);
    let is_of_app = of_app(HOST.as_str()) || (by_proxy && of_app(proxied::FORWARDED_HOST));
    !is_of_app
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatePageKind {
    Forbidden,
    /// A code that was used, is too old, or belongs to another browser.
    Expired,
    SignOut,
    SignedOut,
    NotSignedIn,
}

#[derive(Template)]
#[template(path = "pages/gate.html")]
pub struct GatePage {
    layout: Layout,
    kind: GatePageKind,
    app: String,
    user: Option<String>,
    home: String,
}

impl GatePage {
    pub fn new(
        visit: &PageRequest,
        kind: GatePageKind,
        app: &str,
        user: Option<&str>,
        services: &Services,
    ) -> Self {
        Self {
            layout: visit.layout("/", None),
            kind,
            app: app.to_owned(),
            user: user.map(str::to_owned),
            home: format!("{}/account", services.public_url),
        }
    }

    pub fn respond(&self, visit: &PageRequest) -> HttpResponse {
        visit.bare_page(self.kind.status(), self)
    }
}

impl GatePageKind {
    const fn status(self) -> StatusCode {
        match self {
            Self::Forbidden | Self::Expired => StatusCode::FORBIDDEN,
            Self::SignOut | Self::SignedOut | Self::NotSignedIn => StatusCode::OK,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Forbidden => "gate.forbidden-title",
            Self::Expired => "gate.expired-title",
            Self::SignOut => "gate.sign-out-title",
            Self::SignedOut => "gate.signed-out-title",
            Self::NotSignedIn => "gate.not-signed-in-title",
        }
    }
}
