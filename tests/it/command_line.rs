//! The real binary: what it prints, what it leaves behind, and how it ends.

mod accounts;
mod alone;
mod backup;
mod clock_steps;
mod configuration;
mod database;
mod files;
mod gate;
mod key_loss;
mod key_rotation;
mod output;
mod pooler;
mod resealing;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::app::PASSWORD;
use crate::support::process::{Home, Running};
use crate::support::redis::RedisServer;

const WRONG: &str = "a wrong password";

const OTHER: &str = "another long horse staple";

#[test]
fn an_unknown_command_ends_with_2() {
    for arguments in [&["sevre"][..], &["serve", "--colour"], &["admin"]] {
        assert_eq!(Home::new().run(arguments).code, Some(2), "{arguments:?}");
    }
}

#[tokio::test]
async fn an_administrator_is_made_once_with_a_password_that_will_do() {
    let home = Home::new();
    let create = |name: &str, password: &str| {
        home.run_with_input(&["admin", "create", name, "--password-stdin"], &format!("{password}\n"))
    };
    for (name, weak) in [("ada", "short"), ("ada", "passwordpassword"), ("ada", ""), ("a da", PASSWORD)] {
        let ended = create(name, weak);
        assert_eq!(ended.code, Some(2), "{name} {weak:?}: {}", ended.stderr);
        assert!(
            ended.stderr.starts_with(if name == "ada" { "password: " } else { "NAME: " }),
            "{}",
            ended.stderr
        );
        assert!(weak.is_empty() || !ended.stderr.contains(weak), "{}", ended.stderr);
    }
    let made = create("ada", PASSWORD);
    assert_eq!(
        (made.code, made.stdout.as_str()),
        (Some(0), "ada is now an administrator.\n"),
        "{}",
        made.stderr
    );
    for taken in ["ada", "Ada"] {
        let ended = create(taken, OTHER);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains("is taken"), "{}", ended.stderr);
    }
    assert_eq!(home.run(&["admin", "create", "eve"]).code, Some(2), "there is no terminal to ask on");
    let running = home.start(&["serve"]).await;
    assert!(!running.stdout().contains("one-time password"), "there is an administrator already");
    let answer = running.client().login("ada", PASSWORD).await;
    assert_eq!(answer.body["user"]["roles"], serde_json::json!(["user", "admin"]), "{}", answer.text);
    assert!(answer.body["user"].get("must_change_password").is_none());
}

#[tokio::test]
async fn a_first_start_in_an_empty_folder_makes_all_it_needs_and_shows_one_password_once() {
    for arguments in [&[][..], &["serve"]] {
        let home = Home::new();
        let mut running = home.start(arguments).await;
        let told = "one-time password: ";
        running.until("it shows the password", |running| running.stdout().contains(told)).await;
        let word = running.stdout().split(told).nth(1).unwrap().lines().next().unwrap().to_owned();
        let mode = |name: &str| std::fs::metadata(home.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("data/secret.key"), 0o600);
        assert_eq!(std::fs::metadata(home.path("data/secret.key")).unwrap().len(), 32);
        for file in std::fs::read_dir(home.path("data")).unwrap() {
            let (name, mode) = {
                let file = file.unwrap();
                (file.file_name(), file.metadata().unwrap().permissions().mode())
            };
            assert_eq!(mode & 0o007, 0, "{name:?} holds password hashes, and anyone may read it: {mode:o}");
        }
        assert!(home.path("data/gatehouse.db").exists());
        let shown = running.stdout();
        let public = shown.split(" (").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
        let there = format!("sign in at:        {}/admin\n", public.trim_end_matches('/'));
        assert!(shown.contains(&there), "{shown}");
        assert_eq!(running.client().get("/healthz").await.status, 200);
        let answer = running.client().login("admin", &word).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.body["user"]["must_change_password"], true);
        assert_eq!(answer.body["user"]["roles"], serde_json::json!(["user", "admin"]));
        assert!(!running.stderr().contains(&word), "it is in the log");
        running.signal("TERM");
        assert_eq!(running.ended().await.code(), Some(0));

        let again = home.start(arguments).await;
        assert!(!again.stdout().contains(told), "{}", again.stdout());
        assert_eq!(again.client().login("admin", &word).await.status, 200, "the database and the key stayed");
    }
}

#[tokio::test]
async fn a_sigterm_lets_a_request_in_flight_end_and_exits_with_0() {
    let mut home = Home::new();
    assert_eq!(home.run_with_input(&["admin", "create", "ada", "--password-stdin"], PASSWORD).code, Some(0));
    // About half a second a hash.
    home.set("GATEHOUSE__PASSWORD__MEMORY_KIB", "65536");
    home.set("GATEHOUSE__PASSWORD__ITERATIONS", "16");
    let mut running = home.start(&["serve"]).await;
    // On a worker's existing connection; then the only thing to wait for is the arrival of a write.
    let client = running.client();
    assert_eq!(client.get("/healthz").await.status, 200);
    let slow = tokio::spawn(async move { client.login("nobody", WRONG).await });
    // Another process, which our clock does not move; it answers nothing before the hash is done.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let start = tokio::time::Instant::now();
    running.signal("TERM");
    let answer = slow.await.unwrap();
    assert_eq!(answer.status, 401, "{}", answer.text);
    assert_eq!(running.ended().await.code(), Some(0));
    eprintln!("SIGTERM with a request in flight: answered and ended after {:.1?}", start.elapsed());
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_a_sigterm_up() {
    let home = Home::new();
    let mut running = home.start(&["serve"]).await;
    let mut idle = tokio::net::TcpStream::connect(("127.0.0.1", home.port)).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(idle.read(&mut [0; 4096]).await.unwrap() > 0);
    let start = tokio::time::Instant::now();
    running.signal("TERM");
    assert_eq!(running.ended().await.code(), Some(0));
    eprintln!("SIGTERM with an idle connection: ended after {:.1?}", start.elapsed());
}

#[test]
fn development_parts_are_not_served_to_other_machines() {
    let mut home = Home::new();
    home.set("GATEHOUSE__SERVER__BIND", format!("0.0.0.0:{}", home.port));
    let ended = home.run(&["serve"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("for development only") && ended.stderr.contains("sms.gateway"),
        "{}",
        ended.stderr
    );
    home.set("GATEHOUSE__SMS__GATEWAY", "http");
    home.set("GATEHOUSE__SMS__HTTP__URL", "https://gateway.example/send");
    assert_eq!(home.run(&["check-config"]).code, Some(0));
    home.set("GATEHOUSE__CAPTCHA__PROVIDER", "fixed");
    home.set("GATEHOUSE__CAPTCHA__FIXED_ANSWER", "open");
    let ended = home.run(&["check-config"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("captcha.provider"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_and_wastes_no_one_time_password() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind(("127.0.0.1", home.port)).unwrap();
    let ended = home.run(&["serve"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains(&format!("server.bind: cannot listen on 127.0.0.1:{}", home.port)),
        "{}",
        ended.stderr
    );
    assert!(!ended.stdout.contains("one-time password"), "{}", ended.stdout);
    drop(listener);
    let mut running = home.start(&["serve"]).await;
    running.until("it shows the password", |running| running.stdout().contains("one-time password")).await;
}

#[test]
fn a_key_that_others_may_read_is_refused_with_the_remedy() {
    let home = Home::new();
    std::fs::create_dir(home.path("data")).unwrap();
    std::fs::write(home.path("data/secret.key"), [7; 32]).unwrap();
    std::fs::set_permissions(home.path("data/secret.key"), PermissionsExt::from_mode(0o644)).unwrap();
    let ended = home.run(&["serve"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("chmod 600 data/secret.key"), "{}", ended.stderr);
    std::fs::write(home.path("data/secret.key"), b"short").unwrap();
    std::fs::set_permissions(home.path("data/secret.key"), PermissionsExt::from_mode(0o600)).unwrap();
    let ended = home.run(&["serve"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("its 5 bytes are no key"), "{}", ended.stderr);
}

#[test]
fn a_database_that_cannot_be_opened_is_told_without_its_password() {
    let mut home = Home::new();
    home.set("GATEHOUSE__DATABASE__URL", "postgres://gatehouse:hunter2hunter2@127.0.0.1:1/gatehouse");
    let ended = home.run(&["serve"]);
    assert_eq!(ended.code, Some(1));
    let told = "database.url: cannot connect to PostgreSQL at 127.0.0.1:1: connection refused";
    assert_eq!(ended.stderr.trim_end().lines().last(), Some(told), "{}", ended.stderr);
    assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
}

#[tokio::test]
async fn why_redis_is_out_is_said_once() {
    let redis = RedisServer::start();
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("requirepass")
        .arg("the-right-one")
        .query::<()>(&mut redis.connection())
        .unwrap();
    for (url, told) in [
        (format!("redis://:hunter2hunter2@127.0.0.1:{}/", redis.port), "authentication failed"),
        (format!("redis://127.0.0.1:{}/", redis.port), "NOAUTH"),
        ("redis://127.0.0.1:1/".to_owned(), "refused"),
        (format!("redis://127.0.0.1:{}/", still_loading()), "LOADING"),
    ] {
        let mut home = Home::new();
        home.set("GATEHOUSE__STORE__URL", url);
        let mut running = home.start(&["serve"]).await;
        running.until("it is said", |running| running.stderr().contains("redis is out of service")).await;
        // Attempts come 40 times a second at first, by another process's clock, and none of them may be
        // logged. There is no event to wait for.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let log = running.stderr();
        let lines: Vec<_> = log.lines().filter(|line| line.contains("out of service")).collect();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].to_lowercase().contains(&told.to_lowercase()), "{}", lines[0]);
        assert!(!log.contains("hunter2"), "{log}");
        assert_eq!(running.client().get("/readyz").await.body["store"], "down");
    }
}

/// A server that answers every command like a Redis that loads its files.
fn still_loading() -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut sent = [0; 65_536];
                while let Ok(read @ 1..) = stream.read(&mut sent) {
                    // A command begins with the number of its parts.
                    let commands =
                        sent[..read].windows(2).filter(|pair| pair[0] == b'*' && pair[1].is_ascii_digit());
                    for _ in commands {
                        stream.write_all(b"-LOADING Redis is loading the dataset in memory\r\n").ok()?;
                    }
                }
                Some(())
            });
        }
    });
    port
}

/// All personal data, sent through every kind of call.
async fn visit(running: &Running, address: &str, login: &str, password: &str) {
    let client = running.client();
    let call = |path: &'static str, body: serde_json::Value| {
        let request = client.http.post(format!("{}/api/v1{path}", client.url)).json(&body);
        request.header("x-forwarded-for", address).send()
    };
    let credentials = serde_json::json!({ "login": login, "password": password });
    assert_eq!(call("/register", credentials.clone()).await.unwrap().status(), 201);
    // From the device that is known by now, and from another.
    let stranger = running.client();
    for round in 0..12 {
        let wrong = serde_json::json!({ "login": login, "password": format!("{password} {round}") });
        call("/login", wrong.clone()).await.unwrap();
        let there = stranger.http.post(format!("{}/api/v1/login", stranger.url)).json(&wrong);
        there.header("x-forwarded-for", address).send().await.unwrap();
    }
    let challenge: serde_json::Value =
        call("/captcha", serde_json::json!({})).await.unwrap().json().await.unwrap();
    for answer in ["not-it-unmistakably", "unmistakable"] {
        let captcha = serde_json::json!({ "id": challenge["id"], "answer": answer });
        let body = serde_json::json!({ "login": login, "password": password, "captcha": captcha });
        call("/login", body).await.unwrap();
    }
    let odd = serde_json::json!({ "login": [login], "password": { "of": password }, "unknown": password });
    call("/login", odd).await.unwrap();
    let form =
        [("login", login), ("password", password), ("csrf_token", "x"), ("captcha_answer", "unmistakable")];
    let page = client.http.post(format!("{}/login", client.url)).header("x-forwarded-for", address);
    page.form(&form).send().await.unwrap();
}

#[tokio::test]
async fn nothing_that_is_secret_is_in_the_log_or_on_redis() {
    let redis = RedisServer::start();
    let mut home = Home::new();
    home.set("RUST_LOG", "gatehouse=trace,actix_web=debug,sqlx=debug,redis=trace,info");
    home.set("GATEHOUSE__SERVER__TRUSTED_PROXIES", "[\"127.0.0.0/8\"]");
    home.set("GATEHOUSE__CAPTCHA__PROVIDER", "fixed");
    home.set("GATEHOUSE__CAPTCHA__FIXED_ANSWER", "unmistakable");
    home.set("GATEHOUSE__STORE__URL", redis.url());
    let mut running = home.start(&["serve"]).await;
    visit(&running, "203.0.113.77", "zaphod-the-first", "beeblebrox heart of gold").await;
    let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connection()).unwrap();
    for limit in ["gh:login-account:", "gh:login-device:"] {
        assert!(names.iter().any(|name| name.starts_with(limit)), "{names:?}");
    }
    // And during an outage, when people read the log.
    drop(redis);
    visit(&running, "203.0.113.78", "zaphod-the-second", "beeblebrox heart of gold").await;
    running.signal("TERM");
    assert_eq!(running.ended().await.code(), Some(0));
    let (log, stdout) = (running.stderr(), running.stdout());
    assert!(log.contains("redis is out of service"), "{log}");
    let key = std::fs::read(home.path("data/secret.key")).unwrap();
    assert!(!log.contains(&String::from_utf8_lossy(&key).into_owned()));
    for secret in ["203.0.113", "zaphod", "beeblebrox", "unmistakabl"] {
        for (place, text) in [("the log", &log), ("stdout", &stdout), ("Redis", &names.join("\n"))] {
            let found: Vec<_> = text.lines().filter(|line| line.to_lowercase().contains(secret)).collect();
            assert!(found.is_empty(), "{secret} is in {place}: {found:#?}");
        }
    }
}
