//! One request of a connection at a time, however many its client sends in advance.
//!
//! actix decodes every request in what it has read, up to 128 KiB of them, handles them while the answers wait for
//! the client to read, and answers each as if it were the last of them (a HEAD with a body). Here it reads no
//! further than the end of a head or of a body, and nothing while a request is being answered: the rest stays with the
//! system, which stops the client.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::{io, mem};

use actix_web::Error;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use actix_web::middleware::Next;
use actix_web::rt::net::TcpStream;
use actix_web::web::Bytes;
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much actix reads at once, at most.
const PORTION: usize = 4 * 1024;
/// How much of an answer actix copies at once.
const PART: usize = 32 * 1024;

thread_local! {
    /// What was read, on its way to actix.
    static READ: RefCell<[u8; PORTION]> = const { RefCell::new([0; PORTION]) };
}

/// What one connection is doing. Everything here runs on the worker that serves it.
#[derive(Default)]
pub struct Pipeline {
    /// A request is being handled, or its answer is not written yet.
    answering: Cell<bool>,
    /// Its handler has read all of its body that has come.
    wants_body: Cell<bool>,
    /// What actix has got beyond its head.
    ahead: Cell<usize>,
    /// What actix has not got of its body; none if nobody knows, because it comes in chunks.
    body_left: Cell<Option<usize>>,
    /// The client does not read: actix has something that the system does not take.
    blocked: Cell<bool>,
    /// Waits until it may read.
    reader: Cell<Option<Waker>>,
}

impl Pipeline {
    /// How much may be read now.
    fn room(&self) -> usize {
        match self.answering.get() {
            _ if self.blocked.get() => 0,
            true if !self.wants_body.get() => 0,
            true => self.body_left.get().map_or(PORTION, |left| left.min(PORTION)),
            false => PORTION,
        }
    }

    /// A body follows the head that was read last.
    pub fn body_follows(&self, headers: &HeaderMap) {
        let length = headers.get(CONTENT_LENGTH).filter(|_| !headers.contains_key(TRANSFER_ENCODING));
        let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        self.body_left.set(length.map(|length| length.saturating_sub(self.ahead.get())));
    }

    pub fn body_is_wanted(&self, wanted: bool) {
        self.wants_body.set(wanted);
        if wanted {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// For `wrap(from_fn(one_at_a_time))`, around everything else.
pub async fn one_at_a_time<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<PartedBody>, Error> {
    let answering = Answering::begin(of(&request));
    let response = next.call(request).await?;
    Ok(response.map_body(|_, body| PartedBody {
        body: body.boxed(),
        rest: Bytes::new(),
        _answering: answering,
    }))
}

/// The pipeline of the request's connection. A request that came by no connection of ours, in a test, has its own.
pub fn of(request: &ServiceRequest) -> Rc<Pipeline> {
    request.conn_data::<Rc<Pipeline>>().cloned().unwrap_or_default()
}

/// From the start of a request until actix has all of its answer.
struct Answering(Rc<Pipeline>);

impl Answering {
    fn begin(pipeline: Rc<Pipeline>) -> Self {
        pipeline.answering.set(true);
        Self(pipeline)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.set(false);
        self.0.wants_body.set(false);
        self.0.body_left.set(None);
        self.0.wake();
    }
}

/// The body of an answer, which actix copies part by part.
pub struct PartedBody {
    body: BoxBody,
    rest: Bytes,
    _answering: Answering,
}

impl MessageBody for PartedBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_next(context)) {
                Some(Ok(bytes)) => this.rest = bytes,
                end => return Poll::Ready(end),
            }
        }
        let part = this.rest.split_to(this.rest.len().min(PART));
        Poll::Ready(Some(Ok(part)))
    }
}

/// The stream that actix serves.
pub struct PacedStream {
    stream: TcpStream,
    pipeline: Rc<Pipeline>,
    /// What was read beyond the end of a head.
    rest: Vec<u8>,
    /// Nothing but a line's end has come since the last one.
    line_is_empty: bool,
    /// actix has got a portion since it was woken, and decodes it before it gets more.
    has_portion: bool,
}

impl PacedStream {
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, pipeline: Rc::default(), rest: Vec::new(), line_is_empty: false, has_portion: false }
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn pipeline(&self) -> Rc<Pipeline> {
        Rc::clone(&self.pipeline)
    }

    /// Whether more has come, without taking it; false at the end.
    fn poll_more(&self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Ok(true));
        }
        let mut next = [0];
        self.stream.poll_peek(context, &mut ReadBuf::new(&mut next)).map_ok(|read| read > 0)
    }

    /// How much of a portion actix gets: up to the first empty line, which ends a head, if there is another one, or up to the
    /// end of a body. What follows the only one is no request yet: a body, or a part of the next head.
    fn cut(&mut self, portion: &[u8]) -> usize {
        if let Some(left) = self.pipeline.body_left.get() {
            self.pipeline.body_left.set(Some(left - portion.len()));
            self.line_is_empty = false;
            return portion.len();
        }
        let is_blank = |line: &[u8]| line.iter().all(|letter| *letter == b'\r');
        let (mut begin, mut head) = (0, None);
        while let Some(length) = memchr(b'\n', &portion[begin..]) {
            let line = &portion[begin..begin + length];
            begin += length + 1;
            self.line_is_empty = match (self.line_is_empty && is_blank(line), head) {
                (false, _) => true,
                (true, None) => {
                    head = Some(begin);
                    false
                }
                (true, Some(head)) => {
                    self.line_is_empty = false;
                    self.pipeline.ahead.set(0);
                    return head;
                }
            };
        }
        self.line_is_empty &= is_blank(&portion[begin..]);
        self.pipeline.ahead.set(head.map_or(0, |head| portion.len() - head));
        portion.len()
    }
}

impl AsyncRead for PacedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let has_portion = mem::take(&mut this.has_portion);
        let room = this.pipeline.room().min(buffer.remaining());
        if has_portion || room == 0 {
            // The end is told at once, so that nobody goes on for a client that has hung up, unless it asked for more before.
            if !ready!(this.poll_more(context))? {
                return Poll::Ready(Ok(()));
            }
            match has_portion {
                true => context.waker().wake_by_ref(),
                false => this.pipeline.reader.set(Some(context.waker().clone())),
            }
            return Poll::Pending;
        }
        let filled = buffer.filled().len();
        if this.rest.is_empty() {
            // Zeroing what actix has room for would cost as much as everything else here.
            ready!(READ.with_borrow_mut(|read| {
                let mut portion = ReadBuf::new(&mut read[..room]);
                ready!(Pin::new(&mut this.stream).poll_read(context, &mut portion))?;
                let end = this.cut(portion.filled());
                let (portion, rest) = portion.filled().split_at(end);
                buffer.put_slice(portion);
                this.rest.extend_from_slice(rest);
                Poll::Ready(io::Result::Ok(()))
            }))?;
        } else {
            let mut rest = mem::take(&mut this.rest);
            let end = this.cut(&rest[..rest.len().min(room)]);
            buffer.put_slice(&rest[..end]);
            rest.drain(..end);
            this.rest = rest;
        }
        this.has_portion = buffer.filled().len() > filled;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PacedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        if written.is_pending() {
            this.pipeline.blocked.set(true);
        }
        written
    }

    /// actix calls this when the system has taken everything.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.pipeline.blocked.replace(false) {
            this.pipeline.wake();
        }
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
