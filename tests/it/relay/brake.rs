//! What the brake makes of codes that are checked elsewhere.

use serde_json::json;

use super::{Logto, id_of, refused};
use crate::sms::administration::admin;
use crate::support::app::{Store, TestApp, on_both_stores};

on_both_stores!(
    where_outcomes_are_never_told_conversion_is_not_judged_but_the_prefix_holds,
    where_outcomes_are_told_a_brake_judges_by_them,
);

const BRAKE: &str =
    "[sms.brake]\nmin_sent = 10\n[limits.program-prefix]\nrules = [{ max = 40, window = '1h' }]\n";

async fn where_outcomes_are_never_told_conversion_is_not_judged_but_the_prefix_holds(store: Store) {
    let app = TestApp::on(store).file(BRAKE).start().await;
    let logto = Logto::of(&app, &admin(&app).await, "relay:idp").await;
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
    let app = TestApp::on(store).file(BRAKE).start().await;
    let logto = Logto::of(&app, &admin(&app).await, "relay:idp").await;
    let told = id_of(&logto.send("8613900130000", "012345").await);
    assert_eq!(logto.tell(&told, "failed").await, 204);
    let mut sent = 0;
    let braked = loop {
        let answer = logto.send(&format!("861380013{sent:04}"), "012345").await;
        if answer.status != 200 {
            break answer;
        }
        sent += 1;
    };
    assert_eq!((sent, &braked.body["limit"]), (10, &json!("sms-brake")));
    // Of another prefix they are entered.
    for n in 0..20 {
        let id = id_of(&logto.send(&format!("861370013{n:04}"), "012345").await);
        assert_eq!(logto.tell(&id, "used").await, 204);
    }
}
