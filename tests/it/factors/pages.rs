//! The pages of the second step, without script.

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
    assert!(browser.get("/account/factors").await.text.contains("Not used yet: 9 of 10"));
    assert_eq!(act(&[("act", "remove-totp")]).await.status, 303);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}
