use super::*;
use crate::accounts::{DeviceCookies, KnownDevices, Phc, Roles};
use crate::clock::{Clock, Micros};
use crate::db::execute;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::entropy::Entropy;
use crate::secret::MasterKey;

const MAX: u32 = 100;

struct Bench {
    consecutive: Arc<ConsecutiveFailures>,
    accounts: Accounts,
    alice: Account,
    database: TestDatabase,
}

async fn bench(database: TestDatabase) -> Bench {
    let accounts = Accounts::new(database.open().await, Clock::manual(Micros(1_000_000)), Entropy::Os);
    let login = Username::parse("alice").unwrap();
    let alice = accounts.create(&login, &Phc::stored("hash".to_owned()), Roles::default()).await.unwrap();
    // On a busy machine a turn takes longer than anybody's patience.
    let patience = Duration::from_mins(5);
    Bench {
        consecutive: Arc::new(ConsecutiveFailures { patience, ..ConsecutiveFailures::new(accounts.clone()) }),
        accounts,
        alice,
        database,
    }
}

impl Bench {
    async fn fail(&self, times: u32) {
        for _ in 0..times {
            self.accounts.count_failure(&self.alice, MAX, 1).await.unwrap();
        }
    }

    /// A browser in which alice has signed in.
    fn device(&self) -> KnownDevice {
        let key = MasterKey::from_bytes([7; 32]).derive_signing("test.device");
        let devices = DeviceCookies::new(key, Clock::manual(Micros(1_000_000)), Entropy::Os);
        let cookie = devices.remember(&KnownDevices::default(), &self.alice);
        devices.recognise(&cookie).at(self.alice.id).unwrap()
    }

    async fn look(&self) -> LoginLookup {
        let lookup = self.consecutive.look_up(&self.alice.login, Some(self.alice.id), None, MAX).await;
        lookup.unwrap().expect("a turn within patience")
    }

    /// Each looks up, waits if it may compare, and ends as `right` says. Returns how many could compare.
    async fn all_at_once(&self, right: fn(usize) -> bool, many: usize) -> usize {
        self.all_at_once_from(None, right, many).await
    }

    async fn all_at_once_from(
        &self,
        device: Option<KnownDevice>,
        right: fn(usize) -> bool,
        many: usize,
    ) -> usize {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..many {
            let (consecutive, alice) = (Arc::clone(&self.consecutive), self.alice.clone());
            tasks.spawn(async move {
                let looked_up = consecutive.look_up(&alice.login, Some(alice.id), device.as_ref(), MAX);
                let lookup = looked_up.await.unwrap().expect("a turn within patience");
                tokio::task::yield_now().await;
                let compared = lookup.permit.is_some();
                if compared && right(number) {
                    assert!(consecutive.confirm(&lookup).await.unwrap());
                } else {
                    consecutive.count(&alice.login, &lookup, MAX, false).await.unwrap();
                }
                compared
            });
        }
        tasks.join_all().await.into_iter().filter(|compared| *compared).count()
    }
}

on_both_databases!(
    of_two_hundred_wrong_ones_at_once_a_hundred_are_compared,
    a_known_device_has_a_hundred_of_its_own_and_strangers_have_theirs,
    right_ones_are_not_refused_for_one_another_however_little_is_left,
    a_right_one_among_many_wrong_ones_gives_them_another_hundred_and_no_more,
    whoever_gives_up_while_they_wait_takes_no_word_with_them,
    a_name_that_nobody_has_is_waited_at_as_an_account_is,
    switched_off_it_counts_nothing_and_what_is_disabled_stays_so,
);

async fn of_two_hundred_wrong_ones_at_once_a_hundred_are_compared(database: TestDatabase) {
    let bench = bench(database).await;
    assert_eq!(bench.all_at_once(|_| false, 200).await, 100);
    let now = bench.accounts.by_id(bench.alice.id).await.unwrap().unwrap();
    assert_eq!((now.password_failures, now.password_disabled_at.is_some()), (100, true));
    assert!(bench.consecutive.in_flight.lock().is_empty(), "nothing is kept of who is gone");
}

async fn a_known_device_has_a_hundred_of_its_own_and_strangers_have_theirs(database: TestDatabase) {
    let bench = bench(database).await;
    assert_eq!(bench.all_at_once(|_| false, 200).await, 100);
    let (home, work) = (bench.device(), bench.device());
    assert_eq!(bench.all_at_once_from(Some(home), |number| number == 0, 1).await, 1, "it opens there still");
    assert_eq!(bench.all_at_once_from(Some(home), |_| false, 200).await, 100);
    assert_eq!(bench.all_at_once_from(Some(work), |_| false, 200).await, 100);
    let now = bench.accounts.by_id(bench.alice.id).await.unwrap().unwrap();
    assert_eq!(now.password_failures, 100, "strangers' alone");
    assert!(bench.consecutive.in_flight.lock().is_empty(), "nothing is kept of who is gone");
}

async fn right_ones_are_not_refused_for_one_another_however_little_is_left(database: TestDatabase) {
    let bench = bench(database).await;
    bench.fail(MAX - 1).await;
    assert_eq!(bench.all_at_once(|_| true, 200).await, 200);
    assert_eq!(bench.accounts.by_id(bench.alice.id).await.unwrap().unwrap().password_failures, 0);
}

async fn a_right_one_among_many_wrong_ones_gives_them_another_hundred_and_no_more(database: TestDatabase) {
    let bench = bench(database).await;
    let compared = bench.all_at_once(|number| number == 7, 400).await;
    // For any position in the order: at most 99 wrong ones before it and a hundred after it, unless it came
    // too late.
    assert!((100..=200).contains(&compared), "{compared}");
    let now = bench.accounts.by_id(bench.alice.id).await.unwrap().unwrap();
    assert_eq!((now.password_failures, now.password_disabled_at.is_some()), (100, true));
}

async fn whoever_gives_up_while_they_wait_takes_no_word_with_them(database: TestDatabase) {
    let bench = bench(database).await;
    bench.fail(MAX - 1).await;
    let first = bench.look().await;
    let wait = || {
        let (consecutive, alice) = (Arc::clone(&bench.consecutive), bench.alice.clone());
        tokio::spawn(async move { consecutive.look_up(&alice.login, Some(alice.id), None, MAX).await })
    };
    let (second, third) = (wait(), wait());
    second.abort();
    // Its turn may have come meanwhile. Then this ends it, as the end of a request does.
    drop(second);
    drop(first);
    assert!(third.await.unwrap().unwrap().unwrap().permit.is_some());
}

/// PostgreSQL alone, because nothing keeps a reader of SQLite waiting.
#[tokio::test]
async fn a_database_that_does_not_answer_in_time_is_not_taken_for_a_queue() {
    let bench = bench(TestDatabase::postgres().await).await;
    bench.fail(MAX - 1).await;
    let first = bench.look().await;
    let impatient = |patience| ConsecutiveFailures {
        patience,
        in_flight: Arc::clone(&bench.consecutive.in_flight),
        ..ConsecutiveFailures::new(bench.accounts.clone())
    };
    let (login, id) = (&bench.alice.login, Some(bench.alice.id));
    let mut stalled = bench.database.open().await.begin().await.unwrap();
    execute!(in &mut stalled => sqlx::query("LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE")).unwrap();
    let stalls = impatient(Duration::from_millis(50)).look_up(login, id, None, MAX).await;
    let timed_out = DbError::from(sqlx::Error::PoolTimedOut).to_string();
    assert_eq!(stalls.err().map(|error| error.to_string()), Some(timed_out));
    drop(stalled);
    // It answers, and the attempt waits for the first one in vain. On a busy machine it needs more time.
    for patience in (0..10).map(|power| Duration::from_millis(50 << power)) {
        if let Ok(ended) = impatient(patience).look_up(login, id, None, MAX).await {
            assert!(ended.is_none());
            drop(first);
            return assert!(bench.consecutive.in_flight.lock().is_empty(), "nothing is kept of who is gone");
        }
    }
    panic!("the database never answers");
}

/// How many attempts at a name are compared at once, if as many come as could all be wrong.
async fn side_by_side(bench: &Bench, login: &Username, expected: Option<AccountId>) -> usize {
    let mut lookup = Vec::new();
    for _ in 0..5 {
        let mut look = std::pin::pin!(bench.consecutive.look_up(login, expected, None, MAX));
        // Waits as long as the database may take to answer, which our clock does not move; an attempt that
        // waits for its turn never returns.
        match tokio::time::timeout(Duration::from_secs(1), &mut look).await {
            Ok(done) => lookup.push(done.unwrap().unwrap()),
            Err(_) => break,
        }
    }
    lookup.len()
}

async fn a_name_that_nobody_has_is_waited_at_as_an_account_is(database: TestDatabase) {
    let bench = bench(database).await;
    let nobody = Username::parse("nobody").unwrap();
    for (times, left) in [(MAX - 3, 3), (2, 1)] {
        bench.fail(times).await;
        for _ in 0..times {
            assert!(!bench.consecutive.count(&nobody, &none(), MAX, false).await.unwrap());
        }
        assert_eq!(side_by_side(&bench, &bench.alice.login, Some(bench.alice.id)).await, left);
        assert_eq!(side_by_side(&bench, &nobody, None).await, left);
    }
    bench.fail(1).await;
    bench.consecutive.count(&nobody, &none(), MAX, false).await.unwrap();
    assert_eq!(side_by_side(&bench, &bench.alice.login, Some(bench.alice.id)).await, 5, "disabled");
    assert_eq!(side_by_side(&bench, &nobody, None).await, 5);
}

/// At a name without an account.
fn none() -> LoginLookup {
    LoginLookup { account: None, device: None, permit: None }
}

fn permits<const N: usize>() -> [ComparisonPermit; N] {
    let table = Arc::default();
    std::array::from_fn(|_| {
        ComparisonPermit::new(&table, InFlightKey::Account(AccountId::parse(&"7".repeat(32)).unwrap()))
    })
}

#[test]
fn whoever_met_others_again_and_again_did_not_wait_for_the_database() {
    let [mut first, mut second] = permits();
    assert!(matches!(first.try_start(MAX.into(), 0, MAX), StartResult::Started));
    drop(first);
    // It read the failures before the first one ended.
    assert!(!second.waited);
    assert!(matches!(second.try_start(MAX.into(), 0, MAX), StartResult::Stale));
    assert!(second.waited);
}

#[test]
fn there_is_room_while_all_in_the_air_may_be_wrong() {
    let [mut first, mut second, mut third] = permits();
    assert!(matches!(first.try_start(98, 0, MAX), StartResult::Started));
    assert!(matches!(second.try_start(98, 0, MAX), StartResult::Started));
    assert!(matches!(third.try_start(98, 0, MAX), StartResult::Full));
    // The third may have read the failures before or after this.
    drop(second);
    assert!(matches!(third.try_start(98, 0, MAX), StartResult::Stale));
    let ended = third.ended();
    assert!(matches!(third.try_start(99, ended, MAX), StartResult::Full), "it was wrong");
    assert!(matches!(third.try_start(0, ended, MAX), StartResult::Started), "it was right");
}

#[test]
fn a_limit_below_what_stands_lets_one_at_a_time_be_compared() {
    let [mut first, mut second] = permits();
    assert!(matches!(first.try_start(50, 0, 20), StartResult::Started));
    assert!(matches!(second.try_start(50, 0, 20), StartResult::Full));
    drop(first);
    assert!(matches!(second.try_start(50, 0, 20), StartResult::Stale));
    let ended = second.ended();
    assert!(matches!(second.try_start(51, ended, 20), StartResult::Started));
}

async fn switched_off_it_counts_nothing_and_what_is_disabled_stays_so(database: TestDatabase) {
    let bench = bench(database).await;
    let look = || bench.consecutive.look_up(&bench.alice.login, Some(bench.alice.id), None, 0);
    for _ in 0..3 {
        let lookup = look().await.unwrap().unwrap();
        assert!(!bench.consecutive.count(&bench.alice.login, &lookup, 0, false).await.unwrap());
    }
    assert_eq!(bench.accounts.by_id(bench.alice.id).await.unwrap(), Some(bench.alice.clone()));
    bench.accounts.count_failure(&bench.alice, 1, 1).await.unwrap();
    assert_eq!(look().await.unwrap().unwrap().open_hash(), None);
}
