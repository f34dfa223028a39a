//! An administrator takes an application from some and gives it to others, and sees beforehand who that is.

use gatehouse::clock::Clock;

use super::console_look::administrator;
use crate::gate::{APPS, account, inside};
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;

const PAGE: &str = "https://wiki.example/page";

#[tokio::test]
async fn who_could_get_in_is_seen_before_it_is_saved_and_the_gate_follows() {
    let app = TestApp::on(Store::Memory).file(APPS).behind_a_proxy().start().await;
    app.clock.set(Clock::System.now());
    administrator(&app, "watchman").await;
    account(&app, "ada", &[]).await;
    account(&app, "bob", &["staff"]).await;
    account(&app, "eve", &["sales"]).await;
    let (ada, bob) = (inside(&app, PAGE, "ada").await, inside(&app, PAGE, "bob").await);
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    browser.follow("a[href='/admin']").await;
    browser.follow(".sidebar a[href='/admin/apps']").await;
    let list = browser.text("main").await;
    for told in ["wiki", "wiki.example", "group:staff, ada", "anyone who registers", "/keys/*", "on-call"] {
        assert!(list.contains(told), "{told}: {list}");
    }
    browser.follow("a.button[href='/admin/apps/edit']").await;
    let draft = browser.value("#toml").await.replace("'ada'", "'eve'");
    // A draft is tried while it is typed.
    browser.fill(&[("toml", &draft)]).await;
    let shown = "return document.getElementById('preview').innerText.includes('Would lose access')";
    browser.until("the trial", shown).await;
    sees_who(&browser).await;
    assert_eq!(ada.ask("GET", PAGE).await.status, 200, "nothing has changed yet");

    browser.without_script().await;
    browser.fill(&[("toml", &draft)]).await;
    browser.follow("button[value=try]").await;
    sees_who(&browser).await;
    browser.follow("button[value=save]").await;
    assert!(browser.text(".notice.bad").await.contains("Give a reason"));
    assert_eq!(browser.value("#toml").await.trim(), draft.trim(), "nothing typed is lost");
    browser.fill(&[("reason", "ada has left, eve has come")]).await;
    browser.follow("button[value=save]").await;
    if browser.path().await != "/admin/apps" {
        browser.fill(&[("password", PASSWORD)]).await;
        browser.submit().await;
    }
    assert_eq!(browser.path().await, "/admin/apps");
    assert!(browser.text(".notice.good").await.contains("The new rules are in force"));
    assert!(browser.text("main").await.contains("group:staff, eve"));
    assert_eq!((ada.ask("GET", PAGE).await.status, bob.ask("GET", PAGE).await.status), (403, 200));
    assert_eq!(inside(&app, PAGE, "eve").await.ask("GET", PAGE).await.status, 200);
    browser.assert_content().await;
}

async fn sees_who(browser: &Browser) {
    let told = browser.text("#preview").await;
    let (loses, gains) = (told.find("Would lose access").unwrap(), told.find("Would gain access").unwrap());
    let (ada, eve) = (told.find("ada").unwrap(), told.find("eve").unwrap());
    assert!(loses < ada && ada < gains && gains < eve && !told.contains("bob"), "{told}");
}
