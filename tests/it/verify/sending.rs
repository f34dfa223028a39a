//! What is sent, to whom, and what it counts in.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::{PHONE, Program, id_of, start, started};
use crate::support::app::{ANSWER, Store, TestApp, on_both_stores};
use crate::support::setup::max;

const HOUR: Duration = Duration::from_secs(3600);

on_both_stores!(
    of_120_sends_in_several_spellings_through_two_tokens_five_are_messages,
    the_same_idempotency_key_is_one_message_and_one_verification,
    a_key_whose_verification_was_approved_is_free_again,
    a_program_has_a_budget_of_its_own_and_a_refusal_counts_nowhere,
    a_challenge_belongs_to_the_program_and_to_the_address_that_was_stated,
);

async fn of_120_sends_in_several_spellings_through_two_tokens_five_are_messages(store: Store) {
    let five_an_hour = TestApp::on(store).limit("sms-phone", &[max(5).per("1h")]);
    let (app, boss, shop) = started(five_an_hour).await;
    let mail = Program::of(&app, &boss, "verify:mail").await;
    let spellings = [
        PHONE,
        "13800138000",
        "138 0013 8000",
        "0086-138-0013-8000",
        "（＋86）138.0013.8000",
        "１３８００１３８０００",
    ];
    let mut sending = JoinSet::new();
    for n in 0..120 {
        let program = if n % 2 == 0 { shop.clone() } else { mail.clone() };
        // Of networks of their own, so that only the number is counted.
        let body = json!({ "to": spellings[n % 6], "address": format!("10.0.{n}.1") });
        sending.spawn(async move {
            let answer = program.call("", body).await;
            match answer.status {
                202 => assert_eq!(answer.body["to"], "+86138****8000"),
                429 => assert_eq!(answer.body["limit"], "sms-phone"),
                _ => panic!("{}", answer.text),
            }
            answer.status == 202
        });
    }
    let sent = sending.join_all().await.into_iter().filter(|sent| *sent).count();
    assert_eq!((sent, app.client().codes(PHONE).await.len()), (5, 5));
    let ours = app.client().ask_code(PHONE, "login").await;
    assert_eq!((ours.status, &ours.body["limit"]), (429, &json!("sms-phone")), "one window for all");
    app.advance(HOUR - Duration::from_micros(1));
    assert_eq!(shop.send(PHONE).await.status, 429);
    app.advance(Duration::from_micros(1));
    assert_eq!(shop.send(PHONE).await.status, 202);
}

async fn the_same_idempotency_key_is_one_message_and_one_verification(store: Store) {
    let (app, boss, shop) = start(store).await;
    let mail = Program::of(&app, &boss, "verify:mail").await;
    let body = json!({ "to": PHONE, "address": "203.0.113.7" });
    let mut sending = JoinSet::new();
    for _ in 0..8 {
        let (shop, body) = (shop.clone(), body.clone());
        sending.spawn(async move { shop.call_once("", body, Some("order-7")).await });
    }
    let answers = sending.join_all().await;
    let first = &answers[0];
    assert!(answers.iter().all(|answer| id_of(answer) == id_of(first)), "{answers:?}");
    assert_eq!(first.body["delivery"], "accepted");
    let sent = async || app.client().codes(PHONE).await.len();
    assert_eq!(sent().await, 1);
    // Of another program, another purpose or another name it is another request.
    let other = json!({ "to": PHONE, "address": "203.0.113.7", "purpose": "pay" });
    let (theirs, pay) = (
        mail.call_once("", body.clone(), Some("order-7")).await,
        shop.call_once("", other, Some("order-7")).await,
    );
    let next = shop.call_once("", body.clone(), Some("order-8")).await;
    let ids = [first, &theirs, &pay, &next].map(id_of);
    assert!((1..4).all(|n| !ids[..n].contains(&ids[n])), "{ids:?}");
    assert_eq!(sent().await, 4);
    for wrong in ["", "a b", &"x".repeat(65)] {
        let answer = shop.call_once("", body.clone(), Some(wrong)).await;
        assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (422, &json!("Idempotency-Key")));
    }
}

async fn a_key_whose_verification_was_approved_is_free_again(store: Store) {
    let (app, _, shop) = start(store).await;
    let body = json!({ "to": PHONE, "address": "203.0.113.7" });
    let again = async |key| id_of(&shop.call_once("", body.clone(), Some(key)).await);
    let newest = async || app.client().codes(PHONE).await.remove(0);
    let first = again("order-7").await;
    shop.guess(&first, &newest().await).await;
    assert_eq!(again("order-7").await, first, "a wrong code uses nothing up");
    shop.approve(&first, &newest().await).await;
    let mut sending = JoinSet::new();
    for _ in 0..8 {
        let (shop, body) = (shop.clone(), body.clone());
        sending.spawn(async move { id_of(&shop.call_once("", body, Some("order-7")).await) });
    }
    let ids = sending.join_all().await;
    assert!(ids.iter().all(|id| *id == ids[0] && *id != first), "{first}: {ids:?}");
    assert_eq!(app.client().codes(PHONE).await.len(), 2, "one more message");
    // Nor is one of use whose code was entered at a newer one.
    let newer = again("order-8").await;
    shop.approve(&newer, &newest().await).await;
    let third = again("order-7").await;
    assert!(third != ids[0] && third != newer);
    shop.approve(&third, &newest().await).await;
}

async fn a_program_has_a_budget_of_its_own_and_a_refusal_counts_nowhere(store: Store) {
    let two = TestApp::on(store).limit("verify-token", &[max(2).per("1h")]);
    let (mut app, boss, shop) = started(two).await;
    let (mail, again) =
        (Program::of(&app, &boss, "verify:mail").await, Program::of(&app, &boss, "verify:shop").await);
    for number in ["+8613800138001", "+8613800138002"] {
        assert_eq!(shop.send(number).await.status, 202);
    }
    for program in [&shop, &again] {
        let refused = program.send("+8613800138003").await;
        assert_eq!((refused.status, refused.problem()), (429, "throttled"), "{}", refused.text);
        assert_eq!((&refused.body["limit"], refused.header("retry-after")), (&json!("verify-token"), "3600"));
    }
    // A minute has room for one message to a number: it has none.
    assert_eq!(mail.send("+8613800138003").await.status, 202);
    if store == Store::Redis {
        app.restart_redis();
        let refused = loop {
            let answer = shop.send("+8613800138004").await;
            if answer.status != 503 {
                break answer;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(
            (refused.status, &refused.body["limit"]),
            (429, &json!("verify-token")),
            "from the ledger"
        );
        assert_eq!(mail.send("+8613800138004").await.status, 202);
    }
    app.advance(HOUR);
    assert_eq!(shop.send("+8613800138005").await.status, 202);
}

async fn a_challenge_belongs_to_the_program_and_to_the_address_that_was_stated(store: Store) {
    let challenged = TestApp::on(store).limit("sms-phone", &[max(1).per("1h").captcha()]);
    let (app, boss, shop) = started(challenged).await;
    let mail = Program::of(&app, &boss, "verify:mail").await;
    assert_eq!(shop.send(PHONE).await.status, 202);
    let asked = async || {
        let asked = shop.send(PHONE).await;
        assert_eq!((asked.status, asked.problem()), (403, "captcha-required"), "{}", asked.text);
        let image = app.client().get(asked.body["captcha"]["image"].as_str().unwrap()).await;
        assert_eq!((image.status, image.header("content-type")), (200, "image/png"));
        asked.body["captcha"]["id"].clone()
    };
    let with = |id: &serde_json::Value, address: &str| json!({ "to": PHONE, "address": address, "captcha": { "id": id, "answer": ANSWER } });
    let refused = async |program: &Program, body| {
        let answer = program.call("", body).await;
        assert_eq!((answer.status, answer.problem()), (403, "captcha-invalid"), "{}", answer.text);
        assert!(answer.body["captcha"]["id"].is_string());
    };
    let id = asked().await;
    refused(&mail, with(&id, "203.0.113.7")).await;
    refused(&shop, with(&id, "198.51.100.1")).await;
    let own = json!(app.client().challenge().await);
    refused(&shop, with(&own, "203.0.113.7")).await;
    // A program that may also ask for its login has no use for this one there, nor the reverse.
    let both = crate::admin::tokens::make(&boss, &["guard:shop", "verify:shop"]).await;
    let captcha = json!({ "id": &id, "answer": ANSWER });
    let attempt = json!({ "login": "ada", "address": "203.0.113.7", "captcha": captcha });
    let url = format!("{}/api/v1/attempts", app.url);
    let attempt = app.client().http.post(url).bearer_auth(both).json(&attempt).send().await.unwrap();
    assert!(attempt.text().await.unwrap().contains(r#""decision":"challenge""#));
    assert_eq!(shop.call("", with(&id, "203.0.113.7")).await.status, 202);
    refused(&shop, with(&id, "203.0.113.7")).await;
    let mut empty = with(&json!(""), "203.0.113.7");
    empty["captcha"]["answer"] = "".into();
    assert_eq!(shop.call("", empty).await.problem(), "captcha-required", "a form passes its empty fields on");
}

#[tokio::test]
async fn a_message_names_its_program_and_binds_no_code_to_our_site() {
    let texts = "[verify.shop]\nprogram = 'Example Shop'\ntext = '{code} for {program}, {minutes} min'\n\
        texts = { de = 'Ihr Code bei {program}: {code}' }\n";
    let setup = TestApp::on(Store::Memory).file(texts).without(&["sms-phone"]);
    let (app, boss, shop) = started(setup.set("server.public_url", "https://login.example")).await;
    let mail = Program::of(&app, &boss, "verify:mail").await;
    let text = async |program: &Program, locale: Option<&str>| {
        let answer =
            program.call("", json!({ "to": PHONE, "address": "203.0.113.7", "locale": locale })).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        let newest = &app.client().get("/dev/outbox.json").await.body[0];
        newest["text"].as_str().unwrap().replace(newest["code"].as_str().unwrap(), "CODE")
    };
    assert_eq!(text(&shop, None).await, "CODE for Example Shop, 5 min");
    assert_eq!(text(&shop, Some("zh-CN")).await, "CODE for Example Shop, 5 min");
    assert_eq!(text(&shop, Some("de-AT")).await, "Ihr Code bei Example Shop: CODE");
    assert!(text(&mail, Some("en")).await.starts_with("mail: your code is CODE, valid for 5 min."));
    let chinese = text(&mail, Some("zh-Hant-TW")).await;
    assert!(chinese.starts_with("【mail】验证码 CODE，5 分钟"), "{chinese}");
    assert!(!chinese.contains("login.example") && !chinese.contains('@'));
    for locale in ["e n", "中文", &"x".repeat(36)] {
        let body = json!({ "to": PHONE, "address": "203.0.113.7", "locale": locale });
        assert_eq!(shop.call("", body).await.body["errors"][0]["field"], "locale", "{locale}");
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_told() {
    let (_app, _, shop) = started(TestApp::on(Store::Memory).set("sms.countries", "['CN']")).await;
    for (to, problem) in
        [("", "invalid-phone"), ("12345", "invalid-phone"), ("+14155550100", "country-not-allowed")]
    {
        let answer = shop.send(to).await;
        assert_eq!((answer.status, answer.problem()), (422, problem), "{to}");
    }
    let with = async |field: &str, value: &str| {
        let mut body = json!({ "to": PHONE, "address": "203.0.113.7" });
        body[field] = value.into();
        let answer = shop.call("", body).await;
        assert_eq!((answer.status, answer.problem()), (422, "invalid-input"), "{field} {value}");
        answer.body["errors"][0]["field"].as_str().unwrap().to_owned()
    };
    for address in ["", "203.0.113.7:80", "203.0.113.0/24", "localhost"] {
        assert_eq!(with("address", address).await, "address", "{address}");
    }
    for purpose in ["", "Sign in", "a:b", "login:x", &"x".repeat(65)] {
        assert_eq!(with("purpose", purpose).await, "purpose", "{purpose}");
    }
    assert_eq!(shop.client.codes(PHONE).await.len(), 0);
}

#[tokio::test]
async fn what_is_denied_paused_or_exempt_by_access_is_so_for_the_address_that_was_stated() {
    let access = "[access]\n\
        deny = [{ network = '203.0.113.0/24', until = '2096-01-01T00:00:00Z', reason = 'x' }]\n\
        allow = [{ network = '198.51.100.0/24', until = '2096-01-01T00:00:00Z', reason = 'x' }]\n\
        pause_sms = [{ prefix = '+86139', until = '2096-01-01T00:00:00Z', reason = 'x' }]\n";
    let setup = TestApp::on(Store::Memory).file(access).limit("program-address", &[max(1).per("1h")]);
    let (_app, _, shop) = started(setup.without(&["sms-phone"])).await;
    let from = async |to: &str, address: &str| {
        let answer = shop.call("", json!({ "to": to, "address": address })).await;
        (answer.status, answer.problem().to_owned())
    };
    assert_eq!(from(PHONE, "203.0.113.7").await, (403, "denied".to_owned()));
    assert_eq!(from(PHONE, "::ffff:203.0.113.7").await, (403, "denied".to_owned()));
    assert_eq!(from("+8613900138000", "192.0.2.1").await, (503, "unavailable".to_owned()));
    for expected in [202, 202] {
        assert_eq!(from(PHONE, "198.51.100.1").await.0, expected);
    }
    assert_eq!(from(PHONE, "192.0.2.1").await.0, 202);
    assert_eq!(from(PHONE, "192.0.2.1").await, (429, "throttled".to_owned()));
}
