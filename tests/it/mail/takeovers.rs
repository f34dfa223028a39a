//! Changes of addresses at once, and a thief: who has an address in the end, who is told, and who may freeze.

use std::collections::BTreeSet;
use std::time::Duration;

use gatehouse::accounts::{Account, AccountFactors, RecipientSet, Roles, Username};
use gatehouse::codes::Recipient;
use gatehouse::db::Db;
use gatehouse::mail::Mailbox;
use serde_json::{Value, json};

use super::flows::{self, NEW, ask, confirm, mails, newest_code, reset, until, waiting};
use crate::sms::http::{NUMBER, enter, with_number};
use crate::sms::rig::all;
use crate::support;
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

const ADA: &str = "ada@example.org";
const MANY: usize = 64;

on_both_stores!(
    of_64_changes_at_once_each_tells_the_address_before,
    of_64_accounts_that_want_one_mailbox_one_has_it,
    the_owner_ends_what_a_thief_has_begun,
    codes_by_mail_from_before_a_freeze_and_during_it_are_void,
    the_password_alone_lifts_no_freeze_where_the_number_can,
    a_number_of_a_thief_lifts_no_freeze_and_neither_does_his_password_then,
    a_factor_that_a_thief_adds_lifts_no_freeze_and_ends_with_it,
    a_thief_who_freezes_keeps_nobody_out_who_has_the_number_or_the_password,
);

fn is_of_a_change(mail: &&Value) -> bool {
    mail["subject"].as_str().unwrap().contains("address changed")
}

/// The codes to freeze the account that went to an address.
async fn freeze_codes(app: &TestApp, address: &str) -> Vec<String> {
    let code = |mail: &Value| flows::freeze_code(mail).unwrap_or_else(|| panic!("{mail}"));
    mails(app, address).await.iter().filter(is_of_a_change).map(code).collect()
}

/// The first of them, once it is there.
async fn freeze_code(app: &TestApp, address: &str) -> String {
    until(app, address, |mails| mails.iter().find(is_of_a_change).map(drop)).await;
    freeze_codes(app, address).await.remove(0)
}

async fn freeze(app: &TestApp, code: &str) -> u16 {
    app.client().call("/freeze", json!({ "code": code })).await.status
}

/// Gives the signed-in account another address.
async fn change(app: &TestApp, by: &Client, address: &str) {
    flows::confirm_signed_in(app, by, address).await;
}

async fn of_64_changes_at_once_each_tells_the_address_before(store: Store) {
    let setup = TestApp::on(store).without(&["mail-mailbox", "mail-address", "mail-network"]);
    let app = setup.start().await;
    app.client().register("alice", PASSWORD).await;
    let owner = app.client();
    confirm(&app, &owner, ADA).await;
    let addresses: Vec<_> = (0..MANY).map(|number| format!("ada{number}@example.net")).collect();
    for address in &addresses {
        let asked = owner.call("/mail/codes", json!({ "email": address, "purpose": "verify" })).await;
        assert_eq!(asked.status, 202, "{}", asked.text);
    }
    let mut changes = Vec::new();
    for address in &addresses {
        let code = newest_code(&app, address, 1).await;
        let (owner, address) = (owner.clone(), address.clone());
        changes.push(async move { flows::set(&owner, &address, &code).await });
    }
    for answer in all(changes.into_iter()).await {
        assert_eq!(answer.status, 204, "{}", answer.text);
    }
    let last = app.services.emails.of(alice(&app).await.id).await.unwrap().expect("one of them");
    let db = Db::connect(&app.database).await.unwrap();
    support::until("each is told", async || waiting(&db, "address-changed").await == 0).await;
    let mut codes = BTreeSet::new();
    for address in addresses.iter().map(String::as_str).chain([ADA]) {
        let found = freeze_codes(&app, address).await;
        let expected = usize::from(address != last.as_str());
        assert_eq!(found.len(), expected, "{address}, and {} is the last", last.as_str());
        codes.extend(found);
    }
    assert_eq!(codes.len(), MANY);
    for code in codes {
        assert_eq!(freeze(&app, &code).await, 204, "each is good");
    }
}

async fn of_64_accounts_that_want_one_mailbox_one_has_it(store: Store) {
    let app = TestApp::start(store).await;
    let (services, mailbox) = (&app.services, Mailbox::parse(ADA).unwrap());
    let mut wanting = Vec::new();
    for number in 0..MANY {
        let login = Username::parse(&format!("user{number}")).unwrap();
        let hash = services.hasher.hash_new(PASSWORD, &login).await.unwrap().unwrap();
        services.accounts.create(&login, &hash, Roles { admin: false }).await.unwrap();
        let account = services.accounts.find(&login).await.unwrap().unwrap();
        let (emails, mailbox) = (services.emails.clone(), mailbox.clone());
        wanting.push(async move {
            (account.id, emails.give(&account, &mailbox.clone().into(), "en").await.unwrap())
        });
    }
    let (have, not): (Vec<_>, Vec<_>) =
        all(wanting.into_iter()).await.into_iter().partition(|(_, set)| *set == RecipientSet::Done);
    assert_eq!((have.len(), not.len()), (1, MANY - 1));
    assert!(not.iter().all(|(_, set)| *set == RecipientSet::Taken), "{not:?}");
    let owner = services.emails.find(&Recipient::from(mailbox)).await.unwrap().expect("it has an owner");
    assert_eq!(owner.id, have[0].0);
    for (account, _) in not {
        assert_eq!(
            services.emails.of(account).await.unwrap().map(|mailbox| mailbox.as_str().to_owned()),
            None
        );
    }
    let db = Db::connect(&app.database).await.unwrap();
    support::until("it is told", async || waiting(&db, "address-set").await == 0).await;
    assert_eq!(mails(&app, ADA).await.len(), 1, "and only once");
}

/// What a thief sets, who knows the password.
const HIS: &str = "quiet lanterns drift above marble";
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Alice has an address, and for a week a number. Somebody who knows her password is signed in.
async fn with_thief(app: &TestApp) -> Client {
    with_number(app, "alice", NUMBER).await;
    app.advance(WEEK);
    confirm(app, &app.client(), ADA).await;
    let thief = app.client();
    assert_eq!(thief.login("alice", PASSWORD).await.status, 200);
    thief
}

/// He changes the address to his own.
async fn taken_over(store: Store) -> (TestApp, Client) {
    let app = TestApp::start(store).await;
    let thief = with_thief(&app).await;
    change(&app, &thief, "thief@example.net").await;
    (app, thief)
}

/// Sets a new password by a code to the number.
async fn reset_by_number(client: &Client, phone: &str) -> Answer {
    let code = client.code(phone, "reset").await;
    client.call("/password/reset", json!({ "phone": phone, "code": code, "new_password": NEW })).await
}

async fn alice(app: &TestApp) -> Account {
    app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap()
}

async fn address_of_alice(app: &TestApp) -> Option<String> {
    app.services.emails.of(alice(app).await.id).await.unwrap().map(|address| address.as_str().to_owned())
}

async fn the_owner_ends_what_a_thief_has_begun(store: Store) {
    let (app, thief) = taken_over(store).await;
    assert_eq!(thief.get("/account").await.status, 200);
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    assert_eq!(thief.get("/account").await.status, 303, "his session has ended");
    let body = json!({ "email": "other@example.net", "purpose": "verify" });
    assert_eq!(thief.call("/mail/codes", body).await.status, 401);
    let code = thief.code(NUMBER, "login").await;
    let by_number = enter(&thief, NUMBER, &code).await;
    assert_eq!(by_number.problem(), "account-frozen", "{}", by_number.text);
    assert_eq!(address_of_alice(&app).await.as_deref(), Some("thief@example.net"), "it restores nothing");
}

async fn codes_by_mail_from_before_a_freeze_and_during_it_are_void(store: Store) {
    let app = TestApp::start(store).await;
    assert_eq!(app.client().register("alice", PASSWORD).await.status, 201);
    let thief = app.client();
    confirm(&app, &thief, ADA).await;
    change(&app, &thief, "thief@example.net").await;
    assert_eq!(ask(&thief, "thief@example.net").await.status, 202);
    let mailed = newest_code(&app, "thief@example.net", 2).await;
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    assert_eq!(reset(&thief, "thief@example.net", &mailed).await.problem(), "invalid-code");
    app.advance(Duration::from_secs(61));
    let [frozen, unknown] = [ask(&thief, "thief@example.net").await, ask(&thief, "bob@example.net").await];
    let told = |answer: &Answer| (answer.status, answer.body["expires_in"].clone());
    assert_eq!((frozen.status, told(&frozen)), (202, told(&unknown)), "{}", frozen.text);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200, "there is nothing else");
    assert_eq!(reset(&thief, "thief@example.net", &mailed).await.problem(), "invalid-code");
    app.advance(Duration::from_secs(61));
    assert_eq!(flows::ask_solved(&thief, "thief@example.net").await.status, 202);
    newest_code(&app, "thief@example.net", 3).await;
    let codes = flows::codes(&app, "thief@example.net").await;
    assert_eq!(codes, 3, "none was sent while it was frozen");
}

/// He changes the address twice, and the password. So he has a code that freezes, too.
async fn the_password_alone_lifts_no_freeze_where_the_number_can(store: Store) {
    let (app, thief) = taken_over(store).await;
    change(&app, &thief, "thief@example.com").await;
    let fields = [("current_password", PASSWORD), ("new_password", HIS)];
    assert_eq!(thief.submit("/account", "/account/password", &fields).await.status, 303);
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    assert_eq!(freeze(&app, &freeze_code(&app, "thief@example.net").await).await, 204, "once more");
    let thief = app.client();
    assert_eq!(thief.login("alice", HIS).await.problem(), "account-frozen");
    assert_eq!(thief.login("alice", PASSWORD).await.problem(), "invalid-credentials");
    let page = thief.submit("/login", "/login", &[("login", "alice"), ("password", HIS)]).await;
    assert!(page.status == 403 && page.text.contains("a code to its number"), "{}", page.text);
    assert_eq!(thief.get("/account").await.status, 303, "nobody is signed in");
    let reset = reset_by_number(&app.client(), NUMBER).await;
    assert_eq!(reset.status, 204, "{}", reset.text);
    assert_eq!(app.client().login("alice", NEW).await.status, 200, "the freeze is lifted");
    assert_eq!(thief.login("alice", HIS).await.problem(), "invalid-credentials");
    assert_eq!(address_of_alice(&app).await, None, "nor does he get a code by mail");
}

/// Before he changes the address, after that, or by removing it.
async fn a_number_of_a_thief_lifts_no_freeze_and_neither_does_his_password_then(store: Store) {
    const HIS_NUMBER: &str = "+8613800138009";
    for when in ["before", "after", "removed"] {
        let app = TestApp::start(store).await;
        let thief = with_thief(&app).await;
        let number = async || {
            let code = thief.code(HIS_NUMBER, "verify").await;
            let body = json!({ "phone": HIS_NUMBER, "code": code, "current_password": PASSWORD });
            assert_eq!(thief.call("/account/phone", body).await.status, 204);
            app.advance(Duration::from_secs(61));
        };
        if when == "before" {
            number().await;
        }
        change(&app, &thief, "thief@example.net").await;
        match when {
            "after" => number().await,
            "removed" => {
                let body = json!({ "current_password": PASSWORD });
                assert_eq!(thief.delete("/api/v1/account/phone", body).await.status, 204);
            }
            _ => {}
        }
        assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
        assert_eq!(app.client().login("alice", PASSWORD).await.problem(), "account-frozen", "{when}");
        if when != "removed" {
            let reset = reset_by_number(&app.client(), HIS_NUMBER).await;
            assert_eq!(reset.problem(), "account-frozen", "{when}: {}", reset.text);
        }
    }
}

async fn a_factor_that_a_thief_adds_lifts_no_freeze_and_ends_with_it(store: Store) {
    let app = TestApp::on(store).at_localhost().start().await;
    let thief = with_thief(&app).await;
    change(&app, &thief, "thief@example.net").await;
    let (passkey, _) = thief.add_passkey("His").await;
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    let his = app.client().login_by_passkey(&passkey).await;
    assert_eq!(his.problem(), "account-frozen", "{}", his.text);
    assert_eq!(
        app.client().login("alice", PASSWORD).await.problem(),
        "account-frozen",
        "without a second step"
    );
    let reset = reset_by_number(&app.client(), NUMBER).await;
    assert_eq!(reset.status, 204, "{}", reset.text);
    assert_eq!(app.client().login_by_passkey(&passkey).await.problem(), "invalid-passkey");
    let owner = app.client();
    assert_eq!(owner.login("alice", NEW).await.status, 200);
    let factors = app.services.factor_verifier.factors().of(alice(&app).await.id).await.unwrap();
    assert_eq!(factors, AccountFactors::default(), "his recovery codes are gone, too");
}

/// He has nothing but the mailbox that was hers.
async fn a_thief_who_freezes_keeps_nobody_out_who_has_the_number_or_the_password(store: Store) {
    let (app, owner) = taken_over(store).await;
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    assert_eq!(reset_by_number(&owner, NUMBER).await.status, 204, "the number");
    for number in [true, false] {
        let app = TestApp::start(store).await;
        match number {
            true => drop(with_number(&app, "alice", NUMBER).await),
            false => assert_eq!(app.client().register("alice", PASSWORD).await.status, 201),
        }
        let owner = app.client();
        confirm(&app, &owner, ADA).await;
        change(&app, &owner, "ada@example.net").await;
        assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
        assert_eq!(app.client().login("alice", PASSWORD).await.status, 200, "the password");
        assert_eq!(address_of_alice(&app).await.as_deref(), Some("ada@example.net"), "as she left it");
    }
}
