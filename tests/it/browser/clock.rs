//! All times of a page are told by one clock, which the page names once: the reader's, or UTC without a script.

use gatehouse::clock::{Clock, Micros};
use serde_json::json;

use crate::support::app::{Store, TestApp};
use crate::support::browser::Browser;

/// Has no summer time, and is nine hours ahead.
const ZONE: &str = "Asia/Tokyo";

/// Every time that a chart shows, as the page says it: below it, in its tooltips and in its table.
const TIMES: &str =
    "return [...document.querySelectorAll('.chart .ticks text, .chart svg g title, .chart td time')]
    .map((it) => it.textContent.match(/\\d\\d:\\d\\d/)?.[0])";

#[tokio::test]
async fn all_times_of_a_page_are_the_readers_and_it_says_so_once() {
    let app = TestApp::on(Store::Memory).behind_a_proxy().start().await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    let now = app.clock.now();
    let browser = Browser::start(&app.url).await;
    browser.cdp("Emulation.setTimezoneOverride", json!({ "timezoneId": ZONE })).await;
    browser.sign_in("watchman").await;
    browser.open("/admin").await;
    let page = browser.text("body").await;
    assert_eq!((page.matches(ZONE).count(), page.matches("UTC").count()), (1, 0), "{page}");
    // The sign-in is in the chart, by the minute. A page in English says 1:05 PM.
    let minute = |hours: i64, minutes: i64| {
        let at = now.0 + (hours * 60 + minutes) * 60_000_000;
        jiff::Timestamp::from_microsecond(Micros(at).0).unwrap().strftime("%I:%M").to_string()
    };
    let told = browser.js(TIMES).await;
    assert!(told.as_array().unwrap().contains(&json!(minute(9, 0))), "{told}");
    assert!(!told.as_array().unwrap().contains(&json!(minute(0, 0))), "nothing is in UTC: {told}");
    // What is typed is the reader's time, and the server gets it with its zone.
    browser.open("/admin/events?since=2026-03-01T12:00:00Z&each=1").await;
    assert_eq!(browser.value("#since").await, "2026-03-01T21:00");
    browser.find("#filter summary").await.click().await.unwrap();
    browser.follow("#filter button").await;
    let query = browser.js("return location.search").await;
    assert!(query.as_str().unwrap().contains("since=2026-03-01T12%3A00%3A00.000Z"), "{query}");
    assert_eq!(browser.value("#since").await, "2026-03-01T21:00", "it stays what it was");
    browser.assert_content().await;
    browser.without_script().await;
    browser.open("/admin/events?since=2026-03-01T12:00:00Z&each=1").await;
    assert_eq!(browser.value("#since").await, "2026-03-01T12:00");
    for path in ["/admin", "/admin/events", "/account"] {
        browser.open(path).await;
        let page = browser.text("body").await;
        assert_eq!((page.matches("UTC").count(), page.matches(ZONE).count()), (1, 0), "{path}: {page}");
    }
}
