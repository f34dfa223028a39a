//! What administrators see of second factors.

use gatehouse::accounts::Username;

use super::moving::add_passkey;
use super::*;
use crate::support::app::{Store, on_both_stores};

on_both_stores! {
    the_list_of_accounts_says_which_factor_each_has,
}

async fn the_list_of_accounts_says_which_factor_each_has(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    owner(&app, "alice").await;
    owner(&app, "clara").await;
    let proposed = app.client();
    proposed.register("boris", PASSWORD).await;
    assert_eq!(proposed.call("/totp", json!({})).await.status, 201);
    let id = async |login: &str| {
        app.services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap().id.to_string()
    };
    add_passkey(&app, &id("clara").await).await;
    let list = boss.get("/api/v1/admin/accounts?login=").await;
    let factors: Vec<_> = list.body["accounts"].as_array().unwrap().iter().collect();
    let factors =
        factors.iter().map(|account| (account["login"].as_str(), account["second_factor"].as_str()));
    assert_eq!(
        factors.collect::<Vec<_>>(),
        [
            (Some("alice"), Some("totp")),
            (Some("boris"), None),
            (Some("boss"), None),
            (Some("clara"), Some("passkey"))
        ]
    );
    for (login, factor) in [("alice", json!("totp")), ("boris", json!(null)), ("clara", json!("passkey"))] {
        let one = boss.get(&format!("/api/v1/admin/accounts/{}", id(login).await)).await;
        assert_eq!(one.body["second_factor"], factor, "{}", one.text);
    }
    let page = boss.get("/admin/accounts").await.text;
    assert!(page.contains("<td>App</td>") && page.contains("<td>Passkey</td>"), "{page}");
}
