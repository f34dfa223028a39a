//! A middleware that limits the requests of an actix-web application, for users of the limiter as a library:
//! a limit, and the subject that each request counts against.
//!
//! ```
//! use std::time::Duration;
//!
//! use actix_web::{App, HttpResponse, web};
//! use gatehouse_limiter::{Limit, Limiter, MemoryStore, LimitMode, Rule, RuleAction};
//! use gatehouse_limiter::middleware::{RateLimit, TrustedProxies, subject};
//! use gatehouse_limiter::{SubKey, clock::Clock, entropy::Entropy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Once, before the server makes its workers: they share the windows.
//! let key = SubKey::random(&Entropy::Os);
//! let limiter = Limiter::new(MemoryStore::new(Clock::System), key, &Entropy::Os);
//! let minute = Duration::from_secs(60);
//! let each = Limit::new("each-endpoint", vec![Rule::sliding(10, minute, RuleAction::Block)], LimitMode::Enforce)?;
//! let all = Limit::new("everyone", vec![Rule::sliding(1000, minute, RuleAction::Block)], LimitMode::Enforce)?;
//!
//! let proxies = TrustedProxies::new(["10.0.0.0/8".parse()?]);
//! let rate = RateLimit::new(limiter)
//!     // Ten a minute for each client and endpoint …
//!     .limit(each, subject::both(subject::endpoint(), subject::client_address(proxies)))
//!     // … and a thousand for everyone together. A request counts in both, or in none.
//!     .limit(all, subject::everyone());
//!
//! // In the closure of `HttpServer::new`; a scope, a resource or a route is wrapped the same way.
//! let app = App::new()
//!     .wrap(rate.clone())
//!     .route("/articles", web::post().to(async || HttpResponse::Created()));
//! # let _ = app;
//! # Ok(())
//! # }
//! ```

mod client;
mod denied;
pub mod ratelimit_fields;
mod service;
pub mod subject;

use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::{ResponseHead, ServiceRequest};
use actix_web::{Error, HttpRequest, HttpResponse};

use crate::{Limit, Limiter, MOST_BUCKETS, WindowStore};

pub use client::{ClientAddress, Nat64Prefix, RequestOrigin, SubjectBytes, TrustedProxies};
pub use denied::{BUSY, Denied, ProblemKind, THROTTLED, UNAVAILABLE};
pub use subject::Subject;

/// How long a request waits by default for others in flight, whose outcome decides whether there is a free
/// slot.
const PATIENCE: Duration = Duration::from_secs(5);

type SubjectOf = dyn Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Send + Sync;
type CountWhen = dyn Fn(&ResponseHead) -> bool + Send + Sync;
type DeniedResponse = dyn Fn(&HttpRequest, &Denied) -> HttpResponse + Send + Sync;

/// How requests are handled while the store does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outage {
    /// 503 with `Retry-After`.
    #[default]
    Refuse,
    /// Requests pass uncounted. Use it only for actions that are safe without any limit.
    Admit,
}

/// The middleware. Clones share the windows: create one, and give a clone to each worker's `App`.
///
/// Above a limit it answers 429 as a problem (RFC 9457) with `Retry-After`. Answers and refusals of the
/// handler have the limits and what is left of them in the `RateLimit` fields. A refusal writes nothing, so a
/// client that keeps trying still gets its full rate. A rule that leads to a CAPTCHA refuses like any other,
/// because the middleware cannot know whether one was solved. A limit in monitor mode refuses nothing; it
/// counts what it would have refused in `gatehouse_rate_limit_refusals_total`.
pub struct RateLimit<S: WindowStore + 'static> {
    limiter: Limiter<S>,
    counts: Vec<Count>,
    outage: Outage,
    patience: Duration,
    count_when: Option<Arc<CountWhen>>,
    denied: Option<Arc<DeniedResponse>>,
}

/// A limit, and the subject that it counts.
#[derive(Clone)]
struct Count {
    limit: Arc<dyn LimitNow>,
    subject: Arc<SubjectOf>,
}

/// The source of a limit, read once a request: a [`Limit`], or a function that returns the one in force.
pub trait LimitNow: Send + Sync {
    /// The limit in force now.
    fn limit(&self) -> Limit;
}

impl LimitNow for Limit {
    fn limit(&self) -> Limit {
        self.clone()
    }
}

impl<F: Fn() -> Limit + Send + Sync> LimitNow for F {
    fn limit(&self) -> Limit {
        self()
    }
}

impl<S: WindowStore + 'static> RateLimit<S> {
    /// Limits nothing yet.
    pub fn new(limiter: Limiter<S>) -> Self {
        let (outage, patience) = (Outage::default(), PATIENCE);
        Self { limiter, counts: Vec::new(), outage, patience, count_when: None, denied: None }
    }

    /// Counts each request under this limit, against the subject that `subject` returns. `None`: this limit
    /// does not apply. An error: the request is answered with it and counts nowhere. All limits of one
    /// middleware are decided in one atomic step: a request counts in each of them, or in none. Two limits
    /// with the same name share their logs wherever the limiter is used.
    ///
    /// # Panics
    /// With more than [`MOST_BUCKETS`] limits, which one step cannot span; and with two limits of one name, in whose
    /// log a request would count twice: put their rules into one limit. If functions return them, and give them one
    /// name later, requests that both count are answered 503.
    #[must_use]
    pub fn limit(
        mut self,
        limit: impl LimitNow + 'static,
        subject: impl Fn(&ServiceRequest) -> Result<Option<Subject>, Error> + Send + Sync + 'static,
    ) -> Self {
        assert!(self.counts.len() < MOST_BUCKETS, "one step spans at most {MOST_BUCKETS} limits");
        let name = limit.limit();
        let twin = self.counts.iter().any(|count| count.limit.limit().name() == name.name());
        assert!(!twin, "two limits are named {:?}: put their rules into one", name.name());
        self.counts.push(Count { limit: Arc::new(limit), subject: Arc::new(subject) });
        self
    }

    /// Counts only requests whose answer satisfies `counts`, for example failed attempts. A request takes a
    /// slot before it is handled and returns it afterwards if it does not count. So no more requests can fail
    /// at once than one after another. If requests in flight take all free slots, the next request waits for
    /// one of them. A request that takes longer than [`HOLD_LIFE`](crate::window::HOLD_LIFE) counts
    /// until it answers. A request whose client hangs up before the answer counts.
    #[must_use]
    pub fn count_when(self, counts: impl Fn(&ResponseHead) -> bool + Send + Sync + 'static) -> Self {
        Self { count_when: Some(Arc::new(counts)), ..self }
    }

    /// How long a request waits for others in flight ([`RateLimit::count_when`]) before it is answered 503.
    /// The default is 5 s.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// How requests are handled while the store is out. The default is [`Outage::Refuse`].
    #[must_use]
    pub fn on_outage(self, outage: Outage) -> Self {
        Self { outage, ..self }
    }

    /// Replaces [`Denied::respond`] as the answer to refused requests. `Retry-After` and the `RateLimit`
    /// fields are added to it.
    #[must_use]
    pub fn denied_response(
        self,
        respond: impl Fn(&HttpRequest, &Denied) -> HttpResponse + Send + Sync + 'static,
    ) -> Self {
        Self { denied: Some(Arc::new(respond)), ..self }
    }
}

impl<S: WindowStore + 'static> Clone for RateLimit<S> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            counts: self.counts.clone(),
            outage: self.outage,
            patience: self.patience,
            count_when: self.count_when.clone(),
            denied: self.denied.clone(),
        }
    }
}
