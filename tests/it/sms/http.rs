//! The API calls for codes, as clients see them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::{Setup, max};

pub const NUMBER: &str = "+8613800138000";
pub const OTHER: &str = "+8613900139000";
const MINUTE: Duration = Duration::from_secs(60);
/// Six ways to write one number.
const SPELLINGS: [&str; 6] = [
    "13800138000",
    "+86 138 0013 8000",
    "0086 13800138000",
    "+86-138-0013-8000",
    "＋８６１３８００１３８０００",
    "(+86) 138.0013.8000",
];
/// For tests of other things than the amount of messages.
fn no_limits(store: Store) -> Setup {
    TestApp::on(store).without(&["sms-phone", "sms-address", "login-address"])
}

on_both_stores!(
    a_code_signs_in_once,
    of_a_hundred_in_six_spellings_five_go_out,
    the_same_key_is_the_same_message,
    five_wrong_codes_are_looked_at,
    strangers_guesses_keep_no_owner_out,
    a_device_that_the_numbers_account_knows_gets_in_past_strangers,
    a_reset_signs_out_everywhere_and_lifts_the_throttle,
);

fn wrong(code: &str) -> &'static str {
    if code == "000000" { "000001" } else { "000000" }
}

pub async fn enter(client: &Client, phone: &str, code: &str) -> Answer {
    client.call("/sms/login", json!({ "phone": phone, "code": code })).await
}

async fn a_code_signs_in_once(store: Store) {
    let app = TestApp::start(store).await;
    let client = app.client();
    let sent = client.ask_code("138 0013 8000", "login").await;
    assert_eq!((sent.status, sent.header("ratelimit-policy").is_empty()), (202, false));
    assert_eq!(sent.body, json!({ "phone": "+86138****8000", "expires_in": 300, "resend_after": 60 }));
    let code = client.codes(NUMBER).await.remove(0);
    let refused = enter(&client, NUMBER, wrong(&code)).await;
    assert_eq!((refused.status, refused.problem()), (401, "invalid-code"));
    let told = enter(&client, "0086-138 0013 8000", &format!("{} {}", &code[..3], &code[3..])).await;
    assert_eq!(told.status, 200, "{}", told.text);
    assert!(told.cookie("gh_session").is_some());
    assert_eq!(told.body["user"]["phone"], NUMBER);
    assert!(told.body["user"]["login"].as_str().unwrap().starts_with("user-"));
    assert_eq!(client.get("/api/v1/session").await.body, told.body);
    assert_eq!(enter(&app.client(), NUMBER, &code).await.problem(), "invalid-code", "once");
    // The same account the next time.
    app.advance(MINUTE);
    let code = app.client().code(NUMBER, "login").await;
    assert_eq!(enter(&app.client(), NUMBER, &code).await.body, told.body);
}

async fn of_a_hundred_in_six_spellings_five_go_out(store: Store) {
    let app =
        TestApp::on(store).limit("sms-phone", &[max(5).per("1h")]).without(&["sms-address"]).start().await;
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let client = app.client();
            tokio::spawn(async move { client.ask_code(SPELLINGS[n % 6], "login").await })
        })
        .collect();
    let mut answers = BTreeMap::<(u16, String), usize>::new();
    for task in tasks {
        let answer = task.await.unwrap();
        *answers.entry((answer.status, answer.problem().to_owned())).or_default() += 1;
        if answer.status == 429 {
            assert_eq!(answer.body["limit"], "sms-phone");
            assert_eq!(answer.header("retry-after"), answer.body["retry_after"].to_string());
            assert!(answer.header("ratelimit").contains("\"sms-phone\";r=0;t="));
        }
    }
    assert_eq!(answers, BTreeMap::from([((202, String::new()), 5), ((429, "throttled".into()), 95)]));
    assert_eq!(app.client().codes("").await.len(), 5);
    app.advance(Duration::from_secs(3600));
    assert_eq!(app.client().ask_code(NUMBER, "login").await.status, 202);
}

async fn the_same_key_is_the_same_message(store: Store) {
    let app = TestApp::start(store).await;
    let client = app.client();
    let ask = async |key: &str| {
        let request =
            client.http.post(format!("{}/api/v1/sms/codes", app.url)).header("idempotency-key", key);
        let request = request.json(&json!({ "phone": NUMBER, "purpose": "login" }));
        Answer::read(request.send().await.unwrap()).await
    };
    let (one, two, three) = tokio::join!(ask("a"), ask("a"), ask("a"));
    for answer in [&one, &two, &three] {
        assert_eq!((answer.status, &answer.body), (202, &one.body), "{}", answer.text);
    }
    assert_eq!(ask("a").await.status, 202);
    assert_eq!(client.codes(NUMBER).await.len(), 1);
    assert_eq!(ask("b").await.problem(), "throttled");
    for key in ["", "with space", "ä", &"x".repeat(65)] {
        let refused = ask(key).await;
        assert_eq!(
            (refused.status, &refused.body["errors"][0]["field"]),
            (422, &json!("Idempotency-Key")),
            "{key}"
        );
    }
}

async fn five_wrong_codes_are_looked_at(store: Store) {
    let app = no_limits(store).start().await;
    let client = app.client();
    let code = client.code(NUMBER, "login").await;
    let guess = wrong(&code);
    let tasks: Vec<_> = (0..40)
        .map(|_| {
            let client = app.client();
            tokio::spawn(async move { enter(&client, NUMBER, guess).await.status })
        })
        .collect();
    let mut statuses = Vec::new();
    for task in tasks {
        statuses.push(task.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [[401; 5].as_slice(), &[429; 35]].concat());
    // A new code starts no new count, and on every path it is the same count for everyone except the
    // requester.
    let code = client.code(NUMBER, "reset").await;
    let reset = json!({ "phone": NUMBER, "code": code, "new_password": PASSWORD });
    let refused = app.client().call("/password/reset", reset).await;
    assert_eq!((refused.problem(), &refused.body["limit"]), ("throttled", &json!("sms-guess")));
    app.advance(10 * MINUTE);
    let code = client.code(NUMBER, "login").await;
    assert_eq!(enter(&client, NUMBER, &code).await.status, 200);
}

/// The outbox is visible only on this machine.
async fn code_asked_by(app: &TestApp, client: &Client) -> String {
    let answer = client.ask_code(NUMBER, "login").await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    app.client().codes(NUMBER).await.remove(0)
}

async fn strangers_guesses_keep_no_owner_out(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    // They keep no cookies, and have no known address.
    let stranger = app.client_at("203.0.113.77");
    for turn in 0..7 {
        let answer = enter(&stranger, NUMBER, "123456").await;
        assert_eq!(answer.status, if turn < 5 { 401 } else { 429 }, "{}", answer.text);
    }
    let owner = app.client_at("198.51.100.7");
    let code = code_asked_by(&app, &owner).await;
    assert_eq!(enter(&app.client_at("198.51.100.8"), NUMBER, &code).await.status, 200);
    // While there is a code, its requester has guesses that strangers cannot spend.
    app.advance(MINUTE);
    let code = code_asked_by(&app, &owner).await;
    for turn in 0..7 {
        let answer = enter(&app.client_at("203.0.113.78"), NUMBER, wrong(&code)).await;
        assert_eq!(answer.status, if turn < 5 { 401 } else { 429 }, "{}", answer.text);
    }
    assert_eq!(enter(&owner, NUMBER, &code).await.status, 200);
}

async fn a_device_that_the_numbers_account_knows_gets_in_past_strangers(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().without(&["sms-phone"]).start().await;
    let owner = app.client_at("198.51.100.7");
    let code = code_asked_by(&app, &owner).await;
    assert_eq!(enter(&owner, NUMBER, &code).await.status, 200);
    // After the time in which the owner's browser is the requester.
    app.advance(15 * MINUTE);
    let thief = app.client_at("203.0.113.77");
    let code = code_asked_by(&app, &thief).await;
    for _ in 0..6 {
        enter(&thief, NUMBER, wrong(&code)).await;
        enter(&app.client_at("203.0.113.78"), NUMBER, wrong(&code)).await;
    }
    assert_eq!(enter(&thief, NUMBER, &code).await.status, 429);
    assert_eq!(enter(&app.client_at("203.0.113.79"), NUMBER, &code).await.status, 429);
    assert_eq!(enter(&owner, NUMBER, &code).await.status, 200);
}

pub async fn with_number(app: &TestApp, login: &str, phone: &str) -> Client {
    let client = app.client();
    let code = client.code(phone, "register").await;
    let body = json!({ "login": login, "password": PASSWORD, "phone": phone, "code": code });
    let made = client.call("/register", body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.body["user"]["phone"], phone);
    client
}

async fn a_reset_signs_out_everywhere_and_lifts_the_throttle(store: Store) {
    const NEW: &str = "quiet lanterns drift above marble";
    let app = TestApp::start(store).await;
    let (here, there) = (with_number(&app, "alice", NUMBER).await, app.client());
    assert_eq!(there.login("alice", PASSWORD).await.status, 200);
    for _ in 0..3 {
        assert_eq!(app.client().login("alice", "a wrong password").await.status, 401);
    }
    assert_eq!(app.client().login("alice", PASSWORD).await.problem(), "captcha-required");
    app.advance(Duration::from_secs(59));
    assert_eq!(app.client().login("alice", PASSWORD).await.problem(), "captcha-required", "still");
    app.advance(Duration::from_secs(1));
    for _ in 0..3 {
        assert_eq!(app.client().login("alice", "a wrong password").await.status, 401);
    }
    let code = app.client().code(NUMBER, "reset").await;
    let reset = async |password: &str| {
        let body = json!({ "phone": NUMBER, "code": code, "new_password": password });
        app.client().call("/password/reset", body).await
    };
    for unfit in ["", "short", "passwordpassword"] {
        let refused = reset(unfit).await;
        assert_eq!((refused.status, &refused.body["errors"][0]["field"]), (422, &json!("new_password")));
    }
    let done = reset(NEW).await;
    assert_eq!((done.status, done.text.as_str()), (204, ""), "the code was not spent on those");
    for client in [&here, &there] {
        assert_eq!(client.get("/api/v1/session").await.status, 401);
    }
    assert_eq!(app.client().login("alice", NEW).await.status, 200, "no CAPTCHA is asked for");
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 401);
    assert_eq!(reset(PASSWORD).await.problem(), "invalid-code", "once");
}

#[tokio::test]
async fn a_code_is_not_spent_on_a_mistake_at_registration() {
    let app = no_limits(Store::Memory).start().await;
    app.register("taken").await;
    let client = app.client();
    let code = client.code(NUMBER, "register").await;
    let register = async |login: &str, password: &str, phone: Value, code: Value| {
        let body = json!({ "login": login, "password": password, "phone": phone, "code": code });
        client.call("/register", body).await
    };
    let (number, right) = (json!(NUMBER), json!(code));
    assert_eq!(register("taken", PASSWORD, number.clone(), right.clone()).await.problem(), "login-taken");
    for (login, password, phone, code) in [
        ("a b", PASSWORD, number.clone(), right.clone()),
        ("alice", "short", number.clone(), right.clone()),
        ("alice", PASSWORD, number.clone(), json!("12345")),
        ("alice", PASSWORD, number.clone(), Value::Null),
        ("alice", PASSWORD, Value::Null, right.clone()),
    ] {
        let refused = register(login, password, phone, code).await;
        assert_eq!((refused.status, refused.problem()), (422, "invalid-input"), "{}", refused.text);
    }
    assert_eq!(register("alice", PASSWORD, json!("12"), right.clone()).await.problem(), "invalid-phone");
    let guess = json!(wrong(&code));
    assert_eq!(register("alice", PASSWORD, number.clone(), guess).await.problem(), "invalid-code");
    assert_eq!(register("alice", PASSWORD, number.clone(), right.clone()).await.status, 201);
    // A client that proves a number learns that an account has it.
    let code = client.code(NUMBER, "register").await;
    assert_eq!(register("bob", PASSWORD, number, json!(code)).await.problem(), "phone-taken");
    assert_eq!(app.client().login("bob", PASSWORD).await.status, 401, "and has no account");
}

/// The parts of an answer that could tell accounts apart: everything except the number itself, the time and
/// the request id.
pub fn bare(answer: &Answer) -> (u16, String, Vec<(String, String)>) {
    let headers = answer.headers.iter().filter(|(name, _)| *name != "date" && *name != "x-request-id");
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let text = answer.text.replace("+86138****8000", "…").replace("+86139****9000", "…");
    (answer.status, text, headers.collect())
}

#[tokio::test]
async fn known_and_unknown_numbers_are_answered_alike() {
    let app = no_limits(Store::Memory).start().await;
    let owner = with_number(&app, "alice", NUMBER).await;
    let client = app.client();
    // A client without a browser cookie gets one, whatever the number.
    assert!(client.ask_code(OTHER, "login").await.cookie("gh_browser").is_some());
    for purpose in ["login", "register", "reset"] {
        let (known, unknown) =
            (client.ask_code(NUMBER, purpose).await, client.ask_code(OTHER, purpose).await);
        assert_eq!((known.status, bare(&known)), (202, bare(&unknown)), "{purpose}");
    }
    let (known, unknown) = (owner.ask_code(NUMBER, "verify").await, owner.ask_code(OTHER, "verify").await);
    assert_eq!((known.status, bare(&known)), (202, bare(&unknown)));
    for path in ["/sms/login", "/password/reset", "/register", "/account/phone"] {
        let try_with = async |phone: &str| {
            let code = app.client().codes(phone).await.remove(0);
            let mut body = json!({ "phone": phone, "code": wrong(&code) });
            if path == "/password/reset" {
                body["new_password"] = json!(PASSWORD);
            } else if path == "/account/phone" {
                body["current_password"] = json!(PASSWORD);
            } else if path == "/register" {
                (body["login"], body["password"]) = (json!("bob"), json!(PASSWORD));
            }
            owner.call(path, body).await
        };
        let (known, unknown) = (try_with(NUMBER).await, try_with(OTHER).await);
        assert_eq!((known.status, bare(&known)), (401, bare(&unknown)), "{path}");
    }
}

#[tokio::test]
async fn a_number_is_given_to_an_account_and_taken_away() {
    let app = no_limits(Store::Memory).start().await;
    let stranger = app.client();
    let refused = stranger.ask_code(NUMBER, "verify").await;
    assert_eq!((refused.status, refused.problem()), (401, "unauthenticated"));
    let phone = json!({ "phone": NUMBER, "code": "123456" });
    assert_eq!(stranger.call("/account/phone", phone).await.problem(), "unauthenticated");
    assert_eq!(stranger.codes("").await, Vec::<String>::new());

    app.register("alice").await;
    let alice = app.client();
    alice.login("alice", PASSWORD).await;
    let give = async |client: &Client, phone: &str| {
        let code = client.code(phone, "verify").await;
        let body = json!({ "phone": phone, "code": code, "current_password": PASSWORD });
        client.call("/account/phone", body).await
    };
    for number in [OTHER, NUMBER, NUMBER] {
        assert_eq!(give(&alice, number).await.status, 204);
        assert_eq!(alice.get("/api/v1/session").await.body["user"]["phone"], number);
    }
    let code = app.client().code(OTHER, "login").await;
    let new = app.client();
    assert_ne!(enter(&new, OTHER, &code).await.body["user"]["login"], "alice", "she has another number now");
    assert_eq!(give(&new, NUMBER).await.problem(), "no-password", "it has no password to show");
    let other = app.client();
    other.register("bob", PASSWORD).await;
    assert_eq!(give(&other, NUMBER).await.problem(), "phone-taken");
    let remove = async |client: &Client| {
        client.delete("/api/v1/account/phone", json!({ "current_password": PASSWORD })).await
    };
    let kept = remove(&new).await;
    assert_eq!((kept.status, kept.problem()), (409, "only-way-in"));
    assert_eq!(remove(&alice).await.status, 204);
    assert_eq!(remove(&alice).await.status, 204, "as asked for");
    assert!(alice.get("/api/v1/session").await.body["user"].get("phone").is_none());
    assert_eq!(give(&other, NUMBER).await.status, 204, "it is free");
}
