//! SMS codes, as a person with a browser and a telephone sees them.

use std::time::Duration;

use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::{Browser, PHONE};

const NUMBER: &str = "+8613800138000";
const NEW: &str = "quiet lanterns drift above marble";

#[tokio::test]
async fn a_telephone_opens_an_account_at_a_desk() {
    let app = TestApp::start(Store::Memory).await;
    let browser = Browser::start(&app.url).await;
    all_of_it(&app, &browser).await;
    counts_down_to_the_next_code(&app, &browser).await;
    browser.assert_content().await;
}

#[tokio::test]
async fn a_telephone_opens_an_account_on_a_small_screen_in_chinese_without_a_script() {
    let app = TestApp::start(Store::Memory).await;
    let browser = Browser::speaking(&app.url, "zh-CN").await;
    browser.screen(PHONE).await;
    browser.without_script().await;
    all_of_it(&app, &browser).await;
    browser.assert_content().await;
}

impl Browser {
    /// Presses the button that the script has disabled.
    pub(super) async fn ask_again_too_early(&self) {
        let press = "const button = document.querySelector('[data-after-wait]');
                     button.disabled = false; button.click()";
        self.leave_by(async { drop(self.js(press).await) }).await;
    }
}

async fn newest(app: &TestApp) -> String {
    app.client().codes(NUMBER).await.remove(0)
}

async fn all_of_it(app: &TestApp, browser: &Browser) {
    registers_with_a_number(app, browser).await;
    signs_in_by_code(app, browser).await;
    replaces_a_forgotten_password(app, browser).await;
    changes_the_number(app, browser).await;
}

async fn registers_with_a_number(app: &TestApp, browser: &Browser) {
    browser.open("/register").await;
    assert!(browser.find("#password").await.is_displayed().await.unwrap());
    browser.fill(&[("login", "kim"), ("phone", "138 0013 8000")]).await;
    assert!(!browser.find("#password").await.is_displayed().await.unwrap(), "it is asked for once");
    browser.submit().await;
    assert_eq!(browser.focused().await, "code");
    assert_eq!(
        (browser.value("#login").await, browser.value("#password").await),
        ("kim".into(), String::new())
    );
    assert_eq!(browser.text("#phone").await, NUMBER, "as it was understood");
    browser.fill(&[("code", &newest(app).await), ("password", PASSWORD)]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/account");
    assert!(browser.text("main").await.contains(NUMBER));
    browser.sign_out().await;
}

async fn signs_in_by_code(app: &TestApp, browser: &Browser) {
    app.advance(Duration::from_secs(60));
    browser.open("/login?next=/problems/throttled").await;
    browser.follow(".others a").await;
    assert_eq!(browser.path().await, "/login/code?next=/problems/throttled");
    assert_eq!(browser.focused().await, "phone");
    browser.fill(&[("phone", "+86 138 0013 800")]).await;
    browser.submit().await;
    assert_eq!(browser.focused().await, "phone", "a digit is missing");
    browser.fill(&[("phone", "0086 138-0013-8000")]).await;
    browser.submit().await;
    assert_eq!(browser.focused().await, "code");
    let code = newest(app).await;
    browser.fill(&[("code", if code == "000000" { "000001" } else { "000000" })]).await;
    browser.submit().await;
    assert!(browser.has("#code-error").await);
    browser.follow("button[name=change]").await;
    assert_eq!(browser.value("#phone").await, NUMBER);
    browser.submit().await;
    assert!(browser.has("[role=alert]").await && browser.has("#phone[type=tel]").await, "one a minute");
    app.advance(Duration::from_secs(60));
    browser.submit().await;
    let code = newest(app).await;
    browser.fill(&[("code", &format!("{} {}", &code[..3], &code[3..]))]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/problems/throttled");
    browser.open("/account").await;
    browser.sign_out().await;
}

async fn replaces_a_forgotten_password(app: &TestApp, browser: &Browser) {
    // A number's fourth message of a day requires a challenge.
    app.advance(Duration::from_secs(24 * 60 * 60));
    browser.open("/login").await;
    browser.follow("a[href='/password/reset']").await;
    browser.fill(&[("phone", NUMBER)]).await;
    browser.submit().await;
    let code = newest(app).await;
    browser.fill(&[("code", &code), ("new_password", "short")]).await;
    browser.submit().await;
    assert_eq!(browser.focused().await, "new_password");
    browser.fill(&[("code", &code), ("new_password", NEW)]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/login");
    assert!(browser.has("[role=status].notice").await);
    browser.try_password("kim", NEW).await;
    assert_eq!(browser.path().await, "/account");
}

async fn changes_the_number(app: &TestApp, browser: &Browser) {
    app.advance(Duration::from_secs(60));
    browser.follow("a[href='/account/phone']").await;
    browser.fill(&[("phone", "+86 139 0013 9000")]).await;
    browser.submit().await;
    let code = app.client().codes("+8613900139000").await.remove(0);
    browser.fill(&[("code", &code), ("current_password", NEW)]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/account");
    assert!(browser.text("main").await.contains("+8613900139000"));
    browser.follow("a[href='/account/phone/remove']").await;
    browser.fill(&[("current_password", NEW)]).await;
    browser.follow("main button.danger").await;
    assert!(!browser.text("main").await.contains("+8613900139000"));
    browser.sign_out().await;
}

async fn counts_down_to_the_next_code(app: &TestApp, browser: &Browser) {
    app.advance(Duration::from_secs(3600));
    browser.open("/login/code").await;
    browser.fill(&[("phone", NUMBER)]).await;
    browser.submit().await;
    let again = browser.find("[data-after-wait]").await;
    assert!(!again.is_enabled().await.unwrap(), "a minute has to pass");
    let left = browser.text("[data-left]").await;
    browser
        .until("countdown", &format!("return document.querySelector('[data-left]').textContent !== {left:?}"))
        .await;
    // If it is sent anyway it is refused, and the page says for how long.
    browser.ask_again_too_early().await;
    assert_eq!(browser.find(".notice[data-wait]").await.attr("data-wait").await.unwrap().unwrap(), "60");
    assert!(browser.has("#code").await, "the first may still come");
    // A page that is shown again knows the remaining time, and the button is enabled by itself.
    app.advance(Duration::from_secs(59));
    browser.fill(&[("code", "12345")]).await;
    browser.submit().await;
    browser.until("end of the wait", "return !document.querySelector('[data-after-wait]').disabled").await;
    app.advance(Duration::from_secs(1));
    browser.follow("[data-after-wait]").await;
    assert_eq!(browser.text(".notice").await, "");
    browser.fill(&[("code", &newest(app).await)]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/account");
}
