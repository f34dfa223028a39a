//! Sessions: where each account is signed in. They are in SQL, not in the window store, because they must
//! survive a restart and be listed by account, and no decision of the limiter depends on them.

mod finished_forms;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::HEXLOWER;
use sqlx::{Row, query, query_as, query_scalar};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::factor_policy::FactorState;
use super::factor_sql::{
    asks_factor, factor_columns, is_trusted, proof_holds, proved_columns, strongest_factor,
};
use super::freeze::{self, FreezeEnd};
use super::{
    Account, AccountId, DeviceId, Factor, FactorProof, FactorSetup, ProvedFactors, SessionId, SignInClient,
    proofs, session_changes,
};
use crate::clock::{Clock, Micros};
use crate::config::{FactorSettings, LiveHandle, SessionSettings};
use crate::db::{Db, DbError, execute, from_row, on_db, on_tx, traced};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::{SubKey, hidden_debug};

pub use finished_forms::{FormAnswer, FormKey};

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
    /// The second factors that were proved in it.
    pub proved: ProvedFactors,
    /// The strongest second factor that the account has, by which its owner confirms changes: a passkey or an app.
    pub strongest: Option<Factor>,
    /// It has none, and must set one up.
    pub setup: Option<FactorSetup>,
    /// The client's address, masked.
    pub network: String,
    pub user_agent: String,
}

/// What somebody has proved: the only thing that makes a session. Whether it is complete is decided where the session
/// is written: an account that asks for a second step gets none without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    pub first: FirstFactor,
    /// The second factors, the newest first.
    pub second: Vec<FactorProof>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstFactor {
    /// The password in force, or one set in the same step.
    Password,
    /// The password in force, from a known device: it may be disabled for strangers.
    PasswordFrom(DeviceId),
    Code,
    /// A code by mail, which begins no session: it sets a password, and a second factor may come between.
    MailCode,
    /// With its user verified, which is a second factor as well.
    Passkey,
}

impl From<FirstFactor> for Proof {
    fn from(first: FirstFactor) -> Self {
        Self { first, second: Vec::new() }
    }
}

#[derive(Debug, Clone)]
pub enum SessionStart {
    Begun(SessionToken),
    /// The account asks for a second step.
    FactorMissing,
    /// The account is frozen, and this does not lift that.
    Frozen,
    /// The password or the number was changed since it was verified, the second factor was removed, or the password or the
    /// account was disabled.
    Void,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedSession {
    pub session: Session,
    pub account: Account,
}

impl AuthenticatedSession {
    /// The account must have a second factor, has none, and the time for that has passed. A one-time password is changed
    /// before.
    pub fn opens_only_setup(&self) -> bool {
        !self.account.must_change_password && self.session.setup.is_some_and(|setup| setup.overdue)
    }
}

from_row!(AuthenticatedSession, row => AuthenticatedSession {
    session: Session::from_row(row)?,
    account: Account::from_row(row)?,
});

#[derive(Clone)]
pub struct Sessions {
    db: Db,
    clock: Clock,
    entropy: Entropy,
    key: SubKey,
    settings: SessionSettings,
    /// For `[factors]`; none without a configuration, as in tests.
    live: Option<LiveHandle>,
}

struct FoundSession {
    found: AuthenticatedSession,
    factors: FactorState,
}

from_row!(FoundSession, row => FoundSession {
    found: AuthenticatedSession::from_row(row)?,
    factors: FactorState::from_row(row)?,
});

impl Sessions {
    /// Tokens are hashed under a key: without it, a copy of the table opens nothing.
    pub fn new(foundation: &Foundation, settings: SessionSettings) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        Self { db, clock, entropy, key: secrets.derive("session.token"), settings, live: None }
    }

    /// Obeys `[factors]` as it is in force.
    #[must_use]
    pub fn under(self, live: LiveHandle) -> Self {
        Self { live: Some(live), ..self }
    }

    fn policy(&self) -> Arc<FactorSettings> {
        self.live.as_ref().map(|live| Arc::clone(&live.snapshot().factors)).unwrap_or_default()
    }

    /// The session of the token, if it opens anything; None also while its account has to set a second factor up first.
    pub async fn find(&self, token: &SessionToken) -> Result<Option<AuthenticatedSession>, DbError> {
        Ok(self.recognise(token).await?.filter(|found| !found.opens_only_setup()))
    }

    /// The session of the token; None if it is unknown, ended or expired, was begun by a passkey that is gone, or without the
    /// second step that its account asked for by then, by an instance that knows none. Records at most once a minute that the
    /// session is in use; every other request only reads. It may be one that opens nothing: see
    /// [`AuthenticatedSession::opens_only_setup`].
    pub async fn recognise(&self, token: &SessionToken) -> Result<Option<AuthenticatedSession>, DbError> {
        const SQL: &str = concat!(
            "SELECT s.id AS session_id, s.account, s.created_at AS started_at, s.last_seen, s.idle_until,
            s.ends_at, s.verified_at, s.network, s.user_agent, ",
            proved_columns!("s.id", "s.account", "p"),
            ", ",
            factor_columns!("s.account", "$3"),
            ", a.* FROM sessions s JOIN accounts a ON a.id = s.account LEFT JOIN session_proofs p ON p.session = s.id
            LEFT JOIN factor_policies f ON f.account = s.account
            WHERE s.token_hash = $1 AND s.idle_until > $2 AND a.disabled_at IS NULL
            AND (p.session IS NOT NULL OR COALESCE(f.required, 0) = 0 OR s.created_at < f.required)"
        );
        const TOUCH: &str =
            "UPDATE sessions SET last_seen = $1, idle_until = $2 WHERE token_hash = $3 AND last_seen < $1";
        let now = self.clock.now();
        let hash = self.hash(token);
        let policy = self.policy();
        let found: Option<FoundSession> = on_db!(&self.db, pool => query_as(SQL).bind(&hash).bind(now.0)
            .bind(policy.required_of()).fetch_optional(pool).await)?;
        let found = found.filter(|FoundSession { found, .. }| !found.session.proved.is_void());
        let Some(FoundSession { mut found, factors }) = found else { return Ok(None) };
        let session = &mut found.session;
        session.setup = factors.setup(&self.db, session.account, now, &policy).await?;
        if now.since(session.last_seen) >= TOUCH_EVERY {
            session.last_seen = now;
            session.idle_until = now.plus(self.settings.idle).min(session.ends_at);
            let (seen, idle_until) = (now.0, session.idle_until.0);
            execute!(&self.db => query(TOUCH).bind(seen).bind(idle_until).bind(hash))?;
        }
        Ok(Some(found))
    }

    /// The account's password, or a second factor, was just proved in this session. Replaces its token, and the old
    /// one becomes invalid (OWASP ASVS 5.0, 7.2.4). None if the session has ended in the meantime, as it does when the
    /// password is changed.
    pub async fn confirm(
        &self,
        token: &SessionToken,
        factor: Option<&FactorProof>,
    ) -> Result<Option<SessionToken>, DbError> {
        const SQL: &str =
            "UPDATE sessions SET token_hash = $1, verified_at = CASE WHEN $4 = 1 THEN $2 ELSE verified_at END
            WHERE token_hash = $3 AND idle_until > $2 RETURNING id, account";
        let (fresh, now) = (SessionToken(self.entropy.bytes()), self.clock.now());
        let (hash, by_password) = (self.hash(&fresh), i64::from(factor.is_none()));
        let at = match factor {
            Some(_) => Some(self.db.now(&self.clock).await?),
            None => None,
        };
        let mut tx = self.db.begin().await?;
        let renewed: Option<(SessionId, String)> = on_tx!(&mut tx, connection => query_as(SQL).bind(hash).bind(now.0)
            .bind(self.hash(token)).bind(by_password).fetch_optional(connection).await)?;
        let Some((session, account)) = renewed else { return Ok(None) };
        if let Some((factor, at)) = factor.zip(at) {
            proofs::prove(&mut tx, session, factor).await?;
            // Applications learn of it.
            session_changes::record(&mut tx, &self.entropy, &account, at).await?;
        }
        tx.commit().await?;
        Ok(Some(fresh))
    }

    /// Whether the session proved recently who it is: by the password, or by a second factor where the account has one.
    pub fn is_confirmed(&self, session: &Session) -> bool {
        let of_factor = session.proved.newest().unwrap_or(Micros(0));
        let at = if session.strongest.is_some() { of_factor } else { session.verified_at };
        let now = self.clock.now();
        // A time in the future is not valid, except for small differences between clocks.
        at <= now.plus(self.settings.confirm) && now.since(at) < self.settings.confirm
    }

    /// Whether the account has a second factor that was not proved recently in this session.
    pub fn lacks_factor(&self, session: &Session) -> bool {
        session.strongest.is_some() && !self.is_confirmed(session)
    }

    /// What a session has proved, for another one in its place; the newest first.
    pub async fn proofs(&self, session: &Session) -> Result<Vec<FactorProof>, DbError> {
        const SQL: &str = concat!(
            "SELECT p.method, p.credential, p.at FROM factor_proofs p WHERE p.session = $1 AND ",
            proof_holds!("$2", "p.method", "p.credential"),
            " UNION ALL SELECT methods, NULL, factor_at FROM session_proofs WHERE session = $1
            AND methods <> 'trusted' AND factor_at <> COALESCE(noted_at, -1) ORDER BY 3 DESC"
        );
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(session.id.to_string())
            .bind(session.account.to_string()).fetch_all(pool).await)?)
    }

    /// Where the account is signed in, last used first; at most 100.
    pub async fn list(&self, account: AccountId) -> Result<Vec<Session>, DbError> {
        const SQL: &str = concat!(
            "SELECT s.id AS session_id, s.account, s.created_at AS started_at, s.last_seen, s.idle_until,
            s.ends_at, s.verified_at, s.network, s.user_agent, ",
            proved_columns!("s.id", "$1", "p"),
            ", ",
            strongest_factor!("$1"),
            " AS strongest FROM sessions s LEFT JOIN session_proofs p ON p.session = s.id
            WHERE s.account = $1 AND s.idle_until > $2 ORDER BY s.last_seen DESC, s.id LIMIT 100"
        );
        let now = self.clock.now().0;
        Ok(on_db!(&self.db, pool => query_as(SQL).bind(account.to_string()).bind(now).fetch_all(pool).await)?)
    }

    /// Ends one of the account's own sessions. False if the account has no such session, even if another
    /// account has.
    pub async fn revoke(&self, account: AccountId, session: SessionId) -> Result<bool, DbError> {
        let ids = [session.to_string(), account.to_string()];
        let sql = "DELETE FROM sessions WHERE id = $1 AND account = $2 RETURNING account";
        Ok(self.end_all(sql, &ids).await? > 0)
    }

    /// Signs out. Harmless if the session has ended already. It is looked for before anything is written, because
    /// anybody can send tokens that were never given out.
    pub async fn end(&self, token: &SessionToken) -> Result<(), DbError> {
        const FIND: &str = "SELECT COUNT(*) FROM sessions WHERE token_hash = $1";
        let token = [self.hash(token)];
        let found: i64 = on_db!(&self.db, pool => query_scalar(FIND).bind(&token[0]).fetch_one(pool).await)?;
        if found > 0 {
            self.end_all("DELETE FROM sessions WHERE token_hash = $1 RETURNING account", &token).await?;
        }
        Ok(())
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
        Ok(execute!(&self.db => query(SQL).bind(now).bind(i64::from(batch)))?)
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
        hash_text(self.key.hash(&[&token.0]))
    }
}

impl SessionStart {
    /// The new session's, if one was begun.
    pub fn token(self) -> Option<SessionToken> {
        if let Self::Begun(token) = self { Some(token) } else { None }
    }
}

/// A tagged token is random up to here.
pub(super) const RANDOM: usize = 24;

pub(super) fn token_tag(key: &SubKey, purpose: &[u8], random: &[u8]) -> [u8; 32 - RANDOM] {
    *key.hash(&[b"ours", purpose, random]).first_chunk().expect("32 bytes hold 8")
}

impl SessionToken {
    pub fn random(entropy: &Entropy) -> Self {
        Self(entropy.bytes())
    }

    /// 192 random bits, and 64 that show that they were given out for this purpose: strangers cannot make us ask the
    /// database.
    pub(super) fn tagged(entropy: &Entropy, key: &SubKey, purpose: &[u8]) -> Self {
        let mut bytes: [u8; 32] = entropy.bytes();
        let (random, tag) = bytes.split_at_mut(RANDOM);
        tag.copy_from_slice(&token_tag(key, purpose, random));
        Self(bytes)
    }

    pub(super) fn is_tagged(&self, key: &SubKey, purpose: &[u8]) -> bool {
        let (random, tag) = self.0.split_at(RANDOM);
        crate::secret::same(tag, &token_tag(key, purpose, random))
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

hidden_debug!(SessionToken);

from_row!(Session, row => Session {
    id: row.try_get("session_id")?,
    account: row.try_get("account")?,
    created_at: Micros(row.try_get("started_at")?),
    last_seen: Micros(row.try_get("last_seen")?),
    idle_until: Micros(row.try_get("idle_until")?),
    ends_at: Micros(row.try_get("ends_at")?),
    verified_at: Micros(row.try_get("verified_at")?),
    proved: ProvedFactors::from_row(row)?,
    strongest: row.try_get("strongest")?,
    setup: None,
    network: row.try_get("network")?,
    user_agent: row.try_get("user_agent")?,
});

// What a sign-in writes, in one step: the new session, the end of the one that it replaces, the entry in the
// account's recent sign-ins, and the removal of what both lists have too many of.

/// The parameters of both, in this order: $1 hash of the token, $2 the session's id, $3 now, $4 `idle_until`,
/// $5 `ends_at`, $6 network, $7 user agent, $8 account, $9 its password's version, $10 `verified_at`, $11
/// hash of the old token, $12 the sign-in's id, $13 whether it was by the password, $14 from which known
/// device, $15 the second factor, if one was proved, $16 when, $17 the known device that may be trusted, $18 of whom
/// `[factors]` requires a factor, $19 which factor was proved, if that is known, $20 1 if a passkey was the first, too. A
/// session is inserted only if the password or the number that was verified still belongs to the account and still opens
/// it, and with a second factor that is still there if the account asks for one, unless the device is trusted; if none was
/// inserted, nothing else happens. Returns 1 if one was, 0 if a second factor is asked for.
const SQLITE: &str = concat!(
    "INSERT INTO sign_in VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
        $19, $20)
    RETURNING CASE WHEN EXISTS (SELECT 1 FROM sessions WHERE token_hash = $1) THEN 1
    WHEN $15 IS NULL AND ",
    asks_factor!("$8", "$18"),
    " THEN 0 END"
);

/// SQLite's form of a statement that does several things: a view with a trigger on INSERT. As one statement
/// it is its own transaction and wakes its caller once; as seven statements between BEGIN and COMMIT it cost
/// several times as much in waking. The numbers are literals, because a statement is planned anew whenever a
/// parameter is bound to its LIMIT. 100 sessions are kept, the new one and the 99 others used last; few
/// accounts have more, and a count finds them.
const SQLITE_SETUP: &str = concat!(
    "
    CREATE TEMP VIEW IF NOT EXISTS sign_in (token_hash, session, now, idle_until, ends_at, network, user_agent,
        account, password_version, verified_at, replaces, id, by_password, device, factor, factor_at, trusted,
        required_of, credential, by_passkey)
        AS SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            NULL, NULL;
    CREATE TEMP TRIGGER IF NOT EXISTS do_sign_in INSTEAD OF INSERT ON sign_in BEGIN
        INSERT INTO sessions (token_hash, id, account, created_at, last_seen, idle_until, ends_at,
            network, user_agent, verified_at)
            SELECT NEW.token_hash, NEW.session, id, NEW.now, NEW.now, NEW.idle_until, NEW.ends_at,
            NEW.network, NEW.user_agent, NEW.verified_at FROM accounts
            WHERE id = NEW.account AND password_version = NEW.password_version AND disabled_at IS NULL
            AND CASE WHEN NEW.by_password = 0 THEN 1 WHEN NEW.device IS NULL THEN password_disabled_at IS NULL
                ELSE NOT EXISTS (SELECT 1 FROM device_failures WHERE account = NEW.account
                AND device = NEW.device AND spent_at IS NOT NULL) END
            AND (NEW.credential IS NULL OR ",
    proof_holds!("NEW.account", "NEW.factor", "NEW.credential"),
    ")
            AND (NEW.factor IS NOT NULL OR ",
    is_trusted!("NEW.account", "NEW.trusted", "NEW.now"),
    " OR NOT ",
    asks_factor!("NEW.account", "NEW.required_of"),
    ");
        INSERT INTO session_proofs (session, methods, factor_at, noted_at, by_passkey)
            SELECT id, COALESCE(NEW.factor, 'trusted'), COALESCE(NEW.factor_at, 0),
            CASE WHEN NEW.credential IS NOT NULL THEN NEW.factor_at END, NEW.by_passkey FROM sessions
            WHERE id = NEW.session AND (NEW.factor IS NOT NULL OR ",
    is_trusted!("NEW.account", "NEW.trusted", "NEW.now"),
    ");
        INSERT INTO factor_proofs (session, method, credential, at)
            SELECT id, NEW.factor, NEW.credential, NEW.factor_at FROM sessions
            WHERE id = NEW.session AND NEW.credential IS NOT NULL;
        INSERT OR IGNORE INTO session_changes (id, account, at)
            SELECT NEW.session || account, account, NEW.now FROM sessions
            WHERE EXISTS (SELECT 1 FROM sessions WHERE token_hash = NEW.token_hash) AND (token_hash = NEW.replaces
            OR (token_hash = NEW.token_hash AND (SELECT COUNT(*) FROM sessions WHERE account = NEW.account) > 100));
        DELETE FROM session_changes
            WHERE account IN (NEW.account, (SELECT account FROM sessions WHERE token_hash = NEW.replaces))
            AND id <> NEW.session || account
            AND EXISTS (SELECT 1 FROM session_changes said WHERE said.id = NEW.session || session_changes.account);
        DELETE FROM sessions WHERE token_hash = NEW.replaces
            AND EXISTS (SELECT 1 FROM sessions WHERE token_hash = NEW.token_hash);
        DELETE FROM sessions WHERE id IN (SELECT id FROM sessions
            WHERE account = (SELECT account FROM sessions WHERE token_hash = NEW.token_hash)
            AND id <> NEW.session AND idle_until > NEW.now
            AND (SELECT COUNT(*) FROM sessions WHERE account = NEW.account) > 100
            ORDER BY last_seen DESC, id LIMIT -1 OFFSET 99);
        INSERT INTO sign_ins (id, account, signed_in_at, network, user_agent)
            SELECT NEW.id, account, created_at, network, user_agent FROM sessions
            WHERE token_hash = NEW.token_hash;
        DELETE FROM sign_ins WHERE id IN (SELECT id FROM sign_ins WHERE account = NEW.account
            ORDER BY signed_in_at DESC, id LIMIT -1 OFFSET 20);
    END"
);

/// One statement, whose parts all see the tables as they were before it. The account's row is locked, so a
/// simultaneous change of the password is waited for, or waits and ends this session; another sign-in of this
/// account waits. One that waited may leave a row too many, which the next one removes.
const POSTGRES: &str = concat!(
    "WITH trusted AS (SELECT 1 WHERE ",
    is_trusted!("$8", "$17", "$3"),
    "),
    started AS (
    INSERT INTO sessions (token_hash, id, account, created_at, last_seen, idle_until, ends_at,
        network, user_agent, verified_at) SELECT $1, $2, id, $3, $3, $4, $5, $6, $7, $10 FROM accounts
        WHERE id = $8 AND password_version = $9 AND disabled_at IS NULL
        AND CASE WHEN $13 = 0 THEN TRUE WHEN $14 IS NULL THEN password_disabled_at IS NULL
            ELSE NOT EXISTS (SELECT 1 FROM device_failures WHERE account = $8
            AND device = $14 AND spent_at IS NOT NULL) END
        AND (CAST($19 AS TEXT) IS NULL OR ",
    proof_holds!("$8", "$15", "$19"),
    ")
        AND (CAST($15 AS TEXT) IS NOT NULL OR EXISTS (SELECT 1 FROM trusted) OR NOT ",
    asks_factor!("$8", "$18"),
    ")
        FOR NO KEY UPDATE RETURNING account, created_at, network, user_agent),
    proved AS (INSERT INTO session_proofs (session, methods, factor_at, noted_at, by_passkey)
        SELECT $2, COALESCE($15, 'trusted'), COALESCE($16, 0),
        CASE WHEN CAST($19 AS TEXT) IS NOT NULL THEN $16 END, $20 FROM started
        WHERE CAST($15 AS TEXT) IS NOT NULL OR EXISTS (SELECT 1 FROM trusted)),
    proved_by AS (INSERT INTO factor_proofs (session, method, credential, at)
        SELECT $2, $15, $19, $16 FROM started WHERE CAST($19 AS TEXT) IS NOT NULL),
    replaced AS (DELETE FROM sessions WHERE token_hash = $11 AND EXISTS (SELECT 1 FROM started) RETURNING account),
    past_the_most AS (DELETE FROM sessions WHERE id IN (SELECT id FROM sessions
        WHERE account = (SELECT account FROM started) AND idle_until > $3 AND token_hash IS DISTINCT FROM $11
        ORDER BY last_seen DESC, id OFFSET 99) RETURNING account),
    changed AS (SELECT account FROM replaced UNION SELECT account FROM past_the_most),
    said_before AS (DELETE FROM session_changes WHERE account IN (SELECT account FROM changed)),
    said AS (INSERT INTO session_changes (id, account, at) SELECT CAST($2 AS TEXT) || account, account,
        CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) FROM changed),
    recorded AS (INSERT INTO sign_ins (id, account, signed_in_at, network, user_agent)
        SELECT $12, account, created_at, network, user_agent FROM started),
    forgotten AS (DELETE FROM sign_ins WHERE id IN (SELECT id FROM sign_ins
        WHERE account = (SELECT account FROM started) ORDER BY signed_in_at DESC, id OFFSET 19))
    SELECT CAST(CASE WHEN EXISTS (SELECT 1 FROM started) THEN 1
        WHEN CAST($15 AS TEXT) IS NULL AND ",
    asks_factor!("$8", "$18"),
    " THEN 0 END AS BIGINT)"
);

impl Sessions {
    /// Starts a session for an account as it was when it was verified, and ends the session that the browser came
    /// with, whoever owns it. Always with a new token, so that no token from before the sign-in stays valid. The account
    /// keeps its 100 sessions used last and its newest 20 sign-ins.
    pub async fn begin(
        &self,
        account: &Account,
        client: &SignInClient,
        proof: impl Into<Proof>,
        old: Option<&SessionToken>,
    ) -> Result<SessionStart, DbError> {
        let token = SessionToken(self.entropy.bytes());
        let session = SessionId::random(&self.entropy).to_string();
        let sign_in = HEXLOWER.encode(&self.entropy.bytes::<16>());
        let now = self.clock.now();
        let ends_at = now.plus(self.settings.absolute);
        let idle_until = now.plus(self.settings.idle).min(ends_at);
        let proof: Proof = proof.into();
        let mut version = account.password_version;
        if account.frozen_at.is_some() {
            let by_password = matches!(proof.first, FirstFactor::Password | FirstFactor::PasswordFrom(_));
            let shown = proof.second.first();
            match freeze::end_by_sign_in((&self.db, &self.clock), account, by_password, shown).await? {
                FreezeEnd::Lifted(now) => version = now,
                FreezeEnd::FactorMissing => return Ok(SessionStart::FactorMissing),
                FreezeEnd::Frozen => return Ok(SessionStart::Frozen),
            }
        }
        let (verified_at, by_password, device) = match proof.first {
            FirstFactor::Password => (now, 1_i64, None),
            FirstFactor::PasswordFrom(device) => (now, 1, Some(device.to_string())),
            FirstFactor::Code | FirstFactor::MailCode | FirstFactor::Passkey => (Micros(0), 0, None),
        };
        let second = proof.second.split_first();
        let (factor, factor_at) = second.map(|(newest, _)| (newest.method(), newest.at.0)).unzip();
        let credential = second.and_then(|(newest, _)| newest.credential.clone());
        let by_passkey = (proof.first == FirstFactor::Passkey).then_some(1_i64);
        let policy = self.policy();
        // One that knew another password is a stranger's.
        let known = client.devices.at(account.id).filter(|_| policy.trusts_devices());
        let known = known.filter(|device| device.password_version == account.password_version);
        let (trusted, required_of) = (known.map(|device| device.id.to_string()), policy.required_of());
        let (hash, old) = (self.hash(&token), old.map(|old| self.hash(old)));
        let (network, agent) = (client.network.clone(), client.user_agent.clone());
        let owner = account.id.to_string();
        let id = session.clone();
        macro_rules! bound {
            ($sql:expr) => {
                query_scalar($sql)
                    .bind(hash)
                    .bind(session)
                    .bind(now.0)
                    .bind(idle_until.0)
                    .bind(ends_at.0)
                    .bind(network)
                    .bind(agent)
                    .bind(owner)
                    .bind(version)
                    .bind(verified_at.0)
                    .bind(old)
                    .bind(sign_in)
                    .bind(by_password)
                    .bind(device)
                    .bind(factor)
                    .bind(factor_at)
                    .bind(trusted)
                    .bind(required_of)
                    .bind(credential)
                    .bind(by_passkey)
            };
        }
        let started: Vec<Option<i64>> = match &self.db {
            Db::Sqlite(pools) => traced!("sqlite", pools.write(SQLITE_SETUP, bound!(SQLITE)).await)?,
            Db::Postgres(pools) => {
                let pool = pools.reachable()?;
                traced!("postgresql", bound!(POSTGRES).fetch_all(pool).await)?
            }
        };
        Ok(match started.into_iter().flatten().next() {
            Some(1) => {
                // It has begun. What could not be written down is proved again where it is asked for.
                let _ = self.add_proofs(&id, second.map_or(&[], |(_, others)| others)).await;
                SessionStart::Begun(token)
            }
            Some(_) => SessionStart::FactorMissing,
            None => SessionStart::Void,
        })
    }

    /// What was proved in the session before it, beside the newest.
    async fn add_proofs(&self, session: &str, others: &[FactorProof]) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO factor_proofs (session, method, credential, at)
            SELECT id, $2, $3, $4 FROM sessions WHERE id = $1 ON CONFLICT DO NOTHING";
        for proof in others.iter().filter(|proof| proof.credential.is_some()) {
            execute!(&self.db => query(SQL).bind(session).bind(proof.method()).bind(&proof.credential)
                .bind(proof.at.0))?;
        }
        Ok(())
    }
}

/// Writes a keyed hash as it is stored.
pub(super) fn hash_text(hash: [u8; 32]) -> String {
    URL_SAFE_NO_PAD.encode(hash)
}

#[cfg(test)]
mod tests;
