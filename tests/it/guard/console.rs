//! Realms in the console: what a name or an address of a realm has used up, and how it is let in again.

use serde_json::{Value, json};

use super::{Program, start};
use crate::support::app::{Answer, Client, Store, on_both_stores};

on_both_stores!(
    a_name_of_a_realm_is_shown_with_its_failures_and_let_in_again,
    an_address_of_a_realm_is_let_in_again_there,
);

fn path(limit: &str, subject: &str) -> String {
    let subject: String = url::form_urlencoded::byte_serialize(subject.as_bytes()).collect();
    format!("/api/v1/admin/subjects/{limit}/{subject}")
}

async fn hits(boss: &Client, limit: &str, subject: &str) -> usize {
    let answer = boss.get(&path(limit, subject)).await;
    assert_eq!(answer.status, 200, "{limit} {subject}: {}", answer.text);
    answer.body["hits"].as_array().unwrap().len()
}

async fn clear(boss: &Client, limit: &str, subject: &str) {
    let request = boss.http.delete(format!("{}{}", boss.url, path(limit, subject)));
    let answer = Answer::read(request.json(&json!({ "reason": "called us" })).send().await.unwrap()).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
}

async fn a_name_of_a_realm_is_shown_with_its_failures_and_let_in_again(store: Store) {
    let (app, boss, shop) = start(store).await;
    for _ in 0..3 {
        shop.fail("ada@example.com").await;
    }
    assert_eq!(shop.ask("ada@example.com").await["decision"], "challenge");
    let subject = "guard:shop:ADA@example.com";
    assert_eq!(hits(&boss, "guard-account", subject).await, 3);
    assert_eq!(hits(&boss, "guard-account", "guard:mail:ada@example.com").await, 0, "another realm");
    let page = boss.submit("/admin/lookup", "/admin/lookup", &[("asked", subject)]).await;
    assert_eq!(page.status, 303, "{}", page.text);
    let page = boss.get("/admin/lookup").await;
    assert!(
        page.text.contains("Name at another login") && page.text.contains("3 of 3 used"),
        "{}",
        page.text
    );
    clear(&boss, "guard-account", subject).await;
    assert_eq!(hits(&boss, "guard-account", subject).await, 0);
    assert_eq!(shop.ask("ada@example.com").await["decision"], "go");
    // A store that comes back empty does not bring it back, and the event says who it was.
    let audit = &app.services.audit;
    audit.flush().await;
    let events =
        audit.log().page(&gatehouse::audit::EventFilter::default(), None, 100).await.unwrap().entries;
    let cleared = events.iter().find(|event| event.name.as_deref() == Some("subject.clear")).unwrap();
    let failed = events.iter().find(|event| event.name.as_deref() == Some("shop")).unwrap();
    assert_eq!(cleared.account.as_ref().unwrap().key, failed.account.as_ref().unwrap().key);
    let detail: Value = serde_json::from_str(cleared.detail.as_deref().unwrap()).unwrap();
    assert_eq!((&detail["realm"], &detail["reason"]), (&json!("shop"), &json!("called us")));
}

async fn an_address_of_a_realm_is_let_in_again_there(store: Store) {
    let (app, boss, shop) = start(store).await;
    let mail = Program::of(&app, &boss, "guard:mail").await;
    for program in [&shop, &mail] {
        for n in 0..20 {
            program.fail(&format!("user{n}")).await;
        }
        assert_eq!(program.ask("ada").await["decision"], "challenge");
    }
    let subject = "guard:shop:::ffff:203.0.113.7";
    assert_eq!(hits(&boss, "guard-address", subject).await, 20);
    assert_eq!(hits(&boss, "guard-network", subject).await, 20);
    assert_eq!(hits(&boss, "login-address", "203.0.113.7").await, 0, "not at our own sign-in");
    clear(&boss, "guard-address", subject).await;
    assert_eq!(shop.ask("ada").await["decision"], "go");
    assert_eq!(mail.ask("ada").await["decision"], "challenge");
    assert_eq!(hits(&boss, "guard-network", subject).await, 20);
}

#[tokio::test]
async fn a_subject_of_a_realm_names_the_realm() {
    let (_app, boss, shop) = start(Store::Memory).await;
    shop.succeed("ada").await;
    let device = "00112233445566778899aabbccddeeff";
    assert_eq!(hits(&boss, "guard-device", &format!("guard:shop:ada@{device}")).await, 0);
    for (limit, subject) in [
        ("guard-account", "ada"),
        ("guard-account", "shop:ada"),
        ("guard-account", "guard:Shop:ada"),
        ("guard-account", "guard:shop:"),
        ("guard-account", "guard:shop:a\u{200b}"),
        ("guard-device", "guard:shop:ada"),
        ("guard-address", "203.0.113.7"),
        ("guard-address", "guard:shop:ada"),
        ("guard-network", "guard:shop:203.0.113.0/24"),
    ] {
        let answer = boss.get(&path(limit, subject)).await;
        assert_eq!((answer.status, answer.problem()), (404, "unknown-subject"), "{limit} {subject}");
    }
}
