//! `[access] pause_sms`: numbers under a prefix get no message.

use std::time::Duration;

use gatehouse::audit::EventFilter;
use gatehouse::codes::LedgerFilter;

use crate::sms::flows::ask;
use crate::support::app::{Store, TestApp, on_both_stores};

on_both_stores!(a_paused_prefix_gets_no_message_and_counts_nothing,);

const PAUSE: &str = "[access]\npause_sms = [\n\
    { prefix = \"+86138\", until = \"2026-03-01T14:00:00Z\", reason = \"pumping\" },\n\
    { prefix = \"+8613800\", until = \"2026-03-01T12:10:00Z\", reason = \"shorter\" },\n]\n";

async fn a_paused_prefix_gets_no_message_and_counts_nothing(store: Store) {
    let app = TestApp::with(store, PAUSE).await;
    let client = app.client();
    for phone in ["+8613800138000", "+8613812345678", "+8613800138000"] {
        let answer = client.ask_code(phone, "login").await;
        assert_eq!((answer.status, answer.problem()), (503, "unavailable"), "{}", answer.text);
        assert_eq!(answer.header("retry-after"), "3600", "it may be ended early");
    }
    let page = ask(&client, "/login/code", "138 0013 8000").await;
    assert_eq!(page.status, 503);
    assert!(page.text.contains("If you have a password, sign in with it instead"), "{}", page.text);
    assert_eq!(client.ask_code("+8613900138000", "login").await.status, 202, "another prefix");
    let sent = app.services.codes.ledger().page(&LedgerFilter::default(), None, 10).await.unwrap();
    assert_eq!(sent.entries.len(), 1, "nothing is written");
    app.services.audit.flush().await;
    let events = app.services.audit.log().page(&EventFilter::default(), None, 50).await.unwrap().entries;
    let paused: Vec<_> = events.iter().filter(|event| event.limit.as_deref() == Some("access")).collect();
    let (rows, requests) = (paused.len(), paused.iter().map(|event| event.count).sum::<i64>());
    assert_eq!((rows, requests), (2, 4), "a row a number: {paused:?}");
    app.advance(Duration::from_secs(2 * 3600));
    assert_eq!(client.ask_code("+8613800138000", "login").await.status, 202, "it ends at its time");
}
