//! Changes of addresses at once: who has an address in the end, and who is told.

use gatehouse::accounts::{Account, RecipientSet, Roles, Username};
use gatehouse::codes::Recipient;
use gatehouse::db::Db;
use gatehouse::mail::Mailbox;
use serde_json::{Value, json};
use std::collections::BTreeSet;

use super::flows::{self, confirm, mails, newest_code, until, waiting};
use crate::sms::rig::all;
use crate::support;
use crate::support::app::{Client, PASSWORD, Store, TestApp, on_both_stores};

const ADA: &str = "ada@example.org";
const MANY: usize = 64;

on_both_stores!(
    of_64_changes_at_once_each_tells_the_address_before,
    of_64_accounts_that_want_one_mailbox_one_has_it,
);

fn is_of_a_change(mail: &&Value) -> bool {
    mail["subject"].as_str().unwrap().contains("address changed")
}

/// The codes to freeze the account that went to an address.
pub async fn freeze_codes(app: &TestApp, address: &str) -> Vec<String> {
    let code = |mail: &Value| flows::freeze_code(mail).unwrap_or_else(|| panic!("{mail}"));
    mails(app, address).await.iter().filter(is_of_a_change).map(code).collect()
}

/// The first of them, once it is there.
pub async fn freeze_code(app: &TestApp, address: &str) -> String {
    until(app, address, |mails| mails.iter().find(is_of_a_change).map(drop)).await;
    freeze_codes(app, address).await.remove(0)
}

pub async fn freeze(app: &TestApp, code: &str) -> u16 {
    app.client().call("/freeze", json!({ "code": code })).await.status
}

/// Gives the signed-in account another address.
pub async fn change(app: &TestApp, by: &Client, address: &str) {
    flows::confirm_signed_in(app, by, address).await;
}

pub async fn alice(app: &TestApp) -> Account {
    app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap()
}

async fn of_64_changes_at_once_each_tells_the_address_before(store: Store) {
    let setup = TestApp::on(store).without(&["mail-mailbox", "mail-address", "mail-network"]);
    let app = setup.start().await;
    app.client().register("alice", PASSWORD).await;
    let owner = app.client();
    confirm(&app, &owner, ADA).await;
    let addresses: Vec<_> = (0..MANY).map(|number| format!("ada{number}@example.net")).collect();
    for address in &addresses {
        let asked = owner.call("/email/codes", json!({ "email": address, "purpose": "verify" })).await;
        assert_eq!(asked.status, 202, "{}", asked.text);
    }
    let mut changes = Vec::new();
    for address in &addresses {
        let code = newest_code(&app, address, 1).await;
        let (owner, address) = (owner.clone(), address.clone());
        changes.push(async move { flows::set(&owner, &address, &code).await });
    }
    for answer in all(changes.into_iter()).await {
        assert_eq!(answer.status, 200, "{}", answer.text);
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
