//! Answers that the browser posts to the client (OAuth 2.0 Form Post Response Mode 1.0).

use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::*;
use crate::support::app::Store;
use crate::support::browser::Browser;

const BY_FORM: (&str, &str) = ("response_mode", "form_post");

/// What the page has the browser post to `wiki`.
fn posted(answer: &Answer) -> impl Fn(&str) -> Option<String> + use<> {
    assert_eq!((answer.status, answer.header("cache-control")), (200, "no-store"), "{}", answer.text);
    assert!(answer.text.contains(&format!("<form method=\"post\" action=\"{WIKI}\"")), "{}", answer.text);
    // The client leads on to whatever host it likes.
    assert!(answer.header("content-security-policy").contains("form-action 'self' https: http:;"));
    let page = answer.text.clone();
    move |name: &str| {
        let (_, value) = page.split_once(&format!("<input type=\"hidden\" name=\"{name}\" value=\""))?;
        // As askama escapes it.
        Some(value.split_once('"')?.0.replace("&#38;", "&"))
    }
}

#[tokio::test]
async fn an_answer_is_a_form_that_leads_to_the_client() {
    let app = start(on(Store::Memory)).await;
    let browser = browser(&app, "ada").await;
    let sent = posted(&browser.get(&request(&[BY_FORM])).await);
    assert_eq!(sent("state").as_deref(), Some("its state & more"));
    assert_eq!(sent("iss"), Some(app.url.clone()));
    assert_eq!(exchange(&app, &sent("code").unwrap()).await.status, 200);
    assert_eq!(
        app.client().get("/.well-known/openid-configuration").await.body["response_modes_supported"][1],
        "form_post"
    );

    for (changes, error) in [
        (&[BY_FORM, ("response_type", "token")][..], "unsupported_response_type"),
        (&[BY_FORM, ("scope", "profile")], "invalid_scope"),
    ] {
        let sent = posted(&browser.get(&request(changes)).await);
        assert_eq!((sent("error").as_deref(), sent("code")), (Some(error), None));
        assert_eq!(sent("state").as_deref(), Some("its state & more"));
    }
    let silent = posted(&app.client().get(&request(&[BY_FORM, ("prompt", "none")])).await);
    assert_eq!(silent("error").as_deref(), Some("login_required"));

    let asked = request(&[BY_FORM, ("prompt", "consent")]);
    let (_, query) = asked.split_once('?').unwrap();
    let account = browser.get("/api/v1/session").await.body["user"]["id"].as_str().unwrap().to_owned();
    for (agree, told) in [("", "error"), ("yes", "code")] {
        let fields = [("request", query), ("account", &*account), ("agree", agree)];
        let answer = browser.submit(&asked, "/oauth/consent", &fields).await;
        assert!(posted(&answer)(told).is_some(), "{}", answer.text);
    }

    // What a scheme of its own opens is handed no form.
    let own = [("client_id", "cli"), ("redirect_uri", "com.example.cli:/callback"), BY_FORM];
    assert_eq!(super::sent(&browser.get(&request(&own)).await)("error").as_deref(), Some("invalid_request"));
}

#[tokio::test]
async fn a_browser_posts_it_by_itself_and_without_a_script_by_a_button() {
    let app = start(on(Store::Memory)).await;
    let client = MockServer::start().await;
    let takes = Mock::given(method("POST")).and(path("/callback"));
    takes.respond_with(ResponseTemplate::new(200).set_body_string("Welcome")).mount(&client).await;
    let at = format!("{}/callback", client.uri());
    let asked = request(&[("client_id", "cli"), ("redirect_uri", &at), BY_FORM]);
    let browser = Browser::start(&app.url).await;
    browser.open("/register").await;
    browser.fill(&[("login", "ada"), ("password", PASSWORD)]).await;
    browser.submit().await;
    let arrived = format!("return location.href === '{at}' && document.body.innerText === 'Welcome'");
    browser.open(&asked).await;
    browser.find("button[name=agree]").await.click().await.unwrap();
    browser.until("the client", &arrived).await;

    browser.without_script().await;
    browser.open(&asked).await;
    browser.follow("button[name=agree]").await;
    assert_eq!(browser.path().await, "/oauth/consent");
    browser.submit().await;
    browser.until("the client", &arrived).await;
    for request in client.received_requests().await.unwrap() {
        let fields: Vec<_> =
            url::form_urlencoded::parse(&request.body).map(|(name, _)| name.into_owned()).collect();
        assert_eq!(fields, ["code", "state", "iss"]);
    }
}
