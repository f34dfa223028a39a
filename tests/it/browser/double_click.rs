//! A double click on a button is one click, with a script or without.

use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;

#[tokio::test]
async fn a_double_click_makes_one_account_and_signs_in() {
    let app = TestApp::start(Store::Memory).await;
    let browser = Browser::start(&app.url).await;
    double_click(&browser, "kim").await;
    browser.without_script().await;
    double_click(&browser, "lin").await;
    browser.assert_content().await;
}

async fn double_click(browser: &Browser, login: &str) {
    browser.open("/register").await;
    browser.fill(&[("login", login), ("password", PASSWORD)]).await;
    let button = browser.find("button.main").await;
    browser.driver.action_chain().double_click_element(&button).perform().await.unwrap();
    browser
        .until("the account", "return location.pathname === '/account' && document.readyState === 'complete'")
        .await;
    assert!(browser.text("main").await.contains(login));
    let sessions = "return document.querySelectorAll('[aria-labelledby=sessions] .rows > li').length";
    assert_eq!(browser.js(sessions).await, 1);
    browser.sign_out().await;
}
