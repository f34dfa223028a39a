//! `/admin/access`: links that fill in a form, the four forms, and the button that ends an answer.

use std::time::Duration;

use gatehouse::audit::EventFilter;
use serde_json::json;

use super::{ELSEWHERE, THERE};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

on_both_stores!(an_operator_refuses_a_network_in_one_form_and_ends_it_with_one_button,);

const PAGE: &str = "/admin/access";
const HOUR: &str = "3600";

async fn start(store: Store) -> (TestApp, Client) {
    let app = TestApp::on(store).behind_a_proxy().file("# Ours.\n").start().await;
    let boss = app.sign_in_admin_at("boss", ELSEWHERE).await;
    (app, boss)
}

fn of(answer: &Answer, wanted: &str) -> bool {
    answer.text.contains(wanted)
}

/// The page's forms, in their order.
fn forms(page: &Answer) -> Vec<&str> {
    let parts = page.text.split("name=\"do\" value=\"").skip(1);
    parts.map(|part| part.split('"').next().unwrap()).collect()
}

#[tokio::test]
async fn a_link_shows_its_form_first_filled_in_and_with_the_focus() {
    let (_app, boss) = start(Store::Memory).await;
    for (query, first, filled, focus) in [
        ("?do=challenge", "challenge", "", "challenge-reason"),
        ("?do=deny&network=203.0.113.0/24", "deny", "value=\"203.0.113.0/24\"", "deny-reason"),
        ("?do=allow&network=2001:db8::/32", "allow", "value=\"2001:db8::/32\"", "allow-reason"),
        ("?do=pause&prefix=%2B86138", "pause", "value=\"+86138\"", "pause-reason"),
        ("?do=deny", "deny", "", "deny-subject"),
        (
            "?do=deny&network=%22%3E%3Cscript%3E",
            "deny",
            "value=\"&#34;&#62;&#60;script&#62;\"",
            "deny-reason",
        ),
    ] {
        let page = boss.get(&format!("{PAGE}{query}")).await;
        assert_eq!((page.status, forms(&page)[0]), (200, first), "{query}");
        let open = format!("name=\"answer\" open>\n<summary><h2 id=\"{first}\"");
        assert!(of(&page, &open) && page.text.matches("\" open>").count() == 1, "{query}: {}", page.text);
        assert!(of(&page, filled), "{query}: {}", page.text);
        let focused = page.text.split(" autofocus").next().unwrap().rsplit("id=\"").next().unwrap();
        assert!(focused.starts_with(focus), "{query}: {focused}");
        assert_eq!(page.text.matches(" autofocus").count(), 1, "{query}");
    }
    let plain = boss.get(PAGE).await;
    assert_eq!(forms(&plain), ["challenge", "deny", "allow", "pause"]);
    assert!(!of(&plain, " autofocus") && !of(&plain, "\" open>") && of(&plain, "Nothing is in force"));
    assert_eq!(boss.get(&format!("{PAGE}?do=nonsense")).await.status, 200);
}

async fn an_operator_refuses_a_network_in_one_form_and_ends_it_with_one_button(store: Store) {
    let (app, boss) = start(store).await;
    let stranger = app.client_at(THERE);
    assert!(!of(&boss.get("/admin").await, "Answers to an attack in force"));
    let fields = [("do", "deny"), ("network", "203.0.113.7"), ("span", HOUR), ("reason", "they guess")];
    let saved = boss.submit(PAGE, PAGE, &fields).await;
    assert_eq!((saved.status, saved.header("location")), (303, PAGE), "{}", saved.text);
    let page = boss.get(PAGE).await;
    for told in
        ["In force here", "<code>203.0.113.7/32</code>", "1 hour left", "<bdi>boss</bdi>", "they guess"]
    {
        assert!(of(&page, told), "{told}: {}", page.text);
    }
    assert_eq!(stranger.get("/login").await.status, 403);
    let overview = boss.get("/admin").await;
    assert!(of(&overview, "Answers to an attack in force: 1") && of(&overview, "href=\"/admin/access\""));
    // The same network again is the same answer, with another end.
    let fields = [("do", "deny"), ("network", "203.0.113.7/32"), ("span", "86400"), ("reason", "they go on")];
    assert_eq!(boss.submit(PAGE, PAGE, &fields).await.status, 303);
    let page = boss.get(PAGE).await;
    assert!(of(&page, "1 day left") && !of(&page, "1 hour left"), "{}", page.text);
    let end = [("do", "deny"), ("subject", "203.0.113.7/32"), ("was", "they go on")];
    let ended = boss.submit(PAGE, "/admin/access/end", &end).await;
    assert_eq!((ended.status, ended.header("location")), (303, PAGE), "{}", ended.text);
    assert!(of(&boss.get(PAGE).await, "Ended here"));
    assert_eq!(stranger.get("/login").await.status, 200);
    assert_eq!(boss.submit(PAGE, "/admin/access/end", &end).await.status, 303, "it is gone already");
    app.services.audit.flush().await;
    let events = app.services.audit.log().page(&EventFilter::default(), None, 50).await.unwrap().entries;
    let acts = |name: &str| {
        let of = events.iter().filter(|event| event.name.as_deref() == Some(name));
        of.map(|event| event.detail.clone().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(acts("access.save").len(), 2, "{events:?}");
    assert!(acts("access.save").iter().all(|act| act.contains("\"answer\":\"deny 203.0.113.7")));
    assert!(acts("access.end").iter().all(|act| act.contains("they go on")), "{events:?}");
    let history = boss.get("/admin/limits/history").await;
    assert!(!of(&history, "they guess"), "answers have a list of their own");
    let history = boss.get("/admin/limits/history?of=answers").await;
    assert!(of(&history, "they guess") && of(&history, "203.0.113.7/32"), "{}", history.text);
}

#[tokio::test]
async fn everyone_is_challenged_a_network_exempt_and_a_prefix_paused_by_their_forms() {
    let (app, boss) = start(Store::Memory).await;
    for fields in [
        [("do", "challenge"), ("network", ""), ("span", "900"), ("reason", "a spray")],
        [("do", "allow"), ("network", "198.51.100.0/24"), ("span", "31536000"), ("reason", "our office")],
        [("do", "pause"), ("prefix", "+86138"), ("span", HOUR), ("reason", "pumping")],
    ] {
        let answer = boss.submit(PAGE, PAGE, &fields).await;
        assert_eq!(answer.status, 303, "{fields:?}: {}", answer.text);
    }
    let access = boss.get("/api/v1/admin/access").await.body;
    assert_eq!(access["challenge_everyone_until"], "2026-03-01T12:15:00Z");
    assert_eq!(access["allow"][0]["until"], "2027-03-01T12:00:00Z");
    assert_eq!(access["pause_sms"][0]["prefix"], "+86138");
    let page = boss.get(PAGE).await;
    assert!(of(&page, "15 minutes left") && of(&page, "a spray"), "{}", page.text);
    assert_eq!(app.client_at(THERE).login("nobody", PASSWORD).await.problem(), "captcha-required");
    assert_eq!(boss.submit(PAGE, "/admin/access/end", &[("do", "challenge")]).await.status, 303);
    assert_eq!(app.client_at(THERE).login("nobody", PASSWORD).await.problem(), "invalid-credentials");
    app.advance(Duration::from_secs(3600));
    assert!(!of(&boss.get(PAGE).await, "+86138</code>"), "what has ended is not shown");
}

#[tokio::test]
async fn a_mistake_is_told_at_its_field_and_what_was_typed_is_kept() {
    let (app, boss) = start(Store::Memory).await;
    let before = std::fs::read_to_string(app.file()).unwrap();
    let deny =
        |network, span, reason| [("do", "deny"), ("network", network), ("span", span), ("reason", reason)];
    for (fields, part, told) in [
        (deny("198.51.100.0/24", HOUR, "why"), "deny-subject", "the address that you save from"),
        (deny("127.0.0.0/8", HOUR, "why"), "deny-subject", "server.trusted_proxies"),
        (deny("0.0.0.0/0", HOUR, "why"), "deny-subject", "covers every address"),
        (deny("203.0.113.7/24", HOUR, "why"), "deny-subject", "write 203.0.113.0/24"),
        (deny("", HOUR, "why"), "deny-subject", "is not a network"),
        (deny("203.0.113.0/24", "7", "why"), "deny-span", "Choose one of these periods"),
        (deny("203.0.113.0/24", HOUR, " "), "deny-reason", "Give a reason"),
        (deny("203.0.113.0/24", HOUR, "a\u{7}b"), "deny-reason", "1 to 200 characters"),
    ] {
        let answer = boss.submit(PAGE, PAGE, &fields).await;
        assert_eq!((answer.status, forms(&answer)[0]), (422, "deny"), "{fields:?}: {}", answer.text);
        assert!(
            of(&answer, &format!("id=\"{part}-error\"")) && of(&answer, told),
            "{fields:?}: {}",
            answer.text
        );
        assert!(of(&answer, &format!("value=\"{}\"", fields[1].1)), "{fields:?}");
    }
    let long = "x".repeat(201);
    assert_eq!(boss.submit(PAGE, PAGE, &deny("203.0.113.0/24", HOUR, &long)).await.status, 422);
    let foreign =
        boss.post(PAGE, &[("do", "challenge"), ("span", HOUR), ("reason", "r"), ("csrf_token", "x")]).await;
    assert_eq!(foreign.status, 403);
    assert_eq!(std::fs::read_to_string(app.file()).unwrap(), before);
}

#[tokio::test]
async fn the_password_is_asked_for_and_the_form_goes_on_with_it() {
    let (app, boss) = start(Store::Memory).await;
    app.advance(Duration::from_secs(16 * 60));
    let fields = [("do", "challenge"), ("span", HOUR), ("reason", "a spray")];
    let asked = boss.submit(PAGE, PAGE, &fields).await;
    assert!(asked.status == 200 && of(&asked, "name=\"password\""), "{}", asked.text);
    assert!(of(&asked, "value=\"a spray\""), "{}", asked.text);
    assert_eq!(app.services.live.snapshot().access.settings().challenge_everyone_until, None);
    let token = asked.csrf_token();
    let with = [&fields[..], &[("password", PASSWORD), ("csrf_token", token.as_str())]].concat();
    let saved = boss.post(PAGE, &with).await;
    assert_eq!((saved.status, saved.header("location")), (303, PAGE), "{}", saved.text);
    assert!(app.services.live.snapshot().access.settings().challenge_everyone_until.is_some());
}

#[tokio::test]
async fn operators_who_act_at_once_all_succeed() {
    let (app, boss) = start(Store::Memory).await;
    let other = app.sign_in_admin_at("other", ELSEWHERE).await;
    let networks = ["203.0.113.0/24", "192.0.2.0/24"];
    let deny = |network| [("do", "deny"), ("network", network), ("span", HOUR), ("reason", "they guess")];
    let (one, two) = (deny(networks[0]), deny(networks[1]));
    let (one, two) = tokio::join!(boss.submit(PAGE, PAGE, &one), other.submit(PAGE, PAGE, &two));
    assert_eq!((one.status, two.status), (303, 303), "{} {}", one.text, two.text);
    assert_eq!(boss.get("/api/v1/admin/access").await.body["deny"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn what_a_variable_sets_is_told() {
    let app = TestApp::on(Store::Memory)
        .behind_a_proxy()
        .set("access.challenge_everyone_until", "\"2026-03-01T13:00:00Z\"")
        .start()
        .await;
    let client = app.client_at(ELSEWHERE);
    let id = client.challenge().await;
    app.administrator("boss").await;
    let answer = client.login_with("boss", PASSWORD, &id, crate::support::app::ANSWER).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let page = client.get(PAGE).await;
    assert!(of(&page, "<code>challenge_everyone_until</code>"), "{}", page.text);
    let end = client.submit(PAGE, "/admin/access/end", &[("do", "challenge")]).await;
    assert!(end.status == 503 && of(&end, "environment variable"), "{}", end.text);
    assert_eq!(
        client.get("/api/v1/admin/access").await.body["challenge_everyone_until"],
        json!("2026-03-01T13:00:00Z")
    );
}
