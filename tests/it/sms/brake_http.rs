//! The brake over HTTP: what strangers send at our pages shuts nothing for anybody's users.

use serde_json::json;

use super::http::bare;
use crate::relay::Logto;
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::verify::Program;

on_both_stores!(
    strangers_who_ask_for_a_range_stop_no_program_and_challenge_registration,
    strangers_who_ask_for_a_block_stop_no_program_and_challenge_registration,
    a_braked_verifier_serves_the_numbers_that_it_has_verified_and_answers_all_alike,
);

async fn solved(client: &Client, phone: &str, purpose: &str) -> Answer {
    let asked = client.ask_code(phone, purpose).await;
    assert_eq!((asked.status, asked.problem()), (403, "captcha-required"), "{}", asked.text);
    let captcha = json!({ "id": asked.body["captcha"]["id"], "answer": ANSWER });
    client.call("/sms/codes", json!({ "phone": phone, "purpose": purpose, "captcha": captcha })).await
}

/// Everybody else's users, at another number of what strangers have asked for.
async fn others_are_served(app: &TestApp, boss: &Client, phone: &str) {
    let shop = Program::of(app, boss, "verify:shop").await;
    let sent = shop.send(phone).await;
    assert_eq!((sent.status, sent.body.get("short")), (202, None), "{}", sent.text);
    let idp = Logto::of(app, boss, "relay:idp").await;
    assert_eq!(idp.send(&format!("{}1", &phone[1..13]), "012345").await.status, 200);
    let client = app.client_at("192.0.2.9");
    let new = format!("{}2", &phone[..13]);
    let sent = solved(&client, &new, "register").await;
    assert_eq!((sent.status, sent.body.get("short")), (202, None), "{}", sent.text);
    let body = json!({ "login": "ada", "password": PASSWORD, "phone": new,
        "code": app.client().codes(&new).await[0] });
    assert_eq!(client.call("/register", body).await.status, 201);
    assert!(boss.get("/api/v1/admin/brakes").await.body["brakes"].as_array().unwrap().is_empty());
}

async fn strangers_who_ask_for_a_range_stop_no_program_and_challenge_registration(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    let boss = app.sign_in_admin("boss").await;
    for n in 0..100 {
        let stranger = app.client_at(&format!("198.51.{}.{}", n % 25, n));
        let asked = stranger.ask_code(&format!("+8613800{n:02}0{n:03}"), "login").await;
        assert_eq!(asked.status, 202, "{n}: {}", asked.text);
    }
    others_are_served(&app, &boss, "+8613800990007").await;
}

async fn strangers_who_ask_for_a_block_stop_no_program_and_challenge_registration(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    let boss = app.sign_in_admin("boss").await;
    for n in 0..20 {
        let stranger = app.client_at(&format!("198.51.{}.{n}", n % 5));
        let asked = stranger.ask_code(&format!("+86138009900{:02}", 50 + n), "login").await;
        assert_eq!(asked.status, if n < 10 { 202 } else { 403 }, "{n}: {}", asked.text);
    }
    others_are_served(&app, &boss, "+8613800990007").await;
}

async fn a_braked_verifier_serves_the_numbers_that_it_has_verified_and_answers_all_alike(store: Store) {
    let setup = TestApp::on(store).set("sms.brake.min_sent", 10);
    let app = setup.without(&["sms-phone", "sms-address", "sms-network", "sms-prefix"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    let shop = Program::of(&app, &boss, "verify:shop").await;
    let (old, young, new) = ("+8613800138010", "+8613800138011", "+8613800138012");
    let (id, code) = shop.sent(old).await;
    shop.approve(&id, &code).await;
    app.advance(std::time::Duration::from_secs(3601));
    let (id, code) = shop.sent(young).await;
    shop.approve(&id, &code).await;
    let ask = async |phone: &str, network: usize| {
        let body = json!({ "to": phone, "address": format!("10.0.{network}.1") });
        let asked = shop.call("", body.clone()).await;
        if asked.status != 403 {
            return asked;
        }
        let mut body = body;
        body["captcha"] = json!({ "id": asked.body["captcha"]["id"], "answer": ANSWER });
        shop.call("", body).await
    };
    let mut asked = 0;
    while ask(&format!("+861380013{:04}", 9000 + asked), asked).await.body.get("short").is_none() {
        asked += 1;
    }
    let told = boss.get("/api/v1/admin/brakes").await;
    assert_eq!(told.body["brakes"][0]["program"], "verify:shop", "{}", told.text);
    let page = boss.get("/admin/messages").await;
    assert!(page.text.contains("verify:shop</span>"), "{}", page.text);
    let mut answers = Vec::new();
    for phone in [old, young, new] {
        let sent = shop.client.codes(phone).await.len();
        let answer = ask(phone, 200).await;
        assert_eq!((answer.status, &answer.body["short"]), (202, &json!(true)), "{}", answer.text);
        let id = answer.body["id"].as_str().unwrap().to_owned();
        let (status, text, headers) = bare(&answer);
        let text = text.replace(&id, "…").replace(&phone[10..], "…");
        answers.push((status, text, headers));
        if phone == old {
            super::rig::until(async || shop.client.codes(phone).await.len() > sent).await;
            shop.approve(&id, &shop.client.codes(phone).await[0]).await;
        } else {
            assert_eq!(shop.check(&id, "000000").await.status, 401);
        }
    }
    assert!(answers.iter().all(|other| *other == answers[0]), "{answers:?}");
    // The two, and the one that met the brake first.
    let withheld = async || boss.get("/api/v1/admin/messages?state=withheld").await.body["messages"].clone();
    super::rig::until(async || withheld().await.as_array().unwrap().len() == 3).await;
    // Only that program's brake is lifted by its name. The hour has made the password necessary again.
    assert_eq!(boss.login("boss", PASSWORD).await.status, 200);
    let lift = async |program: &str| {
        let path = format!("/api/v1/admin/brakes/%2B861380013?reason=called&program={program}");
        Answer::read(boss.http.delete(format!("{}{path}", app.url)).send().await.unwrap()).await.status
    };
    assert_eq!((lift("verify:mail").await, lift("").await, lift("verify:shop").await), (404, 404, 204));
    let free = shop.send("+8613800138003").await;
    assert_eq!((free.status, free.body.get("short")), (202, None), "{}", free.text);
}
