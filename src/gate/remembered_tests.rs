//! What is read again, and when.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::accounts::{
    Account, Accounts, AppSessions, AuthenticatedSession, FirstFactor, Groups, MOST_CHANGES, Phc,
    RedeemedCode, Roles, SessionSettings, SessionToken, Sessions, SignInClient, Username,
};
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::db::{Db, on_db};
use crate::entropy::Entropy;
use crate::foundation::Foundation;

const HOUR: Duration = Duration::from_secs(3600);
const HOST: &str = "wiki.example";

/// An account that is signed in at an application, and two instances that are asked about it.
struct TwoInstances {
    database: TestDatabase,
    accounts: Accounts,
    sessions: Sessions,
    app_sessions: AppSessions,
    clock: Clock,
    /// What visitors are read from.
    db: Db,
    of_changes: Db,
    uptime: Uptime,
    one: RememberedVisitors,
    other: RememberedVisitors,
    reads: AtomicUsize,
    account: Account,
    own: AuthenticatedSession,
    own_token: SessionToken,
    app_token: SessionToken,
    token: AppTokenHash,
}

async fn bench(database: TestDatabase) -> TwoInstances {
    let (db, clock) = (database.open().await, Clock::manual(Micros::from_seconds(1_000_000)));
    let accounts = Accounts::new(db.clone(), clock.clone(), Entropy::Os);
    let login = Username::parse("alice").unwrap();
    let account = accounts.create(&login, &Phc::stored("x".into()), Roles::default()).await.unwrap();
    let settings = SessionSettings { idle: HOUR, absolute: 24 * HOUR, confirm: HOUR };
    let foundation = Foundation::keyed([7; 32], &db, &clock);
    let sessions = Sessions::new(&foundation, settings);
    let app_sessions = AppSessions::new(&foundation, settings);
    let own_token =
        sessions.begin(&account, &client(), FirstFactor::Password, None).await.unwrap().token().unwrap();
    let own = sessions.find(&own_token).await.unwrap().unwrap();
    let code = app_sessions.permit(own.session.id, HOST, "state", "https://wiki.example/").await.unwrap();
    let redeemed = app_sessions.redeem(&code, HOST, Some("state")).await.unwrap();
    let RedeemedCode::Session { token, .. } = redeemed else { panic!("no session") };
    let (app_token, token) = (token.clone(), app_sessions.hash(HOST, &token).unwrap());
    // Changes are read by connections of their own.
    let (of_changes, uptime) = (database.open().await, Uptime::manual());
    let changes = || SessionChanges::new(of_changes.clone(), clock.clone());
    let instance = || RememberedVisitors::new(changes(), clock.clone(), uptime.clone());
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
        db,
        of_changes,
        uptime,
        one,
        other,
        reads,
        account,
        own,
        own_token,
        app_token,
        token,
    }
}

fn client() -> SignInClient {
    SignInClient::new(std::net::Ipv4Addr::LOCALHOST.into(), "Firefox")
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
    a_check_asks_no_database_while_nothing_has_changed,
    what_is_remembered_is_believed_for_five_seconds_without_word,
    after_a_gap_in_which_changes_came_and_went_everything_is_read_again,
    what_is_too_much_to_read_is_taken_for_a_change_of_everybody,
    a_browser_without_a_state_gets_no_session_whatever_was_told_of_it,
    a_token_that_was_never_given_out_at_a_host_asks_no_database,
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
    bench.accounts.change_groups(bench.account.id, false, |_| staff.clone()).await.unwrap();
    for instance in [&bench.one, &bench.other] {
        instance.follow().await.unwrap();
        assert!(bench.ask(instance).await.unwrap().groups.contains("staff"));
    }
    // Another session of the account ends nothing here; a sign-in in the same browser does.
    for (old, stays) in [(None, true), (Some(&bench.own_token), false)] {
        let renewed = bench.sessions.begin(&bench.account, &client(), FirstFactor::Password, old).await;
        assert!(renewed.unwrap().token().is_some());
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
    let alone = RememberedVisitors::new(changes, bench.clock.clone(), bench.uptime.clone());
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

async fn a_check_asks_no_database_while_nothing_has_changed(database: TestDatabase) {
    let bench = bench(database).await;
    assert!(bench.ask(&bench.one).await.is_some());
    bench.db.close().await;
    for _ in 0..30 {
        bench.uptime.advance(READ_AGAIN / 31);
        bench.one.follow().await.unwrap();
        assert!(bench.ask(&bench.one).await.is_some());
    }
    assert_eq!(bench.reads(), 1);
    // It is read again after a minute.
    bench.uptime.advance(READ_AGAIN / 10);
    bench.one.follow().await.unwrap();
    assert!(bench.one.get(bench.token, || bench.app_sessions.find(bench.token)).await.is_err());
}

async fn what_is_remembered_is_believed_for_five_seconds_without_word(database: TestDatabase) {
    let bench = bench(database).await;
    assert!(bench.ask(&bench.one).await.is_some());
    bench.of_changes.close().await;
    bench.uptime.advance(BELIEVED - Duration::from_millis(1));
    assert!(bench.one.follow().await.is_err());
    assert!(bench.ask(&bench.one).await.is_some());
    assert_eq!(bench.reads(), 1);
    bench.uptime.advance(Duration::from_millis(1));
    for _ in 0..2 {
        assert!(bench.one.follow().await.is_err());
        assert!(bench.ask(&bench.one).await.is_some());
    }
    assert_eq!(bench.reads(), 2, "the database is asked each time");
    bench.db.close().await;
    let asked = bench.one.get(bench.token, || bench.app_sessions.find(bench.token)).await;
    assert!(asked.is_err(), "and while it is out, nobody passes");
}

async fn after_a_gap_in_which_changes_came_and_went_everything_is_read_again(database: TestDatabase) {
    let bench = bench(database).await;
    let changes = SessionChanges::new(bench.db.clone(), bench.clock.clone());
    // A machine that sleeps stops its uptime, and one that is only held up does not.
    for by_uptime in [false, true] {
        let own = bench
            .sessions
            .begin(&bench.account, &client(), FirstFactor::Password, None)
            .await
            .unwrap()
            .token()
            .unwrap();
        let session = bench.sessions.find(&own).await.unwrap().unwrap().session.id;
        let code = bench.app_sessions.permit(session, HOST, "state", "https://wiki.example/").await.unwrap();
        let redeemed = bench.app_sessions.redeem(&code, HOST, Some("state")).await.unwrap();
        let RedeemedCode::Session { token, .. } = redeemed else { panic!("no session") };
        let token = bench.app_sessions.hash(HOST, &token).unwrap();
        let ask = || bench.one.get(token, || bench.app_sessions.find(token));
        bench.one.follow().await.unwrap();
        assert!(ask().await.unwrap().is_some());
        bench.sessions.revoke(bench.account.id, session).await.unwrap();
        bench.clock.advance(CHANGES_LAST);
        assert!(changes.purge(100).await.unwrap() > 0);
        match by_uptime {
            // The clock was set back meanwhile.
            true => {
                bench.clock.set(bench.clock.now().minus(CHANGES_LAST));
                bench.uptime.advance(UNREAD + Duration::from_millis(1));
            }
            false => assert!(ask().await.unwrap().is_some(), "nothing has been read yet"),
        }
        bench.one.follow().await.unwrap();
        assert!(ask().await.unwrap().is_none(), "{by_uptime}");
    }
}

async fn what_is_too_much_to_read_is_taken_for_a_change_of_everybody(database: TestDatabase) {
    const MANY: &str =
        "WITH RECURSIVE counted (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counted WHERE i < $1)
        INSERT INTO session_changes (id, account, at) SELECT 'many ' || CAST(i AS TEXT), $2, $3 FROM counted";
    let bench = bench(database).await;
    let (other, now) = (AccountId::random(&Entropy::Os).to_string(), bench.clock.now().0);
    let too_many = i32::try_from(MOST_CHANGES).unwrap() + 1;
    assert!(bench.ask(&bench.one).await.is_some());
    on_db!(&bench.db, pool => sqlx::query(MANY).bind(too_many).bind(&other).bind(now).execute(pool).await.map(drop))
        .unwrap();
    for _ in 0..2 {
        bench.one.follow().await.unwrap();
        assert!(bench.ask(&bench.one).await.is_some());
    }
    assert_eq!(bench.reads(), 3, "once, and after each look");
    // They are not deleted yet, and past their time.
    bench.clock.advance(CHANGES_LAST);
    for _ in 0..3 {
        bench.one.follow().await.unwrap();
        assert!(bench.ask(&bench.one).await.is_some());
    }
    assert!(bench.reads() <= 1, "remembered again");
}

async fn a_token_that_was_never_given_out_at_a_host_asks_no_database(database: TestDatabase) {
    let bench = bench(database).await;
    let foundation = Foundation::keyed([7; 32], &bench.of_changes, &bench.clock);
    let gate = crate::gate::Gate::new(&foundation, bench.app_sessions.clone());
    assert!(gate.visitor(HOST, &bench.app_token).await.unwrap().is_some());
    bench.db.close().await;
    assert!(gate.visitor(HOST, &bench.app_token).await.is_err());
    let own = bench.app_token.expose();
    let forged = format!("{}{}", if own.starts_with('A') { 'B' } else { 'A' }, &own[1..]);
    let forged = SessionToken::parse(&forged).unwrap();
    let random = SessionToken::random(&Entropy::Os);
    for (host, token) in [(HOST, &forged), (HOST, &random), ("files.example", &bench.app_token)] {
        assert!(gate.visitor(host, token).await.unwrap().is_none(), "{host}");
        assert!(gate.parent(host, token).await.unwrap().is_none(), "{host}");
    }
    let redeemed = bench.app_sessions.redeem(&random, HOST, Some("state")).await.unwrap();
    assert!(matches!(redeemed, RedeemedCode::Nothing));
}

async fn a_browser_without_a_state_gets_no_session_whatever_was_told_of_it(database: TestDatabase) {
    let bench = bench(database).await;
    for told in ["", "again.", "state"] {
        let code = bench
            .app_sessions
            .permit(bench.own.session.id, HOST, told, "https://wiki.example/")
            .await
            .unwrap();
        let redeemed = bench.app_sessions.redeem(&code, HOST, None).await.unwrap();
        assert!(!matches!(redeemed, RedeemedCode::Session { .. }), "{told}");
    }
}
