//! Traces and metrics for an OpenTelemetry receiver: OTLP over HTTP, with protobuf. What cannot be delivered is
//! dropped and counted; nothing here is waited for, except at shutdown for a short time.

mod metric_points;

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, KeyValue};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanProcessor};
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response};
use secrecy::ExposeSecret;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::{Layer, Registry};
use url::Url;

use crate::clock::{Clock, Micros};
use crate::config::{SecretError, TelemetrySettings};
use crate::https::{self, ClientError};
use crate::outage::DependencyStatus;
use crate::spans;
use crate::stop::{StopSender, StopSignal};

#[cfg(test)]
mod tests;

/// Spans that wait for the receiver, some two megabytes; further ones are lost. These are the sizes and times of
/// OpenTelemetry's batch span processor.
const WAITING: usize = 2048;
const BATCH: usize = 512;
const LINGER: Duration = Duration::from_secs(5);
/// How long a batch is tried again that the receiver could not take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the last spans and metrics may take at shutdown.
const LAST_EXPORTS: Duration = Duration::from_secs(2);

/// What the log's subscriber passes spans to.
pub type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    #[error("telemetry.headers.{name}: {reason}")]
    Secret { name: String, reason: SecretError },
    #[error("telemetry.headers.{name}: is not a valid HTTP header")]
    Header { name: String },
    #[error("telemetry.ca_file: {0}")]
    Authorities(String),
    #[error("telemetry: TLS for the receiver cannot be set up: {0}")]
    Tls(String),
}

/// An exporter that has not been started. Spans already wait in its queue.
pub struct Otlp {
    receiver: Arc<OtlpReceiver>,
    resource: ResourceAttributesWithSchema,
    spans: mpsc::Receiver<SpanData>,
    provider: SdkTracerProvider,
    interval: Duration,
    clock: Clock,
    opened: Micros,
}

impl Otlp {
    /// `None` if the settings name no receiver. `instance` is this process's name among its like.
    pub fn open(
        settings: &TelemetrySettings,
        instance: String,
        clock: Clock,
    ) -> Result<Option<(Self, SpanLayer)>, OtlpError> {
        let Some(endpoint) = &settings.otlp_endpoint else { return Ok(None) };
        let receiver = Arc::new(OtlpReceiver::open(endpoint, settings)?);
        // Without the detectors, which read environment variables beside the configuration.
        let resource = Resource::builder_empty()
            .with_attributes([
                KeyValue::new("service.name", settings.service_name.clone()),
                KeyValue::new("service.instance.id", instance),
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            ])
            .build();
        let (queue, spans) = mpsc::channel(WAITING);
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample))))
            .with_span_processor(SpanQueue(queue))
            .with_resource(Resource::builder_empty().build())
            .build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("gatehouse"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(|of| of.is_span() && of.target() == spans::TARGET));
        let exporter = Self {
            receiver,
            resource: (&resource).into(),
            spans,
            provider,
            interval: settings.interval,
            opened: clock.now(),
            clock,
        };
        spans::begin();
        Ok(Some((exporter, Box::new(layer))))
    }

    /// Exports in the background until [`RunningOtlp::finish`]. The recorder is installed by now.
    pub fn start(self, metrics: PrometheusHandle) -> RunningOtlp {
        let Self { receiver, resource, spans, provider, interval, clock, opened } = self;
        receiver.register_errors();
        // Shows the counter at zero.
        metrics::counter!(LOST).increment(0);
        let stopper = StopSender::new();
        let mut tasks = JoinSet::new();
        let (to, about, mut stop) = (Arc::clone(&receiver), resource.attributes.0.clone(), stopper.stop());
        tasks.spawn(async move {
            // The last time when it is stopped. A failed export is not repeated: the next one has the same sums and more.
            let mut goes_on = true;
            while goes_on {
                goes_on = stop.pause(interval).await;
                let points = metric_points::of_text(&metrics.render(), nanos(opened), nanos(clock.now()));
                let resource_metrics = vec![metric_points::of_resource(about.clone(), points)];
                to.metrics(ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()).await;
            }
        });
        tasks.spawn(export_spans(receiver, resource, spans, stopper.stop()));
        RunningOtlp { stopper, tasks, _provider: provider }
    }
}

pub struct RunningOtlp {
    stopper: StopSender,
    tasks: JoinSet<()>,
    _provider: SdkTracerProvider,
}

impl RunningOtlp {
    /// Exports what is left, as far as the receiver takes it in a short time.
    pub async fn finish(self) {
        let Self { stopper, mut tasks, .. } = self;
        drop(stopper);
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_EXPORTS, all).await.is_err() {
            tracing::warn!("the last spans or metrics are lost: the OTLP receiver did not take them in time");
        }
    }
}

/// Sends batches of spans until it is stopped and the queue is empty.
async fn export_spans(
    receiver: Arc<OtlpReceiver>,
    resource: ResourceAttributesWithSchema,
    mut spans: mpsc::Receiver<SpanData>,
    stop: StopSignal,
) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut stopping = stop.clone();
    loop {
        tokio::select! {
            received = spans.recv_many(&mut batch, BATCH) => if received == 0 { return },
            () = stopping.told(), if !spans.is_closed() => {
                spans.close();
                continue;
            }
        }
        let more = async {
            while batch.len() < BATCH {
                let room = BATCH - batch.len();
                if spans.recv_many(&mut batch, room).await == 0 {
                    return;
                }
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(LINGER, more) => {}
            () = stopping.told() => {}
        }
        let spans = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
        let count = spans.len() as u64;
        let resource_spans = group_spans_by_resource_and_scope(spans, &resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        count_lost(receiver.spans(body, count, PATIENCE, &mut stop.clone()).await);
    }
}

fn nanos(at: Micros) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1000)
}

/// Where ended spans wait: bounded, and never waited for.
#[derive(Debug)]
struct SpanQueue(Sender<SpanData>);

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

fn count_lost(spans: u64) {
    if spans > 0 {
        metrics::counter!(LOST).increment(spans);
    }
}

/// How long an export may take, as in OpenTelemetry's SDKs.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two attempts: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
/// Longer than any receiver's answer.
const LONGEST_ANSWER: usize = 64 * 1024;

/// The receiver: one request for each export, and what its answer means.
struct OtlpReceiver {
    client: Client,
    headers: HeaderMap,
    traces: Signal,
    metrics: Signal,
}

/// Traces or metrics. Many receivers take only one of them, so each has a status of its own.
struct Signal {
    url: Url,
    status: DependencyStatus,
}

impl Signal {
    fn of(endpoint: &Url, name: &'static str, what: &'static str) -> Self {
        let mut url = endpoint.clone();
        url.set_path(&format!("{}/v1/{name}", endpoint.path().trim_end_matches('/')));
        let status = DependencyStatus::new(what, "gatehouse_otlp_up", "gatehouse_otlp_errors_total", 1);
        Self { url, status: status.labelled("signal", name) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
struct ExportError {
    reason: String,
    /// It may be accepted later; not before this time has passed, if the receiver says so.
    again: Option<Duration>,
}

impl OtlpReceiver {
    pub fn open(endpoint: &Url, settings: &TelemetrySettings) -> Result<Self, OtlpError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let secret = value.read();
            let secret = secret.map_err(|reason| OtlpError::Secret { name: name.clone(), reason })?;
            let invalid = || OtlpError::Header { name: name.clone() };
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
            let mut value =
                HeaderValue::from_bytes(secret.expose_secret().as_bytes()).map_err(|_| invalid())?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let builder = https::client(settings.ca_file.as_deref()).map_err(|wrong| match wrong {
            ClientError::Authorities(reason) => OtlpError::Authorities(reason),
            ClientError::Tls(reason) => OtlpError::Tls(reason),
        })?;
        let client = builder.build().map_err(|wrong| OtlpError::Tls(wrong.without_url().to_string()))?;
        let traces = Signal::of(endpoint, "traces", "the OTLP receiver for traces");
        let metrics = Signal::of(endpoint, "metrics", "the OTLP receiver for metrics");
        Ok(Self { client, headers, traces, metrics })
    }

    /// Shows the counters of errors at zero; call it once the recorder is installed.
    pub fn register_errors(&self) {
        self.traces.status.register_errors();
        self.metrics.status.register_errors();
    }

    /// Sends `count` spans, again and again for as long as `patience` where that may help; returns how many are lost.
    pub async fn spans(&self, body: Vec<u8>, count: u64, patience: Duration, stop: &mut StopSignal) -> u64 {
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let error = match self.post(&self.traces, body.clone()).await {
                Ok(answer) => {
                    let said = ExportTraceServiceResponse::decode(answer.as_slice()).unwrap_or_default();
                    let rejected = said.partial_success.map_or(0, |partly| partly.rejected_spans);
                    return u64::try_from(rejected).unwrap_or(0).min(count);
                }
                Err(error) => error,
            };
            let Some(wait) = error.again.map(|wait| wait.max(pause)) else { return count };
            if begun.elapsed().saturating_add(wait) > patience || !stop.pause(wait).await {
                return count;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub async fn metrics(&self, body: Vec<u8>) {
        let Ok(answer) = self.post(&self.metrics, body).await else { return };
        let said = ExportMetricsServiceResponse::decode(answer.as_slice()).unwrap_or_default();
        if let Some(partly) = said.partial_success.filter(|partly| partly.rejected_data_points > 0) {
            tracing::debug!(rejected = partly.rejected_data_points, "the OTLP receiver rejected metrics");
        }
    }

    async fn post(&self, signal: &Signal, body: Vec<u8>) -> Result<Vec<u8>, ExportError> {
        let request = self.client.post(signal.url.clone()).headers(self.headers.clone()).body(body);
        let lost = |reason: &str| ExportError { reason: reason.to_owned(), again: Some(Duration::ZERO) };
        let whole = async {
            let response = request.send().await.map_err(|wrong| {
                lost(if wrong.is_connect() { "cannot be reached" } else { "closed the connection" })
            })?;
            evaluate(&response)?;
            Ok(read(response).await)
        };
        // Tests cannot advance the clock of another machine, so this uses the runtime's timer.
        let answer = match tokio::time::timeout(TIMEOUT, whole).await {
            Ok(answer) => answer,
            Err(_) => Err(lost("did not answer in time")),
        };
        match &answer {
            Ok(_) => signal.status.answered(),
            Err(error) => signal.status.failed(error),
        }
        answer
    }
}

/// The statuses after which an export may be repeated are those of the OTLP specification.
fn evaluate(response: &Response) -> Result<(), ExportError> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let again = matches!(status.as_u16(), 429 | 502 | 503 | 504)
        .then(|| asked.map_or(Duration::ZERO, Duration::from_secs));
    Err(ExportError { reason: format!("answered {}", status.as_u16()), again })
}

/// The body as far as it is read; what a receiver says about an export that it has accepted matters little.
async fn read(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        if body.len() + chunk.len() > LONGEST_ANSWER {
            return Vec::new();
        }
        body.extend_from_slice(&chunk);
    }
    body
}
