//! Known devices: a lock-out keeps strangers out but not the owner, and gives nobody more than documented.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::throttling::{assert_throttled, comparable, fail_solved, fail_until_blocked};
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

const WRONG: &str = "a wrong password";
const MINUTE: Duration = Duration::from_secs(60);
const HOME: &str = "203.0.113.7";
const ELSEWHERE: &str = "203.0.113.8";

on_both_stores!(
    the_owner_signs_in_from_a_known_device_while_strangers_are_blocked,
    of_two_hundred_wrong_passwords_from_a_known_device_three_are_verified,
    of_two_hundred_at_a_blocked_account_three_are_verified,
    past_its_own_guesses_a_known_device_is_as_good_as_a_stranger,
    of_two_waits_the_shorter_is_told,
    a_success_on_a_known_device_forgives_that_device_alone,
    one_window_counts_a_device_on_every_page,
    a_changed_password_makes_the_other_devices_strangers,
    a_cookie_says_nothing_at_another_account,
    what_is_no_cookie_of_ours_is_as_good_as_none,
    without_rules_a_known_device_counts_as_a_stranger,
    a_watching_limit_on_devices_gives_nobody_a_way_past,
    a_success_forgives_a_watched_device_as_it_would_one_that_is_held_to_it,
    a_device_is_never_held_to_more_than_a_stranger,
);

async fn start(store: Store, rules: &str) -> TestApp {
    TestApp::on(store).behind_a_proxy().file(rules).start().await
}

/// An account's owner, in the browser in which they registered.
async fn owner(app: &TestApp) -> Client {
    let client = app.client_at(HOME);
    assert_eq!(client.register("alice", PASSWORD).await.status, 201);
    client
}

/// The value of the device cookie that an answer sets.
pub fn device_cookie(answer: &Answer) -> String {
    let line = answer.cookie("gh_device").unwrap_or_else(|| panic!("no device in {:?}", answer.headers));
    line.split_once('=').unwrap().1.split(';').next().unwrap().to_owned()
}

/// Calls to Redis so far; zero without Redis.
fn evalshas(app: &TestApp) -> u64 {
    app.redis.as_ref().map_or(0, |redis| redis.calls("evalsha"))
}

fn with_cookie(app: &TestApp, address: &str, cookie: &str) -> Client {
    app.client_that_says(&[("x-forwarded-for", address), ("cookie", cookie)])
}

async fn the_owner_signs_in_from_a_known_device_while_strangers_are_blocked(store: Store) {
    let app = start(store, "").await;
    let owner = owner(&app).await;
    let (stranger, attacker) = (app.client_at(ELSEWHERE), app.client_at("203.0.113.9"));
    let before = evalshas(&app);
    assert_eq!(stranger.login("alice", PASSWORD).await.status, 200);
    let of_a_stranger = evalshas(&app) - before;
    fail_until_blocked(&attacker, "alice").await;
    let another = app.client_at(ELSEWHERE);
    assert_throttled(&another.login("alice", PASSWORD).await, "login-account", 3600);
    for client in [&owner, &stranger, &owner] {
        let before = evalshas(&app);
        assert_eq!(client.login("alice", PASSWORD).await.status, 200);
        assert_eq!(evalshas(&app) - before, of_a_stranger, "as many trips as without");
    }
    // The owner's sign-in wipes nothing; the next guess would be one more.
    assert_throttled(&attacker.login("alice", WRONG).await, "login-account", 3600);
    // And signing out leaves the device known.
    assert_eq!(owner.call("/logout", serde_json::json!({})).await.status, 204);
    assert_eq!(owner.login("alice", PASSWORD).await.status, 200);
}

/// This many at once in one browser.
async fn burst(client: &Client, count: usize) -> HashMap<(u16, String), usize> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (client, next) = (client.clone(), next.clone());
        tasks.spawn(async move {
            let mut answers = Vec::new();
            while next.fetch_add(1, Ordering::SeqCst) < count {
                answers.push(client.login("alice", WRONG).await);
            }
            answers
        });
    }
    let mut tally = HashMap::new();
    for answer in tasks.join_all().await.into_iter().flatten() {
        *tally.entry((answer.status, answer.problem().to_owned())).or_default() += 1;
    }
    tally
}

async fn three_of_two_hundred(app: &TestApp, owner: &Client) {
    let before = app.hashes();
    let expected = HashMap::from([
        ((401, "invalid-credentials".to_owned()), 3),
        ((403, "captcha-required".to_owned()), 197),
    ]);
    assert_eq!(burst(owner, 200).await, expected);
    assert_eq!(app.hashes() - before, 3, "a refused attempt computes no hash");
}

async fn of_two_hundred_wrong_passwords_from_a_known_device_three_are_verified(store: Store) {
    let app = start(store, "").await;
    let owner = owner(&app).await;
    three_of_two_hundred(&app, &owner).await;
    let refused = owner.login("alice", PASSWORD).await;
    assert_eq!(refused.header("ratelimit"), "\"login-device\";r=0;t=60");
    assert!(refused.header("ratelimit-policy").starts_with("\"login-device\";q=3;w=60"));
    assert_eq!(app.client_at(ELSEWHERE).login("alice", PASSWORD).await.status, 200, "none of strangers");
}

async fn of_two_hundred_at_a_blocked_account_three_are_verified(store: Store) {
    let app = start(store, "").await;
    let owner = owner(&app).await;
    fail_until_blocked(&app.client_at(ELSEWHERE), "alice").await;
    three_of_two_hundred(&app, &owner).await;
    let id = owner.challenge().await;
    assert_eq!(owner.login_with("alice", PASSWORD, &id, ANSWER).await.status, 200);
}

async fn past_its_own_guesses_a_known_device_is_as_good_as_a_stranger(store: Store) {
    let app = start(store, "").await;
    let owner = owner(&app).await;
    let before = app.hashes();
    for required in [false, false, true] {
        let answer = owner.login("alice", WRONG).await;
        assert_eq!((answer.status, &answer.body["captcha_required"]), (401, &required.into()));
    }
    for guess in 3..10 {
        let answer = fail_solved(&owner, "alice").await;
        let required = guess < 9;
        assert_eq!((answer.status, &answer.body["captcha_required"]), (401, &required.into()), "{guess}");
    }
    // The device's log is full for an hour: from here on the account's log counts, which is empty yet.
    for required in [false, false, true] {
        let answer = owner.login("alice", WRONG).await;
        assert_eq!((answer.status, &answer.body["captcha_required"]), (401, &required.into()));
    }
    let refused = owner.login("alice", WRONG).await;
    assert_eq!(refused.header("ratelimit"), "\"login-account\";r=0;t=60");
    for _ in 3..20 {
        assert_eq!(fail_solved(&owner, "alice").await.status, 401);
    }
    assert_eq!(app.hashes() - before, 10 + 20);
    let before = app.hashes();
    let id = owner.challenge().await;
    assert_eq!(owner.login_with("alice", PASSWORD, &id, ANSWER).await.status, 429);
    assert_eq!(app.hashes(), before);
}

async fn of_two_waits_the_shorter_is_told(store: Store) {
    const RULES: &str = "[limits.login-account]\nrules = [{ max = 2, window = \"1h\" }]\n\
                         [limits.login-device]\nrules = [{ max = 1, window = \"1h\" }]\n";
    for device_first in [true, false] {
        let app = start(store, RULES).await;
        let (owner, stranger) = (owner(&app).await, app.client_at(ELSEWHERE));
        let fail_first = async |first: bool| {
            if first == device_first {
                assert_eq!(owner.login("alice", WRONG).await.status, 401);
            } else {
                for _ in 0..2 {
                    assert_eq!(stranger.login("alice", WRONG).await.status, 401);
                }
            }
        };
        fail_first(true).await;
        app.advance(10 * MINUTE);
        fail_first(false).await;
        let limit = if device_first { "login-device" } else { "login-account" };
        assert_throttled(&owner.login("alice", PASSWORD).await, limit, 3000);
        app.advance(50 * MINUTE);
        assert_eq!(owner.login("alice", PASSWORD).await.status, 200, "that was the truth");
    }
}

async fn a_success_on_a_known_device_forgives_that_device_alone(store: Store) {
    let app = start(store, "").await;
    let (owner, stranger) = (owner(&app).await, app.client_at(ELSEWHERE));
    for _ in 0..2 {
        assert_eq!(stranger.login("alice", WRONG).await.body["captcha_required"], false);
    }
    for _ in 0..3 {
        for _ in 0..2 {
            assert_eq!(owner.login("alice", WRONG).await.body["captcha_required"], false);
        }
        assert_eq!(owner.login("alice", PASSWORD).await.status, 200);
    }
    assert_eq!(stranger.login("alice", WRONG).await.body["captcha_required"], true, "the third of theirs");
}

async fn one_window_counts_a_device_on_every_page(store: Store) {
    let app = start(store, "").await;
    let owner = owner(&app).await;
    assert_eq!(owner.login("alice", WRONG).await.status, 401);
    let fields = [("current_password", WRONG), ("new_password", "quiet lanterns drift above marble")];
    for _ in 0..2 {
        assert_eq!(owner.submit("/account", "/account/password", &fields).await.status, 422);
    }
    assert_eq!(owner.login("alice", PASSWORD).await.problem(), "captcha-required");
    assert_eq!(owner.call("/logout", serde_json::json!({})).await.status, 204);
    let page = owner.submit("/login", "/login", &[("login", "alice"), ("password", PASSWORD)]).await;
    assert!(page.status == 403 && page.hidden("captcha_id").is_some(), "{}", page.text);
    assert_eq!(app.client_at(HOME).login("alice", PASSWORD).await.status, 200);
}

async fn a_changed_password_makes_the_other_devices_strangers(store: Store) {
    const NEW: &str = "quiet lanterns drift above marble";
    let app = start(store, "").await;
    let (here, there) = (owner(&app).await, app.client_at(HOME));
    assert_eq!(there.login("alice", PASSWORD).await.status, 200);
    fail_until_blocked(&app.client_at(ELSEWHERE), "alice").await;
    let fields = [("current_password", PASSWORD), ("new_password", NEW)];
    assert_eq!(here.submit("/account", "/account/password", &fields).await.status, 303);
    let before = app.hashes();
    // The first time only the database knows of it.
    let refused = async |client: &Client| {
        let before = evalshas(&app);
        assert_throttled(&client.login("alice", NEW).await, "login-account", 3600);
        evalshas(&app) - before
    };
    refused(&there).await;
    assert_eq!(app.hashes(), before, "a void cookie buys no guess");
    assert_eq!(refused(&there).await, refused(&app.client_at(HOME)).await, "nor anything else");
    assert_eq!(here.login("alice", NEW).await.status, 200);
}

/// An unknown account, a known one, and either with somebody else's cookie: the same answers at every step.
async fn a_cookie_says_nothing_at_another_account(store: Store) {
    let app = start(store, "").await;
    app.register("alice").await;
    let cookie = device_cookie(&app.client().register("mallory", PASSWORD).await);
    let cookie = format!("gh_device={cookie}");
    let clients = [
        (app.client_at("203.0.113.20"), "nobody"),
        (with_cookie(&app, "203.0.113.21", &cookie), "nowhere"),
        (with_cookie(&app, "203.0.113.22", &cookie), "alice"),
    ];
    for step in 0..22 {
        let mut told = Vec::new();
        for (client, login) in &clients {
            let before = app.hashes();
            let answer = match step {
                0..4 | 21 => client.login(login, WRONG).await,
                _ => fail_solved(client, login).await,
            };
            told.push((comparable(answer), app.hashes() - before));
        }
        assert_eq!(told[0], told[1], "step {step}");
        assert_eq!(told[0], told[2], "step {step}");
        let expected = match step {
            0..3 | 4..21 => 401,
            3 => 403,
            _ => 429,
        };
        assert_eq!(told[0].0.0, expected, "step {step}");
    }
}

async fn what_is_no_cookie_of_ours_is_as_good_as_none(store: Store) {
    let app = start(store, "").await;
    let good = device_cookie(&app.client().register("alice", PASSWORD).await);
    fail_until_blocked(&app.client_at(ELSEWHERE), "alice").await;
    let forged = good.replace(&good[20..24], if &good[20..24] == "AAAA" { "BBBB" } else { "AAAA" });
    let bare = app.client_at(HOME).login("alice", PASSWORD).await;
    assert_throttled(&bare, "login-account", 3600);
    let bare = comparable(bare);
    for cookie in [
        "gh_device=".to_owned(),
        "gh_device=.....".to_owned(),
        "gh_device=nonsense; gh_session=nonsense".to_owned(),
        format!("gh_device={forged}"),
        format!("gh_device={}", &good[1..]),
        format!("gh_device={}", &good[..good.len() - 1]),
        format!("gh_device={}", vec![good.as_str(); 30].join(".")),
        format!("gh_device={good}; gh_device={good}"),
        format!("__Host-gh_device={good}"),
    ] {
        let client = with_cookie(&app, HOME, &cookie);
        assert_eq!(comparable(client.login("alice", PASSWORD).await), bare, "{cookie}");
        assert_eq!(client.get("/login").await.status, 200, "{cookie}");
    }
    let client = with_cookie(&app, HOME, &format!("other=\"; gh_device={good}; more"));
    assert_eq!(client.login("alice", PASSWORD).await.status, 200, "and this is one");
}

async fn without_rules_a_known_device_counts_as_a_stranger(store: Store) {
    let app = start(store, "[limits.login-device]\nrules = []\n").await;
    let owner = owner(&app).await;
    fail_until_blocked(&app.client_at(ELSEWHERE), "alice").await;
    assert_throttled(&owner.login("alice", PASSWORD).await, "login-account", 3600);
}

async fn a_watching_limit_on_devices_gives_nobody_a_way_past(store: Store) {
    let rules = "[limits.login-device]\nmode = \"monitor\"\nrules = [{ max = 1, window = \"1m\" }]\n";
    let app = start(store, rules).await;
    let owner = owner(&app).await;
    for required in [false, false, true] {
        assert_eq!(owner.login("alice", WRONG).await.body["captcha_required"], required);
    }
    let told: Vec<String> = crate::audit::events(&app).await.iter().map(crate::audit::told).collect();
    let noted = "sign-in wrong by login-device/0 noted";
    assert_eq!(told, ["register ok", "sign-in wrong", noted, noted]);
    fail_until_blocked_from(&app.client_at(ELSEWHERE), 3).await;
    assert_throttled(&owner.login("alice", PASSWORD).await, "login-account", 3600);
}

async fn a_success_forgives_a_watched_device_as_it_would_one_that_is_held_to_it(store: Store) {
    let rules = "[limits.login-device]\nmode = \"monitor\"\nrules = [{ max = 1, window = \"1m\", then = \"captcha\" }]\n";
    let app = start(store, rules).await;
    let owner = owner(&app).await;
    for _ in 0..2 {
        assert_eq!(owner.login("alice", WRONG).await.status, 401);
        assert_eq!(owner.login("alice", PASSWORD).await.status, 200);
    }
    let told: Vec<String> = crate::audit::events(&app).await.iter().map(crate::audit::told).collect();
    let noted = |what: &str| format!("sign-in {what} by login-device/0 noted");
    assert_eq!(told, ["register ok", "sign-in wrong", &noted("ok"), "sign-in wrong", &noted("ok")]);
}

/// The failures from number `past` up to the account's block.
async fn fail_until_blocked_from(client: &Client, past: u32) {
    for _ in past..20 {
        assert_eq!(fail_solved(client, "alice").await.status, 401);
    }
}

async fn a_device_is_never_held_to_more_than_a_stranger(store: Store) {
    for rules in [
        "[limits.login-account]\nrules = []\n",
        "[limits.login-account]\nmode = \"monitor\"\nrules = [{ max = 1, window = \"1h\" }]\n",
    ] {
        let app = start(store, rules).await;
        let owner = owner(&app).await;
        for _ in 0..12 {
            let answer = owner.login("alice", WRONG).await;
            assert_eq!((answer.status, &answer.body["captcha_required"]), (401, &false.into()), "{rules}");
        }
    }
}
