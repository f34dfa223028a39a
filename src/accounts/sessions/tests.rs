mod disabled;

use std::net::IpAddr;

use super::*;
use crate::accounts::{Accounts, DeviceId, PastSignIn, Phc, Roles, ShownBy, SignInClient, Username};
use crate::db::DbLock;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::foundation::Foundation;
use crate::sms::Phone;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

struct Bench {
    _database: TestDatabase,
    sessions: Sessions,
    clock: Clock,
    accounts: Accounts,
    alice: AccountId,
    bob: AccountId,
}

async fn bench(database: TestDatabase) -> Bench {
    let db = database.open().await;
    let clock = Clock::manual(Micros::from_seconds(1_000_000));
    let accounts = Accounts::new(db.clone(), clock.clone(), Entropy::Os);
    let mut ids = Vec::new();
    for login in ["alice", "bob"] {
        let (login, phc) = (Username::parse(login).unwrap(), Phc::stored("x".into()));
        ids.push(accounts.create(&login, &phc, Roles::default()).await.unwrap().id);
    }
    let settings = SessionSettings { idle: DAY, absolute: 3 * DAY, confirm: HOUR };
    let sessions = Sessions::new(&Foundation::keyed([7; 32], &db, &clock), settings);
    Bench { _database: database, sessions, clock, accounts, alice: ids[0], bob: ids[1] }
}

impl Bench {
    async fn start(&self, account: AccountId) -> SessionToken {
        let account = self.accounts.by_id(account).await.unwrap().unwrap();
        self.start_for(&account).await.unwrap()
    }

    async fn start_for(&self, account: &Account) -> Option<SessionToken> {
        self.start_from(account, [203, 0, 113, 7], None).await
    }

    async fn start_from(
        &self,
        account: &Account,
        from: [u8; 4],
        old: Option<&SessionToken>,
    ) -> Option<SessionToken> {
        let client = SignInClient::new(IpAddr::from(from), "Firefox");
        self.sessions.begin(account, &client, FirstFactor::Password, old).await.unwrap().token()
    }

    async fn session(&self, token: &SessionToken) -> Option<Session> {
        self.sessions.find(token).await.unwrap().map(|found| found.session)
    }
}

on_both_databases!(
    a_token_speaks_for_the_account_it_was_made_for,
    only_a_token_of_ours_is_one,
    signing_out_with_what_is_no_session_waits_for_no_writer,
    a_session_id_opens_nothing,
    no_column_holds_the_token_in_clear,
    an_idle_session_ends_and_a_used_one_goes_on,
    no_use_prolongs_a_session_past_its_end,
    last_seen_is_written_once_a_minute_at_most,
    a_clock_that_steps_back_ends_no_session,
    a_session_is_ended_by_its_owner_only,
    signing_out_ends_this_session_and_others_on_demand,
    purging_removes_what_has_expired_a_batch_at_a_time,
    a_sign_in_verified_with_the_old_password_starts_nothing_after_the_change,
    a_sign_in_by_a_number_starts_nothing_once_the_account_has_it_no_more,
    of_sign_ins_beside_a_change_of_password_none_outlives_it,
    past_a_hundred_sessions_the_one_used_longest_ago_ends,
    only_a_session_begun_by_password_is_confirmed_until_the_password_is_shown_in_it,
    of_a_hundred_sessions_the_one_renewed_makes_room_for_its_successor,
    expired_sessions_take_no_place_of_the_hundred,
    a_sign_in_that_starts_nothing_ends_and_records_nothing,
    all_sessions_of_all_accounts_end_however_many,
    the_newest_twenty_sign_ins_are_kept_for_each_account,
);

async fn a_token_speaks_for_the_account_it_was_made_for(database: TestDatabase) {
    let bench = bench(database).await;
    let token = bench.start(bench.alice).await;
    let found = bench.sessions.find(&token).await.unwrap().unwrap();
    assert_eq!(found.account.login.as_str(), "alice");
    assert_eq!((found.session.account, found.account.id), (bench.alice, bench.alice));
    assert_eq!(found.session.network, "203.0.113.0/24");
    let parsed = SessionToken::parse(&token.expose()).unwrap();
    assert_eq!(bench.session(&parsed).await, Some(found.session));
    let other = bench.start(bench.alice).await;
    assert_ne!(token.expose(), other.expose());
}

async fn only_a_token_of_ours_is_one(database: TestDatabase) {
    let bench = bench(database).await;
    let token = bench.start(bench.alice).await.expose();
    let changed = format!("{}{}", if token.starts_with('A') { "B" } else { "A" }, &token[1..]);
    assert_eq!(bench.session(&SessionToken::parse(&changed).unwrap()).await, None);
    for text in
        ["", &token[1..], &format!("{token}="), &format!("{token}A"), &"+".repeat(43), &"é".repeat(43)]
    {
        assert!(SessionToken::parse(text).is_none(), "{text}");
    }
    assert!(SessionToken::parse(&"A".repeat(10_000_000)).is_none());
}

/// Anybody can send tokens to be signed out.
async fn signing_out_with_what_is_no_session_waits_for_no_writer(database: TestDatabase) {
    let bench = bench(database).await;
    let token = bench.start(bench.alice).await;
    let writes = bench.sessions.db.begin_exclusive(DbLock::on("test")).await.unwrap();
    bench.sessions.end(&SessionToken::random(&Entropy::Os)).await.unwrap();
    writes.commit().await.unwrap();
    bench.sessions.end(&token).await.unwrap();
    assert_eq!(bench.session(&token).await, None);
}

async fn a_session_id_opens_nothing(database: TestDatabase) {
    let bench = bench(database).await;
    let token = bench.start(bench.alice).await;
    let id = bench.session(&token).await.unwrap().id.to_string();
    assert!(SessionToken::parse(&id).is_none());
}

async fn no_column_holds_the_token_in_clear(database: TestDatabase) {
    let bench = bench(database).await;
    let token = bench.start(bench.alice).await;
    let sql = "SELECT token_hash, id, account, network, user_agent FROM sessions";
    let row: (String, String, String, String, String) =
        on_db!(&bench.sessions.db, pool => query_as(sql).fetch_one(pool).await).unwrap();
    let dump = format!("{row:?}");
    assert!(!dump.contains(&token.expose()));
    assert!(!dump.contains(&format!("{:032x}", u128::from_be_bytes(token.0[..16].try_into().unwrap()))));
    let plain = URL_SAFE_NO_PAD.encode(blake3::hash(&token.0).as_bytes());
    assert!(!dump.contains(&plain), "the hash is keyed");
    assert_eq!(format!("{token:?}"), "SessionToken(…)");
}

async fn an_idle_session_ends_and_a_used_one_goes_on(database: TestDatabase) {
    let bench = bench(database).await;
    let (used, idle) = (bench.start(bench.alice).await, bench.start(bench.alice).await);
    bench.clock.advance(DAY - HOUR);
    assert!(bench.session(&used).await.is_some());
    bench.clock.advance(HOUR - Duration::from_micros(1));
    assert_eq!(bench.sessions.list(bench.alice).await.unwrap().len(), 2);
    bench.clock.advance(Duration::from_micros(1));
    assert!(bench.session(&idle).await.is_none(), "to the microsecond");
    assert!(bench.session(&used).await.is_some());
    assert_eq!(bench.sessions.list(bench.alice).await.unwrap().len(), 1);
}

async fn no_use_prolongs_a_session_past_its_end(database: TestDatabase) {
    let bench = bench(database).await;
    let token = bench.start(bench.alice).await;
    for _ in 0..71 {
        bench.clock.advance(HOUR);
        assert!(bench.session(&token).await.is_some());
    }
    bench.clock.advance(HOUR);
    assert!(bench.session(&token).await.is_none());
}

async fn last_seen_is_written_once_a_minute_at_most(database: TestDatabase) {
    let bench = bench(database).await;
    let token = bench.start(bench.alice).await;
    let started = bench.clock.now();
    bench.clock.advance(Duration::from_secs(59));
    assert_eq!(bench.session(&token).await.unwrap().last_seen, started);
    bench.clock.advance(Duration::from_secs(1));
    let seen = bench.session(&token).await.unwrap().last_seen;
    assert_eq!(seen, bench.clock.now());
    assert_eq!(bench.sessions.list(bench.alice).await.unwrap()[0].last_seen, seen, "and kept");
}

async fn a_clock_that_steps_back_ends_no_session(database: TestDatabase) {
    let bench = bench(database).await;
    let token = bench.start(bench.alice).await;
    bench.clock.set(Micros(0));
    assert!(bench.session(&token).await.is_some());
}

async fn a_session_is_ended_by_its_owner_only(database: TestDatabase) {
    let bench = bench(database).await;
    let token = bench.start(bench.alice).await;
    let id = bench.session(&token).await.unwrap().id;
    assert!(!bench.sessions.revoke(bench.bob, id).await.unwrap());
    assert!(bench.session(&token).await.is_some());
    assert!(bench.sessions.revoke(bench.alice, id).await.unwrap());
    assert!(bench.session(&token).await.is_none());
    assert!(!bench.sessions.revoke(bench.alice, id).await.unwrap());
}

async fn signing_out_ends_this_session_and_others_on_demand(database: TestDatabase) {
    let bench = bench(database).await;
    let (one, two, three) =
        (bench.start(bench.alice).await, bench.start(bench.alice).await, bench.start(bench.alice).await);
    let bobs = bench.start(bench.bob).await;
    bench.sessions.end(&one).await.unwrap();
    bench.sessions.end(&one).await.unwrap();
    assert!(bench.session(&one).await.is_none());
    let keep = bench.session(&two).await.unwrap().id;
    assert_eq!(bench.sessions.end_others(bench.alice, keep).await.unwrap(), 1);
    assert!(bench.session(&three).await.is_none());
    assert!(bench.session(&two).await.is_some());
    assert!(bench.session(&bobs).await.is_some(), "bob's are his");
}

async fn purging_removes_what_has_expired_a_batch_at_a_time(database: TestDatabase) {
    let bench = bench(database).await;
    for _ in 0..5 {
        bench.start(bench.alice).await;
    }
    bench.clock.advance(DAY);
    let live = bench.start(bench.alice).await;
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(bench.sessions.purge_expired(2).await.unwrap());
    }
    assert_eq!(removed, [2, 2, 1, 0]);
    assert!(bench.session(&live).await.is_some());
}

async fn a_sign_in_verified_with_the_old_password_starts_nothing_after_the_change(database: TestDatabase) {
    let bench = bench(database).await;
    let before = bench.start(bench.alice).await;
    let bobs = bench.start(bench.bob).await;
    // Verified, and then delayed before its session starts.
    let verified = bench.accounts.by_id(bench.alice).await.unwrap().unwrap();
    let shown = ShownBy::Password(verified.password_version);
    let set = bench.accounts.set_password(bench.alice, &Phc::stored("new".into()), shown).await.unwrap();
    assert_eq!(set, Some(verified.password_version + 1));
    assert!(bench.session(&before).await.is_none(), "ended with the change");
    assert!(bench.start_for(&verified).await.is_none());
    assert_eq!(bench.sessions.list(bench.alice).await.unwrap(), []);
    let again = bench.accounts.set_password(bench.alice, &Phc::stored("late".into()), shown).await.unwrap();
    assert_eq!(again, None, "nor can it set a password of its own");
    bench.start(bench.alice).await;
    assert!(bench.session(&bobs).await.is_some(), "bob's are his");
}

/// A sign-in by a number starts no session once the account no longer has the number.
async fn a_sign_in_by_a_number_starts_nothing_once_the_account_has_it_no_more(database: TestDatabase) {
    let bench = bench(database).await;
    let number = |last: u8| Phone::stored(format!("+86138001380{last:02}"));
    let alice = bench.accounts.by_id(bench.alice).await.unwrap().unwrap();
    bench.accounts.set_phone(&alice, &number(1)).await.unwrap();
    let running = bench.start(bench.alice).await;
    let by_first = bench.accounts.find_by_phone(&number(1)).await.unwrap().unwrap();
    let alice = bench.accounts.by_id(bench.alice).await.unwrap().unwrap();
    bench.accounts.set_phone(&alice, &number(2)).await.unwrap();
    assert!(bench.start_for(&by_first).await.is_none(), "replaced");
    let by_second = bench.accounts.find_by_phone(&number(2)).await.unwrap().unwrap();
    assert!(bench.accounts.remove_phone(&by_second).await.unwrap());
    assert!(bench.start_for(&by_second).await.is_none(), "removed");
    assert!(bench.session(&running).await.is_some(), "what runs goes on");
    bench.start(bench.alice).await;
}

async fn of_sign_ins_beside_a_change_of_password_none_outlives_it(database: TestDatabase) {
    let bench = bench(database).await;
    let verified = bench.accounts.by_id(bench.alice).await.unwrap().unwrap();
    let start = |_| {
        let (sessions, verified) = (bench.sessions.clone(), verified.clone());
        let client = SignInClient::new(IpAddr::from([203, 0, 113, 7]), "Firefox");
        tokio::spawn(async move {
            sessions.begin(&verified, &client, FirstFactor::Password, None).await.unwrap().token().is_some()
        })
    };
    let early: Vec<_> = (0..20).map(start).collect();
    let change = {
        let (accounts, verified) = (bench.accounts.clone(), verified.clone());
        let shown = ShownBy::Password(verified.password_version);
        tokio::spawn(async move {
            accounts.set_password(verified.id, &Phc::stored("new".into()), shown).await.unwrap()
        })
    };
    let late: Vec<_> = (0..20).map(start).collect();
    for task in early.into_iter().chain(late) {
        task.await.unwrap();
    }
    assert_eq!(change.await.unwrap(), Some(1));
    assert_eq!(bench.sessions.list(bench.alice).await.unwrap(), []);
}

async fn past_a_hundred_sessions_the_one_used_longest_ago_ends(database: TestDatabase) {
    let bench = bench(database).await;
    let mut tokens = Vec::new();
    for _ in 0..100 {
        tokens.push(bench.start(bench.alice).await);
        bench.clock.advance(Duration::from_secs(1));
    }
    bench.clock.advance(Duration::from_secs(60));
    assert!(bench.session(&tokens[0]).await.is_some(), "used again, so no longer the oldest");
    let bobs = bench.start(bench.bob).await;
    let newest = bench.start(bench.alice).await;
    assert!(bench.session(&tokens[1]).await.is_none());
    for token in [&tokens[0], &tokens[2], &tokens[99], &newest, &bobs] {
        assert!(bench.session(token).await.is_some());
    }
    // With a clock that stands still, the newest is not older than the rest.
    for _ in 0..3 {
        let newest = bench.start(bench.alice).await;
        assert!(bench.session(&newest).await.is_some());
    }
    assert_eq!(bench.sessions.list(bench.alice).await.unwrap().len(), 100);
}

async fn only_a_session_begun_by_password_is_confirmed_until_the_password_is_shown_in_it(
    database: TestDatabase,
) {
    let bench = bench(database).await;
    let account = bench.accounts.by_id(bench.alice).await.unwrap().unwrap();
    let client = SignInClient::new(IpAddr::from([203, 0, 113, 7]), "Firefox");
    let by_code =
        bench.sessions.begin(&account, &client, FirstFactor::Code, None).await.unwrap().token().unwrap();
    let by_password = bench.start(bench.alice).await;
    let confirmed =
        async |token: &SessionToken| bench.sessions.is_confirmed(&bench.session(token).await.unwrap());
    assert!(!confirmed(&by_code).await);
    assert!(confirmed(&by_password).await);
    let fresh = bench.sessions.confirm(&by_code, None).await.unwrap().unwrap();
    assert!(bench.session(&by_code).await.is_none(), "its token is another one now");
    assert!(bench.sessions.confirm(&by_code, None).await.unwrap().is_none());
    bench.clock.advance(HOUR - Duration::from_micros(1));
    assert!(confirmed(&fresh).await);
    bench.clock.advance(Duration::from_micros(1));
    assert!(!confirmed(&fresh).await);
    assert!(!confirmed(&by_password).await);
    bench.clock.advance(DAY);
    assert!(bench.sessions.confirm(&fresh, None).await.unwrap().is_none(), "it has ended");
}

async fn of_a_hundred_sessions_the_one_renewed_makes_room_for_its_successor(database: TestDatabase) {
    let bench = bench(database).await;
    let mut tokens = Vec::new();
    for _ in 0..100 {
        tokens.push(bench.start(bench.alice).await);
        bench.clock.advance(Duration::from_secs(1));
    }
    let alice = bench.accounts.by_id(bench.alice).await.unwrap().unwrap();
    bench.start_from(&alice, [203, 0, 113, 7], Some(&tokens[50])).await.unwrap();
    assert!(bench.session(&tokens[50]).await.is_none());
    assert!(bench.session(&tokens[0]).await.is_some(), "nobody else has to go");
    assert_eq!(bench.sessions.list(bench.alice).await.unwrap().len(), 100);
}

async fn expired_sessions_take_no_place_of_the_hundred(database: TestDatabase) {
    let bench = bench(database).await;
    for _ in 0..60 {
        bench.start(bench.alice).await;
    }
    bench.clock.advance(DAY);
    let mut tokens = Vec::new();
    for _ in 0..100 {
        tokens.push(bench.start(bench.alice).await);
    }
    for token in &tokens {
        assert!(bench.session(token).await.is_some());
    }
    bench.start(bench.alice).await;
    assert_eq!(bench.sessions.list(bench.alice).await.unwrap().len(), 100);
}

async fn a_sign_in_that_starts_nothing_ends_and_records_nothing(database: TestDatabase) {
    let bench = bench(database).await;
    let mut tokens = Vec::new();
    for _ in 0..100 {
        tokens.push(bench.start(bench.alice).await);
    }
    let alice = bench.accounts.by_id(bench.alice).await.unwrap().unwrap();
    let before = bench.accounts.last_sign_ins(bench.alice).await.unwrap();
    bench.clock.advance(HOUR);
    let outdated = Account { password_version: alice.password_version + 1, ..alice };
    assert!(bench.start_from(&outdated, [198, 51, 100, 9], Some(&tokens[0])).await.is_none());
    for token in &tokens {
        assert!(bench.session(token).await.is_some());
    }
    assert_eq!(bench.accounts.last_sign_ins(bench.alice).await.unwrap(), before);
}

async fn the_newest_twenty_sign_ins_are_kept_for_each_account(database: TestDatabase) {
    let bench = bench(database).await;
    let started = bench.clock.now();
    bench.start(bench.bob).await;
    let alice = bench.accounts.by_id(bench.alice).await.unwrap().unwrap();
    for n in 0..25 {
        bench.clock.advance(Duration::from_secs(1));
        bench.start_from(&alice, [203, 0, n, 7], None).await.unwrap();
    }
    let kept = bench.accounts.last_sign_ins(bench.alice).await.unwrap();
    assert_eq!(kept.len(), 20);
    let at = |seconds| started.plus(Duration::from_secs(seconds));
    let newest = PastSignIn { at: at(25), network: "203.0.24.0/24".into(), user_agent: "Firefox".into() };
    assert_eq!(kept[0], newest);
    assert_eq!(kept[19].at, at(6));
    assert_eq!(bench.accounts.last_sign_ins(bench.bob).await.unwrap().len(), 1);
    let sql = "SELECT COUNT(*) FROM sign_ins";
    let rows: i64 =
        on_db!(&bench.sessions.db, pool => sqlx::query_scalar(sql).fetch_one(pool).await).unwrap();
    assert_eq!(rows, 21);
}

async fn all_sessions_of_all_accounts_end_however_many(database: TestDatabase) {
    const FILL: &str = "WITH RECURSIVE counted (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counted WHERE i < 1200)
        INSERT INTO sessions (token_hash, id, account, created_at, last_seen, idle_until, ends_at, network, user_agent)
        SELECT 'hash ' || CAST(i AS TEXT), CAST(100000 + i AS TEXT), $1, 1, 1, 2, 2, '', '' FROM counted";
    let bench = bench(database).await;
    let (alices, bobs) = (bench.start(bench.alice).await, bench.start(bench.bob).await);
    execute!(&bench.sessions.db => query(FILL).bind(bench.alice.to_string())).unwrap();
    assert_eq!(bench.accounts.end_all_sessions().await.unwrap(), 1202);
    for token in [&alices, &bobs] {
        assert!(bench.session(token).await.is_none());
    }
    assert_eq!(bench.accounts.end_all_sessions().await.unwrap(), 0);
    let again = bench.start(bench.bob).await;
    assert!(bench.session(&again).await.is_some());
}
