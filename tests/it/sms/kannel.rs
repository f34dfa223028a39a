//! A message's whole path: through the http gateway and a real Kannel to a handset, and its reports back.

use std::time::Duration;

use gatehouse::sms::{
    DeliveryReport, DeliveryResult, OutOfService, ReportCall, ReportState, ReportedMessage,
};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::gateways::{NUMBER, TEXT, example, gateway, opened, refused_all, send, some_id};
use crate::support::kannel::{Delivered, Kannel, PASSWORD};

fn config(url: &str, public_url: &str) -> String {
    format!(
        "[server]\npublic_url = '{public_url}'\n[sms]\ngateway = 'http'\n\
         [sms.http]\nmethod = 'GET'\nurl = '{url}'"
    )
}

fn arrived() -> Delivered {
    Delivered { to: NUMBER.to_owned(), text: TEXT.to_owned() }
}

#[tokio::test]
async fn a_message_reaches_the_handset_and_its_reports_come_back() {
    let kannel = Kannel::start();
    let ours = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(204)).mount(&ours).await;
    let gateway = gateway(&config(&kannel.url(), &ours.uri()));
    let id = some_id();
    assert_eq!(send(&*gateway, id).await, DeliveryResult::Accepted { reference: None });
    assert_eq!(kannel.until_delivered(1), [arrived()]);

    // The operator has accepted it (8), and it is on the handset (1). Each is a request of its own: either may come first.
    let reports = loop {
        let calls = ours.received_requests().await.unwrap();
        if calls.len() >= 2 {
            break calls;
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // Kannel's own time
    };
    let mut found: Vec<_> = Vec::new();
    for call in &reports {
        assert_eq!((call.method.as_str(), call.url.path()), ("GET", "/sms/reports/http"));
        let (query, header) = (call.url.query().unwrap(), |_: &str| None);
        let call = ReportCall { url: call.url.as_str(), query, header: &header, body: &call.body };
        found.extend(gateway.reports(&call).unwrap());
    }
    found.sort_by(|one, other| one.detail.cmp(&other.detail));
    let expected = [(ReportState::Delivered, "1"), (ReportState::Pending, "8")];
    assert_eq!(
        found,
        expected.map(|(state, detail)| DeliveryReport {
            message: ReportedMessage::Id(id),
            state,
            detail: Some(detail.to_owned())
        })
    );
}

#[tokio::test]
async fn the_example_for_kannel_sends() {
    let kannel = Kannel::start();
    let mut secret = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut secret, PASSWORD.as_bytes()).unwrap();
    let (at, variable) = ("http://127.0.0.1:13013", "{env:KANNEL_PASSWORD}");
    let gateway = gateway(&example("Kannel", at, &kannel.address(), variable, secret.path()));
    assert_eq!(send(&*gateway, some_id()).await, DeliveryResult::Accepted { reference: None });
    assert_eq!(kannel.until_delivered(1), [arrived()]);
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_nothing_goes_out() {
    let kannel = Kannel::start();
    let wrong = gateway(&config(&kannel.url_with("wrong"), "http://127.0.0.1:8080"));
    let refused = refused_all(OutOfService::Credentials, "answered 403");
    assert_eq!(send(&*wrong, some_id()).await, refused);
    let right = gateway(&config(&kannel.url(), "http://127.0.0.1:8080"));
    send(&*right, some_id()).await;
    assert_eq!(kannel.until_delivered(1), [arrived()]);
}

#[tokio::test]
async fn a_kannel_that_is_down_refuses() {
    let mut kannel = Kannel::start();
    let gateway = gateway(&config(&kannel.url(), "http://127.0.0.1:8080"));
    send(&*gateway, some_id()).await;
    kannel.kill();
    assert!(!kannel.takes_messages());
    // Time for the kept connection to notice, which on a server its own thread does.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let refused = refused_all(OutOfService::Unreachable, "cannot be reached");
    assert_eq!(send(&*gateway, some_id()).await, refused);
}

/// Why a message counts after a timeout: it is sent after all, and would have been sent twice.
#[tokio::test]
async fn what_a_kannel_that_hangs_was_given_is_unknown_and_arrives_once() {
    let kannel = Kannel::start();
    let url = config(&kannel.url(), "http://127.0.0.1:8080");
    let gateway = opened(&url, Duration::from_secs(2)).gateway;
    kannel.signal("STOP");
    let unknown = DeliveryResult::Unknown { reason: "the gateway did not answer in time".to_owned() };
    assert_eq!(send(&*gateway, some_id()).await, unknown);
    kannel.signal("CONT");
    kannel.until_delivered(1);
    assert!(matches!(send(&*gateway, some_id()).await, DeliveryResult::Accepted { .. }));
    assert_eq!(kannel.until_delivered(2), [arrived(), arrived()]);
}
