//! `[access] allow`: tenfold limits of addresses and networks, and nothing else.

use super::{ELSEWHERE, THERE, WRONG, list};
use crate::support::app::{PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    an_exempt_address_has_ten_times_as_many_and_its_neighbours_have_not,
    the_rules_of_an_account_and_of_a_number_are_the_same_for_everybody,
    messages_of_exempt_clients_and_others_need_no_rebuild_between_them,
);

async fn an_exempt_address_has_ten_times_as_many_and_its_neighbours_have_not(store: Store) {
    let app = TestApp::on(store)
        .behind_a_proxy()
        .file(&format!("[access]\n{}", list("allow", &["203.0.113.7"])))
        .limit("login-address", &[max(2).per("2h").captcha()])
        .limit("login-network", &[max(3).per("2h").captcha()])
        .limit("register-address", &[max(1).per("2h")])
        .start()
        .await;
    let (exempt, neighbour) = (app.client_at(THERE), app.client_at("203.0.113.8"));
    for guess in 0..20 {
        assert_eq!(exempt.login(&format!("guess{guess}"), WRONG).await.status, 401, "{guess}");
    }
    assert_eq!(
        exempt.login("guess20", WRONG).await.problem(),
        "captcha-required",
        "ten times, not without end"
    );
    // What an exempt client does counts for its network: the others there are held to their own rule.
    assert_eq!(neighbour.login("guess21", WRONG).await.problem(), "captcha-required");
    let elsewhere = app.client_at(ELSEWHERE);
    assert_eq!(elsewhere.login("guess22", WRONG).await.status, 401);
    for number in 0..10 {
        assert_eq!(exempt.register(&format!("new{number}"), PASSWORD).await.status, 201, "{number}");
    }
    assert_eq!(exempt.register("new10", PASSWORD).await.status, 429);
    assert_eq!(elsewhere.register("first", PASSWORD).await.status, 201);
    assert_eq!(elsewhere.register("second", PASSWORD).await.status, 429);
    app.advance(std::time::Duration::from_secs(3600));
    assert_eq!(exempt.register("new11", PASSWORD).await.status, 429, "it is over");
}

async fn the_rules_of_an_account_and_of_a_number_are_the_same_for_everybody(store: Store) {
    let file = format!("[access]\n{}", list("allow", &["203.0.113.0/24"]));
    let app = TestApp::on(store).behind_a_proxy().file(&file).start().await;
    let exempt = app.client_at(THERE);
    for _ in 0..3 {
        assert_eq!(exempt.login("alice", WRONG).await.status, 401);
    }
    assert_eq!(exempt.login("alice", WRONG).await.problem(), "captcha-required");
    assert_eq!(exempt.ask_code("+8613800138000", "login").await.status, 202);
    let again = exempt.ask_code("+8613800138000", "login").await;
    assert_eq!((again.status, again.body["limit"].as_str()), (429, Some("sms-phone")), "{}", again.text);
}

async fn messages_of_exempt_clients_and_others_need_no_rebuild_between_them(store: Store) {
    let app = TestApp::on(store)
        .behind_a_proxy()
        .file(&format!("[access]\n{}", list("allow", &["203.0.113.7"])))
        .limit("sms-address", &[max(2).per("2h").captcha()])
        .start()
        .await;
    let (exempt, other) = (app.client_at(THERE), app.client_at(ELSEWHERE));
    assert_eq!(other.ask_code("+8613800138000", "login").await.status, 202);
    let mark = || {
        let mut redis = app.redis.as_ref()?.connection();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis).unwrap();
        let mut marks: Vec<_> = keys.into_iter().filter(|key| key.contains("sms")).collect();
        marks.sort();
        let read =
            |key: &String| redis::cmd("GET").arg(key).query::<Option<Vec<u8>>>(&mut redis).ok().flatten();
        Some(marks.iter().filter_map(read).collect::<Vec<_>>())
    };
    let before = mark();
    for number in 0..20 {
        let phone = format!("+86138001390{number:02}");
        assert_eq!(exempt.ask_code(&phone, "login").await.status, 202, "{number}");
    }
    assert_eq!(exempt.ask_code("+8613800139099", "login").await.problem(), "captcha-required");
    assert_eq!(other.ask_code("+8613800138001", "login").await.status, 202);
    assert_eq!(other.ask_code("+8613800138002", "login").await.problem(), "captcha-required");
    assert_eq!(mark(), before, "both are complete by the same rebuild");
}
