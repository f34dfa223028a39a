//! Where ended spans wait: bounded, and never waited for.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc::Sender;

#[derive(Debug)]
pub(super) struct SpanQueue(pub Sender<SpanData>);

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        count_lost(u64::from(self.0.try_send(span).is_err()));
    }

    /// The exporter flushes.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

const LOST: &str = "gatehouse_otlp_spans_lost_total";

/// Shows the counter at zero; call it once the recorder is installed.
pub(super) fn register_lost() {
    metrics::counter!(LOST).increment(0);
}

pub(super) fn count_lost(spans: u64) {
    if spans > 0 {
        metrics::counter!(LOST).increment(spans);
    }
}
