//! Accessibility: without a script, without a mouse, in either language.

use thirtyfour::{By, Key};

use crate::support::app::{ANSWER, PASSWORD, Store, TestApp};
use crate::support::browser::{Browser, DESKTOP, PHONE};

#[tokio::test]
async fn all_of_it_works_without_a_script_or_a_mouse_and_in_chinese() {
    let app = TestApp::start(Store::Memory).await;
    app.register("kim").await;
    let browser = Browser::speaking(&app.url, "zh-CN").await;
    speaks_the_language_of_the_browser(&browser).await;
    signs_in_by_keyboard(&browser).await;
    shows_and_hides_a_password(&browser).await;
    signs_in_without_a_script(&browser).await;
    browser.assert_content().await;
}

async fn speaks_the_language_of_the_browser(browser: &Browser) {
    browser.open("/login?next=/problems/throttled").await;
    assert_eq!(browser.text("h1").await, "登录");
    assert_eq!(browser.js("return document.documentElement.lang").await, "zh-CN");
    browser.follow(".bottom a[hreflang=en]").await;
    assert_eq!(browser.text("h1").await, "Sign in");
    assert_eq!(browser.value("[name=next]").await, "/problems/throttled", "the page is still the same one");
    browser.open("/register").await;
    assert_eq!(browser.text("h1").await, "Create an account", "the choice is kept");
    browser.follow(".bottom a[hreflang=zh-CN]").await;
    assert_eq!(browser.text("h1").await, "注册账号");
    browser.open("/nothing-here").await;
    assert_eq!(browser.text("h1").await, "页面不存在");
    browser.open("/login?lang=en").await;
}

async fn signs_in_by_keyboard(browser: &Browser) {
    browser.open("/login").await;
    assert_eq!(browser.focused().await, "login");
    press(browser, "kim").await;
    press(browser, Key::Tab).await;
    assert_eq!(browser.focused().await, "password");
    press(browser, PASSWORD).await;
    browser.leave_by(press(browser, Key::Enter)).await;
    assert_eq!(browser.path().await, "/account");

    // The first tab stop of a page skips its header.
    press(browser, Key::Tab).await;
    assert_eq!(browser.text(":focus").await, "Skip to the content");
    let seen = "const { width, height } = document.activeElement.getBoundingClientRect();
                return width > 60 && height > 24";
    assert_eq!(browser.js(seen).await, true);
    let above = "const { left, top, width, height } = document.activeElement.getBoundingClientRect();
                 return document.elementFromPoint(left + width / 2, top + height / 2) === document.activeElement";
    assert_eq!(browser.js(above).await, true, "nothing covers it");
    browser.picture("skip-link").await;
    press(browser, Key::Enter).await;
    assert_eq!(browser.focused().await, "main", "the focus follows it");
    browser.open("/account").await;
    for _ in 0..3 {
        press(browser, Key::Tab).await;
    }
    let outlined = "const style = getComputedStyle(document.activeElement);
                    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2";
    assert_eq!(browser.js(outlined).await, true, "the focus is seen");
    opens_and_closes_the_menu_of_the_name(browser).await;
    press(browser, Key::Tab).await;
    assert_eq!(browser.text(":focus").await, "Your account");
    press(browser, Key::Tab).await;
    assert_eq!(browser.text(":focus").await, "Sign out");
    browser.leave_by(press(browser, Key::Enter)).await;
    assert_eq!(browser.path().await, "/login");
}

/// The name has the focus before and after, and then the menu is open.
async fn opens_and_closes_the_menu_of_the_name(browser: &Browser) {
    let open = "return document.querySelector('.who').open";
    let named = "return document.activeElement.textContent.includes('kim')";
    assert_eq!((browser.js(named).await, browser.js(open).await), (true.into(), false.into()));
    press(browser, Key::Enter).await;
    assert_eq!(browser.js(open).await, true);
    browser.picture("menu-of-the-name").await;
    browser.screen(PHONE).await;
    browser.picture("menu-of-the-name-phone").await;
    let whole = "const { left, right } = document.querySelector('.who > .card').getBoundingClientRect();
                 return left >= 0 && right <= innerWidth";
    assert_eq!(browser.js(whole).await, true, "a phone has room for it");
    browser.screen(DESKTOP).await;
    press(browser, Key::Tab).await;
    press(browser, Key::Escape).await;
    assert_eq!((browser.js(named).await, browser.js(open).await), (true.into(), false.into()), "by Escape");
    press(browser, Key::Enter).await;
    browser.find("h1").await.click().await.unwrap();
    assert_eq!(browser.js(open).await, false, "by a click beside it");
    browser.find(".who summary").await.click().await.unwrap();
    assert_eq!((browser.js(named).await, browser.js(open).await), (true.into(), true.into()));
}

async fn press(browser: &Browser, keys: impl Into<thirtyfour::TypingData>) {
    browser.driver.action_chain().send_keys(keys).perform().await.unwrap();
}

async fn shows_and_hides_a_password(browser: &Browser) {
    browser.fill(&[("login", "kim"), ("password", "typed")]).await;
    let kind = "return document.getElementById('password').type";
    let peek = browser.find(".peek").await;
    peek.click().await.unwrap();
    assert_eq!(browser.js(kind).await, "text");
    assert_eq!(peek.attr("aria-pressed").await.unwrap().unwrap(), "true");
    peek.click().await.unwrap();
    assert_eq!(browser.js(kind).await, "password");
}

async fn signs_in_without_a_script(browser: &Browser) {
    browser.without_script().await;
    browser.fail(3, "kim").await;
    assert!(!browser.has(".peek").await, "no script ran");
    assert!(browser.has("#captcha_answer").await);
    browser.follow("[name=captcha_refresh]").await;
    assert_eq!(browser.value("#login").await, "kim");
    browser.fill(&[("password", PASSWORD), ("captcha_answer", ANSWER)]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/account");
    let utc = browser.driver.find(By::Css(".clock")).await.unwrap().text().await.unwrap();
    assert_eq!(utc, "All times are in UTC.");
    browser.sign_out().await;
}
