//! Programs in the console and the API: what a number or a program has used up, and how it is let in again.

use serde_json::json;

use super::{PHONE, Program, id_of, other_than, start};
use crate::guard::console::hits;
use crate::support::app::{Store, on_both_stores, subject_path};

on_both_stores!(
    wrong_codes_in_a_program_are_looked_up_and_cleared_there,
    what_a_program_has_sent_is_looked_up_and_cleared,
);

const IN_SHOP: &str = "verify:shop:+8613800138000";

async fn wrong_codes_in_a_program_are_looked_up_and_cleared_there(store: Store) {
    let (app, boss, shop) = start(store).await;
    let mail = Program::of(&app, &boss, "verify:mail").await;
    let (id, code) = shop.sent(PHONE).await;
    for _ in 0..5 {
        shop.guess(&id, &code).await;
    }
    assert_eq!(shop.check(&id, &code).await.status, 429);
    let (theirs, their_code) = mail.sent(PHONE).await;
    mail.guess(&theirs, &their_code).await;
    let client = app.client();
    let own = client.code(PHONE, "login").await;
    for _ in 0..2 {
        let wrong = json!({ "phone": PHONE, "code": other_than(&own) });
        assert_eq!(client.call("/sms/login", wrong).await.status, 401);
    }
    let counts = async || {
        let mut counts = Vec::new();
        for subject in [IN_SHOP, "verify:mail:13800138000", PHONE] {
            counts.push(hits(&boss, "sms-guess", subject).await);
        }
        counts
    };
    assert_eq!(counts().await, [5, 1, 2]);
    let asked = boss.submit("/admin/lookup", "/admin/lookup", &[("asked", IN_SHOP)]).await;
    assert_eq!(asked.status, 303, "{}", asked.text);
    let page = boss.get("/admin/lookup?typed").await.text;
    assert!(page.contains("Number in another program") && page.contains("5 of 5 used"), "{page}");
    assert_eq!(boss.clear("sms-guess", PHONE).await.status, 204);
    assert_eq!(counts().await, [5, 1, 0], "only what it names");
    assert_eq!(shop.check(&id, &code).await.status, 429);
    assert_eq!(boss.clear("sms-guess", IN_SHOP).await.status, 204);
    assert_eq!(counts().await, [0, 1, 0]);
    shop.approve(&id, &code).await;
    mail.approve(&theirs, &their_code).await;
}

async fn what_a_program_has_sent_is_looked_up_and_cleared(store: Store) {
    let (app, boss, shop) = start(store).await;
    let mail = Program::of(&app, &boss, "verify:mail").await;
    for _ in 0..3 {
        id_of(&shop.send(PHONE).await);
    }
    id_of(&mail.send(PHONE).await);
    let sent = async |name| hits(&boss, "verify-token", name).await;
    assert_eq!((sent("verify:shop").await, sent("verify:mail").await), (3, 1));
    assert_eq!(hits(&boss, "relay-token", "relay:shop").await, 0);
    assert_eq!(boss.clear("verify-token", "verify:shop").await.status, 204);
    assert_eq!((sent("verify:shop").await, sent("verify:mail").await), (0, 1));
    let unknown = [
        ("verify-token", "shop"),
        ("verify-token", "relay:shop"),
        ("verify-token", IN_SHOP),
        ("relay-token", "verify:shop"),
        ("sms-guess", "verify:shop"),
        ("sms-guess", "verify:Shop:+8613800138000"),
        ("sms-phone", "relay:shop:+8613800138000"),
        ("sms-prefix", IN_SHOP),
        ("program-address", "203.0.113.7"),
        ("program-address", "verify:shop"),
        ("program-prefix", "+861380013"),
    ];
    for (limit, subject) in unknown {
        let answer = boss.get(&subject_path(limit, subject)).await;
        assert_eq!((answer.status, answer.problem()), (404, "unknown-subject"), "{limit} {subject}");
    }
}
