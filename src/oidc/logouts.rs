//! Back-channel logout (OpenID Connect Back-Channel Logout 1.0): clients are told that a session has ended. The database
//! notes it, however the session ends; whichever instance takes the note posts it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sqlx::{query, query_as, query_scalar};
use tokio::task::JoinSet;
use url::{Url, form_urlencoded};

use super::TokenKeys;
use crate::clock::{Clock, Micros};
use crate::config::{LiveHandle, OidcClient};
use crate::db::{Db, DbError, execute, on_db};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::https::{self, ReceiverSilence};
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
/// What has waited for so long at a client that answered nothing all the while is given up, as after the last retry.
const GIVEN_UP_AFTER: Duration = {
    let (mut sum, mut retry) = (0, 0);
    while retry < RETRIES.len() {
        sum += RETRIES[retry].as_secs();
        retry += 1;
    }
    Duration::from_secs(sum)
};
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
enum TellResult {
    Done,
    /// It answered something else, or nothing was posted.
    Failed,
    /// It did not answer.
    Silent,
}

/// The clients that are being told something, and those that did not answer.
#[derive(Default)]
struct Receivers(HashMap<String, ClientState>);

#[derive(Default)]
struct ClientState {
    in_flight: usize,
    silence: ReceiverSilence,
}

impl Receivers {
    /// The client that is told next, and how much: of those with room whoever is told least, of these the first.
    /// `due` are clients, the one that has waited longest first.
    fn next<'a>(&self, due: &'a [String], now: Micros, posting: usize) -> Option<(&'a str, usize)> {
        let room = due.iter().map(|client| (client.as_str(), self.room(client, now, posting)));
        let room = room.filter(|(_, room)| *room > 0);
        room.min_by_key(|(client, _)| self.0.get(*client).map_or(0, |state| state.in_flight))
    }

    fn room(&self, client: &str, now: Micros, posting: usize) -> usize {
        let (slots, most) = match self.0.get(client) {
            None => (MOST_AT_ONCE, 1),
            Some(state) if state.silence.rests(now) => return 0,
            Some(state) if state.silence.since().is_none() => {
                (MOST_SHARED, MOST_AT_CLIENT.saturating_sub(state.in_flight))
            }
            Some(state) => (MOST_SHARED, 1_usize.saturating_sub(state.in_flight)),
        };
        slots.saturating_sub(posting).min(most)
    }

    /// Returns since when this client has not answered.
    fn began(&mut self, client: &str) -> Option<Micros> {
        let state = self.0.entry(client.to_owned()).or_default();
        state.in_flight += 1;
        state.silence.since()
    }

    fn ended(&mut self, client: &str, attempt: TellResult, now: Micros) {
        let Some(state) = self.0.get_mut(client) else { return };
        state.in_flight -= 1;
        match attempt {
            TellResult::Silent => state.silence.unanswered(now),
            TellResult::Done | TellResult::Failed => state.silence.answered(),
        }
        if state.in_flight == 0 && state.silence.since().is_none() {
            self.0.remove(client);
        }
    }
}

impl LogoutNotices {
    pub fn new(
        foundation: &Foundation,
        keys: TokenKeys,
        live: LiveHandle,
        issuer: String,
    ) -> Result<Self, String> {
        let Foundation { db, clock, entropy, .. } = foundation.clone();
        let client = |allow_private| https::checked_client(allow_private, TIMEOUT);
        Ok(Self { db, clock, entropy, keys, live, issuer, public: client(false)?, anywhere: client(true)? })
    }

    pub async fn run(self: Arc<Self>, mut stop: StopSignal) {
        let (mut posting, mut receivers) = (JoinSet::new(), Receivers::default());
        loop {
            // An outage is reported by the probes, and what is noted stays.
            let _ = self.begin(&mut posting, &mut receivers).await;
            // A client that has answered makes room at once.
            let ended = tokio::select! {
                going_on = stop.pause(LOOK_EVERY) => if going_on { None } else { return },
                ended = posting.join_next(), if !posting.is_empty() => ended,
            };
            let others = std::iter::from_fn(|| posting.try_join_next());
            for (client, attempt) in ended.into_iter().chain(others).flatten() {
                receivers.ended(&client, attempt, self.clock.now());
            }
        }
    }

    /// Begins to tell what is due, as far as there is room. Each client has its turn, so that one that does not answer, or
    /// is told much, keeps no other waiting.
    async fn begin(
        self: &Arc<Self>,
        posting: &mut JoinSet<(String, TellResult)>,
        receivers: &mut Receivers,
    ) -> Result<(), DbError> {
        let mut due = self.due().await?;
        while let Some((client, room)) = receivers.next(&due, self.clock.now(), posting.len()) {
            let taken = self.take(client, room).await?;
            let is_all = taken.len() < room;
            let client = client.to_owned();
            for notice in taken {
                let silent_since = receivers.began(&client);
                let (notices, client) = (Arc::clone(self), client.clone());
                posting.spawn(async move { (client, notices.post(notice, silent_since).await) });
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

    async fn post(
        &self,
        (session, client, account, attempts): LogoutNotice,
        silent_since: Option<Micros>,
    ) -> TellResult {
        let live = self.live.snapshot();
        let known = live.apps.client(&client).map(|(_, client)| client);
        let attempt = match known.and_then(|known| Some((known, known.backchannel_logout_uri.clone()?))) {
            // Its owner, who had removed it, has signed in there again: the session has the same id.
            Some(_) if self.goes_on(&session, &client).await => TellResult::Done,
            Some((known, uri)) => self.tell(known, uri, (&session, &account)).await,
            None => TellResult::Done,
        };
        let failed = usize::try_from(attempts - 1).unwrap_or_default();
        let again = RETRIES.get(failed).filter(|_| attempt != TellResult::Done);
        if attempt != TellResult::Done {
            tracing::warn!(
                client,
                attempts,
                given_up = again.is_none(),
                "a client could not be told that somebody signed out"
            );
        }
        // If it cannot be written down, the note is taken again later.
        let _ = self.settle((&session, &client), again.copied()).await;
        if attempt == TellResult::Silent {
            let _ = self.bound_waiting(&client, silent_since).await;
        }
        attempt
    }

    /// Notes that a client does not answer are told one at a time, so many would wait for ever: those that were not tried
    /// wait from now on, and what has waited long enough is given up, if the client has not answered since.
    async fn bound_waiting(&self, client: &str, silent_since: Option<Micros>) -> Result<(), DbError> {
        const WAIT: &str = "UPDATE oidc_logouts SET next_at = $1 WHERE client = $2 AND next_at = 0";
        const GIVE_UP: &str = "DELETE FROM oidc_logouts WHERE client = $1 AND next_at <= $2";
        let now = self.db.now(&self.clock).await?;
        execute!(&self.db => query(WAIT).bind(now.0).bind(client))?;
        if silent_since.is_some_and(|since| self.clock.now().since(since) >= GIVEN_UP_AFTER) {
            let before = now.minus(GIVEN_UP_AFTER);
            let given_up = execute!(&self.db => query(GIVE_UP).bind(client).bind(before.0))?;
            if given_up > 0 {
                tracing::warn!(client, given_up, "a client could not be told that some signed out");
            }
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

    async fn tell(&self, client: &OidcClient, uri: Url, (session, account): (&str, &str)) -> TellResult {
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
        let Ok(token) = self.keys.sign(self.keys.algorithm_of(client), &claims, "logout+jwt") else {
            return TellResult::Failed;
        };
        let sender = if client.allow_private { &self.anywhere } else { &self.public };
        let form =
            form_urlencoded::Serializer::new(String::new()).append_pair("logout_token", &token).finish();
        let posted = sender.post(uri).header("content-type", "application/x-www-form-urlencoded").body(form);
        match posted.send().await {
            // 400: it does not know the session, and never will.
            Ok(answer) if answer.status().is_success() || answer.status() == 400 => TellResult::Done,
            Ok(_) => TellResult::Failed,
            Err(_) => TellResult::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::https::{FIRST_REST, LONGEST_REST};

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
            for _ in 0..room {
                receivers.began(client);
            }
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
        (0..MOST_AT_CLIENT).for_each(|_| receivers.ended("silent", TellResult::Silent, now));
        for rest in [5, 10, 20, 40, 60, 60].map(Duration::from_secs) {
            let just_before = now.plus(rest - Duration::from_micros(1));
            assert!(told(&mut receivers, &["silent"], just_before, &mut 0).is_empty());
            now = now.plus(rest);
            assert_eq!(told(&mut receivers, &["silent"], now, &mut 0), [("silent".to_owned(), 1)]);
            receivers.ended("silent", TellResult::Silent, now);
        }
        now = now.plus(LONGEST_REST);
        told(&mut receivers, &["silent"], now, &mut 0);
        receivers.ended("silent", TellResult::Failed, now);
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
            (0..receivers.0[*client].in_flight).for_each(|_| receivers.ended(client, TellResult::Silent, NOW))
        });
        told(&mut receivers, &silent, NOW.plus(FIRST_REST), &mut posting);
        assert_eq!(posting, MOST_SHARED);
    }
}
