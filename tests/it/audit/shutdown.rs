//! After a server has stopped, all of its events are in the database.

use gatehouse::db::Db;
use sqlx::query_scalar;

use crate::support::process::Home;

#[tokio::test]
async fn a_server_that_is_told_to_stop_writes_what_it_has_seen() {
    let home = Home::new();
    let mut server = home.start(&["serve"]).await;
    for _ in 0..3 {
        assert_eq!(server.client().login("alice", "a wrong password").await.status, 401);
    }
    for _ in 0..5 {
        assert_eq!(server.client().login("alice", "a wrong password").await.problem(), "captcha-required");
    }
    server.signal("TERM");
    assert!(server.ended().await.success());
    let url = format!("sqlite://{}", home.path("data/gatehouse.db").display());
    let Db::Sqlite(pools) = Db::connect(&url).await.unwrap() else { unreachable!("its URL says SQLite") };
    let sql = "SELECT action || ' ' || outcome || ' ' || SUM(count) FROM events WHERE action <> 'captcha'
        GROUP BY action, outcome ORDER BY 1";
    let rows: Vec<String> = query_scalar(sql).fetch_all(&pools.all).await.unwrap();
    assert_eq!(rows, ["sign-in challenged 5", "sign-in wrong 3"]);
}
