//! When codes are short, as clients see it: the same status, body, headers and page for every number.

use serde_json::json;

use super::flows::{ask, send_on};
use super::http::{NUMBER, OTHER, bare, enter, with_number};
use crate::support::app::{ANSWER, Answer, Client, Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    in_a_shortage_nothing_tells_numbers_with_accounts_apart,
    the_pages_say_that_codes_are_short,
    the_overview_says_that_codes_are_short,
);

/// One goes to alice, at her registration; two more to other numbers.
async fn short(store: Store) -> TestApp {
    let app = TestApp::on(store)
        .limit("sms-total", &[max(5).per("24h")])
        .without(&["sms-phone", "sms-address", "login-address", "login-network"])
        .start()
        .await;
    with_number(&app, "alice", NUMBER).await;
    for n in 1..=2 {
        let told = app.client().ask_code(&format!("+861370013800{n}"), "login").await;
        assert_eq!((told.status, told.body.get("short")), (202, None), "{}", told.text);
    }
    app
}

/// With the challenge that is required first.
async fn ask_solved(client: &Client, phone: &str, purpose: &str) -> Answer {
    let asked = client.ask_code(phone, purpose).await;
    assert_eq!((asked.status, asked.problem()), (403, "captcha-required"), "{}", asked.text);
    let captcha = json!({ "id": asked.body["captcha"]["id"], "answer": ANSWER });
    client.call("/sms/codes", json!({ "phone": phone, "purpose": purpose, "captcha": captcha })).await
}

async fn arrives(client: &Client, phone: &str) -> String {
    let before = client.codes(phone).await.len();
    super::rig::until(async || before > 1 || !client.codes(phone).await.is_empty()).await;
    client.codes(phone).await.remove(0)
}

async fn in_a_shortage_nothing_tells_numbers_with_accounts_apart(store: Store) {
    let app = short(store).await;
    let client = app.client();
    // So that neither answer below is the first one, which sets the browser cookie.
    assert_eq!(client.get("/login").await.status, 200);
    let sent_before = client.codes(NUMBER).await.len();
    let (known, unknown) =
        (ask_solved(&client, NUMBER, "login").await, ask_solved(&client, OTHER, "login").await);
    assert_eq!((known.status, &known.body["short"]), (202, &json!(true)), "{}", known.text);
    assert_eq!(known.body.get("delivery"), None);
    assert_eq!(bare(&known), bare(&unknown));
    super::rig::until(async || client.codes(NUMBER).await.len() > sent_before).await;
    let code = arrives(&client, NUMBER).await;
    for phone in [NUMBER, OTHER] {
        for purpose in ["register"] {
            let refused = client.ask_code(phone, purpose).await;
            assert_eq!((refused.status, &refused.body["limit"]), (429, &json!("sms-total")));
        }
    }
    let wrong = if code == "000000" { "000001" } else { "000000" };
    for _ in 0..5 {
        let (known, unknown) = (enter(&client, NUMBER, wrong).await, enter(&client, OTHER, wrong).await);
        assert_eq!(bare(&known), bare(&unknown));
    }
    // The reserved message is spent: the same again, and nobody gets one.
    let (known, unknown) =
        (ask_solved(&client, NUMBER, "reset").await, ask_solved(&client, OTHER, "reset").await);
    assert_eq!((known.status, bare(&known)), (202, bare(&unknown)));
    assert_eq!(client.codes("").await.len(), 4);
}

async fn the_pages_say_that_codes_are_short(store: Store) {
    let app = short(store).await;
    let mut pages = Vec::new();
    for phone in [NUMBER, OTHER] {
        let client = app.client();
        let asked = ask(&client, "/login/code", phone).await;
        assert!(asked.status == 403 && asked.hidden("captcha_id").is_some(), "{}", asked.text);
        let fields = [("phone", phone), ("captcha_answer", ANSWER), ("send", "1")];
        let shown = send_on(&client, "/login/code", &asked, &fields).await;
        assert_eq!(shown.status, 200, "{}", shown.text);
        assert!(shown.text.contains("SMS codes are limited right now"), "{}", shown.text);
        assert_eq!(shown.hidden("short").as_deref(), Some("1"));
        let (token, sent_to) = (shown.csrf_token(), shown.hidden("phone").unwrap());
        pages.push(shown.text.replace(&token, "…").replace(&sent_to, "…"));
    }
    assert_eq!(pages[0], pages[1]);
}

async fn the_overview_says_that_codes_are_short(store: Store) {
    let app = short(store).await;
    let boss = app.sign_in_admin("boss").await;
    let page = boss.get("/admin").await;
    assert!(page.text.contains("SMS budget short: 3 of 5 messages used"), "{}", page.text);
    ask_solved(&app.client(), OTHER, "login").await;
    super::rig::until(async || boss.get("/admin").await.text.contains("Codes withheld in the last hour: 1"))
        .await;
    let withheld = boss.get("/api/v1/admin/messages?state=withheld").await;
    assert_eq!(withheld.body["messages"].as_array().unwrap().len(), 1, "{}", withheld.text);
}
