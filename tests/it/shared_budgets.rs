//! Promise 10, limit by limit: who spends it, who needs it, and what they can still show when it is spent. The table
//! in docs/security.md says it. Each of its rows is shown here, and the compiler asks for that of a new limit.

use std::time::Duration;

use gatehouse::config::LimitName;
use serde_json::{Value, json};

use crate::factors;
use crate::guard::Program as Realm;
use crate::mail::flows as mail;
use crate::oidc;
use crate::relay::Logto;
use crate::sign_in::devices::device_cookie;
use crate::sms::http::{NUMBER, enter, with_number};
use crate::sms::rig::until;
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp};
use crate::support::proof::solve;
use crate::support::setup::{Rule, Setup, max};
use crate::verify::Program as Verifier;
use crate::verify::apart::started as ways;

const WRONG: &str = "a wrong password";
const SHARED: &str = "203.0.113.7";
/// Another address of its network.
const NEARBY: &str = "203.0.113.8";

#[test]
fn the_table_of_shared_budgets_has_a_row_for_each_limit() {
    let page = include_str!("../../docs/security.md");
    let (_, section) = page.split_once("\n## Who spends what\n").expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let built_in: Vec<_> = LimitName::ALL.iter().map(|name| name.as_str()).collect();
    assert_eq!(rows.collect::<Vec<_>>(), built_in);
}

#[tokio::test]
async fn who_needs_a_limit_that_strangers_have_spent_still_has_a_way() {
    for limit in LimitName::ALL {
        println!("{}", limit.as_str());
        Box::pin(way_past(*limit)).await;
    }
}

/// Spends the limit as strangers would, and goes the way that its row names.
async fn way_past(limit: LimitName) {
    let name = limit.as_str();
    match limit {
        LimitName::LoginAccount => {
            let (app, owner) = with_owner(held(name, &[max(2).per("1h")])).await;
            for _ in 0..2 {
                assert_eq!(app.client_at(NEARBY).login("alice", WRONG).await.status, 401);
            }
            assert_refused_by(&app.client_at(NEARBY).login("alice", PASSWORD).await, name);
            assert_eq!(owner.login("alice", PASSWORD).await.status, 200, "a known device");
        }
        LimitName::LoginDevice => {
            let (_app, owner) = with_owner(held(name, &[max(2).per("1h")])).await;
            for _ in 0..2 {
                assert_eq!(owner.login("alice", WRONG).await.status, 401);
            }
            assert_eq!(owner.login("alice", PASSWORD).await.status, 200, "as a stranger");
        }
        LimitName::LoginAddress | LimitName::LoginNetwork => {
            let (app, owner) = with_owner(held(name, &[max(2).per("1h").captcha()])).await;
            for guess in ["guess1", "guess2"] {
                assert_eq!(app.client_at(SHARED).login(guess, WRONG).await.status, 401);
            }
            let neighbour = app.client_at(if limit == LimitName::LoginNetwork { NEARBY } else { SHARED });
            let asked = neighbour.login("alice", PASSWORD).await;
            assert_eq!(asked.problem(), "captcha-required", "{}", asked.text);
            let id = asked.body["captcha"]["id"].as_str().unwrap();
            assert_eq!(neighbour.login_with("alice", PASSWORD, id, ANSWER).await.status, 200);
            assert_eq!(owner.login("alice", PASSWORD).await.status, 200, "is not even asked");
        }
        LimitName::LoginGuess => {
            let (app, owner) = with_owner(held(name, &[max(5).per("1h").captcha()])).await;
            for n in 0..40 {
                let stranger = app.client_at(&format!("198.51.{n}.7"));
                stranger.login(&format!("guess{n}"), PASSWORD).await;
            }
            let elsewhere = app.client_at(NEARBY);
            let asked = elsewhere.login("alice", PASSWORD).await;
            assert_eq!(asked.problem(), "captcha-required", "{}", asked.text);
            let id = asked.body["captcha"]["id"].as_str().unwrap();
            assert_eq!(elsewhere.login_with("alice", PASSWORD, id, ANSWER).await.status, 200);
            assert_eq!(owner.login("alice", PASSWORD).await.status, 200, "is not even asked");
        }
        LimitName::FactorAccount => {
            let app = held(name, &[max(2).per("1h")]).start().await;
            let owner = factors::owner(&app, "alice").await;
            let thief = app.client_at(SHARED);
            factors::first_step(&thief, "alice").await;
            for _ in 0..2 {
                assert_eq!(factors::by_totp(&thief, factors::WRONG_CODE).await.status, 401);
            }
            let code = factors::totp(&app, &owner.secret);
            assert_refused_by(&factors::by_totp(&thief, &code).await, name);
            factors::first_step(&owner.browser, "alice").await;
            assert_eq!(factors::by_totp(&owner.browser, &code).await.status, 200, "a known device");
            let elsewhere = app.client_at(NEARBY);
            factors::first_step(&elsewhere, "alice").await;
            assert_eq!(factors::by_recovery(&elsewhere, &owner.recovery[0]).await.status, 200);
        }
        LimitName::FactorDevice => {
            let app = held(name, &[max(2).per("1h")]).start().await;
            let owner = factors::owner(&app, "alice").await;
            factors::first_step(&owner.browser, "alice").await;
            for _ in 0..2 {
                assert_eq!(factors::by_totp(&owner.browser, factors::WRONG_CODE).await.status, 401);
            }
            let code = factors::totp(&app, &owner.secret);
            assert_refused_by(&factors::by_totp(&owner.browser, &code).await, name);
            assert_eq!(factors::by_recovery(&owner.browser, &owner.recovery[0]).await.status, 200);
        }
        LimitName::OidcAddress => {
            let app = oidc::start(held(name, &[max(2).per("1h")]).file_more(&oidc::clients())).await;
            let (_, access, token) = oidc::granted(&app, "alice").await;
            for status in [401, 401, 429] {
                assert_eq!(oidc::userinfo(&app.url, "nonsense").await.status, status);
            }
            assert_eq!(oidc::userinfo(&app.url, &access).await.status, 200, "what is right");
            assert_eq!(oidc::refresh(&app, &token).await.status, 200);
        }
        LimitName::OidcRepeat => {
            let app = oidc::start(held(name, &[max(1).per("24h")]).file_more(&oidc::clients())).await;
            let (browser, _, token) = oidc::granted(&app, "alice").await;
            let (_, next) = oidc::tokens(&oidc::refresh(&app, &token).await);
            for status in [200, 400] {
                app.advance(Duration::from_secs(61));
                assert_eq!(oidc::refresh(&app, &token).await.status, status);
            }
            assert_eq!(oidc::refresh(&app, &next).await.status, 400, "the grant has ended");
            let again = oidc::exchange(&app, &oidc::code(&browser, &[]).await).await;
            assert_eq!(again.status, 200, "the session goes on: a redirect signs in again");
        }
        LimitName::GuardAccount => {
            let (_app, shop) = realm(held(name, &[max(2).per("1h")])).await;
            let device = shop.succeed("ada").await;
            for _ in 0..2 {
                shop.fail("ada").await;
            }
            assert_eq!(shop.ask("ada").await["limit"], name);
            let known = shop.ask_with(attempt("ada", SHARED, "device", device.into())).await;
            assert_eq!(known["decision"], "go", "a known device");
        }
        LimitName::GuardDevice => {
            let (_app, shop) = realm(held(name, &[max(1).per("1h")])).await;
            let device = shop.succeed("ada").await;
            let from_device = attempt("ada", SHARED, "device", device.into());
            let failed = shop.ask_with(from_device.clone()).await;
            assert_eq!(shop.tell(failed["attempt"].as_str().unwrap(), "failure").await.status, 200);
            assert_eq!(shop.ask_with(from_device).await["decision"], "go", "as a stranger");
        }
        LimitName::GuardAddress | LimitName::GuardNetwork => {
            let (_app, shop) = realm(held(name, &[max(2).per("1h").captcha()])).await;
            for guess in ["guess1", "guess2"] {
                shop.fail_from(SHARED, guess).await;
            }
            let address = if limit == LimitName::GuardNetwork { NEARBY } else { SHARED };
            let asked = shop.ask_with(attempt("ada", address, "device", Value::Null)).await;
            assert_eq!(asked["decision"], "challenge", "{asked}");
            let solved =
                shop.ask_with(attempt("ada", address, "captcha", answer_to(&asked["captcha"]))).await;
            assert_eq!(solved["decision"], "go", "{solved}");
        }
        LimitName::RegisterAddress => {
            let app = held(name, &[max(1).per("1h").captcha()]).start().await;
            let neighbour = app.client_at(SHARED);
            assert_eq!(app.client_at(SHARED).register("bob", PASSWORD).await.status, 201);
            let asked = neighbour.register("alice", PASSWORD).await;
            assert_eq!(asked.problem(), "captcha-required", "{}", asked.text);
            let captcha = answer_to(&asked.body["captcha"]);
            let form = json!({ "login": "alice", "password": PASSWORD, "captcha": captcha });
            assert_eq!(neighbour.call("/register", form).await.status, 201);
        }
        LimitName::CaptchaAddress | LimitName::CaptchaNetwork | LimitName::CaptchaTotal => {
            // Drawn images are counted; a proof of work is there for everybody.
            let setup = held(name, &[max(2).per("1h")])
                .set("captcha.provider", "image")
                .set("captcha.proof_of_work", true);
            let (app, _) = with_owner(setup).await;
            let (stranger, neighbour) = (app.client_at(SHARED), app.client_at(SHARED));
            let mut drawn = 0;
            while stranger.image(&stranger.challenge().await).await.status == 200 {
                drawn += 1;
            }
            assert!((1..=2).contains(&drawn), "{drawn}");
            let challenge = neighbour.call("/captcha", json!({})).await;
            let captcha = json!({ "altcha": solve(&challenge.body["altcha"]) });
            let form = json!({ "login": "alice", "password": PASSWORD, "captcha": captcha });
            assert_eq!(neighbour.call("/login", form).await.status, 200);
        }
        LimitName::SmsPhone => {
            let app = held(name, &[max(1).per("24h").captcha(), max(3).per("1h")]).start().await;
            assert_eq!(app.client_at(NEARBY).ask_code(NUMBER, "login").await.status, 202);
            let owner = app.client_at(SHARED);
            assert_eq!(solved(&owner, NUMBER).await.status, 202);
        }
        LimitName::SmsAddress | LimitName::SmsNetwork | LimitName::SmsPrefix | LimitName::SmsTotal => {
            let app = held(name, &[max(5).per("24h")]).start().await;
            with_number(&app, "alice", NUMBER).await;
            let before = app.client().codes(NUMBER).await.len();
            let spend = async |n: u32| {
                let number = format!("+861380013900{n}");
                app.client_at(SHARED).ask_code(&number, "login").await.status
            };
            let mut asked = 0;
            while spend(asked).await == 202 {
                asked += 1;
                assert!(asked < 5, "strangers get a part");
            }
            let owner = app.client_at(if limit == LimitName::SmsNetwork { NEARBY } else { SHARED });
            let told = solved(&owner, NUMBER).await;
            assert_eq!((told.status, &told.body["short"]), (202, &json!(true)), "{}", told.text);
            until(async || app.client().codes(NUMBER).await.len() > before).await;
        }
        LimitName::ProgramAddress | LimitName::ProgramNetwork | LimitName::ProgramPrefix => {
            let ways = ways(held(name, &[max(1).per("1h").captcha(), max(3).per("1h")])).await;
            assert_eq!(ways.verify(&of_a_block(1), SHARED).await.status, 202);
            let user = if limit == LimitName::ProgramNetwork { NEARBY } else { SHARED };
            let asked = ways.verify(&of_a_block(2), user).await;
            assert_eq!(asked.problem(), "captcha-required", "{}", asked.text);
            let captcha = answer_to(&asked.body["captcha"]);
            let body = json!({ "to": of_a_block(2), "address": user, "captcha": captcha });
            assert_eq!(ways.shop.call("", body).await.status, 202);
            assert_eq!(ways.relay(&of_a_block(3), user).await.status, 200, "another program");
            assert_eq!(ways.page(&of_a_block(4), user).await.status, 202, "our own pages");
        }
        LimitName::VerifyToken => {
            let ways = ways(held(name, &[max(1).per("24h")])).await;
            assert_eq!(ways.verify(&of_a_block(1), SHARED).await.status, 202);
            assert_refused_by(&ways.verify(&of_a_block(2), SHARED).await, name);
            let other = Verifier::of(&ways.app, &ways.boss, "verify:other").await;
            assert_eq!(other.send(&of_a_block(3)).await.status, 202, "another program");
            assert_eq!(ways.page(&of_a_block(4), SHARED).await.status, 202, "our own pages");
        }
        LimitName::RelayToken => {
            let ways = ways(held(name, &[max(1).per("24h")])).await;
            assert_eq!(ways.relay(&of_a_block(1), SHARED).await.status, 200);
            assert_refused_by(&ways.relay(&of_a_block(2), SHARED).await, name);
            let other = Logto::of(&ways.app, &ways.boss, "relay:other").await;
            let body = json!({ "to": of_a_block(3), "payload": { "code": "012345" } });
            assert_eq!(other.call("logto/other", &body).await.status, 200, "another program");
            assert_eq!(ways.page(&of_a_block(4), SHARED).await.status, 202, "our own pages");
        }
        LimitName::SmsGuess => {
            let app = held(name, &[max(2).per("10m")]).start().await;
            let owner = app.client_at(SHARED);
            assert_eq!(owner.ask_code(NUMBER, "login").await.status, 202);
            let code = app.client().codes(NUMBER).await.remove(0);
            let wrong = if code == "000000" { "000001" } else { "000000" };
            for problem in ["invalid-code", "invalid-code", "throttled"] {
                assert_eq!(enter(&app.client_at(NEARBY), NUMBER, wrong).await.problem(), problem);
            }
            assert_eq!(enter(&owner, NUMBER, &code).await.status, 200, "the browser that asked");
        }
        LimitName::MailMailbox => {
            let (app, owner) = with_owner(held(name, &[max(3).per("1h")])).await;
            mail::confirm(&app, &app.client_at(SHARED), "ada@example.org").await;
            assert_eq!(mail::ask(&app.client_at(NEARBY), "Ada+y@example.org").await.status, 202);
            assert_eq!(mail::ask(&app.client_at(NEARBY), "ADA+x@example.org").await.status, 202);
            assert_refused_by(&mail::ask(&app.client_at(SHARED), "ada@example.org").await, name);
            assert_eq!(owner.login("alice", PASSWORD).await.status, 200, "the password");
        }
        LimitName::MailDomain => {
            let (app, _owner) = with_owner(held(name, &[max(5).per("24h").captcha()])).await;
            mail::confirm(&app, &app.client_at(SHARED), "ada@example.org").await;
            for n in 0..5 {
                let stranger = app.client_at(&format!("198.51.{n}.7"));
                assert_eq!(stranger.register(&format!("mallory{n}"), PASSWORD).await.status, 201);
                let body = json!({ "email": format!("nobody{n}@example.org"), "purpose": "verify" });
                assert_eq!(stranger.call("/email/codes", body).await.status, 202);
            }
            app.services.codes.watch_costs(&app.services.live.snapshot()).await;
            let mine = app.client_at(SHARED);
            assert_eq!(mail::ask(&mine, "ada@example.net").await.status, 202, "another domain");
            assert_eq!(mail::ask_solved(&mine, "ada@example.org").await.status, 202);
            mail::newest_code(&app, "ada@example.org", 2).await;
        }
        LimitName::MailAddress | LimitName::MailNetwork | LimitName::MailTotal => {
            let (app, _owner) = with_owner(held(name, &[max(5).per("24h")])).await;
            mail::confirm(&app, &app.client_at(SHARED), "ada@example.org").await;
            let stranger = app.client_at(SHARED);
            assert_eq!(stranger.register("mallory", PASSWORD).await.status, 201);
            // What is asked for and not sent spends nothing of the total.
            let purpose = if limit == LimitName::MailTotal { "verify" } else { "reset" };
            let spend = async |n: u32| {
                let body = json!({ "email": format!("nobody{n}@example.org"), "purpose": purpose });
                stranger.call("/email/codes", body).await.status
            };
            let mut asked = 0;
            while spend(asked).await == 202 {
                asked += 1;
                assert!(asked < 9, "strangers get a part");
            }
            let mine = app.client_at(if limit == LimitName::MailNetwork { NEARBY } else { SHARED });
            assert_eq!(mail::ask_solved(&mine, "ada@example.org").await.status, 202);
            mail::until_mails(&app, "ada@example.org", 2).await;
        }
        LimitName::MailNotice => {
            let (app, _owner) = with_owner(held(name, &[max(1).per("24h")])).await;
            let owner = app.client_at(SHARED);
            mail::confirm(&app, &owner, "ada@example.org").await;
            let fields = [("current_password", PASSWORD), ("new_password", "another good password 7")];
            assert_eq!(owner.submit("/account", "/account/password", &fields).await.status, 303);
            mail::until_subject(&app, "ada@example.org", "assword changed").await;
        }
        LimitName::MailGuess => {
            let (app, _owner) = with_owner(held(name, &[max(2).per("30m")])).await;
            let asker = app.client_at(SHARED);
            mail::confirm(&app, &asker, "ada@example.org").await;
            assert_eq!(mail::ask(&asker, "ada@example.org").await.status, 202);
            let code = mail::newest_code(&app, "ada@example.org", 2).await;
            let wrong = if code == "000000" { "000001" } else { "000000" };
            for problem in ["invalid-code", "invalid-code", "throttled"] {
                let guess = mail::reset(&app.client_at(NEARBY), "ada@example.org", wrong).await;
                assert_eq!(guess.problem(), problem, "{}", guess.text);
            }
            let set = mail::reset(&asker, "ada@example.org", &code).await;
            assert_eq!(set.status, 204, "the browser that asked: {}", set.text);
        }
    }
}

/// Every other limit that strangers could meet on the way is off. Without those of accounts and devices a device is a stranger.
fn held(name: &str, rules: &[Rule]) -> Setup {
    let others = LimitName::ALL
        .iter()
        .map(|limit| limit.as_str())
        .filter(|other| *other != name && !other.ends_with("-device") && !other.ends_with("-account"));
    let others: Vec<_> = others.collect();
    TestApp::on(Store::Memory).behind_a_proxy().without(&others).limit(name, rules)
}

/// Of the account alice, at a browser that it knows.
async fn with_owner(setup: Setup) -> (TestApp, Client) {
    let app = setup.start().await;
    let device = device_cookie(&app.client_at(SHARED).register("alice", PASSWORD).await);
    let cookie = format!("gh_device={device}");
    let owner = app.client_that_says(&[("x-forwarded-for", SHARED), ("cookie", &cookie)]);
    (app, owner)
}

async fn realm(setup: Setup) -> (TestApp, Realm) {
    let app = setup.start().await;
    let boss = app.sign_in_admin("boss").await;
    let shop = Realm::of(&app, &boss, "guard:shop").await;
    (app, shop)
}

fn attempt(login: &str, address: &str, with: &str, value: Value) -> Value {
    let mut body = json!({ "login": login, "address": address });
    if !value.is_null() {
        body[with] = value;
    }
    body
}

/// An answer to a challenge's letters.
fn answer_to(captcha: &Value) -> Value {
    json!({ "id": captcha["id"], "answer": ANSWER })
}

/// Asks for a code, with the challenge that is required first.
async fn solved(client: &Client, phone: &str) -> Answer {
    let asked = client.ask_code(phone, "login").await;
    assert_eq!(asked.problem(), "captcha-required", "{}", asked.text);
    let captcha = answer_to(&asked.body["captcha"]);
    client.call("/sms/codes", json!({ "phone": phone, "purpose": "login", "captcha": captcha })).await
}

/// Another number of one block each.
fn of_a_block(n: u32) -> String {
    format!("+861390013900{n}")
}

fn assert_refused_by(answer: &Answer, limit: &str) {
    assert_eq!(
        (answer.problem(), answer.body["limit"].as_str()),
        ("throttled", Some(limit)),
        "{}",
        answer.text
    );
}
