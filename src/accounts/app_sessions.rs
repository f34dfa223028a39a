//! Sessions at the hosts of applications. Each belongs to a session here and ends with it, has a token of its own,
//! and opens nothing at any other host.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sqlx::{Row, query, query_as};

use super::factor_policy::FactorState;
use super::sessions::{TOUCH_EVERY, hash_text};
use super::{
    AccountId, FactorSetup, Groups, Profile, ProvedFactors, SessionId, SessionSettings, SessionToken,
    Username,
};
use crate::clock::{Clock, Micros};
use crate::config::LiveHandle;
use crate::db::{Db, DbError, execute, from_row, on_db};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::SubKey;

/// From the sign-in to the application's host is one redirect.
const CODE_LASTS: Duration = Duration::from_secs(60);
/// Codes of one session at once: one for each tab. Of more, the newest are kept.
const MOST_CODES: usize = 20;
/// What tags a code; no host.
const CODE: &[u8] = b"code of a sign-in";
/// Before the hash of the state of a browser that begins a second time. A dot is in no hash.
const SECOND_TRY: &str = "again.";

/// Somebody who is signed in at an application's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppVisitor {
    pub session: SessionId,
    pub account: AccountId,
    pub login: Username,
    pub groups: Groups,
    pub profile: Profile,
    pub must_change_password: bool,
    pub signed_in_at: Micros,
    /// When the password was last entered; the earliest time if never.
    pub verified_at: Micros,
    /// When anything was proved last, be it by a code that was sent.
    pub proved_at: Micros,
    /// The second factors that were proved.
    pub proved: ProvedFactors,
    /// It has none, and must set one up.
    pub setup: Option<FactorSetup>,
    /// When it ends if it is not used.
    pub idle_until: Micros,
}

#[derive(Clone)]
pub struct AppSessions {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    key: SubKey,
    settings: SessionSettings,
    /// For `[factors]`; none without a configuration, as in tests.
    live: Option<LiveHandle>,
}

/// What a code gets for the browser that brings it.
pub enum RedeemedCode {
    /// The token of a session at the host, and where the browser wanted to go.
    Session {
        token: SessionToken,
        target: String,
    },
    /// Nothing yet: the browser's state does not match the code's. Tabs that begin at once overwrite each other's, and
    /// a state may be too old. It may begin again, once.
    BeginAgain {
        target: String,
    },
    Nothing,
}

/// Whose session `s` is that some rows lead to, while it opens anything; $2 is now, $3 of whom a factor is required.
macro_rules! visitor_sql {
    ($columns:literal, $from:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            $columns,
            "s.id AS session, s.account, s.created_at, s.last_seen, s.idle_until, s.ends_at,
            CASE WHEN a.password_hash IS NULL THEN 0 ELSE s.verified_at END AS verified_at,
            s.verified_at AS confirmed_at, a.login, a.must_change_password, n.names AS groups, o.email, o.email_verified,
            o.name, ",
            $crate::accounts::factor_sql::proved_columns!("s.id", "s.account", "f"),
            ", ",
            $crate::accounts::factor_sql::factor_columns!("s.account", "$3"),
            " FROM ",
            $from,
            " JOIN accounts a ON a.id = s.account LEFT JOIN session_proofs f ON f.session = s.id
            LEFT JOIN account_groups n ON n.account = s.account LEFT JOIN profiles o ON o.account = s.account WHERE ",
            $condition,
            " AND s.idle_until > $2 AND a.disabled_at IS NULL AND (f.session IS NOT NULL OR NOT EXISTS (SELECT 1
                FROM factor_policies WHERE account = s.account AND required > 0 AND required <= s.created_at))"
        )
    };
}
pub(super) use visitor_sql;

/// The keyed hash under which a token is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppTokenHash([u8; 32]);

impl AppSessions {
    pub fn new(foundation: &Foundation, settings: SessionSettings) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        Self { db, clock, entropy, key: secrets.derive("app.session"), settings, live: None }
    }

    /// Obeys `[factors]` as it is in force.
    #[must_use]
    pub fn under(self, live: LiveHandle) -> Self {
        Self { live: Some(live), ..self }
    }

    /// A code with which the browser of this session, whose state at `host` is known, gets a session there. It ends the
    /// session's oldest codes past `MOST_CODES`.
    pub async fn permit(
        &self,
        session: SessionId,
        host: &str,
        state: &str,
        target: &str,
    ) -> Result<SessionToken, DbError> {
        const SQL: &str = "INSERT INTO app_codes (code_hash, session, state, target, expires_at)
            VALUES ($1, $2, $3, $4, $5)";
        const END: &str =
            "DELETE FROM app_codes WHERE session = $1 AND code_hash <> $2 AND code_hash NOT IN (
            SELECT code_hash FROM app_codes WHERE session = $1 AND code_hash <> $2
            ORDER BY expires_at DESC, code_hash LIMIT $3)";
        let code = SessionToken::tagged(&self.entropy, &self.key, CODE);
        let expires_at = self.db.now(&self.clock).await?.plus(CODE_LASTS).0;
        let (hash, session) = (hash_text(self.hash_of_code(host, &code)), session.to_string());
        execute!(&self.db => query(SQL).bind(&hash).bind(&session).bind(state).bind(target)
            .bind(expires_at))?;
        let others = i64::try_from(MOST_CODES - 1).unwrap_or(i64::MAX);
        execute!(&self.db => query(END).bind(&session).bind(&hash).bind(others))?;
        Ok(code)
    }

    /// The session that the code permits, if `state` is that of the browser that brings it. Whoever brings it, a code is
    /// used up by it.
    pub async fn redeem(
        &self,
        code: &SessionToken,
        host: &str,
        state: Option<&str>,
    ) -> Result<RedeemedCode, DbError> {
        const TAKE: &str =
            "DELETE FROM app_codes WHERE code_hash = $1 RETURNING session, state, target, expires_at";
        // A session that has ended in the meantime starts nothing.
        const START: &str = "INSERT INTO app_sessions (token_hash, session, host, created_at)
            SELECT $1, id, $3, $4 FROM sessions WHERE id = $2 AND idle_until > $4";
        const END: &str = "DELETE FROM app_sessions WHERE session = $1 AND host = $2 AND created_at <= $3";
        if !code.is_tagged(&self.key, CODE) {
            return Ok(RedeemedCode::Nothing);
        }
        let now = self.db.now(&self.clock).await?;
        let taken: Option<(String, String, String, i64)> = on_db!(&self.db, pool => query_as(TAKE)
            .bind(hash_text(self.hash_of_code(host, code))).fetch_optional(pool).await)?;
        let Some((session, begun, target, _)) = taken.filter(|taken| now.0 < taken.3) else {
            return Ok(RedeemedCode::Nothing);
        };
        let (is_second, begun) =
            begun.strip_prefix(SECOND_TRY).map_or((false, &*begun), |begun| (true, begun));
        if !state.is_some_and(|state| crate::secret::same(begun.as_bytes(), state.as_bytes())) {
            return Ok(if is_second { RedeemedCode::Nothing } else { RedeemedCode::BeginAgain { target } });
        }
        let token = SessionToken::tagged(&self.entropy, &self.key, host.as_bytes());
        let rows = execute!(&self.db => query(START).bind(hash_text(self.stored(host, &token).0)).bind(&session)
            .bind(host).bind(now.0))?;
        if rows == 0 {
            return Ok(RedeemedCode::Nothing);
        }
        // The browser keeps one cookie for the host. Not the newest: tabs that were opened at once each bring a code.
        execute!(&self.db => query(END).bind(&session).bind(host).bind(now.minus(CODE_LASTS).0))?;
        Ok(RedeemedCode::Session { token, target })
    }

    /// Finds who is signed in at a host; None if the token is unknown there, or its session has ended. Records at
    /// most once a minute that the session is in use.
    pub async fn find(&self, token: AppTokenHash) -> Result<Option<AppVisitor>, DbError> {
        const SQL: &str =
            visitor_sql!("", "app_sessions p JOIN sessions s ON s.id = p.session", "p.token_hash = $1");
        const TOUCH: &str = "UPDATE sessions SET last_seen = $1, idle_until = $2 WHERE id = $3 AND last_seen < $1 AND idle_until > $1";
        let now = self.clock.now();
        let policy = self.live.as_ref().map(|live| Arc::clone(&live.snapshot().factors)).unwrap_or_default();
        let row: Option<StoredVisitor> = on_db!(&self.db, pool => query_as(SQL).bind(hash_text(token.0)).bind(now.0)
            .bind(policy.required_of()).fetch_optional(pool).await)?;
        let Some(row) = row.filter(|row| !row.visitor.proved.is_void()) else { return Ok(None) };
        let StoredVisitor { mut visitor, last_seen, ends_at, factors } = row;
        visitor.setup = factors.setup(&self.db, visitor.account, now, &policy).await?;
        if now.since(Micros(last_seen)) >= TOUCH_EVERY {
            visitor.idle_until = now.plus(self.settings.idle).min(Micros(ends_at));
            execute!(&self.db => query(TOUCH).bind(now.0).bind(visitor.idle_until.0)
                .bind(visitor.session.to_string()))?;
        }
        Ok(Some(visitor))
    }

    /// The session here to which a session at a host belongs.
    pub async fn parent(&self, token: AppTokenHash) -> Result<Option<(AccountId, SessionId)>, DbError> {
        const SQL: &str = "SELECT s.account, s.id FROM app_sessions p JOIN sessions s ON s.id = p.session
            WHERE p.token_hash = $1";
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(hash_text(token.0)).fetch_optional(pool).await)?)
    }

    /// The hosts at which each of the account's sessions is used, in alphabetical order.
    pub async fn hosts(&self, account: AccountId) -> Result<Vec<(SessionId, String)>, DbError> {
        const SQL: &str =
            "SELECT DISTINCT p.session, p.host FROM app_sessions p JOIN sessions s ON s.id = p.session
            WHERE s.account = $1 ORDER BY p.host, p.session";
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(account.to_string()).fetch_all(pool).await)?)
    }

    /// Deletes codes that were never used; returns how many.
    pub async fn purge_codes(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM app_codes WHERE code_hash IN (SELECT code_hash FROM app_codes
            WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
        let now = self.db.now(&self.clock).await?.0;
        Ok(execute!(&self.db => query(SQL).bind(now).bind(i64::from(batch)))?)
    }

    /// Hashes a token; None for one that was never given out at this host: strangers cannot make us ask the database.
    pub fn hash(&self, host: &str, token: &SessionToken) -> Option<AppTokenHash> {
        token.is_tagged(&self.key, host.as_bytes()).then(|| self.stored(host, token))
    }

    fn stored(&self, host: &str, token: &SessionToken) -> AppTokenHash {
        AppTokenHash(self.key.hash(&[b"session", host.as_bytes(), token.bytes()]))
    }

    /// What the sign-in gets to know of a browser's state at a host. The state itself stays in the browser.
    pub fn state_hash(&self, host: &str, state: &SessionToken) -> String {
        hash_text(self.key.hash(&[b"state", host.as_bytes(), state.bytes()]))
    }

    fn hash_of_code(&self, host: &str, code: &SessionToken) -> [u8; 32] {
        self.key.hash(&[b"code", host.as_bytes(), code.bytes()])
    }
}

/// The hash of the state of a browser that has brought a code with another state: it does not begin a third time.
pub fn second_try(state_hash: &str) -> String {
    format!("{SECOND_TRY}{state_hash}")
}

/// Whether it looks like a hash of [`AppSessions::state_hash`], of a first or second try.
pub fn is_state_hash(state: &str) -> bool {
    let hash = state.strip_prefix(SECOND_TRY).unwrap_or(state);
    URL_SAFE_NO_PAD.decode(hash).is_ok_and(|hash| hash.len() == 32)
}

struct StoredVisitor {
    visitor: AppVisitor,
    last_seen: i64,
    ends_at: i64,
    factors: FactorState,
}

from_row!(StoredVisitor, row => StoredVisitor {
    visitor: AppVisitor::from_row(row)?,
    last_seen: row.try_get("last_seen")?,
    ends_at: row.try_get("ends_at")?,
    factors: FactorState::from_row(row)?,
});

from_row!(AppVisitor, row => {
    let (begun, confirmed) = (Micros(row.try_get("created_at")?), Micros(row.try_get("confirmed_at")?));
    let proved = ProvedFactors::from_row(row)?;
    AppVisitor {
    session: row.try_get("session")?,
    account: row.try_get("account")?,
    login: row.try_get("login")?,
    groups: Groups::stored(row.try_get("groups")?),
    profile: Profile::from_row(row)?,
    must_change_password: row.try_get::<i64, _>("must_change_password")? != 0,
    signed_in_at: begun,
    verified_at: Micros(row.try_get("verified_at")?),
    proved_at: begun.max(confirmed).max(proved.newest().unwrap_or(begun)),
    proved,
    setup: None,
    idle_until: Micros(row.try_get("idle_until")?),
    }
});
