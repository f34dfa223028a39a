//! The receiver: one request for each export, and what its answer means.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response};
use secrecy::ExposeSecret;
use tokio::time::Instant;
use url::Url;

use super::OtlpError;
use crate::config::TelemetrySettings;
use crate::https::{self, ClientError};
use crate::outage::DependencyStatus;
use crate::stop::StopSignal;

/// How long an export may take, as in OpenTelemetry's SDKs.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two attempts: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
/// Longer than any receiver's answer.
const LONGEST_ANSWER: usize = 64 * 1024;

#[derive(Clone)]
pub(super) struct OtlpReceiver(Arc<Inner>);

struct Inner {
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

/// An export that was not accepted.
struct ExportError {
    reason: String,
    /// It may be accepted later; not before this time has passed, if the receiver says so.
    again: Option<Duration>,
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
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
        Ok(Self(Arc::new(Inner { client, headers, traces, metrics })))
    }

    /// Shows the counters of errors at zero; call it once the recorder is installed.
    pub fn register_errors(&self) {
        self.0.traces.status.register_errors();
        self.0.metrics.status.register_errors();
    }

    /// Sends `count` spans, again and again for as long as `patience` where that may help; returns how many are lost.
    pub async fn spans(&self, body: Vec<u8>, count: u64, patience: Duration, stop: &mut StopSignal) -> u64 {
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let error = match self.post(&self.0.traces, body.clone()).await {
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
        let Ok(answer) = self.post(&self.0.metrics, body).await else { return };
        let said = ExportMetricsServiceResponse::decode(answer.as_slice()).unwrap_or_default();
        if let Some(partly) = said.partial_success.filter(|partly| partly.rejected_data_points > 0) {
            tracing::debug!(rejected = partly.rejected_data_points, "the OTLP receiver rejected metrics");
        }
    }

    /// One attempt; the body of a success.
    async fn post(&self, signal: &Signal, body: Vec<u8>) -> Result<Vec<u8>, ExportError> {
        let inner = &*self.0;
        let request = inner.client.post(signal.url.clone()).headers(inner.headers.clone()).body(body);
        let lost = |reason: &str| ExportError { reason: reason.to_owned(), again: Some(Duration::ZERO) };
        let whole = async {
            let response = request.send().await.map_err(|wrong| {
                lost(if wrong.is_connect() { "cannot be reached" } else { "closed the connection" })
            })?;
            judge(&response)?;
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
fn judge(response: &Response) -> Result<(), ExportError> {
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
