//! Attacks, and what their banners say of them.

use std::time::Duration;

use serde_json::{Value, json};

use super::page::Page;
use crate::mail::flows;
use crate::support::app::{ANSWER, Client, PASSWORD, Store, TestApp};
use crate::verify;

const WRONG: &str = "a wrong password";
const SECOND: Duration = Duration::from_secs(1);
const UNTIL: &str = "2026-03-01T14:00:00Z";

async fn answer(boss: &Client, mut body: Value) {
    let path = "/api/v1/admin/access";
    let shown = boss.get(path).await.body;
    body["reason"] = json!("an attack");
    let saved = boss.put(path, shown["version"].as_str().unwrap(), body).await;
    assert_eq!(saved.status, 200, "{}", saved.text);
}

/// The text of the only banner.
fn banner(page: &Page) -> String {
    assert_eq!(page.0.matches(" attack\" id=\"attack-").count(), 1, "{}", page.0);
    page.0.split_once(" attack\" id=\"attack-").unwrap().1.split_once("</section>").unwrap().0.to_owned()
}

/// The largest networks, their shares, and what can be done; the networks of one attempt each without the rest.
fn largest(banner: &str) -> Vec<String> {
    let list =
        banner.split_once("<ul aria-label=\"Largest networks\">").unwrap().1.split_once("</ul>").unwrap().0;
    let text = |row: &str| {
        let (tags, mut text) = (row.split('<'), String::new());
        text.extend(tags.map(|part| part.split_once('>').map_or(part, |it| it.1)));
        let words: Vec<_> = text.split_whitespace().collect();
        if words[1] == "1%" { words[0][..7].to_owned() } else { words[..3].join(" ") }
    };
    list.split("<li>").skip(1).map(text).collect()
}

/// A spray from everywhere; then another one, most of it from one network, which is refused.
pub async fn sign_ins() -> Vec<&'static str> {
    let app = TestApp::on(Store::Memory).behind_a_proxy().start().await;
    let boss = app.sign_in_admin("boss").await;
    let owner = app.client_at("192.0.2.1");
    owner.register("alice", PASSWORD).await;
    // Somebody mistypes now and then, which is no attack.
    for _ in 0..5 {
        app.client_at("192.0.2.2").login("bernhard", WRONG).await;
        app.advance(12 * SECOND);
    }
    app.advance(90 * SECOND + SECOND / 2);
    let began = app.clock.now();
    for host in 0..60 {
        app.client_at(&format!("198.51.{host}.7")).login(&format!("victim-{host}"), WRONG).await;
    }
    // One who mistypes, is challenged by a limit, and is in; and one whom the answer challenges.
    let honest = app.client_at("192.0.2.3");
    for _ in 0..3 {
        assert_eq!(honest.login("alice", WRONG).await.status, 401);
    }
    assert_eq!(honest.login("alice", PASSWORD).await.problem(), "captcha-required");
    app.advance(SECOND);
    let id = honest.challenge().await;
    assert_eq!(honest.login_with("alice", PASSWORD, &id, ANSWER).await.status, 200);
    answer(&boss, json!({ "challenge_everyone_until": UNTIL })).await;
    assert_eq!(app.client_at("192.0.2.4").login("victor", PASSWORD).await.problem(), "captcha-required");
    app.advance(10 * SECOND);
    let page = Page::of(&boss, "/admin").await;
    let first = banner(&page);
    assert!(first.contains(&format!("datetime=\"{}\"", iso(began))), "{first}");
    assert!(first.contains("(usual: none)") && first.contains("Attack · rising<"), "{first}");
    assert!(
        first.contains("<strong>1 challenged · 1% of the last minute · passwords compared since: 0</strong>"),
        "{first}"
    );
    assert!(first.contains("none of them dominant"), "{first}");
    assert_eq!(largest(&first), ["192.0.2.0/24 7% Refuse", "198.51.", "198.51."], "{first}");
    for (fact, count) in [("Attempts", "65"), ("Addresses", "62"), ("Networks", "61"), ("Names", "62")] {
        assert_eq!(page.fact(fact), count, "{fact}: {first}");
    }
    assert_eq!(
        [page.fact("Passwords compared"), page.fact("Honest users challenged")],
        ["64", "1"],
        "{first}"
    );
    assert!(!first.contains("do=challenge"), "it is in force: {first}");
    answer(&boss, json!({})).await;
    second(&app, &boss).await;
    vec![
        "rate",
        "began",
        "attempts",
        "answers",
        "addresses",
        "networks",
        "names",
        "compared",
        "honest",
        "share",
    ]
}

async fn second(app: &TestApp, boss: &Client) {
    app.advance(120 * SECOND);
    let turned = app.clock.now();
    let hit = async |number: u32| {
        let address = match number % 4 {
            0 => format!("198.51.{}.9", number % 200),
            _ => format!("203.0.113.{}", number % 250),
        };
        app.client_at(&address).login(&format!("other-{number}"), WRONG).await.status
    };
    for number in 0..200 {
        assert_eq!(hit(number).await, 401);
    }
    app.advance(10 * SECOND);
    let page = Page::of(boss, "/admin").await;
    let told = banner(&page);
    assert!(told.contains(&format!("datetime=\"{}\"", iso(turned))), "it is another attack: {told}");
    assert!(told.contains("75% come from one network, 203.0.113.0/24"), "{told}");
    assert!(told.contains("do=deny&#38;network=203.0.113.0%2F24"), "{told}");
    assert_eq!(largest(&told)[0], "203.0.113.0/24 75% Refuse", "{told}");
    assert!(told.contains("class=\"button\" href=\"/admin/access?do=deny"), "it is the first answer: {told}");
    assert_eq!(page.fact("Attempts"), "200", "{told}");
    let ended = boss.get("/api/v1/admin/events?action=attack").await.body;
    let outcomes: Vec<_> =
        ended["events"].as_array().unwrap().iter().map(|event| &event["outcome"]).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == "began").count(), 2, "{ended}");
    // The answer to it: it refuses, is counted, and is not offered again.
    answer(boss, json!({ "deny": [{ "network": "203.0.113.0/24", "until": UNTIL, "reason": "an attack" }] }))
        .await;
    app.advance(60 * SECOND);
    let before = Page::of(boss, "/admin").await.card("Refused");
    for number in 0..400 {
        assert_eq!(hit(number).await, if number % 4 == 0 { 401 } else { 403 });
    }
    app.advance(10 * SECOND);
    let page = Page::of(boss, "/admin").await;
    let told = banner(&page);
    assert!(told.contains("Attack · answered<"), "{told}");
    // 400 in a minute; the one before the first refusal was compared before the answer met any.
    assert!(told.contains("Failed sign-ins: 6 a second (usual: none)"), "{told}");
    let answered = "300 refused · 75% of the last minute · passwords compared since: 99";
    assert!(told.contains(&format!("<strong>{answered}</strong>")), "{told}");
    assert!(!told.contains("203.0.113.0%2F24") && told.contains("Answers in force"), "{told}");
    assert_eq!(largest(&told)[0], "203.0.113.0/24 75% refused", "{told}");
    assert_eq!(page.card("Refused"), before + 300);
    assert_eq!(page.fact("Attempts"), "600", "it goes on: {told}");
    let rows = boss.get("/api/v1/admin/events?action=sign-in&outcome=refused").await.body;
    assert!(rows["events"].as_array().unwrap().len() < 10, "a refusal writes nothing by itself: {rows}");
    app.advance(70 * SECOND);
    let told = banner(&Page::of(boss, "/admin").await);
    assert!(told.contains("· quiet since"), "{told}");
}

pub async fn messages() -> Vec<&'static str> {
    let app = TestApp::on(Store::Memory).behind_a_proxy().set("sms.brake.enabled", false);
    let app = app.without(&["sms-address", "sms-network", "sms-prefix"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    let number = |n: u32| format!("+86138{:03}13800", n);
    for n in 0..40 {
        assert_eq!(app.client_at("203.0.113.7").ask_code(&number(n), "login").await.status, 202);
    }
    let code = app.client().codes(&number(3)).await.remove(0);
    for code in [&verify::other_than(&code), &code] {
        app.client_at("203.0.113.7").call("/sms/login", json!({ "phone": number(3), "code": code })).await;
    }
    let page = Page::of(&boss, "/admin").await;
    let told = banner(&page);
    for (fact, count) in
        [("Attempts", "40"), ("Numbers", "40"), ("Messages sent", "40"), ("Codes entered", "1")]
    {
        assert_eq!(page.fact(fact), count, "{fact}: {told}");
    }
    assert_eq!(
        [page.fact("Prefixes"), page.fact("Addresses"), page.fact("Networks")],
        ["40", "1", "1"],
        "{told}"
    );
    assert!(
        told.contains("They go to many prefixes") && told.contains("100% come from one address"),
        "{told}"
    );
    vec!["numbers", "prefixes", "entered", "sent"]
}

pub async fn mails() -> Vec<&'static str> {
    let app = TestApp::on(Store::Memory).behind_a_proxy();
    let app = app.without(&["mail-address", "mail-network", "mail-mailbox"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    for n in 0..40 {
        let asked = flows::ask(&app.client_at("203.0.113.7"), &format!("user{n}@example.org")).await;
        assert_eq!(asked.status, 202, "{}", asked.text);
    }
    let page = Page::of(&boss, "/admin").await;
    let told = banner(&page);
    assert!(told.contains("Codes by e-mail requested: ") && !told.contains("prefix"), "{told}");
    for (fact, count) in [("Attempts", "40"), ("Mailboxes", "40"), ("Addresses", "1"), ("Messages sent", "0")]
    {
        assert_eq!(page.fact(fact), count, "{fact}: {told}");
    }
    let began = boss.get("/api/v1/admin/events?action=attack").await.body;
    assert_eq!(began["events"][0]["name"], "mails", "{began}");
    vec!["mailboxes"]
}

pub async fn registrations() -> Vec<&'static str> {
    let app = TestApp::on(Store::Memory).behind_a_proxy().without(&["register-address"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    for n in 0..35 {
        // Every seventh name is taken.
        let login = if n % 7 == 6 { "newcomer-0".to_owned() } else { format!("newcomer-{n}") };
        app.client_at("203.0.113.7").register(&login, PASSWORD).await;
    }
    let page = Page::of(&boss, "/admin").await;
    let told = banner(&page);
    assert_eq!([page.fact("Attempts"), page.fact("Accounts created")], ["35", "30"], "{told}");
    vec!["made", "attempts"]
}

fn iso(at: gatehouse::clock::Micros) -> String {
    jiff::Timestamp::from_microsecond(at.0).unwrap().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
