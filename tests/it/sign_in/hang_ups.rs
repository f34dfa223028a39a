//! Clients that hang up before they get their answer.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::support::app::{PASSWORD, Store, TestApp};

/// Sends a sign-in and leaves the connection open.
pub async fn send(app: &TestApp, login: &str, password: &str) -> tokio::net::TcpStream {
    let host = app.url.strip_prefix("http://").unwrap();
    let body = serde_json::json!({ "login": login, "password": password }).to_string();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let request = format!(
        "POST /api/v1/login HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Real time, for another process: there is no clock to advance.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(150)).await;
}

/// A slot that Redis takes while the client hangs up is refunded: a reader who clicks twice must not block
/// themselves.
#[tokio::test]
async fn whoever_hangs_up_leaves_no_slot_taken() {
    let app = TestApp::start(Store::Redis).await;
    app.register("alice").await;
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200, "connections and caches are warm");
    let redis = app.redis.as_ref().unwrap();
    let before = redis.calls("evalsha");
    redis.signal("STOP");
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(send(&app, "alice", PASSWORD).await);
    }
    a_moment().await;
    for stream in streams {
        stream.set_zero_linger().unwrap(); // a reset, as an aborted page load sends: nothing can be written back
    }
    a_moment().await;
    redis.signal("CONT");
    a_moment().await;
    assert!(redis.calls("evalsha") >= before + 3, "each had asked for its slot");
    let keys: Vec<String> = redis::cmd("KEYS").arg("gh:login-*").query(&mut redis.connection()).unwrap();
    assert_eq!(keys, Vec::<String>::new(), "slots of nobody");
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}
