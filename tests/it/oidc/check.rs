//! `gatehouse apps check`: the real binary at a real server, and a proxy between them that does what proxies do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::*;
use crate::factors::put;
use crate::support::process::{Ended, Home, Running};

const APPS: &str = "
[oidc]
signing = 'ES256'

[[apps]]
name = 'wiki'
who = ['everyone']
[apps.oidc]
secret = 'env:WIKI_SECRET'
redirect_uris = ['https://wiki.example/callback', 'https://wiki.example/other?from=us']
post_logout_redirect_uris = ['https://wiki.example/bye']

[[apps]]
name = 'spa'
who = ['everyone']
[apps.oidc]
redirect_uris = ['https://spa.example/', 'https://spa.example/other']
consent = 'once'

[[apps]]
name = 'cli'
who = ['everyone']
[apps.oidc]
redirect_uris = ['http://127.0.0.1/callback', 'com.example.cli:/callback']

[[apps]]
name = 'staff'
who = ['group:staff']
[apps.oidc]
secret = 'env:WIKI_SECRET'
redirect_uris = ['https://staff.example/callback']
backchannel_logout_uri = 'https://localhost/logout'

[[apps]]
name = 'photos'
hosts = ['photos.example']
who = ['everyone']
";

fn home() -> Home {
    let mut home = Home::new();
    home.set("WIKI_SECRET", SECRET);
    home.write("gatehouse.toml", APPS);
    home
}

fn check(home: &Home, more: &[&str]) -> Ended {
    home.run(&[&["apps", "check"], more].concat())
}

/// Signs in by what stands on the lines.
fn check_as(home: &Home, app: &str, login: &str, lines: &str) -> Ended {
    home.run_with_input(&["apps", "check", app, "--as", login, "--password-stdin"], lines)
}

fn failures(ended: &Ended) -> Vec<&str> {
    ended.stdout.lines().filter(|line| line.starts_with("FAIL ")).collect()
}

async fn serve(home: &Home) -> Running {
    let made = home.run_with_input(&["admin", "create", "ada", "--password-stdin"], PASSWORD);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    home.start(&["serve"]).await
}

/// One number of the database.
async fn count(home: &Home, sql: &'static str) -> i64 {
    let url = format!("sqlite://{}", home.path("data/gatehouse.db").display());
    let db = gatehouse::db::Db::connect(&url).await.unwrap();
    let gatehouse::db::Db::Sqlite(pools) = &db else { unreachable!("its URL says SQLite") };
    sqlx::query_scalar(sql).fetch_one(&pools.all).await.unwrap()
}

#[tokio::test]
async fn the_whole_way_of_each_kind_of_client_is_gone_and_nothing_stays_signed_in() {
    let home = home();
    let _running = serve(&home).await;
    let mut told = String::new();
    // Twice where the account is asked, because it has agreed by then.
    for (app, times) in [("wiki", 1), ("spa", 2), ("cli", 1)] {
        let ended = check(&home, &[app]);
        assert_eq!((ended.code, failures(&ended)), (Some(0), vec![]), "{}\n{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains(&format!("apps check {app} --as LOGIN")), "{}", ended.stdout);
        // A client without a secret cannot go without.
        assert_eq!(ended.stdout.contains("pkce = \"optional\""), app == "wiki", "{app}: {}", ended.stdout);
        for _ in 0..times {
            let ended = check_as(&home, app, "ada", PASSWORD);
            assert_eq!(
                (ended.code, failures(&ended)),
                (Some(0), vec![]),
                "{}\n{}",
                ended.stdout,
                ended.stderr
            );
            for told in ["\"preferred_username\":\"ada\"", "ok   refresh token ends", "ok   signed out"] {
                assert!(ended.stdout.contains(told), "{told}: {}", ended.stdout);
            }
            told += &ended.stdout;
        }
    }
    assert!(!told.contains(PASSWORD) && !told.contains(SECRET), "{told}");
    for step in [
        "secret",
        "issuer",
        "keys",
        "clock",
        "redirect URI https://wiki.example/callback",
        "redirect URI https://wiki.example/other?from=us",
        "redirect URI com.example.cli:/callback",
        "token_endpoint by client_secret_basic",
        "token_endpoint by client_secret_post",
        "token_endpoint by none",
        "CORS for https://spa.example\n",
        "post-logout redirect URI https://wiki.example/bye",
    ] {
        assert!(told.contains(&format!("ok   {step}")), "{step}: {told}");
    }
    assert_eq!(count(&home, "SELECT COUNT(*) FROM sessions").await, 0);
    // The owner sees them among the sign-ins.
    assert_eq!(count(&home, "SELECT COUNT(*) FROM sign_ins WHERE user_agent LIKE 'gatehouse/%'").await, 4);
}

#[tokio::test]
async fn a_second_step_is_asked_for_and_what_an_account_may_not_is_named() {
    let home = home();
    let running = serve(&home).await;
    let browser = running.client();
    assert_eq!(browser.register("bea", PASSWORD).await.status, 201);
    let proposed = browser.call("/totp", json!({})).await;
    let secret = proposed.body["secret"].as_str().unwrap();
    let code = Command::new("oathtool").args(["--totp", "--base32", secret]).output().unwrap().stdout;
    let code = String::from_utf8(code).unwrap();
    let added = put(&browser, "/totp", json!({ "code": code.trim() })).await;
    assert_eq!(added.status, 200, "{}", added.text);
    let recovery = added.body["recovery_codes"][0].as_str().unwrap();
    let ended = check_as(&home, "wiki", "bea", &format!("{PASSWORD}\n{recovery}\n"));
    assert_eq!((ended.code, failures(&ended)), (Some(0), vec![]), "{}", ended.stdout);
    assert!(ended.stdout.contains("\"acr\":\"second\""), "{}", ended.stdout);

    for (app, login, lines, step, to_do) in [
        ("wiki", "ada", "not the password", "signed in as ada", "sign in with a browser"),
        ("wiki", "bea", &format!("{PASSWORD}\nwrong\n"), "signed in as bea", "sign in with a browser"),
        ("cli", "nobody", PASSWORD, "signed in as nobody", "sign in with a browser"),
    ] {
        let ended = check_as(&home, app, login, lines);
        let [failure] = failures(&ended)[..] else { panic!("{}", ended.stdout) };
        assert!(failure.contains(step) && failure.contains(to_do), "{failure}");
        assert_eq!(ended.code, Some(1));
    }
    // It is not signed in while something else is wrong: here, that sign-outs could not be told.
    let ended = check_as(&home, "staff", "ada", PASSWORD);
    let [failure] = failures(&ended)[..] else { panic!("{}", ended.stdout) };
    assert!(failure.starts_with("FAIL backchannel_logout_uri https://localhost/logout: "), "{failure}");
    assert!(failure.contains("allow_private = true"), "{failure}");
    assert!(!ended.stdout.contains("signed in as"), "{}", ended.stdout);
    home.write("gatehouse.toml", &APPS.replace("backchannel_logout_uri = 'https://localhost/logout'\n", ""));
    let ended = check_as(&home, "staff", "ada", PASSWORD);
    let [failure] = failures(&ended)[..] else { panic!("{}", ended.stdout) };
    assert!(failure.contains("take an account that may use the application"), "{failure}");
    assert!(ended.stdout.contains("ok   signed out"), "it stopped on its way: {}", ended.stdout);
    assert_eq!(count(&home, "SELECT COUNT(*) FROM sessions WHERE user_agent LIKE 'gatehouse/%'").await, 0);
}

#[tokio::test]
async fn another_configuration_than_the_servers_is_named() {
    let mut home = home();
    let _running = serve(&home).await;
    home.set("WIKI_SECRET", "another secret of thirty characters");
    let ended = check(&home, &["wiki"]);
    let failed = failures(&ended);
    assert_eq!((ended.code, failed.len()), (Some(1), 2), "{}", ended.stdout);
    for (failure, method) in failed.iter().zip(["client_secret_post", "client_secret_basic"]) {
        assert!(failure.starts_with(&format!("FAIL token_endpoint by {method}: received 401 ")), "{failure}");
        assert!(failure.contains("the same secret"), "{failure}");
    }
    assert_eq!(ended.stderr, "2 steps do not match.\n");
    home.set("WIKI_SECRET", "short");
    let ended = check(&home, &["wiki"]);
    let [failure] = failures(&ended)[..] else { panic!("{}", ended.stdout) };
    assert!(failure.starts_with("FAIL secret: ") && failure.contains("env:WIKI_SECRET"), "{failure}");
    home.set("WIKI_SECRET", SECRET);
    // As where the application was saved on another instance's file.
    home.write("elsewhere.toml", &APPS.replace("wiki.example/callback", "wiki.example/Callback"));
    let ended = check(&home, &["wiki", "--config", "elsewhere.toml"]);
    let [failure] = failures(&ended)[..] else { panic!("{}", ended.stdout) };
    assert!(
        failure.starts_with("FAIL redirect URI https://wiki.example/Callback: received 400 "),
        "{failure}"
    );
    assert!(failure.contains("save [[apps]] where the server"), "{failure}");
}

#[test]
fn what_cannot_be_checked_is_said_at_once() {
    let home = home();
    for (name, told) in [
        ("Wiki", "\"Wiki\" is no application; did you mean \"wiki\"?"),
        ("zzz", "\"zzz\" is no application; there are: wiki, spa, cli, staff, photos"),
        ("photos", "\"photos\" has no [apps.oidc]"),
    ] {
        let ended = check(&home, &[name]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{name}");
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
    // No server runs.
    let ended = check(&home, &["wiki"]);
    let [failure] = failures(&ended)[..] else { panic!("{}", ended.stdout) };
    assert!(failure.contains("no answer (") && failure.contains("refused"), "{failure}");
    assert!(failure.contains("start the server"), "{failure}");
    assert_eq!(ended.code, Some(1));
    home.write("none.pem", "");
    let ended = check(&home, &["wiki", "--ca-file", "none.pem"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
    assert!(ended.stderr.contains("none.pem: contains no certificate"), "{}", ended.stderr);
}

/// What a proxy makes of a request, and of an answer.
type Made = (fn(String) -> String, fn(String) -> String);

/// A proxy to that port, which speaks one request a connection.
fn proxy(to: u16, made: Arc<Mutex<Made>>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (of_request, of_answer) = *made.lock().unwrap();
            std::thread::spawn(move || pass(stream, to, of_request, of_answer));
        }
    });
    port
}

fn pass(mut from: TcpStream, to: u16, of_request: fn(String) -> String, of_answer: fn(String) -> String) {
    let (mut sent, mut buffer) = (String::new(), [0; 65_536]);
    let is_whole = |sent: &str| {
        sent.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            body.len() >= length.map_or(0, |length| length.parse().unwrap())
        })
    };
    while !is_whole(&sent) {
        let Ok(read @ 1..) = from.read(&mut buffer) else { return };
        sent.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    let sent = of_request(sent).replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let mut server = TcpStream::connect(("127.0.0.1", to)).unwrap();
    server.write_all(sent.as_bytes()).unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    // Its end is that of the connection.
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let head: Vec<_> =
        head.lines().filter(|line| !line.to_lowercase().starts_with("content-length")).collect();
    let answer = of_answer(format!("{}\r\nconnection: close\r\n\r\n{body}", head.join("\r\n")));
    from.write_all(answer.as_bytes()).unwrap();
}

fn same(text: String) -> String {
    text
}

fn without(text: &str, header: &str) -> String {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let head: Vec<_> = head.lines().filter(|line| !line.to_lowercase().starts_with(header)).collect();
    format!("{}\r\n\r\n{body}", head.join("\r\n"))
}

/// What the names of a document become behind a proxy that ends TLS and tells nobody.
fn with_https(text: String) -> String {
    text.replace("\"token_endpoint\":\"http://", "\"token_endpoint\":\"https://")
}

fn with_slash(text: String) -> String {
    let Some((before, rest)) = text.split_once("\"issuer\":\"") else { return text };
    format!("{before}\"issuer\":\"{}", rest.replacen('"', "/\"", 1))
}

fn its_own_page(text: String) -> String {
    if text.contains("\"issuer\"") {
        return "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<h1>Welcome to nginx!\u{1b}[31m".into();
    }
    text
}

#[tokio::test]
async fn what_a_proxy_changes_is_named_with_what_to_do() {
    let mut home = home();
    let made: Arc<Mutex<Made>> = Arc::new(Mutex::new((same, same)));
    let port = proxy(home.port, Arc::clone(&made));
    home.set("GATEHOUSE__SERVER__PUBLIC_URL", format!("http://127.0.0.1:{port}"));
    let _running = serve(&home).await;
    let ended = check_as(&home, "wiki", "ada", PASSWORD);
    assert_eq!((ended.code, failures(&ended)), (Some(0), vec![]), "{}", ended.stdout);
    let cases: [(&str, Made, &str, &str); 8] = [
        (
            "wiki",
            (|sent| without(&sent, "authorization"), same),
            "token_endpoint by client_secret_basic: ",
            "pass the header Authorization on",
        ),
        ("wiki", (same, with_slash), "issuer http://", "byte for byte"),
        ("wiki", (same, with_https), "token_endpoint http://", "received \"https://"),
        ("wiki", (same, its_own_page), "/.well-known/openid-configuration: ", "Welcome to nginx!\\u{1b}[31m"),
        (
            "wiki",
            (same, |text| {
                without(&text, "date:").replacen("\r\n", "\r\ndate: Thu, 01 Jan 2015 00:00:00 GMT\r\n", 1)
            }),
            "clock: ",
            "NTP",
        ),
        (
            "wiki",
            (same, |text| text.replace("callback?error", "callback/?error")),
            "redirect URI https://wiki.example/callback: ",
            "answers back as they are",
        ),
        (
            "wiki",
            (same, |text| text.replace("&iss=http", "&old=http")),
            "redirect URI https://wiki.example/other?from=us: ",
            "&old=http",
        ),
        (
            "spa",
            (same, |text| without(&text, "access-control-allow-origin")),
            "CORS for https://spa.example: ",
            "Access-Control-Allow-Origin \"\" of OPTIONS /oauth/token",
        ),
    ];
    for (app, how, step, told) in cases {
        *made.lock().unwrap() = how;
        let ended = check(&home, &[app]);
        let failed = failures(&ended);
        assert_eq!(ended.code, Some(1), "{step}");
        let failure = failed.iter().find(|line| line.starts_with(&format!("FAIL {step}")));
        let failure = failure.unwrap_or_else(|| panic!("{step}: {}", ended.stdout));
        assert!(failure.contains("received ") && failure.contains(", expected "), "{failure}");
        assert!(failure.contains(told), "{failure}");
        assert!(failed.len() <= 2, "one cause: {failed:#?}");
    }
}
