//! The challenge in a real browser: by keyboard, as a screen reader finds it, as a form waits for it, and where it cannot be
//! computed.

use serde_json::{Value, json};
use thirtyfour::Key;

use super::WRONG;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::{Browser, Screen};
use crate::support::setup::{Setup, max};

pub const SOLVED: &str = "return document.getElementById('captcha_proof').ariaChecked === 'true'";
const BOX: &str = "#captcha_proof";
const INSTEAD: &str = ".proof .quiet";
/// Nothing is computed until `window.go` is called.
const HOLD: &str = "const real = Worker.prototype.postMessage;
     Worker.prototype.postMessage = function (...it) { window.go = () => real.apply(this, it); }";

fn offering() -> Setup {
    TestApp::on(Store::Memory)
        .set("captcha.provider", "image")
        .set("captcha.proof_of_work", true)
        .set("captcha.help", "mailto:help@example.com")
        .limit("login-account", &[max(3).per("1h").captcha()])
}

/// The page of `kim`, whose account requires a challenge.
async fn challenged(setup: Setup) -> (TestApp, Browser) {
    let app = setup.start().await;
    app.register("kim").await;
    let browser = Browser::start(&app.url).await;
    browser.fail(3, "kim").await;
    (app, browser)
}

impl Browser {
    async fn press(&self, key: Key) {
        self.driver.action_chain().send_keys(key).perform().await.unwrap();
    }

    /// Presses Tab until the element with this id has the focus.
    async fn tab_to(&self, id: &str) {
        for _ in 0..40 {
            if self.focused().await == id {
                return;
            }
            self.press(Key::Tab).await;
        }
        panic!("{id} cannot be reached with Tab");
    }

    async fn status(&self) -> String {
        self.text(".proof [role=status]").await
    }

    async fn shows(&self, css: &str) -> bool {
        self.js(&format!("return document.querySelector({css:?}).getClientRects().length > 0")).await == true
    }

    /// What assistive technology finds: role, name, description, and the value if there is one.
    async fn read_out(&self) -> Vec<(String, String, String, Value)> {
        let tree = self.cdp("Accessibility.getFullAXTree", json!({})).await;
        let text = |node: &Value, part: &str| node[part]["value"].as_str().unwrap_or_default().to_owned();
        let heard = tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] != true);
        heard
            .map(|node| {
                (
                    text(node, "role"),
                    text(node, "name"),
                    text(node, "description"),
                    node["value"]["value"].clone(),
                )
            })
            .collect()
    }
}

fn found<'a>(
    tree: &'a [(String, String, String, Value)],
    role: &str,
    name: &str,
) -> &'a (String, String, String, Value) {
    let mut found = tree.iter().filter(|(its, called, ..)| its == role && called.contains(name));
    let first = found.next().unwrap_or_else(|| panic!("no {role} {name:?} in {tree:#?}"));
    assert!(found.next().is_none(), "one {role} {name:?}");
    first
}

#[tokio::test]
async fn the_box_computes_when_the_keyboard_reaches_it_and_signs_in() {
    let (_app, browser) = challenged(offering()).await;
    browser.tab_to("captcha_proof").await;
    browser.until("solution", SOLVED).await;
    assert_eq!(browser.focused().await, "captcha_proof", "the focus stays where it was");
    assert!(browser.status().await.contains("nothing to type"));
    assert!(!browser.shows(".letters").await && !browser.shows(INSTEAD).await, "nothing is left to do");
    browser.press(Key::Enter).await;
    assert!(browser.js(SOLVED).await == true, "pressed again, it stays solved");
    browser.driver.action_chain().key_down(Key::Shift).perform().await.unwrap();
    browser.tab_to("password").await;
    browser.driver.action_chain().key_up(Key::Shift).perform().await.unwrap();
    let typed = async {
        browser.driver.action_chain().send_keys(PASSWORD).send_keys(Key::Enter).perform().await.unwrap()
    };
    browser.leave_by(typed).await;
    assert_eq!(browser.path().await, "/account");
    browser.assert_content().await;
}

#[tokio::test]
async fn a_form_that_is_submitted_without_the_box_waits_and_goes_on_by_itself() {
    let (_app, browser) = challenged(offering()).await;
    browser.try_password("kim", PASSWORD).await;
    assert_eq!(browser.path().await, "/account");
    browser.assert_content().await;
}

#[tokio::test]
async fn a_form_that_is_submitted_while_it_computes_waits_and_goes_on_by_itself() {
    let (_app, browser) = challenged(offering()).await;
    browser.js(HOLD).await;
    browser.find(BOX).await.click().await.unwrap();
    browser.fill(&[("password", PASSWORD)]).await;
    for _ in 0..2 {
        browser.find("button.main").await.click().await.unwrap();
    }
    assert!(browser.status().await.contains("then sent by itself"));
    assert_eq!(browser.path().await, "/login");
    browser.leave_by(async { drop(browser.js("window.go()").await) }).await;
    assert_eq!(browser.path().await, "/account");
}

#[tokio::test]
async fn the_image_is_unfolded_on_request_and_stops_the_computation() {
    let (_app, browser) = challenged(offering()).await;
    assert!(!browser.shows(".letters").await);
    assert_eq!(
        browser.js("return document.querySelector('.captcha img').naturalWidth").await,
        0,
        "not drawn"
    );
    browser.js(HOLD).await;
    browser.find(BOX).await.click().await.unwrap();
    assert!(browser.shows(".proof progress").await);
    browser.find(INSTEAD).await.click().await.unwrap();
    assert!(browser.shows(".letters").await && !browser.shows(".proof progress").await);
    browser.until("image", "return document.querySelector('.captcha img').naturalWidth > 0").await;
    browser.fill(&[("password", PASSWORD)]).await;
    browser.assert_required("captcha_answer").await;
    // Passing by, on the way to the letters, does not fold them away; a press does.
    browser.js("document.getElementById('captcha_proof').focus()").await;
    assert!(browser.shows(".letters").await && !browser.shows(".proof progress").await);
    browser.find(BOX).await.click().await.unwrap();
    assert!(!browser.shows(".letters").await && browser.shows(".proof progress").await);
    // Where the letters were wrong, or others were asked for, they are there.
    browser.find(INSTEAD).await.click().await.unwrap();
    browser.fill(&[("captcha_answer", "nonsense")]).await;
    browser.try_password("kim", WRONG).await;
    assert!(browser.shows("#captcha_answer-error").await && browser.shows(".letters").await);
    browser.follow("[name=captcha_refresh]").await;
    assert!(browser.shows(".letters").await);
    browser.assert_content().await;
}

#[tokio::test]
async fn the_challenge_takes_little_room_before_it_is_unfolded() {
    let app = offering().start().await;
    app.register("kim").await;
    for language in ["en", "zh-CN"] {
        let browser = Browser::speaking(&app.url, language).await;
        browser.fail(3, "kim").await;
        for width in [1440, 360] {
            browser.screen(Screen { width, height: 900, phone: width == 360 }).await;
            browser.open("/login").await;
            browser.try_password("kim", WRONG).await;
            browser.js(HOLD).await;
            let low = async |state: &str| {
                let height = browser.js("return document.querySelector('.captcha').offsetHeight").await;
                assert!(height.as_u64().unwrap() <= 120, "{height} px, {width} wide, {state} in {language}");
            };
            low("idle").await;
            browser.find(BOX).await.click().await.unwrap();
            low("at work").await;
            browser.fill(&[("password", WRONG)]).await;
            browser.find("button.main").await.click().await.unwrap();
            low("with the form waiting").await;
            browser.js("document.querySelector('form').requestSubmit = () => {}; window.go()").await;
            browser.until("solution", SOLVED).await;
            low("done").await;
        }
    }
}

#[tokio::test]
async fn a_screen_reader_finds_a_box_its_progress_and_how_it_ended() {
    let (_app, browser) = challenged(offering()).await;
    let before = browser.read_out().await;
    found(&before, "group", "Are you human?");
    let (.., description, _) = found(&before, "checkbox", "I am human");
    assert!(description.contains("a few seconds"), "{description}");
    found(&before, "button", "Use an image instead");
    let absent = ["progressbar", "image"];
    assert!(before.iter().all(|(role, ..)| !absent.contains(&role.as_str())), "{before:#?}");

    // Held before its first derivation, so that what is shown meanwhile can be read.
    browser.js(HOLD).await;
    browser.js("document.getElementById('captcha_proof').click()").await;
    let meanwhile = browser.read_out().await;
    let (.., value) = found(&meanwhile, "progressbar", "Progress of the computation");
    assert_eq!(value.as_f64(), Some(0.0));
    assert!(meanwhile.iter().any(|(_, name, ..)| name.starts_with("Checking")), "{meanwhile:#?}");
    assert_eq!(browser.js("return document.querySelector('.proof [role=status]').role").await, "status");

    browser.js("window.go()").await;
    browser.until("solution", SOLVED).await;
    let after = browser.read_out().await;
    assert!(after.iter().any(|(_, name, ..)| name.starts_with("Done")), "{after:#?}");
    assert!(after.iter().all(|(role, ..)| role != "progressbar" && role != "image"));
    browser.assert_content().await;

    let (_app, browser) = challenged(offering()).await;
    browser.find(INSTEAD).await.click().await.unwrap();
    let unfolded = browser.read_out().await;
    found(&unfolded, "image", "Distorted letters");
    found(&unfolded, "textbox", "Letters in the image");
    found(&unfolded, "link", "help@example.com");
}

#[tokio::test]
async fn without_webcrypto_or_script_there_is_the_image_alone() {
    let (_app, browser) = challenged(offering()).await;
    // As on http, anywhere but on localhost.
    let source = "Object.defineProperty(crypto, 'subtle', { value: undefined })";
    browser.cdp("Page.addScriptToEvaluateOnNewDocument", json!({ "source": source })).await;
    let image_alone = async || {
        browser.fail(1, "kim").await;
        assert!(browser.has("[data-proof]").await && !browser.shows(".proof").await);
        assert!(browser.shows(".letters").await);
        browser.fill(&[("captcha_answer", "nonsense")]).await;
        browser.try_password("kim", WRONG).await;
        assert!(browser.shows("#captcha_answer-error").await);
    };
    image_alone().await;
    browser.without_script().await;
    image_alone().await;
}

#[tokio::test]
async fn a_worker_that_fails_leaves_the_letters_and_another_try() {
    let (_app, browser) = challenged(offering()).await;
    browser.js("window.real = Worker.prototype.postMessage").await;
    browser.js("Worker.prototype.postMessage = function () { this.onerror() }").await;
    browser.find(BOX).await.click().await.unwrap();
    assert!(browser.status().await.contains("did not succeed"));
    browser.fill(&[("password", PASSWORD)]).await;
    browser.assert_required("captcha_answer").await;
    browser.js("Worker.prototype.postMessage = window.real").await;
    browser.find(BOX).await.click().await.unwrap();
    browser.until("solution", SOLVED).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/account");
}
