//! The time limit for the whole body of a request. Sending a byte now and then does not extend it.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, EitherBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::http::ConnectionType;
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use actix_web::{Error, HttpMessage, HttpRequest};
use futures_core::Stream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::connection::Connection;
use super::{ANSWER_RATE, ANSWER_TIME, LAST_ANSWER, Open};
use crate::web::kit::error_page;
use crate::web::kit::problem::Problem;

/// For a form of 16 KiB: 13 kbit/s, less than any phone with a network connection.
const BODY_TIME: Duration = Duration::from_secs(10);
/// For a document of 256 KiB, at 70 kbit/s. Only for authorised senders.
const DOCUMENT_TIME: Duration = Duration::from_secs(30);

/// For an answer that is written while it is read, which only administrators get: the export of events, up to
/// some 40 MB.
const STREAM_TIME: Duration = Duration::from_secs(10 * 60);

/// When the body of a request must be complete.
pub struct BodyTime {
    until: Cell<Instant>,
    is_over: Cell<bool>,
    connection: Option<Arc<Connection>>,
}

impl BodyTime {
    fn begin(connection: Option<Arc<Connection>>) -> Rc<Self> {
        let until = Cell::new(Instant::now() + BODY_TIME);
        if let Some(connection) = &connection {
            connection.stay(BODY_TIME + LAST_ANSWER);
        }
        Rc::new(Self { until, is_over: Cell::new(false), connection })
    }

    /// The handler reads a document, and the sender is authorised.
    pub fn allow_document(request: &HttpRequest) {
        if let Some(time) = request.extensions().get::<Rc<Self>>() {
            time.allow(DOCUMENT_TIME);
        }
    }

    fn allow(&self, span: Duration) {
        self.until.set(Instant::now() + span);
        if let Some(connection) = &self.connection {
            connection.stay(span + LAST_ANSWER);
        }
    }

    fn completed(&self) {
        if let Some(connection) = &self.connection {
            connection.completed();
        }
    }
}

/// For `wrap(from_fn(within_time))`. If a body is late, the answer is 408, whatever the handler returned, and
/// the connection is closed. This also reports the progress of the request to its connection.
pub async fn within_time<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let connection = request.conn_data::<Open>().map(|open| Arc::clone(open));
    let time = match request.take_payload() {
        Payload::None => {
            if let Some(connection) = &connection {
                connection.completed();
            }
            None
        }
        payload => {
            let time = BodyTime::begin(connection.clone());
            request.extensions_mut().insert(Rc::clone(&time));
            let payload = Box::pin(TimedBody { payload, time: Rc::clone(&time), timer: None });
            request.set_payload(Payload::Stream { payload });
            Some(time)
        }
    };
    let response = next.call(request).await?;
    if time.is_some_and(|time| time.is_over.get()) {
        return Ok(too_slow(response, connection.as_deref()).map_into_right_body());
    }
    if let Some(connection) = connection {
        connection.answered(ANSWER_TIME + time_for(response.response().body().size()));
    }
    Ok(response.map_into_left_body())
}

fn too_slow<B>(response: ServiceResponse<B>, connection: Option<&Connection>) -> ServiceResponse {
    if let Some(connection) = connection {
        connection.stay(LAST_ANSWER);
    }
    let request = response.request().clone();
    let mut answer = error_page::answer(&request, &Problem::RequestTimeout);
    answer.head_mut().set_connection_type(ConnectionType::Close);
    ServiceResponse::new(request, answer)
}

fn time_for(size: BodySize) -> Duration {
    match size {
        BodySize::Sized(bytes) => Duration::from_secs(bytes / ANSWER_RATE),
        BodySize::None => Duration::ZERO,
        BodySize::Stream => STREAM_TIME,
    }
}

struct TimedBody {
    payload: Payload,
    time: Rc<BodyTime>,
    /// Created only if there is something to wait for: most bodies arrive with their heads.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stream for TimedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.time.is_over.get() {
            return Poll::Ready(None);
        }
        let read = Pin::new(&mut this.payload).poll_next(context);
        match &read {
            Poll::Ready(Some(_)) => return read,
            Poll::Ready(None) => {
                this.time.completed();
                return read;
            }
            Poll::Pending => {}
        }
        let until = this.time.until.get();
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        this.time.is_over.set(true);
        Poll::Ready(Some(Err(PayloadError::Io(io::ErrorKind::TimedOut.into()))))
    }
}
