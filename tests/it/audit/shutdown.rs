//! What a server has seen is in the database when it has stopped; a reload is an event, too.

use gatehouse::db::Db;
use sqlx::query_scalar;

use crate::support::process::Home;

#[tokio::test]
async fn a_server_that_is_told_to_stop_writes_what_it_has_seen() {
    let home = Home::new();
    home.write("gatehouse.toml", "");
    let mut server = home.start(&["serve"]).await;
    for _ in 0..3 {
        assert_eq!(server.client().login("alice", "a wrong password").await.status, 401);
    }
    for _ in 0..5 {
        assert_eq!(server.client().login("alice", "a wrong password").await.problem(), "captcha-required");
    }
    home.replace("gatehouse.toml", "[limits.login-account]\nrules = [{ max = 4, window = \"1m\" }]\n");
    server.until("the reload", |server| server.stderr().contains("configuration applied")).await;
    home.replace("gatehouse.toml", "[limits.login-account]\nrules = 7\n");
    server.until("the refusal", |server| server.stderr().contains("configuration refused")).await;
    server.signal("TERM");
    assert!(server.ended().await.success());
    let url = format!("sqlite://{}", home.path("data/gatehouse.db").display());
    let Db::Sqlite(pools) = Db::connect(&url).await.unwrap() else { unreachable!("its URL says SQLite") };
    let sql = "SELECT action || ' ' || outcome || ' ' || SUM(count) FROM events WHERE action <> 'captcha'
        GROUP BY action, outcome ORDER BY 1";
    let rows: Vec<String> = query_scalar(sql).fetch_all(&pools.all).await.unwrap();
    assert_eq!(rows, ["reload ok 1", "reload refused 1", "sign-in challenged 5", "sign-in wrong 3"]);
}
