use std::time::Duration;

use super::*;
use crate::accounts::{Phc, Roles, ShownBy};
use crate::clock::{Clock, Micros};
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::entropy::Entropy;

const NOW: Micros = Micros(1_000_000);

fn home() -> DeviceId {
    DeviceId::from([7; 16])
}

fn work() -> DeviceId {
    DeviceId::from([8; 16])
}

struct Bench {
    accounts: Accounts,
    alice: Account,
    clock: Clock,
    database: TestDatabase,
}

async fn bench(database: TestDatabase) -> Bench {
    let clock = Clock::manual(NOW);
    let accounts = Accounts::new(database.open().await, clock.clone(), Entropy::Os);
    let login = Username::parse("alice").unwrap();
    let alice = accounts.create(&login, &Phc::stored("first".to_owned()), Roles::default()).await.unwrap();
    Bench { accounts, alice, clock, database }
}

impl Bench {
    async fn fail(&self, device: DeviceId, max: u32) -> FailureResult {
        self.accounts.count_device_failure(&self.alice, device, max, 1).await.unwrap()
    }

    /// The failures of strangers, and those of the device.
    async fn standing(&self, device: DeviceId) -> (i64, i64, bool) {
        let found = self.accounts.find_from(&self.alice.login, device).await.unwrap();
        let (account, failures) = found.unwrap();
        (account.password_failures, failures.failures, failures.spent)
    }
}

on_both_databases!(
    of_two_hundred_failures_at_four_instances_a_hundred_count_and_one_ends_it,
    a_right_password_begins_anew_but_not_once_the_device_is_spent,
    one_wrong_one_may_be_too_many,
    a_new_password_forgets_what_stood_against_devices_and_opens_to_everyone,
    what_stands_against_a_device_goes_with_its_cookie,
    of_one_account_the_hundred_devices_stay_that_failed_last,
);

async fn of_two_hundred_failures_at_four_instances_a_hundred_count_and_one_ends_it(database: TestDatabase) {
    let bench = bench(database).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let instance = Accounts::new(bench.database.open().await, bench.clock.clone(), Entropy::Os);
        for _ in 0..50 {
            let (instance, alice) = (instance.clone(), bench.alice.clone());
            tasks.spawn(async move { instance.count_device_failure(&alice, home(), 100, 1).await.unwrap() });
        }
    }
    let outcomes = tasks.join_all().await;
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!(
        (count(FailureResult::Counted), count(FailureResult::Disabled), count(FailureResult::Void)),
        (99, 1, 100)
    );
    assert_eq!(bench.standing(home()).await, (0, 100, true));
    assert_eq!(bench.standing(work()).await, (0, 0, false), "another has its own");
    assert!(bench.accounts.is_device_spent(bench.alice.id, home()).await.unwrap());
    assert!(!bench.accounts.is_device_spent(bench.alice.id, work()).await.unwrap());
}

async fn a_right_password_begins_anew_but_not_once_the_device_is_spent(database: TestDatabase) {
    let bench = bench(database).await;
    let forget = || bench.accounts.forget_device_failures(&bench.alice, home());
    for _ in 0..3 {
        for _ in 0..2 {
            assert_eq!(bench.fail(home(), 3).await, FailureResult::Counted);
        }
        // Two right ones at once are both right.
        assert!(forget().await.unwrap() && forget().await.unwrap());
        assert_eq!(bench.standing(home()).await, (0, 0, false));
    }
    for expected in
        [FailureResult::Counted, FailureResult::Counted, FailureResult::Disabled, FailureResult::Void]
    {
        assert_eq!(bench.fail(home(), 3).await, expected);
    }
    assert!(!forget().await.unwrap(), "somebody who was slower");
    assert_eq!(bench.standing(home()).await, (0, 3, true));
}

async fn one_wrong_one_may_be_too_many(database: TestDatabase) {
    let bench = bench(database).await;
    assert_eq!(bench.fail(home(), 1).await, FailureResult::Disabled);
    for _ in 0..2 {
        assert_eq!(bench.fail(work(), 100).await, FailureResult::Counted);
    }
    assert_eq!(bench.fail(work(), 2).await, FailureResult::Disabled, "a limit below what stands");
}

async fn a_new_password_forgets_what_stood_against_devices_and_opens_to_everyone(database: TestDatabase) {
    let bench = bench(database).await;
    let Bench { accounts, alice, .. } = &bench;
    assert_eq!(accounts.count_failure(alice, 1, 1).await.unwrap(), FailureResult::Disabled);
    bench.fail(home(), 1).await;
    let set = async |shown| accounts.set_password(alice.id, &Phc::stored("second".to_owned()), shown).await;
    assert_eq!(set(ShownBy::Password(0)).await.unwrap(), None, "as a stranger");
    assert_eq!(set(ShownBy::PasswordFrom(0, home())).await.unwrap(), None, "spent");
    assert_eq!(set(ShownBy::PasswordFrom(1, work())).await.unwrap(), None, "of another password");
    assert_eq!(set(ShownBy::PasswordFrom(0, work())).await.unwrap(), Some(1));
    assert_eq!(bench.standing(home()).await, (0, 0, false));
    assert!(accounts.by_id(alice.id).await.unwrap().unwrap().open_hash().is_some());
    assert_eq!(bench.fail(home(), 3).await, FailureResult::Void, "compared with the one before");
    assert_eq!(bench.standing(home()).await, (0, 0, false));
}

async fn what_stands_against_a_device_goes_with_its_cookie(database: TestDatabase) {
    let bench = bench(database).await;
    bench.fail(home(), 100).await;
    bench.clock.advance(DEVICE_LIFE / 2);
    bench.fail(work(), 100).await;
    bench.clock.advance(DEVICE_LIFE / 2);
    bench.accounts.purge_device_failures(1000).await.unwrap();
    assert_eq!((bench.standing(home()).await.1, bench.standing(work()).await.1), (0, 1));
}

async fn of_one_account_the_hundred_devices_stay_that_failed_last(database: TestDatabase) {
    let bench = bench(database).await;
    for number in 0..105 {
        bench.fail(DeviceId::from([number; 16]), 100).await;
        bench.clock.advance(Duration::from_secs(1));
    }
    bench.accounts.purge_device_failures(1000).await.unwrap();
    let mut left = 0;
    for number in 0..105 {
        left += bench.standing(DeviceId::from([number; 16])).await.1;
    }
    assert_eq!((left, bench.standing(DeviceId::from([104; 16])).await.1), (100, 1));
}
