//! Two instances on one database that count in their own processes.

use crate::support::app::PASSWORD;
use crate::support::process::Home;

const TOLD: &str = "other instances run on this database";

/// As in a rolling restart.
#[tokio::test]
async fn a_second_instance_with_memory_is_not_ready_until_the_first_has_gone_and_the_first_tells() {
    let (first, mut second) = (Home::new(), Home::new());
    second.set("GATEHOUSE__DATABASE__URL", format!("sqlite://{}", first.path("data/gatehouse.db").display()));
    second.set("GATEHOUSE__SECRETS__KEY_FILE", first.path("data/secret.key").display().to_string());
    let made =
        first.run_with_input(&["admin", "create", "boss", "--password-stdin"], &format!("{PASSWORD}\n"));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let mut running = first.start(&["serve"]).await;
    let boss = running.client();
    assert_eq!(boss.login("boss", PASSWORD).await.status, 200);

    let mut waiting = second.begin(&["serve"]);
    waiting.until("it waits", |waiting| waiting.stderr().contains(TOLD)).await;
    let listens = |home: &Home| std::net::TcpStream::connect(("127.0.0.1", home.port)).is_ok();
    waiting.until("it answers", |_| listens(&second)).await;
    let client = waiting.client();
    assert_eq!(client.get("/healthz").await.status, 200);
    for path in ["/readyz", "/login", "/api/v1/session"] {
        assert_eq!(client.get(path).await.status, 503, "{path}");
    }
    running.until("the first tells", |running| running.stderr().contains(TOLD)).await;
    let page = boss.get("/admin").await;
    assert!(page.text.contains("Other instances run on this database"), "{}", page.text);

    running.signal("TERM");
    running.ended().await;
    waiting.until("it listens", |waiting| waiting.stdout().contains("Gatehouse listens on")).await;
    assert_eq!(waiting.client().get("/readyz").await.status, 200);
    assert_eq!(waiting.client().login("boss", PASSWORD).await.status, 200);
}

/// As the first process of a container has to: nothing else ends it.
#[tokio::test]
async fn an_instance_that_waits_ends_when_it_is_told_to() {
    for signal in ["TERM", "INT"] {
        let (first, mut second) = (Home::new(), Home::new());
        let database = first.path("data/gatehouse.db");
        second.set("GATEHOUSE__DATABASE__URL", format!("sqlite://{}", database.display()));
        second.set("GATEHOUSE__SECRETS__KEY_FILE", first.path("data/secret.key").display().to_string());
        let _running = first.start(&["serve"]).await;
        let mut waiting = second.begin(&["serve"]);
        waiting.until("it waits", |waiting| waiting.stderr().contains(TOLD)).await;
        waiting.signal(signal);
        assert_eq!(waiting.ended().await.code(), Some(0), "{}", waiting.stderr());
    }
}
