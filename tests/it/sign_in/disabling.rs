//! What happens after a hundred wrong passwords in a row: nothing that anybody can notice.

use std::sync::Arc;
use std::time::Duration;

use gatehouse::accounts::{Account, Username};
use gatehouse::audit::{Action, EventFilter};
use gatehouse::db::Db;
use sqlx::query_scalar;

use super::bursts::{attempt, burst};
use super::throttling::{comparable, fail_solved};
use crate::support::app::{ANSWER, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::Setup;

const WRONG: &str = "a wrong password";

on_both_stores!(
    of_two_hundred_wrong_passwords_at_once_a_hundred_are_compared,
    right_passwords_are_not_refused_for_one_another_however_few_are_left,
    a_right_password_begins_anew,
    a_known_device_has_a_hundred_of_its_own,
    what_a_known_device_does_gives_strangers_nothing,
    a_new_password_from_a_known_device_is_good_everywhere,
    of_two_hundred_wrong_passwords_at_once_from_a_known_device_a_hundred_are_compared,
    a_disabled_password_is_answered_like_a_wrong_one_and_like_none,
    a_disabled_password_looks_like_none_on_the_page,
);

fn up_to(max: u32, store: Store) -> Setup {
    let setup = TestApp::on(store).without(&["login-account", "login-address"]);
    setup.set("login.max_consecutive_failures", max)
}

async fn account(app: &TestApp, login: &str) -> Account {
    app.services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap()
}

/// How many passwords were compared with an account's own hash, and how many with a decoy.
fn compared(app: &TestApp) -> (u64, u64) {
    let decoys = app.services.hasher.decoys();
    (app.hashes() - decoys, decoys)
}

async fn of_two_hundred_wrong_passwords_at_once_a_hundred_are_compared(store: Store) {
    let app = TestApp::on(store).without(&["login-account", "login-address"]).start().await;
    app.register("known").await;
    let (own, decoys) = compared(&app);
    let answers = burst(&app, "known", vec![WRONG; 200], 200).await;
    let first = comparable(app.client().login("nobody", WRONG).await);
    for (_, answer) in answers {
        assert_eq!(comparable(answer), first, "one answer for them all, and for a name that nobody has");
    }
    let now = compared(&app);
    assert_eq!((now.0 - own, now.1 - decoys), (100, 101));
    assert_eq!(account(&app, "known").await.password_failures, 100);
    assert_eq!(comparable(app.client().login("known", PASSWORD).await), first, "nor is the right one told");
    let audit = &app.services.audit;
    audit.flush().await;
    let disabled = EventFilter { actions: vec![Action::PasswordDisabled], ..EventFilter::default() };
    let events = audit.log().page(&disabled, None, 10).await.unwrap().entries;
    assert_eq!(events.iter().map(|event| event.count).sum::<i64>(), 1);
    assert!(events[0].account.is_some() && events[0].address.is_some());
}

async fn right_passwords_are_not_refused_for_one_another_however_few_are_left(store: Store) {
    let app = up_to(3, store).start().await;
    app.register("known").await;
    for _ in 0..2 {
        assert_eq!(app.client().login("known", WRONG).await.status, 401);
    }
    for (_, answer) in burst(&app, "known", vec![PASSWORD; 50], 50).await {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert_eq!(account(&app, "known").await.password_failures, 0);
}

async fn a_right_password_begins_anew(store: Store) {
    let app = up_to(3, store).start().await;
    app.register("known").await;
    let client = app.client();
    for _ in 0..4 {
        fail(&app, "known", 2).await;
        assert_eq!(app.client().login("known", PASSWORD).await.status, 200);
    }
    assert_eq!(client.login("known", PASSWORD).await.status, 200);
    fail(&app, "known", 3).await;
    assert_eq!(app.client().login("known", PASSWORD).await.status, 401);
    assert_eq!(client.get("/api/v1/session").await.status, 200, "who is signed in stays so");
}

/// As this many strangers.
async fn fail(app: &TestApp, login: &str, times: u32) {
    for _ in 0..times {
        assert_eq!(app.client().login(login, WRONG).await.status, 401);
    }
}

/// The default rules on accounts, and none on addresses.
fn limited(max: u32, store: Store) -> Setup {
    TestApp::on(store).behind_a_proxy().set("login.max_consecutive_failures", max)
}

async fn a_known_device_has_a_hundred_of_its_own(store: Store) {
    let app = limited(3, store).start().await;
    let (home, work) = (app.client(), app.client());
    assert_eq!(home.register("known", PASSWORD).await.status, 201);
    assert_eq!(work.login("known", PASSWORD).await.status, 200);
    fail(&app, "known", 3).await;
    app.advance(Duration::from_secs(60));
    let stranger = async || app.client().login("known", PASSWORD).await.status;
    // A password disabled for strangers works from a known device, which re-enables it for nobody else.
    for _ in 0..3 {
        assert_eq!((home.login("known", PASSWORD).await.status, stranger().await), (200, 401));
        for _ in 0..2 {
            assert_eq!(home.login("known", WRONG).await.status, 401, "its right ones begin its own anew");
        }
    }
    assert_eq!(account(&app, "known").await.password_failures, 3);
    assert_eq!(home.login("known", WRONG).await.status, 401);
    let nowhere = comparable(app.client().login("nobody", PASSWORD).await);
    app.advance(Duration::from_secs(60));
    assert_eq!(comparable(home.login("known", PASSWORD).await), nowhere, "spent, it is a stranger");
    assert_eq!((stranger().await, work.login("known", PASSWORD).await.status), (401, 200));
    assert_eq!(home.get("/api/v1/session").await.status, 200, "who is signed in stays so");
    // A way back for strangers also works for the device.
    app.advance(Duration::from_secs(60));
    let id = account(&app, "known").await.id;
    assert!(app.services.accounts.enable_password(id).await.unwrap());
    assert_eq!((home.login("known", PASSWORD).await.status, stranger().await), (200, 200));
}

async fn what_a_known_device_does_gives_strangers_nothing(store: Store) {
    let app = limited(3, store).start().await;
    let home = app.client();
    assert_eq!(home.register("known", PASSWORD).await.status, 201);
    fail(&app, "known", 2).await;
    for _ in 0..2 {
        assert_eq!(home.login("known", WRONG).await.status, 401);
    }
    assert_eq!(account(&app, "known").await.password_failures, 2, "the device's are its own");
    assert_eq!(home.login("known", PASSWORD).await.status, 200);
    assert_eq!(account(&app, "known").await.password_failures, 2, "nor does its right one take any away");
    fail(&app, "known", 1).await;
    assert!(account(&app, "known").await.password_disabled_at.is_some());
    assert_eq!(home.login("known", PASSWORD).await.status, 200);
}

async fn a_new_password_from_a_known_device_is_good_everywhere(store: Store) {
    const NEW: &str = "quiet lanterns drift above marble";
    let app = up_to(2, store).start().await;
    let (home, away) = (app.client(), app.client());
    assert_eq!(home.register("known", PASSWORD).await.status, 201);
    fail(&app, "known", 2).await;
    let page = home.get("/account").await.text;
    assert!(
        page.contains("disabled in new browsers") && page.contains("name=\"current_password\""),
        "{page}"
    );
    assert!(page.contains("href=\"/account/phone\""), "{page}");
    let change = |current| [("current_password", current), ("new_password", NEW)];
    assert_eq!(home.submit("/account", "/account/password", &change(WRONG)).await.status, 422);
    let done = home.submit("/account", "/account/password", &change(PASSWORD)).await;
    assert_eq!((done.status, done.header("location")), (303, "/account"), "{}", done.text);
    assert_eq!(away.login("known", NEW).await.status, 200);
    assert_eq!(account(&app, "known").await.password_failures, 0);
    assert!(!home.get("/account").await.text.contains("disabled in new browsers"));
}

async fn of_two_hundred_wrong_passwords_at_once_from_a_known_device_a_hundred_are_compared(store: Store) {
    let app = TestApp::on(store).without(&["login-account", "login-address"]).start().await;
    let home = Arc::new(app.client());
    assert_eq!(home.register("known", PASSWORD).await.status, 201);
    let before = compared(&app);
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let home = Arc::clone(&home);
        tries.spawn(async move { attempt(&home, "known", WRONG).await });
    }
    let answers = tries.join_all().await;
    let first = comparable(app.client().login("nobody", WRONG).await);
    for answer in answers {
        assert_eq!(comparable(answer), first);
    }
    let now = compared(&app);
    // The others are strangers, who have their own hundred: together that is everything.
    assert_eq!((now.0 - before.0, now.1 - before.1), (200, 1));
    assert_eq!(account(&app, "known").await.password_failures, 100);
    assert_eq!(home.login("known", PASSWORD).await.status, 401);
}

/// Step by step, compared with a name without an account and with an untouched account; the right password
/// from the third step on.
async fn a_disabled_password_is_answered_like_a_wrong_one_and_like_none(store: Store) {
    let app = limited(2, store).start().await;
    for login in ["disabled", "fine"] {
        app.register(login).await;
    }
    let clients = ["203.0.113.7", "203.0.113.8", "203.0.113.9"].map(|from| app.client_at(from));
    for _ in 0..2 {
        app.client_at("203.0.113.66").login("disabled", WRONG).await;
    }
    assert!(account(&app, "disabled").await.password_disabled_at.is_some());
    // The earlier attempts are outside every window; the password stays disabled.
    app.advance(Duration::from_secs(3600));
    for step in 0..24 {
        let mut told = Vec::new();
        let mut costs = Vec::new();
        // The same each time: after the first it is no new guess, and the rule that blocks is not reached.
        let subjects = [("disabled", PASSWORD), ("nobody", PASSWORD), ("fine", "the same wrong one")];
        for (client, (login, password)) in clients.iter().zip(subjects) {
            // One more would disable it, too.
            if login == "fine" {
                app.services.accounts.forget_failures(&account(&app, login).await).await.unwrap();
            }
            let before = app.hashes();
            let answer = match step {
                0..5 | 23 => client.login(login, password).await,
                _ => client.login_with(login, password, &client.challenge().await, ANSWER).await,
            };
            costs.push(app.hashes() - before);
            told.push(comparable(answer));
        }
        assert!(told[0] == told[1] && told[1] == told[2], "step {step}: {told:#?}");
        assert!(costs[0] == costs[1] && costs[1] == costs[2], "step {step}: {costs:?}");
        let expected = match step {
            0..3 | 5..23 => 401,
            _ => 403,
        };
        assert_eq!(told[0].0, expected, "step {step}");
    }
    // The hour is over, and the right one is still refused.
    app.advance(Duration::from_secs(3600));
    assert_eq!(clients[0].login("disabled", PASSWORD).await.problem(), "invalid-credentials");
    assert_eq!(clients[2].login("fine", PASSWORD).await.status, 200);
}

async fn a_disabled_password_looks_like_none_on_the_page(store: Store) {
    let app = limited(1, store).start().await;
    app.register("known").await;
    assert_eq!(app.client_at("203.0.113.66").login("known", WRONG).await.status, 401);
    app.advance(Duration::from_secs(3600));
    let (at_known, at_unknown) = (app.client_at("203.0.113.7"), app.client_at("203.0.113.8"));
    for step in 0..5 {
        let mut told = Vec::new();
        // Names of the same length, so that the pages have the same length.
        for (client, login) in [(&at_known, "known"), (&at_unknown, "nowon")] {
            let answer = client.submit("/login", "/login", &[("login", login), ("password", PASSWORD)]).await;
            let mut text = answer.text.replace(&answer.csrf_token(), "TOKEN").replace(login, "LOGIN");
            if let Some(id) = answer.hidden("captcha_id") {
                text = text.replace(&id, "CAPTCHA");
            }
            told.push((answer.status, answer.header("retry-after").to_owned(), text));
        }
        assert_eq!(told[0], told[1], "step {step}");
        assert_eq!(told[0].0, if step < 3 { 401 } else { 403 }, "step {step}: {}", told[0].2);
        assert!(
            step >= 3 || told[0].2.contains("set a new password or ask an administrator"),
            "it says what to do"
        );
    }
}

/// An answer without a preceding write would come sooner.
#[tokio::test]
async fn a_wrong_password_is_written_once_whomever_it_is_for() {
    let app = up_to(2, Store::Memory).start().await;
    let home = app.client();
    assert_eq!(home.register("known", PASSWORD).await.status, 201);
    let db = Db::connect(&app.database).await.unwrap();
    let unheld = async || -> i64 {
        let sql = "SELECT CAST(SUM(count) AS BIGINT) FROM unheld_failures";
        match &db {
            Db::Sqlite(pools) => query_scalar(sql).fetch_one(&pools.all).await.unwrap(),
            Db::Postgres(pools) => query_scalar(sql).fetch_one(&pools.all).await.unwrap(),
        }
    };
    let client = app.client();
    for (login, held, expected) in
        [("known", 1, 0), ("nobody", 1, 1), ("known", 2, 1), ("known", 2, 2), ("nobody", 2, 3)]
    {
        assert_eq!(client.login(login, WRONG).await.status, 401);
        assert_eq!((account(&app, "known").await.password_failures, unheld().await), (held, expected));
    }
    // From a known device it is also written once, in neither of these counts.
    assert_eq!(home.login("known", WRONG).await.status, 401);
    assert_eq!((account(&app, "known").await.password_failures, unheld().await), (2, 3));
    let device = "SELECT CAST(SUM(failures) AS BIGINT) FROM device_failures";
    let failures: i64 = match &db {
        Db::Sqlite(pools) => query_scalar(device).fetch_one(&pools.all).await.unwrap(),
        Db::Postgres(pools) => query_scalar(device).fetch_one(&pools.all).await.unwrap(),
    };
    assert_eq!(failures, 1);
}

/// The account page, the API, the number and the console all use one path.
#[tokio::test]
async fn a_wrong_current_password_counts_wherever_it_is_typed() {
    let app = up_to(4, Store::Memory).start().await;
    let boss = app.sign_in_admin("boss").await;
    let phone = serde_json::json!({ "phone": "+8613800138000", "code": "123456", "current_password": WRONG });
    assert_eq!(boss.call("/account/phone", phone.clone()).await.status, 401);
    let change = [("current_password", WRONG), ("new_password", "quiet lanterns drift above marble")];
    assert_eq!(boss.submit("/account", "/account/password", &change).await.status, 422);
    assert_eq!(boss.call("/admin/confirm", serde_json::json!({ "password": WRONG })).await.status, 401);
    assert_eq!(account(&app, "boss").await.password_failures, 0, "it is a known device");
    assert_eq!(boss.login("boss", WRONG).await.status, 401);
    fail(&app, "boss", 4).await;
    assert!(account(&app, "boss").await.password_disabled_at.is_some());
    // Somebody who is signed in learns of it, and nothing is compared any more, also not from a spent device.
    let before = app.hashes();
    let right =
        serde_json::json!({ "phone": "+8613800138000", "code": "123456", "current_password": PASSWORD });
    let confirm = serde_json::json!({ "password": PASSWORD });
    for answer in [boss.call("/account/phone", right).await, boss.call("/admin/confirm", confirm).await] {
        assert_eq!((answer.status, answer.problem()), (409, "password-disabled"));
    }
    let change = [("current_password", PASSWORD), ("new_password", "quiet lanterns drift above marble")];
    let token = [("csrf_token", boss.get("/account").await.csrf_token())];
    let fields = [change[0], change[1], (token[0].0, token[0].1.as_str())];
    for path in ["/account/password", "/account/phone", "/account/phone/remove"] {
        let answer = boss.post(path, &fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/account"), "{path}");
    }
    assert_eq!(app.hashes(), before);
}

#[tokio::test]
async fn a_saved_file_changes_how_many_it_takes() {
    let toml =
        |max| format!("[limits.login-account]\nrules = []\n[login]\nmax_consecutive_failures = {max}\n");
    let app = TestApp::with(Store::Memory, &toml(10)).await;
    app.register("known").await;
    let fail = async || fail(&app, "known", 1).await;
    for _ in 0..5 {
        fail().await;
    }
    let save = async |max: u32| {
        std::fs::write(app.file(), toml(max)).unwrap();
        let mut changes = app.services.live.changes();
        let in_force = |live: &gatehouse::config::LiveSettings| live.login.max_consecutive_failures == max;
        while !in_force(&app.services.live.snapshot()) {
            changes.changed().await.unwrap();
        }
    };
    save(0).await;
    fail().await;
    assert_eq!(account(&app, "known").await.password_failures, 5, "switched off, nothing is counted");
    // Fewer than the failures so far: the next wrong one is one too many, a right one is not.
    save(3).await;
    assert_eq!(app.client().login("known", PASSWORD).await.status, 200);
    save(10).await;
    for _ in 0..5 {
        fail().await;
    }
    save(3).await;
    fail().await;
    assert!(account(&app, "known").await.password_disabled_at.is_some());
    save(0).await;
    assert_eq!(app.client().login("known", PASSWORD).await.status, 401, "what is disabled stays so");
}

/// With the default rules: five hours of twenty an hour.
#[tokio::test]
async fn under_the_default_rules_it_takes_five_hours() {
    let app = TestApp::on(Store::Memory).behind_a_proxy().start().await;
    app.register("known").await;
    for attempt in 0..100 {
        assert!(account(&app, "known").await.password_disabled_at.is_none(), "{attempt}");
        let client = app.client_at(&format!("203.0.113.{attempt}"));
        assert_eq!(fail_solved(&client, "known").await.status, 401, "{attempt}");
        if attempt % 20 == 19 {
            assert_eq!(client.login("known", PASSWORD).await.problem(), "throttled");
            app.advance(Duration::from_secs(3600));
        }
    }
    assert!(account(&app, "known").await.password_disabled_at.is_some());
}
