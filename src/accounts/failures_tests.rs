use super::*;
use crate::accounts::{Phc, RecipientSet, ShownBy, Username};
use crate::clock::{Clock, Micros};
use crate::db::Db;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::entropy::Entropy;
use crate::sms::Phone;

const NOW: Micros = Micros(1_000_000);

async fn accounts(database: &TestDatabase) -> Accounts {
    Accounts::new(database.open().await, Clock::manual(NOW), Entropy::Os)
}

fn phc(text: &str) -> Phc {
    Phc::stored(text.to_owned())
}

fn phone() -> Phone {
    Phone::stored("+8613800138000".to_owned())
}

async fn alice(accounts: &Accounts) -> Account {
    let login = Username::parse("alice").unwrap();
    accounts.create_with_phone(&login, Some(&phc("first")), &phone()).await.unwrap()
}

async fn again(accounts: &Accounts, account: &Account) -> Account {
    accounts.by_id(account.id).await.unwrap().unwrap()
}

on_both_databases!(
    of_two_hundred_failures_at_four_instances_a_hundred_count_and_one_disables,
    a_right_password_begins_anew_but_not_once_it_is_disabled,
    a_limit_below_what_stands_disables_at_the_next_failure,
    a_failure_counts_against_the_password_that_it_was_compared_with,
    only_a_code_or_an_administrator_opens_a_disabled_password,
    another_number_or_another_hash_leaves_the_failures_as_they_are,
    a_failure_that_counts_against_nobody_is_written_too,
);

async fn of_two_hundred_failures_at_four_instances_a_hundred_count_and_one_disables(database: TestDatabase) {
    let first = accounts(&database).await;
    let alice = alice(&first).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let instance = accounts(&database).await;
        for _ in 0..50 {
            let (instance, alice) = (instance.clone(), alice.clone());
            tasks.spawn(async move { instance.count_failure(&alice, 100, 1).await.unwrap() });
        }
    }
    let outcomes = tasks.join_all().await;
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!(
        (count(FailureResult::Counted), count(FailureResult::Disabled), count(FailureResult::Void)),
        (99, 1, 100)
    );
    let now = again(&first, &alice).await;
    assert_eq!((now.password_failures, now.password_disabled_at), (100, Some(NOW)));
    assert_eq!((now.open_hash(), &now.password_hash), (None, &Some(phc("first"))));
}

async fn a_right_password_begins_anew_but_not_once_it_is_disabled(database: TestDatabase) {
    let accounts = accounts(&database).await;
    let alice = alice(&accounts).await;
    for _ in 0..3 {
        for _ in 0..2 {
            assert_eq!(accounts.count_failure(&alice, 3, 1).await.unwrap(), FailureResult::Counted);
        }
        assert!(accounts.forget_failures(&alice).await.unwrap());
        assert_eq!(again(&accounts, &alice).await.password_failures, 0);
    }
    for expected in
        [FailureResult::Counted, FailureResult::Counted, FailureResult::Disabled, FailureResult::Void]
    {
        assert_eq!(accounts.count_failure(&alice, 3, 1).await.unwrap(), expected);
    }
    // A slower attempt whose password was compared equal before that.
    assert!(!accounts.forget_failures(&alice).await.unwrap());
    assert_eq!(again(&accounts, &alice).await.password_failures, 3);
}

async fn a_limit_below_what_stands_disables_at_the_next_failure(database: TestDatabase) {
    let accounts = accounts(&database).await;
    let alice = alice(&accounts).await;
    for _ in 0..50 {
        accounts.count_failure(&alice, 100, 1).await.unwrap();
    }
    assert_eq!(accounts.count_failure(&alice, 20, 1).await.unwrap(), FailureResult::Disabled);
}

async fn a_failure_counts_against_the_password_that_it_was_compared_with(database: TestDatabase) {
    let accounts = accounts(&database).await;
    let before = alice(&accounts).await;
    accounts.set_password(before.id, &phc("second"), ShownBy::Phone(&phone(), None)).await.unwrap().unwrap();
    assert_eq!(accounts.count_failure(&before, 1, 1).await.unwrap(), FailureResult::Void);
    assert!(!accounts.forget_failures(&before).await.unwrap(), "the first one is right no more");
    assert_eq!(again(&accounts, &before).await.password_failures, 0);
}

async fn only_a_code_or_an_administrator_opens_a_disabled_password(database: TestDatabase) {
    let accounts = accounts(&database).await;
    let alice = alice(&accounts).await;
    assert!(!accounts.enable_password(alice.id).await.unwrap(), "it is not disabled");
    assert_eq!(accounts.count_failure(&alice, 1, 1).await.unwrap(), FailureResult::Disabled);
    let by_password = ShownBy::Password(alice.password_version);
    assert_eq!(accounts.set_password(alice.id, &phc("second"), by_password).await.unwrap(), None);
    assert!(!accounts.remove_phone(&alice).await.unwrap(), "the number is the only way in now");
    assert!(accounts.enable_password(alice.id).await.unwrap());
    let now = again(&accounts, &alice).await;
    assert_eq!((now.open_hash(), now.password_failures), (Some(&phc("first")), 0));
    assert_eq!(accounts.count_failure(&alice, 1, 1).await.unwrap(), FailureResult::Disabled);
    let by_code = ShownBy::Phone(&phone(), None);
    assert!(accounts.set_password(alice.id, &phc("second"), by_code).await.unwrap().is_some());
    let now = again(&accounts, &alice).await;
    assert_eq!((now.open_hash(), now.password_failures), (Some(&phc("second")), 0));
    assert_eq!(now.password_disabled_at, None);
}

async fn another_number_or_another_hash_leaves_the_failures_as_they_are(database: TestDatabase) {
    let accounts = accounts(&database).await;
    let alice = alice(&accounts).await;
    accounts.count_failure(&alice, 2, 1).await.unwrap();
    assert!(accounts.rehash(alice.id, &phc("first"), &phc("dearer")).await.unwrap());
    let other = Phone::stored("+8613800138001".to_owned());
    assert_eq!(accounts.set_phone(&alice, &other).await.unwrap(), RecipientSet::Done);
    let now = again(&accounts, &alice).await;
    assert_eq!(now.password_failures, 1);
    assert_eq!(accounts.count_failure(&now, 2, 1).await.unwrap(), FailureResult::Disabled);
    assert!(accounts.rehash(alice.id, &phc("dearer"), &phc("dearest")).await.unwrap());
    assert_eq!(again(&accounts, &alice).await.open_hash(), None);
}

async fn a_failure_that_counts_against_nobody_is_written_too(database: TestDatabase) {
    let accounts = accounts(&database).await;
    for _ in 0..5 {
        accounts.count_unheld_failure(&Username::parse("nobody").unwrap()).await.unwrap();
    }
    assert_eq!(unheld(&accounts.db).await, 5);
}

async fn unheld(db: &Db) -> i64 {
    const SQL: &str = "SELECT CAST(SUM(count) AS BIGINT) FROM unheld_failures";
    on_db!(db, pool => query_scalar(SQL).fetch_one(pool).await).unwrap()
}
