//! Pages in colours of the owner's own: what can be read in ours can be read in each that is allowed.

use serde_json::json;

use super::WRONG;
use super::look::Look;
use crate::brand::{NAME, brand, logo};
use crate::gate::APPS;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;
use crate::support::setup::max;

#[tokio::test]
async fn every_allowed_colour_can_be_read_in_both_themes() {
    for (colour, width) in
        [("#7a1f3d", 20), ("#155fc0", 90), ("#000000", 20), ("#595959", 40), ("#0000ff", 20)]
    {
        let own = brand(&logo(width)).replace("#7a1f3d", colour).replace(NAME, &"W".repeat(40));
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
        if width == 20 {
            browser.open("/register").await;
            browser.try_password("lin", PASSWORD).await;
            assert_eq!(browser.path().await, "/account");
            look.at(&format!("brand-{name}-account")).await;
        }
        // What the proxy of an application says.
        let forwarded = json!({ "x-forwarded-proto": "https", "x-forwarded-host": "wiki.example" });
        browser.cdp("Network.enable", json!({})).await;
        browser.cdp("Network.setExtraHTTPHeaders", json!({ "headers": forwarded })).await;
        browser.open("/.gatehouse/logout").await;
        look.at(&format!("brand-{name}-gate")).await;
        assert_eq!(browser.js("return document.querySelector('.brand img').naturalWidth").await, width);
        let faults = look.faults.into_inner();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        browser.assert_content().await;
    }
}
