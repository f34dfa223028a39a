//! An administrator adds an application, takes one from some and gives it to others, and sees beforehand who that is.

use gatehouse::clock::Clock;

use super::look::Look;
use crate::gate::{APPS, account, inside};
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::{Browser, DESKTOP, PHONE, Screen};

const PAGE: &str = "https://wiki.example/page";

#[tokio::test]
async fn who_could_get_in_is_seen_before_it_is_saved_and_the_gate_follows() {
    let app = TestApp::on(Store::Memory).file(APPS).behind_a_proxy().start().await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    account(&app, "ada", &[]).await;
    account(&app, "bob", &["staff"]).await;
    account(&app, "eve", &["sales"]).await;
    let (ada, bob) = (inside(&app, PAGE, "ada").await, inside(&app, PAGE, "bob").await);
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    browser.follow("a[href='/admin']").await;
    browser.follow(".sidebar a[href='/admin/apps']").await;
    let list = browser.text("main").await;
    for told in ["wiki", "wiki.example", "group:staff, ada", "whoever has an account"] {
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

#[tokio::test]
async fn an_application_is_added_by_form_tried_and_saved_on_every_screen_and_without_a_script() {
    let app = TestApp::on(Store::Memory).file(APPS).behind_a_proxy().start().await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    account(&app, "bob", &["staff"]).await;
    account(&app, "eve", &[]).await;
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    for (screen, name) in [(DESKTOP, "notes"), (PHONE, "shop")] {
        browser.screen(screen).await;
        browser.open("/admin/apps").await;
        browser.follow("a.button[href='/admin/apps/form']").await;
        let warning = "return document.querySelector('.everyone').checkVisibility()";
        assert_eq!(browser.js(warning).await, false);
        browser.find("[value=everyone]").await.click().await.unwrap();
        assert_eq!(browser.js(warning).await, true, "that registration is open to strangers");
        browser.find("[value=everyone]").await.click().await.unwrap();
        let hosts = format!("{name}.example\nalso-{name}.example");
        browser.fill(&[("name", name), ("hosts", &hosts), ("more", "eve")]).await;
        browser.find("[value='group:staff']").await.click().await.unwrap();
        if screen == DESKTOP {
            let shown = "return document.getElementById('preview').innerText.includes('Would gain access')";
            browser.until("the trial while it is typed", shown).await;
        }
        // The row comes without a script on the phone, and what was typed stays.
        browser.follow("[name=do][value=add]").await;
        browser.fill(&[("path-0", "/admin/*"), ("signed_in_within-0", "soon")]).await;
        browser.follow("[name=do][value=try].plain").await;
        assert!(browser.text(".notice.bad").await.contains("soon"));
        browser.find(".notice.bad a").await.click().await.unwrap();
        assert_eq!(browser.focused().await, "signed_in_within-0");
        browser.fill(&[("signed_in_within-0", "1h")]).await;
        browser.follow("button.plain[value=try]").await;
        let told = browser.text("#preview").await;
        assert!(told.contains("Would gain access") && told.contains("bob") && told.contains("eve"), "{told}");
        browser.fill(&[("reason", "It moves in.")]).await;
        browser.follow("button[value=save]").await;
        if browser.path().await.starts_with("/admin/apps/form") {
            browser.fill(&[("password", PASSWORD)]).await;
            browser.submit().await;
        }
        // The file for the proxy is open, where the hosts are new.
        let file = browser.text("#proxy-file pre").await;
        assert!(file.contains(&format!("{name}.example")), "{file}");
        assert!(browser.text(".notice.good").await.contains("The new rules are in force"));
        let there = format!("https://{name}.example/page");
        assert_eq!(inside(&app, &there, "eve").await.ask("GET", &there).await.status, 200);
        browser.without_script().await;
    }
    let file = std::fs::read_to_string(app.file()).unwrap();
    assert_eq!(file.matches("signed_in_within = \"1h\"").count(), 2, "{file}");
    browser.assert_content().await;
}

#[tokio::test]
async fn a_dozen_applications_and_a_file_for_the_proxy_fit_little_more_than_a_screen() {
    let apps = (0..12).map(|n| {
        format!("[[apps]]\nname = 'application {n}'\nhosts = ['a{n}.example', 'b{n}.example']\nwho = ['group:staff', 'ada']\n")
    });
    let app = TestApp::on(Store::Memory).file(&apps.collect::<String>()).behind_a_proxy().start().await;
    app.administrator("watchman").await;
    account(&app, "ada", &["staff"]).await;
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    for (screen, most) in [(Screen { width: 1440, height: 900, phone: false }, 1_200), (PHONE, 5_000)] {
        browser.screen(screen).await;
        browser.open("/admin/apps").await;
        let height = browser.js("return document.documentElement.scrollHeight").await.as_i64().unwrap();
        assert!(height <= most, "{height} at {}", screen.width);
    }
    let file = "return document.querySelector('pre[data-copy]').checkVisibility()";
    assert_eq!(browser.js(file).await, false);
    browser.open("/admin/apps?proxy=caddy&app=application+3").await;
    assert_eq!(browser.js(file).await, true, "it is open where it was asked for");
    assert!(browser.text("pre[data-copy]").await.contains("a3.example"));
}

#[tokio::test]
async fn grafana_is_connected_by_four_clicks() {
    let app = TestApp::on(Store::Memory).start().await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    browser.open("/admin/apps").await;
    browser.follow("a.button[href='/admin/apps/form']").await;
    let uri = "https://dash.example/login/generic_oauth";
    browser.add_client("dash", uri).await;
    assert!(browser.text("main").await.contains("There is none yet"));
    let look = Look { browser: &browser, language: "en", faults: Default::default() };
    look.at("console-client").await;
    browser.leave_by(async { browser.find("#secrets ~ form .main").await.click().await.unwrap() }).await;
    assert!(browser.text("#secret").await.starts_with("ghc_"));
    browser.js("document.querySelector('#settings ~ details').open = true").await;
    assert!(browser.text("#settings ~ details").await.contains("client_id = dash"));
    look.at("console-client-secret").await;
    let grafana = browser.text("#settings ~ details").await;
    assert!(grafana.contains("root_url = https://dash.example"), "{grafana}");
    browser.follow("[name=test]").await;
    let tested = browser.text(".notice").await;
    assert!(tested.contains(&format!("ok   redirect URI {uri}")) && !tested.contains("FAIL"), "{tested}");
    look.at("console-client-test").await;
    browser.follow("#secrets ~ ul .danger").await;
    assert!(browser.text(".notice.good").await.contains("dropped"));
    let faults = look.faults.into_inner();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    browser.assert_content().await;
}
