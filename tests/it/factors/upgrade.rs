//! While an instance of a version before second factors runs, nobody sets them up.

use gatehouse::accounts::{AccountAct, Username};
use gatehouse::db::Db;
use sqlx::query;

use super::*;
use crate::support::app::{Store, on_both_stores};

on_both_stores! {
    while_an_older_instance_runs_no_app_is_set_up,
}

/// As an instance writes it that knows no second factors.
const OLDER: &str = "INSERT INTO instances (id, host, started_at, seen_at, version, applied_at, refused)
    VALUES ('older', 'host:1', $1, $1, 'v', $1, NULL)";

async fn while_an_older_instance_runs_no_app_is_set_up(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let browser = app.client();
    browser.register("boris", PASSWORD).await;
    let proposed = browser.call("/totp", json!({})).await;
    let code = totp(&app, proposed.body["secret"].as_str().expect("a secret"));
    let now = app.clock.now().0;
    match &Db::connect(&app.database).await.unwrap() {
        Db::Sqlite(pools) => {
            query(OLDER).bind(now).execute(pools.reachable().unwrap()).await.map(drop).unwrap()
        }
        Db::Postgres(pools) => {
            query(OLDER).bind(now).execute(pools.reachable().unwrap()).await.map(drop).unwrap()
        }
    }
    let refused = put(&browser, "/totp", json!({ "code": code })).await;
    assert_eq!((refused.status, refused.problem()), (409, "upgrade-unfinished"), "{}", refused.text);
    assert_eq!(browser.call("/totp", json!({})).await.problem(), "upgrade-unfinished");
    for fields in [&[("act", "propose-totp")][..], &[("act", "use-totp"), ("code", &code)]] {
        let page = browser.submit("/account/factors", "/account/factors", fields).await;
        assert_eq!(page.status, 409);
        assert!(page.text.contains("An upgrade of the servers is not finished"), "{}", page.text);
    }
    let admin = app.client();
    admin.register("carol", PASSWORD).await;
    let carol = app.services.accounts.find(&Username::parse("carol").unwrap()).await.unwrap().unwrap();
    app.services.accounts.change(carol.id, AccountAct::MakeAdmin, false).await.unwrap();
    admin.login("carol", PASSWORD).await;
    let version = admin.get("/admin/factors").await.hidden("version").unwrap();
    let save = async |require| {
        let fields =
            [("version", version.as_str()), ("require", require), ("grace", "1d"), ("trust_device", "0s")];
        let pressed = [("do", "save"), ("reason", "an audit")];
        admin.submit("/admin/factors", "/admin/factors", &[&fields[..], &pressed].concat()).await.status
    };
    assert_eq!(save("admins").await, 409);
    assert_eq!(app.services.live.snapshot().factors.require, []);
    assert_eq!(save("").await, 303, "nobody has to have one");
    // Those that are there are asked for, and can be taken away.
    first_step(&owner.browser, "alice").await;
    assert_eq!(by_totp(&owner.browser, &totp(&app, &owner.secret)).await.status, 200);
    app.advance(Duration::from_secs(60));
    let code = totp(&app, proposed.body["secret"].as_str().unwrap());
    let used = put(&browser, "/totp", json!({ "code": code })).await;
    assert_eq!(used.status, 200, "a minute of silence: {}", used.text);
}
