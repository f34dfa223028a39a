//! Actual answers, checked against `/openapi.json`, and kept as they are in `snapshots/`: a change of an answer shows
//! there. `INSTA_UPDATE=always scripts/test openapi` writes them anew.

mod apps_and_access;
mod document;
mod fits;
mod kept_back;
mod transcript;
mod unstorable;

use std::cell::RefCell;

use fits::*;
use reqwest::Method;
use serde_json::{Value, json};
use transcript::Transcript;

use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, typed};
use crate::support::setup::max;

const WRONG: &str = "a wrong password";

struct Held {
    document: Value,
    client: Client,
    /// Every answer so far.
    transcript: RefCell<Transcript>,
}

impl Held {
    /// Checked, too. `tag` is the version that is replaced.
    async fn put(&self, app: &TestApp, path: &str, tag: Option<&str>, body: Value) -> Answer {
        let mut request = self.client.http.put(format!("{}{path}", app.url)).json(&body);
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        let answer = Answer::read(request.send().await.unwrap()).await;
        self.check("put", path, &answer);
        answer
    }

    fn by(app: &TestApp) -> Self {
        Self::of(app.client())
    }

    fn of(client: Client) -> Self {
        Self { document: document(), client, transcript: RefCell::default() }
    }

    fn check(&self, method: &str, path: &str, answer: &Answer) {
        as_described(&self.document, method, path, answer);
        self.transcript.borrow_mut().add(method, path, answer);
    }

    /// A call with a JSON body; answers the status and the problem's name.
    async fn post(&self, path: &str, body: Value) -> (u16, String) {
        self.raw(Method::POST, path, "application/json", &body.to_string()).await
    }

    async fn get(&self, path: &str) -> u16 {
        let answer = self.client.get(path).await;
        self.check("get", path, &answer);
        answer.status
    }

    async fn raw(&self, method: Method, path: &str, kind: &str, body: &str) -> (u16, String) {
        let (path, name) = (format!("/api/v1{path}"), method.as_str().to_lowercase());
        let request = self.client.http.request(method, format!("{}{path}", self.client.url));
        let answer =
            Answer::read(request.header("content-type", kind).body(body.to_owned()).send().await.unwrap())
                .await;
        self.check(&name, &path, &answer);
        (answer.status, answer.problem().to_owned())
    }
}

fn credentials(login: &str, password: &str) -> Value {
    json!({ "login": login, "password": typed(password) })
}

#[tokio::test]
async fn answers_carry_what_is_described_and_nothing_else() {
    let app = TestApp::on(Store::Memory)
        .limit("login-account", &[max(2).per("1m").captcha(), max(4).per("1h")])
        .limit("captcha-address", &[max(9).per("1m")])
        .limit("register-address", &[max(4).per("1h")])
        .without(&["login-device"])
        .start()
        .await;
    let held = Held::by(&app);
    let told = |status: u16, name: &str| (status, name.to_owned());

    assert_eq!(held.get("/healthz").await, 200);
    assert_eq!(held.get("/readyz").await, 200);
    assert_eq!(held.get("/metrics").await, 200);
    assert_eq!(held.get("/api/v1/session").await, 401);
    assert_eq!(held.post("/register", credentials("ada", PASSWORD)).await, told(201, ""));
    assert_eq!(held.get("/api/v1/session").await, 200);
    assert_eq!(held.post("/register", credentials("ada", PASSWORD)).await, told(409, "login-taken"));
    assert_eq!(held.post("/register", credentials("bea", "short")).await, told(422, "invalid-input"));
    assert_eq!(held.post("/register", credentials("b a", "")).await, told(422, "invalid-input"));
    assert_eq!(held.post("/login", credentials("ada", PASSWORD)).await, told(200, ""));
    assert_eq!(held.post("/login", json!({})).await, told(422, "invalid-input"));
    assert_eq!(held.raw(Method::POST, "/logout", "application/json", "").await, told(204, ""));
    assert_eq!(held.raw(Method::POST, "/logout", "text/plain", "out").await, told(403, "csrf"));

    for path in ["/login", "/register", "/captcha"] {
        assert_eq!(held.raw(Method::POST, path, "application/json", "{").await, told(400, "malformed-json"));
        assert_eq!(
            held.raw(Method::POST, path, "text/plain", "{}").await,
            told(415, "unsupported-media-type")
        );
        let long = json!({ "login": "x".repeat(20_000) });
        assert_eq!(held.post(path, long).await, told(413, "payload-too-large"));
        assert_eq!(held.post(path, json!({ "unknown": 1 })).await, told(422, "invalid-input"));
    }
    let foreign =
        held.client.http.post(format!("{}/api/v1/login", app.url)).header("origin", "https://evil.example");
    let answer = Answer::read(foreign.json(&credentials("ada", PASSWORD)).send().await.unwrap()).await;
    held.check("post", "/api/v1/login", &answer);
    assert_eq!(answer.problem(), "csrf");

    assert_eq!(held.post("/captcha", json!({ "for": "register" })).await, told(201, ""));
    for _ in 0..2 {
        assert_eq!(held.post("/login", credentials("ada", WRONG)).await, told(401, "invalid-credentials"));
    }
    assert_eq!(held.post("/login", credentials("ada", WRONG)).await, told(403, "captcha-required"));
    let with = |id: &str, answer: &str| json!({ "login": "ada", "password": typed(WRONG), "captcha": { "id": id, "answer": answer } });
    assert_eq!(held.post("/login", with("nonsense", ANSWER)).await, told(403, "captcha-invalid"));
    for _ in 0..2 {
        let id = held.client.challenge().await;
        assert_eq!(held.post("/login", with(&id, ANSWER)).await, told(401, "invalid-credentials"));
    }
    let id = held.client.challenge().await;
    assert_eq!(held.post("/login", with(&id, ANSWER)).await, told(429, "throttled"));
    let limited = async |path: &'static str, body: Value| {
        for _ in 0..10 {
            let last = held.post(path, body.clone()).await;
            if last.0 == 429 {
                return last;
            }
        }
        panic!("{path} is not limited");
    };
    for _ in 0..9 {
        assert_eq!(held.client.image(&held.client.challenge().await).await.status, 200);
    }
    assert_eq!(held.post("/captcha", json!({})).await, told(429, "throttled"));
    let weak = credentials("bea", "passwordpassword");
    assert_eq!(held.post("/register", weak).await, told(422, "invalid-input"));
    assert_eq!(limited("/register", credentials("ada", PASSWORD)).await, told(429, "throttled"));
    insta::assert_snapshot!("anybody", held.transcript.borrow().as_str());
}

/// The codes of every purpose, and what they open.
#[tokio::test]
async fn answers_about_codes_carry_what_is_described_and_nothing_else() {
    const NUMBER: &str = "+8613800138000";
    let app = TestApp::on(Store::Memory)
        .set("sms.countries", "['CN']")
        .limit("sms-phone", &[max(5).per("1h")])
        .limit("sms-address", &[max(6).per("1h").captcha()])
        .limit("sms-guess", &[max(4).per("10m")])
        .start()
        .await;
    let held = Held::by(&app);
    let told = |status: u16, name: &str| (status, name.to_owned());
    let ask = |phone: &str, purpose: &str| json!({ "phone": phone, "purpose": purpose });
    let enter = |code: &str| json!({ "phone": NUMBER, "code": code });
    let code = async || held.client.codes(NUMBER).await.remove(0);

    for path in ["/sms/codes", "/sms/login", "/password/reset"] {
        assert_eq!(held.raw(Method::POST, path, "application/json", "{").await, told(400, "malformed-json"));
        assert_eq!(
            held.raw(Method::POST, path, "text/plain", "{}").await,
            told(415, "unsupported-media-type")
        );
        assert_eq!(held.post(path, json!({ "unknown": 1 })).await, told(422, "invalid-input"));
        assert_eq!(
            held.post(path, json!({ "phone": "1".repeat(20_000) })).await,
            told(413, "payload-too-large")
        );
    }
    assert_eq!(held.post("/sms/codes", ask("12", "login")).await, told(422, "invalid-phone"));
    assert_eq!(
        held.post("/sms/codes", ask("+4915123456789", "login")).await,
        told(422, "country-not-allowed")
    );
    assert_eq!(held.post("/sms/codes", ask(NUMBER, "verify")).await, told(401, "unauthenticated"));
    assert_eq!(held.post("/account/phone", enter("123456")).await, told(401, "unauthenticated"));
    assert_eq!(held.post("/sms/codes", ask(NUMBER, "reset")).await, told(202, ""));
    let reset =
        |code: &str, password: &str| json!({ "phone": NUMBER, "code": code, "new_password": password });
    assert_eq!(held.post("/password/reset", reset("12", PASSWORD)).await, told(422, "invalid-input"));
    assert_eq!(held.post("/password/reset", reset(&code().await, PASSWORD)).await, told(404, "no-account"));
    assert_eq!(held.post("/sms/login", enter("123456")).await, told(401, "invalid-code"));
    assert_eq!(held.post("/sms/codes", ask(NUMBER, "login")).await, told(202, ""));
    assert_eq!(held.post("/sms/login", enter(&code().await)).await, told(200, ""));
    assert_eq!(held.get("/api/v1/session").await, 200);
    assert_eq!(
        held.raw(Method::DELETE, "/account/phone", "application/json", "{}").await,
        told(409, "only-way-in")
    );
    assert_eq!(held.post("/sms/codes", ask(NUMBER, "verify")).await, told(202, ""));
    assert_eq!(held.post("/account/phone", enter(&code().await)).await, told(409, "no-password"));
    assert_eq!(held.post("/sms/login", enter("123456")).await, told(401, "invalid-code"));
    assert_eq!(held.get("/api/v1/admin/messages").await, 403);
    assert_eq!(held.get("/api/v1/admin/brakes").await, 403);
    assert_eq!(held.get("/api/v1/admin/events").await, 403);
    assert_eq!(held.post("/sms/codes", ask(NUMBER, "register")).await, told(202, ""));
    let newcomer = json!({ "login": "ada", "password": PASSWORD, "phone": NUMBER, "code": code().await });
    assert_eq!(held.post("/register", newcomer.clone()).await, told(409, "phone-taken"));
    assert_eq!(held.post("/register", newcomer).await, told(401, "invalid-code"));
    assert_eq!(held.post("/sms/codes", ask(NUMBER, "reset")).await, told(202, ""));
    assert_eq!(held.post("/password/reset", reset(&code().await, "short")).await, told(422, "invalid-input"));
    assert_eq!(held.post("/password/reset", reset(&code().await, PASSWORD)).await, told(204, ""));
    assert_eq!(held.post("/sms/codes", ask(NUMBER, "login")).await, told(429, "throttled"));
    assert_eq!(held.post("/sms/codes", ask("13900139000", "login")).await, told(202, ""));
    assert_eq!(held.post("/sms/codes", ask("13900139000", "login")).await, told(403, "captcha-required"));
    assert_eq!(held.post("/captcha", json!({ "for": "sms" })).await, told(201, ""));
    // The answer does not say which of the number's logs counts them.
    for _ in 0..4 {
        let answer = held.post("/sms/login", enter("123456")).await;
        assert!([told(401, "invalid-code"), told(429, "throttled")].contains(&answer), "{answer:?}");
    }
    assert_eq!(held.post("/sms/login", enter("123456")).await, told(429, "throttled"));
    assert_eq!(held.get("/api/v1/admin/messages").await, 401);
    insta::assert_snapshot!("codes", held.transcript.borrow().as_str());
}

#[tokio::test]
async fn answers_to_administrators_carry_what_is_described_and_nothing_else() {
    let app = TestApp::on(Store::Memory).set("sms.brake.min_sent", 1).without(&["sms-phone"]).start().await;
    app.administrator("boss").await;
    let held = Held::by(&app);
    assert_eq!(held.post("/login", credentials("boss", PASSWORD)).await.0, 200);
    for _ in 0..3 {
        held.post("/sms/codes", json!({ "phone": "13800138000", "purpose": "login" })).await;
    }
    assert_eq!(held.get("/api/v1/admin/messages").await, 200);
    assert_eq!(held.get("/api/v1/admin/brakes").await, 200);
    assert_eq!(held.get("/api/v1/admin/events").await, 200);
    let lift = Method::DELETE;
    let path = "/admin/brakes/%2B861380013";
    for (status, problem) in [(204, ""), (404, "not-found")] {
        let request = held.client.http.request(lift.clone(), format!("{}/api/v1{path}", app.url));
        let answer = Answer::read(request.send().await.unwrap()).await;
        held.check("delete", "/api/v1/admin/brakes/{prefix}", &answer);
        assert_eq!((answer.status, answer.problem()), (status, problem));
    }
    insta::assert_snapshot!("messages", held.transcript.borrow().as_str());
}

#[tokio::test]
async fn answers_about_a_disabled_password_carry_what_is_described_and_nothing_else() {
    let app = TestApp::on(Store::Memory)
        .set("login.max_consecutive_failures", 1)
        .without(&["login-device"])
        .start()
        .await;
    let held = Held::of(app.sign_in_admin("boss").await);
    let wrong = app.client().login("boss", WRONG).await;
    held.check("post", "/api/v1/login", &wrong);
    assert_eq!(held.get("/api/v1/session").await, 200);
    let told = (409, "password-disabled".to_owned());
    let phone = json!({ "phone": "13800138000", "code": "123456", "current_password": PASSWORD });
    assert_eq!(held.post("/account/phone", phone).await, told);
    assert_eq!(held.post("/admin/confirm", json!({ "password": PASSWORD })).await, told);
    let removal = json!({ "current_password": PASSWORD }).to_string();
    assert_eq!(held.raw(Method::DELETE, "/account/phone", "application/json", &removal).await, told);
    for (path, described) in [
        ("subjects/login-account/boss", "/api/v1/admin/subjects/{limit}/{subject}"),
        ("subjects/mail-mailbox/ada@example.org", "/api/v1/admin/subjects/{limit}/{subject}"),
        ("events?action=password-disabled", "/api/v1/admin/events"),
    ] {
        let answer = held.client.get(&format!("/api/v1/admin/{path}")).await;
        assert_eq!(answer.status, 200);
        held.check("get", described, &answer);
    }
    let body = json!({ "reason": "a test" }).to_string();
    for (body, status) in
        [("{", 400), ("{\"reason\":\"a\\nb\"}", 422), (body.as_str(), 204), (body.as_str(), 404)]
    {
        let path = format!("{}/api/v1/admin/disabled-passwords/boss", app.url);
        let request = held.client.http.delete(path).header("content-type", "application/json");
        let answer = Answer::read(request.body(body.to_owned()).send().await.unwrap()).await;
        held.check("delete", "/api/v1/admin/disabled-passwords/{login}", &answer);
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
    }
    let path = format!("{}/api/v1/admin/refused-mailboxes/ada@example.org", app.url);
    let answer = Answer::read(held.client.http.delete(path).send().await.unwrap()).await;
    held.check("delete", "/api/v1/admin/refused-mailboxes/{email}", &answer);
    assert_eq!(answer.status, 404, "{}", answer.text);
    insta::assert_snapshot!("disabled_password", held.transcript.borrow().as_str());
}

#[tokio::test]
async fn answers_about_the_limits_carry_what_is_described_and_nothing_else() {
    let toml = "[limits.custom.reply]\nrules = [{ max = 5, per = \"day\" }]\n";
    let app = TestApp::with(Store::Memory, toml).await;
    let held = Held::of(app.sign_in_admin("boss").await);
    assert_eq!(held.get("/api/v1/admin/limits").await, 200);
    let call = async |method: Method, path: &str, tag: Option<&str>, body: Value| {
        let path = format!("/api/v1/admin/limits{path}");
        let mut request = held.client.http.request(method.clone(), format!("{}{path}", app.url)).json(&body);
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        let answer = Answer::read(request.send().await.unwrap()).await;
        held.check(&method.as_str().to_lowercase(), &path, &answer);
        (answer.status, answer.header("etag").to_owned())
    };
    let tag = held.client.get("/api/v1/admin/limits").await.header("etag").to_owned();
    let body = json!({ "limits": { "sms-phone": { "rules": [] } }, "reason": "a test" });
    let bad = json!({ "toml": "[limits.sms-phone]\nrules = 3", "reason": "a test" });
    assert_eq!(call(Method::PUT, "", None, body.clone()).await.0, 428);
    assert_eq!(call(Method::PUT, "", Some(&tag), bad).await.0, 422);
    let (status, saved) = call(Method::PUT, "", Some(&tag), body.clone()).await;
    assert_eq!(status, 200);
    assert_eq!(call(Method::PUT, "", Some(&tag), body).await.0, 412);
    assert_eq!(held.get("/api/v1/admin/limits/history").await, 200);
    let history = held.client.get("/api/v1/admin/limits/history").await;
    let back = json!({ "change": history.body["changes"][1]["id"], "reason": "a test" });
    assert_eq!(call(Method::POST, "/rollback", None, back.clone()).await.0, 428);
    assert_eq!(call(Method::POST, "/rollback", Some(&saved), back).await.0, 200);
    let (aside, file) = (app.file().with_extension("aside"), app.file());
    std::fs::rename(&file, aside).unwrap();
    std::fs::create_dir(file).unwrap();
    let body = json!({ "limits": {}, "reason": "a test" });
    assert_eq!(call(Method::PUT, "", Some(&tag), body).await.0, 409);
    insta::assert_snapshot!("limits", held.transcript.borrow().as_str());
}

#[tokio::test]
async fn another_method_is_told_which_there_are() {
    let app = TestApp::start(Store::Memory).await;
    for path in ["/healthz", "/login", "/api/v1/login"] {
        let request = app.client().http.request(Method::DELETE, format!("{}{path}", app.url));
        let answer = Answer::read(request.send().await.unwrap()).await;
        assert_eq!(answer.status, 405);
        assert!(!answer.header("allow").is_empty(), "{path}: RFC 9110 asks for Allow");
    }
}
