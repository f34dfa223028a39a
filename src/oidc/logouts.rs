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
use crate::clock::Clock;
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
/// How many clients can be told that many while there is room for others.
const MOST_FULL: usize = MOST_AT_ONCE / MOST_AT_CLIENT - 1;
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
        let (mut posting, mut busy) = (JoinSet::new(), HashMap::<String, usize>::new());
        loop {
            // An outage is reported by the probes, and what is noted stays.
            while posting.len() < MOST_AT_ONCE
                && let Ok(Some(notice)) = self.take(&busy).await
            {
                *busy.entry(notice.1.clone()).or_default() += 1;
                let notices = Arc::clone(&self);
                posting.spawn(async move {
                    let client = notice.1.clone();
                    notices.post(notice).await;
                    client
                });
            }
            // Whoever has answered makes room at once.
            tokio::select! {
                going_on = stop.pause(LOOK_EVERY) => if !going_on { return },
                Some(told) = posting.join_next() => {
                    if let Ok(client) = told
                        && let Some(at_client) = busy.get_mut(&client)
                    {
                        *at_client -= 1;
                    }
                    busy.retain(|_, at_client| *at_client > 0);
                }
            }
        }
    }

    /// What is due longest, but for clients that are told enough at once: one that does not answer keeps no other
    /// waiting. Of two instances that want it, one gets it.
    async fn take(&self, busy: &HashMap<String, usize>) -> Result<Option<LogoutNotice>, DbError> {
        const DUE: &str = "SELECT session, client FROM oidc_logouts
            WHERE next_at <= $1 AND client NOT IN ($2, $3, $4) ORDER BY next_at, session LIMIT 1";
        const TAKE: &str = "UPDATE oidc_logouts SET attempts = attempts + 1, next_at = $1
            WHERE session = $2 AND client = $3 AND next_at <= $4 RETURNING session, client, account, attempts";
        let now = self.db.now(&self.clock).await?;
        let mut full = busy.iter().filter(|(_, at_client)| **at_client >= MOST_AT_CLIENT);
        let full: [&str; MOST_FULL] = std::array::from_fn(|_| full.next().map_or("", |(client, _)| client));
        let due: Option<(String, String)> = on_db!(&self.db, pool => {
            let due = full.iter().fold(query_as(DUE).bind(now.0), |due, client| due.bind(*client));
            due.fetch_optional(pool).await
        })?;
        let Some((session, client)) = due else { return Ok(None) };
        Ok(
            on_db!(&self.db, pool => query_as(TAKE).bind(now.plus(LEASE).0).bind(session).bind(client).bind(now.0)
            .fetch_optional(pool).await)?,
        )
    }

    async fn post(&self, (session, client, account, attempts): LogoutNotice) {
        let live = self.live.snapshot();
        let known = live.apps.client(&client).map(|(_, client)| client);
        let told = match known.and_then(|known| Some((known, known.backchannel_logout_uri.clone()?))) {
            // Its owner, who had removed it, has signed in there again: the session has the same id.
            Some(_) if self.goes_on(&session, &client).await => true,
            Some((known, uri)) => self.tell(known, uri, (&session, &account)).await,
            None => true,
        };
        let failed = usize::try_from(attempts - 1).unwrap_or_default();
        let again = RETRIES.get(failed).filter(|_| !told);
        if !told {
            tracing::warn!(
                client,
                attempts,
                given_up = again.is_none(),
                "a client could not be told that somebody signed out"
            );
        }
        // If it cannot be written down, the note is taken again later.
        let _ = self.settle((&session, &client), again.copied()).await;
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

    async fn tell(&self, client: &OidcClient, uri: Url, (session, account): (&str, &str)) -> bool {
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
        let Ok(token) = self.keys.sign(&claims, "logout+jwt") else { return false };
        let sender = if client.allow_private { &self.anywhere } else { &self.public };
        let form =
            form_urlencoded::Serializer::new(String::new()).append_pair("logout_token", &token).finish();
        let posted = sender.post(uri).header("content-type", "application/x-www-form-urlencoded").body(form);
        let posted = posted.send().await;
        // 400: it does not know the session, and never will.
        posted.is_ok_and(|answer| answer.status().is_success() || answer.status() == 400)
    }
}
