//! `[access] deny`: who is refused where, and what a known device may still do.

use std::time::Duration;

use serde_json::json;

use super::{ELSEWHERE, THERE, WRONG, list, owner, pair, with_cookies};
use crate::support::app::{Answer, PASSWORD, Store, TestApp, on_both_stores};

on_both_stores!(
    a_refused_network_reaches_nothing_but_what_is_spared,
    a_known_device_signs_in_to_its_own_account_and_nowhere_else,
    a_known_device_past_its_own_guesses_is_not_taken_for_a_stranger,
    the_ipv4_address_inside_another_is_refused_and_admits_nobody,
);

const HOUR: Duration = Duration::from_secs(3600);

async fn start(store: Store) -> TestApp {
    let networks = ["203.0.113.0/24", "2001:db8::/32"];
    let file = format!("[access]\n{}[limits.custom.reply]\nrules = []\n", list("deny", &networks));
    TestApp::on(store).behind_a_proxy().file(&file).start().await
}

fn assert_denied(answer: &Answer, what: &str) {
    assert_eq!((answer.status, answer.problem()), (403, "denied"), "{what}: {}", answer.text);
}

async fn a_refused_network_reaches_nothing_but_what_is_spared(store: Store) {
    let app = start(store).await;
    let stranger = app.client_at(THERE);
    for path in
        ["/", "/login", "/login/code", "/register", "/password/reset", "/account", "/admin", "/nothing"]
    {
        let answer = stranger.get(&format!("{path}?lang=en")).await;
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.text.contains("Requests from your network are refused"), "{path}: {}", answer.text);
        let answer = stranger.get(&format!("{path}?lang=zh-CN")).await;
        assert!(answer.text.contains("暂时拒绝来自您所在网络的请求"), "{path}: {}", answer.text);
    }
    let credentials = json!({ "login": "alice", "password": PASSWORD });
    for path in ["/login", "/register", "/captcha", "/sms/codes", "/sms/login", "/password/reset", "/logout"]
    {
        assert_denied(&stranger.call(path, credentials.clone()).await, path);
    }
    for path in ["/oauth/token", "/oauth/userinfo", "/oauth/keys", "/oauth/revoke", "/oauth/introspect"] {
        let answer = stranger.get(path).await;
        assert_eq!((answer.status, &answer.body["error"]), (403, &json!("access_denied")), "{path}");
    }
    for path in ["/api/v1/session", "/api/v1/admin/limits", "/openapi.json"] {
        assert_eq!(stranger.get(path).await.status, 403, "{path}");
    }
    let machine = app.client_that_says(&[("x-forwarded-for", THERE), ("authorization", "Bearer ght_x")]);
    assert_denied(&machine.call("/limits/reply/reserve", json!({ "subject": "x" })).await, "a program");
    for path in ["/healthz", "/readyz", "/favicon.ico"] {
        assert_eq!(stranger.get(path).await.status, 200, "{path}");
    }
    assert_ne!(stranger.get("/metrics").await.status, 403);
    assert_ne!(stranger.get("/sms/reports/http").await.status, 403);
    assert_eq!(
        stranger.get("/static/app.css").await.status,
        app.client_at(ELSEWHERE).get("/static/app.css").await.status
    );
    assert_eq!(app.hashes(), 0);
    // The rightmost address that no proxy of ours has is who asks, however it is spelt.
    for spelt in ["1.2.3.4, 203.0.113.9", "::ffff:203.0.113.9", "2001:db8:1::1", "203.0.113.9:4711"] {
        assert_eq!(app.client_at(spelt).get("/login").await.status, 403, "{spelt}");
    }
    for free in [ELSEWHERE, "203.0.113.9, 198.51.100.1", "2001:db9::1"] {
        assert_eq!(app.client_at(free).get("/login").await.status, 200, "{free}");
    }
    app.advance(HOUR - Duration::from_secs(1));
    assert_eq!(stranger.get("/login").await.status, 403);
    app.advance(Duration::from_secs(1));
    assert_eq!(stranger.get("/login").await.status, 200, "it ends at its time, without a reload");
}

#[tokio::test]
async fn without_a_proxy_nobody_claims_another_network() {
    let file = format!("[access]\n{}", list("deny", &["203.0.113.0/24"]));
    let app = TestApp::with(Store::Memory, &file).await;
    assert_eq!(app.client_at(THERE).get("/login").await.status, 200);
    let file = format!("[access]\n{}", list("deny", &["127.0.0.0/8"]));
    let app = TestApp::with(Store::Memory, &file).await;
    assert_eq!(app.client_at(ELSEWHERE).get("/login").await.status, 403);
}

async fn a_known_device_signs_in_to_its_own_account_and_nowhere_else(store: Store) {
    let app = start(store).await;
    let device = owner(&app, "alice").await;
    owner(&app, "bea").await;
    let known = with_cookies(&app, THERE, &device);
    assert_eq!(known.get("/login").await.status, 200);
    let before = app.hashes();
    let mut answers = Vec::new();
    for name in ["bea", "nobody-in-particular"] {
        for password in [PASSWORD, WRONG] {
            let answer = known.login(name, password).await;
            assert_denied(&answer, name);
            answers.push(answer.body);
        }
    }
    assert!(
        answers.windows(2).all(|two| two[0] == two[1]),
        "it does not tell which names exist: {answers:?}"
    );
    assert_eq!(app.hashes(), before, "nothing is compared");
    // On the page, too.
    let page = known.get("/login").await;
    let cookies = format!("{device}; {}", pair(page.cookie("gh_browser").unwrap()));
    let browser = with_cookies(&app, THERE, &cookies);
    let form = |login| [("login", login), ("password", WRONG), ("csrf_token", "")];
    for login in ["bea", "nobody-in-particular"] {
        let token = browser.get("/login").await.csrf_token();
        let mut fields = form(login);
        fields[2].1 = &token;
        let answer = browser.post("/login", &fields).await;
        assert_eq!(answer.status, 403);
        assert!(answer.text.contains("Requests from your network are refused"), "{}", answer.text);
    }
    assert_eq!(app.hashes(), before);
    // What strangers there may not do, a known browser may not do before it signs in.
    let body = json!({ "login": "eve", "password": PASSWORD });
    for path in ["/register", "/sms/codes", "/sms/login", "/password/reset"] {
        assert_denied(&known.call(path, body.clone()).await, path);
    }
    for path in ["/register", "/login/code", "/password/reset"] {
        assert_eq!(known.get(path).await.status, 403, "{path}");
    }
    // Its own account.
    assert_eq!(known.login("alice", WRONG).await.problem(), "invalid-credentials");
    let signed_in = known.login("alice", PASSWORD).await;
    assert_eq!(signed_in.status, 200, "{}", signed_in.text);
    let session = pair(signed_in.cookie("gh_session").unwrap());
    let member = with_cookies(&app, THERE, &format!("{device}; {session}"));
    assert_eq!(member.get("/account").await.status, 200);
    assert_eq!(member.get("/api/v1/session").await.status, 200);
    let code = member.ask_code("+8613800138000", "verify").await;
    assert_eq!(code.status, 202, "{}", code.text);
    // One account of an attacker's lifts nothing for the others.
    for (path, body) in [
        ("/register", body.clone()),
        ("/sms/codes", json!({ "phone": "+8613800138000", "purpose": "login" })),
        ("/sms/login", body.clone()),
        ("/password/reset", body),
    ] {
        assert_denied(&member.call(path, body).await, path);
    }
    // A session alone, or a forged device, is a stranger's.
    for cookies in [session, format!("{}x", &device[..device.len() - 1]), "gh_device=".to_owned()] {
        let stranger = with_cookies(&app, THERE, &cookies);
        assert_denied(&stranger.login("alice", PASSWORD).await, &cookies);
    }
    // And nothing of it counts against the names.
    let other = app.client_at(ELSEWHERE);
    for _ in 0..3 {
        assert_eq!(other.login("bea", WRONG).await.problem(), "invalid-credentials");
    }
}

async fn a_known_device_past_its_own_guesses_is_not_taken_for_a_stranger(store: Store) {
    let networks = list("deny", &["203.0.113.0/24"]);
    let file = format!(
        "[access]\n{networks}[limits.login-device]\nrules = [{{ max = 2, window = \"1h\", then = \"block\" }}]\n"
    );
    let app = TestApp::on(store).behind_a_proxy().file(&file).start().await;
    let known = with_cookies(&app, THERE, &owner(&app, "alice").await);
    for _ in 0..2 {
        assert_eq!(known.login("alice", WRONG).await.problem(), "invalid-credentials");
    }
    let before = app.hashes();
    let refused = known.login("alice", PASSWORD).await;
    assert_eq!((refused.status, &refused.body["limit"]), (429, &json!("login-device")), "{}", refused.text);
    assert_eq!(app.hashes(), before);
}

async fn the_ipv4_address_inside_another_is_refused_and_admits_nobody(store: Store) {
    let file = format!(
        "[access]\n{}{}[limits.login-address]\nrules = [{{ max = 1, window = '1h' }}]\n",
        list("deny", &["203.0.113.0/24"]),
        list("allow", &["198.51.100.0/24"])
    );
    let metrics = "['198.51.100.0/24']";
    let setup = TestApp::on(store).set("server.trusted_proxies", "['127.0.0.0/8']");
    let app = setup.set("server.metrics_from", metrics).file(&file).start().await;
    for denied in
        ["203.0.113.9", "64:ff9b::cb00:7109", "2002:cb00:7109::1", "2001:0:4136:e378:8000:63bf:34ff:8ef6"]
    {
        assert_denied(&app.client_at(denied).login("alice", WRONG).await, denied);
    }
    let admitted = app.client_at("198.51.100.7");
    let inside = app.client_at("64:ff9b::c633:6408");
    for (client, name, metrics, second) in [(&admitted, "bob", 200, 401), (&inside, "carol", 404, 429)] {
        assert_eq!(client.get("/metrics").await.status, metrics);
        assert_eq!(client.login(name, WRONG).await.status, 401);
        assert_eq!(client.login(name, WRONG).await.status, second);
    }
}
