//! Spans of a request and of the calls within it, for builds and installations that export traces over OTLP. Without
//! a listener a span costs one atomic read.
//!
//! A span names no person: no address, name, number, query, password or code. Paths are routes.

pub use gatehouse_limiter::spans::{TARGET, begin};
use gatehouse_limiter::spans::{is_traced, within};
use tracing::{Instrument, Span, field, info_span};

/// A request, named after OpenTelemetry's conventions for HTTP. `method` is one that HTTP knows, or `_OTHER`.
pub fn request(method: &str, id: Option<&str>) -> Span {
    if !is_traced() {
        return Span::none();
    }
    info_span!(
        target: TARGET,
        "request",
        "otel.kind" = "server",
        "otel.name" = method,
        "http.request.method" = method,
        "gatehouse.request_id" = id,
        "http.route" = field::Empty,
        "http.response.status_code" = field::Empty,
        "error.type" = field::Empty,
        "otel.status_code" = field::Empty,
    )
}

/// Ends the span of a request when the answer begins, although a task that it leaves behind may go on.
pub fn answered(span: &Span, method: &str, route: Option<&str>, status: u16) {
    if let Some(route) = route {
        span.record("http.route", route);
        // A span that has children has its name for good, as far as `tracing` can tell.
        rename(span, format!("{method} {route}"));
    }
    span.record("http.response.status_code", i64::from(status));
    // A client's error is none of this server's.
    if status >= 500 {
        span.record("error.type", field::display(status));
        span.record("otel.status_code", "ERROR");
    }
    end(span);
}

/// Statements on the database, and waiting for a connection. `file` and `line` say which.
pub fn sql(system: &'static str, file: &'static str, line: u32) -> Span {
    within(|| {
        info_span!(target: TARGET, "sql", "otel.kind" = "client", "db.system.name" = system,
            "code.file.path" = file, "code.line.number" = line)
    })
}

pub fn hash() -> Span {
    within(|| info_span!(target: TARGET, "hash password"))
}

pub fn gateway(name: &'static str) -> Span {
    within(|| {
        info_span!(target: TARGET, "send message", "otel.kind" = "client", "gatehouse.gateway" = name,
            "otel.status_code" = field::Empty)
    })
}

pub fn failed(span: &Span) {
    span.record("otel.status_code", "ERROR");
}

/// `future` on a task of its own, within the span in which it was started.
pub fn keep<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let span = if is_traced() { Span::current() } else { Span::none() };
    future.instrument(span)
}

/// Continues a trace that another server began: `traceparent` of W3C Trace Context. It must be from a proxy that is
/// trusted, since it selects the trace and whether it is recorded. Anything malformed is ignored.
#[cfg(feature = "otlp")]
pub fn continue_trace(span: &Span, traceparent: &str) {
    use opentelemetry::propagation::{Extractor, TextMapPropagator};
    use opentelemetry::trace::TraceContextExt;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    /// Without `tracestate`, which is other vendors' data.
    struct OneHeader<'h>(&'h str);

    impl Extractor for OneHeader<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            (key == "traceparent").then_some(self.0)
        }

        fn keys(&self) -> Vec<&str> {
            vec!["traceparent"]
        }
    }

    let parent = TraceContextPropagator::new()
        .extract_with_context(&opentelemetry::Context::new(), &OneHeader(traceparent));
    if parent.span().span_context().is_valid() {
        // Fails if nobody listens.
        let _ = span.set_parent(parent);
    }
}

#[cfg(feature = "otlp")]
fn rename(span: &Span, name: String) {
    use opentelemetry::trace::TraceContextExt;
    use tracing_opentelemetry::OpenTelemetrySpanExt;
    span.context().span().update_name(name);
}

#[cfg(feature = "otlp")]
fn end(span: &Span) {
    use opentelemetry::trace::TraceContextExt;
    use tracing_opentelemetry::OpenTelemetrySpanExt;
    span.context().span().end();
}

#[cfg(not(feature = "otlp"))]
pub fn continue_trace(_span: &Span, _traceparent: &str) {}

#[cfg(not(feature = "otlp"))]
fn rename(_span: &Span, _name: String) {}

#[cfg(not(feature = "otlp"))]
fn end(_span: &Span) {}
