//! The page for errors outside of a form, and the page that explains a refusal of the API.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use rust_i18n::t;
use serde_json::json;
use strum::VariantArray;

use crate::web::http::headers::{OIDC_CALLS, ON_HOSTS};
use crate::web::http::page::{Layout, PageRequest, WebContext};
use crate::web::http::problem::{Kind, Problem};
use crate::web::http::problem_kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum ErrorKind {
    BadRequest,
    Forbidden,
    Denied,
    /// A form that was too old, or not ours.
    ForeignForm,
    /// A server runs that would not ask for what was to be set up.
    Upgrading,
    NotFound,
    MethodNotAllowed,
    TooLarge,
    TooSlow,
    WrongType,
    TooMany,
    Internal,
    Unavailable,
}

impl ErrorKind {
    pub const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Forbidden | Self::Denied | Self::ForeignForm => StatusCode::FORBIDDEN,
            Self::Upgrading => StatusCode::CONFLICT,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::WrongType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    const fn keys(self) -> (&'static str, &'static str) {
        match self {
            Self::BadRequest => ("page-error.bad-request-title", "page-error.bad-request-text"),
            Self::Forbidden => ("page-error.forbidden-title", "page-error.forbidden-text"),
            Self::Denied => ("page-error.denied-title", "page-error.denied-text"),
            Self::ForeignForm => ("page-error.foreign-title", "page-error.foreign-text"),
            Self::Upgrading => ("problem.upgrade-unfinished.title", "problem.upgrade-unfinished.about"),
            Self::NotFound => ("page-error.not-found-title", "page-error.not-found-text"),
            Self::MethodNotAllowed => ("page-error.method-title", "page-error.method-text"),
            Self::TooLarge => ("page-error.large-title", "page-error.large-text"),
            Self::TooSlow => ("page-error.slow-title", "page-error.slow-text"),
            Self::WrongType => ("page-error.type-title", "page-error.type-text"),
            Self::TooMany => ("page-error.many-title", "page-error.many-text"),
            Self::Internal => ("page-error.internal-title", "page-error.internal-text"),
            Self::Unavailable => ("page-error.unavailable-title", "page-error.unavailable-text"),
        }
    }

    /// A page says less than a problem: what its status means, and three refusals by name.
    fn of(problem: &Problem) -> Self {
        match problem {
            Problem::Denied => Self::Denied,
            Problem::Csrf => Self::ForeignForm,
            Problem::UpgradeUnfinished => Self::Upgrading,
            other => match other.kind().status {
                StatusCode::UNAUTHORIZED => Self::Forbidden,
                StatusCode::CONFLICT => Self::BadRequest,
                // Among those with one status it is the first.
                status => {
                    let kind = Self::VARIANTS.iter().find(|kind| kind.status() == status);
                    kind.copied().unwrap_or(Self::BadRequest)
                }
            },
        }
    }
}

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
    let mut page = ErrorPage::new(visit.layout("/login", None), ErrorKind::of(problem)).respond(visit);
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
        Self { layout: visit.layout(here, None), kind, all: problem_kind::KINDS }
    }

    fn text(&self, kind: &Kind, part: &str) -> Cow<'_, str> {
        let key = format!("problem.{}.{part}", kind.name);
        t!(&key, locale = self.layout.locale.code()).into_owned().into()
    }
}

/// `GET /problems/{name}`
pub async fn show_problem(visit: PageRequest, name: web::Path<String>) -> Result<HttpResponse, Problem> {
    let kind = problem_kind::named(&name).ok_or(Problem::NotFound)?;
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
    let title = crate::web::Locale::default().t(kind.keys().0);
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
    let mut page = error_response(request, ErrorKind::of(problem));
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
