//! The same by Dovecot, from Debian.

use std::net::Ipv4Addr;

use tokio::task::JoinSet;

use super::Program;
use super::start;
use crate::support::app::{Store, TestApp};
use crate::support::dovecot::{Dovecot, ImapClient, PASSWORD};
use crate::support::until;

const OWNER: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 9);
const REFUSED: &str = "NO [ALERT] Too many sign-ins have failed. Wait a minute and try again.";

async fn served() -> (TestApp, Dovecot) {
    let (app, boss, _) = start(Store::Redis).await;
    let token = Program::of(&app, &boss, "guard:mail").await.token;
    let policy = format!("http://dovecot:{token}@{}/wforce/", app.url.strip_prefix("http://").unwrap());
    let dovecot = Dovecot::start(&policy).await;
    (app, dovecot)
}

/// Dovecot reports a success after it has told the client.
async fn until_reported(app: &TestApp, successes: usize) {
    use gatehouse::audit::{Action, EventFilter, Outcome};
    let audit = &app.services.audit;
    let filter = EventFilter { actions: vec![Action::Attempt], ..EventFilter::default() };
    let reported = async || {
        audit.flush().await;
        let events = audit.log().page(&filter, None, 100).await.unwrap().entries;
        events.iter().filter(|event| event.outcome == Outcome::Ok).count() >= successes
    };
    until("they are reported", reported).await;
}

/// All that was looked at before this name was is in the log with it.
async fn mismatches(dovecot: &Dovecot, login: &str) -> usize {
    let mut client = dovecot.connect(Ipv4Addr::new(127, 8, 8, 8)).await;
    assert!(client.login("sentinel", "wrong").await.starts_with("NO"));
    let waiting = async {
        while dovecot.mismatches("sentinel") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await;
    waited.unwrap_or_else(|_| panic!("a line in the log:\n{}", dovecot.said()));
    dovecot.mismatches(login)
}

async fn sign_in(client: &mut ImapClient, login: &str, dovecot: &Dovecot) {
    let answer = client.login(login, PASSWORD).await;
    assert!(answer.starts_with("OK"), "{answer}\n{}", dovecot.said());
}

#[tokio::test]
async fn one_imap_connection_tries_one_password_after_the_other() {
    let (app, dovecot) = served().await;
    let mut client = dovecot.connect(OWNER).await;
    for password in ["wrong", "worse"] {
        let answer = client.login("ada", password).await;
        assert!(answer.starts_with("NO [AUTHENTICATIONFAILED]"), "{answer}");
    }
    sign_in(&mut client, "ada", &dovecot).await;
    until_reported(&app, 1).await;
    // It was forgiven, and the next three are not.
    let mut stranger = dovecot.connect(Ipv4Addr::new(127, 0, 1, 1)).await;
    for password in ["a", "b", "c"] {
        let answer = stranger.login("ada", password).await;
        assert!(answer.starts_with("NO [AUTHENTICATIONFAILED]"), "{answer}");
    }
    assert_eq!(stranger.login("ada", PASSWORD).await, REFUSED, "right, and nobody looked");
    assert_eq!(mismatches(&dovecot, "ada").await, 5);
    sign_in(&mut dovecot.connect(OWNER).await, "ada", &dovecot).await;
}

#[tokio::test]
async fn of_two_hundred_wrong_passwords_by_imap_three_are_looked_at_and_the_owner_gets_in() {
    let (app, dovecot) = served().await;
    sign_in(&mut dovecot.connect(OWNER).await, "ada", &dovecot).await;
    until_reported(&app, 1).await;
    let mut clients = Vec::new();
    for n in 0..200 {
        clients.push(dovecot.connect(Ipv4Addr::new(127, 1, n, 1)).await);
    }
    let mut owner = dovecot.connect(OWNER).await;
    let mut guessing = JoinSet::new();
    for (n, mut client) in clients.into_iter().enumerate() {
        guessing.spawn(async move { client.login("ada", &format!("guess{n}")).await });
    }
    sign_in(&mut owner, "ada", &dovecot).await;
    let answers = guessing.join_all().await;
    assert!(answers.iter().all(|answer| answer.starts_with("NO")), "{answers:?}");
    assert_eq!(mismatches(&dovecot, "ada").await, 3);
    sign_in(&mut dovecot.connect(OWNER).await, "ada", &dovecot).await;
}
