//! Sessions: where each account is signed in. They are in SQL, not in the window store, because they must
//! survive a restart and be listed by account, and no decision of the limiter depends on them.

mod finished;
mod start;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sqlx::{query, query_as, query_scalar};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::accounts::AccountRow;
use super::{Account, AccountId, DeviceId, SessionId, id, session_changes};
use crate::clock::{Clock, Micros};
use crate::config::SessionSettings;
use crate::db::{Db, DbError, on_db, on_tx};
use crate::entropy::Entropy;
use crate::secret::SubKey;

pub use finished::{FormAnswer, FormKey, RepeatedForm};

/// How often a session in use records when it was last seen.
pub(super) const TOUCH_EVERY: Duration = Duration::from_secs(60);

/// The browser's token: 256 random bits, never stored. Wiped when dropped, never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SessionToken([u8; 32]);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub account: AccountId,
    pub created_at: Micros,
    /// To within a minute.
    pub last_seen: Micros,
    /// When it ends if it is not used; never later than `ends_at`.
    pub idle_until: Micros,
    pub ends_at: Micros,
    /// When the password was last entered in it; the earliest time if never.
    pub verified_at: Micros,
    /// The client's address, masked.
    pub network: String,
    pub user_agent: String,
}

/// How somebody signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedInBy {
    /// By the password in force, or by one set in the same step.
    Password,
    /// By the password in force, from a known device: it may be disabled for strangers.
    PasswordFrom(DeviceId),
    /// By a code sent to the account's number.
    Code,
}

/// The session and account of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedSession {
    pub session: Session,
    pub account: Account,
}

#[derive(Clone)]
pub struct Sessions {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    key: SubKey,
    settings: SessionSettings,
}

impl Sessions {
    /// `key` is the key for hashing tokens: without it, a copy of the table opens nothing.
    pub const fn new(db: Db, clock: Clock, entropy: Entropy, key: SubKey, settings: SessionSettings) -> Self {
        Self { db, clock, entropy, key, settings }
    }

    /// The session of the token; None if it is unknown, ended or expired. Records at most once a minute that
    /// the session is in use; every other request only reads.
    pub async fn find(&self, token: &SessionToken) -> Result<Option<AuthenticatedSession>, DbError> {
        const SQL: &str = "SELECT s.id AS session_id, s.created_at AS started_at, s.last_seen, s.idle_until,
            s.ends_at, s.verified_at, s.network, s.user_agent, a.* FROM sessions s JOIN accounts a ON a.id = s.account
            WHERE s.token_hash = $1 AND s.idle_until > $2 AND a.disabled_at IS NULL";
        let now = self.clock.now();
        let hash = self.hash(token);
        let row: Option<AuthenticatedRow> =
            on_db!(&self.db, pool => query_as(SQL).bind(&hash).bind(now.0).fetch_optional(pool).await)?;
        let Some(row) = row else { return Ok(None) };
        let account = row.account.parse()?;
        let mut session = row.session.parse(account.id)?;
        if now.since(session.last_seen) >= TOUCH_EVERY {
            session.last_seen = now;
            session.idle_until = now.plus(self.settings.idle).min(session.ends_at);
            self.touch(&hash, &session).await?;
        }
        Ok(Some(AuthenticatedSession { session, account }))
    }

    /// The account's password was just entered in this session. Replaces its token, and the old one becomes
    /// invalid (OWASP ASVS 5.0, 7.2.4). None if the session has ended in the meantime, as it does when the
    /// password is changed.
    pub async fn confirm(&self, token: &SessionToken) -> Result<Option<SessionToken>, DbError> {
        const SQL: &str = "UPDATE sessions SET token_hash = $1, verified_at = $2
            WHERE token_hash = $3 AND idle_until > $2";
        let (fresh, now) = (SessionToken(self.entropy.bytes()), self.clock.now());
        let rows = on_db!(&self.db, pool => query(SQL).bind(self.hash(&fresh)).bind(now.0)
            .bind(self.hash(token)).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok((rows > 0).then_some(fresh))
    }

    /// Whether the password was entered in it recently.
    pub fn is_confirmed(&self, session: &Session) -> bool {
        let now = self.clock.now();
        // A time in the future is not valid, except for small differences between clocks.
        session.verified_at <= now.plus(self.settings.confirm)
            && now.since(session.verified_at) < self.settings.confirm
    }

    async fn touch(&self, hash: &str, session: &Session) -> Result<(), DbError> {
        const SQL: &str =
            "UPDATE sessions SET last_seen = $1, idle_until = $2 WHERE token_hash = $3 AND last_seen < $1";
        on_db!(&self.db, pool => query(SQL).bind(session.last_seen.0).bind(session.idle_until.0).bind(hash)
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Where the account is signed in, last used first; at most 100.
    pub async fn list(&self, account: AccountId) -> Result<Vec<Session>, DbError> {
        const SQL: &str = "SELECT id AS session_id, created_at AS started_at, last_seen, idle_until, ends_at,
            verified_at, network, user_agent FROM sessions WHERE account = $1 AND idle_until > $2
            ORDER BY last_seen DESC, id LIMIT 100";
        let now = self.clock.now().0;
        let rows: Vec<StoredSession> = on_db!(&self.db, pool => query_as(SQL).bind(account.to_string()).bind(now)
            .fetch_all(pool).await)?;
        Ok(rows.into_iter().map(|row| row.parse(account)).collect::<Result<_, _>>()?)
    }

    /// Ends one of the account's own sessions. False if the account has no such session, even if another
    /// account has.
    pub async fn revoke(&self, account: AccountId, session: SessionId) -> Result<bool, DbError> {
        let ids = [session.to_string(), account.to_string()];
        let sql = "DELETE FROM sessions WHERE id = $1 AND account = $2 RETURNING account";
        Ok(self.end_all(sql, &ids).await? > 0)
    }

    /// Signs out. Harmless if the session has ended already.
    pub async fn end(&self, token: &SessionToken) -> Result<(), DbError> {
        let sql = "DELETE FROM sessions WHERE token_hash = $1 RETURNING account";
        self.end_all(sql, &[self.hash(token)]).await.map(drop)
    }

    /// Ends all of the account's sessions except `keep`, for example after a change of the password; returns
    /// how many.
    pub async fn end_others(&self, account: AccountId, keep: SessionId) -> Result<u64, DbError> {
        let ids = [account.to_string(), keep.to_string()];
        self.end_all("DELETE FROM sessions WHERE account = $1 AND id <> $2 RETURNING account", &ids).await
    }

    /// Removes at most `batch` expired sessions; returns how many. A few at a time, so that no sign-in waits
    /// long for the write lock: call it again while it returns `batch`.
    pub async fn purge_expired(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM sessions WHERE token_hash IN (SELECT token_hash FROM sessions
            WHERE idle_until <= $1 ORDER BY idle_until LIMIT $2)";
        let now = self.clock.now().0;
        let rows = on_db!(&self.db, pool => query(SQL).bind(now).bind(i64::from(batch)).execute(pool).await
            .map(|done| done.rows_affected()))?;
        Ok(rows)
    }

    /// Ends sessions of one account, of which every instance learns; returns how many.
    async fn end_all(&self, sql: &'static str, keys: &[String]) -> Result<u64, DbError> {
        let now = self.db.now(&self.clock).await?;
        let mut tx = self.db.begin().await?;
        let ended: Vec<String> = on_tx!(&mut tx, connection => {
            let delete = keys.iter().fold(query_scalar(sql), |delete, key| delete.bind(key));
            delete.fetch_all(connection).await
        })?;
        if let Some(account) = ended.first() {
            session_changes::record(&mut tx, &self.entropy, account, now).await?;
            tx.commit().await?;
        }
        Ok(ended.len() as u64)
    }

    fn hash(&self, token: &SessionToken) -> String {
        URL_SAFE_NO_PAD.encode(self.key.hash(&[&token.0]))
    }
}

impl SessionToken {
    pub fn random(entropy: &Entropy) -> Self {
        Self(entropy.bytes())
    }

    pub(super) const fn of(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(super) const fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// From a cookie; None if it cannot be one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let length = (text.len() == 43).then(|| URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok())??;
        (length == bytes.len()).then_some(Self(bytes))
    }

    /// The cookie's value: 43 characters of base64url. Only for the Set-Cookie header.
    pub fn expose(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[derive(sqlx::FromRow)]
struct StoredSession {
    session_id: String,
    started_at: i64,
    last_seen: i64,
    idle_until: i64,
    ends_at: i64,
    verified_at: i64,
    network: String,
    user_agent: String,
}

#[derive(sqlx::FromRow)]
struct AuthenticatedRow {
    #[sqlx(flatten)]
    session: StoredSession,
    #[sqlx(flatten)]
    account: AccountRow,
}

impl StoredSession {
    fn parse(self, account: AccountId) -> Result<Session, sqlx::Error> {
        Ok(Session {
            id: id::stored(SessionId::parse(&self.session_id))?,
            account,
            created_at: Micros(self.started_at),
            last_seen: Micros(self.last_seen),
            idle_until: Micros(self.idle_until),
            ends_at: Micros(self.ends_at),
            verified_at: Micros(self.verified_at),
            network: self.network,
            user_agent: self.user_agent,
        })
    }
}
