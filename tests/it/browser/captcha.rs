//! The drawn CAPTCHA, not the fixed one of the other tests.

use super::WRONG;
use crate::support::app::{Store, TestApp};
use crate::support::browser::Browser;

#[tokio::test]
async fn the_image_is_shown_and_another_one_on_request() {
    let app = TestApp::on(Store::Memory).set("captcha.provider", "image").start().await;
    let browser = Browser::start(&app.url).await;
    browser.fail(3, "kim").await;
    let first = image(&browser).await;

    browser.fill(&[("captcha_answer", "half")]).await;
    browser.follow("[name=captcha_refresh]").await;
    let second = image(&browser).await;
    assert_ne!(first, second);
    assert_eq!(browser.value("#login").await, "kim");
    assert!(browser.value("#captcha_answer").await.is_empty());
    assert!(browser.text("[role=status]").await.contains("another image"));
    assert_eq!(browser.focused().await, "password");

    // Enter in a field submits the form; it does not request another image.
    browser.fill(&[("password", WRONG)]).await;
    let field = browser.find("#captcha_answer").await;
    browser.leave_by(async { field.send_keys("nonsense\u{e007}").await.unwrap() }).await;
    assert!(browser.has("#captcha_answer-error").await);
    assert_ne!(image(&browser).await, second);
    browser.assert_content().await;
}

/// The address of the image, which has been loaded and has more than one colour.
async fn image(browser: &Browser) -> String {
    let drawn = browser
        .js("const image = document.querySelector('.captcha img');
             if (!image.complete || !image.naturalWidth) return 'not loaded';
             const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext('2d');
             canvas.drawImage(image, 0, 0);
             const bytes = canvas.getImageData(0, 0, image.naturalWidth, image.naturalHeight).data;
             if (image.naturalWidth !== image.width) return 'not at its size';
             return new Set(bytes).size > 2 ? image.src : 'blank'")
        .await;
    let source = drawn.as_str().unwrap().to_owned();
    assert!(source.contains("/captcha/"), "{source}");
    source
}
