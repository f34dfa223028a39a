//! What is lost while mails are handed over: the process, the mail server, Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use gatehouse::clock::Clock;
use gatehouse::db::Db;
use serde_json::json;
use sqlx::query_scalar;

use super::flows::{self, NEW, ask, mails, newest_code, reset, waiting};
use super::proxy::{MailProxy, Passage};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::authority::Authority;
use crate::support::mail_server::Senders;
use crate::support::postfix::Postfix;
use crate::support::process::{Home, Running};
use crate::support::redis::RedisServer;
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
    let asked = owner.call("/email/codes", json!({ "email": address, "purpose": "verify" })).await;
    assert_eq!(asked.status, 202, "{}", asked.text);
}

on_both_stores!(after_an_hour_without_a_server_notices_come_once_and_only_codes_that_are_valid);

const OWNERS: usize = 25;
/// Mails that one process hands over at the same time.
const AT_ONCE: usize = 8;

/// Of 50 mails, half of which are codes, and half notices.
struct Owners {
    clients: Vec<Client>,
    /// What they got before.
    confirming: Vec<String>,
}

impl Owners {
    fn address(number: usize) -> String {
        format!("owner{number}@example.org")
    }

    /// With accounts, and a code each to confirm an address.
    async fn of(running: &Running, postfix: &Postfix, tick: impl Fn()) -> Self {
        let clients: Vec<_> = (0..OWNERS).map(|_| running.client()).collect();
        for (number, client) in clients.iter().enumerate() {
            let login = format!("owner{number}");
            assert_eq!(client.register(&login, PASSWORD).await.status, 201);
            assert_eq!(client.login(&login, PASSWORD).await.status, 200);
            tick();
            ask_to_confirm(client, &Self::address(number)).await;
        }
        tick();
        Self { clients, confirming: postfix.until_mails(OWNERS).await }
    }

    /// Has the 50 queued, each notice before a code.
    async fn queue(&self, tick: impl Fn()) {
        for (number, client) in self.clients.iter().enumerate() {
            tick();
            let address = Self::address(number);
            let code = code_to(&self.confirming, &address);
            assert_eq!(flows::set(client, &address, code).await.status, 200);
            tick();
            assert_eq!(ask(client, &address).await.status, 202);
        }
        tick();
    }

    /// What must be so once nothing is queued, whenever the process was killed that was handing eight over.
    fn judge(&self, mails: &[String], unknown: i64) {
        let mut ids: BTreeMap<(bool, &str), Vec<&str>> = BTreeMap::new();
        for mail in mails.iter().filter(|mail| !self.confirming.contains(mail)) {
            let kind = (code_of(mail).is_some(), header(mail, "To"));
            ids.entry(kind).or_default().push(header(mail, "Message-ID"));
        }
        let (codes, notices): (Vec<_>, Vec<_>) = ids.into_iter().partition(|((is_code, _), _)| *is_code);
        assert!(codes.iter().all(|(_, ids)| ids.len() == 1), "a code came twice: {codes:?}");
        assert_eq!(notices.len(), OWNERS, "a notice is lost: {notices:?}");
        for (of, ids) in &notices {
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 1, "{of:?}: {ids:?}");
        }
        let twice: usize = notices.iter().map(|(_, ids)| ids.len() - 1).sum();
        assert!(twice <= AT_ONCE / 2, "only what the server had taken is sent again: {notices:?}");
        assert!(unknown <= AT_ONCE as i64, "{unknown}");
        assert!(codes.len() as i64 >= OWNERS as i64 - unknown, "{unknown} unknown: {codes:?}");
    }
}

async fn unknown(db: &Db) -> i64 {
    count(db, "SELECT COUNT(*) FROM mail_queue WHERE state = 'unknown'").await
}

fn config(proxy: &MailProxy) -> String {
    format!(
        "[mail]\nurl = 'smtp://127.0.0.1:{}'\nfrom = 'login@example.org'\ntimeout = '2m'\n[limits]\n\
        register-address.rules = []\nmail-mailbox.rules = []\nmail-address.rules = []\nmail-network.rules = []\n",
        proxy.port
    )
}

/// Of those that are being handed over when the process is killed, the server has taken half.
fn held(count: usize) -> Passage {
    if count.is_multiple_of(2) { Passage::Unanswered } else { Passage::Silent }
}

#[tokio::test]
async fn of_a_killed_process_no_code_comes_twice_and_no_notice_is_lost() {
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    proxy.open().await;
    let (clock, mut home) = (SteeredClock::at(Clock::System.now()), Home::new());
    for (name, value) in clock.variables() {
        home.set(name, value.to_str().unwrap());
    }
    home.write("gatehouse.toml", &config(&proxy));
    let running = home.start(&["serve"]).await;
    // No two messages have one time, so that they may be later than a clock that stands still.
    let tick = || clock.advance(MINUTE / 60);
    let owners = Owners::of(&running, &postfix, tick).await;
    let before = proxy.connections();
    // The first wait until all are queued, ten more get through, and the last eight stay where they are.
    proxy.lets(move |count| if count - before < 18 { Passage::Whole } else { held(count) });
    postfix.signal("STOP");
    owners.queue(tick).await;
    postfix.signal("CONT");
    until("eight are held", async || proxy.held() == AT_ONCE).await;
    running.signal("KILL");
    drop(running);

    assert_eq!(proxy.taken() - OWNERS, 18 + AT_ONCE / 2);
    proxy.lets(|_| Passage::Whole);
    // Nothing waits for the process any more.
    clock.advance(11 * MINUTE);
    let _running = home.start(&["serve"]).await;
    let db = Db::connect(&format!("sqlite://{}", home.path("data/gatehouse.db").display())).await.unwrap();
    until("nothing is queued", async || waiting(&db, "%").await == 0).await;
    let mails = postfix.until_mails(proxy.taken()).await;
    assert_eq!(mails.len(), proxy.taken());
    owners.judge(&mails, unknown(&db).await);
}

#[tokio::test]
async fn of_two_processes_one_sends_what_the_killed_one_had_not() {
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let (database, redis) = (Store::Redis.database().await, RedisServer::start());
    let (mut homes, mut proxies) =
        ([Home::new(), Home::new()], [(); 2].map(|()| MailProxy::to(postfix.port())));
    let key = homes[0].path("secret.key").display().to_string();
    let mut running = Vec::new();
    for (home, proxy) in homes.iter_mut().zip(&mut proxies) {
        proxy.open().await;
        home.set("GATEHOUSE__DATABASE__URL", &database.url);
        home.set("GATEHOUSE__STORE__URL", redis.url());
        home.set("GATEHOUSE__SECRETS__KEY_FILE", &key);
        home.write("gatehouse.toml", &config(proxy));
        running.push(home.start(&["serve"]).await);
    }
    let owners = Owners::of(&running[0], &postfix, || {}).await;
    let db = Db::connect(&database.url).await.unwrap();
    until("all are noted", async || waiting(&db, "%").await == 0).await;
    let [first, second] = &proxies;
    let before = first.connections();
    first.lets(held);
    postfix.signal("STOP");
    owners.queue(|| {}).await;
    until("it hands over eight", async || first.connections() == before + AT_ONCE).await;
    postfix.signal("CONT");
    until("eight are held", async || first.held() == AT_ONCE).await;
    running[0].signal("KILL");

    let rest = "SELECT COUNT(*) FROM mail_queue WHERE state = 'queued' AND tries = 0";
    until("the other one sends the rest", async || count(&db, rest).await == 0).await;
    // What the killed one had taken is due after ten minutes.
    let Db::Postgres(pools) = &db else { unreachable!("its URL says PostgreSQL") };
    let later = "UPDATE mail_queue SET next_at = next_at - 660000000 WHERE state = 'queued'";
    sqlx::query(later).execute(&pools.all).await.unwrap();
    until("nothing is queued", async || waiting(&db, "%").await == 0).await;
    let taken = || first.taken() + second.taken();
    let mails = postfix.until_mails(taken()).await;
    assert_eq!(mails.len(), taken());
    owners.judge(&mails, unknown(&db).await);
}

/// The server hangs up for half an hour, and for another half its port is closed.
async fn after_an_hour_without_a_server_notices_come_once_and_only_codes_that_are_valid(store: Store) {
    const SOME: usize = 5;
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    proxy.open().await;
    let app = sending_through(&proxy, store).await;
    let db = Db::connect(&app.database).await.unwrap();
    let address = Owners::address;
    let owners: Vec<_> = (0..SOME).map(|_| app.client()).collect();
    for (number, owner) in owners.iter().enumerate() {
        app.register(&format!("owner{number}")).await;
        assert_eq!(owner.login(&format!("owner{number}"), PASSWORD).await.status, 200);
        ask_to_confirm(owner, &address(number)).await;
        let mails = postfix.until_mails(2 * number + 1).await;
        let code = code_to(&mails, &address(number));
        assert_eq!(flows::set(owner, &address(number), code).await.status, 200);
        postfix.until_mails(2 * number + 2).await;
    }
    let before = postfix.until_mails(2 * SOME).await;
    until("all are noted", async || waiting(&db, "%").await == 0).await;

    let connected = proxy.connections();
    proxy.lets(|_| Passage::None);
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
    // More than are tried within the hour.
    for spare in 0..30 {
        ask_to_confirm(&owners[0], &format!("spare{spare}@example.org")).await;
    }
    for minute in 0..60 {
        match minute {
            30 => {
                // Up to eight were being handed over at first.
                let tried = proxy.connections() - connected;
                assert!((4..=20).contains(&tried), "one mail tries after each pause, not {tried}");
                proxy.close().await;
                assert_eq!(app.client().login("owner1", NEW).await.status, 200);
            }
            50 => assert_eq!(ask(&app.client(), &address(0)).await.status, 202),
            _ => {}
        }
        app.advance(MINUTE);
        deliver(&app).await;
    }
    assert_eq!(postfix.mails().len(), before.len());

    proxy.lets(|_| Passage::Whole);
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
    assert_eq!((codes.len(), new.len()), (1, 1 + SOME + 1), "{new:?}");
    for number in 0..SOME {
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
    for killed_after in [3, 5] {
        while flows::codes(&app, ADA).await < killed_after {
            let count = flows::codes(&app, ADA).await;
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
    assert_eq!(flows::codes(&app, ADA).await, 6);
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
    assert_eq!(flows::set(&owner, ADA, &code).await.status, 200, "it may be entered all the same");
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
async fn eight_mails_that_fail_together_wait_for_one_pause() {
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    proxy.lets(|_| Passage::Silent);
    proxy.open().await;
    let app = sending_through(&proxy, Store::Memory).await;
    app.register("alice").await;
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    for number in 0..AT_ONCE {
        ask_to_confirm(&owner, &Owners::address(number)).await;
    }
    until("eight are held", async || proxy.held() == AT_ONCE).await;
    proxy.close().await;
    app.services.codes.drain().await;
    proxy.lets(|_| Passage::Whole);
    proxy.open().await;
    app.advance(MINUTE / 10);
    postfix.until_mails(AT_ONCE).await;
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

/// An app whose server has refused a connection, and the owner of an address that is not confirmed.
async fn without_its_server(proxy: &mut MailProxy) -> (TestApp, Client) {
    let app = sending_through(proxy, Store::Memory).await;
    app.register("alice").await;
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    ask_to_confirm(&owner, ADA).await;
    until("the server is known to be away", async || is_away(&app)).await;
    (app, owner)
}

fn is_away(app: &TestApp) -> bool {
    app.services.codes.mail_server().unwrap().failures > 0
}

#[tokio::test]
async fn what_goes_to_nobody_waits_for_no_server() {
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    let (app, _) = without_its_server(&mut proxy).await;
    let db = Db::connect(&app.database).await.unwrap();
    for number in 0..20 {
        assert_eq!(ask(&app.client(), &format!("nobody{number}@example.org")).await.status, 202);
    }
    until("they have ended", async || {
        count(&db, "SELECT COUNT(*) FROM mail_queue WHERE state = 'withheld'").await == 20
    })
    .await;
    assert_eq!(count(&db, "SELECT COUNT(*) FROM sms_messages WHERE state = 'withheld'").await, 20);
    assert!(is_away(&app), "nothing was tried meanwhile");
    assert_eq!(waiting(&db, "%").await, 1);
}

#[tokio::test]
async fn a_server_that_is_back_is_noticed_though_no_mail_waits() {
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    let (app, _) = without_its_server(&mut proxy).await;
    let db = Db::connect(&app.database).await.unwrap();
    app.advance(11 * MINUTE);
    until("its code has expired", async || waiting(&db, "%").await == 0).await;
    proxy.open().await;
    app.advance(6 * MINUTE);
    until("it is known to be back", async || !is_away(&app)).await;
    assert_eq!(proxy.taken(), 0);
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_prolong_a_pause() {
    let postfix = Postfix::start(&Authority::new(), "localhost", Senders::Anybody).await;
    let mut proxy = MailProxy::to(postfix.port());
    let (app, _) = without_its_server(&mut proxy).await;
    app.clock.set(app.clock.now().minus(24 * 60 * MINUTE));
    proxy.open().await;
    until("it is known to be back", async || !is_away(&app)).await;
}

/// Whether a future waits for something after its first turn.
async fn waits(future: &mut (impl Future + Unpin)) -> bool {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context).is_pending())).await
}

#[tokio::test]
async fn a_server_that_stops_waits_for_mails_that_are_being_taken() {
    let app = TestApp::start(Store::Memory).await;
    let (codes, live) = (&app.services.codes, app.services.live.snapshot());
    // A database that answers at once leaves nothing to stop in.
    let taking = loop {
        let mut taking = Box::pin(codes.deliver_mail(&live));
        if waits(&mut taking).await {
            break taking;
        }
    };
    let mut draining = Box::pin(codes.drain());
    assert!(waits(&mut draining).await, "what it finds would be sent by nobody");
    taking.await.unwrap();
    draining.await;
}

#[tokio::test]
async fn a_notice_that_has_waited_too_long_is_not_sent_and_one_of_a_newer_version_is_kept() {
    let app = TestApp::start(Store::Memory).await;
    let db = Db::connect(&app.database).await.unwrap();
    app.register("alice").await;
    flows::confirm(&app, &app.client(), ADA).await;
    let before = flows::until_mails(&app, ADA, 2).await.len();
    app.services.codes.drain().await;
    let Db::Sqlite(pools) = &db else { unreachable!("it counts in process") };
    let newer = "UPDATE mail_queue SET state = 'queued', next_at = 0, tries = 0, kind = 'of-tomorrow' WHERE account IS NOT NULL";
    sqlx::query(newer).execute(&pools.all).await.unwrap();
    let kept = "SELECT COUNT(*) FROM mail_queue WHERE state = 'queued' AND tries = 1 AND next_at > 0";
    until("it is kept", async || count(&db, kept).await == 1).await;
    app.services.codes.drain().await;
    let old =
        "UPDATE mail_queue SET next_at = 0, expires_at = 1, kind = 'address-set' WHERE account IS NOT NULL";
    sqlx::query(old).execute(&pools.all).await.unwrap();
    let given_up = "SELECT COUNT(*) FROM mail_queue WHERE state = 'expired' AND account IS NOT NULL";
    until("it is given up", async || count(&db, given_up).await == 1).await;
    app.services.codes.drain().await;
    assert_eq!(mails(&app, ADA).await.len(), before);
}
