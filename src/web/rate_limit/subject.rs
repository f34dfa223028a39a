//! Whom a request counts against: ready-made functions for [`RateLimit::limit`](super::RateLimit::limit), and
//! how two become one. A function of one's own is as good:
//! `|request| Ok(request.extensions().get::<UserId>().map(|id| id.as_bytes().to_vec()))`.

use actix_web::Error;
use actix_web::dev::ServiceRequest;
use actix_web::http::header::HeaderName;

use crate::web::kit::client::{ClientAddress, TrustedProxies};

/// What a limit counts, as any bytes. They are hashed before they go anywhere; the same bytes are the same
/// subject.
pub type Subject = Vec<u8>;

/// All requests together.
pub fn everyone() -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    |_: &ServiceRequest| Ok(Some(Vec::new()))
}

/// The client's address: the rightmost hop of `X-Forwarded-For` that is none of these proxies', where the
/// peer is one of them; else the peer's. IPv6 counts by the /64, which is what one customer has.
pub fn client_address(
    trusted: TrustedProxies,
) -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    move |request: &ServiceRequest| {
        Ok(Some(ClientAddress::of(request.request(), &trusted).subject().as_ref().to_vec()))
    }
}

/// What the request's header says, all lines of it. Requests without it count together. Only for a header
/// that a client cannot choose: one that a proxy in front sets, or that was verified before.
pub fn header(name: HeaderName) -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    move |request: &ServiceRequest| {
        let lines = request.headers().get_all(&name);
        Ok(Some(lines.fold(Vec::new(), |subject, line| joined(subject, line.as_bytes()))))
    }
}

/// The pattern of the resource (`/articles/{id}`), however the path is spelt and whatever the method is: a
/// handler may take any. All paths that lead nowhere are one.
pub fn endpoint() -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    |request: &ServiceRequest| {
        // By the path that routes are found by, not as it was sent: `/%61rticles` is `/articles`.
        let pattern = request.resource_map().match_pattern(request.match_info().as_str());
        Ok(Some(pattern.unwrap_or_default().into_bytes()))
    }
}

/// The path as routes are found by it: decoded, without the query. Who may make up paths has as many
/// subjects; [`endpoint`] does not give them that.
pub fn path() -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    |request: &ServiceRequest| Ok(Some(request.match_info().as_str().as_bytes().to_vec()))
}

/// Two at once, as a user and a path. Not limited where one of them is not.
pub fn both(
    one: impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone,
    other: impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone,
) -> impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Clone {
    move |request: &ServiceRequest| {
        let Some(one) = one(request)? else { return Ok(None) };
        Ok(other(request)?.map(|other| joined(joined(Vec::new(), &one), &other)))
    }
}

/// With its length, so that no two lists of parts are the same bytes.
fn joined(mut subject: Subject, part: &[u8]) -> Subject {
    subject.extend_from_slice(&(part.len() as u64).to_le_bytes());
    subject.extend_from_slice(part);
    subject
}
