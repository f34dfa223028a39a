//! Request metrics, ids and spans: by route, the number of requests, their statuses and their durations.

use std::cell::OnceCell;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, web};
use metrics::{Counter, Histogram};
use tokio::time::Instant;
use tracing::Instrument;

use crate::request_id::RequestId;
use crate::spans;
use crate::telemetry::REQUEST_SECONDS;
use crate::web::http::client::{is_by_proxy, only_line};
use crate::web::http::page::WebContext;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// All requests without a route share one label, whatever their path.
const NOWHERE: &str = "none";

/// The metrics of one route, created once for each worker. They are stored with the route, so that a request
/// needs no look-up by name. The label is the path's pattern, so there are no more of these than routes.
#[derive(Default)]
pub struct RouteMetrics(OnceCell<Handles>);

struct Handles {
    seconds: Histogram,
    ended: [Counter; 5],
}

impl RouteMetrics {
    pub fn nowhere() -> Self {
        Self(OnceCell::from(Handles::of(NOWHERE)))
    }

    fn handles(&self, request: &HttpRequest) -> &Handles {
        self.0.get_or_init(|| Handles::of(request.match_pattern().as_deref().unwrap_or(NOWHERE)))
    }
}

impl Handles {
    fn of(route: &str) -> Self {
        let seconds = metrics::histogram!(REQUEST_SECONDS, "route" => route.to_owned());
        let ended = |class: &'static str| metrics::counter!("gatehouse_http_requests_total", "route" => route.to_owned(), "status" => class);
        Self { seconds, ended: ["1xx", "2xx", "3xx", "4xx", "5xx"].map(ended) }
    }
}

/// For `wrap(from_fn(observe))`, inside `one_at_a_time` alone, so that every answer has its id.
pub async fn observe<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let begun = Instant::now();
    let trusted = request.app_data::<web::Data<WebContext>>().map(|edge| &edge.trusted);
    let by_proxy = trusted.is_some_and(|trusted| is_by_proxy(request.peer_addr(), trusted));
    let id = id_of(&request, by_proxy);
    let method = known_method(request.method());
    let span = spans::request(method, id.as_ref().map(RequestId::as_str));
    if by_proxy
        && !span.is_disabled()
        && let Some(parent) = only_line(request.headers(), &TRACEPARENT).and_then(|line| line.to_str().ok())
    {
        spans::continue_trace(&span, parent);
    }
    let shown = id.as_ref().and_then(|id| HeaderValue::from_str(id.as_str()).ok());
    let answered = async {
        let answer = next.call(request).await;
        if let Ok(answer) = &answer {
            tracing::debug!(status = answer.status().as_u16(), "answered");
        }
        answer
    }
    .instrument(span.clone());
    let mut response = match id {
        Some(id) => id.scope(answered).await?,
        None => answered.await?,
    };
    if let Some(shown) = shown {
        response.headers_mut().insert(REQUEST_ID, shown);
    }
    if !span.is_disabled() {
        let route = response.request().match_pattern();
        spans::answered(&span, method, route.as_deref(), response.status().as_u16());
    }
    if let Some(route) = response.request().app_data::<RouteMetrics>() {
        let handles = route.handles(response.request());
        handles.seconds.record(begun.elapsed().as_secs_f64());
        let class = usize::from(response.status().as_u16() / 100).clamp(1, handles.ended.len());
        handles.ended[class - 1].increment(1);
    }
    Ok(response)
}

/// The id from a trusted proxy, so that both logs use the same id; otherwise a new one.
fn id_of(request: &ServiceRequest, by_proxy: bool) -> Option<RequestId> {
    let edge = request.app_data::<web::Data<WebContext>>()?;
    let given = by_proxy.then(|| only_line(request.headers(), &REQUEST_ID)).flatten();
    let given = given.and_then(|line| RequestId::parse(line.as_bytes()));
    Some(given.unwrap_or_else(|| edge.request_ids.make()))
}

/// A client may make up any method, and a span has one of few.
fn known_method(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    known.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}
