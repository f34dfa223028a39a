//! The client that a request comes from: the address that limits count, by the limiter's own reading of trusted
//! proxies.

use std::net::SocketAddr;

use actix_web::HttpRequest;
use actix_web::http::header::{AsHeaderName, HeaderMap, HeaderValue};

pub use gatehouse_limiter::middleware::{ClientAddress, SubjectBytes, TrustedProxies};

/// Whether what the request says about itself was said by a trusted proxy.
pub fn is_by_proxy(peer: Option<SocketAddr>, trusted: &TrustedProxies) -> bool {
    peer.is_some_and(|peer| trusted.contains(peer.ip().to_canonical()))
}

/// A header that is there once.
pub fn only_line(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(name);
    lines.next().filter(|_| lines.next().is_none())
}

/// Whether the client is on this machine: a proxy here speaks for others.
pub fn is_here(request: &HttpRequest) -> bool {
    let forwarded = ["x-forwarded-for", "forwarded", "x-real-ip"];
    request.peer_addr().is_some_and(|peer| peer.ip().to_canonical().is_loopback())
        && !forwarded.iter().any(|name| request.headers().contains_key(*name))
}
