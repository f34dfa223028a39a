//! From an application to the sign-in and back, and out again.

use std::time::Duration;

use serde_json::json;

use super::{Visitor, account, behind};
use crate::support::app::{Answer, Store, TestApp, on_both_stores};

const PAGE: &str = "https://wiki.example/a/page?b=c%20d&e";
const STATE: &str = "__Host-gh_state";
const SESSION: &str = "__Host-gh_app";

on_both_stores!(
    somebody_comes_back_to_the_very_address_and_signs_out_everywhere,
    a_code_works_once_in_a_minute_in_one_browser_at_one_host,
    a_state_that_no_browser_was_told_gets_no_code,
    tabs_that_begin_at_once_all_arrive,
);

async fn start(browser: &Visitor, url: &str) -> String {
    let answer = browser.ask("GET", url).await;
    assert_eq!(answer.status, 302, "{}", answer.text);
    answer.header("location").to_owned()
}

async fn somebody_comes_back_to_the_very_address_and_signs_out_everywhere(store: Store) {
    let app = behind(TestApp::on(store)).start().await;
    account(&app, "ada", &[]).await;
    let mut ada = Visitor::of(&app);
    let begin = start(&ada, PAGE).await;
    let answer = ada.open(&begin).await;
    let state = answer.cookie(STATE).unwrap();
    for attribute in ["Secure", "HttpOnly", "Path=/", "SameSite=Lax"] {
        assert!(state.contains(attribute) && !state.contains("Domain"), "{state}");
    }
    let sign_in = answer.header("location").to_owned();
    assert!(sign_in.starts_with(&format!("{}/login?rd=https%3A%2F%2Fwiki.example", app.url)), "{sign_in}");
    let page = ada.open(&sign_in).await;
    assert_eq!(page.hidden("rd").map(|rd| super::unescaped(&rd)).as_deref(), Some(PAGE));
    let policy = page.header("content-security-policy");
    assert!(policy.contains("form-action 'self' https://wiki.example;"), "{policy}");
    let (arrived, last) = ada.sign_in(&sign_in, "ada").await;
    assert_eq!(arrived, PAGE);
    let cookie = last.cookie(SESSION).unwrap();
    for attribute in ["Secure", "HttpOnly", "Path=/", "SameSite=Lax"] {
        assert!(cookie.contains(attribute) && !cookie.contains("Domain"), "{cookie}");
    }
    assert_eq!(ada.ask("GET", PAGE).await.status, 200);

    // The other application needs no form.
    let other = "https://files.test:8443/x";
    let begin = start(&ada, other).await;
    assert_eq!(ada.follow(&begin).await.0, other);
    assert_eq!(ada.ask("GET", other).await.header("remote-user"), "ada");

    // Both are on the account page, with where they are used.
    let page = ada.open(&format!("{}/account", app.url)).await;
    assert!(page.text.contains("Your applications"), "{}", page.text);
    for part in ["://wiki.example/\">wiki<", "://files.test:8443/\">files<", "files.test:8443, wiki.example"]
    {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }

    // The cookie of one host opens nothing at another, nor at Gatehouse.
    let mut thief = Visitor::of(&app);
    let token = ada.cookie("wiki.example", SESSION).unwrap().to_owned();
    thief.set_cookie("files.test:8443", SESSION, &token);
    thief.set_cookie("", "gh_session", &token);
    assert_eq!(thief.ask("GET", other).await.status, 302);
    assert_eq!(thief.open(&format!("{}/api/v1/session", app.url)).await.status, 401);

    // Signing out is for pages of the same host.
    let out = "https://wiki.example/.gatehouse/logout";
    assert!(ada.open(out).await.text.contains("Sign out?"));
    for headers in [
        &[][..],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", "https://wiki.example")],
        &[("sec-fetch-site", "none")],
        &[("origin", "https://evil.example")],
        &[("origin", "http://wiki.example")],
        &[("origin", "null")],
    ] {
        assert_eq!(ada.visit("POST", out, headers, None).await.status, 403, "{headers:?}");
    }
    assert_eq!(ada.ask("GET", PAGE).await.status, 200);
    let answer = ada.visit("POST", out, &[("sec-fetch-site", "same-origin")], None).await;
    assert!(answer.status == 200 && answer.text.contains("You are signed out"), "{}", answer.text);
    assert!(ada.open(out).await.text.contains("You are not signed in here"));
    assert_eq!(ada.cookie("wiki.example", SESSION), None);
    for url in [PAGE, other] {
        assert_eq!(ada.ask("GET", url).await.status, 302, "{url}");
    }
    assert_eq!(ada.open(&format!("{}/api/v1/session", app.url)).await.status, 401);
}

async fn a_code_works_once_in_a_minute_in_one_browser_at_one_host(store: Store) {
    let app = behind(TestApp::on(store)).start().await;
    let id = account(&app, "ada", &[]).await;
    let mut ada = Visitor::of(&app);
    let begin = start(&ada, PAGE).await;
    let sign_in = ada.open(&begin).await.header("location").to_owned();
    ada.sign_in(&sign_in, "ada").await;
    // A code, without bringing it.
    let code = async |ada: &mut Visitor| {
        let answer = ada.open(&sign_in).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        answer.header("location").to_owned()
    };
    let expired = "This sign-in was not completed here";

    let fresh = code(&mut ada).await;
    assert!(fresh.starts_with("https://wiki.example/.gatehouse/callback?code="), "{fresh}");
    assert_eq!(ada.open(&fresh).await.header("location"), PAGE);
    // Every page for signing in lets in somebody who is signed in.
    for page in ["/login/code?", "/register?"] {
        let answer = ada.open(&sign_in.replace("/login?", page)).await;
        let leads = answer.header("location").to_owned();
        assert!(leads.starts_with("https://wiki.example/.gatehouse/callback?code="), "{page}: {leads}");
        assert_eq!(ada.open(&leads).await.header("location"), PAGE);
    }
    let again = ada.open(&fresh).await;
    assert_eq!(again.status, 403, "used");
    assert!(again.text.contains(expired) && again.headers.get("set-cookie").is_none(), "{}", again.text);

    // One session has 20 at once.
    let mut codes = Vec::new();
    for _ in 0..21 {
        app.advance(Duration::from_secs(1));
        codes.push(code(&mut ada).await);
    }
    assert_eq!(ada.open(&codes[0]).await.status, 403, "the oldest has gone");
    for kept in [&codes[1], &codes[20]] {
        assert_eq!(ada.open(kept).await.header("location"), PAGE);
    }

    let late = code(&mut ada).await;
    app.advance(Duration::from_secs(60));
    assert_eq!(ada.open(&late).await.status, 403, "too late");

    let mut stranger = Visitor::of(&app);
    let stolen = code(&mut ada).await;
    begins_again(&stranger.open(&stolen).await, "no state");
    assert_eq!(ada.open(&stolen).await.status, 403, "used up by the attempt");
    let elsewhere = start(&stranger, PAGE).await;
    stranger.open(&elsewhere).await;
    let stolen = code(&mut ada).await;
    begins_again(&stranger.open(&stolen).await, "the state of another browser");
    assert_eq!(stranger.cookie("wiki.example", SESSION), None);

    let moved = code(&mut ada).await.replace("https://wiki.example", "https://files.test:8443");
    let state = ada.cookie("wiki.example", STATE).unwrap().to_owned();
    ada.set_cookie("files.test:8443", STATE, &state);
    assert_eq!(ada.open(&moved).await.status, 403, "at another host");

    for odd in ["", "x", &"A".repeat(43), &"A".repeat(4_000)] {
        assert_eq!(
            ada.open(&format!("https://wiki.example/.gatehouse/callback?code={odd}")).await.status,
            403
        );
    }
    // One whose session has ended meanwhile.
    let orphan = code(&mut ada).await;
    let session = app.services.sessions.list(id).await.unwrap()[0].id;
    app.services.sessions.revoke(id, session).await.unwrap();
    assert_eq!(ada.open(&orphan).await.status, 403, "signed out");
}

/// Otherwise a code would do in a browser without a state: that of somebody who is to be signed in as another.
async fn a_state_that_no_browser_was_told_gets_no_code(store: Store) {
    let app = behind(TestApp::on(store)).start().await;
    let mut mallory = ada_signed_in(&app).await;
    let (long, short) = ("A".repeat(44), "A".repeat(42));
    for odd in ["again.", "again", "again.again.", ".", "%00", "again.%00", "A%3D", &long, &short] {
        let sign_in = format!("{}/login?rd=https%3A%2F%2Fwiki.example%2Fa%2Fpage&state={odd}", app.url);
        let answer = mallory.open(&sign_in).await;
        let leads = (answer.status, answer.header("location"));
        assert_eq!(leads, (303, "https://wiki.example/a/page"), "{odd}");
    }
}

/// Without a session, the way to the sign-in.
fn begins_again(answer: &Answer, why: &str) {
    let begin = "https://wiki.example/.gatehouse/start?rd=https%3A%2F%2Fwiki.example%2Fa%2Fpage%3Fb%3Dc%2520d%26e&again=1";
    assert_eq!((answer.status, answer.header("location")), (302, begin), "{why}");
    assert!(answer.headers.get("set-cookie").is_none(), "{why}");
}

async fn tabs_that_begin_at_once_all_arrive(store: Store) {
    let app = behind(TestApp::on(store)).start().await;
    account(&app, "ada", &[]).await;
    let mut ada = Visitor::of(&app);
    let pages = [PAGE, "https://wiki.example/second", "https://wiki.example/third"];
    let mut tabs = Vec::new();
    for page in pages {
        // Each is sent before the state of another has arrived.
        ada.cookies.clear();
        let begin = start(&ada, page).await;
        tabs.push(ada.open(&begin).await.header("location").to_owned());
    }
    assert_eq!(ada.sign_in(&tabs[0], "ada").await.0, PAGE);
    for (tab, page) in tabs.iter().zip(pages).skip(1) {
        assert_eq!(ada.follow(tab).await.0, page);
        assert_eq!(ada.ask("GET", page).await.status, 200);
    }
    // One that stays open for longer than its state is kept.
    ada.cookies.remove(&("wiki.example".to_owned(), STATE.to_owned()));
    assert_eq!(ada.follow(&tabs[2]).await.0, pages[2]);
}

#[tokio::test]
async fn a_browser_that_keeps_no_state_is_not_led_in_circles() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    let mut ada = ada_signed_in(&app).await;
    ada.cookies.retain(|(host, _), _| host.is_empty());
    let mut url = start(&ada, PAGE).await;
    let mut passed = Vec::new();
    let last = loop {
        ada.cookies.retain(|(host, _), _| host.is_empty());
        let answer = ada.open(&url).await;
        if answer.status != 302 && answer.status != 303 {
            break answer;
        }
        passed.push(url.clone());
        assert!(passed.len() < 10, "{passed:?}");
        url = answer.header("location").to_owned();
    };
    assert_eq!((last.status, passed.len()), (403, 5), "{passed:?}");
    assert!(last.text.contains("This sign-in was not completed here"), "{}", last.text);
}

/// Ada, who is signed in at the wiki.
async fn ada_signed_in(app: &TestApp) -> Visitor {
    account(app, "ada", &[]).await;
    let mut ada = Visitor::of(app);
    let begin = start(&ada, PAGE).await;
    let (sign_in, _) = ada.follow(&begin).await;
    ada.sign_in(&sign_in, "ada").await;
    ada
}

const PASSWORD_ANEW: &str = "asks for the password anew";
const SIGN_IN_ANEW: &str = "asks for a more recent sign-in";
const NO_PASSWORD: &str = "Your account has no password";

#[tokio::test]
async fn a_part_that_wants_a_recent_password_asks_for_it() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    let mut ada = ada_signed_in(&app).await;
    let keys = "https://wiki.example/keys/1";
    assert_eq!(ada.ask("GET", keys).await.status, 200);
    app.advance(Duration::from_secs(15 * 60));
    assert_eq!(ada.ask("GET", PAGE).await.status, 200, "elsewhere the sign-in is enough");
    let begin = start(&ada, keys).await;
    let (sign_in, page) = ada.follow(&begin).await;
    assert_eq!(page.status, 200, "a form, although somebody is signed in");
    assert!(page.text.contains(PASSWORD_ANEW) && !page.text.contains(SIGN_IN_ANEW), "{}", page.text);
    let by_code = ada.open(&sign_in.replace("/login?", "/login/code?")).await;
    assert!(by_code.text.contains(PASSWORD_ANEW), "{}", by_code.text);
    let recent = start(&ada, "https://wiki.example/recent/").await;
    let (_, page) = ada.follow(&recent).await;
    assert!(page.text.contains(SIGN_IN_ANEW) && !page.text.contains(PASSWORD_ANEW), "{}", page.text);
    assert_eq!(ada.sign_in(&sign_in, "ada").await.0, keys);
    assert_eq!(ada.ask("GET", keys).await.status, 200);
}

#[tokio::test]
async fn an_account_without_a_password_is_told_what_to_do_and_a_stranger_nothing() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    let client = app.client();
    let code = client.code("+8613800138000", "login").await;
    let made = client.call("/sms/login", json!({ "phone": "+8613800138000", "code": code })).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let session = made.cookie("gh_session").unwrap().split([';', '=']).nth(1).unwrap().to_owned();
    let mut owner = Visitor::of(&app);
    owner.set_cookie("", "gh_session", &session);
    let keys = start(&owner, "https://files.test:8443/keys/1").await;
    let (sign_in, page) = owner.follow(&keys).await;
    assert_eq!(page.status, 200, "{sign_in}");
    assert!(
        page.text.contains(NO_PASSWORD) && page.text.contains("href=\"/password/reset\""),
        "{}",
        page.text
    );

    let mut stranger = Visitor::of(&app);
    for url in [sign_in.clone(), sign_in.replace("/login?", "/login/code?")] {
        let page = stranger.open(&url).await;
        assert_eq!(page.status, 200);
        for told in [PASSWORD_ANEW, SIGN_IN_ANEW, NO_PASSWORD] {
            assert!(!page.text.contains(told), "{url}: {}", page.text);
        }
    }
}

#[tokio::test]
async fn the_sign_in_says_which_application_it_goes_on_to_in_words_of_the_configuration() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    let stranger = app.client();
    for (rd, told) in [
        ("https://wiki.example/page", Some("to go on to wiki<")),
        ("https://files.test:8443/", Some("to go on to files<")),
        ("https://wiki.example.evil/", None),
        ("wiki", None),
    ] {
        for page in ["/login", "/login/code", "/register"] {
            let shown = stranger.get(&format!("{page}?rd={rd}&state=x&name=evil&app=evil")).await;
            let found = shown.text.contains("to go on to");
            assert!(
                found == told.is_some() && told.is_none_or(|told| shown.text.contains(told)),
                "{page} {rd}"
            );
        }
    }
}

#[tokio::test]
async fn no_spelling_of_the_way_back_leads_elsewhere() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    let mut ada = ada_signed_in(&app).await;
    let mut tried = 0;
    for lead in [
        "https://",
        "http://",
        "//",
        "https:",
        "https:/",
        "https:///",
        "\\\\",
        "javascript:",
        " https://",
        "HTTPS://",
    ] {
        for host in [
            "evil.example",
            "wiki.example.evil.example",
            "wiki.example@evil.example",
            "evil.example#wiki.example",
            "evil.example?wiki.example",
            "evil.example\\wiki.example",
            "wiki.example:443@evil.example",
            "wiki.example%40evil.example",
            "wiki.example%2eevil.example",
            "[::1]",
        ] {
            for rest in [
                "",
                "/",
                "/wiki.example/",
                "/%0d%0aLocation:x",
                "//",
                "/\\",
                ":443/",
                "/?https://wiki.example/",
                "/#",
                "\t/",
            ] {
                tried += 1;
                let rd: String =
                    url::form_urlencoded::byte_serialize(format!("{lead}{host}{rest}").as_bytes()).collect();
                let answer = ada.open(&format!("{}/login?rd={rd}&state=x", app.url)).await;
                assert_eq!(
                    (answer.status, answer.header("location")),
                    (303, "/account"),
                    "{lead}{host}{rest}"
                );
                let answer = ada.open(&format!("https://wiki.example/.gatehouse/start?rd={rd}")).await;
                let home = format!("{}/login?rd=https%3A%2F%2Fwiki.example%2F&state=", app.url);
                assert!(
                    answer.header("location").starts_with(&home),
                    "{lead}{host}{rest}: {}",
                    answer.header("location")
                );
            }
        }
    }
    assert_eq!(tried, 1_000);
    // Nor to another application than the one at which it began.
    let answer = ada.open("https://wiki.example/.gatehouse/start?rd=https%3A%2F%2Ffiles.test:8443%2F").await;
    assert!(answer.header("location").contains("wiki.example%2F"), "{}", answer.header("location"));
}

#[tokio::test]
async fn strangers_register_no_name_that_an_application_is_open_to() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    for name in ["ada", "admin", "root", "everyone"] {
        let answer = app.client().register(name, crate::support::app::PASSWORD).await;
        assert_eq!((answer.status, answer.problem()), (409, "login-taken"), "{name}");
    }
    app.register("adam").await;
}
