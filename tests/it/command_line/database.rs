//! What happens to the database when a server starts and when it ends.

use gatehouse::db::Db;
use sqlx::query_scalar;

use crate::support::process::Home;

fn sqlite(home: &Home) -> String {
    format!("sqlite://{}", home.path("data/gatehouse.db").display())
}

async fn run_sql(url: &str, sql: &'static str) -> Vec<i64> {
    let db = Db::connect(url).await.unwrap();
    let rows = match &db {
        Db::Sqlite(pools) => query_scalar(sql).fetch_all(&pools.all).await,
        Db::Postgres(pools) => query_scalar(sql).fetch_all(&pools.all).await,
    };
    db.close().await;
    rows.unwrap()
}

#[tokio::test]
async fn a_server_that_stops_is_listed_no_more_and_has_nothing_to_complain_of() {
    for _ in 0..3 {
        let home = Home::new();
        let mut running = home.start(&["serve"]).await;
        assert_eq!(running.client().login("alice", "a wrong password").await.status, 401);
        running.signal("TERM");
        assert_eq!(running.ended().await.code(), Some(0));
        assert!(!running.stderr().contains("WARN"), "{}", running.stderr());
        assert_eq!(run_sql(&sqlite(&home), "SELECT COUNT(*) FROM instances").await, [0]);
    }
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_told_as_such() {
    let home = Home::new();
    drop(home.start(&["serve"]).await);
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        VALUES (9999, 'what comes', TRUE, '0', 0) RETURNING version";
    assert_eq!(run_sql(&sqlite(&home), newer).await, [9999]);
    for arguments in [&["serve"][..], &["admin", "enable", "ada"]] {
        let ended = home.run(arguments);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("migrated by a newer Gatehouse"), "{}", ended.stderr);
    }
}
