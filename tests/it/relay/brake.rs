//! What the brake makes of codes that are checked elsewhere.

use serde_json::json;

use super::{Logto, id_of, refused};
use crate::support::app::{Store, TestApp, on_both_stores};

on_both_stores!(
    where_outcomes_are_never_told_conversion_is_not_judged_but_the_prefix_holds,
    where_outcomes_are_told_a_brake_judges_by_them,
    a_range_is_braked_for_a_relay_by_both_rungs_together,
);

const BRAKE: &str =
    "[sms.brake]\nmin_sent = 10\n[limits.program-prefix]\nrules = [{ max = 40, window = '1h' }]\n";

async fn where_outcomes_are_never_told_conversion_is_not_judged_but_the_prefix_holds(store: Store) {
    let app = TestApp::on(store).file(BRAKE).start().await;
    let logto = Logto::of(&app, &app.sign_in_admin("boss").await, "relay:idp").await;
    let mut last = None;
    for n in 0..45 {
        let answer = logto.send(&format!("861380013{n:04}"), "012345").await;
        if answer.status != 200 {
            last = Some((n, refused(&answer).0, answer.body["limit"].clone()));
            break;
        }
    }
    assert_eq!(last, Some((40, 429, json!("program-prefix"))));
}

async fn where_outcomes_are_told_a_brake_judges_by_them(store: Store) {
    let app = TestApp::on(store).file(BRAKE).without(&["sms-phone"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    let logto = Logto::of(&app, &boss, "relay:idp").await;
    let proven = id_of(&logto.send("8613800139999", "012345").await);
    assert_eq!(logto.tell(&proven, "used").await, 204);
    app.advance(std::time::Duration::from_secs(3601));
    let young = id_of(&logto.send("8613800139998", "012345").await);
    assert_eq!(logto.tell(&young, "used").await, 204);
    // Nobody can solve a challenge there, so none is asked for. The one that was entered is none of the ten.
    for n in 0..10 {
        id_of(&logto.send(&format!("861380013{n:04}"), "012345").await);
    }
    let brakes = async || boss.get("/api/v1/admin/brakes").await.body["brakes"].clone();
    assert_eq!(brakes().await, json!([]));
    let client = app.client();
    let sent_to = async |number: &str| client.codes(number).await.len();
    let mut answers = Vec::new();
    for (number, before, after) in [("8613800139999", 1, 2), ("8613800139998", 1, 1), ("8613800139997", 0, 0)]
    {
        assert_eq!(sent_to(&format!("+{number}")).await, before);
        let answer = logto.send(number, "543210").await;
        let id = id_of(&answer);
        answers.push(answer.text.replace(&id, "…"));
        let messages =
            async || boss.get("/api/v1/admin/messages?state=pending").await.body["messages"].clone();
        crate::sms::rig::until(async || messages().await == json!([])).await;
        assert_eq!(sent_to(&format!("+{number}")).await, after, "{number}");
    }
    assert!(answers.iter().all(|other| *other == answers[0]), "{answers:?}");
    assert_eq!(brakes().await[0]["program"], "relay:idp");
    // Of another prefix they are entered.
    for n in 0..20 {
        let id = id_of(&logto.send(&format!("861370013{n:04}"), "012345").await);
        assert_eq!(logto.tell(&id, "used").await, 204);
    }
}

/// A challenge cannot be shown, so the range waits for as many as both rungs are elsewhere, from a hundred networks.
async fn a_range_is_braked_for_a_relay_by_both_rungs_together(store: Store) {
    let limits = ["sms-phone", "sms-address", "sms-network", "sms-prefix"];
    let setup = TestApp::on(store).file("[sms.brake]\nmin_sent_range = 20\nmin_solved_range = 100\n");
    let app = setup.without(&limits).start().await;
    let boss = app.sign_in_admin("boss").await;
    let logto = Logto::of(&app, &boss, "relay:idp").await;
    let told = id_of(&logto.send("8613900130000", "012345").await);
    assert_eq!(logto.tell(&told, "failed").await, 204);
    let send = async |n: usize, network: usize| {
        let body = json!({ "to": format!("8613800{:02}{n:04}", n % 100), "type": "SignIn",
            "payload": { "code": "012345" }, "ip": format!("10.{}.{}.1", network / 256, network % 256) });
        id_of(&logto.call("logto/idp", &body).await);
    };
    for n in 0..240 {
        send(n, n % 119).await;
    }
    let brakes = async || boss.get("/api/v1/admin/brakes").await.body["brakes"].as_array().unwrap().len();
    assert_eq!(brakes().await, 0, "of 119 networks one each");
    send(240, 119).await;
    assert_eq!(brakes().await, 0);
    send(241, 120).await;
    assert_eq!(brakes().await, 1);
}
