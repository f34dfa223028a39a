//! Wraps the service: ask the limiter, admit or refuse, then settle.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::rc::Rc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready};
use actix_web::http::header::HeaderMap;
use actix_web::{Error, HttpResponse};

use super::{Denied, Outage, RateLimit};
use crate::middleware::ratelimit_fields::{self, Standing};
use crate::{
    Bucket, Hold, HoldDecision, LimitMode, LimitRoom, OwnedBucket, Refusal, ReserveKind, StoreError,
    StoreVerdict, WindowStore,
};

impl<S, Inner, B> Transform<Inner, ServiceRequest> for RateLimit<S>
where
    S: WindowStore + 'static,
    Inner: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = Limited<S, Inner>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: Inner) -> Self::Future {
        metrics::describe_counter!(REFUSALS, "Requests that a limit refused, or would have in monitor mode");
        metrics::describe_counter!(STORE_ERRORS, "Decisions that the store of the limits did not make");
        ready(Ok(Limited { rate: Rc::new(self.clone()), service: Rc::new(service) }))
    }
}

const REFUSALS: &str = "gatehouse_rate_limit_refusals_total";
const STORE_ERRORS: &str = "gatehouse_store_errors_total";

/// A service behind the middleware.
pub struct Limited<S: WindowStore + 'static, Inner> {
    rate: Rc<RateLimit<S>>,
    service: Rc<Inner>,
}

impl<S, Inner, B> Service<ServiceRequest> for Limited<S, Inner>
where
    S: WindowStore + 'static,
    Inner: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (rate, service) = (Rc::clone(&self.rate), Rc::clone(&self.service));
        Box::pin(async move {
            let asked = match rate.asked(&request) {
                Ok(asked) => asked,
                Err(error) => return Ok(request.error_response(error).map_into_right_body()),
            };
            let buckets: Vec<Bucket<'_>> = asked.iter().map(OwnedBucket::borrow).collect();
            let passed = match rate.admit(&buckets).await {
                Ok(passed) => passed,
                Err(denied) => {
                    let response = rate.turn_away(&request, &denied, &buckets);
                    return Ok(request.into_response(response).map_into_right_body());
                }
            };
            let mut result = service.call(request).await;
            if let Some(in_flight) = passed.in_flight {
                in_flight.end(rate.counts(&result)).await;
            }
            if let Ok(response) = &mut result {
                let standing = passed.room.map(|room| Standing {
                    name: buckets[room.bucket].limit.name(),
                    rule: room.rule,
                    remaining: room.remaining,
                    more_after: Some(room.more_after),
                });
                tell(response.headers_mut(), &buckets, standing);
            }
            result.map(ServiceResponse::map_into_left_body)
        })
    }
}

struct Passed<S: WindowStore + 'static> {
    /// Set if the answer decides whether the request counts.
    in_flight: Option<InFlight<S>>,
    room: Option<LimitRoom>,
}

impl<S: WindowStore + 'static> RateLimit<S> {
    /// The logs that count a request.
    fn asked(&self, request: &ServiceRequest) -> Result<Vec<OwnedBucket>, Error> {
        let mut asked: Vec<OwnedBucket> = Vec::with_capacity(self.counts.len());
        for count in &self.counts {
            let Some(subject) = (count.subject)(request)? else { continue };
            let limit = count.limit.limit();
            let key = self.limiter.bucket(&limit, &subject).key;
            asked.push(OwnedBucket { limit, key });
        }
        Ok(asked)
    }

    async fn admit(&self, buckets: &[Bucket<'_>]) -> Result<Passed<S>, Denied> {
        if buckets.is_empty() {
            return Ok(Passed { in_flight: None, room: None });
        }
        let asked =
            if self.count_when.is_some() { self.hold(buckets).await } else { self.hit(buckets).await };
        asked.unwrap_or_else(|error| {
            failed(&error);
            match self.outage {
                Outage::Refuse => Err(Denied::Unavailable),
                Outage::Admit if error.is_mistake() => Err(Denied::Unavailable),
                Outage::Admit => Ok(Passed { in_flight: None, room: None }),
            }
        })
    }

    /// If the request is aborted before the store answers, its hit is given back, because the request goes no
    /// further.
    async fn hit(&self, buckets: &[Bucket<'_>]) -> Result<Result<Passed<S>, Denied>, StoreError> {
        let ask = self.limiter.request(buckets, ReserveKind::Hit, false)?;
        Ok(match self.limiter.reserve_or_refund(&ask).await? {
            StoreVerdict::Admitted { room, noted, .. } => {
                note(buckets, noted);
                Ok(Passed { in_flight: None, room })
            }
            StoreVerdict::Refused { refusal } => Err(refused(buckets, refusal)),
            StoreVerdict::Held { .. } => Err(Denied::Busy),
        })
    }

    async fn hold(&self, buckets: &[Bucket<'_>]) -> Result<Result<Passed<S>, Denied>, StoreError> {
        Ok(match self.limiter.hold(buckets, false, self.patience).await? {
            HoldDecision::Held(hold) => {
                note(buckets, hold.noted);
                let room = hold.room;
                Ok(Passed { in_flight: Some(InFlight(Some(hold))), room })
            }
            HoldDecision::Refused(refusal) => Err(refused(buckets, refusal)),
            HoldDecision::OutOfPatience => Err(Denied::Busy),
        })
    }

    /// An error becomes an answer further out, and is judged by that answer.
    fn counts<B>(&self, result: &Result<ServiceResponse<B>, Error>) -> bool {
        let Some(counts) = &self.count_when else { return true };
        match result {
            Ok(response) => counts(response.response().head()),
            Err(error) => counts(error.error_response().head()),
        }
    }

    fn turn_away(&self, request: &ServiceRequest, denied: &Denied, buckets: &[Bucket<'_>]) -> HttpResponse {
        let mut response = match &self.denied {
            Some(respond) => respond(request.request(), denied),
            None => denied.respond(),
        };
        denied.head(response.headers_mut());
        let full = match denied {
            Denied::Full { limit, refusal } => Some(Standing {
                name: limit.name(),
                rule: refusal.rule,
                remaining: 0,
                more_after: Some(refusal.retry_after),
            }),
            Denied::Busy | Denied::Unavailable => None,
        };
        tell(response.headers_mut(), buckets, full);
        response
    }
}

fn tell(headers: &mut HeaderMap, buckets: &[Bucket<'_>], standing: Option<Standing<'_>>) {
    let enforced =
        buckets.iter().map(|bucket| bucket.limit).filter(|limit| limit.mode() == LimitMode::Enforce);
    ratelimit_fields::add(headers, enforced.map(|limit| (limit.name(), limit)), standing);
}

fn refused(buckets: &[Bucket<'_>], refusal: Refusal) -> Denied {
    let limit = buckets[refusal.bucket].limit.clone();
    count_refusal(limit.name(), "enforce");
    Denied::Full { limit, refusal }
}

fn note(buckets: &[Bucket<'_>], noted: Option<Refusal>) {
    if let Some(refusal) = noted {
        count_refusal(buckets[refusal.bucket].limit.name(), "monitor");
    }
}

fn count_refusal(limit: &str, mode: &'static str) {
    metrics::counter!(REFUSALS, "limit" => limit.to_owned(), "mode" => mode).increment(1);
}

/// The slot of a request whose answer decides whether it counts. If this is dropped before the answer is known, for
/// example because the client hangs up, the request counts: otherwise a client could avoid the limit by hanging up.
struct InFlight<S: WindowStore + 'static>(Option<Hold<S>>);

impl<S: WindowStore + 'static> InFlight<S> {
    /// The answer is known. It is settled in a separate task, which continues if the client hangs up.
    async fn end(mut self, counts: bool) {
        if let Some(hold) = self.0.take() {
            let _ = tokio::spawn(settle(hold, counts)).await;
        }
    }
}

impl<S: WindowStore + 'static> Drop for InFlight<S> {
    fn drop(&mut self) {
        let Some(hold) = self.0.take() else { return };
        // Without a runtime the server is gone. The slot becomes a hit by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(settle(hold, true));
        }
    }
}

async fn settle<S: WindowStore + 'static>(hold: Hold<S>, counts: bool) {
    let told = if counts { hold.keep().await.map(drop) } else { hold.refund().await };
    if let Err(error) = told {
        failed(&error);
    }
}

fn failed(error: &StoreError) {
    metrics::counter!(STORE_ERRORS).increment(1);
    if error.is_mistake() {
        tracing::error!(%error, "the limits of a request cannot be checked together");
    } else {
        tracing::debug!(%error, "the window store failed while it checked the limits of a request");
    }
}
