//! Every page in every state, in both languages: nothing overflows on a phone, and everything has a label and
//! enough contrast, in light and in dark. With GATEHOUSE_PICTURES also takes pictures of all of them.

use std::time::Duration;

use gatehouse::accounts::{Account, FailureResult, Username};
use gatehouse::clock::Clock;
use serde_json::json;

use super::WRONG;
use crate::factors::totp;
use crate::support::app::{ANSWER, PASSWORD, Store, TestApp};
use crate::support::browser::{Browser, DESKTOP, NARROWEST, PHONE, pictures};
use crate::support::setup::max;

const HOUSE: &str = r#"
    [limits.login-account]
    rules = [{ max = 3, window = "1m", then = "captcha" }, { max = 4, window = "1h", then = "block" }]
    [limits.login-address]
    rules = []
    [limits.register-address]
    rules = []
    [limits.sms-phone]
    rules = [{ max = 1, window = "1m" }]
    [sms.brake]
    min_sent = 5
    min_entered = 0.9
    [[apps]]
    name = "wiki"
    hosts = ["wiki.example"]
    who = ["everyone"]
    [[apps]]
    name = "Invoices and reminders of every branch north of the river"
    hosts = ["invoices.example"]
    who = ["everyone"]
    [[apps]]
    name = "Photographs of every branch south of the river and its bridges"
    who = ["everyone"]
    [apps.oidc]
    client_id = "photos"
    redirect_uris = ["https://photographs-of-every-branch-south-of-the-river-and-its-bridges.example/callback"]
    consent = "once"
    [[apps]]
    name = "backup"
    who = ["everyone"]
    [apps.oidc]
    redirect_uris = ["http://127.0.0.1/callback"]
"#;
/// The query of a request of `backup`.
const BACKUP: &str = "client_id=backup&redirect_uri=http%3A%2F%2F127.0.0.1%3A4321%2Fcallback&response_type=code\
    &scope=openid&code_challenge_method=S256&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
/// Shows the page of an answer, without what leads on from it at once.
const SHOW: &str = "const show = answer => answer.text().then(html => {
    document.documentElement.innerHTML = html.replace(/<meta http-equiv=.refresh.[^>]*>/, ''); });";

const FAULTS: &str = include_str!("faults.js");
const AXE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/axe-core-4.14.1/node_modules/axe-core/axe.min.js");
/// With every rule that it has, those of best practice, too.
const RUN_AXE: &str = "return axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
    violations.flatMap(({ id, help, nodes }) =>
        nodes.map(({ html }) => `axe ${id}: ${help}: ${html.slice(0, 200)}`)))";

#[tokio::test]
async fn every_page_is_fit_to_be_seen_in_english() {
    tour("en").await;
}

#[tokio::test]
async fn every_page_is_fit_to_be_seen_in_chinese() {
    tour("zh-CN").await;
}

async fn tour(language: &str) {
    let (house, cramped) = tokio::join!(
        TestApp::on(Store::Memory)
            .at_localhost()
            .behind_a_proxy()
            .set("captcha.provider", "image")
            .set("captcha.proof_of_work", true)
            .set("captcha.help", "mailto:help@example.com")
            .file(HOUSE)
            .start(),
        TestApp::on(Store::Memory)
            .set("password.workers", 1)
            .set("password.queue", 1)
            .limit("login-account", &[max(1).per("1h").captcha()])
            .limit("captcha-address", &[max(1).per("10m")])
            .limit("register-address", &[max(1).per("2s")])
            .start()
    );
    for app in [&house, &cramped] {
        // Pages show times by the browser's clock, which tests do not move.
        app.clock.set(Clock::System.now());
    }
    let browser = Browser::speaking(&house.url, language).await;
    let look = Look { browser: &browser, language, faults: Default::default() };
    sign_in_pages(&look, &house).await;
    cramped_pages(&look, &cramped).await;
    register_pages(&look).await;
    account_pages(&look, &house).await;
    code_pages(&look, &house).await;
    error_pages(&look).await;
    let faults = look.faults.into_inner();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    browser.assert_content().await;
}

/// Checks pages and collects their problems.
pub struct Look<'a> {
    pub browser: &'a Browser,
    pub language: &'a str,
    pub faults: std::cell::RefCell<Vec<String>>,
}

impl Look<'_> {
    /// The page as it is, on every screen. Each screen is checked in one scheme, because colours do not change with the
    /// width; for pictures, the wider ones in both.
    pub async fn at(&self, page: &str) {
        let looks = [
            ("desktop", DESKTOP, [Some("light"), pictures().map(|_| "dark")]),
            ("phone", PHONE, [pictures().map(|_| "light"), Some("dark")]),
            ("narrow", NARROWEST, [Some("light"), None]),
        ];
        let expression = std::fs::read_to_string(AXE).expect("npm's axe-core (scripts/test installs it)");
        self.browser.cdp("Runtime.evaluate", json!({ "expression": expression })).await;
        for (kind, screen, schemes) in looks {
            self.browser.screen(screen).await;
            for scheme in schemes.into_iter().flatten() {
                self.browser.dark(scheme == "dark").await;
                let name = format!("{}-{page}-{kind}-{scheme}", self.language);
                self.check(&name).await;
                self.browser.picture(&name).await;
            }
        }
        self.browser.dark(false).await;
        self.browser.screen(DESKTOP).await;
    }

    async fn check(&self, name: &str) {
        // What axe finds hangs on colours and parts, which are the phone's on the narrowest screen, too.
        let scripts: &[&str] = if name.contains("-narrow-") { &[FAULTS] } else { &[FAULTS, RUN_AXE] };
        for script in scripts {
            let found = self.browser.js(script).await;
            let found =
                found.as_array().unwrap().iter().map(|fault| format!("{name}: {}", fault.as_str().unwrap()));
            self.faults.borrow_mut().extend(found);
        }
    }
}

async fn sign_in_pages(look: &Look<'_>, app: &TestApp) {
    let browser = look.browser;
    browser.open("/login").await;
    look.at("login").await;
    browser.open("/login?rd=https://invoices.example/").await;
    look.at("login-to-app").await;
    browser.fail(1, "kim").await;
    look.at("login-rejected").await;
    browser.try_password("kim", WRONG).await;
    browser.try_password("kim", WRONG).await;
    look.at("login-captcha").await;
    browser.find(".proof .quiet").await.click().await.unwrap();
    look.at("login-captcha-image").await;
    browser.follow("[name=captcha_refresh]").await;
    look.at("login-refreshed").await;
    browser.fill(&[("captcha_answer", "nonsense")]).await;
    browser.try_password("kim", WRONG).await;
    look.at("login-captcha-wrong").await;
    browser.open("/login").await;
    browser.try_password("kim", WRONG).await;
    look.at("login-captcha-needed").await;
    browser.find("#captcha_proof").await.click().await.unwrap();
    browser.until("solution", super::proof::SOLVED).await;
    look.at("login-captcha-solved").await;
    app.advance(Duration::from_secs(60));
    browser.fail(2, "kim").await;
    look.at("login-throttled").await;
    browser.open("/login").await;
    browser.driver.delete_all_cookies().await.unwrap();
    browser.try_password("kim", WRONG).await;
    look.at("login-expired").await;
    browser.open("/login").await;
    browser.js("document.querySelector('form').noValidate = true").await;
    browser.try_password("kim smith", "").await;
    look.at("login-invalid").await;
}

async fn cramped_pages(look: &Look<'_>, app: &TestApp) {
    let browser = look.browser;
    let login = format!("{}/login", app.url);
    // While nothing is hashed, first a challenge is required; then even a solved one does not help.
    let busy = app.services.hasher.keep_busy(false).await;
    browser.open(&login).await;
    browser.try_password("busy", WRONG).await;
    browser.fill(&[("captcha_answer", ANSWER)]).await;
    browser.try_password("busy", WRONG).await;
    drop(busy);
    assert!(browser.has("[data-wait]").await);
    browser.until("end of the wait", "return document.querySelector('[data-wait]').matches('.over')").await;
    look.at("login-busy-over").await;

    app.advance(Duration::from_secs(3600));
    browser.open(&login).await;
    browser.try_password("later", WRONG).await;
    browser.open(&login).await;
    browser.try_password("later", WRONG).await;
    look.at("login-captcha-later").await;
    // A name that nobody may have.
    for _ in 0..2 {
        browser.open(&format!("{}/register", app.url)).await;
        browser.try_password("admin", PASSWORD).await;
    }
    look.at("register-throttled").await;
}

async fn register_pages(look: &Look<'_>) {
    let browser = look.browser;
    browser.open("/register").await;
    look.at("register").await;
    browser.js("document.querySelector('form').noValidate = true").await;
    browser.try_password("kim smith", "").await;
    look.at("register-invalid").await;
    browser.try_password("kim", "short").await;
    look.at("register-short").await;
}

/// Every page for entering a number and its code.
async fn code_pages(look: &Look<'_>, app: &TestApp) {
    const NUMBER: &str = "+8613800138000";
    let browser = look.browser;
    let newest = async |number: &str| app.client().codes(number).await.remove(0);
    browser.open("/login/code").await;
    look.at("code").await;
    browser.js("document.querySelector('form').noValidate = true").await;
    browser.fill(&[("phone", "010 6552 9988")]).await;
    browser.submit().await;
    look.at("code-invalid").await;
    browser.fill(&[("phone", NUMBER)]).await;
    browser.submit().await;
    look.at("code-sent").await;
    browser.fill(&[("code", "000000")]).await;
    browser.submit().await;
    look.at("code-wrong").await;
    browser.ask_again_too_early().await;
    look.at("code-too-many").await;
    app.advance(Duration::from_secs(60));
    browser.open("/password/reset").await;
    browser.fill(&[("phone", NUMBER)]).await;
    browser.submit().await;
    look.at("reset-sent").await;
    let code = newest(NUMBER).await;
    browser.fill(&[("code", &code), ("new_password", PASSWORD)]).await;
    browser.submit().await;
    look.at("reset-no-account").await;
    app.advance(Duration::from_secs(60));
    browser.open("/register").await;
    browser.fill(&[("login", "lin"), ("phone", NUMBER)]).await;
    look.at("register-number").await;
    browser.submit().await;
    look.at("register-code").await;
    let code = newest(NUMBER).await;
    browser.fill(&[("code", &code), ("password", PASSWORD)]).await;
    browser.submit().await;
    look.at("account-phone").await;
    disable(app, "lin").await;
    browser.open("/account").await;
    look.at("account-disabled").await;
    assert!(app.services.accounts.enable_password(account(app, "lin").await.id).await.unwrap());
    browser.open("/account/phone").await;
    look.at("phone").await;
    browser.sign_out().await;
    browser.open("/dev/outbox").await;
    look.at("outbox").await;
    admin_pages(look, app, NUMBER).await;
}

async fn admin_pages(look: &Look<'_>, app: &TestApp, number: &str) {
    let browser = look.browser;
    app.administrator("watchman").await;
    browser.sign_in("watchman").await;
    browser.open("/admin/messages").await;
    look.at("messages").await;
    // It takes five networks to trip a brake on a prefix.
    for network in 1..=8 {
        app.advance(Duration::from_secs(60));
        let client = app.client_at(&format!("203.0.{network}.9"));
        let asked = client.ask_code(number, "login").await;
        let captcha = json!({ "id": asked.body["captcha"]["id"], "answer": ANSWER });
        if asked.status == 403 {
            client
                .call("/sms/codes", json!({ "phone": number, "purpose": "login", "captcha": captcha }))
                .await;
        }
    }
    browser.open("/admin/messages?state=accepted").await;
    look.at("messages-braked").await;
    disable(app, "watchman").await;
    browser.open("/account").await;
    look.at("account-disabled-admin").await;
    browser.sign_out().await;
}

/// With the longest kind of name, signed in from many places.
/// Of somebody who is signed in, long ago: an app is set up, asked for, and removed.
async fn factor_pages(look: &Look<'_>, app: &TestApp) {
    const CODE: &str = "form:has(input[value=use-totp]) button.main";
    let browser = look.browser;
    browser.open("/account/factors").await;
    look.at("factors-confirm").await;
    browser.fill(&[("current_password", PASSWORD)]).await;
    browser.submit().await;
    look.at("factors-none").await;
    browser.follow("button[value=propose-totp]").await;
    look.at("factors-scan").await;
    let secret = browser.js("return document.querySelector('code.secret').textContent").await;
    let secret = secret.as_str().unwrap().replace(' ', "");
    browser.fill(&[("code", "000000")]).await;
    browser.follow(CODE).await;
    look.at("factors-wrong").await;
    browser.fill(&[("code", &totp(app, &secret))]).await;
    browser.follow(CODE).await;
    look.at("factors-codes").await;
    browser.open("/account/factors").await;
    look.at("factors").await;
    let key = browser.authenticator(true).await;
    browser.fill(&[("label", &"龍".repeat(64))]).await;
    browser.follow("[data-passkey=add] button").await;
    look.at("factors-passkeys").await;
    browser.fail_passkey("add").await;
    look.at("factors-passkey-known").await;
    browser.unplug(&key).await;
    let long = "龍".repeat(64);
    let visitor = Browser::speaking(&app.url, look.language).await;
    visitor.open("/login").await;
    visitor.try_password(&long, PASSWORD).await;
    let there = Look { browser: &visitor, language: look.language, faults: Default::default() };
    there.at("factor").await;
    visitor.fill(&[("code", "000000")]).await;
    visitor.submit().await;
    there.at("factor-wrong").await;
    look.faults.borrow_mut().extend(there.faults.into_inner());
    visitor.assert_content().await;
    app.advance(Duration::from_secs(16 * 60));
    browser.open("/account").await;
    look.at("account-confirm-first").await;
    browser.open("/account/factors").await;
    look.at("factors-confirm-code").await;
    browser.fill(&[("code", &totp(app, &secret))]).await;
    browser.submit().await;
    browser.follow("button[value=remove-passkey]").await;
    // What its codes have proved ends with the app: nothing is offered without another confirmation.
    browser.follow("button[value=remove-totp]").await;
    look.at("factors-removed").await;
}

/// The pages on the way to a client of OpenID Connect.
async fn client_pages(look: &Look<'_>) {
    let browser = look.browser;
    browser.open("/oauth/authorize?client_id=nobody").await;
    look.at("client-unknown").await;
    browser
        .open(&format!("/oauth/authorize?{BACKUP}&prompt=login&state=x&login_hint={}", "x".repeat(4_096)))
        .await;
    look.at("client-long").await;
    browser.open(&format!("/oauth/authorize?{BACKUP}")).await;
    look.at("consent-native").await;
    let photos =
        "https%3A%2F%2Fphotographs-of-every-branch-south-of-the-river-and-its-bridges.example%2Fcallback";
    let asked =
        BACKUP.replace("backup", "photos").replace("scope=openid", "scope=openid+profile+email+groups");
    let asked = asked.replace("http%3A%2F%2F127.0.0.1%3A4321%2Fcallback", photos);
    browser.open(&format!("/oauth/authorize?{asked}")).await;
    look.at("consent").await;
    let agree = "const sent = new URLSearchParams(new FormData(document.querySelector('main form')));
        sent.set('agree', 'yes');
        return fetch('/oauth/consent', { method: 'POST', body: sent }).then(show)";
    browser.js(&format!("{SHOW}{agree}")).await;
    look.at("continue-app").await;
    browser.js(&format!("{SHOW}return fetch('/oauth/continue?{BACKUP}').then(show)")).await;
    look.at("continue").await;
    browser
        .js(&format!("{SHOW}return fetch('/oauth/authorize?{asked}&response_mode=form_post').then(show)"))
        .await;
    look.at("continue-form").await;
    browser.open("/oauth/logout").await;
    look.at("client-logout").await;
}

async fn account_pages(look: &Look<'_>, app: &TestApp) {
    let browser = look.browser;
    let long = "龍".repeat(64);
    browser.open("/register").await;
    browser.try_password(&long, PASSWORD).await;
    look.at("account-new").await;
    for agent in [
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Safari/604.1",
        "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 SamsungBrowser/27.0 Chrome/125.0 Mobile",
        "nothing that anybody knows, and at great length: 0123456789012345678901234567890123456789012345",
    ] {
        app.advance(Duration::from_secs(40_000));
        let call = app.client().http.post(format!("{}/api/v1/login", app.url)).header("user-agent", agent);
        let answer =
            call.json(&serde_json::json!({ "login": long, "password": PASSWORD })).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    factor_pages(look, app).await;
    client_pages(look).await;
    browser.open("/account").await;
    look.at("account").await;
    browser.fill(&[("current_password", WRONG), ("new_password", PASSWORD)]).await;
    browser.submit().await;
    look.at("account-wrong").await;
    for _ in 0..2 {
        browser.fill(&[("current_password", WRONG), ("new_password", PASSWORD)]).await;
        browser.submit().await;
    }
    look.at("account-captcha").await;
    disable(app, &long).await;
    browser.open("/account").await;
    look.at("account-disabled-asks").await;
    browser.sign_out().await;
    look.at("login-signed-out").await;

    let login = Username::parse("gatekeeper").unwrap();
    let hash = app.services.hasher.hash_new(PASSWORD, &login).await.unwrap().unwrap();
    app.services.accounts.create_first_admin(&login, &hash).await.unwrap().unwrap();
    browser.sign_in("gatekeeper").await;
    look.at("account-must-change").await;
    browser.sign_out().await;
}

async fn account(app: &TestApp, login: &str) -> Account {
    app.services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap()
}

/// As after a hundred wrong passwords in a row.
pub async fn disable(app: &TestApp, login: &str) {
    let account = account(app, login).await;
    assert_eq!(app.services.accounts.count_failure(&account, 1, 1).await.unwrap(), FailureResult::Disabled);
}

async fn error_pages(look: &Look<'_>) {
    let browser = look.browser;
    browser.open("/nothing-here").await;
    look.at("error-404").await;
    browser.open("/logout").await;
    look.at("error-405").await;
    browser.open("/problems/captcha-required").await;
    look.at("problem").await;
    browser.find("summary").await.click().await.unwrap();
    look.at("problem-all").await;
}
