//! `/captcha/{id}.png`

use std::time::Duration;

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use actix_web::web::{Bytes, Data, Path};
use actix_web::{HttpRequest, HttpResponse};

use crate::captcha::ImageError;
use crate::web::kit::challenge;
use crate::web::kit::client::ClientAddress;
use crate::web::kit::csrf::Provenance;
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Edge;

/// The image of one challenge. The bytes are always the same, and useless to other clients.
pub async fn image(
    request: HttpRequest,
    id: Path<String>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    if is_in_a_foreign_page(request.headers(), &edge) {
        return Err(Problem::Csrf);
    }
    let client = ClientAddress::of(&request, &edge.trusted);
    let png =
        challenge::image(&edge.live(&services, client), client, &services, &id).await.map_err(|error| {
            match error {
                ImageError::Unknown => Problem::NotFound,
                ImageError::Refused(later) => {
                    Problem::Throttled { limit: later.limit.into(), retry_after: later.retry_after }
                }
                ImageError::Busy => Problem::Busy { retry_after: Duration::from_secs(1) },
                ImageError::Failed => Problem::Internal,
            }
        })?;
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, HeaderValue::from_static("image/png")))
        .insert_header((CACHE_CONTROL, HeaderValue::from_static("private, max-age=180")))
        .body(Bytes::from_owner(png)))
}

/// Another site could not show the image, but loading it would use up the images allowed for the reader's
/// address.
fn is_in_a_foreign_page(headers: &HeaderMap, edge: &Edge) -> bool {
    // The reader typed the address or opened a bookmark.
    let typed = headers.get("sec-fetch-site").is_some_and(|site| site.as_bytes() == b"none");
    !typed && edge.csrf.provenance(headers) == Provenance::Foreign
}
