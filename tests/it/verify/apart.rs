//! What strangers at our own pages and the users of several programs leave each other: each program has windows of its
//! own, and shared are only the `block` rules of a number and the total.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{PHONE, Program};
use crate::guard::console::hits;
use crate::relay::Logto;
use crate::sms::http::with_number;
use crate::sms::rig::until;
use crate::support::app::{ANSWER, Answer, Client, Store, TestApp, on_both_stores};
use crate::support::setup::{Setup, max};

on_both_stores!(
    strangers_who_ask_for_a_number_have_it_refused_at_no_program,
    strangers_at_an_address_and_a_network_have_nobody_refused_at_a_program,
    users_of_a_program_take_nothing_from_pages_or_another_program,
    a_relay_meets_blocks_and_verify_a_challenge_before_each,
    the_blocks_of_a_number_hold_over_pages_verify_and_relay_at_once,
    of_200_asks_at_once_for_an_address_twenty_are_messages,
    strangers_leave_programs_a_fifth_of_the_total_and_accounts_another,
    programs_together_leave_accounts_their_fifth,
);

const MINUTE: Duration = Duration::from_secs(60);

/// Our own pages, Verify and a relay.
pub struct Ways {
    pub app: TestApp,
    pub boss: Client,
    pub shop: Program,
    pub idp: Logto,
}

pub async fn started(setup: Setup) -> Ways {
    let app = setup.behind_a_proxy().start().await;
    let boss = app.sign_in_admin("boss").await;
    let shop = Program::of(&app, &boss, "verify:shop").await;
    let idp = Logto::of(&app, &boss, "relay:idp").await;
    Ways { app, boss, shop, idp }
}

/// Another number each, of a block of its own.
pub fn number(n: usize) -> String {
    format!("+86138{n:04}0000")
}

impl Ways {
    pub async fn page(&self, to: &str, address: &str) -> Answer {
        self.app.client_at(address).ask_code(to, "login").await
    }

    pub async fn relay(&self, to: &str, address: &str) -> Answer {
        relayed(&self.idp, to, address).await
    }

    pub async fn verify(&self, to: &str, address: &str) -> Answer {
        self.shop.call("", json!({ "to": to, "address": address })).await
    }

    async fn outbox(&self) -> usize {
        self.app.client().codes("").await.len()
    }

    pub async fn hits(&self, limit: &str, subject: &str) -> usize {
        hits(&self.boss, limit, subject).await
    }
}

/// The number is part of the code, so that no call is a repetition.
async fn relayed(idp: &Logto, to: &str, address: &str) -> Answer {
    let code = &to[to.len() - 8..];
    idp.call("logto/idp", &json!({ "to": to, "ip": address, "payload": { "code": code } })).await
}

pub fn by(answer: &Answer) -> (u16, Value) {
    (answer.status, answer.body["limit"].clone())
}

async fn strangers_who_ask_for_a_number_have_it_refused_at_no_program(store: Store) {
    let ways = started(TestApp::on(store)).await;
    for n in 0..3 {
        assert_eq!(ways.page(PHONE, &format!("203.0.{n}.7")).await.status, 202);
        ways.app.advance(MINUTE);
    }
    assert_eq!(ways.page(PHONE, "203.0.9.7").await.problem(), "captcha-required");
    let relayed = ways.relay(PHONE, "198.51.100.1").await;
    assert_eq!(relayed.status, 200, "{}", relayed.text);
    ways.app.advance(MINUTE);
    let verified = ways.verify(PHONE, "198.51.100.1").await;
    assert_eq!(verified.status, 202, "{}", verified.text);
    ways.app.advance(MINUTE);
    // Five an hour, whoever asks: for the number's protection.
    assert_eq!(by(&ways.relay(PHONE, "192.0.2.9").await), (429, json!("sms-phone")));
    assert_eq!(by(&ways.verify(PHONE, "192.0.2.9").await), (429, json!("sms-phone")));
}

async fn strangers_at_an_address_and_a_network_have_nobody_refused_at_a_program(store: Store) {
    let ways = started(TestApp::on(store)).await;
    for n in 0..10 {
        assert_eq!(ways.page(&number(n), "203.0.113.7").await.status, 202);
    }
    assert_eq!(ways.page(&number(10), "203.0.113.7").await.problem(), "captcha-required");
    for n in 10..20 {
        let neighbour = if n < 15 { "203.0.113.8" } else { "203.0.113.9" };
        assert_eq!(ways.page(&number(n), neighbour).await.status, 202);
    }
    assert_eq!(ways.page(&number(20), "203.0.113.10").await.problem(), "captcha-required");
    for (n, address) in ["203.0.113.7", "203.0.113.10"].into_iter().enumerate() {
        let relayed = ways.relay(&number(30 + n), address).await;
        assert_eq!(relayed.status, 200, "{}", relayed.text);
        let verified = ways.verify(&number(40 + n), address).await;
        assert_eq!(verified.status, 202, "{}", verified.text);
    }
    assert_eq!(ways.hits("sms-address", "203.0.113.7").await, 10);
}

async fn users_of_a_program_take_nothing_from_pages_or_another_program(store: Store) {
    let one = || vec![max(1).per("1h")];
    let setup = TestApp::on(store)
        .limit("sms-address", &[max(2).per("1h")])
        .limit("sms-network", &[max(2).per("1h")])
        .limit("sms-prefix", &[max(2).per("1h")])
        .limit("program-address", &one())
        .limit("program-network", &one())
        .limit("program-prefix", &one());
    let ways = started(setup).await;
    let (mail, other) = (
        Program::of(&ways.app, &ways.boss, "verify:mail").await,
        // A relay of the same name as a program of Verify is another program.
        Logto::of(&ways.app, &ways.boss, "relay:shop").await,
    );
    let (address, block) = ("203.0.113.7", "+861380013");
    assert_eq!(ways.verify(&format!("{block}0001"), address).await.status, 202);
    assert_eq!(ways.relay(&format!("{block}0002"), address).await.status, 200);
    assert_eq!(mail.call("", json!({ "to": format!("{block}0003"), "address": address })).await.status, 202);
    let body = json!({ "to": format!("{block}0004"), "ip": address, "payload": { "code": "1234" } });
    assert_eq!(other.call("logto/shop", &body).await.status, 200);
    assert_eq!(ways.page(&format!("{block}0005"), address).await.status, 202);
    for (limit, to, from) in [
        ("program-address", number(1), address),
        ("program-network", number(2), "203.0.113.8"),
        ("program-prefix", format!("{block}0006"), "192.0.2.1"),
    ] {
        assert_eq!(by(&ways.verify(&to, from).await), (429, json!(limit)));
        assert_eq!(by(&ways.relay(&to, from).await), (429, json!(limit)));
    }
}

async fn a_relay_meets_blocks_and_verify_a_challenge_before_each(store: Store) {
    let ways = started(TestApp::on(store)).await;
    let address = "203.0.113.7";
    for n in 0..20 {
        let relayed = ways.relay(&number(n), address).await;
        assert_eq!(relayed.status, 200, "{n}: {}", relayed.text);
    }
    assert_eq!(by(&ways.relay(&number(20), address).await), (429, json!("program-address")));
    assert_eq!(ways.relay(&number(20), "203.0.113.8").await.status, 200, "its network has room");
    let mut to = (100..).map(number);
    for _ in 0..10 {
        assert_eq!(ways.verify(&to.next().unwrap(), address).await.status, 202);
    }
    for n in 10..=20 {
        let to = to.next().unwrap();
        let asked = ways.verify(&to, address).await;
        if n == 20 {
            assert_eq!(by(&asked), (429, json!("program-address")), "{}", asked.text);
            break;
        }
        assert_eq!(asked.problem(), "captcha-required", "{}", asked.text);
        let captcha = json!({ "id": asked.body["captcha"]["id"], "answer": ANSWER });
        let solved = ways.shop.call("", json!({ "to": to, "address": address, "captcha": captcha })).await;
        assert_eq!(solved.status, 202, "{n}: {}", solved.text);
        assert!(solved.header("ratelimit-policy").contains("\"program-address\""), "{:?}", solved.headers);
    }
}

async fn the_blocks_of_a_number_hold_over_pages_verify_and_relay_at_once(store: Store) {
    let five = TestApp::on(store).limit("sms-phone", &[max(5).per("1h"), max(4).per("1h").captcha()]);
    let ways = started(five.without(&["sms-network", "program-network"])).await;
    let mut sending = JoinSet::new();
    for n in 0..100 {
        let (client, shop, idp) =
            (ways.app.client_at(&format!("10.0.{n}.1")), ways.shop.clone(), ways.idp.clone());
        sending.spawn(async move {
            let address = format!("10.1.{n}.1");
            let answer = match n % 3 {
                0 => client.ask_code(PHONE, "login").await,
                1 => shop.call("", json!({ "to": PHONE, "address": address })).await,
                _ => {
                    let payload = json!({ "code": format!("{n:06}") });
                    idp.call("logto/idp", &json!({ "to": PHONE, "ip": address, "payload": payload })).await
                }
            };
            // A relay waits for three seconds at most, and what it gives up is not sent.
            assert!([200, 202, 403, 429, 503].contains(&answer.status), "{}", answer.text);
            [200, 202].contains(&answer.status)
        });
    }
    let mut sent = sending.join_all().await.into_iter().filter(|sent| *sent).count();
    loop {
        let body = json!({ "to": PHONE, "payload": { "code": format!("9{sent:05}") } });
        if ways.idp.call("logto/idp", &body).await.status != 200 {
            break;
        }
        sent += 1;
    }
    assert_eq!((sent, ways.app.client().codes(PHONE).await.len()), (5, 5));
}

async fn of_200_asks_at_once_for_an_address_twenty_are_messages(store: Store) {
    let ways = started(
        TestApp::on(store).limit("program-address", &[max(20).per("1h")]).without(&["program-network"]),
    )
    .await;
    let mut sending = JoinSet::new();
    for n in 0..200 {
        let (shop, body) = (ways.shop.clone(), json!({ "to": number(n), "address": "203.0.113.7" }));
        sending.spawn(async move {
            let answer = shop.call("", body).await;
            assert!(
                answer.status == 202 || by(&answer) == (429, json!("program-address")),
                "{}",
                answer.text
            );
            answer.status == 202
        });
    }
    let sent = sending.join_all().await.into_iter().filter(|sent| *sent).count();
    assert_eq!((sent, ways.outbox().await), (20, 20));
    assert_eq!(ways.hits("program-address", "verify:shop:203.0.113.7").await, 20);
}

/// Of ten messages a day; ada's account has a number, which took one.
async fn ten_a_day(store: Store) -> Ways {
    let setup = TestApp::on(store).limit("sms-total", &[max(10).per("24h")]);
    let ways = started(setup.without(&["sms-phone", "login-address", "login-network"])).await;
    with_number(&ways.app, "ada", PHONE).await;
    assert_eq!(ways.outbox().await, 1);
    ways
}

/// A code for the sign-in to an account; the answer is the same for every number.
async fn ask_solved(ways: &Ways, to: &str) {
    let client = ways.app.client_at("192.0.2.77");
    let asked = client.ask_code(to, "login").await;
    assert_eq!((asked.status, asked.problem()), (403, "captcha-required"), "{}", asked.text);
    let captcha = json!({ "id": asked.body["captcha"]["id"], "answer": ANSWER });
    let body = json!({ "phone": to, "purpose": "login", "captcha": captcha });
    let told = client.call("/sms/codes", body).await;
    assert_eq!((told.status, &told.body["short"]), (202, &json!(true)), "{}", told.text);
}

async fn the_account_gets_the_last_fifth(ways: &Ways) {
    for more in [1, 2] {
        ask_solved(ways, PHONE).await;
        ask_solved(ways, &number(200)).await;
        until(async || ways.outbox().await == 8 + more).await;
    }
    ask_solved(ways, PHONE).await;
    assert_eq!(by(&ways.relay(&number(90), "192.0.2.1").await), (429, json!("sms-total")));
    assert_eq!(by(&ways.verify(&number(91), "192.0.2.1").await), (429, json!("sms-total")));
    assert_eq!((ways.outbox().await, ways.app.client().codes(&number(200)).await.len()), (10, 0));
}

async fn strangers_leave_programs_a_fifth_of_the_total_and_accounts_another(store: Store) {
    let ways = ten_a_day(store).await;
    for n in 1..6 {
        assert_eq!(ways.page(&number(n), "203.0.113.7").await.status, 202);
    }
    let register = ways.app.client_at("192.0.2.9").ask_code(&number(6), "register").await;
    assert_eq!(by(&register), (429, json!("sms-total")));
    let relayed = ways.relay(&number(7), "203.0.113.7").await;
    assert_eq!(relayed.status, 200, "{}", relayed.text);
    let verified = ways.verify(&number(8), "203.0.113.7").await;
    assert_eq!(verified.status, 202, "{}", verified.text);
    assert_eq!(by(&ways.verify(&number(9), "203.0.113.7").await), (429, json!("sms-total")));
    the_account_gets_the_last_fifth(&ways).await;
}

async fn programs_together_leave_accounts_their_fifth(store: Store) {
    let ways = ten_a_day(store).await;
    for n in 1..8 {
        let answer = if n % 2 == 0 {
            ways.relay(&number(n), "203.0.113.7").await
        } else {
            ways.verify(&number(n), "203.0.113.7").await
        };
        assert!([200, 202].contains(&answer.status), "{}", answer.text);
    }
    let register = ways.app.client_at("192.0.2.9").ask_code(&number(8), "register").await;
    assert_eq!(by(&register), (429, json!("sms-total")));
    the_account_gets_the_last_fifth(&ways).await;
}
