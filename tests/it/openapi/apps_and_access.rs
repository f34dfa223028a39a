//! Answers about what an administrator edits beside the limits: applications, access and profiles.

use reqwest::Method;
use serde_json::{Value, json};

use super::Held;
use crate::support::app::{Answer, Store, TestApp};

#[tokio::test]
async fn answers_about_applications_carry_what_is_described_and_nothing_else() {
    let app = TestApp::on(Store::Memory).file(crate::gate::APPS).start().await;
    let held = Held::of(app.sign_in_admin("boss").await);
    crate::gate::account(&app, "ada", &["staff"]).await;
    let path = "/api/v1/admin/apps";
    let call = async |tag: Option<&str>, body: Value| held.put(&app, path, tag, body).await;
    let shown = held.client.get(path).await;
    held.check("get", path, &shown);
    let (tag, before) = (shown.header("etag").to_owned(), std::fs::read_to_string(app.file()).unwrap());
    // As it was read, it changes no byte.
    let same = json!({ "apps": shown.body["apps"], "reason": "a test" });
    assert_eq!(call(None, same.clone()).await.status, 428);
    let answer = call(Some(&tag), same).await;
    assert_eq!((answer.status, &answer.body["changed"]), (200, &json!(false)), "{}", answer.text);
    assert_eq!(std::fs::read_to_string(app.file()).unwrap(), before);
    let draft = json!([
        { "name": "wiki", "hosts": ["wiki.example"], "who": ["everyone", "nobody-has-it", "group:none"],
          "parts": [{ "path": "/admin/*", "who": [], "signed_in_within": "90m" }] },
        { "name": "shop", "hosts": ["shop.example"] },
        { "name": "dash", "who": ["group:staff"],
          "oidc": { "redirect_uris": ["https://dash.example/cb"], "consent": "once", "groups": ["team-*"] } }
    ]);
    for (body, status) in [
        (json!({ "apps": draft }), 200),
        (json!({ "toml": "[[apps]]\nname = 'a'\nhosts = ['a.example']\n" }), 200),
        (json!({ "apps": [{ "name": "a", "hosts": ["A"] }] }), 422),
        (json!({ "apps": [{ "name": null }] }), 422),
        (json!({ "apps": [], "toml": "" }), 422),
        (json!({}), 422),
    ] {
        let (got, _) =
            held.raw(Method::POST, "/admin/apps/preview", "application/json", &body.to_string()).await;
        assert_eq!(got, status, "{body}");
    }
    let tried = held.client.call("/admin/apps/preview", json!({ "apps": draft })).await;
    let wiki =
        tried.body["hosts"].as_array().unwrap().iter().find(|it| it["hosts"] == json!(["wiki.example"]));
    let change = &wiki.unwrap()["changes"][0];
    assert_eq!(
        (&change["gains"]["count"], &change["loses"]["count"]),
        (&json!(1), &json!(0)),
        "{}",
        tried.text
    );
    assert_eq!((&change["others"], &change["odd"]), (&json!(true), &json!(false)));
    assert_eq!(change["gains"]["first"][0]["login"], "boss");
    let dash = tried.body["hosts"].as_array().unwrap().iter().find(|it| it["after"] == "dash").unwrap();
    let uris = json!({ "added": ["https://dash.example/cb"], "removed": [] });
    assert_eq!((&dash["client"]["redirect_uris"], &dash["hosts"]), (&uris, &json!([])));
    assert_eq!(dash["changes"][0]["gains"]["first"][0]["login"], "ada");
    assert_eq!(tried.body["warnings"][0]["unknown_names"], json!(["nobody-has-it"]));
    for apps in [json!([{}]), json!([{ "name": "a", "hosts": ["A"] }]), json!([{ "name": null }])] {
        let refused = call(Some(&tag), json!({ "apps": apps, "reason": "a test" })).await;
        let error = &refused.body["errors"][0];
        assert!(refused.status == 422 && error["field"].as_str().unwrap().starts_with("apps[0]."), "{error}");
        assert_eq!(error.get("line"), None, "nobody sent lines");
    }
    assert_eq!(call(Some(&tag), json!({ "apps": draft, "reason": "a test" })).await.status, 200);
    assert_eq!(call(Some(&tag), json!({ "apps": [], "reason": "a test" })).await.status, 412);
    let now = held.client.get(path).await;
    held.check("get", path, &now);
    assert_eq!(now.body["apps"][0]["parts"][0]["signed_in_within"], "1h 30m");
    let client = json!({ "client_id": "dash", "redirect_uris": ["https://dash.example/cb"], "consent": "once",
                         "groups": ["team-*"] });
    assert_eq!(now.body["apps"][2]["oidc"], client);
    assert_eq!(held.get("/api/v1/admin/limits/history").await, 200);
}

#[tokio::test]
async fn answers_about_access_carry_what_is_described_and_nothing_else() {
    let app = TestApp::start(Store::Memory).await;
    let held = Held::of(app.sign_in_admin("boss").await);
    let path = "/api/v1/admin/access";
    let call = async |tag: Option<&str>, body: Value| held.put(&app, path, tag, body).await.status;
    let tag = held.client.get(path).await.header("etag").to_owned();
    let entry = json!([{ "network": "203.0.113.0/24", "until": "2026-03-01T13:00:00Z", "reason": "a test" }]);
    let pause = json!([{ "prefix": "+86138", "until": "2026-03-01T13:00:00Z", "reason": "a test" }]);
    let body = json!({ "deny": entry, "allow": entry, "pause_sms": pause, "reason": "a test" });
    assert_eq!(call(None, body.clone()).await, 428);
    assert_eq!(call(Some(&tag), json!({ "deny": [{}], "reason": "a test" })).await, 422);
    assert_eq!(call(Some(&tag), body.clone()).await, 200);
    assert_eq!(call(Some(&tag), body).await, 412);
    assert_eq!(held.get(path).await, 200);
    assert_eq!(held.get("/api/v1/admin/limits/history").await, 200);
}

#[tokio::test]
async fn answers_about_profiles_carry_what_is_described_and_nothing_else() {
    let app = TestApp::start(Store::Memory).await;
    let held = Held::of(app.sign_in_admin("boss").await);
    let ada = crate::gate::account(&app, "ada", &[]).await;
    const ONE: &str = "/api/v1/admin/accounts/{id}";
    const PROFILE: &str = "/api/v1/admin/accounts/{id}/profile";
    let nobody = "0".repeat(32);
    let call = async |id: &str, body: Value| {
        let url = format!("{}{}", app.url, PROFILE.replace("{id}", id));
        let answer = Answer::read(held.client.http.put(url).json(&body).send().await.unwrap()).await;
        held.check("put", PROFILE, &answer);
        answer
    };
    let shown = async || {
        let answer = held.client.get(&ONE.replace("{id}", &ada.to_string())).await;
        held.check("get", ONE, &answer);
        answer.body
    };
    assert!(shown().await["name"].is_null());
    let whole = json!({ "email": "ada@example.org", "email_verified": true, "name": "Ada Lovelace" });
    assert_eq!(call(&ada.to_string(), whole).await.status, 204);
    let refused = call(&ada.to_string(), json!({ "name": "" })).await;
    assert!(refused.body["errors"][0]["message"].as_str().unwrap().starts_with("It must be 1 to 128"));
    assert_eq!(shown().await["name"], "Ada Lovelace");
    assert_eq!(held.get("/api/v1/admin/accounts").await, 200);
    assert_eq!(call(&nobody, json!({})).await.status, 404);
}
