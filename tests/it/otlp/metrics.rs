//! Exported metrics beside those of `/metrics`.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point};
use prost::Message;

use super::a_day;
use super::receiver::{Mood, Receiver, attribute, end};

/// A line of `/metrics` for each number: the name, its labels in order, and the value.
fn as_lines(body: &[u8]) -> BTreeMap<String, f64> {
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    let scopes = request.resource_metrics.into_iter().flat_map(|of| of.scope_metrics);
    let mut lines = BTreeMap::new();
    let mut add = |name: &str, attributes: &[KeyValue], more: &str, value: f64| {
        let mut labels: Vec<_> = attributes
            .iter()
            .map(|label| format!("{}=\"{}\"", label.key, attribute(attributes, &label.key)))
            .collect();
        labels.extend((!more.is_empty()).then(|| format!("le=\"{more}\"")));
        labels.sort();
        lines.insert(format!("{name}{{{}}}", labels.join(",")), value);
    };
    for metric in scopes.flat_map(|of| of.metrics) {
        let name = metric.name;
        let numbers = match metric.data.unwrap() {
            Data::Gauge(gauge) => gauge.data_points,
            Data::Sum(sum) => {
                assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "{name}");
                sum.data_points
            }
            Data::Histogram(histogram) => {
                for point in histogram.data_points {
                    let bounds = point.explicit_bounds.iter().map(f64::to_string);
                    let mut below = 0;
                    for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&point.bucket_counts) {
                        below += count;
                        add(&format!("{name}_bucket"), &point.attributes, &bound, below as f64);
                    }
                    add(&format!("{name}_count"), &point.attributes, "", point.count as f64);
                    add(&format!("{name}_sum"), &point.attributes, "", point.sum.unwrap());
                }
                continue;
            }
            other => panic!("{other:?}"),
        };
        for point in numbers {
            assert!(point.time_unix_nano > point.start_time_unix_nano && point.start_time_unix_nano > 0);
            let value = match point.value.unwrap() {
                number_data_point::Value::AsInt(value) => value as f64,
                number_data_point::Value::AsDouble(value) => value,
            };
            add(&name, &point.attributes, "", value);
        }
    }
    lines
}

/// The same of the text.
pub fn lines_of(text: &str) -> BTreeMap<String, f64> {
    let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let of_line = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.trim_end_matches('}');
        let mut labels: Vec<_> = labels.split(',').filter(|label| !label.is_empty()).collect();
        labels.sort_unstable();
        (format!("{name}{{{}}}", labels.join(",")), value.parse().unwrap())
    };
    samples.map(of_line).collect()
}

/// What changes between the last look at `/metrics` and the end.
fn is_restless(series: &str) -> bool {
    series.contains("route=\"/metrics\"")
        || series.starts_with("gatehouse_connections")
        || series.starts_with("gatehouse_audit_events_total")
        || series.starts_with("gatehouse_otlp_")
}

#[tokio::test]
async fn exported_metrics_are_those_of_the_page() {
    let receiver = Receiver::start(Mood::Accepts);
    let home = receiver.home();
    let running = home.start(&["serve"]).await;
    let client = running.client();
    a_day(&client).await;
    let mut shown = lines_of(&client.get("/metrics").await.text);
    end(running).await;
    let last = receiver.exports("/v1/metrics").pop().expect("an export at the end");
    let mut exported = as_lines(&last.body);
    shown.retain(|series, _| !is_restless(series));
    exported.retain(|series, _| !is_restless(series));
    assert!(shown.len() > 200, "{}", shown.len());
    assert_eq!(exported.keys().collect::<Vec<_>>(), shown.keys().collect::<Vec<_>>());
    for (series, value) in &shown {
        assert!((exported[series] - value).abs() < 1e-9, "{series}: {} {value}", exported[series]);
    }
    assert_eq!(exported["gatehouse_sign_ins_total{outcome=\"signed-in\"}"], 1.0);
}

#[tokio::test]
async fn metrics_are_exported_in_each_interval() {
    let receiver = Receiver::start(Mood::Accepts);
    let mut home = receiver.home();
    home.set("GATEHOUSE__TELEMETRY__INTERVAL", "1s");
    let mut running = home.start(&["serve"]).await;
    running.until("it exported twice", |_| receiver.exports("/v1/metrics").len() >= 2).await;
}
