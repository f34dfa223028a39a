//! The dialect of a mail server: what it is answered, and what each report makes of it. The bodies are Dovecot's.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::task::JoinSet;

use super::mail_server::{HOME, MailServer, Try, from, mail};
use super::{Program, started};
use crate::support::app::{Answer, Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    of_two_hundred_at_once_three_are_looked_at_by_imap,
    twelve_right_passwords_at_once_are_all_looked_at,
    one_connection_tries_many_passwords_and_a_report_may_come_late,
    the_question_after_a_right_password_takes_no_second_slot,
    a_report_of_our_own_refusal_settles_nothing,
    a_failure_without_a_question_counts_once,
    a_known_pair_goes_on_where_strangers_have_used_up_the_name,
    a_pair_is_known_for_thirty_days,
    an_attempt_without_a_report_counts_as_a_failure,
    without_a_session_each_question_has_a_slot_of_its_own,
);

async fn of_two_hundred_at_once_three_are_looked_at_by_imap(store: Store) {
    let (_app, _, mail) = mail(store).await;
    let mut asking = JoinSet::new();
    for n in 0..200 {
        let mail = mail.clone();
        asking.spawn(async move {
            let (remote, session) = (format!("10.{}.{}.1", n / 100, n % 100), format!("s{n}"));
            let attempt = from(&remote, &session, "0a1");
            let allowed = mail.allow(attempt).await == 0;
            mail.tell(attempt, false, !allowed).await;
            allowed
        });
    }
    assert_eq!(asking.join_all().await.into_iter().filter(|allowed| *allowed).count(), 3);
}

async fn twelve_right_passwords_at_once_are_all_looked_at(store: Store) {
    let (_app, _, mail) = mail(store).await;
    let mut asking = JoinSet::new();
    for n in 0..12 {
        let mail = mail.clone();
        asking.spawn(async move { mail.succeed(from(HOME, &format!("s{n}"), "0a1")).await });
    }
    assert_eq!(asking.join_all().await.len(), 12);
}

async fn one_connection_tries_many_passwords_and_a_report_may_come_late(store: Store) {
    let (_app, _, mail) = mail(store).await;
    let [one, two, three, four] = ["001", "002", "003", "004"].map(|hash| from(HOME, "one", hash));
    assert_eq!((mail.allow(one).await, mail.allow(two).await), (0, 0));
    mail.tell(one, false, false).await;
    mail.fail(three).await;
    mail.tell(two, false, false).await;
    assert_eq!(mail.allow(four).await, -1, "three have failed");
    let elsewhere = from("203.0.113.1", "two", "001");
    assert_eq!(mail.allow(elsewhere).await, -1, "at the name, wherever it comes from");
    assert_eq!(mail.allow(Try { login: "bob", ..elsewhere }).await, 0, "another name");
}

async fn the_question_after_a_right_password_takes_no_second_slot(store: Store) {
    let one = max(1).per("1m").captcha();
    let (app, boss, _) = started(TestApp::on(store).limit("guard-account", &[one])).await;
    let mail = MailServer::of(&app, &boss).await;
    for session in ["a", "b", "c"] {
        mail.succeed(from("203.0.113.1", session, "001")).await;
    }
    mail.fail(from("203.0.113.2", "d", "002")).await;
    assert_eq!(mail.allow(from("203.0.113.2", "d", "003")).await, -1, "it was one");
}

async fn a_report_of_our_own_refusal_settles_nothing(store: Store) {
    let (_app, _, mail) = mail(store).await;
    let attempt = from(HOME, "one", "001");
    assert_eq!(mail.allow(attempt).await, 0);
    mail.tell(attempt, false, true).await;
    mail.tell(attempt, true, true).await;
    for _ in 0..9 {
        mail.tell(from(HOME, "two", "002"), false, true).await;
    }
    mail.tell(attempt, true, false).await;
    for n in ["1", "2", "3"] {
        mail.fail(from("203.0.113.1", n, n)).await;
    }
    assert_eq!(mail.allow(from("203.0.113.1", "4", "4")).await, -1);
}

async fn a_failure_without_a_question_counts_once(store: Store) {
    let (_app, _, mail) = mail(store).await;
    for _ in 0..9 {
        mail.tell(from("203.0.113.1", "one", "001"), false, false).await;
    }
    mail.fail(from("203.0.113.1", "one", "002")).await;
    mail.tell(from("203.0.113.1", "one", "003"), false, false).await;
    assert_eq!(mail.allow(from("203.0.113.1", "one", "004")).await, -1);
    // Such reports count past a challenge, too, up to the block.
    for n in 0..30 {
        mail.tell(from("203.0.113.1", "one", &format!("1{n}")), false, false).await;
    }
    mail.tell(from(HOME, "two", "001"), true, false).await;
    assert_eq!(mail.allow(from(HOME, "three", "001")).await, 0, "its owner's address");
}

async fn a_known_pair_goes_on_where_strangers_have_used_up_the_name(store: Store) {
    let (app, boss, mail) = mail(store).await;
    mail.succeed(from(HOME, "first", "001")).await;
    mail.use_up().await;
    mail.succeed(from(HOME, "second", "001")).await;
    mail.succeed(from(&format!("::ffff:{HOME}"), "third", "001")).await;
    // Of that name alone, in that realm alone.
    for n in ["1", "2", "3"] {
        mail.fail(Try { login: "bob", ..from("203.0.113.1", n, n) }).await;
    }
    assert_eq!(mail.allow(Try { login: "bob", ..from(HOME, "4", "4") }).await, -1);
    let other = MailServer { token: Program::of(&app, &boss, "guard:other").await.token, ..mail.clone() };
    other.use_up().await;
    assert_eq!(other.allow(from(HOME, "5", "5")).await, -1);
    // It has its own count.
    for n in ["a", "b", "c"] {
        mail.fail(from(HOME, n, n)).await;
    }
    assert_eq!(mail.allow(from(HOME, "d", "d")).await, -1);
    app.advance(Duration::from_secs(61));
    // Past that, it is a stranger, and no worse off.
    for n in ["e", "f", "g", "h", "i", "j"] {
        mail.fail(from(HOME, n, n)).await;
    }
    assert_eq!(mail.allow(from(HOME, "k", "k")).await, -1);
}

async fn a_pair_is_known_for_thirty_days(store: Store) {
    let (app, _, mail) = mail(store).await;
    let day = Duration::from_secs(24 * 60 * 60);
    mail.succeed(from(HOME, "first", "001")).await;
    for _ in 0..2 {
        app.advance(29 * day);
        mail.use_up().await;
        mail.succeed(from(HOME, "second", "001")).await;
    }
    app.advance(30 * day);
    mail.use_up().await;
    assert_eq!(mail.allow(from(HOME, "third", "001")).await, -1);
    assert_eq!(app.services.policy.purge(10).await.unwrap(), 1);
}

async fn an_attempt_without_a_report_counts_as_a_failure(store: Store) {
    let (app, _, mail) = mail(store).await;
    let attempts = ["1", "2", "3"].map(|n| from("203.0.113.1", n, n));
    for attempt in attempts {
        assert_eq!(mail.allow(attempt).await, 0);
    }
    app.advance(Duration::from_secs(15));
    app.services.attempts.lapse(&app.services.live.snapshot()).await;
    assert_eq!(mail.allow(attempts[0]).await, -1, "asked again too late");
    for attempt in attempts {
        mail.tell(attempt, false, false).await;
        mail.tell(attempt, true, false).await;
    }
    assert_eq!(mail.allow(from("203.0.113.2", "4", "4")).await, -1, "three have failed");
    assert_eq!(mail.allow(from("203.0.113.1", "5", "5")).await, 0, "it has signed in from there");
}

/// Postfix names none. What looks the same may be another password.
async fn without_a_session_each_question_has_a_slot_of_its_own(store: Store) {
    let (_app, _, mail) = mail(store).await;
    let attempt = from("203.0.113.1", "", "001");
    for _ in 0..3 {
        assert_eq!(mail.allow(attempt).await, 0);
    }
    assert_eq!(mail.allow(attempt).await, -1, "it waits for one of them");
    for _ in 0..3 {
        mail.tell(attempt, false, false).await;
    }
    assert_eq!(mail.allow(attempt).await, -1);
    let other = Try { login: "bob", ..attempt };
    for _ in 0..5 {
        mail.succeed(other).await;
    }
}

#[tokio::test]
async fn two_instances_answer_as_one() {
    let (app, _, here) = mail(Store::Redis).await;
    let other = app.beside(TestApp::on(Store::Redis)).await;
    let there = here.at(&other);
    let attempt = from(HOME, "one", "001");
    assert_eq!((here.allow(attempt).await, there.allow(attempt).await), (0, 0));
    here.tell(attempt, true, false).await;
    for n in ["1", "2", "3"] {
        let attempt = from("203.0.113.1", n, n);
        assert_eq!(here.allow(attempt).await, 0);
        there.tell(attempt, false, false).await;
        here.tell(attempt, false, false).await;
    }
    for server in [&here, &there] {
        assert_eq!(server.allow(from("203.0.113.1", "4", "4")).await, -1);
    }
    there.succeed(from(HOME, "two", "001")).await;
}

#[tokio::test]
async fn while_redis_is_out_known_pairs_get_in_and_no_more_is_looked_at() {
    let setup = TestApp::on(Store::Redis).set("store.timeout", "200ms");
    let (mut app, boss, _) = started(setup).await;
    let mail = MailServer::of(&app, &boss).await;
    mail.succeed(from(HOME, "one", "001")).await;
    app.redis.as_mut().unwrap().kill();
    assert_eq!(mail.allow(from("203.0.113.1", "two", "001")).await, -1, "a stranger");
    mail.succeed(from(HOME, "three", "001")).await;
    let mut allowed = 0;
    for n in 0..9 {
        let (session, hash) = (format!("s{n}"), format!("{n}"));
        let attempt = from(HOME, &session, &hash);
        if mail.allow(attempt).await == 0 {
            mail.tell(attempt, false, false).await;
            allowed += 1;
        }
    }
    assert_eq!(allowed, 3);
}

#[tokio::test]
async fn an_address_that_is_refused_is_refused_though_it_was_used_before() {
    let (app, _, mail) = mail(Store::Memory).await;
    mail.succeed(from(HOME, "one", "001")).await;
    let until = "2099-01-01T00:00:00Z";
    let deny = format!(
        "[access]\ndeny = [{{ network = \"198.51.100.0/24\", until = \"{until}\", reason = \"flood\" }}]\n"
    );
    std::fs::write(app.file(), deny).unwrap();
    let refused = async || mail.allow(from(HOME, "two", "002")).await == -1;
    for _ in 0..1000 {
        if refused().await {
            break;
        }
        mail.tell(from(HOME, "two", "002"), true, false).await;
        tokio::task::yield_now().await;
    }
    assert!(refused().await);
    assert_eq!(mail.allow(from("203.0.113.1", "two", "002")).await, 0);
}

/// Whatever else is answered, Dovecot may take for a yes.
#[tokio::test]
async fn nothing_that_a_client_can_send_is_an_error() {
    let (_app, _, mail) = mail(Store::Memory).await;
    let long = "x".repeat(8192);
    for login in ["", "a\0b", "\u{200b}", "\u{202e}ada", "\n", &long, &"\u{1}".repeat(8192)] {
        assert_eq!(mail.allow(Try { login, ..from(HOME, "s", "p") }).await, -1, "{login:.20}");
    }
    let bodies: [&[u8]; 9] = [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"null",
        br#"{"login":"\ud800","remote":"1.2.3.4"}"#,
        b"{\"login\":\"\xff\xfe\"}",
        br#"{"login":["ada"]}"#,
        br#"{"login":"ada","login":"bob"}"#,
    ];
    for body in bodies {
        for (command, status) in [("allow", json!(-1)), ("report", json!("ok"))] {
            let answer = mail.post(command, body.to_vec()).await;
            assert_eq!((answer.status, &answer.body["status"]), (200, &status), "{}", answer.text);
        }
    }
    let huge = json!({ "login": "ada", "remote": "1.2.3.4", "attrs": "x".repeat(100_000) });
    let answer = mail.post("allow", huge.to_string()).await;
    assert_eq!((answer.status, &answer.body["status"]), (200, &json!(-1)));
    // What is more than Dovecot sends is passed over, and what it may leave out may be missing.
    let more = json!({ "login": "ada", "remote": HOME, "attrs": { "a": [1] }, "fail_type": "x", "tls": 1 });
    assert_eq!(mail.post("allow", more.to_string()).await.body["status"], 0);
    let long = [&long[..]; 2];
    assert_eq!(mail.allow(from(HOME, long[0], long[1])).await, 0);
}

/// Dovecot asks for itself, or a web mailer over a local socket does.
#[tokio::test]
async fn names_without_an_address_do_not_use_up_each_others() {
    let (_app, _, mail) = mail(Store::Memory).await;
    for n in 0..50 {
        let login = format!("user{n}");
        for remote in ["", "local"] {
            mail.fail(Try { login: &login, ..from(remote, "s", remote) }).await;
        }
    }
    assert_eq!(mail.allow(from("", "s", "p")).await, 0);
    let missing = json!({ "login": "ada", "success": false, "remote": null });
    for n in 0..3 {
        let mut body = missing.clone();
        body["pwhash"] = n.to_string().into();
        assert_eq!(mail.post("report", body.to_string()).await.status, 200);
    }
    assert_eq!(mail.allow(Try { login: "ada", ..from("", "s", "p") }).await, -1);
}

#[tokio::test]
async fn the_answer_is_weakforceds() {
    let (app, _, mail) = mail(Store::Memory).await;
    let accepted = mail.post("allow", from(HOME, "one", "001").body().to_string()).await;
    assert_eq!(accepted.text, r#"{"status":0,"msg":"","r_attrs":{}}"#);
    mail.use_up_at(HOME).await;
    let refused = mail.post("allow", from(HOME, "two", "002").body().to_string()).await;
    let said = "Too many sign-ins have failed. Wait a minute and try again.";
    assert_eq!(refused.body, json!({ "status": -1, "msg": said, "r_attrs": {} }));
    let chinese = mail.post("allow&lang=zh-CN", from(HOME, "two", "002").body().to_string()).await;
    assert_eq!(chinese.body["msg"], "登录失败次数过多。请 1 分钟后再试。");
    let report = mail.post("report", from(HOME, "one", "001").reported(true, false).to_string()).await;
    assert_eq!(report.text, r#"{"status":"ok"}"#);
    let pinged = app.client().http.get(format!("{}/wforce/?command=ping", app.url)).bearer_auth(&mail.token);
    assert_eq!(Answer::read(pinged.send().await.unwrap()).await.text, r#"{"status":"ok"}"#);
    assert_eq!(app.client().get("/wforce/?command=ping").await.status, 401);
    for command in ["", "stats", "Allow"] {
        let answer = mail.post(command, from(HOME, "one", "001").body().to_string()).await;
        assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (422, &json!("command")));
    }
}

#[tokio::test]
async fn the_token_comes_as_dovecot_sends_it() {
    let (app, boss, mail) = mail(Store::Memory).await;
    let body = from(HOME, "one", "001").body().to_string();
    let ask = async |header: &str, value: String| {
        let request = app.client().http.post(format!("{}/wforce/?command=allow", app.url));
        let request = request.header("content-type", "application/json").header(header, value);
        Answer::read(request.body(body.clone()).send().await.unwrap()).await
    };
    let basic = |user: &str, token: &str| format!("Basic {}", STANDARD.encode(format!("{user}:{token}")));
    let token = &mail.token;
    for (header, value) in [
        ("authorization", basic("wforce", token)),
        ("authorization", basic("", token).replace("Basic", "basic ")),
        ("authorization", format!("Bearer {token}")),
        ("x-api-key", token.clone()),
    ] {
        assert_eq!(ask(header, value).await.status, 200, "{header}");
    }
    for (header, value) in [
        ("authorization", basic(token, "wforce")),
        ("authorization", basic("wforce", &token[..token.len() - 1])),
        ("authorization", "Basic ?".to_owned()),
        ("authorization", format!("Basic {}", STANDARD.encode(token))),
        ("x-api-key", "x".to_owned()),
        ("cookie", "x=y".to_owned()),
    ] {
        let answer = ask(header, value).await;
        assert_eq!((answer.status, answer.problem()), (401, "invalid-token"), "{header}");
    }
    let other = Program::of(&app, &boss, "*").await.token;
    assert_eq!(ask("authorization", basic("wforce", &other)).await.status, 403);
}
