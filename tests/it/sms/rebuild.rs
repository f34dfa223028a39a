//! The cap outlives its store: whatever the store loses within the hour is rebuilt from the ledger.

use super::rig::*;
use gatehouse::codes::*;
use gatehouse::db::{Db, DbLock};
use gatehouse::denied::Denied;

const FIVE_AN_HOUR: &str = "[limits.sms-phone]\nrules = [{ max = 5, window = '1h' }]";
/// The ledger has the number's own rules; these are only in the store. Three, four and six of these are open
/// to everybody at our pages.
const BUDGETS: &str =
    "[limits.sms-phone]\nrules = []\n[limits.sms-address]\nrules = [{ max = 4, window = '1h' }]
    [limits.sms-prefix]\nrules = [{ max = 5, window = '1h' }]
    [limits.sms-total]\nrules = [{ max = 10, window = '1h' }]";

/// How a store loses its data.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Flush,
    Restart,
    NewProcess,
    /// Its memory is full.
    Eviction,
}

async fn rig(loss: Loss, toml: &str) -> Rig {
    let store = if matches!(loss, Loss::NewProcess) { Store::Memory } else { Store::Redis };
    Rig::new(store, toml).await
}

/// The instance to continue with.
async fn lose(loss: Loss, rig: &mut Rig, instance: Instance) -> Instance {
    match loss {
        Loss::Flush => rig.flush(),
        Loss::Eviction => rig.evict(),
        Loss::Restart => rig.restart_redis(&instance).await,
        Loss::NewProcess => return rig.instance().await,
    }
    instance
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_in_mid_hour_under_parallel_requests_it_stays_five() {
    stays_five(Loss::Flush).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_empty_in_mid_hour_under_parallel_requests_it_stays_five() {
    stays_five(Loss::Restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_with_its_process_in_mid_hour_under_parallel_requests_it_stays_five() {
    stays_five(Loss::NewProcess).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicted_in_mid_hour_under_parallel_requests_it_stays_five() {
    stays_five(Loss::Eviction).await;
}

async fn stays_five(loss: Loss) {
    let mut rig = rig(loss, FIVE_AN_HOUR).await;
    let (mut instance, phone) = (rig.instance().await, phone());
    for _ in 0..3 {
        sent(instance.send(&phone).await);
        rig.advance(5 * MINUTE);
    }
    for _ in 0..3 {
        let before = tokio::spawn({
            let (instance, phone) = (instance.clone(), phone.clone());
            async move { instance.send_many(&phone, 40).await }
        });
        instance = lose(loss, &mut rig, instance).await;
        instance.send_many(&phone, 40).await;
        before.await.unwrap();
        assert!(rig.sent_to(&phone) <= 5, "{loss:?}: {}", rig.sent_to(&phone));
        // While the windows are lost, the first may be refused because of the one that is refused next.
        for _ in 0..2 {
            instance.send(&phone).await;
        }
        assert_eq!(rig.sent_to(&phone), 5, "{loss:?}");
    }
    let (limit, wait) = throttled(instance.send(&phone).await);
    assert_eq!((limit.as_str(), wait), ("sms-phone", 45 * MINUTE));
    assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 5, "the store knows again");
    rig.advance(45 * MINUTE);
    sent(instance.send(&phone).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_again_and_again_under_two_instances_no_budget_is_exceeded() {
    let toml = "[limits.sms-phone]\nrules = []\n[limits.sms-total]\nrules = [{ max = 50, window = '1h' }]";
    let rig = rig(Loss::Flush, toml).await;
    let (one, other) = (rig.instance().await, rig.instance().await);
    for _ in 0..8 {
        let burst = tokio::spawn(all([one.clone(), other.clone()].into_iter().flat_map(|instance| {
            (0..20).map(move |_| {
                let instance = instance.clone();
                async move { instance.send(&phone()).await }
            })
        })));
        for _ in 0..5 {
            tokio::task::yield_now().await;
            rig.flush();
        }
        burst.await.unwrap();
        assert!(rig.sent().len() <= 30, "{} messages", rig.sent().len());
    }
    // Of 50, thirty are open to everybody at our pages. Requests refused only because of the flushes could be repeated by
    // now.
    while is_sent(&one.send(&phone()).await) {}
    assert_eq!(rig.sent().len(), 30);
    assert_eq!(one.counted("sms-total", b"everyone").await, 30);
    assert_eq!(one.ledger().await.len(), 30, "nothing stands in the ledger that did not go out");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_hits_are_lost_before_it_stands_in_the_ledger_is_admitted_anew() {
    let rig = rig(Loss::Flush, "").await;
    let (instance, other, phone) = (rig.instance().await, rig.instance().await, phone());
    assert!(instance.codes.rebuild_windows(instance.live()).await);
    let server = rig.redis.as_ref().expect("a server");
    let looks = server.calls("get");
    // Another write delays it between the store and the ledger.
    let lock = DbLock::number(&instance.codes.phone_key(instance.live(), &phone).0);
    let writer = rig.instance().await.db.begin_exclusive(lock).await.unwrap();
    let sending = tokio::spawn({
        let (instance, phone) = (instance.clone(), phone.clone());
        async move { instance.send(&phone).await }
    });
    until(async || server.calls("get") > looks).await;
    rig.flush();
    assert!(other.codes.rebuild_windows(other.live()).await, "from a ledger that does not know of it");
    drop(writer);
    sent(sending.await.unwrap());
    assert_eq!(other.counted("sms-total", b"everyone").await, 1);
    assert_eq!((rig.sent_to(&phone), instance.ledger().await.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_missed_a_writing_back_trusts_no_admission_from_around_it() {
    let rig = rig(Loss::Flush, "").await;
    let (instance, other) = (rig.instance().await, rig.instance().await);
    sent(instance.send(&phone()).await);
    let server = rig.redis.as_ref().expect("a server");
    let scripts = || server.calls("evalsha");
    let before = scripts();
    sent(instance.send(&phone()).await);
    assert_eq!(scripts() - before, 1, "a reservation");
    rig.flush();
    assert!(other.codes.rebuild_windows(other.live()).await);
    let before = scripts();
    sent(instance.send(&phone()).await);
    assert_eq!(
        scripts() - before,
        3,
        "a reservation that may have been made by an empty store, its refund, another"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_process_died_before_its_gateway_answered_counts() {
    let rig = rig(Loss::NewProcess, "[limits.sms-phone]\nrules = [{ max = 1, window = '1h' }]").await;
    let (dead, phone) = (rig.instance().await, phone());
    rig.mood(Mood::Hangs);
    tokio::spawn({
        let (dead, phone) = (dead.clone(), phone.clone());
        async move { dead.send(&phone).await }
    });
    until(async || rig.sent_to(&phone) > 0).await;
    // That gateway is never released: the row stays as it is.
    let fresh = rig.instance().await;
    assert_eq!(throttled(fresh.send(&phone).await), ("sms-phone".to_owned(), HOUR));
    assert_eq!(fresh.ledger().await[0].state, MessageState::Pending);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_budget_comes_back_after_a_flush() {
    budgets_come_back(Loss::Flush).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_budget_comes_back_after_a_restart() {
    budgets_come_back(Loss::Restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_budget_comes_back_in_a_new_process() {
    budgets_come_back(Loss::NewProcess).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_budget_comes_back_after_an_eviction() {
    budgets_come_back(Loss::Eviction).await;
}

async fn budgets_come_back(loss: Loss) {
    let mut rig = rig(loss, BUDGETS).await;
    let (instance, crowd, address) = (rig.instance().await, phone(), address());
    let refusal = |sending: SendOutcome| spent_by(sending);
    for _ in 0..3 {
        sent(instance.send_from(&neighbour(&crowd), &address).await);
        rig.advance(MINUTE);
    }
    // A message that was not sent comes back in no count.
    rig.mood(Mood::Refuses);
    assert_eq!(instance.send(&neighbour(&crowd)).await, SendOutcome::NotSent);
    rig.mood(Mood::Accepts);
    let instance = lose(loss, &mut rig, instance).await;
    let told = refusal(instance.send_from(&phone(), &address).await);
    assert_eq!(told, ("sms-address".to_owned(), 57 * MINUTE), "{loss:?}");
    sent(instance.send(&neighbour(&crowd)).await);
    let instance = lose(loss, &mut rig, instance).await;
    assert_eq!(refusal(instance.send(&neighbour(&crowd)).await).0, "sms-prefix", "{loss:?}");
    for _ in 0..2 {
        sent(instance.send(&phone()).await);
    }
    let instance = lose(loss, &mut rig, instance).await;
    let told = refusal(instance.send(&phone()).await);
    assert_eq!(told, ("sms-total".to_owned(), 57 * MINUTE), "{loss:?}");
    assert_eq!(rig.sent().len(), 7, "six, and the one that was refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_of_a_network_comes_back_whatever_loses_it() {
    let toml = "[limits.sms-network]\nrules = [{ max = 4, window = '1h' }]";
    for loss in [Loss::Flush, Loss::Restart, Loss::NewProcess] {
        let mut rig = rig(loss, toml).await;
        let (instance, network) = (rig.instance().await, address());
        let of_it = |last: u8| [&network[..6], &[0, last]].concat();
        for last in 0..3 {
            sent(instance.send_from(&phone(), &of_it(last)).await);
            rig.advance(MINUTE);
        }
        let instance = lose(loss, &mut rig, instance).await;
        let told = spent_by(instance.send_from(&phone(), &of_it(3)).await);
        assert_eq!(told, ("sms-network".to_owned(), 57 * MINUTE), "{loss:?}");
        sent(instance.send(&phone()).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_known_again_after_a_flush() {
    let rig = rig(Loss::Flush, "").await;
    let (instance, phone) = (rig.instance().await, phone());
    let address = address();
    let named = RequestedMessage { once: Some("click".to_owned()), ..ask(&phone, &address) };
    let first = instance.ask(named.clone()).await;
    rig.flush();
    assert_eq!(instance.ask(named).await, first);
    assert_eq!(rig.sent_to(&phone), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_makes_the_store_whole_and_a_request_finds_it_so() {
    let rig = rig(Loss::NewProcess, FIVE_AN_HOUR).await;
    let (old, phone) = (rig.instance().await, phone());
    for _ in 0..5 {
        sent(old.send(&phone).await);
    }
    let fresh = rig.instance().await;
    assert!(fresh.codes.rebuild_windows(fresh.live()).await);
    assert_eq!(fresh.counted("sms-phone", phone.as_str().as_bytes()).await, 5);
    assert_eq!(fresh.counted("sms-total", b"everyone").await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_of_many_pages_comes_back_whole_or_as_much_of_it_as_can_count() {
    let toml = "[limits.sms-phone]\nrules = []\n[limits.sms-address]\nrules = []
        [limits.sms-network]\nrules = []\n[limits.sms-prefix]\nrules = []\n[sms.brake]\nenabled = false";
    let total = |max| {
        let toml = format!("{toml}\n[limits.sms-total]\nrules = [{{ max = {max}, window = '1h' }}]");
        gatehouse::config::parse(std::path::Path::new("test.toml"), &toml, &[]).unwrap().live
    };
    for loss in [Loss::Flush, Loss::NewProcess] {
        let mut rig = rig(loss, toml).await;
        rig.live = total(50_000);
        let instance = rig.instance().await;
        sent(instance.send(&phone()).await);
        // Ten a second until then.
        run(
            &instance,
            "INSERT INTO sms_messages (id, created_at, phone_key, address_key, network_key, hit, block,
                number_range, purpose, gateway, state, expires_at)
            WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
            SELECT '11111111111111111111' || CAST(100000000000 + i AS TEXT), created_at - i * 100000,
                phone_key, address_key, network_key, CAST(100000000000 + i AS TEXT), block, number_range,
                purpose, gateway, state, expires_at FROM sms_messages, n",
        )
        .await;
        let instance = lose(loss, &mut rig, instance).await;
        sent(patiently(&instance).await);
        assert_eq!(instance.counted("sms-total", b"everyone").await, 12_002, "{loss:?}");
        // Our own pages may send three fifths: until the 600th newest leaves, which was sent 59.8 s ago.
        let instance = lose(loss, &mut rig, instance).await.with(&total(1_000));
        let told = spent_by(patiently(&instance).await);
        assert_eq!(told, ("sms-total".to_owned(), HOUR - 598 * SECOND / 10), "{loss:?}");
        assert_eq!(instance.counted("sms-total", b"everyone").await, 1_000, "{loss:?}");
    }
}

/// On a busy machine the rebuild outlasts the patience of a request, and goes on without it.
async fn patiently(instance: &Instance) -> SendOutcome {
    for _ in 0..50 {
        match instance.send(&phone()).await {
            SendOutcome::Denied(Denied::Unavailable { .. }) => {}
            other => return other,
        }
    }
    panic!("the windows are not rebuilt");
}

/// Reading it for a rebuild may be the reason why a ledger does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_fails_is_asked_once_for_all_who_wait_and_then_left_alone_for_longer_each_time() {
    let rig = rig(Loss::Flush, "").await;
    let instance = rig.instance().await;
    let server = rig.redis.as_ref().expect("a server");
    // Each rebuild leaves a mark when it begins.
    let begun = || -> usize {
        let marks = redis::cmd("KEYS").arg("gh:restoring-*").query::<Vec<String>>(&mut server.connection());
        marks.unwrap().len()
    };
    rename(&instance, "sms_messages", "mislaid").await;
    // Each for another number, so that nobody blocks another.
    let all_are_refused = async |count: usize| {
        let sending = all((0..count).map(|_| {
            let instance = instance.clone();
            async move { instance.send(&phone()).await }
        }));
        for answer in sending.await {
            assert!(matches!(answer, SendOutcome::Denied(Denied::Unavailable { .. })), "{answer:?}");
        }
    };
    all_are_refused(40).await;
    assert_eq!(begun(), 1);
    for (waited, attempts) in [(SECOND - MICRO, 1), (MICRO, 2), (SECOND, 2), (SECOND, 3), (4 * SECOND, 4)] {
        rig.advance(waited);
        all_are_refused(5).await;
        assert_eq!(begun(), attempts, "after another {waited:?}");
    }
    for _ in 0..20 {
        rig.advance(MINUTE);
        let before = begun();
        all_are_refused(1).await;
        assert_eq!(begun(), before + 1, "a minute at most");
    }
    rename(&instance, "mislaid", "sms_messages").await;
    rig.advance(MINUTE);
    sent(instance.send(&phone()).await);
}

async fn rename(instance: &Instance, table: &str, to: &str) {
    run(instance, &format!("ALTER TABLE {table} RENAME TO {to}")).await;
}

async fn run(instance: &Instance, sql: &str) {
    match &instance.db {
        Db::Sqlite(pools) => sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&pools.all).await.map(drop),
        Db::Postgres(pools) => sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&pools.all).await.map(drop),
    }
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_raised_counts_what_went_out_before() {
    let mut rig =
        rig(Loss::NewProcess, "[limits.sms-phone]\nrules = []\n[limits.sms-total]\nrules = []").await;
    let instance = rig.instance().await;
    for _ in 0..4 {
        sent(instance.send(&phone()).await);
    }
    let toml = "[limits.sms-phone]\nrules = []\n[limits.sms-total]\nrules = [{ max = 9, window = '1h' }]";
    rig.live = gatehouse::config::parse(std::path::Path::new("test.toml"), toml, &[]).unwrap().live;
    let instance = instance.with(&rig.live);
    sent(instance.send(&phone()).await);
    assert_eq!(spent_by(instance.send(&phone()).await).0, "sms-total");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_was_shortened_for_a_while_counts_what_it_counted_before() {
    let total = |window| {
        let toml = format!(
            "[limits.sms-phone]\nrules = []\n[limits.sms-total]\nrules = [{{ max = 7, window = '{window}' }}]"
        );
        gatehouse::config::parse(std::path::Path::new("test.toml"), &toml, &[]).unwrap().live
    };
    let mut rig = rig(Loss::Flush, "").await;
    rig.live = total("24h");
    let mut instance = rig.instance().await;
    for _ in 0..3 {
        sent(instance.send(&phone()).await);
    }
    // With the shorter window the store drops what it wrote before, as it writes again.
    rig.advance(2 * HOUR);
    instance = instance.with(&total("1h"));
    sent(instance.send(&phone()).await);
    rig.advance(2 * HOUR);
    instance = instance.with(&total("24h"));
    assert_eq!(spent_by(instance.send(&phone()).await).0, "sms-total");
}
