//! The database refuses writes or does not answer: requests that need it are refused at once, and no restart
//! is needed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::proxy::{Proxy, Way};
use crate::support::app::{Client, PASSWORD, Store, TestApp};
use crate::support::process::Home;
use crate::support::until;

/// A file system of a few megabytes, gone when it is dropped.
struct SmallDisk<'p>(&'p Path);

impl<'p> SmallDisk<'p> {
    /// None if the user who runs the tests may not mount one.
    fn at(path: &'p Path) -> Option<Self> {
        std::fs::create_dir(path).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m", "none"]).arg(path).output().unwrap();
        mounted.status.success().then_some(Self(path))
    }

    fn fill(&self) {
        let filled = std::fs::write(self.0.join("ballast"), vec![0; 8 << 20]);
        assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(self.0).status();
    }
}

async fn until_ready_is(client: &Client, status: u16) {
    until(&format!("/readyz says {status}"), async || client.get("/readyz").await.status == status).await;
}

#[tokio::test]
async fn a_full_disk_passes_without_a_restart() {
    let mut home = Home::new();
    let folder = home.path("disk");
    let Some(disk) = SmallDisk::at(&folder) else { return eprintln!("no mount here") };
    home.set("GATEHOUSE__DATABASE__URL", format!("sqlite://{}", folder.join("a.db").display()));
    let mut server = home.start(&["serve"]).await;
    let client = server.client();
    assert_eq!(client.register("known", PASSWORD).await.status, 201);
    for round in 0..2 {
        disk.fill();
        until_ready_is(&client, 503).await;
        for number in 0..3 {
            let made = client.register(&format!("new{round}{number}"), PASSWORD).await;
            assert_eq!((made.status, made.problem()), (503, "unavailable"), "{}", made.text);
            assert_ne!(made.header("retry-after"), "");
            let asked = client.ask_code(&format!("+861380013{round}{number}00"), "register").await;
            assert_eq!((asked.status, asked.problem()), (503, "unavailable"), "{}", asked.text);
            assert_ne!(asked.header("retry-after"), "");
        }
        disk.make_room();
        until_ready_is(&client, 200).await;
        assert_eq!(client.register(&format!("later{round}"), PASSWORD).await.status, 201);
        let code = client.code(&format!("+86138001390{round}0"), "register").await;
        assert_eq!(code.len(), 6);
    }
    server.signal("TERM");
    assert!(server.ended().await.success());
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_not_waited_for_by_each_request() {
    let app = TestApp::on(Store::Memory).own_postgres().start().await;
    let mut database = url::Url::parse(&app.database).unwrap();
    let proxy = Proxy::to(database.port().unwrap()).await;
    database.set_port(Some(proxy.port)).unwrap();
    let app = app.on_database(database.as_str()).await;
    app.register("known").await;
    // Until its windows are complete, which takes a while on a busy machine, it asks everybody for a CAPTCHA.
    while app.client().login("known", PASSWORD).await.status != 200 {}
    proxy.set(Way::Deaf);
    let client = app.client();
    until_ready_is(&client, 503).await;
    let all_at_once = async {
        for _ in 0..10 {
            let answer = client.login("known", PASSWORD).await;
            assert_eq!((answer.status, answer.problem()), (503, "unavailable"), "{}", answer.text);
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), all_at_once).await;
    assert!(ended.is_ok(), "two waits for a connection are longer than all ten take");
    proxy.set(Way::Clear);
    until_ready_is(&client, 200).await;
    assert_eq!(app.client().login("known", PASSWORD).await.status, 200);
}

/// Without this every statement succeeds, and what it writes is lost with the process.
#[tokio::test]
async fn a_database_that_is_deleted_or_replaced_under_a_server_takes_nothing_more() {
    for (file, replaced) in [("", false), ("", true), ("-wal", false), ("-wal", true), ("-shm", false)] {
        let what = format!("a.db{file} {}", if replaced { "replaced" } else { "deleted" });
        let mut home = Home::new();
        let path = home.path("a.db");
        home.set("GATEHOUSE__DATABASE__URL", format!("sqlite://{}", path.display()));
        let mut server = home.start(&["serve"]).await;
        let client = server.client();
        assert_eq!(client.register("known", PASSWORD).await.status, 201);
        assert_eq!(client.get("/readyz").await.status, 200, "{what}");
        let gone = home.path(format!("a.db{file}"));
        if replaced {
            // As a restore does it.
            let other = home.path("other");
            std::fs::copy(&gone, &other).unwrap();
            std::fs::rename(&other, &gone).unwrap();
        } else {
            std::fs::remove_file(&gone).unwrap();
        }
        let ready = client.get("/readyz").await;
        assert_eq!((ready.status, &ready.body["database"]), (503, &"down".into()), "{what}");
        let made = client.register("later", PASSWORD).await;
        assert_eq!((made.status, made.problem()), (503, "unavailable"), "{what}: {}", made.text);
        assert_eq!(client.login("known", PASSWORD).await.status, 503, "{what}");
        assert_eq!(client.get("/readyz").await.status, 503, "{what}");
        server.signal("TERM");
        assert!(server.ended().await.success(), "{what}");
        let log = format!("{}{}", server.stderr(), server.stdout());
        let told = format!("a.db{file} was deleted or replaced while the server has it open");
        assert_eq!(log.matches(&told).count(), 1, "{what}: {log}");
        if file.is_empty() && !replaced {
            continue;
        }
        // What was written before is there.
        let server = home.start(&["serve"]).await;
        let answer = server.client().login("known", PASSWORD).await;
        assert_eq!(
            (server.client().get("/readyz").await.status, answer.status),
            (200, 200),
            "{what}: {}",
            answer.text
        );
    }
}
