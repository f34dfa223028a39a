//! Traces and metrics for an OpenTelemetry receiver: OTLP over HTTP, with protobuf. What cannot be delivered is
//! dropped and counted; nothing here is waited for, except at shutdown for a short time.

mod figures;
mod queue;
mod receiver;
#[cfg(test)]
mod tests;

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData};
use prost::Message;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::{Layer, Registry};

use crate::clock::{Clock, Micros};
use crate::config::{SecretError, TelemetrySettings};
use crate::spans;
use crate::stop::{StopSender, StopSignal};
use queue::SpanQueue;
use receiver::OtlpReceiver;

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

/// Why nothing can be exported.
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
    receiver: OtlpReceiver,
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
        let receiver = OtlpReceiver::open(endpoint, settings)?;
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
        queue::register_lost();
        let stopper = StopSender::new();
        let mut tasks = JoinSet::new();
        let figures = MetricsExport {
            receiver: receiver.clone(),
            resource: resource.attributes.0.clone(),
            metrics,
            clock,
            opened,
        };
        tasks.spawn(figures.run(interval, stopper.stop()));
        tasks.spawn(export_spans(receiver, resource, spans, stopper.stop()));
        RunningOtlp { stopper, tasks, _provider: provider }
    }
}

/// An exporter at work.
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
    receiver: OtlpReceiver,
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
        queue::count_lost(receiver.spans(body, count, PATIENCE, &mut stop.clone()).await);
    }
}

/// Sends what `/metrics` shows.
struct MetricsExport {
    receiver: OtlpReceiver,
    resource: Vec<opentelemetry_proto::tonic::common::v1::KeyValue>,
    metrics: PrometheusHandle,
    clock: Clock,
    opened: Micros,
}

impl MetricsExport {
    /// The last time when it is stopped. A failed export is not repeated: the next one has the same sums and more.
    async fn run(self, interval: Duration, mut stop: StopSignal) {
        let mut goes_on = true;
        while goes_on {
            goes_on = stop.pause(interval).await;
            let (start, now) = (self.opened, self.clock.now());
            let metrics = figures::of_text(&self.metrics.render(), nanos(start), nanos(now));
            let resource_metrics = vec![figures::of_resource(self.resource.clone(), metrics)];
            self.receiver.metrics(ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()).await;
        }
    }
}

fn nanos(at: Micros) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1000)
}
