//! Cookies of other applications on a parent domain, which browsers send along with ours.

use std::time::Duration;

use reqwest::header::{COOKIE, HeaderValue};

use crate::factors::{by_totp, owner as owner_with_totp, totp};
use crate::gate::{account, behind, inside};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, http};

/// What stands before our cookies in the header of a request, as applications in any encoding set it.
fn neighbours() -> [&'static [u8]; 6] {
    [
        "campaign=Undersøgelse".as_bytes(),
        b"campaign=Unders\xf8gelse",
        b"\xe9=1; \xff",
        b"=; ;;x; =y; a=\"b",
        b"gh_session=\xff; gh_browser=\xff; gh_device=\xff; gh_half=\xff; __Host-gh_app=\xff",
        // White space of Unicode is no white space of a header: a sibling may set a cookie of such a name.
        "\u{2000}gh_session=x; \u{a0}gh_browser=x; \u{3000}gh_device=x; \u{2000}gh_half=x; \u{2000}__Host-gh_app=x"
            .as_bytes(),
    ]
}

/// A client that sends these bytes, then our cookies.
fn beside(app: &TestApp, neighbour: &[u8], ours: &[String]) -> Client {
    let line = [neighbour, b"; ", ours.join("; ").as_bytes()].concat();
    let headers = [(COOKIE, HeaderValue::from_bytes(&line).unwrap())].into_iter().collect();
    let http = http().default_headers(headers).redirect(reqwest::redirect::Policy::none());
    Client { http: http.build().unwrap(), url: app.url.clone() }
}

fn pair(answer: &Answer, name: &str) -> String {
    answer
        .cookie(name)
        .unwrap_or_else(|| panic!("no {name}: {answer:?}"))
        .split(';')
        .next()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn no_cookie_of_another_application_hides_a_session_or_a_form() {
    let app = TestApp::start(Store::Memory).await;
    app.register("alice").await;
    let browser = app.client();
    let page = browser.get("/login").await;
    let signed_in = browser.login("alice", PASSWORD).await;
    let ours = [pair(&page, "gh_browser"), pair(&signed_in, "gh_session")];
    for neighbour in neighbours() {
        let shown = String::from_utf8_lossy(neighbour);
        let client = beside(&app, neighbour, &ours);
        assert_eq!(client.get("/api/v1/session").await.status, 200, "{shown}");
        let account = client.get("/account").await;
        assert_eq!((account.status, account.cookie("gh_browser")), (200, None), "{shown}");
        let fields = [("csrf_token", &*account.csrf_token())];
        assert_eq!(client.post("/account/sessions/revoke-others", &fields).await.status, 303, "{shown}");
    }
}

#[tokio::test]
async fn no_cookie_of_another_application_hides_a_known_device() {
    const RULES: &str = "[limits.login-account]\nrules = [{ max = 1, window = \"1h\", then = \"block\" }]\n";
    let app = TestApp::with(Store::Memory, RULES).await;
    app.register("alice").await;
    let device = pair(&app.client().login("alice", PASSWORD).await, "gh_device");
    assert_eq!(app.client().login("alice", "a wrong password").await.status, 401);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 429);
    for neighbour in neighbours() {
        let client = beside(&app, neighbour, std::slice::from_ref(&device));
        let answer = client.login("alice", PASSWORD).await;
        assert_eq!(answer.status, 200, "{}: {}", String::from_utf8_lossy(neighbour), answer.text);
    }
}

#[tokio::test]
async fn no_cookie_of_another_application_hides_half_a_sign_in() {
    let app = TestApp::start(Store::Memory).await;
    let owner = owner_with_totp(&app, "alice").await;
    for neighbour in neighbours() {
        let half = app.client().login("alice", PASSWORD).await;
        let client = beside(&app, neighbour, &[pair(&half, "gh_half")]);
        app.advance(Duration::from_secs(30));
        let done = by_totp(&client, &totp(&app, &owner.secret)).await;
        assert_eq!(done.status, 200, "{}: {}", String::from_utf8_lossy(neighbour), done.text);
    }
}

#[tokio::test]
async fn no_cookie_of_another_application_leads_round_at_the_gate() {
    let app = behind(TestApp::on(Store::Memory)).start().await;
    account(&app, "ada", &[]).await;
    let ada = inside(&app, "https://wiki.example/a", "ada").await;
    let token = ada.cookie("wiki.example", "__Host-gh_app").unwrap();
    for neighbour in neighbours() {
        let client = beside(&app, neighbour, &[format!("__Host-gh_app={token}")]);
        let request = client.http.get(format!("{}/api/authz/forward-auth", client.url));
        let request = request.header("x-forwarded-method", "GET").header("x-forwarded-proto", "https");
        let request = request.header("x-forwarded-host", "wiki.example").header("x-forwarded-uri", "/a");
        let answer = Answer::read(request.header("accept", "text/html").send().await.unwrap()).await;
        assert_eq!(answer.status, 200, "{}: {}", String::from_utf8_lossy(neighbour), answer.text);
        assert_eq!(answer.header("remote-user"), "ada");
    }
}
