//! The pages of the second step, without script.

use gatehouse::accounts::{AccountAct, Username};

use super::*;
use crate::support::app::Store;

#[tokio::test]
async fn an_app_is_set_up_used_and_removed_by_forms_alone() {
    let app = TestApp::start(Store::Memory).await;
    let browser = app.client();
    browser.register("alice", PASSWORD).await;
    app.advance(Duration::from_secs(16 * 60));
    let act =
        async |fields: &[(&str, &str)]| browser.submit("/account/factors", "/account/factors", fields).await;
    let unconfirmed = act(&[("act", "propose-totp")]).await;
    assert!(unconfirmed.text.contains("Confirm that it is you"), "{}", unconfirmed.text);
    let confirmed = act(&[("act", "confirm"), ("current_password", PASSWORD)]).await;
    assert_eq!((confirmed.status, confirmed.header("location")), (303, "/account/factors"));
    assert_eq!(act(&[("act", "propose-totp")]).await.status, 303);
    let page = browser.get("/account/factors").await;
    let (_, secret) = page.text.split_once("<code class=\"secret\">").expect("the key, to type");
    let secret = secret.split('<').next().unwrap().replace(' ', "");
    let wrong = act(&[("act", "use-totp"), ("code", WRONG_CODE)]).await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.text.contains("not the code of the new app"), "{}", wrong.text);
    let used = act(&[("act", "use-totp"), ("code", &totp(&app, &secret))]).await;
    assert_eq!(used.status, 201, "{}", used.text);
    let (_, codes) = used.text.split_once("<pre class=\"secret\"").expect("the recovery codes");
    let codes: Vec<&str> =
        codes.split('>').nth(1).unwrap().split('<').next().unwrap().split_whitespace().collect();
    assert_eq!(codes.len(), 10);
    app.advance(STEP);

    let visitor = app.client();
    let first = visitor
        .submit(
            "/login?next=/account/export",
            "/login",
            &[("login", "alice"), ("password", PASSWORD), ("next", "/account/export")],
        )
        .await;
    assert_eq!((first.status, first.header("location")), (303, "/login/factor"));
    let page = visitor.get("/login/factor").await.text;
    let field = page.split("<input").find(|input| input.contains("name=\"code\"")).unwrap();
    assert!(field.contains("inputmode=\"numeric\"") && field.contains("one-time-code"), "{field}");
    let letters = page.split("<input").find(|input| input.contains("name=\"recovery\"")).unwrap();
    assert!(!letters.contains("inputmode"), "a recovery code has letters: {letters}");
    let missing = visitor.submit("/login/factor", "/login/factor", &[("code", "")]).await;
    assert_eq!(missing.status, 422);
    let unfit = visitor.submit("/login/factor", "/login/factor", &[("code", "12345")]).await;
    assert!(unfit.status == 422 && unfit.text.contains("has six digits"), "{}", unfit.text);
    let wrong = visitor.submit("/login/factor", "/login/factor", &[("code", WRONG_CODE)]).await;
    assert_eq!(wrong.status, 401);
    let right = visitor.submit("/login/factor", "/login/factor", &[("code", &totp(&app, &secret))]).await;
    assert_eq!((right.status, right.header("location")), (303, "/account/export"), "{}", right.text);
    assert!(is_signed_in(&visitor).await);
    let twice = [("login", "alice"), ("password", PASSWORD)];
    let token = app.client();
    let csrf = token.get("/login").await.csrf_token();
    let twice = [&twice[..], &[("csrf_token", &csrf)]].concat();
    for _ in 0..2 {
        let answer = token.post("/login", &twice).await;
        assert!(answer.cookie("gh_half").is_some(), "the answer that a double click shows has it, too");
    }
    let again = visitor.get("/login/factor").await;
    assert_eq!(again.header("location"), "/login", "it can be taken once");

    app.advance(Duration::from_secs(16 * 60));
    let by_recovery = act(&[("act", "confirm"), ("code", codes[0])]).await;
    assert_eq!(by_recovery.status, 303, "{}", by_recovery.text);
    let in_its_field = act(&[("act", "confirm"), ("code", ""), ("recovery", codes[1])]).await;
    assert_eq!(in_its_field.status, 303, "{}", in_its_field.text);
    assert!(browser.get("/account/factors").await.text.contains("Not used yet: 8 of 10"));
    assert_eq!(act(&[("act", "remove-totp")]).await.status, 303);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}

/// A session that proved no factor, as of a thief of the password in a trusted browser, or where the owner's switch is off.
#[tokio::test]
async fn the_password_alone_changes_nothing_at_an_account_with_a_second_factor() {
    let app = TestApp::start(Store::Memory).await;
    let alice = owner(&app, "alice").await;
    assert_eq!(put(&alice.browser, "/factors", json!({ "ask": false })).await.status, 204);
    let thief = app.client();
    assert_eq!(thief.login("alice", PASSWORD).await.status, 200);
    let page = thief.get("/account").await;
    assert!(
        !page.text.contains("action=\"/account/password\""),
        "it leads to the confirmation: {}",
        page.text
    );
    assert!(page.text.contains("href=\"/confirm?next=/account\""));
    let csrf = page.csrf_token();
    let new = "another long password";
    let fields = [
        ("csrf_token", csrf.as_str()),
        ("current_password", PASSWORD),
        ("new_password", new),
        ("phone", "+8613800138000"),
        ("code", "012345"),
    ];
    for page in ["/account/phone", "/account/phone/remove", "/account/export", "/account/delete"] {
        let to = format!("/confirm?next={page}");
        assert_eq!(thief.get(page).await.header("location"), to);
        let sent = thief.post(page, &fields).await;
        assert_eq!((sent.status, sent.header("location")), (303, to.as_str()), "{page}");
    }
    let sent = thief.post("/account/password", &fields).await;
    assert_eq!((sent.status, sent.header("location")), (303, "/confirm?next=/account"));
    assert!(thief.get("/confirm?next=/account").await.text.contains("was not saved"));
    let given = json!({ "phone": "+8613800138000", "code": "012345", "current_password": PASSWORD });
    let given = thief.call("/account/phone", given).await;
    let removed = thief.delete("/api/v1/account/phone", json!({ "current_password": PASSWORD })).await;
    for answer in [given, removed] {
        assert_eq!((answer.status, answer.problem()), (403, "step-up-required"), "{}", answer.text);
        assert_eq!(answer.body["methods"], json!(["totp", "recovery"]));
    }
    assert!(is_signed_in(&thief).await, "the account is there, and its password");

    let fields =
        [("csrf_token", csrf.as_str()), ("next", "/account/export"), ("code", &totp(&app, &alice.secret))];
    let confirmed = thief.post("/confirm", &fields).await;
    assert_eq!(
        (confirmed.status, confirmed.header("location")),
        (303, "/account/export"),
        "{}",
        confirmed.text
    );
    let export = thief.submit("/account/export", "/account/export", &[("current_password", PASSWORD)]).await;
    assert_eq!((export.status, &export.body["account"]["login"]), (200, &json!("alice")));
    let changed = [("current_password", PASSWORD), ("new_password", new)];
    let changed = thief.submit("/account", "/account/password", &changed).await;
    assert_eq!((changed.status, changed.header("location")), (303, "/account"), "{}", changed.text);
    let deleted = thief.submit("/account/delete", "/account/delete", &[("current_password", new)]).await;
    assert_eq!(
        deleted.header("location"),
        "/login",
        "the session that follows a new password has proved it, too"
    );
}

/// Above all where an administrator suspects that the password is known.
#[tokio::test]
async fn a_new_password_that_is_required_takes_the_factor_too() {
    let app = TestApp::start(Store::Memory).await;
    let alice = owner(&app, "alice").await;
    assert_eq!(put(&alice.browser, "/factors", json!({ "ask": false })).await.status, 204);
    let account = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap();
    app.services.accounts.change(account.id, AccountAct::RequireNewPassword, false).await.unwrap();
    let thief = app.client();
    assert_eq!(thief.login("alice", PASSWORD).await.status, 200);
    let page = thief.get("/account").await;
    assert!(!page.text.contains("action=\"/account/password\""), "{}", page.text);
    let csrf = page.csrf_token();
    let new = [
        ("csrf_token", csrf.as_str()),
        ("current_password", PASSWORD),
        ("new_password", "another long password"),
    ];
    let sent = thief.post("/account/password", &new).await;
    assert_eq!((sent.status, sent.header("location")), (303, "/confirm?next=/account"));
    assert_eq!(thief.get("/account/export").await.header("location"), "/account?next=/account/export");
    let code = totp(&app, &alice.secret);
    let confirmed =
        thief.submit("/confirm?next=/account", "/confirm", &[("next", "/account"), ("code", &code)]).await;
    assert_eq!((confirmed.status, confirmed.header("location")), (303, "/account"), "{}", confirmed.text);
    let changed = thief.submit("/account", "/account/password", &new[1..]).await;
    assert_eq!((changed.status, changed.header("location")), (303, "/account"), "{}", changed.text);
}
