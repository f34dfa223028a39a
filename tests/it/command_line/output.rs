//! A log and a standard output that cannot be written stop nothing. And what is never logged.

use std::fs::{File, OpenOptions};
use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::app::PASSWORD;
use crate::support::process::Home;

const PHONE: &str = "13800138000";

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// A pipe whose reader is gone.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A full pipe whose reader has stopped.
fn stuck() -> (Stdio, std::io::PipeReader) {
    use std::io::Write;
    let (reader, mut writer) = std::io::pipe().unwrap();
    // As much as a pipe holds on Linux.
    writer.write_all(&[b'\n'; 64 * 1024]).unwrap();
    (writer.into(), reader)
}

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nothing() {
    let (stuck, _reader) = stuck();
    for (what, log) in [("a full disk", full()), ("a closed pipe", closed()), ("a pipe that is full", stuck)]
    {
        let mut home = Home::new();
        home.set("RUST_LOG", "trace");
        let mut running = home.start_logging(&["serve"], log).await;
        let client = running.client();
        for path in ["/healthz", "/readyz", "/login", "/nothing"] {
            assert!(client.get(path).await.status < 500, "{what}: {path}");
        }
        assert_eq!(client.login("alice", PASSWORD).await.status, 401, "{what}");
        home.write("gatehouse.toml", "[limits\n");
        running.signal("HUP");
        assert_eq!(client.get("/healthz").await.status, 200, "{what}");
        running.signal("TERM");
        assert_eq!(running.ended().await.code(), Some(0), "{what}");
    }
}

#[tokio::test]
async fn a_first_password_that_cannot_be_shown_is_none() {
    for out in [full(), closed()] {
        let home = Home::new();
        let mut mute = home.start_saying(&["serve"], out).await;
        assert_eq!(mute.client().get("/healthz").await.status, 200);
        mute.until("it is said", |running| running.stderr().contains("no administrator was created")).await;
        mute.signal("TERM");
        assert_eq!(mute.ended().await.code(), Some(0));
        let mut again = home.start(&["serve"]).await;
        again.until("it is shown now", |running| running.stdout().contains("one-time password: ")).await;
    }
}

/// systemd tells a service the inode of the stream that its journal keeps.
#[tokio::test]
async fn a_first_password_is_not_left_in_the_journal() {
    use std::os::unix::fs::MetadataExt;
    let mut home = Home::new();
    let journal = home.path("journal");
    let output = File::create(&journal).unwrap();
    let stream = output.metadata().unwrap();
    home.set("JOURNAL_STREAM", format!("{}:{}", stream.dev(), stream.ino()));
    let mut logged = home.start_saying(&["serve"], output.into()).await;
    assert_eq!(logged.client().get("/healthz").await.status, 200);
    logged.until("it is said", |running| running.stderr().contains("no administrator was created")).await;
    logged.signal("TERM");
    assert_eq!(logged.ended().await.code(), Some(0));
    assert!(!std::fs::read_to_string(&journal).unwrap().contains("one-time password"));
    // A terminal of the same service, which is not the journal.
    let mut shown = home.start(&["serve"]).await;
    shown.until("it is shown", |running| running.stdout().contains("one-time password: ")).await;
}

#[test]
fn a_command_whose_output_is_closed_has_done_what_it_was_asked() {
    let home = Home::new();
    home.write("gatehouse.toml", "");
    for arguments in [&["check-config"][..], &["limits", "show"]] {
        assert_eq!(home.run_saying(arguments, closed()), Some(0), "{arguments:?}");
        assert_eq!(home.run_saying(arguments, full()), Some(0), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_log_that_no_terminal_shows_has_no_colours() {
    let mut home = Home::new();
    home.set("RUST_LOG", "debug");
    home.set("GATEHOUSE__SERVER__PUBLIC_URL", "http://127.0.0.1:1");
    let mut running = home.start(&["serve"]).await;
    running.until("it warns", |running| running.stderr().contains("server.public_url is")).await;
    assert_eq!(running.client().get("/login").await.status, 200);
    let (log, out) = (running.stderr(), running.stdout());
    assert!(log.lines().count() > 1 && !log.contains('\x1b') && !out.contains('\x1b'), "{log}");
}

#[test]
fn a_bind_that_differs_from_the_public_url_is_warned_of() {
    let mut home = Home::new();
    home.write("gatehouse.toml", "");
    assert!(!home.run(&["check-config"]).stdout.contains("warning"));
    home.set("GATEHOUSE__SERVER__PUBLIC_URL", "http://127.0.0.1:1");
    let told = home.run(&["check-config"]);
    assert_eq!(told.code, Some(0));
    assert!(
        told.stdout.starts_with("warning: server.public_url is http://127.0.0.1:1, but"),
        "{}",
        told.stdout
    );
}

/// At every log level, and wherever the log goes.
#[tokio::test]
async fn a_log_of_everything_holds_nobodys_data() {
    let mut home = Home::new();
    home.set("RUST_LOG", "trace,rlibphonenumber=trace,rlibphonenumber::phonenumberutil=trace");
    home.set("GATEHOUSE__SERVER__TRUSTED_PROXIES", "[\"127.0.0.0/8\"]");
    home.write("gatehouse.toml", "[limits.sms-phone]\nrules = []\n");
    let log = home.path("gatehouse.log");
    let running = home.start_logging(&["serve"], File::create(&log).unwrap().into()).await;
    let client = running.client();
    let call = async |path: &str, body: serde_json::Value| {
        let request = client.http.post(format!("{}/api/v1{path}", client.url)).json(&body);
        let answer = request.header("x-forwarded-for", "203.0.113.77").send().await.unwrap();
        (answer.status().as_u16(), answer.headers().clone())
    };
    let mut secrets = vec![PHONE.to_owned(), PHONE[3..].to_owned(), PASSWORD.to_owned(), "zaphod".to_owned()];
    secrets.push("203.0.113.77".to_owned());
    let code = async |purpose: &str| {
        assert_eq!(call("/sms/codes", json!({ "phone": PHONE, "purpose": purpose })).await.0, 202);
        client.codes(PHONE).await.remove(0)
    };
    let first = code("register").await;
    let body = json!({ "login": "zaphod", "password": PASSWORD, "phone": PHONE, "code": first });
    assert_eq!(call("/register", body).await.0, 201);
    let (status, headers) = call("/login", json!({ "login": "zaphod", "password": PASSWORD })).await;
    assert_eq!(status, 200);
    let cookies = headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    secrets.extend(cookies.filter_map(|line| line.split([';', '=']).nth(1)).map(str::to_owned));
    assert_eq!(call("/login", json!({ "login": "zaphod", "password": "zaphod's other" })).await.0, 401);
    let second = code("login").await;
    assert_eq!(call("/sms/login", json!({ "phone": PHONE, "code": second })).await.0, 200);
    let third = code("reset").await;
    let body = json!({ "phone": PHONE, "code": third, "new_password": format!("{PASSWORD} two") });
    assert_eq!(call("/password/reset", body).await.0, 204);
    for wrong in ["12", "+8613800138", "+1 (650) 253-0000 ext 7", "tel:253-0000;phone-context=+1650"] {
        call("/sms/codes", json!({ "phone": wrong, "purpose": "login" })).await;
    }
    secrets.push("253-0000".to_owned());
    let text = std::fs::read_to_string(&log).unwrap();
    // A code is six digits, which a time or a number of bytes may contain, too.
    let codes = [first, second, third];
    for line in text.lines() {
        let bare = line.split_once("Z ").map_or(line, |(_, rest)| rest);
        for secret in secrets.iter().filter(|secret| secret.len() > 3) {
            assert!(!line.contains(secret.as_str()), "{secret} is in the log: {line}");
        }
        let words = || bare.split(|letter: char| !letter.is_ascii_alphanumeric());
        assert!(!words().any(|word| codes.iter().any(|code| code == word)), "a code is in the log: {line}");
    }
    assert!(!text.is_empty());
}

/// Anybody can send it, as often as they like.
#[tokio::test]
async fn a_request_that_is_not_http_is_no_error_in_the_log() {
    let home = Home::new();
    let mut running = home.start(&["serve"]).await;
    for (what, request) in [
        ("a header without a name", "GET /login HTTP/1.1\r\nhost: x\r\n: y\r\n\r\n"),
        ("a space before a colon", "GET /login HTTP/1.1\r\nhost: x\r\nx : y\r\n\r\n"),
        ("two lengths", "GET /login HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"),
        ("no version", "LOGIN\r\n\r\n"),
        ("TLS", "\u{16}\u{3}\u{1}\r\n\r\n"),
        (
            "a part without a length",
            "POST /login HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        ),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", home.port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(&answer, b"HTTP/1.1 4", "{what}");
    }
    running.signal("TERM");
    assert_eq!(running.ended().await.code(), Some(0));
    let log = running.stderr();
    assert!(log.contains("INFO") && !log.contains("ERROR"), "{log}");
}
