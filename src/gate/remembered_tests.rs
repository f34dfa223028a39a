//! What is read again, and when.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::entropy::Entropy;
use crate::login::{
    Account, Accounts, AppSessions, AuthenticatedSession, Groups, Phc, RedeemedCode, Roles, SessionSettings,
    SessionToken, Sessions, SignInClient, SignedInBy, Username,
};
use crate::secret::MasterKey;

const HOUR: Duration = Duration::from_secs(3600);
const HOST: &str = "wiki.example";

/// An account that is signed in at an application, and two instances that are asked about it.
struct TwoInstances {
    database: TestDatabase,
    accounts: Accounts,
    sessions: Sessions,
    app_sessions: AppSessions,
    clock: Clock,
    one: RememberedVisitors,
    other: RememberedVisitors,
    reads: AtomicUsize,
    account: Account,
    own: AuthenticatedSession,
    own_token: SessionToken,
    token: AppTokenHash,
}

async fn bench(database: TestDatabase) -> TwoInstances {
    let (db, clock) = (database.open().await, Clock::manual(Micros::from_seconds(1_000_000)));
    let accounts = Accounts::new(db.clone(), clock.clone(), Entropy::Os);
    let login = Username::parse("alice").unwrap();
    let account = accounts.create(&login, &Phc::stored("x".into()), Roles::default()).await.unwrap();
    let settings = SessionSettings { idle: HOUR, absolute: 24 * HOUR, confirm: HOUR };
    let key = |purpose| MasterKey::from_bytes([7; 32]).derive(purpose);
    let sessions = Sessions::new(db.clone(), clock.clone(), Entropy::Os, key("session"), settings);
    let app_sessions = AppSessions::new(db.clone(), clock.clone(), Entropy::Os, key("app"), settings);
    let client = SignInClient::new(std::net::Ipv4Addr::LOCALHOST.into(), "Firefox");
    let own_token = sessions.start(&account, &client, SignedInBy::Password).await.unwrap().unwrap();
    let own = sessions.find(&own_token).await.unwrap().unwrap();
    let code = app_sessions.permit(own.session.id, HOST, "state", "https://wiki.example/").await.unwrap();
    let redeemed = app_sessions.redeem(&code, HOST, "state").await.unwrap();
    let RedeemedCode::Session { token, .. } = redeemed else { panic!("no session") };
    let token = app_sessions.hash(HOST, &token);
    let instance = || RememberedVisitors::new(SessionChanges::new(db.clone(), clock.clone()), clock.clone());
    let (one, other) = (instance(), instance());
    for instance in [&one, &other] {
        instance.follow().await.unwrap();
    }
    let reads = AtomicUsize::new(0);
    TwoInstances {
        database,
        accounts,
        sessions,
        app_sessions,
        clock,
        one,
        other,
        reads,
        account,
        own,
        own_token,
        token,
    }
}

impl TwoInstances {
    async fn ask(&self, instance: &RememberedVisitors) -> Option<Arc<AppVisitor>> {
        let read = || async {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.app_sessions.find(self.token).await
        };
        instance.get(self.token, read).await.unwrap()
    }

    /// Since the last call.
    fn reads(&self) -> usize {
        self.reads.swap(0, Ordering::SeqCst)
    }
}

on_both_databases!(
    one_thread_of_many_reads_and_nobody_again_while_nothing_changes,
    what_ends_anywhere_is_forgotten_everywhere_with_the_next_look_at_the_changes,
    what_was_read_before_a_change_is_not_remembered,
    an_instance_that_does_not_follow_the_changes_remembers_nothing,
    a_session_that_was_not_used_for_long_is_over_although_it_is_remembered,
);

async fn one_thread_of_many_reads_and_nobody_again_while_nothing_changes(database: TestDatabase) {
    let bench = bench(database).await;
    for _ in 0..3 {
        let asked = tokio::join!(bench.ask(&bench.one), bench.ask(&bench.one), bench.ask(&bench.one));
        assert!(
            [asked.0, asked.1, asked.2]
                .iter()
                .all(|found| found.as_ref().is_some_and(|it| it.account == bench.account.id))
        );
        bench.one.follow().await.unwrap();
    }
    assert_eq!(bench.reads(), 1);
    assert!(bench.ask(&bench.other).await.is_some());
    assert_eq!(bench.reads(), 1, "each instance for itself");
}

async fn what_ends_anywhere_is_forgotten_everywhere_with_the_next_look_at_the_changes(
    database: TestDatabase,
) {
    let bench = bench(database).await;
    for instance in [&bench.one, &bench.other] {
        assert!(bench.ask(instance).await.unwrap().groups.names().next().is_none());
    }
    let staff = Groups::parse(["staff"]).unwrap();
    bench.accounts.set_groups(bench.account.id, &staff, false).await.unwrap();
    for instance in [&bench.one, &bench.other] {
        instance.follow().await.unwrap();
        assert!(bench.ask(instance).await.unwrap().groups.contains("staff"));
    }
    // Another session of the account ends nothing here; a sign-in in the same browser does.
    let client = SignInClient::new(std::net::Ipv4Addr::LOCALHOST.into(), "Firefox");
    for (old, stays) in [(None, true), (Some(&bench.own_token), false)] {
        let renewed = bench.sessions.renew(&bench.account, &client, SignedInBy::Password, old).await;
        assert!(renewed.unwrap().is_some());
        for instance in [&bench.one, &bench.other] {
            instance.follow().await.unwrap();
            assert_eq!(bench.ask(instance).await.is_some(), stays);
        }
    }
}

async fn what_was_read_before_a_change_is_not_remembered(database: TestDatabase) {
    let bench = bench(database).await;
    let read = || async {
        let found = bench.app_sessions.find(bench.token).await;
        bench.sessions.revoke(bench.account.id, bench.own.session.id).await.unwrap();
        bench.one.follow().await.unwrap();
        found
    };
    assert!(bench.one.get(bench.token, read).await.unwrap().is_some(), "it was so when it was read");
    assert!(bench.ask(&bench.one).await.is_none());
}

async fn an_instance_that_does_not_follow_the_changes_remembers_nothing(database: TestDatabase) {
    let bench = bench(database).await;
    let changes = SessionChanges::new(bench.database.open().await, bench.clock.clone());
    let alone = RememberedVisitors::new(changes, bench.clock.clone());
    for _ in 0..3 {
        assert!(bench.ask(&alone).await.is_some());
    }
    assert_eq!(bench.reads(), 3);
}

async fn a_session_that_was_not_used_for_long_is_over_although_it_is_remembered(database: TestDatabase) {
    let bench = bench(database).await;
    assert!(bench.ask(&bench.one).await.is_some());
    bench.clock.advance(HOUR);
    assert!(bench.ask(&bench.one).await.is_none());
    assert_eq!(bench.reads(), 1);
}
