//! Back-channel logout (OpenID Connect Back-Channel Logout 1.0): clients are told that a session has ended. The database
//! notes it, however the session ends; whichever instance takes the note posts it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sqlx::{AssertSqlSafe, query, query_as, query_scalar};
use tokio::task::JoinSet;
use url::{Url, form_urlencoded};

use super::TokenKeys;
use crate::clock::{Clock, Micros};
use crate::config::{LiveHandle, OidcClient};
use crate::db::{Db, DbError, execute, on_db};
use crate::entropy::Entropy;
use crate::https;
use crate::stop::StopSignal;

/// Between two looks for sessions that have ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// For one attempt.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a note belongs to whoever took it: longer than an attempt.
const LEASE: Duration = Duration::from_secs(30);
/// After each failed attempt; then it is given up: its client's tokens are refused here anyway.
const RETRIES: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 60 * 60),
];
const MOST_AT_ONCE: usize = 32;
const MOST_AT_CLIENT: usize = 8;
/// Clients that are told several at once, and those that did not answer last time, have no more of these slots together:
/// the rest is there for whoever is told one.
const MOST_SHARED: usize = 16;
/// For how long a client that did not answer is told nothing more; twice as long each time, up to the longest.
const FIRST_REST: Duration = Duration::from_secs(5);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// Notes of one statement.
const BATCH: u64 = 500;
/// How long a client has to look at a token (Back-Channel Logout 1.0, 2.4).
const TOKEN_LASTS: i64 = 120;

pub struct LogoutNotices {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    keys: TokenKeys,
    live: LiveHandle,
    issuer: String,
    /// To public addresses only.
    public: reqwest::Client,
    anywhere: reqwest::Client,
}

/// The end of a session of an account, of which a client is to be told.
type LogoutNotice = (String, String, String, i64);

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Done,
    /// It answered something else, or nothing was posted.
    Failed,
    /// It did not answer.
    Silent,
}

/// The clients that are being told something, and those that did not answer.
#[derive(Default)]
struct Receivers(HashMap<String, Receiver>);

#[derive(Default)]
struct Receiver {
    in_flight: usize,
    /// Times in a row without an answer.
    silent: u32,
    rests_until: Micros,
}

impl Receivers {
    /// Who is told next, and how much: of those with room whoever is told least, of these the first. `due` are clients,
    /// the one that has waited longest first.
    fn next<'a>(&self, due: &'a [String], now: Micros, posting: usize) -> Option<(&'a str, usize)> {
        let room = due.iter().map(|client| (client.as_str(), self.room(client, now, posting)));
        let room = room.filter(|(_, room)| *room > 0);
        room.min_by_key(|(client, _)| self.0.get(*client).map_or(0, |receiver| receiver.in_flight))
    }

    fn room(&self, client: &str, now: Micros, posting: usize) -> usize {
        let (slots, most) = match self.0.get(client) {
            None => (MOST_AT_ONCE, 1),
            Some(receiver) if receiver.rests_until > now => return 0,
            Some(Receiver { silent: 0, in_flight, .. }) => {
                (MOST_SHARED, MOST_AT_CLIENT.saturating_sub(*in_flight))
            }
            Some(Receiver { in_flight, .. }) => (MOST_SHARED, 1_usize.saturating_sub(*in_flight)),
        };
        slots.saturating_sub(posting).min(most)
    }

    fn began(&mut self, client: &str) {
        self.0.entry(client.to_owned()).or_default().in_flight += 1;
    }

    fn ended(&mut self, client: &str, told: Told, now: Micros) {
        let Some(receiver) = self.0.get_mut(client) else { return };
        receiver.in_flight -= 1;
        if told != Told::Silent {
            (receiver.silent, receiver.rests_until) = (0, Micros(0));
        } else if receiver.rests_until <= now {
            let rest = FIRST_REST * 2_u32.pow(receiver.silent.min(8));
            receiver.silent += 1;
            receiver.rests_until = now.plus(rest.min(LONGEST_REST));
        }
        if receiver.in_flight == 0 && receiver.silent == 0 {
            self.0.remove(client);
        }
    }
}

impl LogoutNotices {
    pub fn new(
        (db, clock, entropy): (Db, Clock, Entropy),
        keys: TokenKeys,
        live: LiveHandle,
        issuer: String,
    ) -> Result<Self, String> {
        let client = |allow_private| https::checked_client(allow_private, TIMEOUT);
        Ok(Self { db, clock, entropy, keys, live, issuer, public: client(false)?, anywhere: client(true)? })
    }

    pub async fn run(self: Arc<Self>, mut stop: StopSignal) {
        let (mut posting, mut receivers) = (JoinSet::new(), Receivers::default());
        loop {
            // An outage is reported by the probes, and what is noted stays.
            let _ = self.begin(&mut posting, &mut receivers).await;
            // Whoever has answered makes room at once.
            let told = tokio::select! {
                going_on = stop.pause(LOOK_EVERY) => if going_on { None } else { return },
                told = posting.join_next(), if !posting.is_empty() => told,
            };
            let others = std::iter::from_fn(|| posting.try_join_next());
            for (client, told) in told.into_iter().chain(others).flatten() {
                receivers.ended(&client, told, self.clock.now());
            }
        }
    }

    /// Begins to tell what is due, as far as there is room. Each client has its turn, so that one that does not answer, or
    /// is told much, keeps no other waiting.
    async fn begin(
        self: &Arc<Self>,
        posting: &mut JoinSet<(String, Told)>,
        receivers: &mut Receivers,
    ) -> Result<(), DbError> {
        let mut due = self.due().await?;
        while let Some((client, room)) = receivers.next(&due, self.clock.now(), posting.len()) {
            let taken = self.take(client, room).await?;
            let is_all = taken.len() < room;
            let client = client.to_owned();
            for notice in taken {
                receivers.began(&client);
                let (notices, client) = (Arc::clone(self), client.clone());
                posting.spawn(async move { (client, notices.post(notice).await) });
            }
            if is_all {
                due.retain(|other| *other != client);
            }
        }
        Ok(())
    }

    /// The clients that are to be told something now, the one that has waited longest first. An index finds each, however
    /// much there is to tell.
    async fn due(&self) -> Result<Vec<String>, DbError> {
        const SQL: &str = "WITH RECURSIVE clients (client) AS (SELECT MIN(client) FROM oidc_logouts UNION ALL
                SELECT (SELECT MIN(client) FROM oidc_logouts WHERE client > clients.client) FROM clients
                WHERE clients.client IS NOT NULL),
            waiting (client, next_at) AS (SELECT client, (SELECT MIN(next_at) FROM oidc_logouts
                WHERE oidc_logouts.client = clients.client) FROM clients WHERE client IS NOT NULL)
            SELECT client FROM waiting WHERE next_at <= $1 ORDER BY next_at, client";
        let now = self.db.now(&self.clock).await?;
        Ok(on_db!(&self.db, pool => query_scalar(SQL).bind(now.0).fetch_all(pool).await)?)
    }

    /// What is due longest of a client. Of two instances that want it, one gets it.
    async fn take(&self, client: &str, most: usize) -> Result<Vec<LogoutNotice>, DbError> {
        const SQL: &str = "UPDATE oidc_logouts SET attempts = attempts + 1, next_at = $1
            WHERE (session, client) IN (SELECT session, client FROM oidc_logouts WHERE client = $2 AND next_at <= $3
                ORDER BY next_at, session LIMIT $4)
            AND next_at <= $3 RETURNING session, client, account, attempts";
        let now = self.db.now(&self.clock).await?;
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(now.plus(LEASE).0).bind(client).bind(now.0)
            .bind(most as i64).fetch_all(pool).await)?)
    }

    async fn post(&self, (session, client, account, attempts): LogoutNotice) -> Told {
        let live = self.live.snapshot();
        let known = live.apps.client(&client).map(|(_, client)| client);
        let told = match known.and_then(|known| Some((known, known.backchannel_logout_uri.clone()?))) {
            // Its owner, who had removed it, has signed in there again: the session has the same id.
            Some(_) if self.goes_on(&session, &client).await => Told::Done,
            Some((known, uri)) => self.tell(known, uri, (&session, &account)).await,
            None => Told::Done,
        };
        let failed = usize::try_from(attempts - 1).unwrap_or_default();
        let again = RETRIES.get(failed).filter(|_| told != Told::Done);
        if told != Told::Done {
            tracing::warn!(
                client,
                attempts,
                given_up = again.is_none(),
                "a client could not be told that somebody signed out"
            );
        }
        // If it cannot be written down, the note is taken again later.
        let _ = self.settle((&session, &client), again.copied()).await;
        if told == Told::Silent {
            let _ = self.postpone(&client).await;
        }
        told
    }

    /// What else is due at a client that did not answer counts as tried, too: however much that is, its end is as near as
    /// that of one note.
    async fn postpone(&self, client: &str) -> Result<(), DbError> {
        const GIVEN_UP: &str =
            "DELETE FROM oidc_logouts WHERE client = $1 AND next_at <= $2 AND attempts >= $3";
        let now = self.db.now(&self.clock).await?.0;
        let most = RETRIES.len() as i64;
        let given_up = execute!(&self.db => query(GIVEN_UP).bind(client).bind(now).bind(most))?;
        if given_up > 0 {
            tracing::warn!(client, given_up, "a client could not be told that some signed out");
        }
        let wait = |(tried, wait): (usize, &Duration)| format!("WHEN {tried} THEN {}", wait.as_micros());
        let waits: Vec<String> = RETRIES.iter().enumerate().map(wait).collect();
        let tried = format!(
            "UPDATE oidc_logouts SET attempts = attempts + 1, next_at = $2 + CASE attempts {} END
            WHERE (session, client) IN (SELECT session, client FROM oidc_logouts WHERE client = $1 AND next_at <= $2
                AND attempts < $3 ORDER BY next_at LIMIT $4) AND next_at <= $2 AND attempts < $3",
            waits.join(" ")
        );
        let mut postponed = BATCH;
        while postponed == BATCH {
            let sql = AssertSqlSafe(tried.clone());
            postponed =
                execute!(&self.db => query(sql).bind(client).bind(now).bind(most).bind(BATCH as i64))?;
        }
        Ok(())
    }

    async fn goes_on(&self, session: &str, client: &str) -> bool {
        const SQL: &str =
            "SELECT COUNT(*) FROM oidc_grants WHERE session = $1 AND client = $2 AND revoked_at IS NULL";
        let grants: Result<i64, _> =
            on_db!(&self.db, pool => query_scalar(SQL).bind(session).bind(client).fetch_one(pool).await);
        grants.is_ok_and(|grants| grants > 0)
    }

    async fn settle(&self, (session, client): (&str, &str), again: Option<Duration>) -> Result<(), DbError> {
        const AGAIN: &str = "UPDATE oidc_logouts SET next_at = $1 WHERE session = $2 AND client = $3";
        const DONE: &str = "DELETE FROM oidc_logouts WHERE session = $1 AND client = $2";
        match again {
            Some(wait) => {
                let at = self.db.now(&self.clock).await?.plus(wait).0;
                execute!(&self.db => query(AGAIN).bind(at).bind(session).bind(client))?
            }
            None => execute!(&self.db => query(DONE).bind(session).bind(client))?,
        };
        Ok(())
    }

    async fn tell(&self, client: &OidcClient, uri: Url, (session, account): (&str, &str)) -> Told {
        let now = self.clock.now().seconds();
        let claims = json!({
            "iss": self.issuer,
            "aud": client.client_id,
            "iat": now,
            "exp": now + TOKEN_LASTS,
            "jti": URL_SAFE_NO_PAD.encode(self.entropy.bytes::<16>()),
            "sub": account,
            "sid": session,
            "events": { "http://schemas.openid.net/event/backchannel-logout": {} },
        });
        let Ok(token) = self.keys.sign(&claims, "logout+jwt") else { return Told::Failed };
        let sender = if client.allow_private { &self.anywhere } else { &self.public };
        let form =
            form_urlencoded::Serializer::new(String::new()).append_pair("logout_token", &token).finish();
        let posted = sender.post(uri).header("content-type", "application/x-www-form-urlencoded").body(form);
        match posted.send().await {
            // 400: it does not know the session, and never will.
            Ok(answer) if answer.status().is_success() || answer.status() == 400 => Told::Done,
            Ok(_) => Told::Failed,
            Err(_) => Told::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros::from_seconds(1_700_000_000);

    /// Whom of these it tells, in turn, until there is no room.
    fn told(
        receivers: &mut Receivers,
        due: &[&str],
        now: Micros,
        posting: &mut usize,
    ) -> Vec<(String, usize)> {
        let due: Vec<String> = due.iter().map(|client| (*client).to_owned()).collect();
        let mut told = Vec::new();
        while let Some((client, room)) = receivers.next(&due, now, *posting) {
            (0..room).for_each(|_| receivers.began(client));
            *posting += room;
            told.push((client.to_owned(), room));
        }
        told
    }

    #[test]
    fn each_client_has_its_turn_and_a_slot_is_left_for_whoever_is_told_one() {
        let (mut receivers, mut posting) = (Receivers::default(), 0);
        let all = ["a", "b", "c", "d"];
        let told_all = told(&mut receivers, &all, NOW, &mut posting);
        assert_eq!(told_all[..4], all.map(|client| (client.to_owned(), 1)));
        assert_eq!(posting, MOST_SHARED, "{told_all:?}");
        assert!(receivers.0.values().all(|receiver| receiver.in_flight <= MOST_AT_CLIENT));
        assert_eq!(told(&mut receivers, &["good", "a"], NOW, &mut posting), [("good".to_owned(), 1)]);
        let many: Vec<String> = (0..100).map(|number| format!("client {number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        told(&mut receivers, &many, NOW, &mut posting);
        assert_eq!(posting, MOST_AT_ONCE);
    }

    #[test]
    fn one_that_does_not_answer_rests_and_is_then_told_one_at_a_time_until_it_does() {
        let (mut receivers, mut posting, mut now) = (Receivers::default(), 0, NOW);
        told(&mut receivers, &["silent"], now, &mut posting);
        assert_eq!(posting, MOST_AT_CLIENT);
        // All of them at once are one time.
        (0..MOST_AT_CLIENT).for_each(|_| receivers.ended("silent", Told::Silent, now));
        for rest in [5, 10, 20, 40, 60, 60].map(Duration::from_secs) {
            let just_before = now.plus(rest - Duration::from_micros(1));
            assert!(told(&mut receivers, &["silent"], just_before, &mut 0).is_empty());
            now = now.plus(rest);
            assert_eq!(told(&mut receivers, &["silent"], now, &mut 0), [("silent".to_owned(), 1)]);
            receivers.ended("silent", Told::Silent, now);
        }
        now = now.plus(LONGEST_REST);
        told(&mut receivers, &["silent"], now, &mut 0);
        receivers.ended("silent", Told::Failed, now);
        assert!(receivers.0.is_empty(), "it answers");
        let (mut posting, other) = (0, "other");
        told(&mut receivers, &["silent", other], now, &mut posting);
        assert_eq!(posting, 2 * MOST_AT_CLIENT);
    }

    /// They keep nobody waiting twice.
    #[test]
    fn those_that_did_not_answer_share_what_is_not_for_others() {
        let (mut receivers, mut posting) = (Receivers::default(), 0);
        let silent: Vec<String> = (0..100).map(|number| format!("silent {number}")).collect();
        let silent: Vec<&str> = silent.iter().map(String::as_str).collect();
        for wave in silent.chunks(MOST_AT_ONCE) {
            told(&mut receivers, wave, NOW, &mut 0);
        }
        silent.iter().for_each(|client| {
            (0..receivers.0[*client].in_flight).for_each(|_| receivers.ended(client, Told::Silent, NOW))
        });
        told(&mut receivers, &silent, NOW.plus(FIRST_REST), &mut posting);
        assert_eq!(posting, MOST_SHARED);
    }
}
