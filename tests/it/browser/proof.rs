//! The proof of work in a real browser: by keyboard, as a screen reader finds it, and where it cannot be.

use serde_json::{Value, json};
use thirtyfour::Key;

use super::WRONG;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;
use crate::support::setup::{Setup, max};

const SOLVED: &str = "return document.querySelector('.proof').classList.contains('solved')";

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
async fn the_keyboard_alone_solves_it_and_signs_in() {
    let (_app, browser) = challenged(offering()).await;
    browser.tab_to("captcha_proof").await;
    browser.press(Key::Enter).await;
    browser.until("solution", SOLVED).await;
    assert_eq!(browser.focused().await, "captcha_proof", "the focus stays where it was");
    assert!(browser.text(".proof [role=status]").await.contains("no letters are needed"));
    assert!(!browser.shows(".letters").await, "nothing is left to type");
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
async fn a_screen_reader_finds_a_button_its_progress_and_how_it_ended() {
    let (_app, browser) = challenged(offering()).await;
    let before = browser.read_out().await;
    found(&before, "group", "Are you human?");
    let (.., description, _) = found(&before, "button", "Let this device show it");
    assert!(description.contains("nothing to read or to type"), "{description}");
    found(&before, "image", "Distorted letters");
    found(&before, "textbox", "Letters in the image");
    found(&before, "link", "help@example.com");
    assert!(before.iter().all(|(role, ..)| role != "progressbar"), "nothing is in progress");

    // Held before its first derivation, so that what is shown meanwhile can be read.
    browser
        .js("const real = Worker.prototype.postMessage;
             Worker.prototype.postMessage = function (...it) { window.go = () => real.apply(this, it); };
             document.getElementById('captcha_proof').click()")
        .await;
    let meanwhile = browser.read_out().await;
    let (.., value) = found(&meanwhile, "progressbar", "Progress of the computation");
    assert_eq!(value.as_f64(), Some(0.0));
    assert!(
        meanwhile.iter().any(|(_, name, ..)| name.starts_with("Your device is computing.")),
        "{meanwhile:#?}"
    );
    assert_eq!(browser.js("return document.querySelector('.proof [role=status]').role").await, "status");

    browser.js("window.go()").await;
    browser.until("solution", SOLVED).await;
    let after = browser.read_out().await;
    assert!(after.iter().any(|(_, name, ..)| name.starts_with("Done: no letters are needed.")), "{after:#?}");
    assert!(after.iter().all(|(role, ..)| role != "progressbar" && role != "image"));
    browser.assert_content().await;
}

#[tokio::test]
async fn without_webcrypto_or_script_there_is_the_image_alone() {
    let (_app, browser) = challenged(offering()).await;
    // As on http, anywhere but on localhost.
    let source = "Object.defineProperty(crypto, 'subtle', { value: undefined })";
    browser.cdp("Page.addScriptToEvaluateOnNewDocument", json!({ "source": source })).await;
    browser.fill(&[("captcha_answer", "nonsense")]).await;
    browser.try_password("kim", WRONG).await;
    assert!(
        browser.has("[data-proof]").await
            && !browser.shows(".proof").await
            && browser.shows(".letters").await
    );
    browser.without_script().await;
    browser.fill(&[("captcha_answer", "nonsense")]).await;
    browser.try_password("kim", WRONG).await;
    assert!(
        browser.has("[data-proof]").await
            && !browser.shows(".proof").await
            && browser.shows(".letters").await
    );
}

#[tokio::test]
async fn a_worker_that_fails_leaves_the_letters() {
    let (_app, browser) = challenged(offering()).await;
    browser.js("document.querySelector('[data-proof]').dataset.worker = '/static/none.js'").await;
    browser.js("Worker.prototype.postMessage = function () { this.onerror() }").await;
    browser.find("#captcha_proof").await.click().await.unwrap();
    assert!(browser.text(".proof [role=status]").await.contains("did not succeed"));
    browser.fill(&[("password", PASSWORD)]).await;
    browser.assert_required("captcha_answer").await;
}
