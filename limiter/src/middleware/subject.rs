//! The subject that a request counts against: ready-made functions for
//! [`RateLimit::limit`](super::RateLimit::limit), and a way to combine two. Your own function works as well:
//! `|request| Ok(request.extensions().get::<UserId>().map(|id| id.as_bytes().to_vec()))`.

use actix_web::Error;
use actix_web::dev::ServiceRequest;
use actix_web::http::header::HeaderName;

use crate::middleware::client::{ClientAddress, TrustedProxies};

/// What a limit counts, as any bytes. They are hashed before they leave the process. The same bytes are the
/// same subject.
pub type Subject = Vec<u8>;

/// All requests together.
pub fn everyone() -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    |_: &ServiceRequest| Ok(Some(Vec::new()))
}

/// The client's address. If the peer is one of these proxies, it is the rightmost hop of `X-Forwarded-For`
/// that is not one of them; otherwise it is the peer. IPv6 counts by the /64, which one customer has.
pub fn client_address(
    trusted: TrustedProxies,
) -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    move |request: &ServiceRequest| {
        Ok(Some(ClientAddress::of(request.request(), &trusted).subject().as_ref().to_vec()))
    }
}

/// The value of a request header, all lines of it. Requests without it count together. Use it only for a
/// header that a client cannot choose: one that a proxy in front sets, or that was verified before.
pub fn header(name: HeaderName) -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    move |request: &ServiceRequest| {
        let lines = request.headers().get_all(&name);
        Ok(Some(lines.fold(Vec::new(), |subject, line| joined(subject, line.as_bytes()))))
    }
}

/// The pattern of the resource (`/articles/{id}`), whatever the spelling of the path and the method: a
/// handler may accept any method. All paths without a route count as one.
pub fn endpoint() -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    |request: &ServiceRequest| {
        // The decoded path that routing uses, not the path as sent: `/%61rticles` is `/articles`.
        let pattern = request.resource_map().match_pattern(request.match_info().as_str());
        Ok(Some(pattern.unwrap_or_default().into_bytes()))
    }
}

/// The path that routing uses: decoded, without the query. A client that can invent paths gets as many
/// subjects; use [`endpoint`] to avoid that.
pub fn path() -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    |request: &ServiceRequest| Ok(Some(request.match_info().as_str().as_bytes().to_vec()))
}

/// Two subjects combined, for example a user and a path. Not limited if either is missing.
pub fn both(
    one: impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone,
    other: impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone,
) -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    move |request: &ServiceRequest| {
        let Some(one) = one(request)? else { return Ok(None) };
        Ok(other(request)?.map(|other| joined(joined(Vec::new(), &one), &other)))
    }
}

/// Adds the length first, so that different lists of parts never give the same bytes.
fn joined(mut subject: Subject, part: &[u8]) -> Subject {
    subject.extend_from_slice(&(part.len() as u64).to_le_bytes());
    subject.extend_from_slice(part);
    subject
}
