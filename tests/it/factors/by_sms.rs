//! Accounts that SMS codes open: how they set a second step up, and a code's form that is sent twice.

use super::*;
use crate::support::app::{Store, on_both_stores};

on_both_stores! {
    an_account_without_a_password_confirms_by_a_code_until_it_has_a_factor,
    a_code_is_entered_on_a_page_before_an_app_is_set_up,
    a_code_whose_form_is_sent_twice_leads_to_the_second_step_twice,
}

const PHONE: &str = "+8613800138000";

async fn by_code(app: &TestApp) -> Client {
    let browser = app.client();
    let code = browser.code(PHONE, "login").await;
    let answer = browser.call("/sms/login", json!({ "phone": PHONE, "code": code })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    browser
}

async fn an_account_without_a_password_confirms_by_a_code_until_it_has_a_factor(store: Store) {
    let app = TestApp::on(store).without(&["sms-phone"]).start().await;
    let browser = by_code(&app).await;
    let refused = browser.call("/totp", json!({})).await;
    assert_eq!((refused.problem(), &refused.body["methods"]), ("step-up-required", &json!([])));
    assert_eq!(browser.call("/confirm", json!({ "password": PASSWORD })).await.problem(), "no-password");
    let code = browser.code(PHONE, "login").await;
    let of_another_purpose = browser.call("/confirm", json!({ "code": code })).await;
    assert_eq!(of_another_purpose.problem(), "invalid-code");
    let code = browser.code(PHONE, "verify").await;
    assert_eq!(browser.call("/confirm", json!({ "code": code })).await.status, 204);
    set_up(&app, &browser).await;
    app.advance(Duration::from_secs(16 * 60));
    let code = browser.code(PHONE, "verify").await;
    let with_a_factor = browser.call("/confirm", json!({ "code": code })).await;
    assert_eq!(with_a_factor.problem(), "invalid-input", "{}", with_a_factor.text);
    assert_eq!(browser.call("/recovery-codes", json!({})).await.problem(), "step-up-required");
    // Nor does a code confirm where there is a password.
    let other = app.client();
    other.register("boris", PASSWORD).await;
    let code = other.code("+8613900139000", "verify").await;
    let number = json!({ "phone": "+8613900139000", "code": code, "current_password": PASSWORD });
    assert_eq!(other.call("/account/phone", number).await.status, 204);
    let code = other.code("+8613900139000", "verify").await;
    assert_eq!(other.call("/confirm", json!({ "code": code })).await.problem(), "invalid-input");
}

async fn a_code_is_entered_on_a_page_before_an_app_is_set_up(store: Store) {
    const PAGE: &str = "/account/factors/code";
    let app = TestApp::on(store).without(&["sms-phone"]).start().await;
    let browser = by_code(&app).await;
    let page = browser.get("/account/factors").await;
    assert!(page.text.contains(PAGE) && !page.text.contains("propose-totp"), "{}", page.text);
    let asked = browser.get(PAGE).await;
    assert!(asked.text.contains(PHONE), "{}", asked.text);
    let sent = browser.submit(PAGE, PAGE, &[("phone", PHONE)]).await;
    assert!(sent.status == 200 && sent.text.contains("name=\"code\""), "{}", sent.text);
    let code = browser.codes(PHONE).await.remove(0);
    let wrong = browser.submit(PAGE, PAGE, &[("phone", "+8613900139000"), ("code", &code)]).await;
    assert_eq!(wrong.status, 401, "another number's: {}", wrong.text);
    let right = browser.submit(PAGE, PAGE, &[("phone", PHONE), ("code", &code)]).await;
    assert_eq!((right.status, right.header("location")), (303, "/account/factors"), "{}", right.text);
    assert!(browser.get("/account/factors").await.text.contains("propose-totp"));
    set_up(&app, &browser).await;
    assert_eq!(browser.get(PAGE).await.header("location"), "/account/factors", "it has a factor");
}

async fn a_code_whose_form_is_sent_twice_leads_to_the_second_step_twice(store: Store) {
    let app = TestApp::on(store).without(&["sms-phone"]).start().await;
    let owner = by_code(&app).await;
    let code = owner.code(PHONE, "verify").await;
    assert_eq!(owner.call("/confirm", json!({ "code": code })).await.status, 204);
    let (secret, _) = set_up(&app, &owner).await;
    for (path, purpose, more) in
        [("/login/code", "login", &[][..]), ("/password/reset", "reset", &[("new_password", PASSWORD)])]
    {
        let browser = app.client();
        let token = browser.get(path).await.csrf_token();
        let code = browser.code(PHONE, purpose).await;
        let fields = [&[("phone", PHONE), ("code", &code), ("csrf_token", &token)], more].concat();
        let (one, two) = tokio::join!(browser.post(path, &fields), browser.post(path, &fields));
        let three = browser.post(path, &fields).await;
        for answer in [one, two, three] {
            assert_eq!((answer.status, answer.header("location")), (303, "/login/factor"), "{}", answer.text);
            assert!(answer.cookie("gh_session").is_none());
        }
        let done = by_totp(&browser, &totp(&app, &secret)).await;
        assert!([200, 204].contains(&done.status), "{}", done.text);
        app.advance(STEP);
        let late = browser.post(path, &fields).await;
        assert!(
            late.status != 303 && late.cookie("gh_half").is_none(),
            "what it began is over: {}",
            late.text
        );
    }
}
