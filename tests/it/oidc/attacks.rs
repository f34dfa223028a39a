//! What others fell to: codes and tokens of somebody else, twice, late, or weakened.

use std::time::Duration;

use futures_util::future::join_all;
use gatehouse::accounts::{AccountAct, Groups, Username};
use sqlx::{Connection, query_scalar};

use super::*;
use crate::gate::inside;
use crate::support::app::on_both_stores;

on_both_stores! {
    a_code_is_for_one_client_one_address_and_one_verifier,
    a_code_that_comes_twice_ends_what_it_began,
    of_sixty_four_exchanges_of_a_code_one_gets_tokens,
    who_may_not_use_the_client_any_more_gets_nothing,
    a_token_is_only_what_it_was_given_as_and_to_whom,
    what_ends_at_one_instance_has_ended_at_the_other,
    refreshes_do_not_keep_anybody_from_signing_out,
    many_codes_push_out_no_grant_in_use,
}

async fn a_code_is_for_one_client_one_address_and_one_verifier(store: Store) {
    let app = start(on(store)).await;
    let browser = browser(&app, "ada").await;
    let code = code(&browser, &[]).await;
    let fields = |redirect_uri, verifier| {
        let all = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier),
        ];
        all.into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>()
    };
    let wrong = "another-verifier-of-at-least-forty-three-characters-12";
    for (client, redirect_uri, verifier) in [
        (Some(("files-client", SECRET)), WIKI, VERIFIER),
        (BY_WIKI, "https://wiki.example/other", VERIFIER),
        (BY_WIKI, "https://wiki.example/callback/", VERIFIER),
        (BY_WIKI, WIKI, wrong),
        (BY_WIKI, WIKI, ""),
    ] {
        let refused = call(&app, "/oauth/token", client, &fields(redirect_uri, verifier)).await;
        assert_eq!(
            (refused.status, &refused.body["error"]),
            (400, &"invalid_grant".into()),
            "{redirect_uri}"
        );
    }
    for client in [Some(("wiki", "not the secret")), Some(("nobody", SECRET)), None] {
        let refused = call(&app, "/oauth/token", client, &fields(WIKI, VERIFIER)).await;
        assert_eq!((refused.status, &refused.body["error"]), (401, &"invalid_client".into()));
    }
    // Who got nothing took nothing.
    assert_eq!(call(&app, "/oauth/token", BY_WIKI, &fields(WIKI, VERIFIER)).await.status, 200);
    // Late.
    let late = super::code(&browser, &[]).await;
    app.advance(Duration::from_secs(61));
    assert_eq!(exchange(&app, &late).await.status, 400);
    // A verifier for a request without a challenge (CVE-2024-22258), at a client that need not use one.
    let weak = [
        ("client_id", "files-client"),
        ("redirect_uri", "https://files.example/callback?from=us"),
        ("code_challenge", ""),
        ("code_challenge_method", ""),
    ];
    let answer = browser.get(&request(&weak)).await;
    assert!(answer.header("location").starts_with("https://files.example/callback?from=us&code="));
    let code = sent(&answer)("code").unwrap();
    let mut all = vec![
        ("grant_type", "authorization_code"),
        ("code", &*code),
        ("redirect_uri", "https://files.example/callback?from=us"),
        ("code_verifier", VERIFIER),
    ];
    let client = Some(("files-client", SECRET));
    assert_eq!(call(&app, "/oauth/token", client, &all).await.status, 400);
    all.pop();
    assert_eq!(call(&app, "/oauth/token", client, &all).await.status, 200);
}

async fn a_code_that_comes_twice_ends_what_it_began(store: Store) {
    let app = start(on(store)).await;
    let browser = browser(&app, "ada").await;
    let code = code(&browser, &[]).await;
    let (access, token) = tokens(&exchange(&app, &code).await);
    // By somebody who could not have used it, nothing ends.
    let wrong = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", WIKI),
        ("code_verifier", "x"),
    ];
    assert_eq!(call(&app, "/oauth/token", BY_WIKI, &wrong).await.status, 400);
    assert_eq!(userinfo(&app.url, &access).await.status, 200);
    assert_eq!(exchange(&app, &code).await.status, 400);
    assert_eq!(userinfo(&app.url, &access).await.status, 401);
    assert_eq!(refresh(&app, &token).await.status, 400);
}

async fn of_sixty_four_exchanges_of_a_code_one_gets_tokens(store: Store) {
    let app = start(on(store)).await;
    let browser = browser(&app, "ada").await;
    let code = code(&browser, &[]).await;
    let answers = join_all((0..64).map(|_| exchange(&app, &code))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
}

async fn who_may_not_use_the_client_any_more_gets_nothing(store: Store) {
    let app = start(on(store)).await;
    let id = async |login: &str| {
        app.services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap().id
    };
    let is_refused = async |client, (access, token): (&str, &str)| {
        assert_eq!(userinfo(&app.url, access).await.status, 401);
        let asked = call(&app, "/oauth/introspect", client, &[("token", access)]).await;
        assert_eq!(asked.body, serde_json::json!({ "active": false }));
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
        let refused = call(&app, "/oauth/token", client, &fields).await;
        assert_eq!((refused.status, &refused.body["error"]), (400, &"invalid_grant".into()));
    };
    for (login, act) in [("boris", AccountAct::Disable), ("dora", AccountAct::Delete)] {
        let (_, access, token) = granted(&app, login).await;
        app.services.accounts.change(id(login).await, act, false).await.unwrap();
        is_refused(BY_WIKI, (&access, &token)).await;
    }
    // A name is not given again, so nobody gets the sub of another one.
    assert_ne!(app.client().register("dora", PASSWORD).await.status, 201);
    // By the list of the application: before, and later.
    let browser = browser(&app, "carol").await;
    let to = "https://staff.example/callback";
    let staff = request(&[("client_id", "staff"), ("redirect_uri", to)]);
    assert_eq!(sent(&browser.get(&staff).await)("error").as_deref(), Some("access_denied"));
    let carol = id("carol").await;
    let belongs_to = async |groups: &[&str]| {
        let groups = Groups::parse(groups.iter().copied()).unwrap();
        app.services.accounts.change_groups(carol, false, |_| groups.clone()).await.unwrap();
    };
    belongs_to(&["staff"]).await;
    let code = sent(&browser.get(&staff).await)("code").expect("a code");
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", &*code),
        ("redirect_uri", to),
        ("code_verifier", VERIFIER),
    ];
    let by_staff = Some(("staff", SECRET));
    let (access, token) = tokens(&call(&app, "/oauth/token", by_staff, &fields).await);
    assert_eq!(userinfo(&app.url, &access).await.status, 200);
    belongs_to(&[]).await;
    is_refused(by_staff, (&access, &token)).await;
    // Nothing was used up meanwhile.
    belongs_to(&["staff"]).await;
    let fields = [("grant_type", "refresh_token"), ("refresh_token", &*token)];
    assert_eq!(call(&app, "/oauth/token", by_staff, &fields).await.status, 200);
}

/// CVE-2024-47077: a token for one client opened another.
async fn a_token_is_only_what_it_was_given_as_and_to_whom(store: Store) {
    let app = start(on(store)).await;
    let browser = browser(&app, "ada").await;
    let answer = exchange(&app, &code(&browser, &[]).await).await;
    let (access, token) = tokens(&answer);
    let id_token = answer.body["id_token"].as_str().unwrap();
    let unused = code(&browser, &[]).await;
    for other in [&token, id_token, &unused, "", "x"] {
        assert_eq!(userinfo(&app.url, other).await.status, 401);
        let asked = call(&app, "/oauth/introspect", BY_WIKI, &[("token", other)]).await;
        assert_ne!(asked.body["active"], true, "{other}");
    }
    for other in [&access, id_token, &unused] {
        assert_eq!(refresh(&app, other).await.body["error"], "invalid_grant");
    }
    for other in [&access, &token, id_token] {
        assert_eq!(exchange(&app, other).await.body["error"], "invalid_grant");
        let cookie = app.client_that_says(&[("cookie", &format!("gh_session={other}"))]);
        assert_eq!(cookie.get("/account").await.status, 303);
        let bearer = app.client_that_says(&[("authorization", &format!("Bearer {other}"))]);
        assert_eq!(bearer.get("/api/v1/admin/accounts").await.status, 401);
    }
    let other = Some(("files-client", SECRET));
    let fields = [("grant_type", "refresh_token"), ("refresh_token", &*token)];
    assert_eq!(call(&app, "/oauth/token", other, &fields).await.body["error"], "invalid_grant");
    for mine in [&access, &token] {
        let asked = call(&app, "/oauth/introspect", other, &[("token", mine)]).await;
        assert_eq!(asked.body, serde_json::json!({ "active": false }));
        assert_eq!(call(&app, "/oauth/revoke", other, &[("token", mine)]).await.status, 200);
    }
    // A hint to sign out by is the client's that it names.
    let path = format!("/oauth/logout?client_id=files-client&id_token_hint={id_token}");
    let asked = browser.get(&path).await;
    assert!(asked.status == 200 && asked.text.contains("Sign out"), "{}", asked.text);
    // And all of it still holds.
    assert_eq!(userinfo(&app.url, &access).await.status, 200);
    assert_eq!(refresh(&app, &token).await.status, 200);
    assert_eq!(exchange(&app, &unused).await.status, 200);
}

async fn what_ends_at_one_instance_has_ended_at_the_other(store: Store) {
    let hosts = "\n[[apps]]\nname = 'notes'\nhosts = ['notes.example']\nwho = ['everyone']\n";
    let both = || TestApp::on(store).file(&(clients() + hosts)).behind_a_proxy();
    let app = start(both()).await;
    let beside = app.beside(both().set("server.public_url", &app.url)).await;
    app.register("ada").await;
    let mut visitor = inside(&app, "https://notes.example/", "ada").await;
    let answer = visitor.open(&format!("{}{}", app.url, request(&[]))).await;
    let (access, token) = tokens(&exchange(&app, &sent(&answer)("code").unwrap()).await);
    let answer = visitor.open(&format!("{}{}", app.url, request(&[]))).await;
    let code = sent(&answer)("code").unwrap();
    let elsewhere = visitor.at(&beside);
    assert_eq!(userinfo(&beside.url, &access).await.status, 200);
    assert_eq!(elsewhere.ask("GET", "https://notes.example/").await.status, 200);

    let account = format!("{}/account", app.url);
    let page = visitor.open(&account).await;
    let (to, _) = visitor.fill_in(&account, &page, "/logout", &[]).await;
    assert!(to.ends_with("/login"), "{to}");
    assert_eq!(userinfo(&beside.url, &access).await.status, 401);
    let by_token = [("grant_type", "refresh_token"), ("refresh_token", &*token)];
    assert_eq!(call_at(&beside.url, "/oauth/token", BY_WIKI, &by_token).await.status, 400);
    let by_code = [
        ("grant_type", "authorization_code"),
        ("code", &*code),
        ("redirect_uri", WIKI),
        ("code_verifier", VERIFIER),
    ];
    assert_eq!(call_at(&beside.url, "/oauth/token", BY_WIKI, &by_code).await.status, 400);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while elsewhere.ask("GET", "https://notes.example/").await.status == 200 {
        assert!(tokio::time::Instant::now() < deadline, "the host stays open");
        tokio::time::sleep(Duration::from_millis(20)).await; // the end is noticed by the machine's time
    }
}

/// Both lock what belongs together, in one order.
async fn refreshes_do_not_keep_anybody_from_signing_out(store: Store) {
    let app = start(on(store)).await;
    for round in 0..10 {
        let (browser, _, token) = granted(&app, &format!("ada-{round}")).await;
        let csrf = browser.get("/account").await.csrf_token();
        let refreshes = join_all((0..16).map(|_| refresh(&app, &token)));
        let fields = [("csrf_token", &*csrf)];
        let (out, answers) = tokio::join!(browser.post("/logout", &fields), refreshes);
        assert_eq!(out.status, 303, "{}", out.text);
        assert!(answers.iter().all(|answer| [200, 400].contains(&answer.status)));
        assert_eq!(refresh(&app, &token).await.status, 400);
    }
}

async fn many_codes_push_out_no_grant_in_use(store: Store) {
    let app = start(on(store)).await;
    let (browser, access, token) = granted(&app, "ada").await;
    for _ in 0..25 {
        code(&browser, &[]).await;
        app.advance(Duration::from_secs(1));
    }
    assert_eq!(userinfo(&app.url, &access).await.status, 200);
    assert_eq!(refresh(&app, &token).await.status, 200);
    let last = code(&browser, &[]).await;
    assert_eq!(exchange(&app, &last).await.status, 200);
}

/// What others let through: pocket-id (CVE-2026-28512, and its answers to prompt=none), Keycloak (CVE-2024-8883,
/// CVE-2026-3872, CVE-2026-7504), authentik (CVE-2024-52289), Authlib (CVE-2026-41479).
const NOT_OF_WIKI: &[&str] = &[
    "https://wiki.example@evil.example/callback",
    "https://wiki.example:443@evil.example/callback",
    "https://wiki.example%40evil.example/callback",
    "https://wiki.example\\@evil.example/callback",
    "https://a@b@wiki.example/callback",
    "https://evil.example/@wiki.example/callback",
    "https://evil.example/https://wiki.example/callback",
    "https://evil.example/?https://wiki.example/callback",
    "https://evil.example/#https://wiki.example/callback",
    "https://wikiXexample/callback",
    "https://wiki.example.evil.example/callback",
    "https://evilwiki.example/callback",
    "https://wiki.example./callback",
    "https://WIKI.example/callback",
    "HTTPS://wiki.example/callback",
    "https://wiki.example:443/callback",
    "https://wiki.example:8443/callback",
    "http://wiki.example/callback",
    "https:/wiki.example/callback",
    "https:wiki.example/callback",
    "https:\\\\wiki.example\\callback",
    "//wiki.example/callback",
    "/callback",
    "https://wiki.example",
    "https://wiki.example/",
    "https://wiki.example/*",
    "https://wiki.example/Callback",
    "https://wiki.example/callbac%6b",
    "https://wiki.example/callback/",
    "https://wiki.example//callback",
    "https://wiki.example/./callback",
    "https://wiki.example/callback/../evil",
    "https://wiki.example/callback/..;/evil",
    "https://wiki.example/callback/%2e%2e/evil",
    "https://wiki.example/callback%2f..%2fevil",
    "https://wiki.example/callback;x",
    "https://wiki.example/callback?",
    "https://wiki.example/callback?x=1",
    "https://wiki.example/callback#",
    "https://wiki.example/callback#x",
    "https://wiki.example/callback%00",
    "https://wiki.example/callback\0",
    "https://wiki.example/callback\r\nlocation: https://evil.example/",
    "https://wiki.example/callback ",
    " https://wiki.example/callback",
    "https://wiki.example/callback,https://evil.example/",
    "https://wiki.example/callback https://evil.example/",
    "javascript:alert(1)//https://wiki.example/callback",
    "data:text/html,https://wiki.example/callback",
    "https://files.example/callback?from=us",
    "*",
];

/// `http://127.0.0.1/callback` may have any port, and no more.
const NOT_OF_CLI: &[&str] = &[
    "http://localhost/callback",
    "http://localhost:password@evil.example/callback",
    "http://127.0.0.1@evil.example/callback",
    "http://127.0.0.1:5123@evil.example/callback",
    "http://127.0.0.1:5123:80@evil.example/callback",
    "http://127.0.0.1.evil.example/callback",
    "http://127.0.0.1:5123.evil.example/callback",
    "http://127.0.0.1:/callback",
    "http://127.0.0.1:0/callback",
    "http://127.0.0.1:+80/callback",
    "http://127.0.0.1:65536/callback",
    "http://127.0.0.1:5123",
    "http://127.0.0.1:5123/callback/",
    "http://127.0.0.1:5123/callback?x=1",
    "http://127.0.0.1:5123/callback#x",
    "http://127.0.0.1:5123\\.evil.example/callback",
    "http://127.1/callback",
    "http://127.0.0.2/callback",
    "http://2130706433/callback",
    "http://0x7f.0.0.1/callback",
    "http://[::1]/callback",
    "http://[::ffff:127.0.0.1]/callback",
    "https://127.0.0.1/callback",
    "com.example.cli://callback",
    "com.example.cli:/callback/evil",
    "com.example.cli.evil:/callback",
    "COM.EXAMPLE.CLI:/callback",
];

#[tokio::test]
async fn nobody_is_led_to_an_address_that_is_not_the_clients() {
    let app = start(on(Store::Memory)).await;
    let browser = browser(&app, "ada").await;
    for (client, uris) in [("wiki", NOT_OF_WIKI), ("cli", NOT_OF_CLI)] {
        for uri in uris {
            // Also where an error would be told before anybody looks at the address.
            for wrong in [("x", "y"), ("prompt", "none"), ("response_type", "token"), ("request", "eyJ")] {
                let path = request(&[("client_id", client), ("redirect_uri", uri), wrong]);
                let answer = browser.get(&path).await;
                assert_eq!((answer.status, answer.header("location")), (400, ""), "{uri:?} {wrong:?}");
                let leads =
                    ["href=\"", "url="].iter().any(|lead| answer.text.contains(&format!("{lead}{uri}")));
                assert!(!leads || uri.starts_with('/'), "{}", answer.text);
            }
        }
    }
    for uri in ["http://127.0.0.1:5123/callback", "com.example.cli:/callback"] {
        let asked = browser.get(&request(&[("client_id", "cli"), ("redirect_uri", uri)])).await;
        assert!(asked.status == 200 && asked.text.contains("It is a program on a device"), "{uri}");
    }
}

/// CVE-2019-14857 and its like: what a browser takes for another host.
#[tokio::test]
async fn nobody_is_led_from_signing_out_to_an_address_that_is_not_the_clients() {
    let app = start(on(Store::Memory)).await;
    let browser = browser(&app, "ada").await;
    let answer = exchange(&app, &code(&browser, &[]).await).await;
    let hint = answer.body["id_token"].as_str().unwrap();
    let bye = "https://wiki.example/bye";
    let leads = |fields: &[(&str, &str)]| {
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let stranger = app.client();
        async move { stranger.get(&format!("/oauth/logout?{query}")).await.header("location").to_owned() }
    };
    for uri in [
        "https://evil.example/",
        "///evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example/",
        "/\t/evil.example/",
        "https:evil.example",
        "https://wiki.example/bye@evil.example",
        "https://wiki.example@evil.example/bye",
        "https://wiki.example/bye/",
        "https://wiki.example/bye?x",
        "https://wiki.example/bye/../x",
        "https://wiki.example/callback",
        "javascript:alert(1)",
    ] {
        let to = leads(&[("id_token_hint", hint), ("post_logout_redirect_uri", uri)]).await;
        assert_eq!(to, "/login", "{uri}");
    }
    // A hint that does not hold, or is another client's, registers nothing.
    let forged = format!("{}.{}", hint.rsplit_once('.').unwrap().0, URL_SAFE_NO_PAD.encode([7; 256]));
    for fields in [
        &[("post_logout_redirect_uri", bye)][..],
        &[("post_logout_redirect_uri", bye), ("client_id", "wiki")],
        &[("post_logout_redirect_uri", bye), ("id_token_hint", &*forged)],
        &[("post_logout_redirect_uri", bye), ("id_token_hint", hint), ("client_id", "files-client")],
    ] {
        assert_eq!(leads(fields).await, "/login", "{fields:?}");
    }
    assert_eq!(leads(&[("id_token_hint", hint), ("post_logout_redirect_uri", bye)]).await, bye);
}

/// CVE-2020-10770: what a stranger names is never fetched, and what an owner names not inside this network.
#[tokio::test]
async fn no_address_of_this_network_is_asked_for_a_stranger() {
    let inside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let port = inside.local_addr().unwrap().port();
    let told =
        format!("backchannel_logout_uri = 'https://localhost:{port}/logout'\npost_logout_redirect_uris");
    let file = clients().replace("post_logout_redirect_uris", &told);
    let app = start(TestApp::on(Store::Memory).file(&file)).await;
    let (browser, ..) = granted(&app, "ada").await;
    let named = format!("http://127.0.0.1:{port}/");
    for parameter in ["request_uri", "sector_identifier_uri", "jwks_uri", "logo_uri", "client_metadata_uri"] {
        browser.get(&request(&[(parameter, &named)])).await;
    }
    for path in ["/oauth/register", "/oauth/par", "/connect/register"] {
        assert_eq!(app.client().post(path, &[("jwks_uri", &named)]).await.status, 404, "{path}");
    }
    assert_eq!(browser.submit("/account", "/logout", &[]).await.status, 303);
    let mut database = sqlx::SqliteConnection::connect(&app.database).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let attempts: Option<i64> =
            query_scalar("SELECT attempts FROM oidc_logouts").fetch_optional(&mut database).await.unwrap();
        // The first has ended when the second is due.
        if attempts.expect("it stays, because nobody was told") >= 2 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{attempts:?}");
        app.advance(Duration::from_secs(6));
        tokio::time::sleep(Duration::from_millis(50)).await; // a task with a timer of its own posts
    }
    let asked = inside.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(asked, Err(std::io::ErrorKind::WouldBlock));
}
