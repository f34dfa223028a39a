//! What a trusted proxy says about a request to an application. Each header exactly once, and nothing is made up for
//! one that is missing: a client may have had it removed.

use std::fmt;

use actix_web::HttpRequest;
use actix_web::http::header::{ACCEPT, HOST, HeaderMap, UPGRADE};

use crate::gate::Scheme;
use crate::web::http::TrustedProxies;
use crate::web::http::client::{is_by_proxy, only_line};

pub const FORWARDED_HOST: &str = "x-forwarded-host";
const FORWARDED_PROTO: &str = "x-forwarded-proto";
const FORWARDED_METHOD: &str = "x-forwarded-method";
const FORWARDED_URI: &str = "x-forwarded-uri";
const ORIGINAL_URL: &str = "x-original-url";
const ORIGINAL_METHOD: &str = "x-original-method";
/// The path that Envoy is told to put before that of the request.
const EXT_AUTHZ: &str = "/api/authz/ext-authz";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedHost {
    pub scheme: Scheme,
    pub host: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxiedRequest {
    pub at: AskedHost,
    pub method: String,
    pub target: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHeaderError {
    /// Its peer is not in `server.trusted_proxies`.
    NoProxy,
    /// Without this header, or with several of it.
    NotOnce(&'static str),
    Wrong(&'static str),
}

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProxy => f.write_str("only proxies in server.trusted_proxies are answered"),
            Self::NotOnce(header) => write!(f, "the proxy must send {header} exactly once"),
            Self::Wrong(header) => write!(f, "the proxy sent a {header} that is not valid"),
        }
    }
}

impl AskedHost {
    /// Reads `X-Forwarded-Proto` and `X-Forwarded-Host`.
    pub fn of(request: &HttpRequest, trusted: &TrustedProxies) -> Result<Self, ProxyHeaderError> {
        proxy(request, trusted)?;
        Self::forwarded(request.headers())
    }

    fn forwarded(headers: &HeaderMap) -> Result<Self, ProxyHeaderError> {
        Self::read(
            (FORWARDED_PROTO, once(headers, FORWARDED_PROTO)?),
            (FORWARDED_HOST, once(headers, FORWARDED_HOST)?),
        )
    }

    fn read(scheme: (&'static str, &str), host: (&'static str, &str)) -> Result<Self, ProxyHeaderError> {
        let is_host =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        let host = Some(host.1).filter(|text| is_host(text)).ok_or(ProxyHeaderError::Wrong(host.0))?;
        let scheme: Scheme = scheme.1.parse().map_err(|_| ProxyHeaderError::Wrong(scheme.0))?;
        Ok(Self { scheme, host: scheme.without_own_port(host).to_owned() })
    }
}

impl ProxiedRequest {
    /// Reads what Traefik, Caddy and HAProxy say.
    pub fn forward_auth(request: &HttpRequest, trusted: &TrustedProxies) -> Result<Self, ProxyHeaderError> {
        let at = AskedHost::of(request, trusted)?;
        let headers = request.headers();
        let method = (FORWARDED_METHOD, once(headers, FORWARDED_METHOD)?);
        Self::read(at, method, (FORWARDED_URI, once(headers, FORWARDED_URI)?))
    }

    /// Reads what nginx says.
    pub fn auth_request(request: &HttpRequest, trusted: &TrustedProxies) -> Result<Self, ProxyHeaderError> {
        proxy(request, trusted)?;
        let headers = request.headers();
        let url = once(headers, ORIGINAL_URL)?;
        let (scheme, rest) = url.split_once("://").ok_or(ProxyHeaderError::Wrong(ORIGINAL_URL))?;
        let (host, target) = rest.split_at(rest.find('/').ok_or(ProxyHeaderError::Wrong(ORIGINAL_URL))?);
        let at = AskedHost::read((ORIGINAL_URL, scheme), (ORIGINAL_URL, host))?;
        Self::read(at, (ORIGINAL_METHOD, once(headers, ORIGINAL_METHOD)?), (ORIGINAL_URL, target))
    }

    /// Reads what Envoy says: the request itself, below a path of ours.
    pub fn ext_authz(request: &HttpRequest, trusted: &TrustedProxies) -> Result<Self, ProxyHeaderError> {
        proxy(request, trusted)?;
        let headers = request.headers();
        let host = match request.uri().authority() {
            Some(authority) => authority.as_str(),
            None => once(headers, HOST.as_str()).map_err(|_| ProxyHeaderError::NotOnce("host"))?,
        };
        let at = AskedHost::read((FORWARDED_PROTO, once(headers, FORWARDED_PROTO)?), ("host", host))?;
        let whole = request.uri().path_and_query().map_or("", |whole| whole.as_str());
        let target = whole.strip_prefix(EXT_AUTHZ).ok_or(ProxyHeaderError::Wrong("path"))?;
        Self::read(at, ("method", request.method().as_str()), ("path", target))
    }

    fn read(
        at: AskedHost,
        method: (&'static str, &str),
        target: (&'static str, &str),
    ) -> Result<Self, ProxyHeaderError> {
        let is_method =
            method.1.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-') && !method.1.is_empty();
        if !is_method {
            return Err(ProxyHeaderError::Wrong(method.0));
        }
        if !target.1.starts_with('/') {
            return Err(ProxyHeaderError::Wrong(target.0));
        }
        Ok(Self { at, method: method.1.to_owned(), target: target.1.to_owned() })
    }

    /// Whether a redirect shows a page to somebody: not to a script, an event stream, a WebSocket or a picture.
    pub fn shows_pages(headers: &HeaderMap) -> bool {
        let says = |name: &str, word: &str| {
            let mut lines = headers.get_all(name).filter_map(|line| line.to_str().ok());
            lines.any(|line| line.eq_ignore_ascii_case(word))
        };
        let fetched = headers.contains_key("sec-fetch-mode") && !says("sec-fetch-mode", "navigate");
        !fetched
            && !headers.contains_key(UPGRADE)
            && !says("x-requested-with", "xmlhttprequest")
            && accepts_html(headers)
    }
}

fn proxy(request: &HttpRequest, trusted: &TrustedProxies) -> Result<(), ProxyHeaderError> {
    if is_by_proxy(request.peer_addr(), trusted) { Ok(()) } else { Err(ProxyHeaderError::NoProxy) }
}

fn once<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<&'h str, ProxyHeaderError> {
    let line = only_line(headers, name).ok_or(ProxyHeaderError::NotOnce(name))?;
    line.to_str().map_err(|_| ProxyHeaderError::Wrong(name))
}

/// A client that says nothing accepts everything (RFC 9110, 12.5.1).
fn accepts_html(headers: &HeaderMap) -> bool {
    let lines: Vec<&str> = headers.get_all(ACCEPT).filter_map(|line| line.to_str().ok()).collect();
    if lines.is_empty() {
        return true;
    }
    let ranges = || lines.iter().flat_map(|line| line.split(','));
    let weighs = |range: &str| {
        let mut parts = range.split(';').map(|part| part.trim().to_ascii_lowercase());
        let kind = parts.next().unwrap_or_default();
        let refused = parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse::<f32>() == Ok(0.0)));
        (kind, !refused)
    };
    let mut stream = false;
    let mut accepts = false;
    for (kind, wanted) in ranges().map(weighs) {
        stream |= kind == "text/event-stream";
        accepts |=
            wanted && matches!(kind.as_str(), "text/html" | "application/xhtml+xml" | "text/*" | "*/*");
    }
    accepts && !stream
}

#[cfg(test)]
#[path = "proxied_tests.rs"]
mod tests;
