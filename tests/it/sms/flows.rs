//! The same on the pages, as a browser without a script submits their forms.

use std::time::Duration;

use gatehouse::accounts::{FirstFactor, KnownDevices, SignInClient as Place, Username};
use gatehouse::login::{Password, RequestOrigin, SignInAttempt, SignInOutcome};
use serde_json::json;

use super::http::{NUMBER, OTHER};
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp};
use crate::support::setup::{Setup, max};

pub const NEW: &str = "quiet lanterns drift above marble";
const CURRENT: (&str, &str) = ("current_password", PASSWORD);

/// Without those on a number, and on the address that asks.
pub fn no_limits() -> Setup {
    TestApp::on(Store::Memory).without(&["sms-phone", "sms-address"])
}

/// Submits the form of the page that was just shown, with its hidden fields and these.
pub async fn send_on(client: &Client, path: &str, shown: &Answer, fields: &[(&str, &str)]) -> Answer {
    let hidden =
        ["csrf_token", "phone", "good_until", "next_code", "unconfirmed", "short", "next", "captcha_id"];
    let hidden = hidden.into_iter().filter_map(|name| Some((name, shown.hidden(name)?)));
    let hidden: Vec<_> = hidden.filter(|(name, _)| fields.iter().all(|(field, _)| field != name)).collect();
    let mut all: Vec<(&str, &str)> = hidden.iter().map(|(name, value)| (*name, value.as_str())).collect();
    all.extend(fields);
    client.post(path, &all).await
}

pub async fn ask(client: &Client, path: &str, phone: &str) -> Answer {
    let first = client.get(path).await;
    assert!(first.text.contains("name=\"phone\"") && !first.text.contains("name=\"code\""));
    send_on(client, path, &first, &[("phone", phone)]).await
}

#[tokio::test]
async fn a_number_and_its_code_sign_in() {
    let app = TestApp::start(Store::Memory).await;
    let client = app.client();
    assert!(client.get("/login?next=/problems/busy").await.text.contains("/login/code?next=/problems/busy"));
    let first = client.get("/login/code?next=/problems/busy").await;
    let second = send_on(&client, "/login/code", &first, &[("phone", "138 0013 8000")]).await;
    assert_eq!(second.status, 200);
    assert_eq!(second.hidden("phone").as_deref(), Some(NUMBER));
    assert!(
        second.text.contains("autocomplete=\"one-time-code\"")
            && second.text.contains("inputmode=\"numeric\"")
    );
    assert!(second.text.contains("data-wait=\"60\""), "when another may be sent");
    let code = client.codes(NUMBER).await.remove(0);
    assert!(!second.text.contains(&code));

    let wrong = if code == "000000" { "000001" } else { "000000" };
    let again = send_on(&client, "/login/code", &second, &[("code", wrong)]).await;
    assert!(again.status == 401 && again.text.contains("id=\"code-error\""), "{}", again.text);
    assert_eq!(again.hidden("good_until"), second.hidden("good_until"));
    for (typed, status) in [("", 422), ("12345", 422)] {
        assert_eq!(send_on(&client, "/login/code", &again, &[("code", typed)]).await.status, status);
    }
    let done = send_on(&client, "/login/code", &again, &[("code", &code)]).await;
    assert_eq!((done.status, done.header("location")), (303, "/problems/busy"));
    assert!(client.get("/account").await.text.contains(NUMBER));
    assert_eq!(client.get("/login/code").await.status, 303, "nobody signs in twice");
}

#[tokio::test]
async fn another_code_and_another_number_are_asked_for_on_the_same_page() {
    let app = TestApp::start(Store::Memory).await;
    let client = app.client();
    let second = ask(&client, "/login/code", NUMBER).await;
    let early = send_on(&client, "/login/code", &second, &[("send", "1")]).await;
    assert_eq!((early.status, early.header("retry-after")), (429, "60"));
    assert!(early.text.contains("name=\"code\""), "the first one may still come");
    assert_eq!(client.codes(NUMBER).await.len(), 1);
    app.advance(Duration::from_secs(60));
    let third = send_on(&client, "/login/code", &early, &[("send", "1")]).await;
    assert_eq!((third.status, client.codes(NUMBER).await.len()), (200, 2));
    let back = send_on(&client, "/login/code", &third, &[("change", "1")]).await;
    assert_eq!(back.status, 200);
    assert!(back.text.contains("type=\"tel\" value=\"+8613800138000\"") && back.hidden("phone").is_none());
    let other = send_on(&client, "/login/code", &back, &[("phone", OTHER)]).await;
    assert_eq!((other.hidden("phone").as_deref(), client.codes(OTHER).await.len()), (Some(OTHER), 1));
    // What comes back in hidden fields is only displayed.
    for lie in ["99999999999999999999", "-5", "x", "9223372036854775807"] {
        let fields = [("code", "12345"), ("good_until", lie), ("next_code", lie)];
        let answer = send_on(&client, "/login/code", &other, &fields).await;
        assert!(answer.status == 422 && answer.text.contains("name=\"phone\""), "{lie}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_button_pressed_twice_is_one_message() {
    let app = no_limits().start().await;
    let client = app.client();
    let first = client.get("/login/code").await;
    let press = || send_on(&client, "/login/code", &first, &[("phone", NUMBER)]);
    let (one, two) = tokio::join!(press(), press());
    assert_eq!((one.status, two.status, press().await.status), (200, 200, 200));
    assert_eq!(client.codes(NUMBER).await.len(), 1);
    assert_eq!(send_on(&client, "/login/code", &one, &[("send", "1")]).await.status, 200);
    assert_eq!(client.codes(NUMBER).await.len(), 2, "another page, another wish");
}

#[tokio::test]
async fn an_account_is_made_with_a_number() {
    let app = no_limits().start().await;
    app.register("taken").await;
    let client = app.client();
    let page = client.get("/register").await;
    let mistaken = [("login", "a b"), ("password", PASSWORD), ("phone", NUMBER)];
    assert_eq!(send_on(&client, "/register", &page, &mistaken).await.status, 422);
    assert_eq!(client.codes("").await.len(), 0, "nothing is sent for a form that comes back");
    let asked = [("login", "taken"), ("password", PASSWORD), ("phone", NUMBER)];
    let second = send_on(&client, "/register", &page, &asked).await;
    assert!(second.status == 200 && second.text.contains("value=\"taken\""), "{}", second.text);
    assert!(!second.text.contains(PASSWORD));
    let code = client.codes(NUMBER).await.remove(0);
    let fields = |login| [("login", login), ("password", PASSWORD), ("code", code.as_str())];
    let refused = send_on(&client, "/register", &second, &fields("taken")).await;
    assert_eq!((refused.status, refused.hidden("phone").as_deref()), (409, Some(NUMBER)));
    let done = send_on(&client, "/register", &refused, &fields("alice")).await;
    assert_eq!((done.status, done.header("location")), (303, "/account"), "{}", done.text);
    assert_eq!(client.get("/api/v1/session").await.body["user"]["phone"], NUMBER);
    // Without one, as before.
    let plain = app.client();
    let made =
        plain.submit("/register", "/register", &[("login", "bob"), ("password", PASSWORD), ("phone", "")]);
    assert_eq!(made.await.status, 303);
    // A client that has proved a number learns that it is taken.
    let late = app.client();
    let page = late.get("/register").await;
    let second =
        send_on(&late, "/register", &page, &[("login", "eve"), ("phone", NUMBER), ("send", "1")]).await;
    let code = late.codes(NUMBER).await.remove(0);
    let fields = [("login", "eve"), ("password", PASSWORD), ("code", code.as_str())];
    let taken = send_on(&late, "/register", &second, &fields).await;
    assert!(taken.status == 409 && taken.text.contains("id=\"phone-error\""), "{}", taken.text);
}

#[tokio::test]
async fn a_forgotten_password_is_replaced() {
    let app = no_limits().start().await;
    let owner = app.client();
    let code = owner.code(NUMBER, "register").await;
    let body = json!({ "login": "alice", "password": PASSWORD, "phone": NUMBER, "code": code });
    assert_eq!(owner.call("/register", body).await.status, 201);
    let client = app.client();
    assert!(client.get("/login").await.text.contains("href=\"/password/reset\""));
    let second = ask(&client, "/password/reset", NUMBER).await;
    assert!(second.text.contains("name=\"new_password\""));
    let code = client.codes(NUMBER).await.remove(0);
    let unfit =
        send_on(&client, "/password/reset", &second, &[("code", &code), ("new_password", "short")]).await;
    assert!(unfit.status == 422 && unfit.text.contains("id=\"new_password-error\""));
    let done = send_on(&client, "/password/reset", &unfit, &[("code", &code), ("new_password", NEW)]).await;
    assert_eq!((done.status, done.header("location")), (303, "/login"), "{}", done.text);
    assert_eq!(owner.get("/api/v1/session").await.status, 401);
    assert_eq!(client.login("alice", NEW).await.status, 200);
    // A number without an account: a client that has proved it learns this.
    let stranger = app.client();
    let second = ask(&stranger, "/password/reset", OTHER).await;
    let code = stranger.codes(OTHER).await.remove(0);
    // However it is written, it is shown as we read it.
    let spaced = format!("{} {}", &OTHER[..6], &OTHER[6..]);
    let fields = [("phone", spaced.as_str()), ("code", code.as_str()), ("new_password", NEW)];
    let nobody = send_on(&stranger, "/password/reset", &second, &fields).await;
    assert!(nobody.status == 404 && nobody.text.contains("id=\"phone-error\""), "{}", nobody.text);
    assert!(nobody.text.contains(&format!("value=\"{OTHER}\"")), "{}", nobody.text);
}

#[tokio::test]
async fn a_number_is_added_replaced_and_removed_on_the_account() {
    let app = no_limits().start().await;
    let client = app.client();
    for path in ["/account/phone", "/admin/messages"] {
        let away = client.get(path).await;
        assert_eq!((away.status, away.header("location")), (303, format!("/login?next={path}").as_str()));
    }
    client.register("alice", PASSWORD).await;
    for number in [OTHER, NUMBER] {
        let second = ask(&client, "/account/phone", number).await;
        let code = client.codes(number).await.remove(0);
        let done = send_on(&client, "/account/phone", &second, &[("code", &code), CURRENT]).await;
        assert_eq!((done.status, done.header("location")), (303, "/account"), "{}", done.text);
        assert!(client.get("/account").await.text.contains(number));
    }
    let wrong = [("current_password", "not this one")];
    let kept = client.submit("/account/phone/remove", "/account/phone/remove", &wrong).await;
    assert!(kept.status == 422 && kept.text.contains("id=\"current_password-error\""), "{}", kept.text);
    assert!(client.get("/account").await.text.contains(NUMBER));
    let removed = client.submit("/account/phone/remove", "/account/phone/remove", &[CURRENT]).await;
    assert_eq!((removed.status, removed.header("location")), (303, "/account"));
    assert!(!client.get("/account").await.text.contains(NUMBER));
}

#[tokio::test]
async fn an_account_without_a_password_is_led_to_one() {
    let app = no_limits().start().await;
    let client = app.client();
    let code = client.code(NUMBER, "login").await;
    client.call("/sms/login", json!({ "phone": NUMBER, "code": code })).await;
    let page = client.get("/account").await;
    assert!(page.text.contains("href=\"/password/reset\"") && !page.text.contains("current_password"));
    assert!(!page.text.contains("/account/phone/remove"), "the only way in");
    assert_eq!(client.get("/account/phone/remove").await.header("location"), "/account");
    let kept = client.submit("/account", "/account/phone/remove", &[]).await;
    assert_eq!((kept.status, client.get("/account").await.text.contains(NUMBER)), (403, true));
    let closed = client.get("/account/phone").await;
    assert!(closed.text.contains("href=\"/password/reset\"") && !closed.text.contains("name=\"phone\""));
    let second = ask(&client, "/password/reset", NUMBER).await;
    let code = client.codes(NUMBER).await.remove(0);
    let fields = [("code", code.as_str()), ("new_password", NEW)];
    assert_eq!(send_on(&client, "/password/reset", &second, &fields).await.status, 303);
    assert_eq!(client.get("/account").await.status, 303, "signed out here, too");
}

#[tokio::test]
async fn forms_without_their_token_do_nothing() {
    let app = TestApp::start(Store::Memory).await;
    let client = app.client();
    client.register("alice", PASSWORD).await;
    client.get("/account").await;
    for path in ["/login/code", "/password/reset", "/account/phone", "/register", "/account/phone/remove"] {
        for token in ["", "AAAA"] {
            let fields = [("phone", NUMBER), ("login", "eve"), ("password", PASSWORD), ("csrf_token", token)];
            assert_eq!(client.post(path, &fields).await.status, 403, "{path}");
        }
    }
    assert_eq!(client.codes("").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_sign_in_held_up_behind_a_reset_starts_no_session() {
    let app = no_limits().start().await;
    let owner = app.client();
    let code = owner.code(NUMBER, "register").await;
    let body = json!({ "login": "alice", "password": PASSWORD, "phone": NUMBER, "code": code });
    assert_eq!(owner.call("/register", body).await.status, 201);
    let place = || Place::new([203, 0, 113, 7].into(), "");
    let attempt = SignInAttempt {
        login: Username::parse("alice").unwrap(),
        password: Password::attempt(PASSWORD).unwrap(),
        origin: RequestOrigin { address: vec![4, 203, 0, 113, 7], network: vec![4, 203, 0, 113] },
        devices: KnownDevices::default(),
        browser: None,
        denied: false,
        solved: false,
    };
    // Verified, and delayed there.
    let services = &app.services;
    let outcome = services.sign_in.attempt(&services.live.snapshot(), attempt).await.unwrap();
    let SignInOutcome::SignedIn(verified) = outcome else { panic!("{outcome:?}") };
    let code = owner.code(NUMBER, "reset").await;
    let body = json!({ "phone": NUMBER, "code": code, "new_password": NEW });
    assert_eq!(app.client().call("/password/reset", body).await.status, 204);
    assert!(
        services
            .sessions
            .begin(&verified, &place(), FirstFactor::Code, None)
            .await
            .unwrap()
            .token()
            .is_none()
    );
    assert_eq!(services.sessions.list(verified.id).await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_page_asks_for_a_captcha_where_a_code_has_one_before_it() {
    let app = TestApp::on(Store::Memory).limit("sms-address", &[max(1).per("1h").captcha()]).start().await;
    let client = app.client();
    assert_eq!(ask(&client, "/login/code", NUMBER).await.status, 200);
    let asked = ask(&client, "/login/code", OTHER).await;
    assert!(asked.status == 403 && asked.hidden("captcha_id").is_some());
    assert!(asked.text.contains("value=\"+8613900139000\""), "what was typed is kept");
    let wrong = send_on(&client, "/login/code", &asked, &[("phone", OTHER), ("captcha_answer", "x")]).await;
    assert_eq!(wrong.status, 403);
    let sent = send_on(&client, "/login/code", &wrong, &[("phone", OTHER), ("captcha_answer", ANSWER)]).await;
    assert_eq!((sent.status, client.codes(OTHER).await.len()), (200, 1), "{}", sent.text);
    // Its button pressed twice: the challenge is used up, but the request is the same.
    let again =
        send_on(&client, "/login/code", &wrong, &[("phone", OTHER), ("captcha_answer", ANSWER)]).await;
    assert_eq!((again.status, client.codes(OTHER).await.len()), (200, 1), "{}", again.text);
}

/// A challenge shown for one button of a page can be answered with another button of it.
#[tokio::test]
async fn a_challenge_is_good_for_every_button_of_its_page() {
    for path in ["/login/code", "/register", "/password/reset"] {
        let app = TestApp::on(Store::Memory)
            .limit("sms-address", &[max(1).per("1h").captcha()])
            .without(&["sms-phone"])
            .start()
            .await;
        let client = app.client();
        let (login, password) = (("login", "ada"), ("password", PASSWORD));
        let first = client.get(path).await;
        let second = send_on(&client, path, &first, &[login, password, ("phone", NUMBER)]).await;
        assert_eq!(second.status, 200, "{path}: {}", second.text);
        let asked = send_on(&client, path, &second, &[login, password, ("send", "1")]).await;
        assert!(asked.status == 403 && asked.hidden("captcha_id").is_some(), "{path}: {}", asked.text);
        let code = client.codes(NUMBER).await.remove(0);
        let entry = [login, password, ("code", code.as_str()), ("captcha_answer", ANSWER)];
        let done = send_on(&client, path, &asked, &entry).await;
        // A reset finds no account, which only a client that has proved the number learns.
        let status = if path == "/password/reset" { 404 } else { 303 };
        assert_eq!(done.status, status, "{path}: {}", done.text);
    }
}

/// After many wrong codes from an address, on pages and calls alike.
#[tokio::test]
async fn a_code_is_entered_with_a_captcha_after_wrong_ones_from_the_address() {
    let app = TestApp::on(Store::Memory).limit("login-address", &[max(1).per("1h").captcha()]).start().await;
    let client = app.client();
    assert_eq!(super::http::enter(&client, OTHER, "123456").await.status, 401);
    let second = ask(&client, "/login/code", NUMBER).await;
    let code = client.codes(NUMBER).await.remove(0);
    let called = super::http::enter(&client, NUMBER, &code).await;
    assert_eq!((called.status, called.problem()), (403, "captcha-required"), "{}", called.text);
    let with =
        |id: &str| json!({ "phone": OTHER, "code": "123456", "captcha": { "id": id, "answer": ANSWER } });
    let id = called.body["captcha"]["id"].as_str().unwrap().to_owned();
    assert_eq!(client.call("/sms/login", with(&id)).await.problem(), "invalid-code", "it was compared");
    let asked = send_on(&client, "/login/code", &second, &[("code", &code)]).await;
    assert!(asked.status == 403 && asked.hidden("captcha_id").is_some(), "{}", asked.text);
    let entry = [("code", code.as_str()), ("captcha_answer", ANSWER)];
    assert_eq!(send_on(&client, "/login/code", &asked, &entry).await.status, 303);
}
