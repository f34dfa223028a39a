//! `/sms/reports/{gateway}`: delivery reports from gateways.

use actix_web::web::{Bytes, Path};
use actix_web::{Error, HttpRequest, HttpResponse};

use crate::sms::{ReportCall, ReportError};
use crate::web::http::ServicesData;
use crate::web::http::problem::log_failure;

/// Maximum length of a report in bytes. A report may be a batch.
pub const LONGEST: usize = 64 * 1024;

/// By POST, or by GET as Kannel calls it. Only programs read the answer: a status, and the body that the
/// gateway expects, if any.
pub async fn take(
    request: HttpRequest,
    gateway: Path<String>,
    body: Result<Bytes, Error>,
    services: ServicesData,
) -> HttpResponse {
    let Some(ours) = services.codes.gateways().named(&gateway) else {
        return HttpResponse::NotFound().finish();
    };
    let Ok(body) = body else { return HttpResponse::PayloadTooLarge().finish() };
    let url = format!("{}{}", services.public_url, request.uri());
    let header = |name: &str| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
    let call = ReportCall { url: &url, query: request.query_string(), header: &header, body: &body };
    let reports = match ours.reports(&call) {
        Ok(reports) => reports,
        Err(ReportError::NotAuthentic) => return HttpResponse::Unauthorized().finish(),
        Err(ReportError::NotOffered) => return HttpResponse::NotFound().finish(),
        Err(ReportError::Unreadable(_)) => return HttpResponse::UnprocessableEntity().finish(),
    };
    match services.codes.ledger().report(ours.name(), &reports).await {
        Ok(_) => match ours.acknowledgement() {
            Some(expected) => {
                HttpResponse::Ok().content_type(expected.content_type).body(expected.body.to_owned())
            }
            None => HttpResponse::NoContent().finish(),
        },
        Err(error) => {
            log_failure(&error);
            HttpResponse::ServiceUnavailable().finish()
        }
    }
}
