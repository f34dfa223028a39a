//! What operators see: a request's id everywhere, and its metrics.

use serde_json::json;

use crate::support::app::{Answer, Client, Store, TestApp};
use crate::support::process::Home;

async fn named(client: &Client, path: &str, ids: &[&str]) -> String {
    let request = client.http.get(format!("{}{path}", client.url));
    let request = ids.iter().fold(request, |request, id| request.header("x-request-id", *id));
    Answer::read(request.send().await.unwrap()).await.header("x-request-id").to_owned()
}

#[tokio::test]
async fn a_request_is_called_as_a_trusted_proxy_calls_it_and_by_an_id_of_ours_otherwise() {
    let proxied = TestApp::on(Store::Memory).behind_a_proxy().start().await;
    let direct = TestApp::start(Store::Memory).await;
    let theirs = "4bf92f35-77b3.4da6_A";
    assert_eq!(named(&proxied.client(), "/login", &[theirs]).await, theirs);
    assert_ne!(named(&direct.client(), "/login", &[theirs]).await, theirs, "anybody could choose it");
    let long = "x".repeat(65);
    let mut seen = vec![];
    for ids in [&[][..], &["with space"], &["a=b"], &[&long], &["one", "two"], &[""]] {
        seen.push(named(&proxied.client(), "/login", ids).await);
    }
    for path in ["/", "/nothing", "/api/v1/session", "/healthz", "/static/nothing", "/api/v1/login"] {
        seen.push(named(&direct.client(), path, &[]).await);
    }
    let fits = |id: &String| {
        id.len() == 22 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    assert!(seen.iter().all(fits), "{seen:?}");
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all, "each has its own");
}

#[tokio::test]
async fn the_log_and_the_events_call_a_request_as_its_answer_does() {
    let mut home = Home::new();
    home.set("RUST_LOG", "debug");
    let mut running = home.start(&["serve"]).await;
    let answer = running.client().login("alice", "a wrong password").await;
    let id = answer.header("x-request-id").to_owned();
    assert_eq!(id.len(), 22);
    let marked = format!("request={id}");
    running.until("the log names it", |running| running.stderr().contains(&marked)).await;
    running.signal("TERM");
    assert_eq!(running.ended().await.code(), Some(0));
    let url = format!("sqlite://{}", home.path("data/gatehouse.db").display());
    let db = gatehouse::db::Db::connect(&url).await.unwrap();
    let gatehouse::db::Db::Sqlite(pools) = &db else { unreachable!("its URL says SQLite") };
    let sql = "SELECT request FROM events WHERE action = 'sign-in'";
    let kept: Vec<Option<String>> = sqlx::query_scalar(sql).fetch_all(&pools.all).await.unwrap();
    assert_eq!(kept, [Some(id)]);
}

/// The samples of one metric whose labels include all of these: their number and their sum.
fn measured(text: &str, name: &str, labels: &[&str]) -> (usize, f64) {
    let rest =
        |line: &str| line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' '])).map(str::to_owned);
    let lines: Vec<f64> = text
        .lines()
        .filter_map(rest)
        .filter(|line| labels.iter().all(|label| line.contains(label)))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    (lines.len(), lines.iter().sum())
}

#[tokio::test]
async fn requests_are_counted_and_timed_by_route_and_nothing_grows_with_what_is_asked() {
    let home = Home::new();
    let running = home.start(&["serve"]).await;
    let client = running.client();
    for number in 0..50 {
        assert_eq!(client.get(&format!("/nothing/{number}?x={number}")).await.status, 404);
        client.call(&format!("/limits/name{number}/peek"), json!({ "subject": "x" })).await;
    }
    client.login("alice", "a wrong password").await;
    let text = client.get("/metrics").await.text;
    let requests = |labels: &[&str]| measured(&text, "gatehouse_http_requests_total", labels);
    assert_eq!(requests(&["route=\"none\"", "status=\"4xx\""]), (1, 50.0), "{text}");
    assert_eq!(requests(&["route=\"/api/v1/limits/{name}/peek\"", "status=\"4xx\""]), (1, 50.0));
    assert_eq!(requests(&["route=\"/api/v1/login\"", "status=\"4xx\""]), (1, 1.0));
    let seconds = |suffix: &str, labels: &[&str]| {
        measured(&text, &format!("gatehouse_http_request_seconds_{suffix}"), labels)
    };
    assert_eq!(seconds("count", &["route=\"/api/v1/login\""]), (1, 1.0));
    assert_eq!(seconds("bucket", &["route=\"/api/v1/login\"", "le=\"+Inf\""]), (1, 1.0));
    assert_eq!(seconds("bucket", &["route=\"/api/v1/login\""]).0, 13);
    assert_eq!(
        measured(&text, "gatehouse_store_up", &[]).0 + measured(&text, "gatehouse_connections", &[]).0,
        2
    );
}

/// Not a prefix or a format of a name.
fn is_name(text: &&str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Every metric is listed, and every listed metric exists.
#[test]
fn every_metric_is_in_the_table() {
    let mut made = std::collections::BTreeSet::new();
    let mut folders = ["src", "limiter/src"]
        .map(|folder| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            // Names of variables are none of metrics.
            } else if !entry.ends_with("config/misspelt.rs") {
                let source = std::fs::read_to_string(&entry).unwrap();
                let names = source.split('"').filter(|text| text.starts_with("gatehouse_")).filter(is_name);
                made.extend(names.filter(|name| !name.contains("test")).map(str::to_owned));
            }
        }
    }
    let table = include_str!("../../docs/metrics.md");
    let told = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let told: std::collections::BTreeSet<_> = told.map(str::to_owned).collect();
    assert_eq!(made, told);
}
