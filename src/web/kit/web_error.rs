//! How a handler ends early: with another answer, or with a problem.

use actix_web::error::InternalError;
use actix_web::{Error, HttpResponse};

use crate::web::kit::problem::Problem;

pub type WebResult = Result<HttpResponse, WebError>;

#[derive(Debug)]
pub enum WebError {
    /// For example the form again, a redirect, or a refusal with its fields.
    Answer(Box<HttpResponse>),
    /// JSON for API calls; `extract::refuse_with_pages` renders a page for everyone else.
    Problem(Problem),
}

impl From<HttpResponse> for WebError {
    fn from(answer: HttpResponse) -> Self {
        Self::Answer(Box::new(answer))
    }
}

impl<P: Into<Problem>> From<P> for WebError {
    fn from(problem: P) -> Self {
        Self::Problem(problem.into())
    }
}

impl From<WebError> for Error {
    fn from(error: WebError) -> Self {
        match error {
            WebError::Answer(answer) => InternalError::from_response("answered", *answer).into(),
            WebError::Problem(problem) => problem.into(),
        }
    }
}
