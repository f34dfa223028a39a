//! `/api`: an index of the calls, of which one is open.

use super::look::Look;
use crate::support::app::{Store, TestApp};
use crate::support::browser::Browser;

const OPEN: &str =
    "return [...document.querySelectorAll('details[name=call][open] > div')].map((it) => it.id).join()";
const SEEN: &str = "const { top, bottom } = document.querySelector(':target').getBoundingClientRect();
    return bottom > top && top >= 0 && top < innerHeight";

#[tokio::test]
async fn one_call_of_the_api_is_shown_at_a_time_and_its_address_opens_it_without_a_script() {
    let app = TestApp::start(Store::Memory).await;
    let browser = Browser::start(&app.url).await;
    browser.open("/api").await;
    assert_eq!(browser.js(OPEN).await, "");
    let height = "return document.scrollingElement.scrollHeight";
    let closed = browser.js(height).await.as_u64().unwrap();
    assert!(closed < 4_500, "the index is {closed} px high");
    let look = Look { browser: &browser, language: "en", faults: Default::default() };
    look.at("api").await;
    for script in [true, false] {
        if !script {
            browser.without_script().await;
            browser.open("/api").await;
        }
        browser.open("/api#signIn").await;
        assert_eq!((browser.js(OPEN).await, browser.js(SEEN).await), ("signIn".into(), true.into()));
        if script {
            look.at("api-call").await;
        }
        browser.find("#signIn a[href='#type-Solution']").await.click().await.unwrap();
        assert_eq!((browser.js(OPEN).await, browser.js(SEEN).await), ("signIn".into(), true.into()));
        browser.find("details:has(> #showAccess) > summary").await.click().await.unwrap();
        assert_eq!(browser.js(OPEN).await, "showAccess", "the other one is closed");
    }
    browser.open("/api#tag-session").await;
    assert_eq!(browser.js(SEEN).await, true, "anchors of parts lead there");
    let faults = look.faults.into_inner();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    browser.assert_content().await;
}
