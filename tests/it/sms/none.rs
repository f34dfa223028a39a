//! `sms.gateway = "none"`: everything that needs a code is absent, and no page offers one.

use serde_json::json;

use crate::support::app::{PASSWORD, Store, TestApp};

#[tokio::test]
async fn what_needs_a_code_is_not_found() {
    let app = TestApp::on(Store::Memory).set("sms.gateway", "none").start().await;
    let client = app.client();
    for path in ["/login/code", "/password/reset", "/account/phone", "/sms/reports/none", "/sms/reports/http"]
    {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    let ask = json!({ "phone": "+8613800138000", "purpose": "login" });
    let enter = json!({ "phone": "+8613800138000", "code": "123456" });
    let reset = json!({ "phone": "+8613800138000", "code": "123456", "new_password": PASSWORD });
    let set = json!({ "phone": "+8613800138000", "code": "123456", "current_password": PASSWORD });
    let calls =
        [("/sms/codes", ask), ("/sms/login", enter), ("/password/reset", reset), ("/account/phone", set)];
    for (path, body) in calls {
        let answer = client.call(path, body).await;
        assert_eq!((answer.status, answer.problem()), (404, "not-found"), "{path}");
    }
    for path in ["/login/code", "/password/reset", "/account/phone"] {
        assert_eq!(client.post(path, &[("phone", "+8613800138000")]).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn no_page_offers_a_code() {
    let app = TestApp::on(Store::Memory).set("sms.gateway", "none").start().await;
    let client = app.client();
    for path in ["/login", "/register"] {
        let page = client.get(path).await.text;
        for offer in ["/login/code", "/password/reset", "name=\"phone\"", "name=\"code\""] {
            assert!(!page.contains(offer), "{path} offers {offer}");
        }
    }
    assert_eq!(client.register("guybrush", PASSWORD).await.status, 201);
    let page = client.get("/account").await;
    assert_eq!(page.status, 200);
    assert!(!page.text.contains("/account/phone") && !page.text.contains("/password/reset"));
}

#[tokio::test]
async fn a_number_at_registration_is_refused_by_name() {
    let app = TestApp::on(Store::Memory).set("sms.gateway", "none").start().await;
    let client = app.client();
    let (phone, code) = ("+8613800138000", "123456");
    let body = json!({ "login": "guybrush", "password": PASSWORD, "phone": phone, "code": code });
    let answer = client.call("/register", body).await;
    assert_eq!(answer.status, 422);
    assert!(
        answer.text.contains("\"phone\"") && answer.text.contains("This site does not send codes"),
        "{}",
        answer.text
    );
    let fields = [("login", "guybrush"), ("password", PASSWORD), ("phone", phone), ("code", code)];
    let page = client.post("/register", &fields).await;
    assert_eq!(page.status, 422);
    assert!(page.text.contains("This site does not send codes"));
    assert_eq!(client.register("guybrush", PASSWORD).await.status, 201, "no account was created before");
}
