//! Who a request comes from: the address that limits count, by the limiter's own reading of trusted proxies.

use actix_web::HttpRequest;

pub use gatehouse_limiter::middleware::{ClientAddress, SubjectBytes, TrustedProxies};

/// Whether the client is on this machine: a proxy here speaks for others.
pub fn is_here(request: &HttpRequest) -> bool {
    let forwarded = ["x-forwarded-for", "forwarded", "x-real-ip"];
    request.peer_addr().is_some_and(|peer| peer.ip().to_canonical().is_loopback())
        && !forwarded.iter().any(|name| request.headers().contains_key(*name))
}
