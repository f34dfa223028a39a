//! A code's whole path, from the call that requests it through a gateway to the call that enters it; and what
//! callers are told if the gateway fails.

use std::time::Duration;

use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::flows::{ask, send_on};
use super::http::NUMBER;
use crate::support::app::{Store, TestApp};
use crate::support::kannel::Kannel;

/// The six digits in a text.
fn code_in(text: &str) -> String {
    let mut digits = text.split(|letter: char| !letter.is_ascii_digit());
    digits.rfind(|digits| digits.len() == 6).expect("a code").to_owned()
}

#[tokio::test]
async fn a_code_that_reached_a_handset_through_kannel_signs_in_and_its_report_is_in_the_ledger() {
    let kannel = Kannel::start();
    let setup = TestApp::on(Store::Memory).set("sms.gateway", "http").set("sms.http.url", kannel.url());
    let app = setup.set("sms.http.method", "GET").start().await;
    let client = app.client_that_says(&[("accept-language", "zh-CN")]);
    let sent = client.ask_code("138 0013 8000", "login").await;
    assert_eq!((sent.status, sent.body.get("delivery")), (202, None), "{}", sent.text);
    let delivered = kannel.until_delivered(1);
    assert_eq!(delivered[0].to, NUMBER);
    assert!(delivered[0].text.contains("登录"), "{}", delivered[0].text);
    let entered = json!({ "phone": NUMBER, "code": code_in(&delivered[0].text) });
    assert_eq!(client.call("/sms/login", entered).await.status, 200);

    let boss = app.sign_in_admin("boss").await;
    for _ in 0..500 {
        let ledger = boss.get("/api/v1/admin/messages").await;
        let message = &ledger.body["messages"][0];
        if message["report"] == "delivered" {
            assert_eq!((&message["state"], &message["gateway"]), (&json!("accepted"), &json!("http")));
            assert!(message["entered_at"].is_string() && message["reported_at"].is_string());
            assert!(boss.get("/admin/messages").await.text.contains(">Delivered</"));
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // Kannel's own time
    }
    panic!("no report: {}", boss.get("/api/v1/admin/messages").await.text);
}

async fn behind(status: u16) -> (MockServer, TestApp) {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(status)).mount(&server).await;
    let url = format!("{}/send", server.uri());
    let setup = TestApp::on(Store::Memory).set("sms.gateway", "http").set("sms.http.url", url);
    (server, setup.start().await)
}

#[tokio::test]
async fn what_may_have_gone_out_is_told_as_such_counts_and_opens() {
    let (server, app) = behind(500).await;
    let client = app.client();
    let sent = client.ask_code(NUMBER, "login").await;
    assert_eq!((sent.status, &sent.body["delivery"]), (202, &json!("unknown")), "{}", sent.text);
    assert_eq!(client.ask_code(NUMBER, "login").await.problem(), "throttled");
    let request = server.received_requests().await.unwrap().pop().unwrap();
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let entered = json!({ "phone": NUMBER, "code": code_in(body["text"].as_str().unwrap()) });
    assert_eq!(client.call("/sms/login", entered).await.status, 200);
    // The page says so, too.
    let page = app.client();
    let told = page.submit("/login/code", "/login/code", &[("phone", "+8613900139000")]).await;
    assert!(told.status == 200 && told.text.contains("The message may be delayed"), "{}", told.text);
    let state =
        &app.sign_in_admin("boss").await.get("/api/v1/admin/messages").await.body["messages"][0]["state"];
    assert_eq!(state, "unknown");
}

#[tokio::test]
async fn what_did_not_go_out_is_told_as_such_and_counts_nowhere() {
    let (server, app) = behind(400).await;
    let client = app.client();
    for _ in 0..3 {
        let refused = client.ask_code(NUMBER, "login").await;
        assert_eq!((refused.status, refused.problem()), (503, "unavailable"), "{}", refused.text);
        assert!(!refused.header("retry-after").is_empty());
        let told = client.submit("/login/code", "/login/code", &[("phone", NUMBER)]).await;
        assert!(told.status == 503 && told.text.contains("could not be sent"), "{}", told.text);
    }
    // The code of a refused message does not work.
    let request = server.received_requests().await.unwrap().pop().unwrap();
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let entered = json!({ "phone": NUMBER, "code": code_in(body["text"].as_str().unwrap()) });
    assert_eq!(client.call("/sms/login", entered).await.problem(), "invalid-code");
    server.reset().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(200)).mount(&server).await;
    assert_eq!(client.ask_code(NUMBER, "login").await.status, 202);
}

#[tokio::test]
async fn a_page_says_that_a_message_may_not_have_gone_out_for_as_long_as_it_waits_for_the_code() {
    let (_server, app) = behind(500).await;
    let client = app.client();
    let mut page = ask(&client, "/login/code", NUMBER).await;
    for fields in [[("code", "12")], [("code", "000000")], [("send", "1")]] {
        assert!(page.text.contains("class=\"notice warn\" role=\"status\""), "{}", page.text);
        page = send_on(&client, "/login/code", &page, &fields).await;
    }
    assert_eq!(page.hidden("unconfirmed").as_deref(), Some("1"), "{}", page.text);
}
