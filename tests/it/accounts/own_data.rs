//! What owners download and delete, with their password asked for afresh.

use gatehouse::accounts::Username;

use crate::support::app::{Client, PASSWORD, Store, TestApp, on_both_stores};

on_both_stores!(an_owner_downloads_what_is_stored, an_owner_deletes_the_account_for_good);

async fn alice(app: &TestApp) -> Client {
    app.register("alice").await;
    let client = app.client();
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
    client
}

async fn an_owner_downloads_what_is_stored(store: Store) {
    let app = TestApp::start(store).await;
    let client = alice(&app).await;
    let wrong = client
        .submit("/account/export", "/account/export", &[("current_password", "a wrong password")])
        .await;
    assert_eq!(wrong.status, 422, "{}", wrong.text);
    let file = client.submit("/account/export", "/account/export", &[("current_password", PASSWORD)]).await;
    assert_eq!(file.status, 200, "{}", file.text);
    assert!(file.header("content-disposition").starts_with("attachment"));
    assert!(file.header("cache-control").contains("no-store"), "{:?}", file.headers);
    assert_eq!(file.body["account"]["login"], "alice");
    assert_eq!(file.body["sessions"].as_array().unwrap().len(), 2);
    assert!(!file.text.contains("argon2"), "{}", file.text);
    assert_eq!(app.client().get("/account/export").await.status, 303, "nobody else");
}

async fn an_owner_deletes_the_account_for_good(store: Store) {
    let app = TestApp::start(store).await;
    let (client, elsewhere) = (alice(&app).await, app.client());
    assert_eq!(elsewhere.login("alice", PASSWORD).await.status, 200);
    let wrong = client
        .submit("/account/delete", "/account/delete", &[("current_password", "a wrong password")])
        .await;
    assert_eq!(wrong.status, 422, "{}", wrong.text);
    let token = client.get("/account/delete").await.csrf_token();
    let fields = [("current_password", PASSWORD), ("csrf_token", &*token)];
    for click in ["first", "second"] {
        let gone = client.post("/account/delete", &fields).await;
        assert_eq!((gone.status, gone.header("location")), (303, "/login"), "{click}: {}", gone.text);
    }
    for browser in [&client, &elsewhere] {
        assert_eq!(browser.get("/api/v1/session").await.status, 401);
    }
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 401);
    assert_eq!(app.client().register("alice", PASSWORD).await.problem(), "login-taken");
    let account = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap();
    assert!(account.deleted_at.is_some() && account.password_hash.is_none());
}
