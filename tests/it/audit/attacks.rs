//! An attack in the console and in the record, and what counts as one attempt.

use std::time::Duration;

use gatehouse::audit::{Action, SubjectKind};

use super::{events, told};
use crate::support::app::{Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

const WRONG: &str = "a wrong password";
const ALARM: &str = "An attack goes on. See the overview.";

on_both_stores!(
    an_attack_is_on_the_overview_at_once_and_goes_by_itself,
    two_instances_report_one_attack,
    one_request_is_one_attempt,
    what_a_known_device_guesses_counts_at_its_own_limit,
);

/// 60 names from 60 addresses, each of which its own limits admit.
async fn spray(app: &TestApp) {
    for host in 1..=60 {
        app.client_at(&format!("198.51.{host}.7")).login(&format!("victim-{host}"), WRONG).await;
    }
}

async fn an_attack_is_on_the_overview_at_once_and_goes_by_itself(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    let boss = app.sign_in_admin("boss").await;
    assert!(!boss.get("/admin").await.text.contains(" attack\" id=\"attack-"));
    spray(&app).await;
    let page = boss.get("/admin").await.text;
    assert!(page.contains("Failed sign-ins: ") && page.contains("(usual: none)"), "{page}");
    assert!(page.contains("many addresses, none of them dominant") && page.contains("at many names"));
    assert!(page.contains("<dt>Addresses</dt><dd>60</dd>") && page.contains("<dt>Names</dt><dd>60</dd>"));
    assert!(page.contains("href=\"/admin/access?do=challenge\""), "an answer is one click away");
    assert!(!page.contains(ALARM), "said once");
    let day = boss.get("/admin?span=24h").await.text;
    assert!(!day.contains(ALARM) && day.contains("id=\"sign-ins-day\"") && !day.contains("sign-ins-hour"));
    for path in ["/admin/limits", "/admin/lookup", "/admin/messages", "/admin/events", "/admin/tokens"] {
        assert!(boss.get(path).await.text.contains(ALARM), "{path}");
    }
    assert!(!boss.get("/account").await.text.contains(ALARM), "nobody else is alarmed");
    app.advance(Duration::from_secs(5 * 60));
    let page = boss.get("/admin").await.text;
    assert!(page.contains("quiet since"), "{page}");
    app.advance(Duration::from_secs(10 * 60));
    let page = boss.get("/admin").await.text;
    assert!(!page.contains(" attack\" id=\"attack-"), "{page}");
    assert!(!boss.get("/admin/limits").await.text.contains(ALARM));
    let all = events(&app).await;
    let attacks: Vec<_> = all.iter().filter(|event| event.action == Action::Attack).map(told).collect();
    assert_eq!(attacks, ["attack began (sign-ins)", "attack ended (sign-ins)"]);
    let detail = all.iter().find(|event| event.action == Action::Attack).unwrap().detail.clone().unwrap();
    assert!(!detail.contains("victim") && !detail.contains("198.51"), "{detail}");
}

async fn two_instances_report_one_attack(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    let other = app.beside(TestApp::on(store).behind_a_proxy()).await;
    spray(&app).await;
    let bosses = [app.sign_in_admin("boss").await, Client::of(&other.url)];
    assert_eq!(bosses[1].login("boss", PASSWORD).await.status, 200);
    app.services.audit.flush().await;
    let (one, two) = tokio::join!(app.services.attacks.check(), other.services.attacks.check());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.len(), two.len(), &one[0].id), (1, 1, &two[0].id));
    for boss in bosses {
        assert_eq!(boss.get("/admin").await.text.matches(" attack\" id=\"attack-").count(), 1);
    }
    let attacks = events(&app).await.iter().filter(|event| event.action == Action::Attack).count();
    assert_eq!(attacks, 1);
}

/// 260 sign-ins from one address, each of which after the first 20 asks for a challenge, fetches its image and
/// is refused some: a challenge is no attempt of its own.
async fn one_request_is_one_attempt(store: Store) {
    let app = TestApp::on(store)
        .behind_a_proxy()
        .limit("captcha-address", &[max(10).per("1h")])
        .set("captcha.provider", "image")
        .start()
        .await;
    let stuffer = app.client_at("203.0.113.7");
    for name in 0..260 {
        let answer = stuffer.login(&format!("victim-{name}"), WRONG).await;
        if let Some(image) = answer.body["captcha"]["image"].as_str() {
            stuffer.get(image).await;
        }
    }
    let all = events(&app).await;
    assert!(all.iter().any(|event| event.action == Action::Captcha), "challenges are recorded, too");
    let since = app.clock.now().minus(Duration::from_secs(3600));
    let busiest = app.services.audit.log().busiest(since, 1).await.unwrap();
    assert_eq!(busiest.of(SubjectKind::Address).next().unwrap().count, 260);
    let shared = busiest.shared.unwrap();
    assert_eq!((shared.count, shared.of), (260, 260));
    let page = app.sign_in_admin("boss").await.get("/admin").await.text;
    let tile = |name: &str| {
        let (_, rest) = page.split_once(&format!("<dt>{name}</dt>\n<dd><strong>")).unwrap();
        rest.split('<').next().unwrap().parse::<u32>().unwrap()
    };
    let sum = tile("Wrong passwords") + tile("CAPTCHA required") + tile("Refused");
    assert_eq!(sum, 260, "each is in one of the figures");
}

async fn what_a_known_device_guesses_counts_at_its_own_limit(store: Store) {
    let app = TestApp::start(store).await;
    let owner = app.client();
    owner.register("alice", PASSWORD).await;
    for _ in 0..2 {
        owner.login("alice", WRONG).await;
    }
    owner.login("alice", PASSWORD).await;
    app.client().login("alice", WRONG).await;
    let boss = app.sign_in_admin("boss").await;
    app.services.audit.flush().await;
    let page = boss.get("/admin/limits").await.text;
    let counted = |limit: &str| {
        let (_, rest) = page.split_once(&format!("<code>{limit}</code>")).unwrap();
        let foot = rest.split("class=\"use\"").nth(1).unwrap().split("</p>").next().unwrap();
        foot.split("<strong>").nth(1).unwrap().split('<').next().unwrap().to_owned()
    };
    assert_eq!(counted("login-device"), "2", "two wrong ones, and not the right one");
    assert_eq!(counted("login-account"), "1", "the stranger's");
}
