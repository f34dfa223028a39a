//! Authorization requests: what is refused where, and what is asked of who is signed in.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn what_may_not_be_the_clients_is_refused_here() {
    let app = start(on(Store::Memory)).await;
    let browser = browser(&app, "ada").await;
    for (changes, said) in [
        (&[("client_id", "nobody")][..], "client_id"),
        (&[("client_id", "")], "client_id"),
        (&[("redirect_uri", "")], "redirect_uri"),
        (&[("redirect_uri", "https://wiki.example/callback/")], "redirect_uri"),
        (&[("redirect_uri", "https://wiki.example/callback?x=1")], "redirect_uri"),
        (&[("redirect_uri", "https://wiki.example.evil.example/callback")], "redirect_uri"),
        (&[("redirect_uri", "https://wiki.example@evil.example/callback")], "redirect_uri"),
    ] {
        let answer = browser.get(&request(changes)).await;
        assert_eq!((answer.status, answer.header("location")), (400, ""), "{changes:?}");
        assert!(answer.text.contains(said), "{}", answer.text);
    }
    let twice = format!("{}&redirect_uri=https://evil.example/", request(&[]));
    assert_eq!(browser.get(&twice).await.status, 400);
}

#[tokio::test]
async fn what_else_is_wrong_is_told_to_the_client() {
    let app = start(on(Store::Memory)).await;
    let browser = browser(&app, "ada").await;
    for (changes, error) in [
        (&[("response_type", "token")][..], "unsupported_response_type"),
        (&[("response_type", "")], "invalid_request"),
        (&[("response_mode", "fragment")], "invalid_request"),
        (&[("scope", "profile")], "invalid_scope"),
        (&[("scope", "")], "invalid_scope"),
        (&[("code_challenge", "")], "invalid_request"),
        (&[("code_challenge", ""), ("code_challenge_method", "")], "invalid_request"),
        (&[("code_challenge_method", "plain")], "invalid_request"),
        (&[("code_challenge_method", "")], "invalid_request"),
        (&[("code_challenge", "short")], "invalid_request"),
        (&[("prompt", "none login")], "invalid_request"),
        (&[("prompt", "dance")], "invalid_request"),
        (&[("max_age", "-1")], "invalid_request"),
        (&[("request", "eyJ")], "request_not_supported"),
        (&[("request_uri", "https://evil.example/")], "request_uri_not_supported"),
        (&[("registration", "{}")], "registration_not_supported"),
    ] {
        let sent = sent(&browser.get(&request(changes)).await);
        assert_eq!(sent("error").as_deref(), Some(error), "{changes:?}");
        assert_eq!(sent("state").as_deref(), Some("its state & more"));
        assert_eq!((sent("iss").as_deref(), sent("code")), (Some(app.url.as_str()), None));
    }
}

#[tokio::test]
async fn without_a_prompt_nothing_is_shown() {
    let app = start(on(Store::Memory)).await;
    let silent = [("prompt", "none")];
    let error = async |browser: &Client, more: &[(&str, &str)]| {
        let sent = sent(&browser.get(&request(&[&silent[..], more].concat())).await);
        sent("error").unwrap_or_else(|| sent("code").expect("one of both"));
        sent("error")
    };
    assert_eq!(error(&app.client(), &[]).await.as_deref(), Some("login_required"));
    let browser = browser(&app, "ada").await;
    assert_eq!(error(&browser, &[]).await, None);
    let spa = [("client_id", "spa"), ("redirect_uri", SPA)];
    assert_eq!(error(&browser, &spa).await.as_deref(), Some("consent_required"));
    app.advance(Duration::from_secs(100));
    assert_eq!(error(&browser, &[("max_age", "99")]).await.as_deref(), Some("login_required"));
    assert_eq!(error(&browser, &[("max_age", "101")]).await, None);
}

#[tokio::test]
async fn who_is_asked_to_prove_it_again_does_so_once() {
    let app = start(on(Store::Memory)).await;
    let browser = browser(&app, "ada").await;
    for changes in [[("prompt", "login")], [("max_age", "0")]] {
        app.advance(Duration::from_secs(10));
        let first = browser.get(&request(&changes)).await;
        let to_confirm = first.header("location").to_owned();
        assert!(to_confirm.starts_with("/confirm?next=/oauth/continue%3F"), "{to_confirm}");
        let next = Url::parse(&format!("{}{to_confirm}", app.url)).unwrap();
        let next = next.query_pairs().find(|(name, _)| name == "next").unwrap().1.into_owned();
        let again = browser.get(&next.replace("/oauth/continue", "/oauth/authorize")).await;
        assert!(again.header("location").starts_with("/confirm"), "{}", again.header("location"));
        let fields = [("current_password", PASSWORD), ("next", &*next)];
        let confirmed = browser.submit(&to_confirm, "/confirm", &fields).await;
        assert_eq!(confirmed.header("location"), next, "{}", confirmed.text);
        let answer = browser.get(&next.replace("/oauth/continue", "/oauth/authorize")).await;
        let code = sent(&answer)("code").expect("a code");
        let id = claims(exchange(&app, &code).await.body["id_token"].as_str().unwrap());
        assert_eq!(id["auth_time"], app.clock.now().0 / 1_000_000);
    }
    // Another account may be chosen: at the sign-in.
    app.advance(Duration::from_secs(5));
    let first = browser.get(&request(&[("prompt", "select_account")])).await;
    let to_login = first.header("location").to_owned();
    assert!(to_login.starts_with("/login?next="), "{to_login}");
    assert!(browser.get(&to_login).await.text.contains("name=\"password\""));
}

#[tokio::test]
async fn a_consent_is_given_once_and_to_a_program_each_time() {
    let app = start(on(Store::Memory)).await;
    let browser = browser(&app, "ada").await;
    let spa = request(&[("client_id", "spa"), ("redirect_uri", SPA)]);
    let page = browser.get(&spa).await;
    assert!(page.status == 200 && page.text.contains("Sign in to spa?"), "{}", page.text);
    let (_, query) = spa.split_once('?').unwrap();
    let account = page.hidden("account").unwrap();
    let other =
        app.client().register("boris", PASSWORD).await.body["user"]["id"].as_str().unwrap().to_owned();
    let fields = [("request", query), ("account", &*other), ("agree", "yes")];
    let asked = browser.submit(&spa, "/oauth/consent", &fields).await;
    assert!(asked.text.contains("Sign in to spa?"), "what another account agreed to: {}", asked.text);
    let decide = async |agree: &str| {
        browser
            .submit(&spa, "/oauth/consent", &[("request", query), ("account", &account), ("agree", agree)])
            .await
    };
    let refused = decide("").await;
    assert!(refused.text.contains("https://spa.example/?error=access_denied"), "{}", refused.text);
    let forged = browser
        .post(
            "/oauth/consent",
            &[("request", query), ("account", &account), ("agree", "yes"), ("csrf_token", "x")],
        )
        .await;
    assert_eq!(forged.status, 403);
    let agreed = decide("yes").await;
    assert!(agreed.text.contains("https://spa.example/?code="), "{}", agreed.text);
    assert!(sent(&browser.get(&spa).await)("code").is_some(), "it is not asked again");
    let more =
        request(&[("client_id", "spa"), ("redirect_uri", SPA), ("scope", "openid email offline_access")]);
    assert_eq!(browser.get(&more).await.status, 200, "for more it is");
    let cli = request(&[("client_id", "cli"), ("redirect_uri", "http://127.0.0.1:5123/callback")]);
    for _ in 0..2 {
        let page = browser.get(&cli).await;
        assert!(page.text.contains("It is a program on a device"), "{}", page.text);
        let (_, query) = cli.split_once('?').unwrap();
        let fields = [("request", query), ("account", &*account), ("agree", "yes")];
        let agreed = browser.submit(&cli, "/oauth/consent", &fields).await;
        assert!(agreed.text.contains("http://127.0.0.1:5123/callback?code="), "{}", agreed.text);
    }
}

/// Its client was told of somebody else: it is said so, and nobody is led in circles.
#[tokio::test]
async fn a_hint_of_somebody_else_is_refused() {
    let app = start(on(Store::Memory)).await;
    let other = browser(&app, "carol").await;
    let hint = exchange(&app, &code(&other, &[]).await).await.body["id_token"].as_str().unwrap().to_owned();
    let browser = browser(&app, "ada").await;
    for wrong in [hint.as_str(), "x"] {
        let sent = sent(&browser.get(&request(&[("id_token_hint", wrong)])).await);
        assert_eq!(sent("error").as_deref(), Some("login_required"));
    }
    assert!(sent(&other.get(&request(&[("id_token_hint", &hint)])).await)("code").is_some());
}
