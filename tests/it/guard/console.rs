//! Realms in the console: what a name or an address of a realm has used up, and how it is let in again.

use std::time::Duration;

use gatehouse::audit::SubjectKind;
use serde_json::{Value, json};

use super::{Program, start};
use crate::support::app::{Client, Store, on_both_stores, subject_path};

on_both_stores!(
    a_name_of_a_realm_is_shown_with_its_failures_and_let_in_again,
    an_address_of_a_realm_is_let_in_again_there,
    the_overview_and_the_events_show_each_realm_for_itself,
    a_flood_of_failures_in_a_realm_is_an_attack_there,
    what_a_known_device_fails_is_counted_at_its_own_limit,
);

pub async fn hits(boss: &Client, limit: &str, subject: &str) -> usize {
    let answer = boss.get(&subject_path(limit, subject)).await;
    assert_eq!(answer.status, 200, "{limit} {subject}: {}", answer.text);
    answer.body["hits"].as_array().unwrap().len()
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
    let page = boss.get("/admin/lookup?typed").await;
    assert!(
        page.text.contains("Name at another login") && page.text.contains("3 of 3 used"),
        "{}",
        page.text
    );
    assert_eq!(boss.clear("guard-account", subject).await.status, 204);
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
    assert_eq!(boss.clear("guard-address", subject).await.status, 204);
    assert_eq!(shop.ask("ada").await["decision"], "go");
    assert_eq!(mail.ask("ada").await["decision"], "challenge");
    assert_eq!(hits(&boss, "guard-network", subject).await, 20);
}

/// Let through, wrong, challenged and told to wait in the last hour; none if the page does not show the realm.
fn of_realm(page: &str, realm: &str) -> Option<Vec<String>> {
    let (_, row) = page.split_once(&format!("guard:{realm}</bdi></a></th>"))?;
    let row = row.split("</tr>").next().unwrap();
    let figure = |cell: &str| cell.split(['>', '<']).nth(1).unwrap().to_owned();
    Some(row.split("<td ").skip(1).map(figure).collect())
}

async fn the_overview_and_the_events_show_each_realm_for_itself(store: Store) {
    let (app, boss, shop) = start(store).await;
    let page = boss.get("/admin").await.text;
    assert!(!page.contains("Logins of other programs"), "no section without a realm");
    let mail = Program::of(&app, &boss, "guard:mail").await;
    shop.succeed("bob").await;
    for _ in 0..3 {
        shop.fail("ada").await;
    }
    assert_eq!(shop.ask("ada").await["decision"], "challenge");
    mail.fail("ada").await;
    let page = boss.get("/admin").await.text;
    assert_eq!(of_realm(&page, "shop").unwrap(), ["4", "3", "1", "0"]);
    assert_eq!(of_realm(&page, "mail").unwrap(), ["1", "1", "0", "0"]);
    assert_eq!(of_realm(&page, "wiki"), None);
    // Whom it is about is among the busiest, and that all come from one address is no proxy of ours.
    let (log, since) = (app.services.audit.log(), app.clock.now().minus(Duration::from_secs(3600)));
    let busiest = log.busiest(since, 1).await.unwrap();
    let top = busiest.of(SubjectKind::Address).next().unwrap();
    assert_eq!((top.subject.mask.as_str(), top.count), ("203.0.113.0/24", 6));
    assert_eq!(busiest.shared.unwrap().of, 1, "the administrator's");
    let events = "/admin/events?action=attempt&amp;realm=shop";
    assert!(page.contains(&format!("href=\"{events}\"")), "{page}");
    let listed = boss.get(&events.replace("&amp;", "&")).await.text;
    let (_, table) = listed.split_once("class=\"rows events\"").expect("a list");
    assert!(
        table.contains("<span class=\"what\">guard:shop</span>") && !table.contains("guard:mail"),
        "{listed}"
    );
    let answer = boss.get("/api/v1/admin/events?realm=mail").await;
    let names: Vec<_> = answer.body["events"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["mail"], "{}", answer.text);
    let answer = boss.get("/api/v1/admin/events?realm=Mail").await;
    assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (422, &json!("realm")));
}

async fn a_flood_of_failures_in_a_realm_is_an_attack_there(store: Store) {
    let (app, boss, shop) = start(store).await;
    let mail = Program::of(&app, &boss, "guard:mail").await;
    for (program, names) in [(&shop, 60), (&mail, 40)] {
        for host in 1..=names {
            program.fail_from(&format!("198.51.{host}.7"), &format!("victim-{host}")).await;
        }
    }
    let page = boss.get("/admin").await.text;
    assert!(page.contains("Failed attempts at guard:shop: ") && page.contains("(usual: none)"), "{page}");
    assert_eq!(page.matches(" attack\" id=\"attack-").count(), 1, "{page}");
    assert!(page.contains("<dt>Names</dt><dd>60</dd>") && page.contains("<dt>Attempts</dt><dd>60</dd>"));
    assert!(page.contains("/admin/events?action=attempt&#38;realm=shop&#38;outcome=wrong"), "{page}");
    // One line stands for its events, and for nobody else's.
    let listed = boss.get("/admin/events?span=24h").await.text;
    assert!(listed.contains("Attack: failed attempts at another login"), "{listed}");
    let (_, table) = listed.split_once("class=\"rows events\"").expect("a list");
    assert!(
        !table.contains("<span class=\"what\">guard:shop</span>")
            && table.contains("<span class=\"what\">guard:mail</span>"),
        "{listed}"
    );
    let began = crate::audit::events(&app).await;
    let began = began.iter().find(|event| event.action == gatehouse::audit::Action::Attack).unwrap();
    let detail: Value = serde_json::from_str(began.detail.as_deref().unwrap()).unwrap();
    assert_eq!((began.name.as_deref(), &detail["realm"]), (Some("attempts"), &json!("shop")));
}

async fn what_a_known_device_fails_is_counted_at_its_own_limit(store: Store) {
    let (app, boss, shop) = start(store).await;
    let device = shop.succeed("ada").await;
    for _ in 0..2 {
        let attempt = json!({ "login": "ada", "address": "203.0.113.7", "device": device });
        let known = shop.ask_with(attempt).await;
        assert_eq!(shop.tell(known["attempt"].as_str().unwrap(), "failure").await.status, 200);
    }
    shop.fail("ada").await;
    app.services.audit.flush().await;
    let page = boss.get("/admin/limits").await.text;
    let counted = |limit: &str| {
        let (_, rest) = page.split_once(&format!("<code>{limit}</code>")).unwrap();
        let foot = rest.split("class=\"use\"").nth(1).unwrap().split("</p>").next().unwrap();
        foot.split("<strong>").nth(1).unwrap().split('<').next().unwrap().to_owned()
    };
    assert_eq!((counted("guard-device"), counted("guard-account")), ("2".to_owned(), "1".to_owned()));
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
        let answer = boss.get(&subject_path(limit, subject)).await;
        assert_eq!((answer.status, answer.problem()), (404, "unknown-subject"), "{limit} {subject}");
    }
}
