//! What is lost while mails are handed over: the process, the mail server, Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gatehouse::clock::Clock;
use gatehouse::db::Db;
use serde_json::json;
use sqlx::query_scalar;

use super::flows::{self, NEW, ask, has_code, mails, newest_code, reset, waiting};
use super::proxy::{MailProxy, Passage};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::authority::Authority;
use crate::support::mail_server::Senders;
use crate::support::postfix::Postfix;
use crate::support::process::Home;
use crate::support::setup::max;
use crate::support::steered::SteeredClock;
use crate::support::until;

const ADA: &str = "ada@example.org";
const MINUTE: Duration = Duration::from_secs(60);

/// A header of a raw mail.
fn header<'a>(mail: &'a str, name: &str) -> &'a str {
    let of = |line: &'a str| line.split_once(": ").filter(|(header, _)| header.eq_ignore_ascii_case(name));
    mail.lines().find_map(of).unwrap_or_else(|| panic!("no {name} in {mail}")).1
}

/// The code of a raw mail, if it has one.
fn code_of(mail: &str) -> Option<&str> {
    mail.lines().map(str::trim).find(|line| line.len() == 6 && line.bytes().all(|it| it.is_ascii_digit()))
}

/// The code that was mailed to that address first.
fn code_to<'a>(mails: &'a [String], address: &str) -> &'a str {
    let to = mails.iter().filter(|mail| header(mail, "To") == address);
    to.filter_map(|mail| code_of(mail)).next().unwrap_or_else(|| panic!("no code to {address}: {mails:?}"))
}

async fn count(db: &Db, sql: &'static str) -> i64 {
    match db {
        Db::Sqlite(pools) => query_scalar(sql).fetch_one(&pools.all).await.unwrap(),
        Db::Postgres(pools) => query_scalar(sql).fetch_one(&pools.all).await.unwrap(),
    }
}

/// Asks for the code that confirms an address.
async fn ask_to_confirm(owner: &Client, address: &str) {
    let asked = owner.call("/mail/codes", json!({ "email": address, "purpose": "verify" })).await;
    assert_eq!(asked.status, 202, "{}", asked.text);
}

on_both_stores!(after_an_hour_without_a_server_notices_come_once_and_only_codes_that_are_valid);

/// Half of 50 mails are codes, half are notices. Of the eight that are being handed over when the process is killed, the
/// server has taken four.
#[tokio::test]
async fn of_a_killed_process_no_code_comes_twice_and_no_notice_is_lost() {
    const OWNERS: usize = 25;
    const AT_ONCE: usize = 8;
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    proxy.open().await;
    let (clock, mut home) = (SteeredClock::at(Clock::System.now()), Home::new());
    for (name, value) in clock.variables() {
        home.set(name, value.to_str().unwrap());
    }
    home.write(
        "gatehouse.toml",
        &format!(
            "[mail]\nurl = 'smtp://127.0.0.1:{}'\nfrom = 'login@example.org'\ntimeout = '2m'\n[limits]\n\
            register-address.rules = []\nmail-address.rules = []\nmail-network.rules = []\n",
            proxy.port
        ),
    );
    let running = home.start(&["serve"]).await;
    let address = |owner: usize| format!("owner{owner}@example.org");
    let owners: Vec<_> = (0..OWNERS).map(|_| running.client()).collect();
    for (number, owner) in owners.iter().enumerate() {
        assert_eq!(owner.register(&format!("owner{number}"), PASSWORD).await.status, 201);
        assert_eq!(owner.login(&format!("owner{number}"), PASSWORD).await.status, 200);
        ask_to_confirm(owner, &address(number)).await;
    }
    // No two messages have one time, so some are a little later than the clock.
    clock.advance(MINUTE / 60);
    let confirming = postfix.until_mails(OWNERS).await;
    let before = proxy.connections();
    // The first wait until all are queued, ten get through, and the last eight stay where they are.
    proxy.lets(move |count| match count - before {
        0..18 => Passage::Whole,
        count if count % 2 == 0 => Passage::Unanswered,
        _ => Passage::Silent,
    });
    postfix.signal("STOP");
    clock.advance(2 * MINUTE);
    for (number, owner) in owners.iter().enumerate() {
        // They are taken in the order of their times.
        clock.advance(Duration::from_millis(10));
        let code = code_to(&confirming, &address(number));
        assert_eq!(flows::set(owner, &address(number), code).await.status, 204);
        clock.advance(Duration::from_millis(10));
        assert_eq!(ask(owner, &address(number)).await.status, 202);
    }
    clock.advance(MINUTE / 60);
    postfix.signal("CONT");
    until("eight are held", async || proxy.held() == AT_ONCE).await;
    running.signal("KILL");
    drop(running);

    let taken_before = proxy.taken() - OWNERS;
    assert_eq!(taken_before, 18 + AT_ONCE / 2);
    proxy.lets(|_| Passage::Whole);
    // Nothing waits for the process any more.
    clock.advance(11 * MINUTE);
    let _running = home.start(&["serve"]).await;
    let db = Db::connect(&format!("sqlite://{}", home.path("data/gatehouse.db").display())).await.unwrap();
    until("nothing is queued", async || waiting(&db, "%").await == 0).await;
    let unknown = count(&db, "SELECT COUNT(*) FROM mail_queue WHERE state = 'unknown'").await;
    let mails = postfix.until_mails(proxy.taken()).await;
    assert_eq!(mails.len(), proxy.taken());
    let mut ids: BTreeMap<(bool, &str), Vec<&str>> = BTreeMap::new();
    for mail in mails.iter().filter(|mail| !confirming.contains(mail)) {
        let kind = (code_of(mail).is_some(), header(mail, "To"));
        ids.entry(kind).or_default().push(header(mail, "Message-ID"));
    }
    let (codes, notices): (Vec<_>, Vec<_>) = ids.into_iter().partition(|((is_code, _), _)| *is_code);
    assert!(codes.iter().all(|(_, ids)| ids.len() == 1), "a code came twice: {codes:?}");
    // None but those that were being handed over.
    assert!((1..AT_ONCE as i64).contains(&unknown), "{unknown}");
    assert!(codes.len() as i64 >= OWNERS as i64 - unknown, "{unknown} unknown: {codes:?}");
    assert_eq!(notices.len(), OWNERS, "a notice is lost: {notices:?}");
    for (of, ids) in &notices {
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 1, "{of:?}: {ids:?}");
    }
    let twice: usize = notices.iter().map(|(_, ids)| ids.len() - 1).sum();
    assert!(twice <= AT_ONCE / 2, "only what the server had taken is sent again: {notices:?}");
}

/// Notices and codes wait while the server's port is closed for an hour.
async fn after_an_hour_without_a_server_notices_come_once_and_only_codes_that_are_valid(store: Store) {
    const OWNERS: usize = 5;
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    proxy.open().await;
    let app = sending_through(&proxy, store).await;
    let db = Db::connect(&app.database).await.unwrap();
    let address = |owner: usize| format!("owner{owner}@example.org");
    let owners: Vec<_> = (0..OWNERS).map(|_| app.client()).collect();
    for (number, owner) in owners.iter().enumerate() {
        app.register(&format!("owner{number}")).await;
        assert_eq!(owner.login(&format!("owner{number}"), PASSWORD).await.status, 200);
        ask_to_confirm(owner, &address(number)).await;
        let mails = postfix.until_mails(2 * number + 1).await;
        let code = code_to(&mails, &address(number));
        assert_eq!(flows::set(owner, &address(number), code).await.status, 204);
        postfix.until_mails(2 * number + 2).await;
    }
    let before = postfix.until_mails(2 * OWNERS).await;
    until("all are noted", async || waiting(&db, "%").await == 0).await;
    let tries = "SELECT CAST(COALESCE(SUM(tries), 0) AS BIGINT) FROM mail_queue";
    let tried_before = count(&db, tries).await;

    proxy.close().await;
    app.advance(2 * MINUTE);
    for (number, owner) in owners.iter().enumerate() {
        let fields = [("current_password", PASSWORD), ("new_password", NEW)];
        assert_eq!(owner.submit("/account", "/account/password", &fields).await.status, 303);
        let expiring = if number % 2 == 0 { address(number) } else { format!("new{number}@example.org") };
        match number % 2 {
            0 => assert_eq!(ask(owner, &expiring).await.status, 202),
            _ => ask_to_confirm(owner, &expiring).await,
        }
    }
    for minute in 0..60 {
        match minute {
            30 => assert_eq!(app.client().login("owner1", NEW).await.status, 200),
            50 => assert_eq!(ask(&app.client(), &address(0)).await.status, 202),
            _ => {}
        }
        app.advance(MINUTE);
        deliver(&app).await;
    }
    let tried = count(&db, tries).await - tried_before;
    assert!((5..=30).contains(&tried), "{tried} tries");
    assert_eq!(postfix.mails().len(), before.len());

    proxy.open().await;
    for _ in 0..40 {
        if waiting(&db, "%").await == 0 {
            break;
        }
        app.advance(MINUTE / 2);
        deliver(&app).await;
    }
    assert_eq!(waiting(&db, "%").await, 0);
    let mails = postfix.until_mails(proxy.taken()).await;
    let new: Vec<_> = mails.iter().filter(|mail| !before.contains(mail)).collect();
    let codes: Vec<_> = new.iter().filter_map(|mail| code_of(mail)).collect();
    assert_eq!((codes.len(), new.len()), (1, 1 + OWNERS + 1), "{new:?}");
    for number in 0..OWNERS {
        let told = new.iter().filter(|mail| header(mail, "To") == address(number));
        let expected = 1 + usize::from(number < 2);
        assert_eq!(told.count(), expected, "{number}: {new:?}");
    }
    let set = reset(&app.client(), &address(0), codes[0]).await;
    assert_eq!(set.status, 204, "it is still valid: {}", set.text);
}

/// Hands over what is due now, and waits for its outcome.
async fn deliver(app: &TestApp) {
    let live = app.services.live.snapshot();
    while app.services.codes.deliver_mail(&live).await.unwrap() > 0 {
        app.services.codes.drain().await;
    }
    app.services.codes.drain().await;
}

#[tokio::test]
async fn redis_killed_in_the_hour_lets_no_sixth_mail_out() {
    let setup = TestApp::on(Store::Redis).set("store.timeout", "500ms");
    let setup = setup.without(&["mail-address", "mail-network"]);
    let mut app = setup.limit("mail-mailbox", &[max(5).per("1h")]).start().await;
    app.register("alice").await;
    // The first of five.
    flows::confirm(&app, &app.client(), ADA).await;
    let sent = async |app: &TestApp| mails(app, ADA).await.iter().filter(|mail| has_code(mail)).count();
    for killed_after in [3, 5] {
        while sent(&app).await < killed_after {
            let count = sent(&app).await;
            assert_eq!(asked(&app).await.status, 202, "mail {}", count + 1);
            newest_code(&app, ADA, count + 1).await;
        }
        let code = newest_code(&app, ADA, killed_after).await;
        app.redis.as_mut().unwrap().kill();
        for _ in 0..3 {
            let out = ask(&app.client(), ADA).await;
            assert_eq!((out.status, out.problem()), (503, "unavailable"), "{}", out.text);
            let out = reset(&app.client(), ADA, &code).await;
            assert_eq!((out.status, out.problem()), (503, "unavailable"), "{}", out.text);
        }
        app.restart_redis();
    }
    let sixth = asked(&app).await;
    assert_eq!(
        (sixth.problem(), &sixth.body["limit"]),
        ("throttled", &json!("mail-mailbox")),
        "{}",
        sixth.text
    );
    app.advance(61 * MINUTE);
    assert_eq!(ask(&app.client(), ADA).await.status, 202);
    newest_code(&app, ADA, 6).await;
    assert_eq!(sent(&app).await, 6);
}

/// The first answer after the store came back.
async fn asked(app: &TestApp) -> Answer {
    loop {
        let answer = ask(&app.client(), ADA).await;
        if answer.status != 503 {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // a server that comes back in real time
    }
}

/// An app that sends through a proxy to a Postfix of its own.
async fn sending_through(proxy: &MailProxy, store: Store) -> TestApp {
    let setup =
        TestApp::on(store).without(&["register-address", "mail-mailbox", "mail-address", "mail-network"]);
    let setup = setup.set("mail.url", format!("smtp://127.0.0.1:{}", proxy.port));
    setup.set("mail.from", "login@example.org").start().await
}

#[tokio::test]
async fn a_mail_whose_end_is_not_answered_comes_again_only_if_it_is_a_notice() {
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    proxy.open().await;
    let app = sending_through(&proxy, Store::Memory).await;
    let db = Db::connect(&app.database).await.unwrap();
    app.register("alice").await;
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    proxy.lets(|_| Passage::Cut);
    ask_to_confirm(&owner, ADA).await;
    let code = code_to(&postfix.until_mails(1).await, ADA).to_owned();
    assert_eq!(flows::set(&owner, ADA, &code).await.status, 204, "it may be entered all the same");
    postfix.until_mails(2).await;
    proxy.lets(|_| Passage::Whole);
    until("the notice comes again", async || {
        app.advance(MINUTE);
        deliver(&app).await;
        waiting(&db, "%").await == 0
    })
    .await;
    let mails = postfix.until_mails(proxy.taken()).await;
    let ids: Vec<_> = mails.iter().map(|mail| header(mail, "Message-ID")).collect();
    assert_eq!((ids.len(), ids[1]), (3, ids[2]), "{mails:?}");
    assert_eq!(mails.iter().filter(|mail| code_of(mail).is_some()).count(), 1);
}

#[tokio::test]
async fn a_mailbox_that_refuses_twice_gets_nothing_for_30_days() {
    const GONE: &str = "gone@example.org";
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    proxy.open().await;
    let app = sending_through(&proxy, Store::Memory).await;
    let db = Db::connect(&app.database).await.unwrap();
    app.register("alice").await;
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    let mut tries = Vec::new();
    for pause in [2 * MINUTE, 2 * MINUTE, 2 * MINUTE, 31 * 24 * 60 * MINUTE, MINUTE] {
        ask_to_confirm(&owner, GONE).await;
        until("it has ended", async || {
            deliver(&app).await;
            count(&db, "SELECT COUNT(*) FROM mail_queue WHERE sealed IS NOT NULL").await == 0
        })
        .await;
        tries.push(proxy.connections());
        app.advance(pause);
        owner.login("alice", PASSWORD).await;
    }
    assert_eq!(tries, [1, 2, 2, 2, 3], "and the answer is the same each time");
}
