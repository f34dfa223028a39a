//! Pages at the host of an application.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;

use crate::web::kit::assets;
use crate::web::kit::services::Services;
use crate::web::kit::visit::{Layout, Visit};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatePageKind {
    /// Signed in, but not allowed.
    Forbidden,
    /// A code that was used, is too old, or belongs to another browser.
    Expired,
    SignOut,
    SignedOut,
    /// There was nobody to sign out here.
    NotSignedIn,
}

#[derive(Template)]
#[template(path = "pages/gate.html")]
pub struct GatePage {
    layout: Layout,
    kind: GatePageKind,
    app: String,
    user: Option<String>,
    /// Of the sign-in.
    home: String,
}

impl GatePage {
    pub fn new(
        visit: &Visit,
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

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        visit.bare_page(self.kind.status(), self)
    }

    fn style(&self) -> String {
        format!("/.gatehouse{}", assets::style_url())
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
