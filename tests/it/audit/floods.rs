//! A flood leaves few rows, and a database that accepts no writes delays nobody.

use std::time::Duration;

use gatehouse::db::Db;
use serde_json::json;
use sqlx::query;

use super::{events, told};
use crate::support::app::{PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

const WRONG: &str = "a wrong password";

on_both_stores!(
    refused_attempts_are_no_more_rows_than_failures_that_count,
    what_counts_nowhere_is_one_row_however_often_it_comes,
);

async fn refused_attempts_are_no_more_rows_than_failures_that_count(store: Store) {
    let app = TestApp::on(store).limit("login-account", &[max(3).per("1m")]).start().await;
    let client = app.client();
    // Failures at different times expire one by one, and each lets one more in.
    for second in 0..3 {
        assert_eq!(client.login("alice", WRONG).await.status, 401, "after {second} s");
        app.advance(Duration::from_secs(1));
    }
    let (mut admitted, mut refused) = (3, 0);
    for _ in 0..20 {
        for _ in 0..20 {
            match client.login("alice", WRONG).await.status {
                401 => admitted += 1,
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
        app.advance(Duration::from_millis(3500));
    }
    assert!(admitted > 3, "the first failures have left");
    let events = events(&app).await;
    let (rows, counted): (Vec<_>, Vec<_>) =
        events.iter().partition(|entry| entry.outcome.into_str() == "throttled");
    assert_eq!(counted.len(), admitted, "{:?}", counted.into_iter().map(told).collect::<Vec<_>>());
    assert_eq!(rows.iter().map(|entry| entry.count).sum::<i64>(), refused);
    assert!(rows.len() <= admitted, "{} rows for {admitted} failures", rows.len());
}

/// None costs a hash, a challenge that was looked at, or, past the first three, a place in a log.
async fn what_counts_nowhere_is_one_row_however_often_it_comes(store: Store) {
    let app = TestApp::on(store).limit("login-address", &[max(3).per("1m").captcha()]).start().await;
    let client = app.client();
    for _ in 0..40 {
        let id = client.challenge().await;
        assert_eq!(client.login_with("alice", WRONG, &id, "wrong").await.problem(), "captcha-invalid");
        let body = json!({ "login": "mallory", "password": "passwordpassword" });
        assert_eq!(client.call("/register", body).await.status, 422);
    }
    let mut told: Vec<_> = events(&app).await.iter().map(told).collect();
    told.sort();
    assert_eq!(
        told,
        [
            "captcha failed x37 (login)",
            "captcha wrong (login)",
            "captcha wrong (login)",
            "captcha wrong (login)",
            "register failed x40 (unfit-password)",
        ]
    );
}

#[tokio::test]
async fn a_database_that_takes_no_events_holds_nobody_up() {
    let app = TestApp::start(Store::Memory).await;
    app.register("alice").await;
    let db = Db::connect(&app.database).await.unwrap();
    let rename = |sql: &'static str| {
        let db = db.clone();
        async move {
            match &db {
                Db::Sqlite(pools) => query(sql).execute(&pools.all).await.map(drop).unwrap(),
                Db::Postgres(pools) => query(sql).execute(&pools.all).await.map(drop).unwrap(),
            }
        }
    };
    rename("ALTER TABLE events RENAME TO gone").await;
    for _ in 0..20 {
        assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
        app.services.audit.flush().await;
    }
    rename("ALTER TABLE gone RENAME TO events").await;
    let signed_in = events(&app).await.iter().filter(|entry| told(entry) == "sign-in ok").count();
    assert_eq!(signed_in, 20, "nothing is lost that there was room for");
}
