//! An operator answers an attack by a link, a reason and a click, and ends it by another click; without a script.

use gatehouse::clock::Clock;

use crate::support::app::{Store, TestApp};
use crate::support::browser::Browser;

#[tokio::test]
async fn a_link_a_reason_and_a_click_refuse_a_network_and_one_click_ends_it() {
    let app = TestApp::on(Store::Memory).behind_a_proxy().start().await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    let browser = Browser::start(&app.url).await;
    browser.without_script().await;
    browser.sign_in("watchman").await;
    let stranger = app.client_at("203.0.113.7");
    assert_eq!(stranger.get("/login").await.status, 200);
    browser.open("/admin/access?do=deny&network=203.0.113.0/24").await;
    assert_eq!(browser.focused().await, "deny-reason", "the rest is filled in");
    browser.fill(&[("deny-reason", "They guess at every name.")]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/admin/access");
    let told = browser.text(".rows").await;
    assert!(told.contains("203.0.113.0/24") && told.contains("They guess at every name"), "{told}");
    assert_eq!(stranger.get("/login").await.status, 403);
    browser.follow(".rows form button").await;
    assert!(browser.text("main").await.contains("Nothing is in force"));
    assert_eq!(stranger.get("/login").await.status, 200);
    browser.assert_content().await;
}
