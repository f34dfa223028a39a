//! What is sent again, what is lost, and that nothing waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use opentelemetry::trace::{Span, Tracer};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::*;

const COUNT: u64 = 7;

/// A receiver that takes no metrics, and answers so to traces, in turn; the last answer for good.
async fn receiver(answers: Vec<ResponseTemplate>) -> (MockServer, OtlpReceiver) {
    let server = MockServer::start().await;
    let next = Arc::new(AtomicUsize::new(0));
    let answer = move |_: &Request| {
        let turn = next.fetch_add(1, Ordering::SeqCst);
        answers[turn.min(answers.len() - 1)].clone()
    };
    Mock::given(method("POST"))
        .and(path("/base/v1/metrics"))
        .respond_with(ResponseTemplate::new(404))
        .mount(&server)
        .await;
    Mock::given(method("POST")).and(path("/base/v1/traces")).respond_with(answer).mount(&server).await;
    let endpoint = format!("{}/base/", server.uri()).parse().unwrap();
    let receiver = OtlpReceiver::open(&endpoint, &TelemetrySettings::default()).unwrap();
    (server, receiver)
}

async fn lost(receiver: &OtlpReceiver) -> u64 {
    let stopper = StopSender::new();
    receiver.spans(vec![1, 2, 3], COUNT, PATIENCE, &mut stopper.stop()).await
}

#[tokio::test]
async fn a_batch_that_was_refused_for_a_while_is_sent_again() {
    let (server, receiver) = receiver(vec![ResponseTemplate::new(503), ResponseTemplate::new(200)]).await;
    assert_eq!(lost(&receiver).await, 0);
    let requests = server.received_requests().await.unwrap();
    let bodies: Vec<_> = requests.iter().map(|request| request.body.clone()).collect();
    assert_eq!(bodies, [[1, 2, 3], [1, 2, 3]]);
}

/// The receiver is not asked again before the time that it names, and so not at all if that is too late.
#[tokio::test]
async fn a_receiver_that_asks_for_more_patience_than_there_is_is_not_asked_again() {
    let patience = Duration::from_secs(30);
    for seconds in ["31".to_owned(), u64::MAX.to_string()] {
        let busy = ResponseTemplate::new(503).insert_header("retry-after", seconds.as_str());
        let (server, receiver) = receiver(vec![busy, ResponseTemplate::new(200)]).await;
        let stopper = StopSender::new();
        assert_eq!(receiver.spans(Vec::new(), COUNT, patience, &mut stopper.stop()).await, COUNT);
        assert_eq!(server.received_requests().await.unwrap().len(), 1, "{seconds}");
    }
}

/// Otherwise each export of one signal would tell the opposite of the other's.
#[tokio::test]
async fn each_signal_has_a_status_of_its_own() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let (_server, receiver) = receiver(vec![ResponseTemplate::new(200)]).await;
    receiver.register_errors();
    let show = || recorder.handle().render();
    let first = show();
    assert!(first.contains("gatehouse_otlp_errors_total{signal=\"traces\"} 0"), "{first}");
    assert!(first.contains("gatehouse_otlp_errors_total{signal=\"metrics\"} 0"), "{first}");
    assert!(!first.contains("gatehouse_otlp_up"), "{first}");
    for turn in 1..=3 {
        receiver.metrics(Vec::new()).await;
        assert_eq!(lost(&receiver).await, 0);
        let shown = show();
        for line in [
            "gatehouse_otlp_up{signal=\"traces\"} 1",
            "gatehouse_otlp_up{signal=\"metrics\"} 0",
            "gatehouse_otlp_errors_total{signal=\"traces\"} 0",
            &format!("gatehouse_otlp_errors_total{{signal=\"metrics\"}} {turn}"),
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
        }
    }
}

#[tokio::test]
async fn a_batch_that_is_refused_for_good_is_lost_at_once() {
    for status in [400, 401, 404, 500, 302] {
        let (server, receiver) = receiver(vec![ResponseTemplate::new(status)]).await;
        assert_eq!(lost(&receiver).await, COUNT, "{status}");
        assert_eq!(server.received_requests().await.unwrap().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn what_a_receiver_rejects_of_a_batch_is_lost_but_never_more_than_the_batch() {
    for (said, expected) in [(0, 0), (2, 2), (-1, 0), (i64::MAX, COUNT)] {
        let partly = ExportTracePartialSuccess { rejected_spans: said, error_message: String::new() };
        let body = ExportTraceServiceResponse { partial_success: Some(partly) }.encode_to_vec();
        let (_server, receiver) = receiver(vec![ResponseTemplate::new(200).set_body_bytes(body)]).await;
        assert_eq!(lost(&receiver).await, expected);
    }
    for nonsense in [vec![0xff; 16], vec![0x2a; 1 << 20]] {
        let (_server, receiver) = receiver(vec![ResponseTemplate::new(200).set_body_bytes(nonsense)]).await;
        assert_eq!(lost(&receiver).await, 0);
    }
}

#[tokio::test]
async fn nothing_is_tried_again_after_the_signal_to_stop() {
    let (server, receiver) = receiver(vec![ResponseTemplate::new(503)]).await;
    let stopper = StopSender::new();
    let mut stop = stopper.stop();
    drop(stopper);
    assert_eq!(receiver.spans(Vec::new(), COUNT, PATIENCE, &mut stop).await, COUNT);
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
}

#[test]
fn spans_that_find_the_queue_full_are_counted_and_forgotten() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let (queue, mut waiting) = mpsc::channel(2);
    let provider = SdkTracerProvider::builder().with_span_processor(SpanQueue(queue)).build();
    metrics::with_local_recorder(&recorder, || {
        for _ in 0..5 {
            provider.tracer("test").start("a span").end();
        }
    });
    assert!(waiting.try_recv().is_ok() && waiting.try_recv().is_ok() && waiting.try_recv().is_err());
    let told = recorder.handle().render();
    assert!(told.contains("gatehouse_otlp_spans_lost_total 3"), "{told}");
}
