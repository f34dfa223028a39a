//! What a sign-in writes, in one step: the new session, the end of the one that it replaces, the entry in the
//! account's recent sign-ins, and the removal of what both lists have too many of.

use sqlx::query_scalar;

use super::{SessionToken, Sessions, SignedInBy};
use crate::clock::Micros;
use crate::db::{Db, DbError, traced};
use crate::login::{Account, SessionId, SignInClient};

/// The parameters of both, in this order: $1 hash of the token, $2 the session's id, $3 now, $4 `idle_until`,
/// $5 `ends_at`, $6 network, $7 user agent, $8 account, $9 its password's version, $10 `verified_at`, $11
/// hash of the old token, $12 the sign-in's id, $13 whether it was by the password, $14 from which known
/// device. A session is inserted only if the password or the number that was verified still belongs to the
/// account and still opens it; if none was inserted, nothing else happens.
const SQLITE: &str =
    "INSERT INTO sign_in VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    RETURNING (SELECT account FROM sessions WHERE token_hash = $1)";

/// SQLite's form of a statement that does several things: a view with a trigger on INSERT. As one statement
/// it is its own transaction and wakes its caller once; as seven statements between BEGIN and COMMIT it cost
/// several times as much in waking. The numbers are literals, because a statement is planned anew whenever a
/// parameter is bound to its LIMIT. 100 sessions are kept, the new one and the 99 others used last; few
/// accounts have more, and a count finds them.
const SQLITE_SETUP: &str = "
    CREATE TEMP VIEW IF NOT EXISTS sign_in (token_hash, session, now, idle_until, ends_at, network, user_agent,
        account, password_version, verified_at, replaces, id, by_password, device)
        AS SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
    CREATE TEMP TRIGGER IF NOT EXISTS do_sign_in INSTEAD OF INSERT ON sign_in BEGIN
        INSERT INTO sessions (token_hash, id, account, created_at, last_seen, idle_until, ends_at,
            network, user_agent, verified_at)
            SELECT NEW.token_hash, NEW.session, id, NEW.now, NEW.now, NEW.idle_until, NEW.ends_at,
            NEW.network, NEW.user_agent, NEW.verified_at FROM accounts
            WHERE id = NEW.account AND password_version = NEW.password_version AND disabled_at IS NULL
            AND CASE WHEN NEW.by_password = 0 THEN 1 WHEN NEW.device IS NULL THEN password_disabled_at IS NULL
                ELSE NOT EXISTS (SELECT 1 FROM device_failures WHERE account = NEW.account
                AND device = NEW.device AND spent_at IS NOT NULL) END;
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
    END";

/// One statement, whose parts all see the tables as they were before it. The account's row is locked, so a
/// simultaneous change of the password is waited for, or waits and ends this session; another sign-in of this
/// account waits. One that waited may leave a row too many, which the next one removes.
const POSTGRES: &str = "WITH started AS (
    INSERT INTO sessions (token_hash, id, account, created_at, last_seen, idle_until, ends_at,
        network, user_agent, verified_at) SELECT $1, $2, id, $3, $3, $4, $5, $6, $7, $10 FROM accounts
        WHERE id = $8 AND password_version = $9 AND disabled_at IS NULL
        AND CASE WHEN $13 = 0 THEN TRUE WHEN $14 IS NULL THEN password_disabled_at IS NULL
            ELSE NOT EXISTS (SELECT 1 FROM device_failures WHERE account = $8
            AND device = $14 AND spent_at IS NOT NULL) END
        FOR NO KEY UPDATE RETURNING account, created_at, network, user_agent),
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
    SELECT account FROM started";

macro_rules! bind {
    ($query:expr, $($value:expr),+) => { $query$(.bind($value))+ };
}

impl Sessions {
    /// Starts a session for an account as it was when it was verified; None if its password or number was
    /// changed since, or if the password that was verified was disabled. Always with a new token, so that no
    /// token from before the sign-in stays valid. The account keeps its 100 sessions used last and its newest
    /// 20 sign-ins.
    pub async fn start(
        &self,
        account: &Account,
        client: &SignInClient,
        by: SignedInBy,
    ) -> Result<Option<SessionToken>, DbError> {
        self.renew(account, client, by, None).await
    }

    /// The same, and ends the session that the browser came with, whoever owns it.
    pub async fn renew(
        &self,
        account: &Account,
        client: &SignInClient,
        by: SignedInBy,
        old: Option<&SessionToken>,
    ) -> Result<Option<SessionToken>, DbError> {
        let token = SessionToken(self.entropy.bytes());
        let session = SessionId::random(&self.entropy).to_string();
        let sign_in = format!("{:032x}", u128::from_be_bytes(self.entropy.bytes()));
        let now = self.clock.now();
        let ends_at = now.plus(self.settings.absolute);
        let idle_until = now.plus(self.settings.idle).min(ends_at);
        let (verified_at, by_password, device) = match by {
            SignedInBy::Password => (now, 1_i64, None),
            SignedInBy::PasswordFrom(device) => (now, 1, Some(device.to_string())),
            SignedInBy::Code => (Micros(0), 0, None),
        };
        let (hash, old) = (self.hash(&token), old.map(|old| self.hash(old)));
        let (network, agent) = (client.network.clone(), client.user_agent.clone());
        let (id, version) = (account.id.to_string(), account.password_version);
        macro_rules! bound {
            ($sql:expr) => {
                bind!(
                    query_scalar($sql),
                    hash,
                    session,
                    now.0,
                    idle_until.0,
                    ends_at.0,
                    network,
                    agent,
                    id,
                    version,
                    verified_at.0,
                    old,
                    sign_in,
                    by_password,
                    device
                )
            };
        }
        let started: Vec<Option<String>> = match &self.db {
            Db::Sqlite(pools) => traced!("sqlite", pools.write(SQLITE_SETUP, bound!(SQLITE)).await)?,
            Db::Postgres(pools) => {
                let pool = pools.reachable()?;
                traced!("postgresql", bound!(POSTGRES).fetch_all(pool).await)?
            }
        };
        Ok(started.iter().any(Option::is_some).then_some(token))
    }
}
