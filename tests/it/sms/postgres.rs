//! What only PostgreSQL can show: instances that share a database over a network.

use super::http::NUMBER;
use super::rig::*;
use crate::support::app::TestApp;
use crate::support::database::TestDatabase;
use gatehouse::codes::*;
use gatehouse::db::DbLock;
use gatehouse::denied::Denied;

/// Like an instance that was stopped (SIGSTOP) between taking a number's lock and its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_one_numbers_lock_is_stuck_another_number_gets_its_message() {
    let rig = Rig::new(Store::Redis, "").await;
    let (stopped, running) = (rig.instance().await, rig.instance().await);
    let (stuck, other) = (phone(), phone());
    let lock = DbLock::number(&running.codes.phone_key(running.live(), &stuck).0);
    let held = stopped.db.begin_exclusive(lock).await.unwrap();
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let (running, stuck) = (running.clone(), stuck.clone());
            tokio::spawn(async move { running.codes.send(running.live(), ask(&stuck, &address())).await })
        })
        .collect();
    // Also those of one block: they share only the brake, which is not being set.
    for number in [&other, &neighbour(&stuck)] {
        sent(running.send(number).await);
    }
    let mut in_vain = 0;
    for waits in waiting {
        match waits.await.unwrap() {
            // One minute, one message: the window store refuses the others.
            Ok(SendOutcome::Denied(Denied::Throttled { .. })) => {}
            Err(_) => in_vain += 1,
            Ok(answer) => panic!("{answer:?}"),
        }
    }
    assert!(in_vain > 0, "nobody had to wait for the lock");
    held.commit().await.unwrap();
    assert_eq!((rig.sent_to(&stuck), rig.sent_to(&other)), (0, 1));
    sent(running.send(&stuck).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_an_hour_go_out_over_two_instances_whatever_the_store_forgets() {
    let toml = "[limits.sms-phone]\nrules = [{ max = 5, window = '1h' }]";
    let rig = Rig::over(TestDatabase::postgres().await, Store::Memory, toml);
    let (one, other, phone) = (rig.instance().await, rig.instance().await, phone());
    // Each has its own store: only the ledger sees both.
    let sendings = all((0..40).map(|turn| {
        let (instance, phone) = (if turn % 2 == 0 { one.clone() } else { other.clone() }, phone.clone());
        async move { instance.codes.send(instance.live(), ask(&phone, &address())).await }
    }))
    .await;
    assert_eq!(rig.sent_to(&phone), 5);
    assert_eq!(sendings.iter().filter(|sending| matches!(sending, Ok(SendOutcome::Sent(_)))).count(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_are_counted_apart_and_what_is_over_is_forgotten_on_postgresql() {
    let rig = Rig::new(Store::Redis, "").await;
    let (one, other, phone, owner) =
        (rig.instance().await, rig.instance().await, phone(), b"the owner's browser");
    sent(one.ask(RequestedMessage { browser: Some(owner.to_vec()), ..ask(&phone, &address()) }).await);
    let code = rig.last_code();
    let strangers = (0..40).map(|turn| {
        let instance = if turn % 2 == 0 { one.clone() } else { other.clone() };
        let (phone, wrong) = (phone.clone(), other_than(&code));
        async move { matches!(instance.check(&phone, &wrong).await, CheckOutcome::Wrong) }
    });
    assert_eq!(all(strangers).await.into_iter().filter(|compared| *compared).count(), 5);
    let here = address();
    let right = other.guess(CodeGuess { browser: Some(owner), ..guess(&phone, &code, &here) }).await;
    assert!(matches!(right, CheckOutcome::Right(_)), "{right:?}");
    // If there is none the answer is the same, and the next code is not affected.
    assert!(matches!(one.check(&neighbour(&phone), &code).await, CheckOutcome::Wrong));
    rig.advance(HOUR);
    assert_eq!(one.codes.ledger().give_up(10).await.unwrap(), 0);
    assert_eq!(
        one.codes.purge(one.live(), 10).await.unwrap(),
        6,
        "wrong codes, and with them the browser that asked"
    );
}

#[tokio::test]
async fn while_it_refuses_connections_calls_fail_at_once_and_go_on_when_it_is_back() {
    let mut app = TestApp::on(Store::Memory).own_postgres().start().await;
    let client = app.client();
    app.postgres.as_mut().unwrap().stop();
    until(async || client.get("/readyz").await.status == 503).await;
    // The first may wait for a connection until the background probe has noticed: then none does.
    client.ask_code(NUMBER, "login").await;
    let refusals = async {
        for _ in 0..6 {
            let answer = client.ask_code(NUMBER, "login").await;
            assert_eq!((answer.status, answer.header("retry-after")), (503, "5"), "{}", answer.text);
        }
    };
    // Otherwise each would wait its five seconds, one after the other.
    tokio::time::timeout(15 * SECOND, refusals).await.expect("an answer at once");
    app.postgres.as_mut().unwrap().restart().await;
    until(async || client.get("/readyz").await.status == 200).await;
    assert_eq!(client.ask_code(NUMBER, "login").await.status, 202);
}
