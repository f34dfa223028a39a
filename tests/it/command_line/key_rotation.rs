//! The key that signs is replaced while people are signed in, with the commands of `docs/operations.md`.

use serde_json::json;

use crate::support::app::{Client, PASSWORD};
use crate::support::process::{Home, Running};

const PHONE: &str = "+8613800138000";
const CONFIG: &str = "[captcha]\nprovider = 'fixed'\nfixed_answer = 'solo'
[limits]\nsms-phone.rules = [{ max = 2, window = '1h' }]
login-account.rules = [{ max = 2, window = '1h', then = 'block' }]
login-address.rules = []\nlogin-network.rules = []";

fn step(home: &Home, step: &str) {
    let ended = home.run(&["key", step]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// The same browser at the server that was started since, on the same port.
async fn restarted(home: &Home, running: Running) -> Running {
    drop(running);
    home.start(&["serve"]).await
}

/// What one browser was given before the rotation.
struct Given {
    client: Client,
    /// Has the page with the form open, and is not signed in.
    visitor: Client,
    captcha: String,
    csrf: String,
    code: String,
    token: String,
}

async fn given(home: &Home, running: &Running) -> Given {
    let made =
        home.run_with_input(&["admin", "create", "boss", "--password-stdin"], &format!("{PASSWORD}\n"));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let boss = running.client();
    assert_eq!(boss.login("boss", PASSWORD).await.status, 200);
    let token = boss.call("/admin/tokens", json!({ "name": "program", "scopes": ["*"] })).await;
    assert_eq!(token.status, 201, "{}", token.text);
    let client = running.client();
    assert_eq!(client.register("alice", PASSWORD).await.status, 201);
    for _ in 0..2 {
        assert_eq!(client.ask_code(PHONE, "login").await.status, 202);
    }
    let code = client.codes(PHONE).await.remove(0);
    let (captcha, visitor) = (client.challenge().await, running.client());
    let csrf = visitor.get("/login/code").await.csrf_token();
    Given { visitor, captcha, csrf, code, token: token.body["token"].as_str().unwrap().to_owned(), client }
}

impl Given {
    /// Nothing is sent, because the number is wrong.
    async fn form(&self) -> u16 {
        self.visitor.post("/login/code", &[("phone", "1"), ("csrf_token", &self.csrf)]).await.status
    }

    async fn session(&self) -> u16 {
        self.client.get("/api/v1/session").await.status
    }

    async fn program(&self) -> u16 {
        let url = format!("{}/api/v1/limits/none/peek", self.client.url);
        let request = self.client.http.post(url).bearer_auth(&self.token).json(&json!({ "subject": "x" }));
        request.send().await.unwrap().status().as_u16()
    }
}

#[tokio::test]
async fn nobody_notices_that_the_signing_key_was_replaced() {
    let home = Home::new();
    home.write("gatehouse.toml", CONFIG);
    let running = home.start(&["serve"]).await;
    let alice = given(&home, &running).await;
    // Strangers keep strangers out of the account; the browser that it was made in is known there.
    let lock = async |running: &Running| {
        for _ in 0..2 {
            running.client().login("alice", "a wrong password").await;
        }
        assert_eq!(running.client().login("alice", PASSWORD).await.problem(), "throttled");
    };
    lock(&running).await;
    assert_eq!(running.client().register("bob", PASSWORD).await.status, 201);
    still_no_new_guess(&running).await;

    step(&home, "add");
    let running = restarted(&home, running).await;
    still_no_new_guess(&running).await;
    assert_eq!((alice.session().await, alice.form().await, alice.program().await), (200, 422, 404));

    step(&home, "use");
    let running = restarted(&home, running).await;
    still_no_new_guess(&running).await;
    assert_eq!((alice.session().await, alice.form().await, alice.program().await), (200, 422, 404));
    let third = alice.client.ask_code(PHONE, "login").await;
    assert_eq!(third.problem(), "throttled", "windows and cap hold: {}", third.text);
    let elsewhere = running.client();
    assert_eq!(elsewhere.login("alice", PASSWORD).await.problem(), "throttled", "and those of the account");
    let solved = alice.client.login_with("nobody", "a wrong password", &alice.captcha, "solo").await;
    assert_eq!((solved.status, solved.problem()), (401, "invalid-credentials"), "{}", solved.text);
    let entered = elsewhere.call("/sms/login", json!({ "phone": PHONE, "code": alice.code })).await;
    assert_eq!(entered.status, 200, "{}", entered.text);
    assert_eq!(alice.client.login("alice", PASSWORD).await.status, 200, "the device is known");

    step(&home, "drop");
    let running = restarted(&home, running).await;
    assert_eq!((alice.session().await, alice.program().await), (200, 404));
    assert_eq!(alice.form().await, 403, "what the old key has signed is over");
    lock_holds_for_strangers_only(&running, &alice).await;
    still_no_new_guess(&running).await;
    assert_eq!(running.client().login("bob", "a second guess").await.status, 401);
    assert_eq!(running.client().login("bob", "a third guess").await.problem(), "throttled");
    let third = alice.client.ask_code(PHONE, "login").await;
    assert_eq!(third.problem(), "throttled", "{}", third.text);
}

/// The same wrong password at bob's, time and again.
async fn still_no_new_guess(running: &Running) {
    assert_eq!(running.client().login("bob", "what bob's phone still sends").await.status, 401);
}

/// The sign-in under the new key has renewed the cookie of the device.
async fn lock_holds_for_strangers_only(running: &Running, alice: &Given) {
    assert_eq!(running.client().login("alice", PASSWORD).await.problem(), "throttled");
    assert_eq!(alice.client.login("alice", PASSWORD).await.status, 200);
}

#[test]
fn a_step_out_of_order_is_refused_and_names_the_next_one() {
    let home = Home::new();
    let missing = home.run(&["key", "add"]);
    assert_eq!(missing.code, Some(2), "no key is made by looking for one: {}", missing.stdout);
    std::fs::create_dir(home.path("data")).unwrap();
    home.write("data/secret.key", &"k".repeat(32));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(home.path("data/secret.key"), mode).unwrap();
    let refused = home.run(&["key", "drop"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("the next one is: gatehouse key add"), "{}", refused.stderr);
    step(&home, "add");
    assert!(home.run(&["key", "show"]).stdout.contains("gatehouse key use"));
}
