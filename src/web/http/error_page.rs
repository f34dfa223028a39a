//! The page for errors outside of a form, and the page that explains a refusal of the API.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use rust_i18n::t;
use serde_json::json;

use crate::web::http::headers::{OIDC_CALLS, ON_HOSTS};
use crate::web::http::page::{Layout, PageRequest, WebContext};
use crate::web::http::problem::{ErrorKind, KINDS, Kind, Problem, kind_named};

#[derive(Template)]
#[template(path = "pages/error.html")]
pub struct ErrorPage {
    layout: Layout,
    kind: ErrorKind,
}

impl ErrorPage {
    pub const fn new(layout: Layout, kind: ErrorKind) -> Self {
        Self { layout, kind }
    }

    pub fn respond(&self, visit: &PageRequest) -> HttpResponse {
        visit.page(self.kind.status(), self)
    }
}

pub fn problem_page(visit: &PageRequest, problem: &Problem) -> HttpResponse {
    let mut page = ErrorPage::new(visit.layout("/login", None), problem.page()).respond(visit);
    problem.head(page.headers_mut());
    page
}

/// Explains a refusal of the API, for readers who follow its `type`.
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
        Self { layout: visit.layout(here, None), kind, all: &KINDS }
    }

    fn text(&self, kind: &Kind, part: &str) -> Cow<'_, str> {
        let key = format!("problem.{}.{part}", kind.name);
        t!(&key, locale = self.layout.locale.code()).into_owned().into()
    }
}

/// `GET /problems/{name}`
pub async fn show_problem(visit: PageRequest, name: web::Path<String>) -> Result<HttpResponse, Problem> {
    let kind = kind_named(&name).ok_or(Problem::NotFound)?;
    Ok(visit.page(StatusCode::OK, &ProblemPage::new(&visit, kind)))
}

/// The page of an error, from the request alone.
pub fn error_response(request: &HttpRequest, kind: ErrorKind) -> HttpResponse {
    if let Ok(edge) = WebContext::of(request) {
        let visit = PageRequest::of(request, edge.clone()).keep_flash();
        let page = ErrorPage::new(visit.layout("/login", None), kind);
        // No cookie of ours belongs at the host of an application.
        return match request.path().starts_with(ON_HOSTS) {
            true => visit.bare_page(kind.status(), &page),
            false => page.respond(&visit),
        };
    }
    // An app without an Edge (a test of one part) still answers in HTML.
    let title = crate::web::Locale::default().t(kind.title());
    HttpResponse::build(kind.status())
        .insert_header((CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")))
        .body(format!("<!doctype html><title>{title}</title><h1>{title}</h1>"))
}

/// The refusal as JSON for the API and for clients of OpenID Connect, and as a page otherwise.
pub fn answer(request: &HttpRequest, problem: &Problem) -> HttpResponse {
    if request.path().starts_with("/api/") {
        return problem.respond();
    }
    if OIDC_CALLS.contains(&request.path()) {
        return oauth_error(problem);
    }
    let mut page = error_response(request, problem.page());
    problem.head(page.headers_mut());
    page
}

/// Writes an error as RFC 6749, 5.2, has it.
fn oauth_error(problem: &Problem) -> HttpResponse {
    let Kind { name, status, .. } = problem.kind();
    let code = match status {
        StatusCode::FORBIDDEN => "access_denied",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => "temporarily_unavailable",
        status if status.is_server_error() => "temporarily_unavailable",
        _ => "invalid_request",
    };
    let key = format!("problem.{name}.title");
    let body = json!({ "error": code, "error_description": t!(&key, locale = "en") });
    let mut answer = HttpResponse::build(status).insert_header((CACHE_CONTROL, "no-store")).json(body);
    problem.head(answer.headers_mut());
    answer
}
