//! The provider of OpenID Connect: what clients get, when, and no longer.

mod attacks;
mod basic;
mod beside;
mod check;
mod clients;
mod form_post;
mod keys;
pub mod limits;
mod mail;
mod pages;
mod refresh;
mod refused;
mod requests;
mod signing_out;
mod stored_secrets;
mod told;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::Url;

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, http};
use crate::support::setup::Setup;

/// Of both confidential clients.
pub const SECRET: &str = "a secret of thirty-two characters";
/// Of PKCE.
pub const VERIFIER: &str = "a-verifier-of-at-least-forty-three-characters-1234567";
pub const WIKI: &str = "https://wiki.example/callback";
pub const SPA: &str = "https://spa.example/";

/// A confidential client, another one, and a public one.
pub fn clients() -> String {
    format!(
        "
[[apps]]
name = 'wiki'
who = ['everyone']
[apps.oidc]
secret = 'file:{secret}'
redirect_uris = ['{WIKI}', 'https://wiki.example/other']
post_logout_redirect_uris = ['https://wiki.example/bye']

[[apps]]
name = 'files'
who = ['everyone']
[apps.oidc]
client_id = 'files-client'
secret = 'file:{secret}'
redirect_uris = ['https://files.example/callback?from=us']
pkce = 'optional'

[[apps]]
name = 'spa'
who = ['everyone']
[apps.oidc]
redirect_uris = ['{SPA}']
consent = 'once'

[[apps]]
name = 'staff'
who = ['group:staff']
[apps.oidc]
secret = 'file:{secret}'
redirect_uris = ['https://staff.example/callback']

[[apps]]
name = 'cli'
who = ['everyone']
[apps.oidc]
redirect_uris = ['http://127.0.0.1/callback', 'com.example.cli:/callback']
",
        secret = secret_file(),
    )
}

/// One for all tests, which nobody changes.
pub fn secret_file() -> String {
    static FILE: std::sync::OnceLock<tempfile::TempPath> = std::sync::OnceLock::new();
    let file = FILE.get_or_init(|| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), SECRET).unwrap();
        file.into_temp_path()
    });
    file.display().to_string()
}

pub fn on(store: Store) -> Setup {
    TestApp::on(store).file(&clients())
}

/// With a key that signs.
pub async fn start(setup: Setup) -> TestApp {
    let app = setup.start().await;
    let client = app.client();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    while client.get("/oauth/keys").await.status != 200 {
        assert!(tokio::time::Instant::now() < deadline, "no key was made");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await; // a thread makes the key, which our clock does not move
    }
    app
}

pub fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER))
}

/// The path of an authorization request of the client `wiki`, with other parameters or without some.
pub fn request(changes: &[(&str, &str)]) -> String {
    let challenge = challenge();
    let mut all = vec![
        ("client_id", "wiki"),
        ("redirect_uri", WIKI),
        ("response_type", "code"),
        ("scope", "openid profile email groups"),
        ("state", "its state & more"),
        ("nonce", "its nonce"),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ];
    all.retain(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    all.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(all).finish();
    format!("/oauth/authorize?{query}")
}

/// What the client is sent, by name.
pub fn sent(answer: &Answer) -> impl Fn(&str) -> Option<String> + use<> {
    assert_eq!(answer.status, 303, "{}", answer.text);
    let url =
        Url::parse(answer.header("location")).unwrap_or_else(|_| panic!("{}", answer.header("location")));
    move |name: &str| url.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}

/// A browser in which `login` is signed in.
pub async fn browser(app: &TestApp, login: &str) -> Client {
    let browser = app.client();
    let answer = browser.register(login, PASSWORD).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    browser
}

/// A code for `wiki`.
pub async fn code(browser: &Client, changes: &[(&str, &str)]) -> String {
    let answer = browser.get(&request(changes)).await;
    sent(&answer)("code").unwrap_or_else(|| panic!("no code: {}", answer.header("location")))
}

/// Calls as a server of a client does: with no cookies.
pub async fn call(
    app: &TestApp,
    path: &str,
    secret: Option<(&str, &str)>,
    fields: &[(&str, &str)],
) -> Answer {
    call_at(&app.url, path, secret, fields).await
}

pub async fn call_at(url: &str, path: &str, secret: Option<(&str, &str)>, fields: &[(&str, &str)]) -> Answer {
    let mut request = http().build().unwrap().post(format!("{url}{path}")).form(fields);
    if let Some((id, secret)) = secret {
        request = request.basic_auth(id, Some(secret));
    }
    Answer::read(request.send().await.unwrap()).await
}

pub const BY_WIKI: Option<(&str, &str)> = Some(("wiki", SECRET));

pub async fn exchange(app: &TestApp, code: &str) -> Answer {
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", WIKI),
        ("code_verifier", VERIFIER),
    ];
    call(app, "/oauth/token", BY_WIKI, &fields).await
}

pub async fn refresh(app: &TestApp, token: &str) -> Answer {
    let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
    call(app, "/oauth/token", BY_WIKI, &fields).await
}

pub async fn userinfo(url: &str, access: &str) -> Answer {
    let request = http().build().unwrap().get(format!("{url}/oauth/userinfo")).bearer_auth(access);
    Answer::read(request.send().await.unwrap()).await
}

/// The tokens of an answer: access and refresh.
pub fn tokens(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let text = |name: &str| answer.body[name].as_str().unwrap_or_default().to_owned();
    (text("access_token"), text("refresh_token"))
}

/// Of somebody new, as `wiki` has them.
pub async fn granted(app: &TestApp, login: &str) -> (Client, String, String) {
    let browser = browser(app, login).await;
    let answer = exchange(app, &code(&browser, &[]).await).await;
    let (access, refresh) = tokens(&answer);
    (browser, access, refresh)
}

/// The claims of a token, whose signature is checked elsewhere.
pub fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).expect("three parts");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

#[tokio::test]
async fn a_client_signs_somebody_in_and_is_told_who_it_is() {
    let app = start(on(Store::Memory)).await;
    let visitor = app.client();
    let first = visitor.get(&request(&[])).await;
    let to_login = first.header("location").to_owned();
    assert!(first.status == 303 && to_login.starts_with("/login?next=/oauth/continue%3F"), "{to_login}");
    app.register("ada").await;
    let next = Url::parse(&format!("{}{to_login}", app.url)).unwrap();
    let next = next.query_pairs().find(|(name, _)| name == "next").unwrap().1.into_owned();
    let fields = [("login", "ada"), ("password", PASSWORD), ("next", &*next)];
    let signed_in = visitor.submit(&to_login, "/login", &fields).await;
    assert_eq!(signed_in.header("location"), next);
    let page = visitor.get(&next).await;
    let (_, on) = page.text.split_once("content=\"0; url=").expect("a page that goes on");
    let on = on.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&");
    let answer = visitor.get(&on).await;
    let sent = sent(&answer);
    assert!(answer.header("location").starts_with("https://wiki.example/callback?code="));
    assert_eq!(sent("state").as_deref(), Some("its state & more"));
    assert_eq!(sent("iss").as_deref(), Some(app.url.as_str()));

    let answer = exchange(&app, &sent("code").unwrap()).await;
    let (access, _) = tokens(&answer);
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!((&answer.body["token_type"], &answer.body["expires_in"]), (&"Bearer".into(), &600.into()));
    let told = userinfo(&app.url, &access).await;
    let id = claims(answer.body["id_token"].as_str().unwrap());
    assert_eq!((told.status, &told.body["preferred_username"]), (200, &"ada".into()), "{}", told.text);
    assert_eq!(told.body["groups"], serde_json::json!([]));
    for claim in ["sub", "preferred_username", "groups"] {
        assert_eq!(told.body[claim], id[claim], "{claim}");
    }
    assert_eq!((&id["aud"], &id["nonce"]), (&"wiki".into(), &"its nonce".into()));
    assert_eq!((&id["iss"], &id["acr"]), (&app.url.as_str().into(), &"first".into()));
    assert_eq!(id["amr"], serde_json::json!(["pwd"]));
    let known = app.client().get("/.well-known/openid-configuration").await;
    assert_eq!(known.body["issuer"], app.url.as_str());
    assert_eq!(known.body["jwks_uri"], format!("{}/oauth/keys", app.url));
}

#[tokio::test]
async fn a_client_may_be_told_the_address_that_the_owner_has_confirmed() {
    let clients = clients().replacen("secret = ", "email = 'verified'\nsecret = ", 1);
    let app = start(TestApp::on(Store::Memory).file_more(&clients)).await;
    let (browser, access, _) = granted(&app, "alice").await;
    let told = userinfo(&app.url, &access).await.body;
    assert_eq!((&told["email"], &told["email_verified"]), (&Value::Null, &Value::Null), "{told}");
    crate::mail::flows::confirm_signed_in(&app, &browser, "ada@example.org").await;
    let told = userinfo(&app.url, &access).await.body;
    assert_eq!(
        (&told["email"], &told["email_verified"]),
        (&"ada@example.org".into(), &true.into()),
        "{told}"
    );
}
