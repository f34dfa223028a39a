use super::*;
use crate::accounts::{Accounts, Phc, Roles, Username};
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::foundation::Foundation;

const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    _database: TestDatabase,
    db: Db,
    tokens: ApiTokens,
    clock: Clock,
    boss: AccountId,
}

fn tokens(db: &Db, clock: &Clock) -> ApiTokens {
    ApiTokens::new(&Foundation::keyed([7; 32], db, clock))
}

async fn bench(database: TestDatabase) -> Bench {
    let db = database.open().await;
    let clock = Clock::manual(Micros::from_seconds(1_000_000));
    let accounts = Accounts::new(db.clone(), clock.clone(), Entropy::Os);
    let login = Username::parse("boss").unwrap();
    let boss = accounts.create(&login, &Phc::stored("x".into()), Roles { admin: true }).await.unwrap().id;
    Bench { tokens: tokens(&db, &clock), _database: database, db, clock, boss }
}

impl Bench {
    async fn create(&self, scopes: &str, expires_in: Option<Duration>) -> (ApiToken, TokenId) {
        let scopes = TokenScopes::parse(scopes.split(' ')).unwrap();
        let new = NewToken { name: "a program".into(), scopes, expires_in };
        self.tokens.create(&new, self.boss).await.unwrap().unwrap()
    }
}

fn used() -> TokenUse {
    TokenUse { call: "POST /api/v1/limits/{name}/hits".into(), network: "203.0.113.0/24".into() }
}

async fn shown(tokens: &ApiTokens, token: &ApiToken) -> Option<TokenId> {
    tokens.admit(token, used).await.unwrap().map(|bearer| bearer.id)
}

/// What memory alone says.
fn known(tokens: &ApiTokens, token: &ApiToken) -> bool {
    tokens.known_bearer(&tokens.hash(token)).is_some()
}

on_both_databases!(
    one thread:
    a_token_speaks_for_its_scopes_and_is_nowhere_in_clear,
    a_revoked_token_is_refused_at_once_here_and_within_a_second_elsewhere,
    of_many_callers_one_asks_again_before_what_is_known_is_too_old,
    a_token_ends_when_it_expires,
    its_last_use_is_known_to_the_minute_without_a_write_a_call,
    no_more_than_a_hundred_are_good_at_one_time,
    one_that_is_valid_is_listed_however_many_expired_after_it,
    one_that_was_made_elsewhere_is_good_at_once_however_many_are_not,
    whoever_leaves_while_reading_takes_nobody_along,
);

async fn a_token_speaks_for_its_scopes_and_is_nowhere_in_clear(database: TestDatabase) {
    let bench = bench(database).await;
    let (token, id) = bench.create("reply leave", None).await;
    let text = token.expose();
    assert!(text.starts_with("ght_") && text.len() == 47, "{text}");
    let bearer = bench.tokens.admit(&ApiToken::parse(&text).unwrap(), used).await.unwrap().unwrap();
    assert_eq!(bearer.id, id);
    assert!(bearer.scopes.hold("reply") && !bearer.scopes.hold("other"));
    let stored: String =
        on_db!(&bench.db, pool => query_scalar("SELECT token_hash FROM api_tokens").fetch_one(pool).await)
            .unwrap();
    assert!(!text.contains(&stored));
    assert_eq!(format!("{token:?}"), "ApiToken(…)");
    for other in ["", "ght_", &text[4..], &text[..46], &format!("{text}A"), &text.replace("ght_", "ghp_")] {
        assert!(ApiToken::parse(other).is_none(), "{other}");
    }
    let entry = &bench.tokens.list().await.unwrap()[0];
    assert_eq!((entry.id, entry.name.as_str(), entry.made_by.as_deref()), (id, "a program", Some("boss")));
}

async fn a_revoked_token_is_refused_at_once_here_and_within_a_second_elsewhere(database: TestDatabase) {
    let bench = bench(database).await;
    let elsewhere = tokens(&bench.db, &bench.clock);
    let (token, id) = bench.create("*", None).await;
    assert_eq!(shown(&bench.tokens, &token).await, Some(id));
    assert_eq!(shown(&elsewhere, &token).await, Some(id));
    assert_eq!(bench.tokens.revoke(id, bench.boss).await.unwrap().as_deref(), Some("a program"));
    assert!(!known(&bench.tokens, &token));
    assert_eq!(shown(&bench.tokens, &token).await, None);
    assert!(known(&elsewhere, &token), "it believes what it knows for a moment");
    bench.clock.advance(SECOND);
    assert_eq!(shown(&elsewhere, &token).await, None);
    assert_eq!(bench.tokens.revoke(id, bench.boss).await.unwrap(), None, "it was before");
    assert_eq!(bench.tokens.list().await.unwrap(), []);
}

async fn of_many_callers_one_asks_again_before_what_is_known_is_too_old(database: TestDatabase) {
    let bench = bench(database).await;
    let (token, _) = bench.create("*", None).await;
    shown(&bench.tokens, &token).await;
    bench.clock.advance(FRESH);
    let looks: Vec<_> = (0..10).map(|_| known(&bench.tokens, &token)).collect();
    assert_eq!(looks.iter().filter(|known| !**known).count(), 1);
    bench.clock.advance(BELIEVED - FRESH);
    assert!(!known(&bench.tokens, &token), "whoever asked may never come back");
    shown(&bench.tokens, &token).await;
    assert!(known(&bench.tokens, &token));
    bench.clock.set(Micros::from_seconds(900_000));
    assert!(!known(&bench.tokens, &token), "a clock put back does not make it young");
}

async fn a_token_ends_when_it_expires(database: TestDatabase) {
    let bench = bench(database).await;
    let (token, id) = bench.create("*", Some(10 * SECOND)).await;
    bench.clock.advance(10 * SECOND - Duration::from_micros(1));
    assert_eq!(shown(&bench.tokens, &token).await, Some(id));
    bench.clock.advance(Duration::from_micros(1));
    assert!(!known(&bench.tokens, &token), "what is known of it says so itself");
    assert_eq!(shown(&bench.tokens, &token).await, None);
    assert_eq!(bench.tokens.list().await.unwrap().len(), 1, "it is listed until it is revoked");
}

async fn its_last_use_is_known_to_the_minute_without_a_write_a_call(database: TestDatabase) {
    let bench = bench(database).await;
    let (token, _) = bench.create("*", None).await;
    let last = async || bench.tokens.list().await.unwrap()[0].last_used_at;
    assert_eq!(last().await, None);
    let first = bench.clock.now();
    shown(&bench.tokens, &token).await;
    assert_eq!(last().await, Some(first));
    let TokenUse { call, network } = used();
    let TokenEntry { last_used_for, last_used_from, .. } = bench.tokens.list().await.unwrap().remove(0);
    assert_eq!((last_used_for, last_used_from), (Some(call), Some(network)));
    for _ in 0..59 {
        bench.clock.advance(SECOND);
        shown(&bench.tokens, &token).await;
    }
    assert_eq!(last().await, Some(first));
    bench.clock.advance(SECOND);
    shown(&bench.tokens, &token).await;
    assert_eq!(last().await, Some(bench.clock.now()));
}

async fn no_more_than_a_hundred_are_good_at_one_time(database: TestDatabase) {
    let bench = bench(database).await;
    for _ in 0..95 {
        bench.create("*", Some(SECOND)).await;
    }
    let (_, one) = bench.create("*", None).await;
    let many: Vec<_> = (0..10)
        .map(|_| {
            let (tokens, boss) = (bench.tokens.clone(), bench.boss);
            let new =
                NewToken { name: "x".into(), scopes: TokenScopes::parse(["*"]).unwrap(), expires_in: None };
            tokio::spawn(async move { tokens.create(&new, boss).await.unwrap().is_some() })
        })
        .collect();
    let mut made = 0;
    for task in many {
        made += u32::from(task.await.unwrap());
    }
    assert_eq!(made, 4, "however many ask at once");
    assert!(bench.tokens.revoke(one, bench.boss).await.unwrap().is_some());
    bench.create("*", None).await;
    bench.clock.advance(SECOND);
    bench.create("*", None).await;
}

async fn one_that_is_valid_is_listed_however_many_expired_after_it(database: TestDatabase) {
    let bench = bench(database).await;
    let (_, first) = bench.create("*", None).await;
    for _ in 0..3 {
        for _ in 1..MOST_TOKENS {
            bench.create("*", Some(SECOND)).await;
        }
        bench.clock.advance(SECOND);
    }
    let listed = bench.tokens.list().await.unwrap();
    assert_eq!((listed.len(), listed.last().unwrap().id), (101, first));
}

async fn one_that_was_made_elsewhere_is_good_at_once_however_many_are_not(database: TestDatabase) {
    let bench = bench(database).await;
    let elsewhere = tokens(&bench.db, &bench.clock);
    let junk = async || {
        let many: Vec<_> = (0..500)
            .map(|_| {
                let (tokens, token) = (elsewhere.clone(), ApiToken(SessionToken::random(&Entropy::Os)));
                tokio::spawn(async move { shown(&tokens, &token).await })
            })
            .collect();
        for task in many {
            assert_eq!(task.await.unwrap(), None);
        }
    };
    let reads = || elsewhere.reads.begun.load(Ordering::SeqCst);
    junk().await;
    // The one in progress when the last of them came, and the one that it waited for.
    assert!(reads() <= 2, "{} reads for 500 tokens", reads());
    let (token, id) = bench.create("*", None).await;
    let ((), found) = tokio::join!(junk(), shown(&elsewhere, &token));
    assert_eq!(found, Some(id));
    assert!(reads() <= 5, "{} reads for 1001 tokens", reads());
}

async fn whoever_leaves_while_reading_takes_nobody_along(database: TestDatabase) {
    let bench = bench(database).await;
    let (token, id) = bench.create("*", None).await;
    for _ in 0..20 {
        // Polled once: it may have started a read, and never finishes it.
        let mut gone = Box::pin(bench.tokens.admit(&token, used));
        let once =
            std::future::poll_fn(|context| std::task::Poll::Ready(gone.as_mut().poll(context).is_ready()));
        once.await;
        drop(gone);
        bench.clock.advance(SECOND);
        assert_eq!(shown(&bench.tokens, &token).await, Some(id));
    }
}
