//! PostgreSQL as administrators set it, and as it fails over behind one name: an old server that still answers takes no
//! more writes.

use gatehouse::db::Db;
use serde_json::json;
use tokio::task::JoinSet;
use url::Url;

use super::proxy::Proxy;
use crate::support::app::{Client, PASSWORD, Store, TestApp};
use crate::support::until;

/// A database of a server of its own, which somebody has signed up at.
async fn with_account(accounts: &[String]) -> (TestApp, Url) {
    let app = TestApp::on(Store::Memory).own_postgres().start().await;
    for login in accounts {
        app.register(login).await;
    }
    let database = Url::parse(&app.database).unwrap();
    (app, database)
}

async fn signs_in(client: &Client, login: &str) {
    let answer = client.login(login, PASSWORD).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn whatever_isolation_an_administrator_has_chosen_right_sign_ins_succeed() {
    let accounts: Vec<String> = (0..6).map(|n| format!("user{n}")).collect();
    let (before, _) = with_account(&accounts).await;
    let server = before.postgres.as_ref().unwrap();
    for level in ["repeatable read", "serializable"] {
        server.run(&format!("ALTER DATABASE gatehouse SET default_transaction_isolation = '{level}'")).await;
        server.run("ALTER ROLE gatehouse SET standard_conforming_strings = off").await;
        let app = before.on_database(&before.database).await;
        let mut signing_in = JoinSet::new();
        for n in 0..180 {
            let (client, login) = (app.client(), accounts[n % accounts.len()].clone());
            signing_in.spawn(async move { client.login(&login, PASSWORD).await.status });
        }
        let statuses = signing_in.join_all().await;
        let failed = statuses.iter().filter(|status| **status != 200).count();
        assert_eq!(failed, 0, "at {level}: {statuses:?}");
        let name = format!("boss{}", level.len());
        let boss = app.sign_in_admin(&name).await;
        // Its pattern has an escape character.
        for asked in ["u%25ser", "nobody%5C"] {
            let found = boss.get(&format!("/admin/events?asked={asked}")).await;
            assert_eq!(found.status, 200, "{asked}: {}", found.text);
        }
    }
}

/// Fenced, so that it takes no writes any more, but every connection to it is as good as before.
#[tokio::test]
async fn an_old_server_that_still_answers_is_left_for_the_one_that_takes_writes() {
    let (first, mut database) = with_account(&["alice".to_owned()]).await;
    let old = first.postgres.as_ref().unwrap();
    let proxy = Proxy::to(old.port).await;
    database.set_port(Some(proxy.port)).unwrap();
    let app = first.on_database(database.as_str()).await;
    let client = app.client();
    for _ in 0..20 {
        signs_in(&app.client(), "alice").await;
    }
    let new = old.standby().await;
    old.run("ALTER SYSTEM SET default_transaction_read_only = on").await;
    old.run("SELECT pg_reload_conf()").await;
    until("/readyz says 503", async || client.get("/readyz").await.status == 503).await;
    let refused = client.login("alice", PASSWORD).await;
    assert_eq!((refused.status, refused.problem()), (503, "unavailable"), "{}", refused.text);
    // The name leads to a standby for a moment.
    proxy.lead_to(new.port);
    assert_eq!(client.get("/readyz").await.status, 503);
    new.run("SELECT pg_promote()").await;
    until("/readyz says 200", async || client.get("/readyz").await.status == 200).await;
    let mut signing_in = JoinSet::new();
    for _ in 0..60 {
        let client = app.client();
        signing_in.spawn(async move { client.login("alice", PASSWORD).await.status });
    }
    let statuses = signing_in.join_all().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
}

/// It ends, and its name leads to a standby that is promoted later.
#[tokio::test]
async fn a_standby_is_not_taken_for_the_server_and_once_promoted_it_is() {
    let (mut first, mut database) = with_account(&["alice".to_owned()]).await;
    let proxy = Proxy::to(first.postgres.as_ref().unwrap().port).await;
    database.set_port(Some(proxy.port)).unwrap();
    let app = first.on_database(database.as_str()).await;
    let (client, new) = (app.client(), first.postgres.as_ref().unwrap().standby().await);
    signs_in(&client, "alice").await;
    proxy.lead_to(new.port);
    first.postgres.as_mut().unwrap().stop();
    until("/readyz says 503", async || client.get("/readyz").await.status == 503).await;
    let direct = new.url("gatehouse");
    let told = Db::connect(&direct).await.expect_err("it takes no writes").to_string();
    assert!(told.contains("it takes no writes: it is a standby"), "{told}");
    assert_eq!(client.get("/readyz").await.status, 503);
    new.run("SELECT pg_promote()").await;
    until("/readyz says 200", async || client.get("/readyz").await.status == 200).await;
    signs_in(&app.client(), "alice").await;
    let asked =
        app.client().call("/sms/codes", json!({ "phone": "+8613800138000", "purpose": "login" })).await;
    assert_eq!(asked.status, 202, "{}", asked.text);
}
