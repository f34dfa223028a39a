//! Webhooks, as their receivers see them.

use std::collections::HashSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use gatehouse::accounts::Username;
use gatehouse::audit::{Action, AuditEvent, EventFilter, EventSubject, Outcome};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::net::TcpListener;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::factors;
use crate::oidc;
use crate::support::app::{PASSWORD, Store, TestApp, on_both_stores};
use crate::support::hanging::HangingServer;
use crate::support::setup::Setup;
use crate::tuning::rig;

const KEY: [u8; 32] = [7; 32];

/// A file with the signing secret.
struct Secret(tempfile::NamedTempFile);

impl Secret {
    fn new() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("whsec_{}\n", STANDARD.encode(KEY))).unwrap();
        Self(file)
    }

    /// One receiver; `more` is the rest of its settings.
    fn webhook(&self, url: &str, more: &str) -> String {
        format!("{{ url = '{url}', secret = 'file:{}', {more} }}", self.0.path().display())
    }
}

const PRIVATE: &str = "allow_private = true";

/// A name's password is disabled by one wrong try.
fn brittle(store: Store, webhooks: &[String]) -> Setup {
    TestApp::on(store)
        .set("webhooks", format!("[{}]", webhooks.join(", ")))
        .set("login.max_consecutive_failures", 1)
        .without(&["login-device"])
}

async fn receiver(status: u16) -> MockServer {
    let server = MockServer::start().await;
    answer(&server, status).await;
    server
}

async fn answer(server: &MockServer, status: u16) {
    server.reset().await;
    let answer = ResponseTemplate::new(status).insert_header("location", "/elsewhere");
    Mock::given(method("POST")).and(path("/hook")).respond_with(answer).mount(server).await;
}

/// Waits for so many messages; returns the first request of each. An attempt whose outcome was not stored, as when its
/// instance is stopped, is repeated under the same id.
async fn received(server: &MockServer, count: usize) -> Vec<Request> {
    for _ in 0..1200 {
        let mut ids = HashSet::new();
        let mut requests = server.received_requests().await.unwrap();
        requests.retain(|request| ids.insert(header(request, "webhook-id").to_owned()));
        if requests.len() >= count {
            return requests;
        }
        tokio::time::sleep(Duration::from_millis(50)).await; // the server polls by its own timer
    }
    panic!("{count} messages");
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.headers.get(name).unwrap().to_str().unwrap()
}

/// Checks the signature; returns the message.
fn message(request: &Request) -> Value {
    let signed = format!(
        "{}.{}.{}",
        header(request, "webhook-id"),
        header(request, "webhook-timestamp"),
        String::from_utf8_lossy(&request.body)
    );
    let mut mac = Hmac::<Sha256>::new_from_slice(&KEY).unwrap();
    mac.update(signed.as_bytes());
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(header(request, "webhook-signature"), expected);
    assert_eq!(header(request, "content-type"), "application/json");
    serde_json::from_slice(&request.body).unwrap()
}

on_both_stores!(
    an_attack_is_told_when_it_begins_and_when_it_is_over,
    an_attack_at_another_login_is_told_with_its_realm,
    of_two_instances_one_tells_what_happened,
    what_fails_is_tried_again_under_the_same_id,
    a_receiver_is_told_what_it_asked_for,
    what_becomes_of_second_factors_is_told,
    what_others_do_hides_no_news,
    what_one_account_does_is_few_messages,
    what_happened_while_no_instance_ran_is_told,
);

async fn of_two_instances_one_tells_what_happened(store: Store) {
    let (server, secret) = (receiver(204).await, Secret::new());
    let hook = [secret.webhook(&format!("{}/hook", server.uri()), PRIVATE)];
    let one = brittle(store, &hook).start().await;
    let other = one.beside(brittle(store, &hook)).await;
    for (app, name) in [(&one, "alice"), (&other, "boris")] {
        app.register(name).await;
        assert_eq!(app.client().login(name, "a wrong password").await.status, 401);
    }
    received(&server, 2).await;
    // Whatever would be told twice is told before this one.
    let boss = one.sign_in_admin("boss").await;
    let (version, _) = rig::shown(&boss).await;
    let limits = json!({ "sms-phone": { "rules": [] } });
    assert_eq!(rig::save(&boss, &version, &limits).await.status, 200);
    let requests = received(&server, 3).await;
    assert_eq!(server.received_requests().await.unwrap().len(), 3);
    let messages: Vec<_> = requests.iter().map(message).collect();
    let kinds: Vec<_> = messages.iter().map(|message| message["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["password.disabled", "password.disabled", "limits.changed"]);
    assert_ne!(header(&requests[0], "webhook-id"), header(&requests[1], "webhook-id"));
    assert_eq!(messages[0]["data"]["device"], false);
    let person = messages[0]["data"]["console"].as_str().unwrap();
    let page = one
        .sign_in_admin("chief")
        .await
        .get(person.strip_prefix(&*one.url).or(person.strip_prefix(&*other.url)).unwrap())
        .await;
    assert!(page.text.contains("alice") || page.text.contains("boris"), "{}", page.text);
    let console = messages[2]["data"]["console"].as_str().unwrap();
    assert!(console.ends_with("/admin/limits/history"), "{console}");
    for request in &requests {
        let text = String::from_utf8_lossy(&request.body);
        assert!(!["alice", "boris", "boss"].iter().any(|name| text.contains(name)), "{text}");
    }
}

async fn what_fails_is_tried_again_under_the_same_id(store: Store) {
    let (server, secret) = (receiver(302).await, Secret::new());
    let app = brittle(store, &[secret.webhook(&format!("{}/hook", server.uri()), PRIVATE)]).start().await;
    app.register("alice").await;
    assert_eq!(app.client().login("alice", "a wrong password").await.status, 401);
    let first = received(&server, 1).await;
    let requests = server.received_requests().await.unwrap();
    assert!(requests.iter().all(|request| request.url.path() == "/hook"), "a redirect is not followed");
    answer(&server, 200).await;
    // The attempt ends when its outcome is in the database; until then it is not due again.
    let again = async {
        loop {
            app.advance(Duration::from_secs(5));
            if !server.received_requests().await.unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await; // the server polls by its own timer
        }
    };
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("another attempt");
    let second = received(&server, 1).await;
    assert_eq!(header(&first[0], "webhook-id"), header(&second[0], "webhook-id"));
    assert_eq!(first[0].body, second[0].body);
    assert!(header(&first[0], "webhook-timestamp") < header(&second[0], "webhook-timestamp"));
    message(&second[0]);
}

async fn a_receiver_is_told_what_it_asked_for(store: Store) {
    let (all, some, secret) = (receiver(200).await, receiver(200).await, Secret::new());
    let url = |server: &MockServer| format!("{}/hook", server.uri());
    let only = "allow_private = true, events = ['limits.changed']";
    let app = brittle(store, &[secret.webhook(&url(&all), PRIVATE), secret.webhook(&url(&some), only)])
        .start()
        .await;
    app.register("alice").await;
    assert_eq!(app.client().login("alice", "a wrong password").await.status, 401);
    received(&all, 1).await;
    let boss = app.sign_in_admin("boss").await;
    let (version, _) = rig::shown(&boss).await;
    assert_eq!(rig::save(&boss, &version, &json!({ "sms-phone": { "rules": [] } })).await.status, 200);
    let told = received(&some, 1).await;
    assert_eq!(message(&told[0])["type"], "limits.changed");
}

async fn what_becomes_of_second_factors_is_told(store: Store) {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hook = secret.webhook(&format!("{}/hook", server.uri()), PRIVATE);
    let setup = TestApp::on(store).set("webhooks", format!("[{hook}]"));
    let app = setup.without(&["factor-account"]).start().await;
    let mut told = 0;
    let mut next = async |count: usize| {
        let requests = received(&server, told + count).await;
        let mut messages: Vec<Value> = requests[told..].iter().map(message).collect();
        told += count;
        messages.sort_by_key(|message| message["type"].as_str().unwrap().to_owned());
        messages
    };
    let owner = factors::owner(&app, "alice").await;
    let added = &next(1).await[0];
    assert_eq!((&added["type"], &added["data"]["factor"]), (&json!("factor.added"), &json!("totp")));
    assert_eq!(added["data"]["account"]["mask"], "al…");
    let id = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap().id;

    // Strangers show passkeys that nobody has: that is nobody's news, and hides none.
    let audit = &app.services.audit;
    for _ in 0..200 {
        let event = AuditEvent::new(audit.now(), Action::FactorFailed, Outcome::Wrong);
        audit.record(AuditEvent { name: Some("passkey"), ..event });
    }
    let thief = app.client();
    factors::first_step(&thief, "alice").await;
    for (browser, is_known) in [(&thief, false), (&owner.browser, true)] {
        factors::first_step(browser, "alice").await;
        assert_eq!(factors::by_totp(browser, factors::WRONG_CODE).await.problem(), "invalid-factor");
        let failed = &next(1).await[0];
        assert_eq!((&failed["type"], &failed["data"]["device"]), (&json!("factor.failed"), &json!(is_known)));
    }
    assert_eq!(factors::by_recovery(&owner.browser, &owner.recovery[0]).await.status, 200);
    let used = &next(1).await[0];
    assert_eq!((&used["type"], &used["data"]["factor"]), (&json!("factor.removed"), &json!("recovery")));

    let boss = app.sign_in_admin("boss").await;
    let path = format!("/api/v1/admin/accounts/{id}/factors");
    assert_eq!(boss.delete(&path, json!({ "reason": "a lost telephone" })).await.status, 204);
    assert_eq!(next(1).await[0]["type"], "factor.reset");

    let owner = factors::owner(&app, "boris").await;
    assert_eq!(next(1).await[0]["type"], "factor.added");
    factors::first_step(&thief, "boris").await;
    join_all((0..100).map(|_| factors::by_totp(&thief, factors::WRONG_CODE))).await;
    let disabled = next(61).await;
    assert_eq!(disabled[60]["type"], "totp.disabled");
    assert!(disabled[..60].iter().all(|message| message["type"] == "factor.failed"));
    // Past sixty a minute of one account they are one message.
    app.advance(Duration::from_secs(61));
    let rest = &next(1).await[0];
    assert_eq!((&rest["type"], &rest["data"]["count"]), (&json!("factor.failed"), &json!(40)));
    drop(owner);
    for request in &server.received_requests().await.unwrap() {
        let text = String::from_utf8_lossy(&request.body);
        assert!(!["alice", "boris", "telephone"].iter().any(|word| text.contains(word)), "{text}");
    }
}

/// Of one action, more than are read at once.
async fn what_others_do_hides_no_news(store: Store) {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hook =
        secret.webhook(&format!("{}/hook", server.uri()), "events = ['factor.failed'], allow_private = true");
    let app = TestApp::on(store).set("webhooks", format!("[{hook}]")).start().await;
    let audit = &app.services.audit;
    let fail = |name: &str| {
        let event = AuditEvent::new(audit.now(), Action::FactorFailed, Outcome::Wrong);
        audit.record(AuditEvent { name: Some("totp"), account: Some(EventSubject::Login(name)), ..event });
    };
    let victims = ["alice", "boris", "carol", "dora", "eve"];
    victims.into_iter().for_each(fail);
    (0..400).for_each(|number| fail(&format!("other-{number}")));
    audit.flush().await;
    let told = received(&server, 405).await;
    for name in victims {
        let key = format!("key:{:016x}", audit.subject(&EventSubject::Login(name)));
        let is_of = |request: &&Request| message(request)["data"]["account"]["key"] == key;
        assert_eq!(told.iter().filter(is_of).count(), 1, "{name}");
    }
}

/// By the fastest that there is: a switch.
async fn what_one_account_does_is_few_messages(store: Store) {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hook = secret.webhook(&format!("{}/hook", server.uri()), PRIVATE);
    let app = TestApp::on(store).set("webhooks", format!("[{hook}]")).start().await;
    let owner = factors::owner(&app, "alice").await;
    for _ in 0..10 {
        let toggles =
            (0..40).map(|number| factors::put(&owner.browser, "/factors", json!({ "ask": number % 2 == 0 })));
        // Another one may have turned it back before the answer.
        assert!(join_all(toggles).await.iter().all(|answer| [204, 422].contains(&answer.status)));
    }
    factors::owner(&app, "boris").await;
    let audit = &app.services.audit;
    audit.flush().await;
    let actions = [Action::FactorAdded, Action::FactorRemoved];
    let mut rows = Vec::new();
    for action in actions {
        let filter = EventFilter { actions: vec![action], ..EventFilter::default() };
        rows.extend(audit.log().page(&filter, None, 500).await.unwrap().entries);
    }
    assert!(rows.len() <= 2 * 62, "{} rows", rows.len());
    let told: Vec<Value> = received(&server, rows.len()).await.iter().map(message).collect();
    let times = |told: &Value| told["data"]["count"].as_i64().unwrap_or(1);
    assert_eq!(told.iter().map(times).sum::<i64>(), rows.iter().map(|row| row.count).sum::<i64>());
    let apps = told.iter().filter(|told| told["data"]["factor"] == "totp").count();
    assert_eq!(apps, 2, "of both accounts");
}

async fn what_happened_while_no_instance_ran_is_told(store: Store) {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hook = [secret.webhook(&format!("{}/hook", server.uri()), PRIVATE)];
    let app = brittle(store, &[]).start().await;
    let other = app.beside(brittle(store, &hook)).await;
    app.register("alice").await;
    assert_eq!(app.client().login("alice", "a wrong password").await.status, 401);
    received(&server, 1).await;
    drop(other);
    app.register("boris").await;
    assert_eq!(app.client().login("boris", "a wrong password").await.status, 401);
    app.services.audit.flush().await;
    app.advance(Duration::from_secs(26 * 60 * 60));
    let again = app.beside(brittle(store, &hook)).await;
    let told = received(&server, 2).await;
    assert_ne!(message(&told[0])["data"]["account"], message(&told[1])["data"]["account"]);
    drop(again);
}

#[tokio::test]
async fn a_new_signing_key_is_told() {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hook = secret.webhook(&format!("{}/hook", server.uri()), PRIVATE);
    let setup = TestApp::on(Store::Memory).set("webhooks", format!("[{hook}]"));
    let app = setup.set("oidc.signing", "ES256").start().await;
    app.services.token_keys.want();
    let told = message(&received(&server, 1).await[0]);
    let data = &told["data"];
    assert_eq!((&told["type"], &data["algorithm"]), (&json!("key.rotated"), &json!("ES256")));
    assert_eq!((&data["previous"], &data["begins_at"]), (&Value::Null, &told["timestamp"]));
    let set = app.services.token_keys.jwks();
    assert_eq!(data["kid"], set.keys[0].kid.as_str());
}

#[tokio::test]
async fn a_consent_is_told() {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hook =
        secret.webhook(&format!("{}/hook", server.uri()), "events = ['consent.given'], allow_private = true");
    let app = oidc::start(oidc::on(Store::Memory).set("webhooks", format!("[{hook}]"))).await;
    let browser = oidc::browser(&app, "alice").await;
    let request = oidc::request(&[("client_id", "spa"), ("redirect_uri", oidc::SPA)]);
    oidc::limits::agree(&browser, &request).await;
    let told = message(&received(&server, 1).await[0]);
    let data = &told["data"];
    assert_eq!((&told["type"], &data["app"]), (&json!("consent.given"), &json!("spa")));
    assert_eq!(data["account"]["mask"], "al…");
    assert!(data["console"].as_str().unwrap().contains("/admin/lookup?account="), "{told}");
}

#[tokio::test]
async fn a_name_that_leads_inside_is_not_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let secret = Secret::new();
    let app =
        brittle(Store::Memory, &[secret.webhook(&format!("https://localhost:{port}/"), "")]).start().await;
    app.register("alice").await;
    assert_eq!(app.client().login("alice", "a wrong password").await.status, 401);
    let failed = r#"gatehouse_webhook_attempts_total{result="failed"} 1"#;
    for _ in 0..1200 {
        if app.client().get("/metrics").await.text.contains(failed) {
            let accepted = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
            assert!(accepted.is_err(), "it was connected to");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await; // the server polls by its own timer
    }
    panic!("no attempt");
}

#[tokio::test]
async fn a_store_that_is_out_is_told_and_so_is_its_return() {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hook = secret.webhook(&format!("{}/hook", server.uri()), PRIVATE);
    let mut app = TestApp::on(Store::Redis)
        .set("webhooks", format!("[{hook}]"))
        .set("store.timeout", "100ms")
        .start()
        .await;
    app.redis.as_mut().unwrap().kill();
    let down = message(&received(&server, 1).await[0]);
    assert_eq!((&down["type"], &down["data"]["part"]), (&json!("dependency.down"), &json!("store")));
    app.restart_redis();
    let up = message(&received(&server, 2).await[1]);
    assert_eq!((&up["type"], &up["data"]["part"]), (&json!("dependency.up"), &json!("store")));
}

#[tokio::test]
async fn a_database_that_is_out_is_told_without_it() {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hook = secret.webhook(&format!("{}/hook", server.uri()), PRIVATE);
    let mut app =
        TestApp::on(Store::Memory).own_postgres().set("webhooks", format!("[{hook}]")).start().await;
    assert_eq!(app.client().register("alice", PASSWORD).await.status, 201);
    app.postgres.as_mut().unwrap().stop();
    let down = message(&received(&server, 1).await[0]);
    assert_eq!((&down["type"], &down["data"]["part"]), (&json!("dependency.down"), &json!("database")));
    app.postgres.as_mut().unwrap().restart().await;
    let up = message(&received(&server, 2).await[1]);
    assert_eq!((&up["type"], &up["data"]["part"]), (&json!("dependency.up"), &json!("database")));
}

#[tokio::test]
async fn receivers_that_hang_delay_no_other_while_the_database_is_out() {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hanging = [HangingServer::start().await, HangingServer::start().await];
    let hooks = hanging
        .iter()
        .map(|server| &server.url)
        .chain([&server.uri()])
        .map(|url| secret.webhook(&format!("{url}/hook"), PRIVATE))
        .collect::<Vec<_>>();
    let mut app = TestApp::on(Store::Memory)
        .own_postgres()
        .set("webhooks", format!("[{}]", hooks.join(", ")))
        .start()
        .await;
    app.postgres.as_mut().unwrap().stop();
    let down = message(&received(&server, 1).await[0]);
    assert_eq!((&down["type"], &down["data"]["part"]), (&json!("dependency.down"), &json!("database")));
    let each = hanging.each_ref().map(|server| (server.taken(), server.waiting()));
    assert!(each.iter().all(|(taken, waiting)| taken == waiting), "they were given up before: {each:?}");
}

/// As every instance does each ten seconds.
async fn watch(app: &TestApp) {
    app.services.audit.flush().await;
    app.services.attacks.check().await.unwrap();
    app.services.audit.flush().await;
}

async fn an_attack_at_another_login_is_told_with_its_realm(store: Store) {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hook = secret.webhook(
        &format!("{}/hook", server.uri()),
        "allow_private = true, events = ['attack.began', 'attack.ended']",
    );
    let setup = TestApp::on(store).set("webhooks", format!("[{hook}]"));
    let (app, _, shop) = crate::guard::started(setup).await;
    for attempt in 0..50 {
        shop.fail_from(&format!("198.51.{attempt}.7"), &format!("name-{attempt}")).await;
    }
    watch(&app).await;
    let began = message(&received(&server, 1).await[0]);
    assert_eq!(began["type"], "attack.began");
    assert_eq!((&began["data"]["kind"], &began["data"]["realm"]), (&json!("attempts"), &json!("shop")));
    app.advance(Duration::from_secs(20 * 60));
    watch(&app).await;
    let ended = message(&received(&server, 2).await[1]);
    assert_eq!((&ended["type"], &ended["data"]["realm"]), (&json!("attack.ended"), &json!("shop")));
    assert!(!ended.to_string().contains("name-") && !ended.to_string().contains("198.51"), "{ended}");
}

async fn an_attack_is_told_when_it_begins_and_when_it_is_over(store: Store) {
    let (server, secret) = (receiver(200).await, Secret::new());
    let hook = secret.webhook(
        &format!("{}/hook", server.uri()),
        "allow_private = true, events = ['attack.began', 'attack.ended']",
    );
    let app = TestApp::on(store).behind_a_proxy().set("webhooks", format!("[{hook}]")).start().await;
    for attempt in 0..60 {
        app.client_at(&format!("198.51.{attempt}.7"))
            .login(&format!("name-{attempt}"), "a wrong password")
            .await;
    }
    watch(&app).await;
    let began = message(&received(&server, 1).await[0]);
    assert_eq!((&began["type"], &began["data"]["kind"]), (&json!("attack.began"), &json!("sign-ins")));
    assert_eq!(began["data"]["recent"], 60);
    app.advance(Duration::from_secs(20 * 60));
    watch(&app).await;
    let ended = message(&received(&server, 2).await[1]);
    assert_eq!((&ended["type"], &ended["data"]["kind"]), (&json!("attack.ended"), &json!("sign-ins")));
    assert_eq!(ended["data"]["attack"], began["data"]["attack"]);
}
