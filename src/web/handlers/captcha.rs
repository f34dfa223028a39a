//! `/captcha/{id}.png`

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use actix_web::web::{Bytes, Path};
use actix_web::{HttpRequest, HttpResponse};

use crate::captcha::ImageError;
use crate::web::extract;
use crate::web::problem::Problem;
use crate::web::services::Shared;

/// The image of one challenge: the same bytes whenever it is asked for, and of use to nobody else.
pub async fn image(request: HttpRequest, id: Path<String>, services: Shared) -> HttpResponse {
    let problem = match services.captchas.image(&id).await {
        Ok(png) => {
            return HttpResponse::Ok()
                .insert_header((CONTENT_TYPE, HeaderValue::from_static("image/png")))
                .insert_header((CACHE_CONTROL, HeaderValue::from_static("private, max-age=180")))
                .body(Bytes::from_owner(png));
        }
        Err(ImageError::Unknown) => Problem::NotFound,
        Err(ImageError::Busy) => Problem::Busy { retry_after: std::time::Duration::from_secs(1) },
        Err(ImageError::Failed) => Problem::Internal,
    };
    extract::answer(&request, &problem)
}
