//! How the handler of a page ends early: with another answer, or because something is broken.

use actix_web::error::InternalError;
use actix_web::{Error, HttpResponse};

use crate::web::kit::problem::Problem;

pub type PageResult = Result<HttpResponse, PageError>;

#[derive(Debug)]
pub enum PageError {
    /// The page, or the way to another one, that is sent instead.
    Answer(HttpResponse),
    /// Drawn as a page on its way out, by `extract::refuse_with_pages`.
    Problem(Problem),
}

impl From<HttpResponse> for PageError {
    fn from(answer: HttpResponse) -> Self {
        Self::Answer(answer)
    }
}

impl<P: Into<Problem>> From<P> for PageError {
    fn from(problem: P) -> Self {
        Self::Problem(problem.into())
    }
}

impl From<PageError> for Error {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Answer(answer) => InternalError::from_response("answered", answer).into(),
            PageError::Problem(problem) => problem.into(),
        }
    }
}
