//! Attempts as an authentication policy server is asked about them (weakforced's dialect, which Dovecot speaks): the
//! password is reported by a hash, the outcome without a ticket, and nobody can be shown a challenge.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gatehouse_limiter::window::HOLD_LIFE;
use gatehouse_limiter::{RedisLink, StoreError};
use serde::{Deserialize, Serialize};
use sqlx::{query, query_scalar};
use tokio::time::Instant;

use super::attempts::{KEPT, RecentAttempts, call};
use super::{
    AttemptOutcome, ClientCapabilities, GuardedAttempt, GuardedAttempts, GuardedDevice, RequestOrigin,
    SettleError,
};
use crate::accounts::{DeviceId, Realm, RealmLogin};
use crate::clock::{Clock, Micros};
use crate::config::LiveSettings;
use crate::db::{Db, DbError, execute, on_db};
use crate::denied::Denied;
use crate::foundation::Foundation;
use crate::secret::SubKey;

/// How long an attempt waits for others in flight. Dovecot gives up after two seconds
/// (`auth_policy_server_timeout_msecs`), and would take that for a failure.
const PATIENCE: Duration = Duration::from_millis(1500);

#[derive(Clone)]
pub struct AuthPolicy {
    attempts: GuardedAttempts,
    asks: Arc<OpenAttemptStore>,
    pairs: Arc<KnownPairs>,
    keys: SubKey,
}

#[derive(Clone)]
pub struct PolicyAttempt {
    pub realm: Realm,
    pub login: RealmLogin,
    /// The client's address; None if the program does not know it.
    pub origin: Option<RequestOrigin>,
    /// The connection, which tries one password after the other. Empty: the program does not say.
    pub session: String,
    /// What the program says about the password: a hash, of twelve bits with Dovecot's defaults.
    pub password: String,
    /// The client's address is refused.
    pub denied: bool,
}

impl AuthPolicy {
    /// `shared` is where every instance sees what was asked.
    pub fn new(
        foundation: &Foundation,
        attempts: GuardedAttempts,
        shared: Option<(RedisLink, String)>,
    ) -> Self {
        let Foundation { db, clock, secrets, .. } = foundation.clone();
        let asks = Arc::new(OpenAttemptStore::new(clock.clone(), shared));
        Self {
            attempts,
            asks,
            pairs: Arc::new(KnownPairs::new(db, clock)),
            keys: secrets.derive("guard.policy"),
        }
    }

    /// Whether the password may be looked at.
    pub async fn allow(&self, live: &LiveSettings, attempt: &PolicyAttempt) -> Result<bool, DbError> {
        let key = self.key(attempt);
        // Within a session one attempt follows the other. Without one, the same password may be tried twice at once,
        // and a password that no hash tells from it.
        if !attempt.session.is_empty() && self.asks.change(key, OpenAttempts::ask_again).await {
            return Ok(true);
        }
        let Some(ticket) = self.admit(live, attempt).await? else { return Ok(false) };
        // A caller that hangs up must not leave a slot that no report finds.
        let asks = Arc::clone(&self.asks);
        let begun = tokio::spawn(async move {
            asks.change(key, |asked, now| asked.begin(&ticket, now)).await;
        });
        begun.await.expect("keeping it does not panic");
        Ok(true)
    }

    /// How it ended. It is carried out even if the caller hangs up.
    pub async fn report(
        &self,
        live: &Arc<LiveSettings>,
        attempt: PolicyAttempt,
        outcome: AttemptOutcome,
    ) -> Result<(), SettleError> {
        let (this, live) = (self.clone(), Arc::clone(live));
        let told = tokio::spawn(async move {
            match outcome {
                AttemptOutcome::Success => this.succeed(&live, &attempt).await,
                AttemptOutcome::Failure => this.fail(&live, &attempt).await,
                AttemptOutcome::Abandoned | AttemptOutcome::Lapsed => Ok(()),
            }
        });
        told.await.expect("a report does not panic")
    }

    /// Deletes what is known no longer; returns how much.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        self.pairs.purge(batch).await
    }

    async fn succeed(&self, live: &Arc<LiveSettings>, attempt: &PolicyAttempt) -> Result<(), SettleError> {
        // Without a session and a hash, attempts of others look the same.
        let alike = !attempt.session.is_empty() || !attempt.password.is_empty();
        let succeed = if alike { OpenAttempts::succeed } else { OpenAttempts::succeed_one };
        let open = self.asks.change(self.key(attempt), succeed).await;
        let outcomes =
            std::iter::once(AttemptOutcome::Success).chain(std::iter::repeat(AttemptOutcome::Abandoned));
        // Each is settled whatever becomes of the others: one that is not would count as a failure.
        let mut settled = Ok(());
        for (ticket, outcome) in open.iter().zip(outcomes) {
            let told = self.attempts.settle(live, &attempt.realm, ticket, outcome).await;
            settled = settled.and(told.map(drop));
        }
        let remembered = self.pairs.remember(self.pair(attempt)).await;
        settled?;
        Ok(remembered?)
    }

    async fn fail(&self, live: &Arc<LiveSettings>, attempt: &PolicyAttempt) -> Result<(), SettleError> {
        let ticket = match self.asks.change(self.key(attempt), OpenAttempts::fail).await {
            FailureOf::Open(ticket) => Some(ticket),
            FailureOf::Counted => None,
            FailureOf::Unasked => self.count(live, attempt).await,
        };
        if let Some(ticket) = ticket {
            self.attempts.settle(live, &attempt.realm, &ticket, AttemptOutcome::Failure).await?;
        }
        Ok(())
    }

    /// A slot for an attempt, as a known pair first.
    async fn admit(&self, live: &LiveSettings, attempt: &PolicyAttempt) -> Result<Option<String>, DbError> {
        let asked = Instant::now();
        let device = self.device(attempt).await?;
        let mut outcome = self.ask(live, attempt, device, false, PATIENCE).await;
        // Others at the address have used up what the pair has. It is not worse off than a stranger.
        if let (GuardedDevice::Known(_), Err(Denied::Challenged { .. })) = (device, &outcome) {
            let left = PATIENCE.saturating_sub(asked.elapsed());
            outcome = self.ask(live, attempt, GuardedDevice::Stranger, false, left).await;
        }
        Ok(outcome.ok())
    }

    /// A slot for an attempt that has failed already. None: what counts it is full.
    async fn count(&self, live: &LiveSettings, attempt: &PolicyAttempt) -> Option<String> {
        let attempt = PolicyAttempt { denied: false, ..attempt.clone() };
        // It counts somewhere even while the database does not say where.
        let device = self.device(&attempt).await.unwrap_or(GuardedDevice::Stranger);
        self.ask(live, &attempt, device, true, PATIENCE).await.ok()
    }

    async fn ask(
        &self,
        live: &LiveSettings,
        attempt: &PolicyAttempt,
        device: GuardedDevice<'_>,
        solved: bool,
        patience: Duration,
    ) -> Result<String, Denied> {
        let PolicyAttempt { realm, login, denied, .. } = attempt;
        let origin = &self.origin(attempt);
        let means = ClientCapabilities { patience, challenges: false };
        let guess = attempt.password.as_bytes();
        let asked = GuardedAttempt { realm, login, origin, device, guess, solved, denied: *denied, means };
        self.attempts.ask(live, asked).await
    }

    /// An address that is refused is not let in because it was used before.
    async fn device(&self, attempt: &PolicyAttempt) -> Result<GuardedDevice<'static>, DbError> {
        let pair = self.pair(attempt);
        let known = !attempt.denied && self.pairs.is_known(pair).await?;
        Ok(if known { GuardedDevice::Known(pair) } else { GuardedDevice::Stranger })
    }

    /// Without an address, each name has a place of its own, so that nobody uses it up for all others.
    fn origin(&self, attempt: &PolicyAttempt) -> RequestOrigin {
        attempt.origin.clone().unwrap_or_else(|| {
            let nowhere = [&b"\0"[..], &self.name(attempt)].concat();
            RequestOrigin { address: nowhere.clone(), network: nowhere }
        })
    }

    fn name(&self, attempt: &PolicyAttempt) -> [u8; 16] {
        *self.attempts.account(&attempt.realm, &attempt.login).as_bytes()
    }

    fn pair(&self, attempt: &PolicyAttempt) -> DeviceId {
        let parts = [&self.name(attempt)[..], &self.origin(attempt).address].concat();
        DeviceId::from(self.keys.short_hash(*b"pair    ", &parts))
    }

    /// What makes it the same attempt.
    fn key(&self, attempt: &PolicyAttempt) -> [u8; 16] {
        let (name, origin) = (self.name(attempt), self.origin(attempt));
        let parts = [&name[..], &origin.address, attempt.session.as_bytes(), attempt.password.as_bytes()];
        let sized = parts.iter().flat_map(|part| [&(part.len() as u64).to_le_bytes()[..], part].concat());
        self.keys.short_hash(*b"attempt ", &sized.collect::<Vec<u8>>())
    }
}

// What was asked and reported about one attempt, without I/O: the same login, address and password in one session.

/// The most that are open at once; beyond it the oldest is forgotten, and lapses by itself.
const MOST: usize = 64;

/// The open attempts, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAttempts {
    open: Vec<OpenAttempt>,
    /// Answers without a slot of their own that may have led to a look at a password, and were not reported.
    unpaid: u8,
    /// Something was reported, and nothing asked since.
    told: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenAttempt {
    ticket: String,
    at: i64,
    again: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureOf {
    Open(String),
    /// One that has no slot: it is counted now.
    Unasked,
    /// One that counts already.
    Counted,
}

impl OpenAttempts {
    /// Whether this is the second question about an open attempt, which Dovecot asks after a right password. It gets
    /// the first one's answer, once.
    pub fn ask_again(&mut self, now: Micros) -> bool {
        let live = self.open.iter_mut().rev().find(|open| open.is_live(now) && !open.again);
        live.is_some_and(|open| {
            open.again = true;
            true
        })
    }

    pub fn begin(&mut self, ticket: &str, now: Micros) {
        if self.open.len() >= MOST {
            self.open.remove(0);
        }
        self.open.push(OpenAttempt { ticket: ticket.to_owned(), at: now.0, again: false });
        self.told = false;
    }

    /// The password was right, and so it was in the other attempts with it. Returns the tickets that are open.
    pub fn succeed(&mut self, now: Micros) -> Vec<String> {
        let open = std::mem::take(self).open;
        self.told = true;
        open.into_iter().filter(|open| open.is_live(now)).map(|open| open.ticket).collect()
    }

    /// One password was right, and nothing says which of the open attempts had it. Returns the oldest.
    pub fn succeed_one(&mut self, now: Micros) -> Vec<String> {
        let first = self.open.iter().position(|open| open.is_live(now));
        first.map(|first| self.open.remove(first).ticket).into_iter().collect()
    }

    pub fn fail(&mut self, now: Micros) -> FailureOf {
        let told = std::mem::replace(&mut self.told, true);
        if let Some(first) = self.open.iter().position(|open| open.is_live(now)) {
            let open = self.open.remove(first);
            // The second question may have been about another attempt that looks the same.
            self.unpaid = self.unpaid.saturating_add(open.again.into());
            FailureOf::Open(open.ticket)
        } else if let Some(lapsed) = self.open.pop() {
            self.unpaid = self.unpaid.saturating_add(lapsed.again.into());
            FailureOf::Counted
        } else if self.unpaid > 0 {
            self.unpaid -= 1;
            FailureOf::Unasked
        } else if told {
            FailureOf::Counted
        } else {
            FailureOf::Unasked
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.open.is_empty() && self.unpaid == 0 && !self.told
    }
}

impl OpenAttempt {
    fn is_live(&self, now: Micros) -> bool {
        now.since(Micros(self.at)) < HOLD_LIFE
    }
}

// Where it is kept what was asked: on Redis for all instances, and in this process without it or while it is out.

const EXCHANGE: &str = include_str!("../../lua/exchange.lua");
/// Each try that loses is one that another caller has won; no more than this many share one attempt.
const TRIES: usize = 256;

/// The store of what was asked, by a keyed hash of the attempt.
struct OpenAttemptStore {
    here: RecentAttempts<OpenAttempts>,
    shared: Option<(RedisLink, String)>,
}

impl OpenAttemptStore {
    /// On Redis, keys are named `{prefix}:asked:{keyed hash}`.
    pub fn new(clock: Clock, shared: Option<(RedisLink, String)>) -> Self {
        Self { here: RecentAttempts::new(clock), shared }
    }

    /// Changes what is kept, in one step. `change` may run several times.
    async fn change<T>(&self, attempt: [u8; 16], change: impl Fn(&mut OpenAttempts, Micros) -> T) -> T {
        let Some((link, prefix)) = &self.shared else { return self.change_here(attempt, change) };
        if self.here.has(&attempt) {
            // It was asked while Redis was out.
            return self.change_here(attempt, change);
        }
        let key = format!("{prefix}:asked:{}", URL_SAFE_NO_PAD.encode(attempt));
        match self.change_on(link, &key, &change).await {
            Ok(done) => done,
            Err(error) => {
                tracing::debug!(%error, "what was asked about an attempt is kept by this process");
                self.change_here(attempt, change)
            }
        }
    }

    async fn change_on<T>(
        &self,
        link: &RedisLink,
        key: &str,
        change: impl Fn(&mut OpenAttempts, Micros) -> T,
    ) -> Result<T, StoreError> {
        for _ in 0..TRIES {
            let seen: Option<String> = call(link, redis::cmd("GET").arg(key)).await?;
            // No other program writes there.
            let before: OpenAttempts =
                seen.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            let mut after = before.clone();
            let done = change(&mut after, self.here.now());
            if after == before {
                return Ok(done);
            }
            let text = serde_json::to_string(&after).expect("texts and numbers are JSON");
            let mut exchange = redis::cmd("EVAL");
            exchange.arg(EXCHANGE).arg(1).arg(key).arg(seen.unwrap_or_default()).arg(text);
            let exchanged: i64 = call(link, exchange.arg(KEPT.as_millis() as u64)).await?;
            if exchanged == 1 {
                return Ok(done);
            }
        }
        Err(StoreError::TimedOut)
    }

    fn change_here<T>(&self, attempt: [u8; 16], change: impl Fn(&mut OpenAttempts, Micros) -> T) -> T {
        self.here.change(attempt, |kept| {
            let mut asked = kept.take().unwrap_or_default();
            let done = change(&mut asked, self.here.now());
            *kept = Some(asked).filter(|asked| !asked.is_empty());
            done
        })
    }
}

// Names and the addresses from which they signed in: what a known device is to clients that can keep nothing.
// Somebody else at such an address shares the count of that one name there, and nothing else.

/// How long a pair is known after its last success.
const KNOWN_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A success is not written again within this time.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);
const REMEMBERED: usize = 100_000;

struct KnownPairs {
    db: Db,
    clock: Clock,
    /// When each was last seen.
    seen: quick_cache::sync::Cache<DeviceId, Micros>,
}

impl KnownPairs {
    pub fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock, seen: quick_cache::sync::Cache::new(REMEMBERED) }
    }

    pub async fn is_known(&self, pair: DeviceId) -> Result<bool, DbError> {
        const SQL: &str = "SELECT seen_at FROM guard_pairs WHERE pair = $1";
        let known = |seen: Micros| self.clock.now().since(seen) < KNOWN_FOR;
        if self.seen.get(&pair).is_some_and(known) {
            return Ok(true);
        }
        let seen: Option<i64> = on_db!(&self.db, pool => query_scalar(SQL).bind(pair.to_string())
            .fetch_optional(pool).await)?;
        let Some(seen) = seen.map(Micros).filter(|seen| known(*seen)) else { return Ok(false) };
        self.seen.insert(pair, seen);
        Ok(true)
    }

    pub async fn remember(&self, pair: DeviceId) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO guard_pairs (pair, seen_at) VALUES ($1, $2)
            ON CONFLICT (pair) DO UPDATE SET seen_at = excluded.seen_at
            WHERE guard_pairs.seen_at < excluded.seen_at";
        let now = self.clock.now();
        if self.seen.get(&pair).is_some_and(|seen| now.since(seen) < FRESH) {
            return Ok(());
        }
        execute!(&self.db => query(SQL).bind(pair.to_string()).bind(now.0))?;
        self.seen.insert(pair, now);
        Ok(())
    }

    /// Deletes at most `batch` pairs that are known no longer; returns how many.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM guard_pairs WHERE pair IN (SELECT pair FROM guard_pairs
            WHERE seen_at <= $1 ORDER BY seen_at LIMIT $2)";
        let before = self.clock.now().minus(KNOWN_FOR).0;
        Ok(execute!(&self.db => query(SQL).bind(before).bind(i64::from(batch)))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_000_000);

    fn asked(tickets: &[&str]) -> OpenAttempts {
        let mut asked = OpenAttempts::default();
        for ticket in tickets {
            asked.begin(ticket, NOW);
        }
        asked
    }

    #[test]
    fn the_question_after_a_right_password_takes_no_second_slot() {
        let mut one = asked(&["a"]);
        assert!(one.ask_again(NOW) && !one.ask_again(NOW), "once");
        assert_eq!(one.succeed(NOW), ["a"]);
        assert!(!one.ask_again(NOW), "it is over");
        assert_eq!(one.fail(NOW), FailureOf::Counted, "told otherwise");
    }

    #[test]
    fn a_failure_counts_once_however_often_it_is_reported() {
        let mut one = asked(&["a"]);
        assert_eq!(one.fail(NOW), FailureOf::Open("a".into()));
        assert_eq!((one.fail(NOW), one.fail(NOW)), (FailureOf::Counted, FailureOf::Counted));
        let mut none = asked(&[]);
        assert_eq!((none.fail(NOW), none.fail(NOW)), (FailureOf::Unasked, FailureOf::Counted));
        one.begin("b", NOW);
        assert_eq!(one.fail(NOW), FailureOf::Open("b".into()), "asked again, counted again");
    }

    /// A report may come after the next question, and twelve bits of two passwords may be the same.
    #[test]
    fn every_look_that_failed_counts() {
        let mut one = asked(&["a"]);
        assert!(one.ask_again(NOW));
        assert_eq!(one.fail(NOW), FailureOf::Open("a".into()));
        assert_eq!((one.fail(NOW), one.fail(NOW)), (FailureOf::Unasked, FailureOf::Counted));
        let mut two = asked(&["a", "b"]);
        assert_eq!(two.fail(NOW), FailureOf::Open("a".into()), "the oldest first");
        assert_eq!((two.fail(NOW), two.fail(NOW)), (FailureOf::Open("b".into()), FailureOf::Counted));
    }

    /// Those of others go on.
    #[test]
    fn a_success_that_names_no_attempt_ends_one() {
        let mut two = asked(&["a", "b"]);
        assert_eq!(two.succeed_one(NOW), ["a"]);
        assert_eq!(two.fail(NOW), FailureOf::Open("b".into()));
        assert!(two.succeed_one(NOW).is_empty());
    }

    #[test]
    fn what_has_lapsed_counts_already() {
        let late = NOW.plus(HOLD_LIFE);
        let mut one = asked(&["a"]);
        assert!(!one.ask_again(late));
        assert_eq!((one.fail(late), one.fail(late)), (FailureOf::Counted, FailureOf::Counted));
        let mut two = asked(&["a"]);
        two.begin("b", late);
        assert_eq!(two.succeed(late), ["b"]);
    }

    #[test]
    fn it_never_grows() {
        let mut many = asked(&["a"; 1000]);
        assert_eq!(many.succeed(NOW).len(), MOST);
    }
}
