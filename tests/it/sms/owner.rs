//! A number opens its account, so a session alone neither sets nor removes one.

use serde_json::{Value, json};

use super::flows::{NEW, ask, no_limits, send_on};
use super::http::{NUMBER, OTHER, enter, with_number};
use crate::support::app::PASSWORD;

const PHONE: &str = "/api/v1/account/phone";

fn giving(code: &str, password: Option<&str>) -> Value {
    let mut body = json!({ "phone": OTHER, "code": code });
    if let Some(password) = password {
        body["current_password"] = json!(password);
    }
    body
}

#[tokio::test]
async fn a_stolen_session_without_the_password_neither_sets_nor_removes_a_number() {
    let app = no_limits().start().await;
    let thief = with_number(&app, "alice", NUMBER).await;
    let code = thief.code(OTHER, "verify").await;
    let refused = thief.call("/account/phone", giving(&code, None)).await;
    assert_eq!((refused.status, &refused.body["errors"][0]["field"]), (422, &json!("current_password")));
    let refused = thief.call("/account/phone", giving(&code, Some(NEW))).await;
    assert_eq!((refused.status, refused.problem()), (401, "invalid-credentials"));
    assert_eq!(thief.delete(PHONE, json!({})).await.status, 422);
    assert_eq!(thief.delete(PHONE, json!({ "current_password": NEW })).await.status, 401);
    assert_eq!(thief.get("/api/v1/session").await.body["user"]["phone"], NUMBER);
    // The code was used up by none of these.
    assert_eq!(thief.call("/account/phone", giving(&code, Some(PASSWORD))).await.status, 204);
    assert_eq!(thief.get("/api/v1/session").await.body["user"]["phone"], OTHER);
    assert_eq!(thief.delete(PHONE, json!({ "current_password": PASSWORD })).await.status, 204);
}

#[tokio::test]
async fn wrong_passwords_there_count_as_failed_sign_ins_to_the_account() {
    let app = no_limits().without(&["login-device"]).start().await;
    let client = with_number(&app, "alice", NUMBER).await;
    for _ in 0..2 {
        assert_eq!(client.call("/account/phone", giving("123456", Some(NEW))).await.status, 401);
    }
    let third = client.delete(PHONE, json!({ "current_password": NEW })).await;
    assert_eq!((third.status, &third.body["captcha_required"]), (401, &json!(true)));
    for answer in [
        client.call("/account/phone", giving("123456", Some(PASSWORD))).await,
        client.delete(PHONE, json!({ "current_password": PASSWORD })).await,
        app.client().login("alice", PASSWORD).await,
    ] {
        assert_eq!((answer.status, answer.problem()), (403, "captcha-required"), "{}", answer.text);
    }
}

#[tokio::test]
async fn an_account_without_a_password_keeps_its_number_until_it_has_one() {
    let app = no_limits().start().await;
    let client = app.client();
    let code = client.code(NUMBER, "login").await;
    assert_eq!(enter(&client, NUMBER, &code).await.status, 200);
    let code = client.code(OTHER, "verify").await;
    for password in [None, Some(PASSWORD)] {
        let refused = client.call("/account/phone", giving(&code, password)).await;
        assert_eq!((refused.status, refused.problem()), (409, "no-password"));
    }
    assert_eq!(client.get("/api/v1/session").await.body["user"]["phone"], NUMBER);
}

#[tokio::test]
async fn an_administrator_is_opened_by_no_code() {
    let app = no_limits().start().await;
    let boss = app.sign_in_admin("boss").await;
    let code = boss.code(OTHER, "verify").await;
    assert_eq!(boss.call("/account/phone", giving(&code, Some(PASSWORD))).await.status, 204);
    let thief = app.client();
    let code = thief.code(OTHER, "login").await;
    let refused = enter(&thief, OTHER, &code).await;
    assert_eq!((refused.status, refused.problem()), (403, "password-required"));
    let code = thief.code(OTHER, "reset").await;
    let reset = json!({ "phone": OTHER, "code": code, "new_password": NEW });
    let refused = thief.call("/password/reset", reset).await;
    assert_eq!((refused.status, refused.problem()), (403, "password-required"));
    for path in ["/login/code", "/password/reset"] {
        let second = ask(&thief, path, OTHER).await;
        let code = thief.codes(OTHER).await.remove(0);
        let page = send_on(&thief, path, &second, &[("code", &code), ("new_password", NEW)]).await;
        assert!(page.status == 403 && page.text.contains("gatehouse admin create"), "{}", page.text);
        // A client that has not proved the number learns nothing about it.
        let wrong = if code == "000000" { "000001" } else { "000000" };
        let page = send_on(&thief, path, &second, &[("code", wrong), ("new_password", NEW)]).await;
        assert!(page.status == 401 && !page.text.contains("gatehouse admin create"));
    }
    assert_eq!(thief.get("/api/v1/session").await.status, 401);
    assert_eq!(boss.get("/api/v1/session").await.status, 200);
    assert_eq!(thief.login("boss", PASSWORD).await.status, 200);
}
