//! `/openapi.json`: the API described, as it is served. A test holds it to the URL table.

use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};

pub const DOCUMENT: &str = include_str!("../../static/openapi.json");

pub async fn serve() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json")))
        .body(DOCUMENT)
}
