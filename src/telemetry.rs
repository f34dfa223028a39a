//! How measurements are exported: what each says, the buckets of each histogram, and which counters are there before
//! their first event. `docs/metrics.md` lists the metrics and their labels.

use metrics::Unit;
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

/// Many counters are asked for by name at each event, so that they are described here and not there.
const COUNTERS: [(&str, &str); 23] = [
    ("gatehouse_audit_events_total", "Security events, by what became of their rows"),
    ("gatehouse_captchas_total", "Challenges and answers to them, by kind and outcome"),
    ("gatehouse_config_reloads_total", "Reloads of the settings, by outcome"),
    ("gatehouse_connections_closed_total", "Connections that were closed, by why"),
    (
        "gatehouse_database_errors_total",
        "Statements that the database did not answer, for a reason of its own",
    ),
    (
        "gatehouse_denied_requests_total",
        "Requests that were refused because [access] deny names their network or its origin",
    ),
    ("gatehouse_disabled_passwords_total", "Passwords disabled after wrong ones in a row, and what followed"),
    ("gatehouse_http_requests_total", "Requests that were answered, by route and class of status"),
    ("gatehouse_log_lines_lost_total", "Log lines that standard error did not accept"),
    ("gatehouse_otlp_errors_total", "Exports that the OTLP receiver did not accept, each attempt"),
    ("gatehouse_otlp_spans_lost_total", "Spans that did not reach the OTLP receiver"),
    ("gatehouse_password_hashes_total", "Password hashes that were computed"),
    ("gatehouse_second_steps_total", "Second steps of sign-ins, by outcome"),
    ("gatehouse_sign_ins_total", "Sign-ins, by outcome"),
    (
        "gatehouse_sms_brakes_total",
        "Brakes that were put on prefixes of numbers, by whose messages they hold",
    ),
    (
        "gatehouse_sms_gateway_errors_total",
        "Messages that the SMS gateway did not accept, or may not have accepted",
    ),
    ("gatehouse_sms_guesses_total", "Codes by SMS that were entered, by outcome"),
    ("gatehouse_mail_guesses_total", "Codes by e-mail that were entered, by outcome"),
    ("gatehouse_mail_deliveries_total", "Mails handed to the mail server, by what it answered"),
    ("gatehouse_mail_messages_total", "Requests for a code by e-mail, by outcome"),
    ("gatehouse_sms_messages_total", "Requests for a code by SMS, by outcome"),
    ("gatehouse_store_errors_total", "Decisions that the store of the limits did not make"),
    ("gatehouse_webhook_attempts_total", "Attempts to deliver a webhook, by result"),
];

const GAUGES: [(&str, &str); 13] = [
    ("gatehouse_breached_file_up", "0 if the list of lost passwords that is named cannot be read"),
    ("gatehouse_connections", "Open connections"),
    ("gatehouse_database_up", "1 if the database answered and accepted writes when last checked"),
    (
        "gatehouse_mail_queue_depth",
        "Mails that wait for the mail server, without notices that are held back by their limit",
    ),
    ("gatehouse_mail_server_up", "0 while the mail server takes no mail; 1 without one"),
    ("gatehouse_origin_files_up", "0 if a file that [origins] names cannot be read"),
    ("gatehouse_otlp_up", "1 if the OTLP receiver accepted the last export of the signal"),
    ("gatehouse_password_queue_depth", "Passwords that wait to be hashed, by lane"),
    (
        "gatehouse_sign_in_deadline_seconds",
        "Seconds until an answer to a compared password leaves, while there are imported passwords; 0 is at once",
    ),
    (
        "gatehouse_sms_gateway_up",
        "0 while the SMS gateway refuses everybody, and after three messages in a row without a known outcome",
    ),
    (
        "gatehouse_sms_pages_spent_ratio",
        "The part of what our own pages may send of sms-total that is spent, 0 to 1",
    ),
    ("gatehouse_sms_total_spent_ratio", "The part of sms-total that is spent, 0 to 1"),
    ("gatehouse_store_up", "1 if Redis answers; 1 with the store in process"),
];

const HISTOGRAMS: [(&str, &str); 4] = [
    (REQUEST_SECONDS, "Seconds from the head of a request to the head of its answer, by route"),
    (QUEUE_SECONDS, "Seconds that a password waited to be hashed, by lane"),
    (SIGN_IN_SECONDS, "Seconds from the arrival of a password to the outcome of its comparison"),
    (GATEWAY_SECONDS, "Seconds that the SMS gateway took for a message"),
];

/// Says what each metric is. Call it once the recorder is installed.
pub fn describe() {
    COUNTERS.into_iter().for_each(|(name, says)| metrics::describe_counter!(name, says));
    GAUGES.into_iter().for_each(|(name, says)| metrics::describe_gauge!(name, says));
    HISTOGRAMS.into_iter().for_each(|(name, says)| metrics::describe_histogram!(name, Unit::Seconds, says));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A server shows some of them only once something has happened.
    #[test]
    fn every_metric_that_is_documented_is_described() {
        let rows = include_str!("../docs/metrics.md").lines();
        let mut documented: Vec<_> =
            rows.filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0)).collect();
        // The middleware describes its own, in applications of others.
        documented.retain(|name| *name != "gatehouse_rate_limit_refusals_total");
        let mut described: Vec<_> =
            COUNTERS.into_iter().chain(GAUGES).chain(HISTOGRAMS).map(|(name, _)| name).collect();
        documented.sort_unstable();
        described.sort_unstable();
        assert_eq!(described, documented);
    }
}
