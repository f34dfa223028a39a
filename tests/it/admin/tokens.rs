//! Tokens of programs: who creates them, what is shown of them, and what is recorded.

use std::time::Duration;

use serde_json::json;

use crate::support::app::{Answer, Client, Store, TestApp};
use crate::support::setup::{Setup, max};

pub async fn make(boss: &Client, scopes: &[&str]) -> String {
    let made = boss.call("/admin/tokens", json!({ "name": "a program", "scopes": scopes })).await;
    assert_eq!(made.status, 201, "{}", made.text);
    made.body["token"].as_str().unwrap().to_owned()
}

async fn with_limits(names: &[&str]) -> TestApp {
    let setup = TestApp::on(Store::Memory);
    let limited = |setup: Setup, name: &&str| setup.limit(&format!("custom.{name}"), &[max(5).per("1s")]);
    names.iter().fold(setup, limited).start().await
}

pub async fn revoke(boss: &Client, id: &str) -> Answer {
    let request = boss.http.delete(format!("{}/api/v1/admin/tokens/{id}", boss.url));
    Answer::read(request.send().await.unwrap()).await
}

#[tokio::test]
async fn a_token_is_told_once_and_listed_until_it_is_revoked() {
    let app = with_limits(&["reply", "leave"]).await;
    let boss = app.sign_in_admin("boss").await;
    assert_eq!(boss.get("/api/v1/admin/tokens").await.body, json!({ "tokens": [] }));
    let wanted = json!({ "name": " forum ", "scopes": ["reply", "leave"], "expires_in": 3600 });
    let made = boss.call("/admin/tokens", wanted).await;
    let (id, token) = (made.body["id"].as_str().unwrap(), made.body["token"].as_str().unwrap());
    let listed = boss.get("/api/v1/admin/tokens").await;
    let entry = &listed.body["tokens"][0];
    let expected = json!({
        "id": id, "name": "forum", "scopes": ["leave", "reply"], "made_by": "boss",
        "created_at": entry["created_at"], "expires_at": entry["expires_at"],
    });
    assert_eq!(*entry, expected);
    for page in ["/admin/tokens", "/api/v1/admin/tokens"] {
        assert!(!boss.get(page).await.text.contains(token), "{page}");
    }
    assert_eq!(revoke(&boss, id).await.status, 204);
    assert_eq!(revoke(&boss, id).await.problem(), "not-found");
    assert_eq!(revoke(&boss, "x").await.problem(), "not-found");
    assert_eq!(boss.get("/api/v1/admin/tokens").await.body, json!({ "tokens": [] }));
}

#[tokio::test]
async fn what_cannot_be_a_token_is_refused_field_by_field() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    for (wanted, field) in [
        (json!({ "name": " ", "scopes": ["*"] }), "name"),
        (json!({ "name": "x".repeat(101), "scopes": ["*"] }), "name"),
        (json!({ "name": "x", "scopes": [] }), "scopes"),
        (json!({ "name": "x", "scopes": ["*", "reply"] }), "scopes"),
        (json!({ "name": "x", "scopes": ["custom.reply"] }), "scopes"),
        (json!({ "name": "x", "scopes": [""] }), "scopes"),
        (json!({ "name": "x", "scopes": ["guard shop"] }), "scopes"),
        (json!({ "name": "x", "scopes": vec!["*"; 65] }), "scopes"),
        (json!({ "name": "x", "scopes": ["*"], "expires_in": 0 }), "expires_in"),
        (json!({ "name": "x", "scopes": ["*"], "expires_in": 316_224_001 }), "expires_in"),
    ] {
        let answer = boss.call("/admin/tokens", wanted.clone()).await;
        assert_eq!(answer.status, 422, "{wanted}");
        assert_eq!(answer.body["errors"][0]["field"], field, "{wanted}");
    }
}

#[tokio::test]
async fn a_scope_that_does_not_exist_is_refused_with_the_nearest_one() {
    let app = with_limits(&["reply"]).await;
    let boss = app.sign_in_admin("boss").await;
    for (typed, told) in [
        ("guard shop", "guard shop: no such scope; did you mean guard:shop?"),
        ("reply, verify shop", "verify shop: no such scope; did you mean verify:shop?"),
        ("repyl", "repyl: no such scope; did you mean reply?"),
        ("limits:reed", "limits:reed: no such scope; did you mean limits:read?"),
        ("later", "later: no such scope. Enter names of custom limits that exist"),
        ("<b>", "&#60;b&#62;: no such scope. Enter"),
    ] {
        let fields = [("name", "forum"), ("scopes", typed)];
        let refused = boss.submit("/admin/tokens", "/admin/tokens", &fields).await;
        assert!(refused.status == 422 && refused.text.contains(told), "{typed}: {}", refused.text);
        let scopes: Vec<_> = typed.split([',', ' ']).filter(|name| !name.is_empty()).collect();
        let refused = boss.call("/admin/tokens", json!({ "name": "forum", "scopes": scopes })).await;
        let error = &refused.body["errors"][0];
        assert_eq!((refused.status, &error["field"]), (422, &json!("scopes")), "{typed}");
        let told = told.replace("&#60;", "<").replace("&#62;", ">");
        assert!(error["message"].as_str().unwrap().starts_with(&told), "{typed}: {error}");
    }
    let chinese = boss.http.get(format!("{}/admin/tokens?lang=zh-CN", boss.url)).send().await.unwrap();
    assert_eq!(chinese.status(), 200);
    let fields = [("name", "forum"), ("scopes", "guard shop")];
    let refused = boss.submit("/admin/tokens", "/admin/tokens", &fields).await;
    assert!(
        refused.text.contains("guard shop：没有这样的权限范围；您是否想填写 guard:shop？"),
        "{}",
        refused.text
    );
    assert_eq!(boss.get("/api/v1/admin/tokens").await.body, json!({ "tokens": [] }));
}

#[tokio::test]
async fn the_page_makes_shows_once_and_revokes() {
    let app = with_limits(&["reply", "leave"]).await;
    let boss = app.sign_in_admin("boss").await;
    let fields = [("name", "forum"), ("scopes", "reply, leave"), ("expires_days", "90")];
    let made = boss.submit("/admin/tokens", "/admin/tokens", &fields).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let token = made.text.split("id=\"token\">").nth(1).unwrap().split('<').next().unwrap();
    assert!(token.starts_with("ght_"), "{token}");
    let page = boss.get("/admin/tokens").await;
    assert!(!page.text.contains(token) && page.text.contains("<code>leave reply</code>"));
    let wrong = boss.submit("/admin/tokens", "/admin/tokens", &[("name", "till"), ("scopes", "A B")]).await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.text.contains("value=\"till\"") && wrong.text.contains("id=\"scopes-error\""));
    let id = page.text.split("/admin/tokens/revoke?id=").nth(1).unwrap().split('"').next().unwrap();
    let asked = boss.get(&format!("/admin/tokens/revoke?id={id}")).await;
    assert!(asked.status == 200 && asked.text.contains("Revoke this token?"), "{}", asked.text);
    assert!(asked.text.contains("<bdi>forum</bdi>") && asked.text.contains("<button class=\"danger\">"));
    assert_eq!(asked.hidden("id").as_deref(), Some(id), "as the form says");
    assert!(boss.get("/admin/tokens").await.text.contains("<bdi>forum</bdi>"), "asking changes nothing");
    for other in ["", "0", "x"] {
        let gone = boss.get(&format!("/admin/tokens/revoke?id={other}")).await;
        assert_eq!((gone.status, gone.header("location")), (303, "/admin/tokens"), "{other}");
    }
    let revoked = boss.submit("/admin/tokens", "/admin/tokens/revoke", &[("id", id)]).await;
    assert_eq!((revoked.status, revoked.header("location")), (303, "/admin/tokens"));
    let said = boss.get("/admin/tokens").await.text;
    assert!(said.contains("<bdi>forum</bdi>: Token revoked."), "{said}");
}

#[tokio::test]
async fn scopes_that_exist_are_boxes_and_others_are_typed() {
    const BOX: &str = "type=\"checkbox\" name=\"scopes\" value=";
    let shop = "[verify.shop]\nprogram = 'Shop'\n";
    let app = TestApp::on(Store::Memory).file(shop).limit("custom.reply", &[max(5).per("1s")]).start().await;
    let boss = app.sign_in_admin("boss").await;
    let boxes = async || {
        let page = boss.get("/admin/tokens").await.text;
        let names = page.split(BOX).skip(1).map(|rest| rest.split('"').nth(1).unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let mut known = vec!["limits:read", "limits:write", "access:write", "apps:write", "events:read"];
    known.extend(["subjects:clear", "accounts:write", "*", "reply", "verify:shop"]);
    assert_eq!(boxes().await, known);
    let chosen = [("scopes", "reply"), ("scopes", "events:read"), ("scopes", " guard:mail,")];
    let never = [&chosen[..], &[("name", "all"), ("expires_days", "")]].concat();
    let refused = boss.submit("/admin/tokens", "/admin/tokens", &never).await;
    assert!(refused.status == 422 && refused.text.contains("id=\"expires_days-error\""), "{}", refused.text);
    for kept in ["value=\"reply\" checked", "value=\"events:read\" checked", "value=\"guard:mail\""] {
        assert!(refused.text.contains(kept), "{kept}");
    }
    let fields = [&chosen[..], &[("name", "all"), ("expires_days", "365")]].concat();
    assert_eq!(boss.submit("/admin/tokens", "/admin/tokens", &fields).await.status, 201);
    let listed = boss.get("/api/v1/admin/tokens").await;
    assert_eq!(listed.body["tokens"][0]["scopes"], json!(["reply", "guard:mail", "events:read"]));
    assert!(boxes().await.contains(&"guard:mail".to_owned()), "a realm that another token has");
}

#[tokio::test]
async fn a_token_shows_for_which_call_it_was_used_and_from_where() {
    let app = with_limits(&["reply"]).await;
    let boss = app.sign_in_admin("boss").await;
    let token = make(&boss, &["reply"]).await;
    let url = format!("{}/api/v1/admin/events", app.url);
    let refused = app.client().http.get(url).bearer_auth(&token).send().await.unwrap();
    assert_eq!(refused.status(), 403, "not its scope, and a use all the same");
    let listed = boss.get("/api/v1/admin/tokens").await;
    let entry = &listed.body["tokens"][0];
    assert_eq!(entry["last_used_for"], "GET /api/v1/admin/events");
    assert_eq!(entry["last_used_from"], "127.0.0.0/24");
    let page = boss.get("/admin/tokens").await.text;
    assert!(page.contains("<code class=\"call\">GET /api/v1/admin/events</code> 127.0.0.0/24"), "{page}");
}

#[tokio::test]
async fn making_and_revoking_is_recorded_without_the_token() {
    let app = with_limits(&["reply"]).await;
    let boss = app.sign_in_admin("boss").await;
    let token = make(&boss, &["reply"]).await;
    let id = boss.get("/api/v1/admin/tokens").await.body["tokens"][0]["id"].as_str().unwrap().to_owned();
    app.advance(Duration::from_secs(1));
    revoke(&boss, &id).await;
    let acts = super::acts(&app).await;
    let [revoked, made] = acts.as_slice() else { panic!("{acts:#?}") };
    assert_eq!((made.name.as_deref(), revoked.name.as_deref()), (Some("token.create"), Some("token.revoke")));
    assert!(made.actor.is_some() && made.account.is_some() && made.address.is_some());
    for act in [made, revoked] {
        let detail = act.detail.as_deref().unwrap();
        assert!(detail.contains(&id) && !detail.contains(&token), "{detail}");
    }
}
