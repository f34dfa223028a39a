//! The ledger and the brakes, as only administrators see them.

use std::time::Duration;

use gatehouse::accounts::Username;
use serde_json::json;

use super::flows::{NEW, no_limits};
use super::http::{NUMBER, OTHER};
use crate::support::app::{Answer, PASSWORD, Store, TestApp, on_both_stores, subject_path};
use crate::support::setup::max;

#[tokio::test]
async fn a_one_time_password_opens_nothing_but_its_change() {
    let app = TestApp::start(Store::Memory).await;
    let (login, services) = (Username::parse("gatekeeper").unwrap(), &app.services);
    let hash = services.hasher.hash_new(PASSWORD, &login).await.unwrap().unwrap();
    services.accounts.create_first_admin(&login, &hash).await.unwrap().unwrap();
    let client = app.client();
    assert_eq!(client.login("gatekeeper", PASSWORD).await.body["user"]["must_change_password"], true);
    assert_eq!(client.get("/api/v1/session").await.status, 200);
    let phone = json!({ "phone": NUMBER, "code": "123456" });
    for answer in [
        client.ask_code(NUMBER, "verify").await,
        client.call("/account/phone", phone).await,
        client.get("/api/v1/admin/messages").await,
        client.get("/api/v1/admin/brakes").await,
    ] {
        assert_eq!((answer.status, answer.problem()), (403, "password-change-required"));
    }
    for path in ["/account/phone", "/admin/messages"] {
        assert_eq!(client.get(path).await.header("location"), format!("/account?next={path}"));
    }
    let others = client.submit("/account", "/account/sessions/revoke-others", &[]).await;
    assert_eq!((others.status, others.header("location")), (303, "/account"));
    let fields = [("current_password", PASSWORD), ("new_password", NEW)];
    assert_eq!(client.submit("/account", "/account/password", &fields).await.status, 303);
    assert_eq!(client.get("/api/v1/admin/messages").await.status, 200);
}

on_both_stores!(
    the_ledger_is_for_administrators,
    a_message_shows_what_its_number_has_used_as_the_look_up_does,
);

async fn the_ledger_is_for_administrators(store: Store) {
    let app = TestApp::on(store)
        .without(&["sms-phone", "sms-address", "sms-network", "sms-prefix"])
        .set("sms.brake.enabled", false)
        .start()
        .await;
    let user = app.client();
    user.register("alice", PASSWORD).await;
    for path in ["/api/v1/admin/messages", "/api/v1/admin/brakes"] {
        assert_eq!(app.client().get(path).await.problem(), "unauthenticated");
        assert_eq!(user.get(path).await.problem(), "forbidden");
    }
    assert_eq!(user.get("/admin/messages").await.status, 403);
    let lift = user.submit("/account", "/admin/brakes/lift", &[("prefix", "+861380013")]).await;
    assert_eq!(lift.status, 403);

    let boss = app.sign_in_admin("boss").await;
    for n in 0..55 {
        app.advance(Duration::from_secs(1));
        assert_eq!(user.ask_code(if n < 2 { OTHER } else { NUMBER }, "login").await.status, 202);
    }
    let code = user.codes(OTHER).await.remove(0);
    app.client().call("/sms/login", json!({ "phone": OTHER, "code": code })).await;
    let newest = boss.get("/api/v1/admin/messages").await;
    let next = newest.body["next"].as_str().unwrap();
    let older = boss.get(&format!("/api/v1/admin/messages?after={next}")).await;
    let count = |answer: &Answer| answer.body["messages"].as_array().unwrap().len();
    assert_eq!((count(&newest), count(&older), older.body.get("next")), (50, 5, None));
    let first = &newest.body["messages"][0];
    assert_eq!((&first["phone"], &first["state"]), (&json!("+861380013****"), &json!("accepted")));
    assert!(!newest.text.contains(NUMBER) && !newest.text.contains(&code));
    assert!(older.body["messages"][3]["entered_at"].is_string(), "{}", older.text);
    let found = boss.get("/api/v1/admin/messages?prefix=%2B861390013&state=accepted").await;
    assert_eq!(count(&found), 2, "{}", found.text);
    assert_eq!(count(&boss.get("/api/v1/admin/messages?state=refused").await), 0);
    for query in ["state=x", "after=x", "limit=0", "limit=201"] {
        assert_eq!(boss.get(&format!("/api/v1/admin/messages?{query}")).await.status, 422, "{query}");
    }
    let page = boss.get("/admin/messages").await;
    assert_eq!(page.text.matches("+861380013****").count(), 50);
    let after = page.text.split("href=\"/admin/messages?after=").nth(1).unwrap().split('"').next().unwrap();
    let older = boss.get(&format!("/admin/messages?after={after}")).await;
    assert_eq!(older.text.matches("****</bdi>").count(), 5);
    assert!(
        boss.get("/admin/messages?state=refused&prefix=%2B861390013")
            .await
            .text
            .contains("No matching messages")
    );
}

async fn a_message_shows_what_its_number_has_used_as_the_look_up_does(store: Store) {
    let rules = [max(5).per("1h"), max(9).per("1d")];
    let app = TestApp::on(store).limit("sms-phone", &rules).set("sms.brake.enabled", false).start().await;
    let (user, boss) = (app.client(), app.sign_in_admin("boss").await);
    for phone in [NUMBER, NUMBER, OTHER, NUMBER] {
        app.advance(Duration::from_secs(1));
        assert_eq!(user.ask_code(phone, "login").await.status, 202);
    }
    let used = async || {
        let page = boss.get("/admin/messages").await.text;
        let cells = page.split("<td class=\"used\">").skip(1);
        cells.map(|rest| rest.split('<').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let counted = async |phone: &str| {
        let log = boss.get(&subject_path("sms-phone", phone)).await;
        log.body["rules"][0]["count"].as_u64().unwrap_or_else(|| panic!("{}", log.text))
    };
    assert_eq!(used().await, ["3", "1", "3", "3"].map(|sent| format!("{sent} of 5")));
    assert_eq!((counted(NUMBER).await, counted(OTHER).await), (3, 1));
    let page = boss.get("/admin/messages").await.text;
    assert_eq!(page.matches(">127.0.0.0/24</a>").count(), 4, "{page}");
    let clear = [("asked", NUMBER), ("limit", "sms-phone"), ("reason", "called")];
    assert_eq!(boss.submit("/admin/lookup", "/admin/lookup/clear", &clear).await.status, 303);
    assert!(boss.get("/admin/lookup?typed").await.text.contains("</bdi>: Unlocked."));
    assert_eq!((&*used().await[0], counted(NUMBER).await), ("0 of 5", 0));
    app.advance(Duration::from_secs(3600));
    assert!(used().await.iter().all(|used| used == "0 of 5"));
    assert_eq!(boss.get("/api/v1/admin/messages").await.body["messages"][0]["asked_from"], "127.0.0.0/24");
}

#[tokio::test]
async fn a_braked_prefix_is_shown_and_lifted() {
    let app = no_limits().set("sms.brake.min_sent", 1).start().await;
    let (user, boss) = (app.client(), app.sign_in_admin("boss").await);
    let brake = async || {
        for _ in 0..10 {
            // A registration is refused; a sign-in requires a challenge.
            let answer = user.ask_code(NUMBER, "register").await;
            if answer.status == 429 {
                return answer.body["limit"].clone();
            }
        }
        panic!("nothing brakes");
    };
    assert_eq!(brake().await, "sms-brake");
    let listed = boss.get("/api/v1/admin/brakes").await;
    assert_eq!(listed.body["brakes"][0]["prefix"], "+861380013", "{}", listed.text);
    assert!(boss.get("/admin/messages").await.text.contains("+861380013…"));
    assert_eq!(user.ask_code(OTHER, "login").await.status, 202, "others are not stopped");
    let lift = [("prefix", "+861380013"), ("reason", "a campaign of <ours>")];
    let silent = boss.submit("/admin/messages", "/admin/brakes/lift", &[lift[0], ("reason", " ")]).await;
    assert_eq!(silent.status, 422);
    assert!(silent.text.contains("id=\"reason-0-error\"") && silent.text.contains("+861380013…"));
    let lifted = boss.submit("/admin/messages", "/admin/brakes/lift", &lift).await;
    assert_eq!((lifted.status, lifted.header("location")), (303, "/admin/messages"));
    assert!(boss.get("/admin/messages").await.text.contains("<bdi>+861380013</bdi>: Brake lifted."));
    assert_eq!(boss.post("/admin/brakes/lift", &lift).await.status, 403, "no token");
    let events = boss.get("/admin/events").await.text;
    assert!(events.contains("a campaign of &#60;ours&#62;"), "{events}");
    assert!(events.contains("Brake on a prefix</span>"), "without a rule");
    // The password and the reason are asked for on the way, and neither is lost.
    app.advance(Duration::from_secs(1));
    assert_eq!(brake().await, "sms-brake");
    app.advance(Duration::from_secs(16 * 60));
    let asked = boss.submit("/admin/messages", "/admin/brakes/lift", &lift).await;
    assert_eq!(
        (asked.status, asked.hidden("reason").as_deref()),
        (200, Some("a campaign of &#60;ours&#62;"))
    );
    let token = asked.csrf_token();
    let fields = [lift[0], lift[1], ("password", PASSWORD), ("csrf_token", &token)];
    assert_eq!(boss.post("/admin/brakes/lift", &fields).await.header("location"), "/admin/messages");
    app.advance(Duration::from_secs(1));
    assert_eq!(brake().await, "sms-brake");
    let lift = async || {
        let path = "/api/v1/admin/brakes/%2B861380013?reason=called";
        let request = boss.http.delete(format!("{}{path}", app.url));
        Answer::read(request.send().await.unwrap()).await
    };
    assert_eq!(lift().await.status, 204);
    assert_eq!(lift().await.problem(), "not-found");
    let events = boss.get("/api/v1/admin/events?action=admin&limit=1").await;
    assert!(events.text.contains(r#"\"reason\":\"called\""#), "{}", events.text);
    let long = json!({ "reason": "x".repeat(501) });
    assert_eq!(boss.delete("/api/v1/admin/brakes/%2B861380013", long).await.status, 422);
    assert_eq!(user.ask_code(NUMBER, "login").await.status, 202);
}
