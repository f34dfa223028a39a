//! `/api`: the API for people, drawn from the document that programs read.

mod fields;
mod read;
mod view;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;
use view::{API, ApiView};

use crate::web::kit::visit::{Layout, Visit};

#[derive(Template)]
#[template(path = "pages/api.html")]
pub struct ApiPage {
    layout: Layout,
    api: &'static ApiView,
}

impl ApiPage {
    pub fn new(visit: &Visit) -> Self {
        Self { layout: visit.layout("/api", None), api: &API }
    }
}

/// `GET /api`
pub async fn show(visit: Visit) -> HttpResponse {
    visit.page(StatusCode::OK, &ApiPage::new(&visit))
}
