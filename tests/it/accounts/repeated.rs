//! A form that is sent twice acts once, and is no way in for anybody else.

use std::time::Duration;

use serde_json::json;

use crate::factors::{first_step, is_signed_in, owner, totp};
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

const NEW: &str = "quiet lanterns drift above marble";
const NUMBER: &str = "+8613800138000";

on_both_stores!(
    a_registration_sent_twice_is_one_account_and_one_session,
    two_registrations_at_the_same_time_are_one,
    a_first_click_whose_browser_hung_up_is_finished,
    what_differs_in_anything_is_another_form,
    a_name_that_stood_before_is_never_opened,
    who_signed_out_is_not_signed_in_again,
    a_captcha_is_solved_for_both_clicks,
    a_code_used_twice_by_one_form_is_used_once,
);

/// One page, and its form to be sent as often as a test likes.
struct PageForm {
    path: &'static str,
    fields: Vec<(String, String)>,
}

impl PageForm {
    async fn on(client: &Client, page: &str, path: &'static str, fields: &[(&str, &str)]) -> Self {
        let token = client.get(page).await.csrf_token();
        let fields = [fields, &[("csrf_token", &token)]].concat();
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { path, fields }
    }

    async fn send(&self, client: &Client) -> Answer {
        self.send_with(client, "", "").await
    }

    /// With another value of one field.
    async fn send_with(&self, client: &Client, field: &str, other: &str) -> Answer {
        let value = |(name, value)| (name, if name == field { other } else { value });
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).map(value);
        client.post(self.path, &fields.collect::<Vec<_>>()).await
    }
}

const ALICE: [(&str, &str); 3] = [("login", "alice"), ("password", PASSWORD), ("next", "/account?tab=1")];

async fn registration(client: &Client) -> PageForm {
    PageForm::on(client, "/register", "/register", &ALICE).await
}

async fn sessions_of(client: &Client) -> usize {
    1 + client.get("/account").await.text.matches("name=\"session_id\"").count()
}

async fn a_registration_sent_twice_is_one_account_and_one_session(store: Store) {
    let app = TestApp::start(store).await;
    let client = app.client();
    let form = registration(&client).await;
    let first = form.send(&client).await;
    assert_eq!((first.status, first.header("location")), (303, "/account?tab=1"), "{}", first.text);
    let hashes = app.hashes();
    let second = form.send(&client).await;
    assert_eq!((second.status, second.header("location")), (303, "/account?tab=1"), "{}", second.text);
    assert_eq!(app.hashes(), hashes, "nothing was done again");
    assert!(second.cookie("gh_session").is_some() && second.cookie("gh_device").is_some());
    assert_ne!(first.cookie("gh_session"), second.cookie("gh_session"), "a token is sent once");
    let page = client.get("/account").await;
    assert!(page.status == 200 && page.text.contains("Your account is ready"));
    assert_eq!(sessions_of(&client).await, 1);
    assert_eq!(page.text.matches("Signed in</div>").count(), 1, "one sign-in");
}

async fn two_registrations_at_the_same_time_are_one(store: Store) {
    let app = TestApp::start(store).await;
    let client = app.client();
    let form = registration(&client).await;
    let (one, two, three) = tokio::join!(form.send(&client), form.send(&client), form.send(&client));
    for answer in [&one, &two, &three] {
        assert_eq!((answer.status, answer.header("location")), (303, "/account?tab=1"), "{}", answer.text);
    }
    // Which answer came last is not known, but one of them holds the session's newest token.
    let works = async |answer: &Answer| {
        let line = answer.cookie("gh_session").unwrap().split(';').next().unwrap().to_owned();
        app.client_that_says(&[("cookie", &line)]).get("/api/v1/session").await.status == 200
    };
    let working = [works(&one).await, works(&two).await, works(&three).await];
    assert_eq!(working.iter().filter(|works| **works).count(), 1, "one session: {working:?}");
}

async fn a_first_click_whose_browser_hung_up_is_finished(store: Store) {
    let app = TestApp::on(store).set("password.workers", 1).start().await;
    let client = app.client();
    let form = registration(&client).await;
    let busy = app.services.hasher.keep_busy(true).await;
    tokio::select! {
        answer = form.send(&client) => panic!("{}", answer.text),
        () = async {
            while app.services.hasher.waiting(gatehouse::login::HashLane::Unsolved) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await; // the request comes by a socket, which our clock does not move
            }
        } => {}
    }
    let second = async {
        let sent = form.send(&client);
        tokio::pin!(sent);
        tokio::select! {
            answer = &mut sent => panic!("it did not wait: {}", answer.text),
            () = tokio::time::sleep(Duration::from_millis(200)) => drop(busy), // it is on its way, too
        }
        sent.await
    };
    let second = second.await;
    assert_eq!((second.status, second.header("location")), (303, "/account?tab=1"), "{}", second.text);
    assert_eq!(client.get("/account").await.status, 200);
    assert_eq!(sessions_of(&client).await, 1);
}

async fn what_differs_in_anything_is_another_form(store: Store) {
    let app = TestApp::start(store).await;
    let client = app.client();
    let form = registration(&client).await;
    assert_eq!(form.send(&client).await.status, 303);
    // Another browser, with everything that was sent.
    let stranger = app.client();
    stranger.get("/register").await;
    let foreign = form.send(&stranger).await;
    assert_eq!((foreign.status, foreign.cookie("gh_session")), (403, None));
    // The same browser, with another page, password or target.
    let fresh = app.client();
    let theirs = registration(&fresh).await;
    for answer in [
        form.send_with(&client, "password", NEW).await,
        form.send_with(&client, "next", "/account").await,
        theirs.send(&fresh).await,
    ] {
        assert_eq!((answer.status, answer.cookie("gh_session")), (409, None), "{}", answer.text);
    }
    // And a minute later even the same form.
    app.advance(Duration::from_secs(60));
    assert_eq!(form.send(&client).await.status, 409);
    assert_eq!(app.services.sessions.purge_forms(10).await.unwrap(), 1);
}

async fn a_name_that_stood_before_is_never_opened(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let client = app.client();
    // Even with its password: the form is for a new account.
    let form = registration(&client).await;
    for _ in 0..3 {
        let answer = form.send(&client).await;
        assert_eq!((answer.status, answer.cookie("gh_session")), (409, None));
    }
    let (one, two) = tokio::join!(form.send(&client), form.send(&client));
    assert_eq!((one.status, two.status), (409, 409));
    assert_eq!(client.get("/account").await.status, 303);
}

async fn who_signed_out_is_not_signed_in_again(store: Store) {
    let app = TestApp::start(store).await;
    let client = app.client();
    let form = registration(&client).await;
    assert_eq!(form.send(&client).await.status, 303);
    assert_eq!(client.submit("/account", "/logout", &[]).await.status, 303);
    let again = form.send(&client).await;
    assert_eq!((again.status, again.cookie("gh_session")), (409, None), "as for anybody else now");
    // A sign-in by code, and a new password instead of signing out.
    let app = TestApp::on(store).without(&["sms-phone"]).start().await;
    let client = app.client();
    let code = client.code(NUMBER, "login").await;
    let fields = [("phone", NUMBER), ("code", code.as_str())];
    let form = PageForm::on(&client, "/login/code", "/login/code", &fields).await;
    assert_eq!(form.send(&client).await.status, 303);
    let code = client.code(NUMBER, "reset").await;
    let reset = json!({ "phone": NUMBER, "code": code, "new_password": NEW });
    assert_eq!(app.client().call("/password/reset", reset).await.status, 204);
    let again = form.send(&client).await;
    assert_eq!((again.status, again.cookie("gh_session")), (401, None), "{}", again.text);
}

async fn a_captcha_is_solved_for_both_clicks(store: Store) {
    let app = TestApp::on(store)
        .limit("register-address", &[max(1).per("1h").captcha()])
        .limit("login-account", &[max(1).per("1h").captcha()])
        .without(&["login-device"])
        .start()
        .await;
    app.register("somebody").await;
    let client = app.client();
    let asked = registration(&client).await.send(&client).await;
    assert_eq!(asked.status, 403);
    let id = asked.hidden("captcha_id").unwrap();
    let solved = [&ALICE[..], &[("captcha_id", &id), ("captcha_answer", ANSWER)]].concat();
    let form = PageForm::on(&client, "/register", "/register", &solved).await;
    let (one, two) = tokio::join!(form.send(&client), form.send(&client));
    assert_eq!((one.status, two.status, form.send(&client).await.status), (303, 303, 303), "{}", two.text);
    client.submit("/account", "/logout", &[]).await;
    // And at the sign-in.
    let wrong = [("login", "alice"), ("password", "not it")];
    let asked = client.submit("/login", "/login", &wrong).await;
    let id = asked.hidden("captcha_id").unwrap();
    let fields =
        [("login", "alice"), ("password", PASSWORD), ("captcha_id", &id), ("captcha_answer", ANSWER)];
    let form = PageForm::on(&client, "/login", "/login", &fields).await;
    let (one, two) = tokio::join!(form.send(&client), form.send(&client));
    assert_eq!((one.status, two.status), (303, 303), "{}{}", one.text, two.text);
}

async fn a_code_used_twice_by_one_form_is_used_once(store: Store) {
    let app = TestApp::on(store).without(&["sms-phone"]).start().await;
    let client = app.client();
    let twice = async |form: PageForm, location: &str| {
        let (one, two) = tokio::join!(form.send(&client), form.send(&client));
        let three = form.send(&client).await;
        for answer in [one, two, three] {
            assert_eq!((answer.status, answer.header("location")), (303, location), "{}", answer.text);
        }
    };
    // The first sign-in with a number makes its account.
    let code = client.code(NUMBER, "login").await;
    let fields = [("phone", NUMBER), ("code", code.as_str())];
    twice(PageForm::on(&client, "/login/code", "/login/code", &fields).await, "/account").await;
    assert_eq!(sessions_of(&client).await, 1);
    // A new password ends all sessions.
    let code = client.code(NUMBER, "reset").await;
    let fields = [("phone", NUMBER), ("code", code.as_str()), ("new_password", PASSWORD)];
    twice(PageForm::on(&client, "/password/reset", "/password/reset", &fields).await, "/login").await;
    assert!(client.get("/login").await.text.contains("Password changed."));
    let code = client.code(NUMBER, "login").await;
    assert_eq!(client.call("/sms/login", json!({ "phone": NUMBER, "code": code })).await.status, 200);
    // Another number.
    let other = "+8613900139000";
    let code = client.code(other, "verify").await;
    let fields = [("phone", other), ("code", code.as_str()), ("current_password", PASSWORD)];
    twice(PageForm::on(&client, "/account/phone", "/account/phone", &fields).await, "/account").await;
    assert!(client.get("/account").await.text.contains(other));
    // A changed password, which ends the session that the form came with.
    let fields = [("current_password", PASSWORD), ("new_password", NEW)];
    twice(PageForm::on(&client, "/account", "/account/password", &fields).await, "/account").await;
    assert!(client.get("/account").await.text.contains("Password changed."));
    assert_eq!(sessions_of(&client).await, 1);
}

#[tokio::test]
async fn a_reset_sent_again_with_another_password_is_not_a_success() {
    let app = TestApp::on(Store::Memory).without(&["sms-phone"]).start().await;
    let client = app.client();
    let code = client.code(NUMBER, "login").await;
    assert_eq!(client.call("/sms/login", json!({ "phone": NUMBER, "code": code })).await.status, 200);
    let code = client.code(NUMBER, "reset").await;
    let fields = [("phone", NUMBER), ("code", code.as_str()), ("new_password", PASSWORD)];
    let form = PageForm::on(&client, "/password/reset", "/password/reset", &fields).await;
    assert_eq!(form.send(&client).await.status, 303);
    assert_eq!(form.send_with(&client, "new_password", NEW).await.status, 401);
    assert_eq!(form.send(&client).await.status, 303);
}

#[tokio::test]
async fn the_second_click_may_reach_another_instance() {
    let app = TestApp::start(Store::Redis).await;
    let url = app.url.clone();
    let beside = app.beside(TestApp::on(Store::Redis).set("server.public_url", &url)).await;
    let client = app.client();
    let form = registration(&client).await;
    assert_eq!(form.send(&client).await.status, 303);
    // Cookies do not distinguish ports.
    let there = Client { http: client.http.clone(), url: beside.url.clone() };
    let request =
        there.http.post(format!("{}/register", beside.url)).header("origin", &url).form(&form.fields);
    let answer = Answer::read(request.send().await.unwrap()).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/account?tab=1"), "{}", answer.text);
    assert_eq!(there.get("/account").await.status, 200);
    assert_eq!(client.get("/account").await.status, 200, "the browser has the newest token");

    // The second step, which the first click has taken.
    let owner = owner(&app, "boris").await;
    let client = app.client();
    first_step(&client, "boris").await;
    let fields = [("code", &*totp(&app, &owner.secret))];
    let form = PageForm::on(&client, "/login/factor", "/login/factor", &fields).await;
    let first = form.send(&client).await;
    assert_eq!((first.status, first.header("location")), (303, "/account"), "{}", first.text);
    let request =
        client.http.post(format!("{}/login/factor", beside.url)).header("origin", &url).form(&form.fields);
    let second = Answer::read(request.send().await.unwrap()).await;
    assert_eq!((second.status, second.header("location")), (303, "/account"), "{}", second.text);
    assert!(is_signed_in(&client).await);
    assert_eq!(
        form.send(&client).await.header("location"),
        "/account",
        "the first answer stays in its place"
    );
}

#[tokio::test]
async fn a_token_is_made_once_and_the_second_answer_says_so() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    let fields = [("name", "forum"), ("scopes", "*")];
    let form = PageForm::on(&boss, "/admin/tokens", "/admin/tokens", &fields).await;
    assert_eq!(form.send(&boss).await.status, 201);
    let again = form.send(&boss).await;
    assert_eq!((again.status, again.header("location")), (303, "/admin/tokens"));
    let page = boss.get("/admin/tokens").await;
    assert!(page.text.contains("This form was sent twice"));
    assert_eq!(page.text.matches("<bdi>forum</bdi>").count(), 1);
    // A page of its own makes another.
    assert_eq!(
        PageForm::on(&boss, "/admin/tokens", "/admin/tokens", &fields).await.send(&boss).await.status,
        201
    );
}

/// Each renews the session, which is a write that no limit counts.
#[tokio::test]
async fn a_form_is_answered_again_a_few_times_and_then_counts() {
    let app = TestApp::on(Store::Memory).limit("register-address", &[max(2).per("1h")]).start().await;
    let client = app.client();
    let form = registration(&client).await;
    for _ in 0..7 {
        assert_eq!(form.send(&client).await.status, 303);
    }
    assert_eq!(form.send(&client).await.status, 429);
    assert_eq!(client.get("/account").await.status, 200);
}

/// Forms are read field by field, so what is not there, twice there or unknown is as it was.
#[tokio::test]
async fn a_form_of_another_shape_is_still_read() {
    let app = TestApp::start(Store::Memory).await;
    let client = app.client();
    let token = client.get("/login").await.csrf_token();
    for (fields, status) in [
        (vec![("csrf_token", token.as_str())], 422),
        (vec![("csrf_token", &token), ("login", "a"), ("password", "b"), ("unknown", "c")], 401),
        (vec![("csrf_token", &token), ("login", "a"), ("login", "b")], 400),
        (vec![("csrf_token", &token), ("login", "a"), ("captcha_refresh", "1")], 200),
        (vec![("login", "a"), ("password", "b")], 403),
    ] {
        assert_eq!(client.post("/login", &fields).await.status, status, "{fields:?}");
    }
}
