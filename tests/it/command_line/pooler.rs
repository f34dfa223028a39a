//! A pooler in front of PostgreSQL: sessions are ours, or the start says that they are not.

use crate::support::postgres::{PgBouncer, PostgresServer};
use crate::support::process::Home;

#[tokio::test]
async fn a_pooler_that_shares_sessions_ends_the_start_and_one_that_keeps_them_serves() {
    let server = PostgresServer::start().await;
    server.database("gatehouse_test").await;
    for pool_mode in ["transaction", "statement", "session"] {
        let bouncer = PgBouncer::start(&server, pool_mode).await;
        let mut home = Home::new();
        home.set("GATEHOUSE__DATABASE__URL", bouncer.url("gatehouse_test"));
        if pool_mode == "session" {
            let running = home.start(&["serve"]).await;
            assert_eq!(running.client().login("alice", "a wrong password").await.status, 401);
            continue;
        }
        // Also once an earlier one has left its statements there.
        for _ in 0..2 {
            let ended = home.run(&["serve"]);
            assert_eq!(ended.code, Some(1), "{pool_mode}: {}", ended.stderr);
            assert!(ended.stderr.contains("set pool_mode = session in PgBouncer"), "{}", ended.stderr);
        }
    }
}
