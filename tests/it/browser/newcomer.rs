//! Somebody starts it for the first time, and is led through what there is to do.

use crate::support::app::PASSWORD;
use crate::support::browser::Browser;
use crate::support::process::Home;

#[tokio::test]
async fn a_newcomer_gets_from_the_terminal_to_what_is_not_done_yet() {
    let home = Home::new();
    let running = home.start(&["serve"]).await;
    let shown = running.stdout();
    let value = |name: &str| {
        let (_, rest) = shown.split_once(name).unwrap_or_else(|| panic!("{name}: {shown}"));
        rest.lines().next().unwrap().trim().to_owned()
    };
    let (there, word) = (value("sign in at:"), value("one-time password:"));
    assert!(there.ends_with("/admin"), "{there}");
    let browser = Browser::start(&running.url).await;
    browser.open("/admin").await;
    browser.try_password("admin", &word).await;
    browser.fill(&[("current_password", &word), ("new_password", PASSWORD)]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/admin", "and then where they wanted to go");
    let list = browser.text(".first-steps").await;
    for told in ["second factor", "https", "gateway", "administrator", "first application", "backed up"] {
        assert!(list.contains(told), "{told}: {list}");
    }
    assert!(!list.contains("Name the proxy"), "it comes with https: {list}");

    browser.follow(".first-steps a[href='/admin/apps/form']").await;
    browser.add_client("wiki", "https://wiki.example/callback").await;
    browser.open("/admin").await;
    let list = browser.text(".first-steps").await;
    assert!(!list.contains("first application") && list.contains("backed up"), "{list}");
}
