//! `GET /oauth/keys`: the keys by which applications verify our tokens.

use actix_web::HttpResponse;
use actix_web::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, RETRY_AFTER};
use serde_json::json;

use crate::web::http::ServicesData;

/// Much shorter than the day for which a key is published before it signs: a change of the algorithm is not announced.
const CACHING: &str = "public, max-age=900";
/// Seconds. Making the first key takes about as long.
const WAIT: &str = "2";

/// Anybody may read them, from any site.
pub async fn show(services: ServicesData) -> HttpResponse {
    let set = services.token_keys.jwks();
    let mut answer = match set.keys.is_empty() {
        true => HttpResponse::ServiceUnavailable(),
        false => HttpResponse::Ok(),
    };
    answer.insert_header((ACCESS_CONTROL_ALLOW_ORIGIN, "*"));
    answer.insert_header(("cross-origin-resource-policy", "cross-origin"));
    if set.keys.is_empty() {
        return answer.insert_header((RETRY_AFTER, WAIT)).json(json!({ "error": "temporarily_unavailable" }));
    }
    answer.insert_header((CACHE_CONTROL, CACHING)).json(set)
}
