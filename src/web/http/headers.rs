//! The security headers of every answer, in one place.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, web};
use url::Url;

type Fixed = (HeaderName, HeaderValue);

/// Made once at start. Each answer then costs only a few reference counts.
#[derive(Debug, Clone)]
pub struct SecurityHeaders {
    page: Vec<Fixed>,
    other: Vec<Fixed>,
}

/// Pages load one style sheet, one script and its worker, which connect only to us, and our own images. They submit forms
/// only to us. Nothing else is allowed.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; worker-src 'self'; \
    connect-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// The policy of a page whose forms end at an application. `hosts`: its origin, or every one that it leads on to.
pub fn let_forms_end_at(hosts: &str, headers: &mut HeaderMap) {
    let policy = PAGE_POLICY.replace("form-action 'self'", &format!("form-action 'self' {hosts}"));
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
}

/// JSON and images load nothing, even if a browser displays them.
const OTHER_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";
const NO_FEATURES: &str = "camera=(), geolocation=(), microphone=(), payment=(), usb=()";
/// Two years, as hstspreload.org asks. No includeSubDomains: other hosts are not ours to decide on.
const HSTS: &str = "max-age=63072000";

impl SecurityHeaders {
    pub fn new(public_url: &Url) -> Self {
        let fixed = HeaderValue::from_static;
        let mut other = vec![
            (header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
            (header::CACHE_CONTROL, fixed("no-store")),
            (header::CONTENT_SECURITY_POLICY, fixed(OTHER_POLICY)),
            (HeaderName::from_static("cross-origin-resource-policy"), fixed("same-origin")),
        ];
        if public_url.scheme() == "https" {
            other.push((header::STRICT_TRANSPORT_SECURITY, fixed(HSTS)));
        }
        let mut page = other.clone();
        page[2].1 = fixed(PAGE_POLICY);
        page.extend([
            // Not no-referrer: with it a browser sends `Origin: null` with our own forms, and the CSRF check
            // needs `Origin` if there is no Sec-Fetch-Site. Other sites get no referrer.
            (header::REFERRER_POLICY, fixed("same-origin")),
            (header::X_FRAME_OPTIONS, fixed("DENY")),
            (HeaderName::from_static("cross-origin-opener-policy"), fixed("same-origin")),
            (HeaderName::from_static("permissions-policy"), fixed(NO_FEATURES)),
        ]);
        Self { page, other }
    }

    /// Adds only missing headers: an asset keeps its own caching header.
    pub fn apply(&self, headers: &mut HeaderMap) {
        let html =
            headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
        for (name, value) in if html { &self.page } else { &self.other } {
            if !headers.contains_key(name) {
                headers.insert(name.clone(), value.clone());
            }
        }
    }
}

/// For `wrap(from_fn(secure))`, inside `observe`, so that answers of other middleware get the headers, too.
pub async fn secure<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let headers = request.app_data::<web::Data<SecurityHeaders>>().cloned();
    let is_elsewhere = [AUTHZ, ON_HOSTS].iter().any(|folder| request.path().starts_with(folder));
    let mut response = next.call(request).await?;
    if let Some(fixed) = headers {
        fixed.apply(response.headers_mut());
        // Whether browsers keep to https at the host of an application is for its owner to say.
        if is_elsewhere {
            response.headers_mut().remove(header::STRICT_TRANSPORT_SECURITY);
        }
    }
    Ok(response)
}

/// What proxies ask for each request.
pub const AUTHZ: &str = "/api/authz/";
/// What proxies pass on from the hosts of applications.
pub const ON_HOSTS: &str = "/.gatehouse/";
/// What clients of OpenID Connect call; browsers show none of it.
pub const OIDC_CALLS: [&str; 5] =
    ["/oauth/token", "/oauth/userinfo", "/oauth/keys", "/oauth/revoke", "/oauth/introspect"];

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(url: &str, kind: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        SecurityHeaders::new(&Url::parse(url).unwrap()).apply(&mut headers);
        headers
    }

    #[test]
    fn a_page_runs_nothing_that_is_not_ours() {
        let headers = applied("https://id.example", "text/html; charset=utf-8");
        let policy = headers.get("content-security-policy").unwrap().to_str().unwrap();
        assert!(policy.contains("script-src 'self'") && policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"));
        assert_eq!(headers.get("referrer-policy").unwrap(), "same-origin");
    }

    #[test]
    fn nothing_dynamic_is_kept_by_a_cache_and_no_type_is_guessed() {
        for kind in ["text/html", "application/problem+json", "image/png"] {
            let headers = applied("http://127.0.0.1:8080", kind);
            assert_eq!(headers.get("cache-control").unwrap(), "no-store");
            assert_eq!(headers.get("x-content-type-options").unwrap(), "nosniff");
        }
    }

    #[test]
    fn an_asset_keeps_its_own_caching() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        SecurityHeaders::new(&Url::parse("http://localhost").unwrap()).apply(&mut headers);
        assert_eq!(headers.get("cache-control").unwrap(), "public, immutable");
    }

    #[test]
    fn only_https_asks_to_be_kept_on_https() {
        assert!(applied("https://id.example", "text/html").contains_key("strict-transport-security"));
        assert!(!applied("http://id.example", "text/html").contains_key("strict-transport-security"));
    }
}
