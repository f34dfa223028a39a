//! Signing out, revoking and introspecting.

use super::*;

#[tokio::test]
async fn a_client_signs_its_user_out_and_gets_them_back() {
    let app = start(on(Store::Memory)).await;
    let browser = browser(&app, "ada").await;
    let answer = exchange(&app, &code(&browser, &[]).await).await;
    let hint = answer.body["id_token"].as_str().unwrap().to_owned();
    let logout = |fields: &[(&str, &str)]| {
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        format!("/oauth/logout?{query}")
    };
    // Without a token of this session somebody has to press a button, and goes nowhere else.
    let bare = browser.get(&logout(&[("post_logout_redirect_uri", "https://evil.example/")])).await;
    assert!(bare.status == 200 && bare.text.contains("Sign out"), "{}", bare.text);
    let forged = format!("{}x", hint);
    assert_eq!(browser.get(&logout(&[("id_token_hint", &forged)])).await.status, 200);
    let bye = "https://wiki.example/bye";
    let elsewhere = [("id_token_hint", hint.as_str()), ("post_logout_redirect_uri", "https://evil.example/")];
    let stranger = app.client().get(&logout(&elsewhere)).await;
    assert_eq!(stranger.header("location"), "/login");
    let right = [("id_token_hint", hint.as_str()), ("post_logout_redirect_uri", bye), ("state", "a b")];
    let out = browser.get(&logout(&right)).await;
    assert_eq!((out.status, out.header("location")), (303, "https://wiki.example/bye?state=a+b"));
    assert_eq!(browser.get("/account").await.status, 303);
    assert_eq!(userinfo(&app.url, &tokens(&answer).0).await.status, 401);
}

#[tokio::test]
async fn the_button_signs_out_and_goes_on() {
    let app = start(on(Store::Memory)).await;
    let browser = browser(&app, "ada").await;
    let out = browser.submit("/oauth/logout", "/oauth/logout", &[("request", "")]).await;
    assert_eq!((out.status, out.header("location")), (303, "/login"), "{}", out.text);
    assert_eq!(browser.get("/account").await.status, 303);
}

#[tokio::test]
async fn a_client_revokes_and_introspects_what_is_its_own() {
    let app = start(on(Store::Memory)).await;
    let (_, access, token) = granted(&app, "ada").await;
    let other = Some(("files-client", SECRET));
    let ask = async |client, token: &str| {
        call(&app, "/oauth/introspect", client, &[("token", token)]).await.body["active"].clone()
    };
    assert_eq!(ask(BY_WIKI, &access).await, true);
    assert_eq!(ask(other, &access).await, false);
    assert_eq!(ask(BY_WIKI, "nonsense").await, false);
    assert_eq!(call(&app, "/oauth/introspect", None, &[("token", &access)]).await.status, 401);
    for token in [&access, &token] {
        assert_eq!(call(&app, "/oauth/revoke", other, &[("token", token)]).await.status, 200);
        assert_eq!(userinfo(&app.url, &access).await.status, 200);
    }
    let revoked = call(&app, "/oauth/revoke", BY_WIKI, &[("token", &token)]).await;
    let answered = (revoked.status, revoked.header("content-type"), revoked.text.as_str());
    assert_eq!(answered, (200, "application/json", "{}"), "@fastify/oauth2 reads it");
    assert_eq!(userinfo(&app.url, &access).await.status, 401);
    assert_eq!(ask(BY_WIKI, &access).await, false);
    assert_eq!(refresh(&app, &token).await.status, 400);
}

#[tokio::test]
async fn a_form_that_is_too_long_is_refused_like_any_other_error() {
    let app = start(on(Store::Memory)).await;
    let long = "x".repeat(20_000);
    for path in ["/oauth/token", "/oauth/revoke", "/oauth/introspect"] {
        let answer = call(&app, path, BY_WIKI, &[("token", &long)]).await;
        assert_eq!(
            (answer.status, &answer.body["error"]),
            (413, &serde_json::Value::from("invalid_request")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn scripts_of_a_clients_site_may_read_and_no_others() {
    let app = start(on(Store::Memory)).await;
    for (origin, allowed) in [("https://spa.example", "https://spa.example"), ("https://evil.example", "")] {
        let request =
            http().build().unwrap().get(format!("{}/oauth/userinfo", app.url)).header("origin", origin);
        let answer = Answer::read(request.send().await.unwrap()).await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (401, allowed));
        assert_eq!(answer.header("access-control-allow-credentials"), "");
        let request =
            http().build().unwrap().request(reqwest::Method::OPTIONS, format!("{}/oauth/token", app.url));
        let answer = Answer::read(request.header("origin", origin).send().await.unwrap()).await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, allowed));
    }
}
