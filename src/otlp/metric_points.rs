//! What `/metrics` shows, as OTLP: the same names, labels and values, so that one dashboard serves both.
//!
//! The recorder keeps its counts to itself and renders them as text, which is read here.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The span of time of every point, in nanoseconds since the epoch.
#[derive(Clone, Copy)]
struct Times {
    start: u64,
    now: u64,
}

/// A line of the text: a name, its labels, and a value.
struct Sample<'t> {
    name: &'t str,
    labels: Vec<(&'t str, String)>,
    value: &'t str,
}

/// Under its labels, without `le`: the upper bounds with their cumulative counts, the sum and the count.
#[derive(Default)]
struct Buckets {
    below: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

pub(super) fn of_resource(attributes: Vec<KeyValue>, metrics: Vec<Metric>) -> ResourceMetrics {
    let scope = InstrumentationScope { name: "gatehouse".to_owned(), ..InstrumentationScope::default() };
    ResourceMetrics {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }],
        ..ResourceMetrics::default()
    }
}

/// The metrics in a text of Prometheus' format, as our own recorder writes it: each family after its `# HELP`, if it is
/// described, and its `# TYPE`.
pub(super) fn of_text(text: &str, start: u64, now: u64) -> Vec<Metric> {
    let times = Times { start, now };
    let mut metrics = Vec::new();
    let mut lines = text.lines().peekable();
    let mut described = None;
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            described = help.split_once(' ');
            continue;
        }
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let mut samples = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            samples.extend(Sample::parse(line));
        }
        let data = match kind {
            "counter" => sum(samples, times),
            "gauge" => metric::Data::Gauge(Gauge { data_points: numbers(samples, times, real) }),
            "histogram" => histogram(name, samples, times),
            _ => continue,
        };
        let says = described.filter(|(of, _)| *of == name).map_or("", |(_, says)| says);
        let unit = if name.ends_with("_seconds") { "s" } else { "" };
        metrics.push(Metric {
            name: name.to_owned(),
            description: says.to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        });
    }
    metrics
}

impl<'t> Sample<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        let Some(mut rest) = rest.strip_prefix('{') else {
            return Some(Self { name, labels: Vec::new(), value: rest.trim() });
        };
        let mut labels = Vec::new();
        loop {
            if let Some(value) = rest.strip_prefix('}') {
                return Some(Self { name, labels, value: value.trim() });
            }
            let (key, quoted) = rest.split_once("=\"")?;
            let (value, after) = unquote(quoted)?;
            labels.push((key, value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
    }
}

/// The value up to the closing quote, and the rest.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

fn sum(samples: Vec<Sample<'_>>, times: Times) -> metric::Data {
    let data_points = numbers(samples, times, whole_if_it_is);
    metric::Data::Sum(Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true })
}

/// The text of a gauge is whole now and then, but receivers refuse a series that changes its type.
fn real(text: &str) -> Option<number_data_point::Value> {
    text.parse().ok().map(number_data_point::Value::AsDouble)
}

fn whole_if_it_is(text: &str) -> Option<number_data_point::Value> {
    text.parse().ok().map(number_data_point::Value::AsInt).or_else(|| real(text))
}

fn numbers(
    samples: Vec<Sample<'_>>,
    times: Times,
    read: fn(&str) -> Option<number_data_point::Value>,
) -> Vec<NumberDataPoint> {
    let point = |sample: Sample<'_>| {
        Some(NumberDataPoint {
            attributes: attributes(sample.labels),
            start_time_unix_nano: times.start,
            time_unix_nano: times.now,
            value: Some(read(sample.value)?),
            ..NumberDataPoint::default()
        })
    };
    samples.into_iter().filter_map(point).collect()
}

fn histogram(name: &str, samples: Vec<Sample<'_>>, times: Times) -> metric::Data {
    let mut series = BTreeMap::<Vec<(&str, String)>, Buckets>::new();
    for mut sample in samples {
        let bound = sample.labels.iter().position(|(key, _)| *key == "le");
        let bound = bound.map(|at| sample.labels.remove(at).1);
        let buckets = series.entry(sample.labels).or_default();
        match (sample.name.strip_prefix(name), bound.and_then(|bound| bound.parse().ok())) {
            (Some("_bucket"), Some(bound)) => buckets.below.push((bound, sample.value.parse().unwrap_or(0))),
            (Some("_sum"), None) => buckets.sum = sample.value.parse().unwrap_or(0.0),
            (Some("_count"), None) => buckets.count = sample.value.parse().unwrap_or(0),
            _ => {}
        }
    }
    let data_points = series.into_iter().map(|(labels, buckets)| buckets.point(labels, times)).collect();
    metric::Data::Histogram(Histogram { data_points, aggregation_temporality: CUMULATIVE })
}

impl Buckets {
    /// OTLP counts each bucket for itself, and its last one has no bound.
    fn point(self, labels: Vec<(&str, String)>, times: Times) -> HistogramDataPoint {
        let (mut counts, mut before) = (Vec::new(), 0);
        for (_, below) in &self.below {
            counts.push(below.saturating_sub(before));
            before = *below;
        }
        let bounds = self.below.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite());
        HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: times.start,
            time_unix_nano: times.now,
            count: self.count,
            sum: Some(self.sum),
            explicit_bounds: bounds.collect(),
            bucket_counts: counts,
            ..HistogramDataPoint::default()
        }
    }
}

fn attributes(labels: Vec<(&str, String)>) -> Vec<KeyValue> {
    let text = |value| Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    let attribute = |(key, value): (&str, String)| KeyValue {
        key: key.to_owned(),
        value: text(value),
        ..KeyValue::default()
    };
    labels.into_iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use metrics::Label;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    /// The sum of a point's bucket counts is its count, or the receiver rejects it.
    #[test]
    fn counters_gauges_and_histograms_keep_their_values() {
        let recorder = PrometheusBuilder::new().set_buckets(&[0.5, 1.0]).unwrap().build_recorder();
        let odd = "a \"b\" \\ {c}, d\ne";
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("events_total", vec![Label::new("kind", odd), Label::new("x", "")])
                .increment(7);
            metrics::counter!("bare_total").increment(u64::from(u32::MAX) + 1);
            metrics::gauge!("share").set(0.25);
            metrics::gauge!("up").set(1.0);
            for value in [0.1, 0.2, 0.7, 9.0] {
                metrics::histogram!("seconds", "route" => "/a").record(value);
            }
            metrics::histogram!("seconds", "route" => "/b").record(1.0);
        });
        let metrics = of_text(&recorder.handle().render(), 1, 2);
        let data = |name: &str| {
            metrics.iter().find(|metric| metric.name == name).and_then(|metric| metric.data.clone()).unwrap()
        };
        let metric::Data::Sum(events) = data("events_total") else { panic!("a sum") };
        assert!(events.is_monotonic && events.aggregation_temporality == CUMULATIVE);
        let point = &events.data_points[0];
        assert_eq!(point.attributes, attributes(vec![("kind", odd.to_owned()), ("x", String::new())]));
        assert_eq!(point.value, Some(number_data_point::Value::AsInt(7)));
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));
        let metric::Data::Sum(bare) = data("bare_total") else { panic!("a sum") };
        assert_eq!(bare.data_points[0].value, Some(number_data_point::Value::AsInt(1 << 32)));
        let metric::Data::Gauge(share) = data("share") else { panic!("a gauge") };
        assert_eq!(share.data_points[0].value, Some(number_data_point::Value::AsDouble(0.25)));
        let metric::Data::Gauge(up) = data("up") else { panic!("a gauge") };
        assert_eq!(up.data_points[0].value, Some(number_data_point::Value::AsDouble(1.0)));
        let metric::Data::Histogram(seconds) = data("seconds") else { panic!("a histogram") };
        let [a, b] = seconds.data_points.as_slice() else { panic!("two series") };
        assert_eq!(
            (a.explicit_bounds.as_slice(), a.bucket_counts.as_slice()),
            (&[0.5, 1.0][..], &[2, 1, 1][..])
        );
        assert_eq!((a.count, a.sum), (4, Some(10.0)));
        assert_eq!(b.bucket_counts, [0, 1, 0]);
        assert_eq!(metrics.len(), 5);
    }

    #[test]
    fn descriptions_and_units_of_names_are_told() {
        let recorder = PrometheusBuilder::new().set_buckets(&[0.5]).unwrap().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            metrics::describe_counter!("events_total", "What happened");
            metrics::counter!("events_total").increment(1);
            metrics::histogram!("wait_seconds").record(1.0);
        });
        let metrics = of_text(&recorder.handle().render(), 1, 2);
        let told = metrics.iter().map(|it| (it.name.as_str(), it.description.as_str(), it.unit.as_str()));
        let mut told: Vec<_> = told.collect();
        told.sort_unstable();
        assert_eq!(told, [("events_total", "What happened", ""), ("wait_seconds", "", "s")]);
    }

    #[test]
    fn a_line_that_is_cut_off_is_left_out() {
        for line in ["x", "x{", "x{a", "x{a=\"", "x{a=\"b", "x{a=\"b\\", "x{a=\"b\""] {
            assert!(Sample::parse(line).is_none(), "{line}");
        }
        assert!(of_text("# TYPE x counter\nx nothing\n", 0, 0)[0].data.is_some());
    }
}
