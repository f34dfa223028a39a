//! Known traffic of each kind, and the figures that it makes.

use std::time::Duration;

use gatehouse::login::HashLane;
use serde_json::json;

use super::page::Page;
use crate::guard;
use crate::mail::flows;
use crate::relay::{Logto, id_of};
use crate::support::app::{ANSWER, Client, PASSWORD, Store, TestApp};
use crate::support::until;
use crate::verify;

const WRONG: &str = "a wrong password";
const SECOND: Duration = Duration::from_secs(1);
const ALICES: &str = "13800138000";
const OTHER: &str = "13800138001";

/// Everybody is challenged for ten seconds, one network is refused for good, and one prefix gets no codes.
const HOUSE: &str = r#"
[access]
challenge_everyone_until = "2026-03-01T12:00:10Z"
deny = [{ network = "192.0.2.0/24", until = "2026-03-02T12:00:00Z", reason = "a test" }]
pause_sms = [{ prefix = "+86137", until = "2026-03-02T12:00:00Z", reason = "a test" }]

[limits.register-address]
mode = "monitor"
rules = [{ max = 1, window = "1h" }]

[limits.login-device]
rules = []

[limits.login-account]
rules = [{ max = 2, window = "1m", then = "captcha" }, { max = 3, window = "1h" }]

[limits.sms-phone]
rules = [{ max = 1, window = "1h" }]
"#;

pub async fn sign_ins_and_codes() -> Vec<&'static str> {
    let app = TestApp::on(Store::Memory).behind_a_proxy().file(HOUSE).start().await;
    let client = app.client_at("203.0.113.77");
    // Challenged with everybody: 2 sign-ins.
    for login in ["victor", "walter"] {
        assert_eq!(client.login(login, WRONG).await.problem(), "captcha-required");
    }
    app.advance(11 * SECOND);
    let boss = app.sign_in_admin("boss").await; // Signed in: 1.
    // Registered: 2, the second of which the watching limit notes, and one that is not admitted by the policy.
    for (login, password) in [("alice", PASSWORD), ("bernhard", PASSWORD), ("carlotta", "passwordpassword")] {
        client.register(login, password).await;
    }
    // Wrong: 2. Challenged: 3. Wrong with a solved image: 1. Refused by the limit: 2.
    let client = app.client_at("203.0.113.77");
    for _ in 0..2 {
        assert_eq!(client.login("alice", WRONG).await.status, 401);
    }
    for _ in 0..3 {
        assert_eq!(client.login("alice", PASSWORD).await.problem(), "captcha-required");
    }
    let ids = [client.challenge().await, client.challenge().await];
    for id in &ids {
        assert_eq!(client.image(id).await.status, 200);
    }
    assert_eq!(client.login_with("alice", WRONG, &ids[0], ANSWER).await.status, 401);
    for _ in 0..2 {
        assert_eq!(client.login("alice", PASSWORD).await.status, 429);
    }
    // A wrong CAPTCHA answer counts where wrong passwords from an address do.
    assert_eq!(client.login_with("nobody", WRONG, &ids[1], "no").await.problem(), "captcha-invalid");
    // Refused by the list: 4 sign-ins, 1 request for a code, and 3 other requests.
    let refused = app.client_at("192.0.2.7");
    for login in ["alice", "bernhard", "nobody", "nobody"] {
        assert_eq!(refused.login(login, PASSWORD).await.problem(), "denied");
    }
    assert_eq!(refused.ask_code(ALICES, "login").await.problem(), "denied");
    for path in ["/login", "/register", "/nothing"] {
        assert_eq!(refused.get(path).await.status, 403);
    }
    // Sent: 2. Refused by the limit: 1, by the pause: 1. Wrong codes: 1. Right: 1, which signs in.
    for number in [ALICES, OTHER] {
        assert_eq!(client.ask_code(number, "login").await.status, 202);
    }
    assert_eq!(client.ask_code(ALICES, "login").await.status, 429);
    assert_eq!(client.ask_code("13700137000", "login").await.status, 503);
    let code = app.client().codes(ALICES).await.remove(0);
    let enter = |code: &str| json!({ "phone": ALICES, "code": code });
    let wrong = verify::other_than(&code);
    assert_eq!(client.call("/sms/login", enter(&wrong)).await.status, 401);
    assert_eq!(client.call("/sms/login", enter(&code)).await.status, 200);
    overview(&boss).await;
    limits(&boss).await;
    events(&boss).await;
    look_up(&app, &boss).await;
    vec![
        "signed-in",
        "wrong",
        "challenged",
        "refused",
        "sent",
        "wrong-codes",
        "came-back",
        "solved",
        "counted",
        "nearest",
        "noted",
        "subject",
        "times",
        "done",
        "failed",
        "used",
        "holds",
        "braked",
        "queue-wait",
        "sign-in-time",
    ]
}

async fn overview(boss: &Client) {
    let page = Page::of(boss, "/admin").await;
    for (card, count) in [
        ("Signed in", 2),
        ("Wrong passwords", 3),
        ("CAPTCHA required", 5),
        ("Refused", 2 + 4 + 1 + 3 + 1 + 1),
        ("Messages sent", 2),
        ("Wrong codes", 1),
    ] {
        assert_eq!(page.card(card), count, "{card}");
    }
    assert!(
        page.0.contains(">50% of codes entered<") && page.0.contains(">50% of images solved<"),
        "{}",
        page.0
    );
    for (span, query) in [("hour", ""), ("day", "?span=24h"), ("week", "?span=7d")] {
        let page = Page::of(boss, &format!("/admin{query}")).await;
        assert_eq!([page.card("Wrong passwords"), page.row("/admin/events?limit=login-account")[1]], [3, 2]);
        let sign_ins = page.chart(&format!("sign-ins-{span}"));
        let told = ["Signed in", "Wrong passwords", "CAPTCHA required", "Refused"].map(|name| sign_ins[name]);
        assert_eq!(told, [2, 3, 5, 2 + 4], "sign-ins");
        let messages = page.chart(&format!("messages-{span}"));
        let told = ["Messages sent", "Not sent", "CAPTCHA required", "Refused"].map(|name| messages[name]);
        assert_eq!(told, [2, 0, 0, 1 + 1 + 1], "messages");
    }
    // Challenged, refused and noted.
    let row = |limit: &str| page.row(&format!("/admin/events?limit={limit}"));
    assert_eq!(row("login-account"), [3, 2, 0]);
    assert_eq!(row("access"), [2, 4 + 1 + 3 + 1, 0], "by an answer");
    assert_eq!(row("register-address"), [0, 0, 2]);
    assert_eq!(row("sms-phone"), [0, 1, 0]);
    subjects(&page);
    assert!(
        !page.fact("SMS gateway").contains("brake") && page.is_amber("SMS gateway"),
        "an outbox sends nothing"
    );
    for pace in ["Wait before a password is checked", "Sign-ins take"] {
        assert!(page.fact(pace).contains("95 of 100 within") && !page.is_amber(pace), "{}", page.fact(pace));
    }
}

/// Each subject is one row that says what it is, and leads to what can be done about it.
fn subjects(page: &Page) {
    let rows = |id: &str| -> Vec<String> {
        let table = page.0.split_once(&format!("id=\"{id}\"")).unwrap().1.split_once("</table>").unwrap().0;
        let rows = table.split("<th scope=\"row\">").skip(1);
        rows.map(|row| {
            let (name, rest) = row.split_once("</th>").unwrap();
            let text: String =
                name.split('<').map(|part| part.split_once('>').map_or(part, |it| it.1)).collect();
            let denies =
                if rest.contains("do=deny&#38;network=203.0.113.0%2F24") { ", can be refused" } else { "" };
            let denied = if rest.contains(">refused<") { ", is refused" } else { "" };
            format!("{text}: {}{denies}{denied}", super::page::number(rest.split_once('>').unwrap().1))
        })
        .collect()
    };
    let (networks, others) = (rows("networks"), rows("subjects"));
    assert!(others.contains(&"account al…: 9".to_owned()), "{others:?}");
    assert!(others.contains(&"address in 203.0.113.0/24: 19, can be refused".to_owned()), "{others:?}");
    assert!(networks.contains(&"192.0.2.0/24: 8, is refused".to_owned()), "{networks:?}");
    assert!(networks.iter().any(|row| row.starts_with("203.0.113.0/24: ")), "{networks:?}");
}

/// What counts, not what was let through; and a program that there is not has nothing.
async fn limits(boss: &Client) {
    let page = Page::of(boss, "/admin/limits").await;
    let did = |limit: &str, words: &str| page.limit(limit).get(words).copied().unwrap_or(0);
    for (limit, counted) in [
        ("login-account", 3),
        ("login-address", 3 + 1),
        ("login-network", 3 + 1),
        ("register-address", 2),
        ("captcha-address", 2),
        ("sms-phone", 2),
        ("sms-total", 2),
        ("sms-guess", 1),
        ("relay-token", 0),
        ("verify-token", 0),
        ("guard-account", 0),
    ] {
        assert_eq!(did(limit, "counted"), counted, "{limit}");
    }
    assert_eq!([did("login-account", "challenged"), did("login-account", "refused")], [3, 2]);
    assert_eq!(did("register-address", "monitored only"), 2);
    for (limit, nearest) in [
        ("login-account", ""), // It was reached.
        ("login-address", "4 of 20 / 1 min"),
        ("captcha-address", "2 of 60 / 1 min"),
        ("sms-total", "2 of 1,000 / 1 d"),
        ("sms-guess", "1 of 5 / 10 min"),
        ("guard-account", ""),
    ] {
        assert_eq!(page.nearest(limit), nearest, "{limit}");
    }
}

async fn events(boss: &Client) {
    let page = Page::of(boss, "/admin/events?span=1h").await;
    let chart = page.chart("events-chart");
    // Beside what was sent: images and their answers.
    let told = ["done", "wrong or failed", "CAPTCHA required", "refused"].map(|name| chart[name]);
    assert_eq!(told, [1 + 1 + 2 + 2 + 1 + 2 + 1, 3 + 1 + 1 + 1, 5, 2 + 4 + 1 + 3 + 1 + 1], "{chart:?}");
    let list = boss.get("/api/v1/admin/events?action=sign-in&outcome=challenged").await.body;
    let counts: Vec<_> =
        list["events"].as_array().unwrap().iter().map(|event| event["count"].clone()).collect();
    assert_eq!(counts, [json!(3), json!(1), json!(1)]);
    let page = Page::of(boss, "/admin/events?action=sign-in&outcome=challenged&limit=login-account").await;
    assert!(page.0.contains(">× 3</strong>"), "{}", page.0);
    assert_eq!(page.chart("events-chart")["CAPTCHA required"], 3, "counted by rows");
}

async fn look_up(app: &TestApp, boss: &Client) {
    let busy = app.services.hasher.keep_busy(true).await;
    let client = app.client_at("198.51.100.9");
    let waiting = tokio::spawn(async move { client.login("bernhard", WRONG).await });
    until_waiting(app, 1).await;
    boss.submit("/admin/lookup", "/admin/lookup", &[("asked", "alice")]).await;
    let page = Page::of(boss, "/admin/lookup?typed").await;
    assert!(page.0.contains(">3 of 3 used<"), "{}", page.0);
    let log = boss.get("/api/v1/admin/subjects/login-account/alice").await.body;
    assert_eq!((&log["rules"][1]["count"], &log["holds"]), (&json!(3), &json!(0)), "{log}");
    let log = boss.get("/api/v1/admin/subjects/login-account/bernhard").await.body;
    assert_eq!((&log["rules"][1]["count"], &log["holds"]), (&json!(0), &json!(1)), "{log}");
    drop(busy);
    assert_eq!(waiting.await.unwrap().status, 401);
}

async fn until_waiting(app: &TestApp, count: usize) {
    until("so many wait", async || app.services.hasher.waiting(HashLane::Unsolved) == count).await;
}

/// What other programs ask for is theirs alone.
pub async fn programs() -> Vec<&'static str> {
    let app = TestApp::on(Store::Memory).behind_a_proxy().without(&["sms-phone"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    let shop = guard::Program::of(&app, &boss, "guard:shop").await;
    shop.succeed("bob").await;
    for _ in 0..3 {
        shop.fail("ada").await;
    }
    assert_eq!(shop.ask("ada").await["decision"], "challenge");
    let idp = Logto::of(&app, &boss, "relay:idp").await;
    id_of(&idp.send("8613800138000", "012345").await);
    let verifier = verify::Program::of(&app, &boss, "verify:shop").await;
    for number in ["+8613800138001", "+8613800138002"] {
        verifier.sent(number).await;
    }
    assert_eq!(app.client().ask_code("+8613800138003", "login").await.status, 202);
    let page = Page::of(&boss, "/admin").await;
    let shop = page.row("/admin/events?action=attempt&amp;realm=shop");
    assert_eq!(shop, [4, 3, 1, 0], "let through, wrong, challenged, refused");
    assert_eq!(page.card("Wrong passwords"), 0, "it is not ours");
    assert_eq!(page.card("Messages sent"), 4);
    let page = Page::of(&boss, "/admin/limits").await;
    let counted = |limit: &str| page.limit(limit).get("counted").copied().unwrap_or(0);
    assert_eq!([counted("relay-token"), counted("verify-token"), counted("sms-total")], [1, 2, 4]);
    assert_eq!([counted("guard-account"), counted("guard-device"), counted("login-account")], [3, 0, 0]);
    vec!["let-through", "counted"]
}

pub async fn messages_that_no_gateway_takes() -> Vec<&'static str> {
    let setup = TestApp::on(Store::Memory).set("sms.gateway", "http");
    let app = setup.set("sms.http.url", "http://127.0.0.1:9/").start().await;
    let boss = app.sign_in_admin("boss").await;
    assert_eq!(app.client().ask_code(ALICES, "login").await.status, 503);
    let page = Page::of(&boss, "/admin").await;
    let messages = page.chart("messages-hour");
    assert_eq!([messages["Messages sent"], messages["Not sent"], messages["Refused"]], [0, 1, 0]);
    let page = Page::of(&boss, "/admin/limits").await;
    let counted = |limit: &str| page.limit(limit).get("counted").copied().unwrap_or(0);
    assert_eq!([counted("sms-phone"), counted("sms-address"), counted("sms-total")], [0, 1, 0]);
    vec!["not-sent"]
}

/// One code that confirms an address and comes back, one for a new password that is entered wrong, and two to addresses
/// of nobody, which are withheld.
pub async fn mails() -> Vec<&'static str> {
    const EMAIL: &str = "ada@example.org";
    let app = TestApp::start(Store::Memory).await;
    let (boss, client) = (app.sign_in_admin("boss").await, app.client());
    assert_eq!(client.register("alice", PASSWORD).await.status, 201);
    flows::confirm(&app, &app.client(), EMAIL).await;
    for email in [EMAIL, "eve@example.net", "mallory@example.net"] {
        assert_eq!(flows::ask(&client, email).await.status, 202);
    }
    let code = flows::newest_code(&app, EMAIL, 2).await;
    let wrong = flows::reset(&client, EMAIL, &verify::other_than(&code)).await;
    assert_eq!(wrong.status, 401, "{}", wrong.text);
    let page = Page::of(&boss, "/admin").await;
    assert_eq!([page.card("Messages sent"), page.card("Wrong codes")], [2, 1]);
    assert!(page.0.contains(">50% of codes entered<"), "{}", page.0);
    let messages = page.chart("messages-hour");
    assert_eq!([messages["Messages sent"], messages["Not sent"], messages["Refused"]], [2, 2, 0]);
    let busiest = page.0.split_once("id=\"subjects\"").unwrap().1.split("</table>").next().unwrap();
    let row = busiest.split_once("<bdi>a***@example.org</bdi>").expect("her mailbox").1;
    assert_eq!(
        super::page::number(row.split_once("<td class=\"number\">").unwrap().1),
        4,
        "asked and entered"
    );
    let page = Page::of(&boss, "/admin/limits").await;
    let counted = |limit: &str| page.limit(limit).get("counted").copied().unwrap_or(0);
    assert_eq!(["mail-total", "mail-mailbox", "mail-address", "mail-guess"].map(counted), [2, 4, 4, 1]);
    assert_eq!(
        [page.nearest("mail-total"), page.nearest("mail-address")],
        ["2 of 1,000 / 1 d", "4 of 10 / 1 h"]
    );
    vec!["sent", "not-sent", "came-back", "wrong-codes", "counted", "nearest", "subject"]
}

/// Twelve wrong passwords and one right one; a day later fifteen and one. A record that is younger says nothing.
pub async fn two_days() -> Vec<&'static str> {
    let app = TestApp::on(Store::Memory)
        .behind_a_proxy()
        .without(&["login-address", "login-network"])
        .start()
        .await;
    let boss = app.sign_in_admin("boss").await;
    let guess = async |times: u32| {
        for host in 0..times {
            assert_eq!(app.client_at(&format!("198.51.{host}.7")).login("nobody", WRONG).await.status, 401);
            app.advance(Duration::from_secs(61));
        }
    };
    app.advance(Duration::from_secs(61 * 60));
    let app = &app;
    guess(12).await;
    let page = Page::of(&boss, "/admin").await;
    assert!(!page.0.contains("yesterday"), "{}", page.0);
    app.advance(Duration::from_secs(24 * 60 * 60 - 15 * 61));
    guess(15).await;
    let page = Page::of(&boss, "/admin").await;
    assert_eq!(
        (page.card("Wrong passwords"), page.change("Wrong passwords")),
        (15, "+25% against yesterday")
    );
    assert_eq!(page.change("Wrong codes"), "0 yesterday");
    let page = Page::of(&boss, "/admin?span=24h").await;
    assert_eq!(page.card("Wrong passwords"), 27, "the cards are of the period of the page");
    vec!["change"]
}

/// More passwords than can be hashed: refused, and slow.
pub async fn no_room() -> Vec<&'static str> {
    let setup = TestApp::on(Store::Memory).behind_a_proxy().set("password.workers", 1);
    let setup = setup.set("password.memory_kib", 7168).set("password.iterations", 1).set("password.queue", 8);
    let app = setup.start().await;
    let boss = app.sign_in_admin("boss").await;
    let busy = app.services.hasher.keep_busy(true).await;
    // Half of the queue is for strangers.
    let mut waiting = Vec::new();
    for network in 1..=4 {
        let client = app.client_at(&format!("198.51.{network}.7"));
        waiting.push(tokio::spawn(async move { client.login(&format!("nobody-{network}"), WRONG).await }));
        until_waiting(&app, network).await;
    }
    for _ in 0..5 {
        let answer = app.client_at("198.51.100.8").login("alice", WRONG).await;
        assert_eq!(answer.problem(), "captcha-required", "{}", answer.text);
    }
    app.advance(3 * SECOND);
    drop(busy);
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().status, 401);
    }
    let page = Page::of(&boss, "/admin").await;
    assert_eq!(
        [page.card("Wrong passwords"), page.card("CAPTCHA required"), page.card("Refused")],
        [4, 0, 5]
    );
    assert_eq!(page.chart("sign-ins-hour")["Refused"], 5, "the card and the chart agree");
    for pace in ["Wait before a password is checked", "Sign-ins take"] {
        assert!(page.is_amber(pace), "{}", page.fact(pace));
        assert!(page.fact(pace).contains("95 of 100 within 3."), "{}", page.fact(pace));
    }
    app.advance(300 * SECOND);
    let page = Page::of(&boss, "/admin").await;
    for pace in ["Wait before a password is checked", "Sign-ins take"] {
        assert!(!page.is_amber(pace) && page.fact(pace).contains("none in 5 minutes"), "{}", page.fact(pace));
    }
    vec!["queue-wait", "sign-in-time"]
}
