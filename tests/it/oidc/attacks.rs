//! What others fell to: codes and tokens of somebody else, twice, late, or weakened.

use std::time::Duration;

use futures_util::future::join_all;
use gatehouse::accounts::{AccountAct, Username};

use super::*;
use crate::support::app::on_both_stores;

on_both_stores! {
    a_code_is_for_one_client_one_address_and_one_verifier,
    a_code_that_comes_twice_ends_what_it_began,
    of_sixty_four_exchanges_of_a_code_one_gets_tokens,
    who_may_not_use_the_client_any_more_gets_nothing,
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
    let (_, access, token) = granted(&app, "boris").await;
    let boris = app.services.accounts.find(&Username::parse("boris").unwrap()).await.unwrap().unwrap();
    app.services.accounts.change(boris.id, AccountAct::Disable, false).await.unwrap();
    assert_eq!(userinfo(&app.url, &access).await.status, 401);
    let refused = refresh(&app, &token).await;
    assert_eq!((refused.status, &refused.body["error"]), (400, &"invalid_grant".into()));
    // By the list of the application.
    let browser = browser(&app, "carol").await;
    let staff = [("client_id", "staff"), ("redirect_uri", "https://staff.example/callback")];
    let answer = browser.get(&request(&staff)).await;
    assert_eq!(sent(&answer)("error").as_deref(), Some("access_denied"));
}

async fn what_ends_at_one_instance_has_ended_at_the_other(store: Store) {
    let app = start(on(store)).await;
    let beside = app.beside(on(store).set("server.public_url", &app.url)).await;
    let (browser, access, token) = granted(&app, "ada").await;
    let code = code(&browser, &[]).await;
    assert_eq!(userinfo(&beside.url, &access).await.status, 200);
    assert_eq!(browser.submit("/account", "/logout", &[]).await.status, 303);
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
