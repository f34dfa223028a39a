//! What proxies are answered.

use std::time::Duration;

use gatehouse::accounts::{AccountAct, Groups, Profile};
use gatehouse::db::Db;

use super::{Visitor, account, behind};
use crate::support::app::{PASSWORD, Store, TestApp, on_both_stores};
use crate::support::until;

const WIKI: &str = "https://wiki.example";

fn remote(answer: &crate::support::app::Answer) -> [&str; 4] {
    ["remote-user", "remote-groups", "remote-name", "remote-email"].map(|name| {
        assert!(answer.headers.contains_key(name), "{name}");
        answer.header(name)
    })
}

#[tokio::test]
async fn strangers_are_led_to_sign_in_as_their_request_allows() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    let stranger = Visitor::of(&app);
    let start = "https://wiki.example/.gatehouse/start?rd=https%3A%2F%2Fwiki.example%2F";
    for (method, status) in [("GET", 302), ("HEAD", 302), ("OPTIONS", 302), ("POST", 303), ("PROPFIND", 303)]
    {
        let answer = stranger.ask(method, "https://wiki.example/page?a=b").await;
        let target = if ["GET", "HEAD"].contains(&method) { "page%3Fa%3Db" } else { "" };
        assert_eq!(
            (answer.status, answer.header("location")),
            (status, &*format!("{start}{target}")),
            "{method}"
        );
        assert!(answer.headers.get("remote-user").is_none());
    }
    for headers in [
        [("accept", "application/json")],
        [("accept", "text/event-stream")],
        [("x-requested-with", "XMLHttpRequest")],
        [("upgrade", "websocket")],
    ] {
        let answer = stranger.ask_with("GET", "https://wiki.example/page", &headers).await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (401, &*format!("{start}page")),
            "{headers:?}"
        );
    }
    for method in ["GET", "POST"] {
        let answer = stranger.ask_nginx(method, "https://wiki.example/page").await;
        assert_eq!(answer.status, 401, "{method}");
        assert!(answer.header("location").starts_with(start));
    }
}

/// GHSA-7r4p-vjf4-gxv4: a proxy leaves the client's header where the answer has none.
#[tokio::test]
async fn who_is_told_to_the_application_and_nobody_where_it_is_public() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    account(&app, "bob", &["staff", "backup"]).await;
    let mut bob = Visitor::of(&app);
    for answer in [
        bob.ask("GET", &format!("{WIKI}/health")).await,
        bob.ask_nginx("HEAD", &format!("{WIKI}/static/a")).await,
    ] {
        assert_eq!((answer.status, remote(&answer)), (200, ["", "", "", ""]));
    }
    let start = bob.ask("GET", &format!("{WIKI}/page")).await.header("location").to_owned();
    let (sign_in, _) = bob.follow(&start).await;
    let (arrived, _) = bob.sign_in(&sign_in, "bob").await;
    assert_eq!(arrived, format!("{WIKI}/page"));
    for path in ["/page", "/health", "/a%20b"] {
        let asked = if path == "/a%20b" { "GET" } else { "POST" };
        let answer = bob.ask(asked, &format!("{WIKI}{path}")).await;
        let expected = if path == "/a%20b" { 403 } else { 200 };
        assert_eq!(answer.status, expected, "{path}");
        if expected == 200 {
            assert_eq!(remote(&answer), ["bob", "backup,staff", "bob", ""]);
        }
    }
    let admin = bob.ask("GET", &format!("{WIKI}/admin/users")).await;
    assert_eq!(admin.status, 403);
    assert!(
        admin.text.contains("You may not use this") && admin.text.contains("signed in as bob"),
        "{}",
        admin.text
    );
    assert!(admin.headers.get("set-cookie").is_none());
    assert_eq!(bob.ask_nginx("GET", &format!("{WIKI}/admin/users")).await.status, 403);

    // Anybody can register; an application that makes users of whom it is told would make one of each.
    account(&app, "mallory", &[]).await;
    let mut mallory = Visitor::of(&app);
    let start = mallory.ask("GET", &format!("{WIKI}/page")).await.header("location").to_owned();
    let (sign_in, _) = mallory.follow(&start).await;
    mallory.sign_in(&sign_in, "mallory").await;
    assert_eq!(mallory.ask("GET", &format!("{WIKI}/page")).await.status, 403);
    let public = mallory.ask("GET", &format!("{WIKI}/health")).await;
    assert_eq!((public.status, remote(&public)), (200, ["", "", "", ""]));
    let public = bob.ask("GET", &format!("{WIKI}/health")).await;
    assert_eq!(remote(&public), ["bob", "backup,staff", "bob", ""], "who may use it is told there, too");
}

/// Windows drops dots at the end of a name, and what follows a colon; other servers differ in what else they read.
#[tokio::test]
async fn odd_spellings_of_a_part_take_its_rule() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    account(&app, "bob", &["staff"]).await;
    account(&app, "eve", &["staff", "on-call"]).await;
    let mut bob = Visitor::of(&app);
    let start = bob.ask("GET", &format!("{WIKI}/page")).await.header("location").to_owned();
    let (sign_in, _) = bob.follow(&start).await;
    bob.sign_in(&sign_in, "bob").await;
    for path in ["/page", "/administration", "/admin.html", "/wiki/Talk:Admin", "/~1", "/a.b./c"] {
        assert_eq!(bob.ask("GET", &format!("{WIKI}{path}")).await.status, 200, "{path}");
    }
    let mut odd =
        vec!["/.../admin/x", "/::$INDEX_ALLOCATION/admin/x", "/.:x/admin/x", "/ADMIN~1/x", "/x/..;/admin"];
    odd.extend([
        "/admin",
        "/admin.",
        "/admin./",
        "/admin../x",
        "/ADMIN./x",
        "/admin::$DATA",
        "/admin:$I30:$INDEX_ALLOCATION/x",
    ]);
    odd.extend([
        "/admin.:x/",
        "/ADMIN",
        "/admin;x",
        "/admin%2e",
        "/admin%20",
        "/admin/.",
        "//admin",
        "/admin%3a%3a$DATA",
    ]);
    let mut eve = Visitor::of(&app);
    let start = eve.ask("GET", &format!("{WIKI}/admin./")).await.header("location").to_owned();
    let (sign_in, _) = eve.follow(&start).await;
    let (back, _) = eve.sign_in(&sign_in, "eve").await;
    assert_eq!(back, format!("{WIKI}/admin./"));
    for path in odd {
        assert_eq!(bob.ask("GET", &format!("{WIKI}{path}")).await.status, 403, "{path}");
        assert_eq!(bob.ask_nginx("GET", &format!("{WIKI}{path}")).await.status, 403, "{path}");
    }
    for path in ["/admin.", "/admin./", "/admin::$DATA"] {
        assert_eq!(eve.ask("GET", &format!("{WIKI}{path}")).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_host_that_no_application_names_is_refused() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    let stranger = Visitor::of(&app);
    for host in
        ["other.example", "example", "wiki.example.", "wiki.example:444", "a.wiki.example", "files.test"]
    {
        assert_eq!(stranger.ask("GET", &format!("https://{host}/health")).await.status, 403, "{host}");
        assert_eq!(stranger.ask_nginx("GET", &format!("https://{host}/health")).await.status, 403, "{host}");
    }
    for host in ["WIKI.example", "wiki.example:443"] {
        let answer = stranger.ask("GET", &format!("https://{host}/health")).await;
        assert_eq!(answer.status, 200, "{host}, as browsers read it");
    }
}

#[tokio::test]
async fn what_the_proxy_does_not_say_is_not_decided() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    let stranger = Visitor::of(&app);
    let headers = [
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "wiki.example"),
        ("x-forwarded-uri", "/health"),
    ];
    let answer = stranger.send("GET", "/api/authz/forward-auth", "", &headers, None).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text.contains("x-forwarded-method exactly once"), "{}", answer.text);
    let answer =
        stranger.send("GET", "/api/authz/auth-request", "", &[("x-original-method", "GET")], None).await;
    assert_eq!(answer.status, 500, "nginx knows no other refusal");
    let twice = [
        ("x-original-method", "GET"),
        ("x-original-url", "https://wiki.example/"),
        ("x-original-url", "https://wiki.example/health"),
    ];
    assert_eq!(stranger.send("GET", "/api/authz/auth-request", "", &twice, None).await.status, 500);
}

/// CVE-2026-40575: what was judged was a header that anybody could send, as long as nobody had named the proxies.
#[tokio::test]
async fn only_trusted_proxies_are_answered() {
    let app = TestApp::on(Store::Memory).file(super::APPS).start().await;
    let stranger = Visitor::of(&app);
    assert_eq!(stranger.ask("GET", "https://wiki.example/health").await.status, 403);
    assert_eq!(stranger.ask_nginx("GET", "https://wiki.example/health").await.status, 403);
    let mut browser = Visitor::of(&app);
    for path in ["start", "callback?code=x", "logout", "forbidden", "static/app.css"] {
        assert_eq!(
            browser.open(&format!("https://wiki.example/.gatehouse/{path}")).await.status,
            404,
            "{path}"
        );
    }
}

#[tokio::test]
async fn at_the_host_of_an_application_nothing_else_answers() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    let browser = Visitor::of(&app);
    for path in
        ["/", "/login", "/account", "/api/v1/session", "/static/app.css", "/healthz", "/metrics", "/admin"]
    {
        for headers in [
            [("host", "wiki.example")],
            [("x-forwarded-host", "wiki.example")],
            [("x-forwarded-host", "x, wiki.example")],
        ] {
            assert_eq!(browser.send("GET", path, "", &headers, None).await.status, 404, "{path} {headers:?}");
        }
        assert_ne!(
            browser.send("GET", path, "", &[("x-forwarded-host", "id.example")], None).await.status,
            404,
            "{path}"
        );
    }
    // Nor are its pages at ours.
    for path in ["start", "callback", "logout", "forbidden", "static/app.css"] {
        assert_eq!(
            browser.send("GET", &format!("/.gatehouse/{path}"), "", &[], None).await.status,
            404,
            "{path}"
        );
    }
}

on_both_stores!(
    a_session_ends_at_every_application_within_a_second_on_every_instance,
    a_change_of_groups_is_noticed,
    a_change_of_a_profile_is_noticed,
    however_often_one_account_signs_in_and_out_there_is_one_change_to_read,
);

async fn signed_in(app: &TestApp, login: &str) -> Visitor {
    let mut browser = Visitor::of(app);
    for url in ["https://wiki.example/", "https://files.test:8443/"] {
        let start = browser.ask("GET", url).await.header("location").to_owned();
        let (to, _) = browser.follow(&start).await;
        if to.contains("/login") {
            browser.sign_in(&to, login).await;
        }
        assert_eq!(browser.ask("GET", url).await.status, 200, "{url}");
    }
    browser
}

async fn until_it_is(open: bool, browser: &Visitor, url: &str) {
    let so = async || (browser.ask("GET", url).await.status == 200) == open;
    until(&format!("{url} is open: {open}"), so).await;
}

async fn a_session_ends_at_every_application_within_a_second_on_every_instance(store: Store) {
    let app = behind(TestApp::on(store)).start().await;
    let other = app.beside(behind(TestApp::on(store)).set("server.public_url", &app.url)).await;
    let ada = account(&app, "ada", &["staff"]).await;
    for end in ["signed out", "all sessions ended", "disabled"] {
        let browser = signed_in(&app, "ada").await;
        let elsewhere = browser.at(&other);
        for url in ["https://wiki.example/", "https://files.test:8443/"] {
            assert_eq!(elsewhere.ask("GET", url).await.status, 200);
        }
        let (sessions, accounts) = (&other.services.sessions, &other.services.accounts);
        match end {
            "signed out" => {
                let session = sessions.list(ada).await.unwrap()[0].id;
                assert!(sessions.revoke(ada, session).await.unwrap());
            }
            "disabled" => drop(accounts.change(ada, AccountAct::Disable, false).await.unwrap()),
            _ => drop(accounts.change(ada, AccountAct::EndSessions, false).await.unwrap()),
        }
        for url in ["https://wiki.example/", "https://files.test:8443/"] {
            until_it_is(false, &browser, url).await;
            until_it_is(false, &elsewhere, url).await;
        }
    }
}

async fn a_change_of_groups_is_noticed(store: Store) {
    let app = behind(TestApp::on(store)).start().await;
    let ada = account(&app, "ada", &["staff"]).await;
    let browser = signed_in(&app, "ada").await;
    assert_eq!(browser.ask("GET", "https://wiki.example/admin/").await.status, 403);
    // Groups are noticed, too.
    let groups = Groups::parse(["staff", "on-call"]).unwrap();
    app.services.accounts.change_groups(ada, false, |_| groups.clone()).await.unwrap();
    until_it_is(true, &browser, "https://wiki.example/admin/").await;
}

/// A name that is not ASCII is told in UTF-8.
async fn a_change_of_a_profile_is_noticed(store: Store) {
    let app = behind(TestApp::on(store)).start().await;
    let other = app.beside(behind(TestApp::on(store)).set("server.public_url", &app.url)).await;
    let ada = account(&app, "ada", &["staff"]).await;
    let here = signed_in(&app, "ada").await;
    let elsewhere = here.at(&other);
    let told = async |browser: &Visitor| {
        let answer = browser.ask("GET", "https://wiki.example/").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        ["remote-name", "remote-email"]
            .map(|name| String::from_utf8(answer.headers[name].as_bytes().to_vec()).unwrap())
    };
    for (email, name, expected) in [
        (Some("Ada@example.org"), Some("王 Ada"), ["王 Ada", "Ada@example.org"]),
        (None, Some("Ada"), ["Ada", ""]),
        (Some("ada@example.org"), None, ["ada", "ada@example.org"]),
        (None, None, ["ada", ""]),
    ] {
        let profile = Profile::parse(email, false, name).unwrap();
        app.services.profiles.set(ada, &profile, false).await.unwrap();
        for browser in [&here, &elsewhere] {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
            while told(browser).await != expected {
                assert!(tokio::time::Instant::now() < deadline, "{:?}", told(browser).await);
                // As in `until`.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn however_often_one_account_signs_in_and_out_there_is_one_change_to_read(store: Store) {
    let app = behind(TestApp::on(store)).start().await;
    let ada = account(&app, "ada", &["staff"]).await;
    account(&app, "bob", &["staff"]).await;
    assert_eq!(app.client().login("bob", PASSWORD).await.status, 200);
    let bobs = app.client();
    assert_eq!(bobs.login("bob", PASSWORD).await.status, 200);
    assert_eq!(bobs.call("/logout", serde_json::json!({})).await.status, 204);
    let browser = signed_in(&app, "ada").await;
    let mut last = Vec::new();
    for round in 0..30 {
        let client = app.client();
        assert_eq!(client.login("ada", PASSWORD).await.status, 200);
        // A second sign-in in the same browser ends the session of the first.
        assert_eq!(client.login("ada", PASSWORD).await.status, 200);
        assert_eq!(client.call("/logout", serde_json::json!({})).await.status, 204);
        let changes = changes_of(&app).await;
        assert_eq!(
            changes.iter().filter(|(_, account)| *account == ada.to_string()).count(),
            1,
            "round {round}"
        );
        assert_eq!(changes.len(), 2, "the other account keeps its own: {changes:?}");
        assert_ne!(last, changes, "each change is told");
        last = changes;
    }
    until_it_is(true, &browser, "https://wiki.example/").await;
    // One who comes with the session of another account ends that one: a change of the other.
    let client = app.client();
    assert_eq!(client.login("ada", PASSWORD).await.status, 200);
    assert_eq!(client.login("bob", PASSWORD).await.status, 200);
    let changes = changes_of(&app).await;
    assert_eq!(changes.len(), 2, "{changes:?}");
    let others =
        |changes: &[(String, String)]| changes.iter().find(|(_, who)| *who == ada.to_string()).cloned();
    assert_ne!(others(&changes), others(&last));
}

async fn changes_of(app: &TestApp) -> Vec<(String, String)> {
    const SQL: &str = "SELECT id, account FROM session_changes ORDER BY account";
    match &Db::connect(&app.database).await.unwrap() {
        Db::Sqlite(pools) => sqlx::query_as(SQL).fetch_all(&pools.all).await.unwrap(),
        Db::Postgres(pools) => sqlx::query_as(SQL).fetch_all(&pools.all).await.unwrap(),
    }
}
