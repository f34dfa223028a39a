//! `/problems/{name}`: explains a refusal of the API, for readers who follow its `type`.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use askama::Template;
use rust_i18n::t;

use crate::web::http::problem::Kind;
use crate::web::http::{ErrorKind, ErrorPage, Layout, PageRequest, problem_kind};

#[derive(Template)]
#[template(path = "pages/problem.html")]
pub struct ProblemPage {
    layout: Layout,
    kind: Kind,
    all: &'static [Kind],
}

impl ProblemPage {
    pub fn new(visit: &PageRequest, kind: Kind) -> Self {
        let here = format!("/problems/{}", kind.name);
        Self { layout: visit.layout(here, None), kind, all: problem_kind::KINDS }
    }

    fn text(&self, kind: &Kind, part: &str) -> Cow<'_, str> {
        let key = format!("problem.{}.{part}", kind.name);
        t!(&key, locale = self.layout.locale.code()).into_owned().into()
    }
}

/// `GET /problems/{name}`
pub async fn show(visit: PageRequest, name: web::Path<String>) -> HttpResponse {
    match problem_kind::named(&name) {
        Some(kind) => visit.page(StatusCode::OK, &ProblemPage::new(&visit, kind)),
        None => ErrorPage::new(visit.layout("/login", None), ErrorKind::NotFound).respond(&visit),
    }
}
