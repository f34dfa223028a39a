//! Attacks by mail: bombs at one mailbox, spellings, scanners, and a server that is away.

use std::time::Duration;

use gatehouse::codes::*;
use gatehouse::mail::Mailbox;
use gatehouse::message::Purpose;
use serde_json::json;

use super::flows::{ask, ask_solved, code_of, codes, confirm, newest_code, newest_with_code, reset};
use crate::sms::rig::*;
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, TestApp};

const FIVE: &str = "[limits.mail-mailbox]\nrules = [{ max = 5, window = '1h' }]\n\
    [limits.mail-address]\nrules = []\n[limits.mail-network]\nrules = []\n[limits.mail-total]\nrules = []\n";

/// Spellings of one mailbox.
const SPELLINGS: [&str; 8] = [
    "ada.lovelace@gmail.com",
    "ADALOVELACE@gmail.com",
    "a.d.a.lovelace@googlemail.com",
    "adalovelace+a@gmail.com",
    "Ada.Lovelace+bomb@GMAIL.com",
    "adalovelace@ｇｍａｉｌ.com",
    " adalovelace@gmail.com ",
    "adalovelace+@googlemail.com",
];

on_each_store! {
    of_120_parallel_asks_for_one_mailbox_in_eight_spellings_five_are_sent,
}

async fn of_120_parallel_asks_for_one_mailbox_in_eight_spellings_five_are_sent(store: Store) {
    let rig = Rig::new(store, FIVE).await;
    let instances = match store {
        Store::Redis => vec![rig.instance().await, rig.instance().await],
        // Each process of a memory store counts alone.
        Store::Memory => vec![rig.instance().await],
    };
    let sends = |instances: &[Instance]| {
        let instances: Vec<_> =
            instances.iter().map(|instance| (instance.codes.clone(), instance.live().clone())).collect();
        (0..60).map(move |turn: usize| {
            let (codes, live) = instances[turn % instances.len()].clone();
            let to = Mailbox::parse(SPELLINGS[turn % SPELLINGS.len()]).unwrap();
            let here = address();
            let asked = RequestedMessage::new(to, Purpose::Verify, "en").asked_from(&here, &here[..6]);
            async move { codes.send(&live, asked).await.unwrap() }
        })
    };
    let mut outcomes = all(sends(&instances)).await;
    if store == Store::Redis {
        rig.flush();
    }
    outcomes.extend(all(sends(&instances)).await);
    let sent = outcomes.iter().filter(|outcome| matches!(outcome, SendOutcome::Sent(_))).count();
    assert_eq!((outcomes.len(), sent), (120, 5));
    let queued = instances[0].ledger().await;
    assert_eq!(queued.len(), 5, "{queued:?}");
}

#[tokio::test]
async fn whoever_follows_a_link_or_sends_empty_forms_uses_up_no_code() {
    let app = TestApp::on(crate::support::app::Store::Memory).start().await;
    app.client().register("alice", PASSWORD).await;
    confirm(&app, &app.client(), "ada@example.org").await;
    let owner = app.client();
    assert_eq!(ask(&owner, "ada@example.org").await.status, 202);
    let mail = newest_with_code(&app, "ada@example.org", 2).await;
    let code = code_of(&mail);
    let text = mail["text"].as_str().unwrap().to_owned();
    let link = text.split_whitespace().find(|word| word.starts_with("http")).expect("a link");
    assert!(!link.contains(&code), "{link}");
    let path = url::Url::parse(link).unwrap().path().to_owned();
    let scanner = app.client();
    for _ in 0..5 {
        assert_eq!(scanner.http.head(format!("{}{path}", app.url)).send().await.unwrap().status(), 200);
        assert_eq!(scanner.get(&path).await.status, 200);
        scanner
            .submit(&path, &path, &[("phone", "ada@example.org"), ("code", ""), ("good_until", "1")])
            .await;
    }
    let set = reset(&owner, "ada@example.org", &code).await;
    assert_eq!(set.status, 204, "{}", set.text);
}

#[tokio::test]
async fn nothing_that_is_typed_is_a_header() {
    let app = TestApp::on(crate::support::app::Store::Memory).start().await;
    app.client().register("alice", PASSWORD).await;
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    for typed in [
        "ada@example.org\r\nBcc: eve@example.org",
        "ada@example.org%0d%0aBcc:eve@example.org,",
        "=?utf-8?q?eve=40example.org?=@example.org",
        "ada@example.org\0",
        "\"ada\r\n\"@example.org",
        "ada@example.org\u{2028}x",
    ] {
        let told = owner.call("/email/codes", json!({ "email": typed, "purpose": "verify" })).await;
        assert_eq!(told.problem(), "invalid-email", "{typed:?}: {}", told.text);
    }
}

#[tokio::test]
async fn letters_that_look_alike_are_never_anothers_mailbox() {
    let app = TestApp::on(crate::support::app::Store::Memory).start().await;
    app.client().register("alice", PASSWORD).await;
    confirm(&app, &app.client(), "kim@example.org").await;
    for typed in
        ["\u{212a}im@example.org", "k\u{131}m@example.org", "ｋｉｍ@example.org", "kim@ex\u{430}mple.org"]
    {
        assert_eq!(ask(&app.client(), typed).await.status, 202, "{typed}");
        app.advance(Duration::from_secs(1));
    }
    app.advance(Duration::from_secs(61));
    // What is queued later has come: the code to confirm it, and this one, and none besides.
    assert_eq!(ask(&app.client(), "kim@example.org").await.status, 202);
    newest_code(&app, "kim@example.org", 2).await;
    assert_eq!(codes(&app, "kim@example.org").await, 2);
}

/// Has the code that confirms an address sent, with the challenge that is required, if one is.
async fn ask_to_confirm(stranger: &Client, address: &str) -> (Answer, Option<Answer>) {
    let mut body = json!({ "email": address, "purpose": "verify" });
    let first = stranger.call("/email/codes", body.clone()).await;
    if first.problem() != "captcha-required" {
        return (first, None);
    }
    body["captcha"] = json!({ "id": first.body["captcha"]["id"], "answer": ANSWER });
    let solved = stranger.call("/email/codes", body).await;
    (first, Some(solved))
}

/// Strangers with accounts, in 50 networks, have codes sent to made-up addresses of the firm.
#[tokio::test]
async fn two_hundred_asks_at_a_small_firms_domain_shut_none_of_its_owners_out() {
    let app = TestApp::on(crate::support::app::Store::Memory).behind_a_proxy().start().await;
    app.client_at("203.0.113.7").register("alice", PASSWORD).await;
    confirm(&app, &app.client_at("203.0.113.7"), "ada@firm.example").await;
    let (mut sent, mut challenged) = (0, 0);
    for network in 0..50 {
        let (stranger, login) = (app.client_at(&format!("10.0.{network}.1")), format!("mallory{network}"));
        assert_eq!(stranger.register(&login, PASSWORD).await.status, 201);
        assert_eq!(stranger.login(&login, PASSWORD).await.status, 200);
        for turn in 0..4 {
            let address = format!("nobody{network}-{turn}@firm.example");
            match ask_to_confirm(&stranger, &address).await {
                (first, None) => {
                    assert_eq!(first.status, 202, "{}", first.text);
                    sent += 1;
                }
                (_, Some(solved)) => {
                    assert_eq!(solved.status, 202, "nobody is refused: {}", solved.text);
                    challenged += 1;
                }
            }
        }
        // What an instance does every ten seconds.
        app.services.codes.watch_costs(&app.services.live.snapshot()).await;
    }
    assert_eq!((sent, challenged), (100, 100));
    let owner = app.client_at("203.0.113.7");
    assert_eq!(ask_solved(&owner, "Ada@firm.example").await.status, 202);
    let code = newest_code(&app, "ada@firm.example", 2).await;
    let set = reset(&owner, "ada@firm.example", &code).await;
    assert_eq!(set.status, 204, "{}", set.text);
    assert_eq!(ask(&owner, "ada@other.example").await.status, 202, "another domain");
    app.advance(25 * HOUR);
    app.services.codes.watch_costs(&app.services.live.snapshot()).await;
    assert_eq!(ask(&owner, "ada@firm.example").await.status, 202, "it ends by itself");
}
