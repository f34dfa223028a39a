//! The console in every state, checked like the other pages in `look.rs`.

use std::time::Duration;

use gatehouse::clock::Clock;
use gatehouse::config::Limits;

use thirtyfour::Key;

use super::WRONG;
use super::look::{Look, disable};
use crate::gate::account;
use crate::guard::Program;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::{Browser, DESKTOP, PHONE, Screen};

const HOUSE: &str = r#"# What the tests of pictures run on.
[server]
trusted_proxies = ["127.0.0.1/32"]

# Careful: the support team counts on these.
[limits.login-account]
rules = [
    { max = 3, window = "1m", then = "captcha" },
    { max = 20, window = "1h", then = "block" },
]

[limits.sms-total]
mode = "monitor"
rules = [{ max = 2, window = "24h" }]

[limits.custom.reply]
rules = [{ max = 3, per = "month", timezone = "Asia/Shanghai" }]
"#;

#[tokio::test]
async fn the_console_is_fit_to_be_seen_in_english() {
    tour("en").await;
}

#[tokio::test]
async fn the_console_is_fit_to_be_seen_in_chinese() {
    tour("zh-CN").await;
}

async fn tour(language: &str) {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    // Pages show times by the browser's clock, which tests do not move.
    app.clock.set(Clock::System.now().minus(Duration::from_secs(50 * 60)));
    app.administrator("watchman").await;
    let browser = Browser::speaking(&app.url, language).await;
    let look = Look { browser: &browser, language, faults: Default::default() };
    browser.sign_in("watchman").await;
    browser.open("/admin").await;
    look.at("console-quiet").await;
    fits_a_phone(&browser).await;
    traffic(&app).await;
    app.services.tuning.sync_once().await;
    browser.open("/admin").await;
    look.at("console").await;
    let other = app.beside(TestApp::on(Store::Memory)).await;
    other.services.tuning.sync_once().await;
    browser.open("/admin").await;
    look.at("console-warned").await;
    other.stop().await;
    limits(&look).await;
    answers(&look).await;
    applications(&look, &app).await;
    browser.open("/admin/events").await;
    look.at("console-events").await;
    nothing_of_an_event_is_cut_on_a_phone(&browser).await;
    browser.open("/admin/events?limit=login-account&outcome=throttled").await;
    look.at("console-events-limit").await;
    lookup(&look, &app).await;
    for page in ["messages", "tokens", "accounts"] {
        browser.open(&format!("/admin/{page}")).await;
        look.at(&format!("console-{page}")).await;
    }
    browser.open("/admin/groups").await;
    look.at("console-groups").await;
    browser.open("/admin/groups/staff").await;
    look.at("console-group").await;
    browser.open("/admin/accounts").await;
    browser.js("document.querySelector('[name=account]').click()").await;
    look.at("console-accounts-chosen").await;
    browser.follow("a[href^='/admin/accounts/']").await;
    browser.js("for (const d of document.querySelectorAll('details')) d.open = true").await;
    look.at("console-account").await;
    attack(&look, &app).await;
    let faults = look.faults.into_inner();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    browser.assert_content().await;
}

/// A spray and, beside it, codes for one prefix, and failures at another program's login: the banner, the line on other pages, and one line of events.
async fn attack(look: &Look<'_>, app: &TestApp) {
    let browser = look.browser;
    for host in 1..=70 {
        app.client_at(&format!("198.51.{host}.9")).login(&format!("victim-{host}"), WRONG).await;
    }
    for number in 0..31 {
        app.client_at("203.0.113.66").ask_code(&format!("+861380013{:04}", 100 + number), "login").await;
    }
    let watchman = app.client();
    assert_eq!(watchman.login("watchman", PASSWORD).await.status, 200);
    for (scope, failures) in [("guard:shop", 52), ("guard:staff-mail", 3)] {
        let program = Program::of(app, &watchman, scope).await;
        for number in 0..failures {
            program.fail_from(&format!("192.0.{number}.9"), &format!("victim-{number}")).await;
        }
        program.succeed("ada@example.com").await;
    }
    browser.open("/admin").await;
    look.at("console-attack").await;
    browser.open("/admin/events?action=attempt&realm=staff-mail").await;
    look.at("console-events-realm").await;
    browser.open("/admin/events").await;
    browser.js("for (const d of document.querySelectorAll('#filter, .events details')) d.open = true").await;
    look.at("console-attack-events").await;
    browser.follow(".events a[href^='/admin/events?action=send']").await;
    look.at("console-attack-each").await;
    browser.follow(".events a[href^='/admin/lookup?phone=']").await;
    look.at("console-lookup-by-hash").await;
}

/// The name of the reader is readable, and the menu opens, shows where the reader is, and closes by Escape.
async fn fits_a_phone(browser: &Browser) {
    browser.screen(PHONE).await;
    browser.open("/admin/tokens").await;
    let whole =
        "const name = document.querySelector('.who-name'); return name.scrollWidth <= name.clientWidth";
    assert_eq!(browser.js(whole).await, true, "the name is cut");
    let seen = "return document.querySelector('.sidebar [aria-current]').checkVisibility()";
    assert_eq!(browser.js(seen).await, false, "the menu is open from the start");
    browser.find(".menu").await.click().await.unwrap();
    assert_eq!(browser.js(seen).await, true);
    browser.find("#find").await.send_keys(Key::Escape).await.unwrap();
    assert_eq!(browser.js(seen).await, false);
    browser.screen(DESKTOP).await;
    assert_eq!(browser.js(seen).await, true, "a wide screen has the menu at its side");
}

async fn nothing_of_an_event_is_cut_on_a_phone(browser: &Browser) {
    browser.screen(PHONE).await;
    let cut = "return [...document.querySelectorAll('.event-line > :is(.what, .whom, .net)')]
        .filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.textContent)";
    assert_eq!(browser.js(cut).await, serde_json::json!([]));
    browser.screen(DESKTOP).await;
}

async fn limits(look: &Look<'_>) {
    let browser = look.browser;
    browser.open("/admin/limits").await;
    look.at("console-limits").await;
    browser.open("/admin/limits/edit/login-account").await;
    look.at("console-editor").await;
    browser.fill(&[("max-0", "three"), ("window-1", "soon")]).await;
    browser.follow("[name=do][value=save]").await;
    look.at("console-editor-mistakes").await;
    browser.open("/admin/limits/edit/custom.reply").await;
    look.at("console-editor-own").await;
    browser.open("/admin/limits/edit/login-account").await;
    browser.fill(&[("max-0", "2"), ("window-1", "2h")]).await;
    browser.follow("[name=do][value=try]").await;
    look.at("console-editor-tried").await;
    browser.fill(&[("reason", "A flood of guesses at one account.")]).await;
    browser.follow("[name=do][value=save]").await;
    look.at("console-confirm").await;
    browser.fill(&[("password", PASSWORD)]).await;
    browser.submit().await;
    look.at("console-limits-saved").await;
    browser.open("/admin/limits/toml").await;
    browser.js("document.querySelector('main details').open = true").await;
    look.at("console-toml").await;
    browser.open("/admin/limits/history").await;
    browser.js("for (const d of document.querySelectorAll('details')) d.open = true").await;
    look.at("console-history").await;
    browser.follow(".acts > a").await;
    look.at("console-rollback").await;
}

async fn answers(look: &Look<'_>) {
    let browser = look.browser;
    browser.open("/admin/access").await;
    look.at("console-access-none").await;
    browser.open("/admin/access?do=deny&network=0.0.0.0/0").await;
    look.at("console-access-deny").await;
    browser.fill(&[("deny-reason", "A flood of guesses from everywhere.")]).await;
    browser.submit().await;
    look.at("console-access-mistake").await;
    browser.open("/admin/access?do=deny&network=198.18.66.0/24").await;
    browser.fill(&[("deny-reason", "A flood of guesses from one network.")]).await;
    browser.submit().await;
    look.at("console-access").await;
    browser.open("/admin/limits/history?of=answers").await;
    look.at("console-history-answers").await;
    browser.open("/admin/limits/history/undo").await;
    look.at("console-undo").await;
    browser.open("/admin").await;
    look.at("console-answered").await;
}

async fn applications(look: &Look<'_>, app: &TestApp) {
    let browser = look.browser;
    browser.open("/admin/apps").await;
    look.at("console-apps-none").await;
    browser.open("/admin/apps/edit").await;
    look.at("console-apps-example").await;
    for (login, groups) in [("olga", &["staff"][..]), ("pia", &["sales"]), ("uwe", &["staff", "on-call"])] {
        account(app, login, groups).await;
    }
    let draft = "[[apps]]\nname = 'wiki'\nhosts = ['wiki.example', 'notes.example']\nwho = ['group:staff', 'kimm', 'group:nobody']\npublic = ['/health']\n\n[[apps.parts]]\npath = '/admin/*'\nwho = ['group:on-call']\nsigned_in_within = '1h'\n";
    browser.fill(&[("toml", draft)]).await;
    browser.follow("[name=do][value=try]").await;
    look.at("console-apps-tried").await;
    browser.fill(&[("reason", "The wiki goes behind the gate.")]).await;
    browser.follow("[name=do][value=save]").await;
    look.at("console-apps").await;
    browser.open("/admin/apps?proxy=nginx").await;
    look.at("console-apps-file").await;
    application(look).await;
    browser.open("/admin/apps/edit").await;
    let open = draft.replace("'group:staff'", "'everyone'").replace("'/health'", "'health'");
    browser.fill(&[("toml", &open)]).await;
    browser.follow("[name=do][value=try]").await;
    look.at("console-apps-mistake").await;
}

async fn application(look: &Look<'_>) {
    let browser = look.browser;
    browser.open("/admin/apps/form").await;
    // Without an event: the trial of the draft would be drawn meanwhile.
    browser.js("document.querySelector('#oidc').checked = true").await;
    look.at("console-app-new").await;
    browser.find("#oidc").await.click().await.unwrap();
    look.at("console-app-new-client").await;
    browser.open("/admin/apps/form?app=wiki").await;
    browser.js("for (const d of document.querySelectorAll('main details')) d.open = true").await;
    look.at("console-app").await;
    browser.find("[value=everyone]").await.click().await.unwrap();
    browser.fill(&[("hosts", "wiki.example"), ("signed_in_within-0", "10m")]).await;
    browser.follow("button.plain[value=try]").await;
    look.at("console-app-tried").await;
    browser.fill(&[("hosts", "Wiki.example"), ("path-0", "admin"), ("more", "Ada")]).await;
    browser.follow("button.plain[value=try]").await;
    look.at("console-app-mistakes").await;
}

async fn lookup(look: &Look<'_>, app: &TestApp) {
    let browser = look.browser;
    for _ in 0..4 {
        app.client_at("203.0.113.66").login("kim", WRONG).await;
        app.advance(Duration::from_secs(9));
    }
    browser.open("/admin/lookup").await;
    look.at("console-lookup").await;
    browser.fill(&[("asked", "1/2")]).await;
    browser.submit().await;
    look.at("console-lookup-unreadable").await;
    browser.fill(&[("asked", "kim")]).await;
    browser.submit().await;
    browser.js("document.querySelector('#limit-0 details').open = true").await;
    look.at("console-lookup-found").await;
    disable(app, "kim").await;
    browser.open("/admin/lookup?typed").await;
    browser.js("document.querySelector('#disabled details').open = true").await;
    look.at("console-lookup-disabled").await;
    browser.fill(&[("asked", "203.0.113.66")]).await;
    browser.submit().await;
    look.at("console-lookup-address").await;
}

/// Thirty limits fit on a screen and a third, and on six of a phone.
#[tokio::test]
async fn all_limits_are_seen_at_a_glance() {
    let custom = "\n[limits.custom.part-1]\nrules = [{ max = 1, window = '1h' }]\n";
    let app = TestApp::with(Store::Memory, &format!("{HOUSE}{custom}")).await;
    app.clock.set(Clock::System.now().minus(Duration::from_secs(50 * 60)));
    app.administrator("watchman").await;
    traffic(&app).await;
    for language in ["en", "zh-CN"] {
        let browser = Browser::speaking(&app.url, language).await;
        browser.sign_in("watchman").await;
        for (screen, most) in [(Screen { width: 1440, height: 900, phone: false }, 1_450), (PHONE, 6_000)] {
            browser.screen(screen).await;
            browser.open("/admin/limits").await;
            let shown = browser.js("return document.querySelectorAll('th.name').length").await;
            assert_eq!(shown, Limits::default().iter().count() + 2, "each of ours, and two of theirs");
            let height = browser.js("return document.scrollingElement.scrollHeight").await;
            assert!(height.as_u64().unwrap() <= most, "{language}: {height} > {most}");
        }
    }
}

/// An hour of people who sign in, mistype and request codes, and somebody who guesses.
async fn traffic(app: &TestApp) {
    for login in ["kim", "lin", "ada", "grace"] {
        app.register(login).await;
    }
    let people = ["203.0.113.7", "198.51.100.20", "192.0.2.99", "2001:db8:7::1"];
    // No two at the same time, because the order matters.
    let then = || app.advance(Duration::from_secs(1));
    for minute in 0_usize..48 {
        let next = app.clock.now().plus(Duration::from_secs(60));
        for (login, from) in ["kim", "lin", "ada", "grace"].into_iter().zip(people) {
            if (minute * 3 + login.len()) % 7 == 0 {
                app.client_at(from).login(login, WRONG).await;
                then();
            }
            if (minute + login.len() * 7) % 5 < 3 {
                app.client_at(from).login(login, PASSWORD).await;
                then();
            }
        }
        if minute % 12 == 5 {
            let number = format!("+861380013{:04}", 8000 + minute);
            app.client_at(people[minute % 4]).ask_code(&number, "login").await;
            then();
        }
        if (25..40).contains(&minute) {
            for _ in 0..(minute % 6 + 3) {
                app.client_at("203.0.113.66").login("kim", WRONG).await;
                then();
            }
        }
        app.advance(next.since(app.clock.now()));
    }
}
