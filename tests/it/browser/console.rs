//! An administrator sees an attack, tries and changes a limit, and lets a person in.

use std::time::Duration;

use gatehouse::clock::Clock;

use thirtyfour::{Key, TypingData};

use super::{WRONG, hashes_during};
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::{Browser, DESKTOP, PHONE, Screen};

const HOUSE: &str = r#"[server]
trusted_proxies = ["127.0.0.1/32"]

# The support team counts on these.
[limits.login-account]
rules = [{ max = 8, window = "1h", then = "block" }]

[limits.login-address]
rules = []
"#;

#[tokio::test]
async fn an_attack_is_seen_a_limit_tightened_and_the_person_let_in() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    app.register("kim").await;
    let browser = Browser::start(&app.url).await;
    sees_the_attack(&browser, &app).await;
    tries_a_draft(&browser).await;
    stops_a_trial(&browser).await;
    saves_it_with_a_reason_and_the_password(&browser, &app).await;
    it_is_in_force(&browser, &app).await;
    looks_the_person_up_and_lets_them_in(&browser, &app).await;
    brings_back_what_was_there_before(&browser, &app).await;
    browser.assert_content().await;
}

async fn sees_the_attack(browser: &Browser, app: &TestApp) {
    browser.sign_in("watchman").await;
    browser.follow("a[href='/admin']").await;
    assert_eq!(browser.text(".tile.refused strong").await, "0");
    for host in 1..=11 {
        app.client_at(&format!("203.0.113.{host}")).login("kim", WRONG).await;
        app.advance(Duration::from_secs(1));
    }
    browser.follow("a.button[href='/admin']").await;
    assert_eq!(browser.text(".tile.wrong strong").await, "8");
    assert_eq!(browser.text(".tile.refused strong").await, "3");
    assert!(browser.text("#uses ~ table").await.contains("Failed sign-ins to one account"));
    browser.follow("#uses ~ table a").await;
    assert_eq!(browser.path().await, "/admin/events?limit=login-account");
    assert!(browser.text(".events").await.contains("refused by a limit"));
}

async fn tries_a_draft(browser: &Browser) {
    browser.open("/admin/limits").await;
    browser.follow("a[href='/admin/limits/edit/login-account']").await;
    assert!(browser.text("#in-force ~ ul").await.contains("8 failed sign-ins within 1 hour"));
    browser.fill(&[("max-0", "none")]).await;
    browser.follow("button[value=try]").await;
    assert!(browser.text("#max-0-error").await.contains("whole number"));
    assert_eq!(browser.value("#max-0").await, "none", "nothing typed is lost");
    // A draft is also tried while it is typed.
    browser.fill(&[("max-0", "4")]).await;
    let shown = "return document.querySelector('.compare')?.innerText.includes('were compared') ?? false";
    browser.until("preview", shown).await;
    let guesses = "return [...document.querySelectorAll('.compare tr')]
        .find((row) => row.innerText.includes('were compared')).innerText";
    let told = browser.js(guesses).await;
    let told = told.as_str().unwrap();
    assert!(told.contains('8') && told.contains('4'), "{told}");
}

/// On a record so large that it does not end.
async fn stops_a_trial(browser: &Browser) {
    let never = "window.answered = window.fetch; window.fetch = async (url, { signal }) => new Response(new ReadableStream({ start(body) {
        body.enqueue(new TextEncoder().encode('3\\n41\\n'));
        signal.addEventListener('abort', () => { window.hungUp = true; body.error(signal.reason); });
    } }), { headers: { 'Content-Type': 'text/plain; charset=utf-8' } })";
    browser.js(never).await;
    browser.find("button[value=try]").await.click().await.unwrap();
    browser.until("progress", "return document.querySelector('.preview progress')?.value === 41").await;
    browser.find(".preview .progress button").await.click().await.unwrap();
    browser
        .until("that it stopped", "return document.querySelector('.preview [role=status]')?.textContent.startsWith('Stopped') ?? false")
        .await;
    assert_eq!(browser.js("return window.hungUp").await, true);
    assert!(!browser.has(".preview progress").await);
    assert_eq!(browser.js("return document.activeElement.value").await, "try");
    assert_eq!(browser.value("#max-0").await, "4");
    // Where nothing answers, the figures of the draft before do not stand for what is typed now.
    browser.js("window.fetch = window.answered").await;
    browser.fill(&[("max-0", "5")]).await;
    browser.until("a trial", "return document.querySelector('.preview .compare') !== null").await;
    browser.js("window.fetch = async () => { throw new TypeError(); }").await;
    browser.fill(&[("max-0", "6")]).await;
    let failed = "return document.querySelector('.preview [role=status]')?.textContent.startsWith('The trial could not') ?? false";
    browser.until("that it failed", failed).await;
    assert!(!browser.has(".preview .compare").await);
    browser.js("window.fetch = window.answered").await;
    browser.fill(&[("max-0", "4")]).await;
}

async fn saves_it_with_a_reason_and_the_password(browser: &Browser, app: &TestApp) {
    browser.follow("button[value=save]").await;
    assert_eq!(browser.focused().await, "reason", "a change has a reason");
    // The password was entered too long ago.
    app.advance(Duration::from_secs(20 * 60));
    browser.fill(&[("reason", "Guesses at kim from many addresses")]).await;
    browser.follow("button[value=save]").await;
    assert_eq!(browser.text("h1").await, "Confirm your password");
    browser.fill(&[("password", WRONG)]).await;
    browser.submit().await;
    assert!(browser.has("#password-error").await);
    browser.fill(&[("password", PASSWORD)]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/admin/limits");
    let told = browser.text(".notice.good").await;
    assert!(told.contains("login-account: 8 → 4 in 1 hour") && told.contains("Saved"), "{told}");
    assert_eq!(browser.text(":focus").await, "login-account: 8 → 4 in 1 hour");
}

async fn it_is_in_force(browser: &Browser, app: &TestApp) {
    assert!(browser.text("#limit-login-account .rules").await.contains("4 / 1 h → refuse"));
    browser.find("#limit-login-account summary").await.send_keys(Key::Enter).await.unwrap();
    let words = browser.text("#limit-login-account details").await;
    assert!(words.contains("4 failed sign-ins within 1 hour") && words.contains("login-account"), "{words}");
    browser.find(".latest summary").await.click().await.unwrap();
    let changes = browser.text(".changes").await;
    assert!(changes.contains("watchman") && changes.contains("Guesses at kim"), "{changes}");
    let written = std::fs::read_to_string(app.file()).unwrap();
    assert!(written.contains("# The support team counts on these."), "{written}");
    app.register("lin").await;
    let client = app.client_at("198.51.100.1");
    let verified = hashes_during(app, async {
        for _ in 0..7 {
            client.login("lin", "wrong").await;
        }
    });
    assert_eq!(verified.await, 4);
}

async fn looks_the_person_up_and_lets_them_in(browser: &Browser, app: &TestApp) {
    let kim = app.client_at("192.0.2.7");
    assert_eq!(kim.login("kim", PASSWORD).await.problem(), "throttled");
    browser.follow(".sidebar a[href='/admin/lookup']").await;
    browser.fill(&[("asked", "Kim")]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/admin/lookup?typed", "whom one looks up is in no address");
    assert!(browser.text("#person").await.contains("kim"));
    let line = browser.text(".lines li").await;
    assert!(line.contains("4 failed sign-ins within 1 hour") && line.contains("4 of 4 used"), "{line}");
    assert!(line.contains("Next one possible at"), "{line}");
    assert!(browser.text("#why ~ ul").await.contains("refused by a limit"));
    browser.find("#limit-0 summary").await.click().await.unwrap();
    browser.fill(&[("reason-0", "It was not her: she called")]).await;
    browser.follow("#limit-0 button.danger").await;
    assert!(browser.text(".notice.good").await.contains("Unlocked"));
    assert!(browser.text(".limit").await.contains("nothing counted"));
    browser.js("for (const d of document.querySelectorAll('#why ~ ul details')) d.open = true").await;
    assert!(browser.text("#why ~ ul").await.contains("It was not her"));
    assert_eq!(kim.login("kim", PASSWORD).await.status, 200);
}

async fn brings_back_what_was_there_before(browser: &Browser, app: &TestApp) {
    browser.open("/admin/limits/history").await;
    browser.follow(".acts > a").await;
    assert!(browser.text(".diff").await.contains("max = 8"));
    browser.fill(&[("reason", "It was a test")]).await;
    browser.submit().await;
    let told = browser.text(".notice.good").await;
    assert!(told.contains("login-account: 4 → 8 in 1 hour") && told.contains("earlier settings"), "{told}");
    assert!(std::fs::read_to_string(app.file()).unwrap().contains("max = 8"));
}

/// A line unfolds by a key and stays where it is; dragging over the chart leads to that time.
#[tokio::test]
async fn an_event_unfolds_by_a_key_and_a_drag_over_the_chart_zooms() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    for host in 1..=30 {
        app.client_at(&format!("203.0.{host}.7")).login(&format!("kim-{host}"), WRONG).await;
        app.advance(Duration::from_secs(1));
    }
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    browser.screen(Screen { width: 1440, height: 900, phone: false }).await;
    browser.open("/admin/events?each=1").await;
    let tops = "return [...document.querySelectorAll('.event-line')].map((line) => line.getBoundingClientRect().top)";
    let before = browser.js(tops).await;
    let fold = "const lines = [...document.querySelectorAll('.event-line')].map((line) => line.getBoundingClientRect());
        return [lines.filter((line) => line.bottom <= innerHeight).length, Math.max(...lines.map((line) => line.height))]";
    let shown = browser.js(fold).await;
    assert!(
        shown[0].as_u64().unwrap() >= 15 && shown[1].as_f64().unwrap() <= 32.0,
        "above the fold: {shown}"
    );
    let summary = browser.find(".events summary").await;
    summary.send_keys(Key::Enter).await.unwrap();
    assert!(browser.text(".events details[open] dl").await.contains("request"));
    assert_eq!(browser.js(tops).await[0], before[0], "the line stays where it was");
    let drag = "const plot = document.querySelector('.plot'), { left, top, width } = plot.getBoundingClientRect();
        for (const [type, part] of [['pointerdown', 0.5], ['pointermove', 0.6], ['pointermove', 0.75], ['pointerup', 0.75]])
            plot.dispatchEvent(new PointerEvent(type, { clientX: left + part * width, clientY: top + 5, pointerId: 1, bubbles: true }))";
    browser.js("Element.prototype.setPointerCapture = () => {}").await;
    browser.leave_by(async { drop(browser.js(drag).await) }).await;
    let path = browser.path().await;
    assert!(path.contains("each=1") && path.contains("since=") && path.contains("until="), "{path}");
    assert_eq!(browser.js("return document.querySelectorAll('.filter-chip').length").await, 3);
    browser.assert_content().await;
}

/// By keys alone, from any page; what was typed is in no URL.
#[tokio::test]
async fn a_slash_finds_pages_limits_accounts_and_subjects() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.administrator("watchman").await;
    for name in ["ada", "adam"] {
        app.register(name).await;
    }
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    search(&browser, Key::Control + "k", "appl").await;
    assert_eq!(browser.path().await, "/admin/apps");
    search(&browser, "/", "login-account").await;
    assert_eq!(browser.path().await, "/admin/limits/edit/login-account");
    search(&browser, "/", "adam").await;
    assert!(browser.path().await.starts_with("/admin/accounts/"));
    search(&browser, "/", "ad").await;
    let found = browser.text(".found").await;
    assert!(
        browser.path().await == "/admin/find" && found.contains("ada") && found.contains("adam"),
        "{found}"
    );
    search(&browser, "/", "198.51.100.7").await;
    assert!(
        browser.path().await == "/admin/lookup?typed"
            && browser.text("#person").await.contains("198.51.100.7")
    );
    browser.open("/admin/find").await;
    assert_eq!(browser.text("h1").await, "Search");
    browser.open("/admin/lookup").await;
    assert_eq!(browser.value("#asked").await, "", "it opens empty");
}

/// While somebody types, with the keyboard alone; and whom it finds is unlocked with two clicks.
#[tokio::test]
async fn a_locked_person_is_found_by_three_letters_and_unlocked() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    for name in ["alice", "albert"] {
        app.register(name).await;
    }
    for host in 1..=9 {
        app.client_at(&format!("203.0.113.{host}")).login("alice", WRONG).await;
    }
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    browser.open("/admin").await;
    browser.find("body").await.send_keys("/").await.unwrap();
    browser.find("#find").await.send_keys("al").await.unwrap();
    let first =
        |name: &str| format!("return document.querySelector('.suggested a')?.textContent === '{name}'");
    browser.until("the list", &first("albert")).await;
    let suggested = browser.text(".suggested").await;
    assert!(suggested.starts_with("albert") && suggested.contains("Refused"), "{suggested}");
    browser.picture("en-suggested-desktop-light").await;
    browser.find("#find").await.send_keys(Key::Escape).await.unwrap();
    assert!(!browser.has(".suggested").await);
    browser.find("#find").await.send_keys("i").await.unwrap();
    browser.until("the shorter list", &first("alice")).await;
    browser.find("#find").await.send_keys(Key::Down).await.unwrap();
    browser.follow(".suggested a:focus").await;
    let kept = browser.text("#standing").await;
    assert!(kept.contains("Kept out now") && kept.contains("until"), "{kept}");
    browser.picture("en-account-locked-desktop-light").await;
    browser.screen(PHONE).await;
    browser.picture("en-account-locked-phone-light").await;
    browser.screen(DESKTOP).await;
    browser.fill(&[("reason-unlock", "She called")]).await;
    browser.follow(".unlock button").await;
    assert!(browser.text(".notice.good").await.contains("Unlocked"));
    assert!(!browser.has("#standing").await);
    assert_eq!(app.client_at("192.0.2.7").login("alice", PASSWORD).await.status, 200);
    browser.assert_content().await;
}

/// By keys alone, each counted. The last ones are a reason.
#[tokio::test]
async fn a_limit_is_changed_with_twenty_keys() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.administrator("watchman").await;
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    browser.open("/admin").await;
    let mut pressed = 0;
    let mut press = async |keys: &str| {
        pressed += keys.chars().count();
        browser.driver.active_element().await.unwrap().send_keys(keys).await.unwrap();
    };
    let enter = char::from(Key::Enter).to_string();
    press("/").await;
    press("n-acc").await;
    browser.leave_by(press(&enter)).await;
    assert_eq!(browser.path().await, "/admin/limits/edit/login-account");
    let told = browser.text(".notice").await;
    assert_eq!((browser.focused().await.as_str(), told.as_str()), ("max-0", ""));
    press("4").await;
    browser.leave_by(press(&enter)).await;
    assert_eq!((browser.focused().await.as_str(), browser.value("#max-0").await.as_str()), ("reason", "4"));
    press("a flood").await;
    browser.leave_by(press(&enter)).await;
    assert!(browser.text(".notice.good").await.contains("login-account: 8 → 4 in 1 hour"));
    assert!(pressed <= 20, "{pressed}");
}

/// What was saved by mistake goes back by the notice that tells of it.
#[tokio::test]
async fn a_threshold_goes_up_and_back_by_four_clicks() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.administrator("watchman").await;
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    browser.open("/admin/limits").await;
    let max = || app.services.live.snapshot().limits.get("login-account").unwrap().rules()[0].max;
    let before = max();
    browser.follow("a[href='/admin/limits/edit/login-account']").await;
    browser.fill(&[("max-0", "9"), ("reason", "People mistype")]).await;
    browser.follow("button[value=save]").await;
    assert_eq!((before, max()), (8, 9));
    browser.follow(".notice.good a[href='/admin/limits/history/undo']").await;
    assert_eq!(browser.value("#reason").await, "Undone: People mistype");
    assert!(browser.text(".diff").await.contains("max = 8"));
    // What somebody else has saved meanwhile is not undone with it.
    let other = "[[apps]]\nname = 'wiki'\nwho = ['everyone']\n[apps.oidc]\nredirect_uris = ['https://wiki.example/']\n";
    let boss = app.sign_in_admin("boss").await;
    let held = boss.get("/api/v1/admin/apps").await;
    let version = held.header("etag").trim_matches('"').to_owned();
    let saved =
        boss.put("/api/v1/admin/apps", &version, serde_json::json!({ "toml": other, "reason": "x" })).await;
    assert_eq!(saved.status, 200, "{}", saved.text);
    browser.open("/admin/limits/history/undo").await;
    assert!(!browser.text("main").await.contains("[apps]"));
    browser.follow("main button.danger").await;
    assert_eq!(max(), before);
    assert_eq!(app.services.live.snapshot().apps.all().len(), 1);
    assert!(browser.text(".notice.good").await.contains("login-account: 9 → 8 in 1 hour"));
}

/// Without a script, too: Enter in the reason saves, other buttons change nothing, and each keeps the focus.
#[tokio::test]
async fn the_focus_returns_to_what_was_pressed() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.administrator("watchman").await;
    let browser = Browser::start(&app.url).await;
    browser.without_script().await;
    browser.sign_in("watchman").await;
    browser.open("/admin/limits/edit/sms-phone").await;
    let focused = "const { name, value } = document.activeElement; return `${name} ${value}`";
    for (button, then) in [
        ("add", "max-4 "),
        ("remove-4", "do remove-3"),
        ("remove-0", "do remove-0"),
        ("default", "do default"),
        ("try", "do try"),
    ] {
        browser.follow(&format!("button[value={button}]")).await;
        assert_eq!(browser.js(focused).await, then, "after {button}");
    }
    browser.fill(&[("window-1", "soon"), ("reason", "a test")]).await;
    let reason = browser.find("#reason").await;
    browser.leave_by(async { reason.send_keys("" + Key::Enter).await.unwrap() }).await;
    assert_eq!(browser.focused().await, "window-1", "Enter saves, and this cannot be saved");
    browser.fill(&[("window-1", "1d")]).await;
    let reason = browser.find("#reason").await;
    browser.leave_by(async { reason.send_keys("" + Key::Enter).await.unwrap() }).await;
    let told = browser.text(".notice.good").await;
    assert!(told.contains("already") && !browser.has(".told").await, "{told}");
    browser.open("/admin/limits/toml").await;
    browser.follow("button[value=try]").await;
    assert_eq!(browser.js(focused).await, "do try");
    browser
        .fill(&[("toml", "[limits.custom.reply]\nrules = [{ max = 3, window = \"1h\" }]"), ("reason", "x")])
        .await;
    let reason = browser.find("#reason").await;
    browser.leave_by(async { reason.send_keys("" + Key::Enter).await.unwrap() }).await;
    let told = browser.text(".notice.good").await;
    for change in ["custom.reply: added 3 / 1 h → refuse", "login-address: off → enforce, added 20"] {
        assert!(told.contains(change), "{change}: {told}");
    }
}

#[tokio::test]
async fn an_answer_says_what_it_changed_and_so_does_its_end() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.administrator("watchman").await;
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    browser.open("/admin/access?do=deny&network=198.51.100.0/24").await;
    browser.fill(&[("deny-reason", "a flood")]).await;
    browser.submit().await;
    let told = browser.text(".told").await;
    assert!(told.starts_with("Network refused: 198.51.100.0/24 until "), "{told}");
    browser.follow(".rows .danger").await;
    assert_eq!(browser.text(".told:focus").await, "Network refused: 198.51.100.0/24");
    assert!(browser.text(".notice.good").await.contains("Ended here"));
    browser.open("/admin/access").await;
    assert!(!browser.has("details[name=answer][open]").await && !browser.has(".told").await);
    // One form is open at a time, and what was typed into another is kept.
    let open =
        "return [...document.querySelectorAll('details[name=answer][open] h2')].map((it) => it.id).join()";
    for answer in ["deny", "pause"] {
        browser.find(&format!("#{answer}")).await.click().await.unwrap();
        assert_eq!(browser.js(open).await, answer);
        browser.fill(&[(&format!("{answer}-reason"), "as typed")]).await;
    }
    browser.find("#deny").await.click().await.unwrap();
    assert_eq!(
        (browser.js(open).await, browser.value("#deny-reason").await),
        ("deny".into(), "as typed".into())
    );
}

async fn search(browser: &Browser, keys: impl Into<TypingData>, typed: &str) {
    browser.open("/admin/tokens").await;
    browser.find("body").await.send_keys(keys).await.unwrap();
    assert_eq!(browser.focused().await, "find");
    let field = browser.find("#find").await;
    browser.leave_by(async { field.send_keys(typed + Key::Enter).await.unwrap() }).await;
}

/// From the quiet overview to an answer in two clicks and a reason, and back to quiet.
#[tokio::test]
async fn an_attack_from_500_addresses_shows_itself_and_is_answered_in_two_clicks() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    browser.open("/admin").await;
    assert!(!browser.has(".attack").await);
    for host in 0..500 {
        let address = format!("198.{}.{}.7", 18 + host / 250, host % 250);
        app.client_at(&address).login(&format!("victim-{host}"), WRONG).await;
    }
    // The page refreshes itself every ten seconds; by the clock, the figures are due again, once all are written.
    app.services.audit.flush().await;
    app.advance(Duration::from_secs(10));
    let whole = "return document.querySelector('.attack')?.innerText.includes('500') ?? false";
    browser.slowly_until("the banner", whole).await;
    let told = browser.text(".attack").await;
    for part in
        ["Failed sign-ins: ", "(usual: none)", "many addresses, none of them dominant", "at many names"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    let height = browser.js("return document.querySelector('.attack').offsetHeight").await;
    assert!(height.as_f64().unwrap() <= 260.0, "the panel leaves room for the figures: {height}");
    browser.follow(".switch li:nth-child(2) a").await;
    assert!(browser.has("#sign-ins-day svg").await && !browser.has(".pill").await, "it is said once");
    browser.follow(".switch li:first-child a").await;
    browser.follow(".attack .actions a").await;
    assert_eq!(browser.path().await, "/admin/access?do=challenge");
    let reason = browser.focused().await;
    browser.fill(&[(&reason, "A spray from everywhere")]).await;
    browser.follow("form:has(input[name=do][value=challenge]) button.main").await;
    assert!(browser.text("#in-force ~ ul").await.contains("A spray from everywhere"));
    let stranger = app.client_at("203.0.113.1");
    assert_eq!(stranger.login("victim-1", WRONG).await.problem(), "captcha-required");
    assert!(browser.has(".pill[href='/admin']").await, "every page of the console says so");
    assert!(browser.js("return document.title").await.as_str().unwrap().starts_with("Attack!"));
    app.advance(Duration::from_secs(16 * 60));
    browser.open("/admin").await;
    assert!(!browser.has(".attack").await && !browser.has(".pill").await);
    browser.open("/admin/events").await;
    let line = browser.text(".events li:has(a[href^='/admin/events?action=sign-in'])").await;
    assert!(line.contains("Attack: failed sign-ins") && line.contains("over"), "{line}");
    browser.assert_content().await;
}

#[tokio::test]
async fn two_who_change_the_limits_at_once_do_not_undo_one_another() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    let browser = Browser::start(&app.url).await;
    browser.without_script().await;
    browser.sign_in("watchman").await;
    browser.open("/admin/limits/edit/sms-phone").await;
    // Meanwhile, somebody edits the file.
    let file = std::fs::read_to_string(app.file()).unwrap();
    std::fs::write(app.file(), file.replace("max = 8", "max = 7")).unwrap();
    browser.fill(&[("reason", "Messages are dear")]).await;
    for _ in 0..2 {
        browser.follow("[value=remove-2], [value=remove-1]").await;
    }
    browser.follow("button[value=save]").await;
    assert_eq!(browser.text("h1").await, "Somebody else saved a change");
    let diff = browser.text(".diff").await;
    assert!(diff.contains("sms-phone") && !diff.contains("max = 8"), "{diff}");
    browser.follow("button[value=save]").await;
    assert_eq!(browser.path().await, "/admin/limits");
    let written = std::fs::read_to_string(app.file()).unwrap();
    assert!(written.contains("max = 7") && written.contains("[limits.sms-phone]"), "{written}");
}

#[tokio::test]
async fn the_overview_follows_what_happens_and_stands_still_when_asked_to() {
    let app = TestApp::with(Store::Memory, HOUSE).await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    let browser = Browser::start(&app.url).await;
    browser.sign_in("watchman").await;
    browser.open("/admin").await;
    app.client_at("203.0.113.5").login("kim", WRONG).await;
    let seen = "return document.querySelector('.tile.wrong strong').innerText === '1'";
    browser.slowly_until("refreshed figures", seen).await;
    browser.find(".fresh button").await.click().await.unwrap();
    assert_eq!(browser.text(".fresh button").await, "Resume");
    browser.assert_content().await;
}
