//! Who may have codes sent.

use gatehouse::audit::Action;
use serde_json::json;

use super::{PHONE, Program, start};
use crate::audit::events;
use crate::support::app::{Store, TestApp};

#[tokio::test]
async fn only_a_token_of_a_program_may_have_codes_sent() {
    let (app, boss, shop) = start(Store::Memory).await;
    let (id, code) = shop.sent(PHONE).await;
    for scope in ["*", "guard:shop"] {
        let program = Program::of(&app, &boss, scope).await;
        for answer in [program.send(PHONE).await, program.check(&id, &code).await] {
            assert_eq!((answer.status, answer.problem()), (403, "insufficient-scope"), "{scope}");
        }
    }
    let nobody = Program { client: app.client(), token: "ght_x".to_owned() };
    assert_eq!((nobody.send(PHONE).await.status, nobody.check(&id, &code).await.status), (401, 401));
    let body = json!({ "to": PHONE, "address": "203.0.113.7" });
    assert_eq!(boss.call("/verifications", body).await.status, 401, "no cookie counts here");
    shop.approve(&id, &code).await;
}

#[tokio::test]
async fn a_token_is_of_one_program_and_says_so_when_it_is_made() {
    let (_app, boss, _) = start(Store::Memory).await;
    let make =
        async |scopes: &[&str]| boss.call("/admin/tokens", json!({ "name": "x", "scopes": scopes })).await;
    for scopes in [&["verify:a", "verify:b"][..], &["verify:"], &["verify:*"], &["verify:A"]] {
        let answer = make(scopes).await;
        assert_eq!(
            (answer.status, &answer.body["errors"][0]["field"]),
            (422, &json!("scopes")),
            "{scopes:?}"
        );
    }
    assert_eq!(make(&["*", "guard:a", "verify:a"]).await.status, 201);
}

#[tokio::test]
async fn without_a_gateway_there_are_no_verifications() {
    let app = TestApp::on(Store::Memory).set("sms.gateway", "none").start().await;
    let body = json!({ "to": PHONE, "address": "203.0.113.7" });
    assert_eq!(app.client().call("/verifications", body).await.status, 404);
}

#[tokio::test]
async fn events_of_codes_name_the_program_as_the_ledger_does() {
    let (app, boss, _) = start(Store::Memory).await;
    // Named as a purpose of ours, and as a realm may be.
    let program = Program::of(&app, &boss, "verify:login").await;
    let (id, code) = program.sent(PHONE).await;
    program.guess(&id, &code).await;
    program.approve(&id, &code).await;
    let of_codes = [Action::Send, Action::Guess];
    let events = events(&app).await.into_iter().filter(|event| of_codes.contains(&event.action));
    let names: Vec<_> = events.map(|event| event.name.unwrap()).collect();
    assert_eq!(names, ["verify:login:default"; 3]);
    let page = boss.get("/admin/events").await.text;
    assert!(page.contains("Code requested (verify:login:default)"), "{page}");
}
