//! Pages in colours of the owner's own: what can be read in ours can be read in each that is allowed.

use super::WRONG;
use super::look::Look;
use crate::brand::{brand, logo};
use crate::gate::APPS;
use crate::support::app::{Store, TestApp};
use crate::support::browser::Browser;
use crate::support::setup::max;

#[tokio::test]
async fn every_allowed_colour_can_be_read_in_both_themes() {
    for (colour, width) in
        [("#7a1f3d", 20), ("#155fc0", 90), ("#000000", 20), ("#595959", 40), ("#0000ff", 20)]
    {
        let own = brand(&logo(width)).replace("#7a1f3d", colour);
        let setup = TestApp::on(Store::Memory)
            .file(&format!("{own}{APPS}"))
            .set("captcha.proof_of_work", true)
            .limit("login-account", &[max(1).per("1h").captcha()]);
        let app = setup.behind_a_proxy().start().await;
        let browser = Browser::start(&app.url).await;
        let look = Look { browser: &browser, language: "en", faults: Default::default() };
        browser.open("/login?rd=https://wiki.example/").await;
        let name = colour.trim_start_matches('#');
        look.at(&format!("brand-{name}")).await;
        browser.try_password("kim", WRONG).await;
        look.at(&format!("brand-{name}-captcha")).await;
        let painted = "return getComputedStyle(document.querySelector('button.main')).backgroundColor";
        let channel = |at: usize| u8::from_str_radix(&name[at..at + 2], 16).unwrap();
        let expected = format!("rgb({}, {}, {})", channel(0), channel(2), channel(4));
        assert_eq!(browser.js(painted).await, expected.as_str());
        browser.until("the logo", "return document.querySelector('.brand img').naturalWidth > 0").await;
        let faults = look.faults.into_inner();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        browser.assert_content().await;
    }
}
