//! What failed at an account, as its owner sees it.

use std::time::Duration;

use serde_json::json;

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

const WRONG: &str = "a wrong password";
const NUMBER: &str = "+8613800138000";

on_both_stores!(
    an_owner_sees_what_failed_by_network,
    strangers_cannot_hide_one_attempt_behind_many,
    wrong_codes_for_the_number_are_seen_too,
);

async fn page(app: &TestApp, owner: &Client) -> Answer {
    app.services.audit.flush().await;
    owner.get("/account").await
}

/// The rows of the list, as plain text.
fn rows(page: &Answer) -> Vec<String> {
    let Some((_, list)) = page.text.split_once("aria-labelledby=\"failures\"") else { return Vec::new() };
    let list = list.split("</section>").next().unwrap();
    let text = |row: &str| {
        let parts = row.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text.trim());
        parts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
    };
    list.split("<li>").skip(1).map(text).collect()
}

async fn an_owner_sees_what_failed_by_network(store: Store) {
    let app = TestApp::on(store)
        .behind_a_proxy()
        .limit("login-account", &[max(3).per("1h")])
        .without(&["login-device"])
        .start()
        .await;
    let owner = app.client_at("203.0.113.7");
    assert_eq!(owner.register("alice", PASSWORD).await.status, 201);
    assert!(rows(&page(&app, &owner).await).is_empty(), "a list of nothing is not shown");
    for address in ["198.51.100.1", "198.51.100.2"] {
        assert_eq!(app.client_at(address).login("alice", WRONG).await.status, 401);
        app.advance(Duration::from_secs(120));
    }
    assert_eq!(owner.login("alice", WRONG).await.status, 401);
    for _ in 0..4 {
        assert_eq!(app.client_at("2001:db8:7::1").login("alice", WRONG).await.status, 429);
    }
    app.register("bob").await;
    app.client_at("192.0.2.1").login("bob", WRONG).await;
    let page = page(&app, &owner).await;
    let rows = rows(&page);
    assert_eq!(rows.len(), 3, "{rows:#?}");
    assert!(rows[0].contains("Refused unchecked: 4") && rows[0].contains("2001:db8:7::/48"), "{}", rows[0]);
    assert!(rows[1].contains("Wrong passwords: 1") && rows[1].contains("203.0.113.0/24"), "{}", rows[1]);
    assert!(rows[2].contains("Wrong passwords: 2") && rows[2].contains("198.51.100.0/24"), "{}", rows[2]);
    assert!(rows[2].contains("12:00 – 2026-03-01 12:02"), "{}", rows[2]);
    for private in ["198.51.100.1", "198.51.100.2", "203.0.113.7", "192.0.2"] {
        assert!(!page.text.contains(private), "{private}");
    }
    app.advance(Duration::from_secs(31 * 24 * 3600));
    owner.login("alice", PASSWORD).await;
    assert!(self::rows(&self::page(&app, &owner).await).is_empty(), "after a month it is of no use");
}

async fn strangers_cannot_hide_one_attempt_behind_many(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    let owner = app.client_at("203.0.113.7");
    assert_eq!(owner.register("alice", PASSWORD).await.status, 201);
    for network in 0..12 {
        for _ in 0..6 {
            app.client_at(&format!("198.51.{network}.9")).login("alice", WRONG).await;
        }
        app.advance(Duration::from_secs(60));
    }
    let page = page(&app, &owner).await;
    assert_eq!(rows(&page).len(), 8, "a bounded list, however many try");
    assert!(page.text.contains("Networks that are not listed: 4"), "{}", page.text);
    // Sign-ins are a list of their own, which only sign-ins fill.
    assert_eq!(page.text.matches("</span>Signed in</div>").count(), 1);
}

async fn wrong_codes_for_the_number_are_seen_too(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    let owner = app.client_at("203.0.113.7");
    let asked = owner.ask_code(NUMBER, "login").await;
    assert_eq!(asked.status, 202);
    let code = app.client().codes(NUMBER).await.remove(0);
    assert_eq!(owner.call("/sms/login", json!({ "phone": NUMBER, "code": code })).await.status, 200);
    app.advance(Duration::from_secs(60));
    let stranger = app.client_at("198.51.100.1");
    for _ in 0..2 {
        let guess = json!({ "phone": NUMBER, "code": "000001" });
        assert_eq!(stranger.call("/sms/login", guess).await.status, 401);
    }
    let page = page(&app, &owner).await;
    let rows = rows(&page);
    assert!(rows.len() == 1 && rows[0].contains("Wrong codes: 2"), "{rows:?}");
}

/// The page of a wait, without what differs from page to page.
async fn wait_page(app: &TestApp, login: &str) -> String {
    let client = app.client();
    let mut last = None;
    for _ in 0..2 {
        last = Some(client.submit("/login", "/login", &[("login", login), ("password", WRONG)]).await);
    }
    let page = last.unwrap();
    assert_eq!(page.status, 429, "{}", page.text);
    page.text.replace(&page.csrf_token(), "TOKEN").replace(login, "NAME")
}

#[tokio::test]
async fn a_wait_names_the_ways_out_of_this_site_alike_for_every_name() {
    let house =
        || TestApp::on(Store::Memory).limit("login-account", &[max(1).per("1h")]).without(&["login-device"]);
    let app = house().start().await;
    app.register("alice").await;
    let (known, unknown) = (wait_page(&app, "alice").await, wait_page(&app, "nobody").await);
    assert_eq!(known, unknown);
    for way in [
        "You need not wait",
        "a browser in which you have signed in",
        "href=\"/login/code\"",
        "href=\"/password/reset\"",
    ] {
        assert!(known.contains(way), "{way}: {known}");
    }
    let app = house().set("sms.gateway", "none").start().await;
    let page = wait_page(&app, "alice").await;
    assert!(
        page.contains("ask an administrator")
            && !page.contains("/login/code")
            && !page.contains("/password/reset")
    );
}
