//! How measurements are exported: the buckets of each histogram, and which counters are there before their first
//! event. `docs/metrics.md` lists the metrics.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

/// Seconds from the head of a request to the head of its answer, by route.
pub const REQUEST_SECONDS: &str = "gatehouse_http_request_seconds";
/// Seconds that a password waited for a worker to hash it, by lane.
pub const QUEUE_SECONDS: &str = "gatehouse_password_queue_wait_seconds";
/// Seconds from the arrival of a password to the outcome of its comparison.
pub const SIGN_IN_SECONDS: &str = "gatehouse_sign_in_seconds";
/// Seconds that a gateway took to accept or refuse a message.
pub const GATEWAY_SECONDS: &str = "gatehouse_sms_gateway_seconds";

/// A refusal takes less than a millisecond, a page a few, and a password hash 15 to 100. Waiting for one
/// takes up to the seconds within which a known device (1.5) and a stranger (5) should be signed in; 10 is
/// the timeout of a body, and of a gateway.
const REQUEST_BUCKETS: [f64; 12] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0];
/// Gateways usually answer within a second, and are given up after `sms.timeout` (at most 10 seconds).
const GATEWAY_BUCKETS: [f64; 7] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Builds the recorder; run its upkeep once a second.
pub fn builder() -> PrometheusBuilder {
    let seconds = |name: &str| Matcher::Full(name.to_owned());
    PrometheusBuilder::new()
        .set_buckets_for_metric(seconds(REQUEST_SECONDS), &REQUEST_BUCKETS)
        .and_then(|builder| builder.set_buckets_for_metric(seconds(QUEUE_SECONDS), &REQUEST_BUCKETS))
        .and_then(|builder| builder.set_buckets_for_metric(seconds(SIGN_IN_SECONDS), &REQUEST_BUCKETS))
        .and_then(|builder| builder.set_buckets_for_metric(seconds(GATEWAY_SECONDS), &GATEWAY_BUCKETS))
        .expect("there are buckets")
}

/// Registers counters of rare events at zero. Prometheus does not see the first event of a counter that appears with
/// it, so no alert would fire. Call it once the recorder is installed.
pub fn register_rare() {
    for outcome in ["applied", "unchanged", "refused", "down"] {
        metrics::counter!("gatehouse_config_reloads_total", "outcome" => outcome).increment(0);
    }
    for result in ["delivered", "failed", "gone"] {
        metrics::counter!("gatehouse_webhook_attempts_total", "result" => result).increment(0);
    }
    metrics::counter!("gatehouse_denied_requests_total").increment(0);
    metrics::counter!("gatehouse_log_lines_lost_total").increment(0);
}
